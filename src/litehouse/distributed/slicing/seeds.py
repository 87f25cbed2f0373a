"""Seeds: the places where a weight can be cut, and the exchange behind them that makes the result whole again.

Each is an identity by itself, whatever the rest of the graph does:

    rows         sum over the ranks of (this rank's part of a) · (this rank's rows of the weight)
    columns      all ranks' columns of a · weight, side by side
    vocabulary   sum over the ranks of the rows that this rank's part of the table has, with zeros for the others
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing.blocks import blocks_of
from litehouse.distributed.slicing.constants import only_first
from litehouse.distributed.slicing.cuts import Cut, Size
from litehouse.distributed.slicing.demands import PADDABLE, Demands, is_plain, is_weight
from litehouse.distributed.slicing.moves import Edit, Move, Site, move_for, sizes_of
from litehouse.distributed.slicing.writer import Writer

MOST_STEPS = 6  # from a weight's own node to where its result is gathered


@dataclass(frozen=True, slots=True)
class Seed:
    """A place where a weight is cut.

    Attributes:
        node: The node that uses the weight.
        kind: What each rank has of it.
        move: What the node wants of its operands.
        cut: How the result is cut until it is gathered; None where it is a sum.
        finish: Writes what else has to be done with the node's own result, in front of the exchange.
    """

    node: ir.Node
    kind: str
    move: Move
    cut: Cut | None = None
    finish: Callable[[Writer, ir.Node, ir.Value], tuple[ir.Value, ir.Node]] | None = None

    @property
    def exchange(self) -> str:
        """The op of the exchange."""
        return "AllReduce" if self.cut is None else "AllGather"


def seeds_of(demands: Demands, node: ir.Node, place: int) -> Iterator[Seed]:
    """The ways to cut the weight that is an operand of a node."""
    site = demands.site(node)
    if not _is_plain(demands, node):
        return
    for find in SUMS.get(node.op_type, ()) if not node.domain else ():
        for seed in find(site, place):
            if all(cut.divides(site.ranks) for cut in seed.move.inputs.values()):
                yield seed
    kind = "channels" if "Conv" in node.op_type else "columns"
    for _ in range(MOST_STEPS):
        yield from _columns(demands.site(node), place, kind)
        # What is computed of the result alone can be computed of a part of it, and gathered only then.
        users = [use for use in node.outputs[0].uses() if not demands.asks_shape(use.node)]
        if len(users) != 1 or node.outputs[0].is_graph_output():
            return
        node, place = users[0].node, users[0].idx
        if not _is_plain(demands, node):
            return


def _is_plain(demands: Demands, node: ir.Node) -> bool:
    """Whether only the first result of a node is used, and its rank is known."""
    outputs = [output for output in node.outputs if output.uses() or output.is_graph_output()]
    if len(outputs) != 1 or outputs[0] is not node.outputs[0] or node.graph is not demands.graph:
        return False
    return sizes_of(outputs[0]) is not None and (outputs[0].dtype is None or is_plain(outputs[0].dtype))


def _columns(site: Site, place: int, kind: str) -> Iterator[Seed]:
    """Every axis of the result along which a part of it needs only a part of an operand."""
    for axis, size in enumerate(site.out_sizes() or ()):
        if not isinstance(size, int) or size < site.ranks:
            continue
        is_padded = bool(size % site.ranks)
        if is_padded and site.node.op_type not in PADDABLE:
            continue
        cut = Cut(axis, (size,), is_padded=is_padded)
        move = move_for(site, [cut])
        if move is not None and place in move.inputs:
            yield Seed(site.node, kind, move, cut)


Find = Callable[[Site, int], Iterator[Seed]]
SUMS: dict[str, list[Find]] = {}


def sums(op_type: str) -> Callable[[Find], Find]:
    """Register ways to compute the result of an op as a sum over the ranks."""

    def register(find: Find) -> Find:
        SUMS.setdefault(op_type, []).append(find)
        return find

    return register


def _rows(site: Site, axes: tuple[int, int], kind: str, *edits: Edit) -> Iterator[Seed]:
    """Parts of the two operands along axes that a sum runs over; which elements a rank gets does not matter."""
    left, right = site.sizes(0), site.sizes(1)
    if left is None or right is None:
        return
    size = right[axes[1]]
    if isinstance(size, int) and left[axes[0]] == size:
        for blocks in ((size,), *blocks_of(site, 0, axes[0])):
            yield Seed(site.node, kind, Move({0: Cut(axes[0], blocks), 1: Cut(axes[1], blocks)}, edits))


@sums("MatMul")
def matmul_rows(site: Site, place: int) -> Iterator[Seed]:
    """Columns of the first operand, rows of the second."""
    left, right = site.sizes(0), site.sizes(1)
    if left is not None and right is not None and place < 2 and min(len(left), len(right)) >= 2:
        yield from _rows(site, (len(left) - 1, len(right) - 2), "rows")


@sums("Gemm")
def gemm_rows(site: Site, place: int) -> Iterator[Seed]:
    """Columns of the first operand, rows of the second; the first rank adds the third."""
    if place < 2 and _is_addable(site):
        axes = (0 if site.number("transA", 0) else 1), (1 if site.number("transB", 0) else 0)
        yield from _rows(site, axes, "rows", _add_once(2))


@sums("Conv")
def conv_channels(site: Site, place: int) -> Iterator[Seed]:
    """Channels of the image, and those of the weight's second axis; the first rank adds the bias."""
    if place == 1 and site.number("group", 1) == 1 and _is_addable(site):
        yield from _rows(site, (1, 1), "input channels", _add_once(2))


