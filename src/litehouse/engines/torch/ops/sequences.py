"""Sequences, which are lists of tensors, and what may be there or not."""

from __future__ import annotations

from typing import Any

import torch

from litehouse.engines.torch.registry import op
from litehouse.engines.torch.values import ABSENT, Tensor


@op("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> list[Tensor]:  # noqa: ARG001  (a list has no dtype)
    return []


@op("SequenceConstruct")
def sequence_construct(*tensors: Tensor) -> list[Tensor]:
    return list(tensors)


@op("SequenceAt", known=["position"])
def sequence_at(sequence: list[Tensor], position: Tensor) -> Tensor:
    return sequence[_place(position, len(sequence))]


@op("SequenceErase", known=["position"])
def sequence_erase(sequence: list[Tensor], position: Tensor | None = None) -> list[Tensor]:
    place = _place(position, len(sequence)) if position is not None else len(sequence) - 1
    return [*sequence[:place], *sequence[place + 1 :]]


@op("SequenceInsert", known=["position"])
def sequence_insert(sequence: list[Tensor], tensor: Tensor, position: Tensor | None = None) -> list[Tensor]:
    place = _place(position, len(sequence), may_be_behind=True) if position is not None else len(sequence)
    return [*sequence[:place], tensor, *sequence[place:]]


@op("SequenceLength")
def sequence_length(sequence: list[Tensor]) -> Tensor:
    return torch.tensor(len(sequence), dtype=torch.int64)


def _place(position: Tensor, length: int, *, may_be_behind: bool = False) -> int:
    place = int(position.item())
    if not -length <= place < length + may_be_behind:
        raise IndexError(f"position {place} of a sequence of {length}")
    return place + length if place < 0 else place


@op("ConcatFromSequence")
def concat_from_sequence(sequence: list[Tensor], *, axis: int, new_axis: int = 0) -> Tensor:
    return torch.stack(sequence, axis) if new_axis else torch.cat(sequence, axis)


@op("SplitToSequence", known=["split"])
def split_to_sequence(x: Tensor, split: Tensor | None = None, *, axis: int = 0, keepdims: int = 1) -> list[Tensor]:
    if split is None:
        return list(x.split(1, axis) if keepdims else x.unbind(axis))
    return list(x.split(int(split) if split.ndim == 0 else split.tolist(), axis))


@op("Optional")
def optional(x: Any = ABSENT, *, type: Any = None) -> Any:  # noqa: A002, ARG001  (ONNX's own name)
    return x


@op("OptionalHasElement")
def optional_has_element(x: Any = None) -> Tensor:
    return torch.tensor(x is not None and x is not ABSENT)


@op("OptionalGetElement")
def optional_get_element(x: Any) -> Any:
    if x is ABSENT:
        raise ValueError("there is no element")
    return x
