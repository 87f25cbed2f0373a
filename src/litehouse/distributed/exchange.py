"""The exchanges of a graph: which ranks take part, what their letters are called, and what all must agree on."""

from __future__ import annotations

import collections
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.distributed.collectives import EXCHANGES
from litehouse.distributed.groups import Groups
from litehouse.distributed.meanings import MUST_MATCH
from litehouse.errors import EngineError

HINTS = {"rank_id", "fusion", "index"}  # attributes in which ranks may differ
BETWEEN_TWO = {"Send", "Receive"}
MAX_RANKS_TEXT = 64  # letters; a longer list of ranks is written as a digest


@dataclass(frozen=True, slots=True)
class Exchange:
    """One exchange of the graph.

    Attributes:
        node: Its node.
        group: The ranks that take part, in their order.
        label: What its letters are called, by all of them.
        attributes: Those of the node.
        what: The op and its node, for error texts.
        shared: What all of them must agree on.
    """

    node: ir.Node
    group: tuple[int, ...]
    label: str
    attributes: dict[str, Any]
    what: str
    shared: str


def find_exchanges(nodes: Iterable[ir.Node], groups: Groups, rank: int, path: str) -> dict[ir.Node, Exchange]:
    """The exchanges, by their nodes in the order of the file: in that order all ranks count them.

    Args:
        nodes: Their nodes.
        groups: The groups that they name.
        rank: Which rank this is.
        path: The file, for error texts.

    Raises:
        EngineError: An op, a group or a rank is not known.
    """
    counts: collections.Counter[str] = collections.Counter()
    found = {}
    for node in nodes:
        what = f"{node.op_type} (node {node.name})"
        if node.op_type not in EXCHANGES:
            raise EngineError(f"{path}: {what} is no exchange between ranks that Litehouse knows")
        attributes = {name: _plain(attribute) for name, attribute in node.attributes.items()}
        group = () if node.op_type == "Depend" else groups.ranks(str(attributes.get("group", "")), what)
        _check_size(node.op_type, attributes, group, rank, path, what)
        name = _name(node.op_type, attributes, group, rank)
        counts[name] += 1
        found[node] = Exchange(node, group, f"{name} {counts[name]}", attributes, what, _shared(node, attributes))
    return found


def _plain(attribute: Any) -> Any:
    value = attribute.value
    return list(value) if isinstance(value, tuple | list) else value


def _check_size(op: str, attributes: dict[str, Any], group: tuple[int, ...], rank: int, path: str, what: str) -> None:
    size = attributes.get("rank_size") or attributes.get("split_count") or len(group)
    if op != "Depend" and size != len(group):
        hint = "start it with all of its ranks, as in `mpirun -n`" if len(group) == 1 else "start it with so many"
        raise EngineError(
            f"{path}: {what} is for {size} ranks, but there {'is' if len(group) == 1 else 'are'} {len(group)}; {hint}"
        )
    own = attributes.get("rank_id")
    if own is not None and group.index(rank) != own:
        raise EngineError(f"{path}: the file is the one of rank {own}, not of rank {rank} ({what})")


def _name(op: str, attributes: dict[str, Any], group: tuple[int, ...], rank: int) -> str:
    """What an exchange is called, up to how many of that name there are."""
    if op not in BETWEEN_TWO:
        ranks = ",".join(map(str, group))
        if len(ranks) > MAX_RANKS_TEXT:
            ranks = hashlib.sha256(ranks.encode()).hexdigest()
        return f"{op} {ranks}"
    place = attributes["dest_rank" if op == "Send" else "src_rank"]
    other = group[place] if 0 <= place < len(group) else place
    ends = (rank, other) if op == "Send" else (other, rank)
    return f"Send {ends[0]}>{ends[1]} {attributes.get('sr_tag', 0)}"


def _shared(node: ir.Node, attributes: dict[str, Any]) -> str:
    """What all ranks of the group must agree on, as far as the file tells."""
    value = node.outputs[0] if node.op_type == "Receive" else (node.inputs[0] if node.inputs else None)
    dtype = value.dtype.name if value is not None and value.dtype is not None else ""
    must = node.op_type in MUST_MATCH or node.op_type in BETWEEN_TWO
    shape = ""
    if must and value is not None and value.shape is not None and value.shape.is_static():
        shape = str(list(value.shape.numpy()))
    told = {} if node.op_type in BETWEEN_TWO or node.op_type.startswith("Neighbor") else attributes
    kept = {name: told[name] for name in sorted(told) if name not in HINTS and name != "group"}
    return f"{dtype} {shape} {kept}"


def call_dtype(value: ir.Value) -> np.dtype:
    """What is sent of a value."""
    assert value.dtype is not None
    return np.dtype(value.dtype.numpy())