@sums("ConvTranspose")
def back_channels(site: Site, place: int) -> Iterator[Seed]:
    """Channels of the image, and those of the weight's first axis; the first rank adds the bias."""
    if place == 1 and site.number("group", 1) == 1 and _is_addable(site):
        yield from _rows(site, (1, 0), "input channels", _add_once(2))


@sums("Gather")
def vocabulary(site: Site, place: int) -> Iterator[Seed]:
    """Rows of a table: each rank finds those that it has."""
    table, ids = site.sizes(0), site.sizes(1)
    if place != 0 or table is None or ids is None or site.number("axis", 0) % len(table) != 0:
        return
    size, dtype = table[0], site.node.outputs[0].dtype
    if not isinstance(size, int) or size < site.ranks or dtype not in MASKED or site.opset < LEAST_OPSET:
        return
    cut = Cut(0, (size,), is_padded=bool(size % site.ranks))
    yield Seed(site.node, "vocabulary", Move({0: cut}, [_look_up(size, cut.local(site.ranks))]), finish=_mask)


def _is_addable(site: Site) -> bool:
    """Whether the third operand is a constant, or left out."""
    bias = site.input(2)
    return bias is None or is_weight(bias)


def _add_once(place: int) -> Edit:
    def edit(writer: Writer, node: ir.Node) -> None:
        bias = node.inputs[place] if place < len(node.inputs) else None
        if bias is not None:
            node.replace_input_with(place, writer.own(bias, only_first))

    return edit


INSIDE = "litehouse.inside"
MASKED = {ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16}  # of which engines have a Where
LEAST_OPSET = 9  # from which on there is one, and whole numbers are compared


def _look_up(size: int, part: int) -> Edit:
    """Make the ids places in this rank's part of the table; those of others become 0, and are noted.

    Ids that the whole table does not have are beyond the end of every part: an engine that refuses them still does.
    """

    def edit(writer: Writer, node: ir.Node) -> None:
        ids = node.inputs[1]
        assert ids is not None
        dtype = np.dtype((ids.dtype or ir.DataType.INT64).numpy())
        zero, end = (writer.constant(np.array(number, dtype)) for number in (0, part))

        def within(value: ir.Value, limit: ir.Value) -> ir.Value:
            below = writer.op("Less", [value, limit], node, like=ids, dtype=ir.DataType.BOOL)
            before = writer.op("Less", [value, zero], node, like=ids, dtype=ir.DataType.BOOL)
            return writer.op("And", [below, writer.op("Not", [before], node, like=before)], node, like=below)

        is_negative = writer.op("Less", [ids, zero], node, like=ids, dtype=ir.DataType.BOOL)
        counted = writer.op("Add", [ids, writer.constant(np.array(size, dtype))], node, like=ids)
        ids = writer.op("Where", [is_negative, counted, ids], node, like=ids)
        first = writer.rank_constant(lambda rank: np.array(rank * part, dtype))
        own = writer.op("Sub", [ids, first], node, like=ids)
        inside = within(own, end)
        place = writer.op("Where", [inside, own, zero], node, like=ids)
        is_known = within(ids, writer.constant(np.array(size, dtype)))
        node.replace_input_with(1, writer.op("Where", [is_known, place, end], node, like=ids))
        node.meta[INSIDE] = inside

    return edit


def _mask(writer: Writer, node: ir.Node, result: ir.Value) -> tuple[ir.Value, ir.Node]:
    """Zeros for the rows that other ranks have."""
    inside: ir.Value = node.meta.pop(INSIDE)
    own, rows = sizes_of(inside) or (), sizes_of(result) or ()
    axes = list(range(len(own), len(rows)))
    shape: tuple[Size, ...] = (*own, *(1 for _ in axes))
    if axes and writer.opset < 13:
        inside = writer.op("Unsqueeze", [inside], node, behind=True, like=inside, shape=shape, axes=axes)
    elif axes:
        inside = writer.op("Unsqueeze", [inside, writer.ints(*axes)], node, behind=True, like=inside, shape=shape)
    assert result.dtype is not None
    zero = writer.constant(np.zeros((), result.dtype.numpy()))
    last = inside.producer() if axes else node
    assert last is not None
    masked = writer.op("Where", [inside, result, zero], last, behind=True, like=result)
    made = masked.producer()
    assert made is not None
    return masked, made
