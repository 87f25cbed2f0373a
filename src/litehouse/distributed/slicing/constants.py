"""Constants that are not the same on all ranks: parts of weights, and the numbers that tell a rank's place."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from litehouse.distributed.slicing.cuts import Cut
from litehouse.weights import Weights

ForRank = Callable[[int], ir.TensorProtocol]
"""A constant for each rank."""


def part_of(tensor: ir.TensorProtocol, cut: Cut, ranks: int, name: str) -> ForRank:
    """A weight's part for each rank. It is taken out of the weight's own memory when it is asked for, and not kept."""
    shape = [int(size) for size in tensor.shape]  # type: ignore[arg-type]
    shape[cut.axis] = cut.local(ranks)
    return lambda rank: ir.LazyTensor(
        lambda: ir.Tensor(_part(tensor.numpy(), cut, rank, ranks), dtype=tensor.dtype, name=name),
        dtype=tensor.dtype,
        shape=ir.Shape(shape),
        name=name,
    )


def _part(array: np.ndarray, cut: Cut, rank: int, ranks: int) -> np.ndarray:
    before = (slice(None),) * cut.axis
    parts = [array[(*before, slice(start, end))] for start, end in cut.ranges(rank, ranks)]
    missing = cut.local(ranks) - sum(part.shape[cut.axis] for part in parts)
    if missing:
        parts.append(np.zeros((*array.shape[: cut.axis], missing, *array.shape[cut.axis + 1 :]), array.dtype))
    return np.ascontiguousarray(parts[0]) if len(parts) == 1 else np.concatenate(parts, cut.axis)


def only_first(tensor: ir.TensorProtocol, name: str) -> ForRank:
    """The constant for the first rank, and zeros for the others, so that their sum is the constant."""
    zeros = ir.LazyTensor(
        lambda: ir.Tensor(np.zeros(tensor.shape.numpy(), tensor.dtype.numpy()), dtype=tensor.dtype, name=name),
        dtype=tensor.dtype,
        shape=tensor.shape,  # type: ignore[arg-type]
        name=name,
    )
    return lambda rank: zeros if rank else tensor


def bound(array: Callable[[int], np.ndarray], name: str) -> ForRank:
    """Few numbers for each rank."""
    return lambda rank: ir.Tensor(array(rank), name=name)


class RankWeights(Weights):
    """The weights of one rank, taken out of those of the whole model when they are asked for."""

    def __init__(self, tensors: dict[str, ir.TensorProtocol]) -> None:
        """The weights are these tensors."""
        super().__init__(None, {})
        self._tensors = tensors

    def __getitem__(self, name: str) -> np.ndarray:
        """The weight of that name, a copy where only a part of it is this rank's."""
        return self._tensors[name].numpy()

    def __iter__(self) -> Iterator[str]:
        """The names."""
        return iter(self._tensors)

    def __len__(self) -> int:
        """Count of weights."""
        return len(self._tensors)

    @property
    def nbytes(self) -> int:
        """Bytes of all weights together."""
        return sum(tensor.nbytes for tensor in self._tensors.values())
