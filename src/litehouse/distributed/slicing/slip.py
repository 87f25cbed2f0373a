"""The slip that a slice carries: which job it belongs to, and which rank of it it is."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import onnx_ir as ir

from litehouse.errors import ModelFormatError
from litehouse.model import Model

KEY = "litehouse_job"
MARK = "litehouse slice"
READ_KEY = f"user_info.{KEY}"  # where the reader of ONNX files leaves it


@dataclass(frozen=True, slots=True)
class JobSlip:
    """What a slice says about itself.

    Attributes:
        fingerprint: The same for all slices that were made together, and for no others.
        rank: Which of them it is.
        size: How many there are.
    """

    fingerprint: str
    rank: int
    size: int

    def text(self) -> str:
        """The slip as it stands in a file."""
        return json.dumps(asdict(self), sort_keys=True)

    def mark(self) -> bytes:
        """What stands at the end of the file with the weights, which is copied apart from the one with the graph."""
        return f"{MARK} {self.fingerprint} {self.rank:>8}".encode()


def check_data(model: Model, own: JobSlip) -> None:
    """Refuse weights that are not those of the slice.

    Raises:
        ModelFormatError: The file beside the model is of another slicing, or of another rank.
    """
    for name in model.files:
        with open(os.path.join(os.path.dirname(model.path), name), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - len(own.mark())))
            if file.read() != own.mark():
                raise ModelFormatError(
                    f"the file {name!r} beside it does not hold the weights of this slice, but of another slicing or "
                    "rank; copy both files of each rank",
                    path=model.path,
                )


def read(model: Model) -> JobSlip | None:
    """The slip of a model; None where it is no slice.

    Raises:
        ModelFormatError: The slip is damaged.
    """
    text = model.metadata.get(READ_KEY)
    if text is None:
        return None
    try:
        facts = json.loads(text)
        slip = JobSlip(facts["fingerprint"], facts["rank"], facts["size"])
    except (ValueError, KeyError, TypeError, RecursionError):
        slip = None
    if slip is None or not _is_sound(slip):
        raise ModelFormatError(
            f"the slip {KEY!r} does not tell fingerprint, rank and size; the file is damaged: slice the model again",
            path=model.path,
        )
    return slip


def _is_sound(slip: JobSlip) -> bool:
    numbers = [number for number in (slip.rank, slip.size) if type(number) is int]
    return isinstance(slip.fingerprint, str) and len(numbers) == 2 and 0 <= slip.rank < slip.size


def fingerprint(graph: ir.Model, *facts: Any) -> str:
    """A digest of a graph, its weights and other facts."""
    digest = hashlib.sha256(repr(facts).encode())
    bare = graph.clone()
    for name, value in sorted(graph.graph.initializers.items()):
        tensor = value.const_value
        if tensor is not None:
            digest.update(repr((name, str(tensor.dtype), tensor.shape)).encode())
            if tensor.dtype == ir.DataType.STRING:
                digest.update(repr(tensor.numpy().tolist()).encode())
            else:
                array = tensor.numpy()
                digest.update(array.reshape(-1).view("u1").data if array.flags.c_contiguous else array.tobytes())
        bare.graph.initializers.pop(name)
    for node in bare.graph.all_nodes():
        for value in node.outputs:
            value.shape = value.type = None
    digest.update(ir.serde.serialize_model(bare).SerializeToString(deterministic=True))
    return digest.hexdigest()
