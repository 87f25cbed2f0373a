"""One op on torch, with its inputs in a list, against ONNX Runtime without its optimisations."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from engines.torch import against_runtime
from onnx import helper

pytest.importorskip("torch")


def agrees(
    op: str,
    inputs: Sequence[np.ndarray | None],
    *,
    opset: int = 21,
    outputs: int = 1,
    domain: str = "",
    known: Sequence[int] = (),
    tolerance: float = 1e-5,
    lacks: bool = False,
    **attributes: Any,
) -> list[np.ndarray]:
    """Both compute the same. Returns what they compute.

    Args:
        op: Its name.
        inputs: Its inputs; None for one that is left out.
        opset: The version of ONNX.
        outputs: How many outputs are wanted.
        domain: The op's domain.
        known: The places of inputs that are weights of the model.
        tolerance: How far numbers may be apart, relative and absolute.
        lacks: Whether torch may lack it, so that ONNX Runtime computes it.
        attributes: Those of the op.
    """
    names = ["" if array is None else f"in_{place}" for place, array in enumerate(inputs)]
    made = [f"out_{place}" for place in range(outputs)]
    arrays = [(place, name, array) for place, (name, array) in enumerate(zip(names, inputs, strict=True))]
    feeds = {name: array for place, name, array in arrays if array is not None and place not in known}
    weights = {name: array for place, name, array in arrays if array is not None and place in known}
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    model = against_runtime.whole([node], feeds, made, weights, opset)
    return against_runtime.agrees(model, feeds, may_lack=[op] if lacks else [], tolerance=tolerance)


def on_torch(model: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    """What a model gives on torch."""
    return against_runtime.run(model, {str(place): array for place, array in enumerate(inputs)})


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Random ones."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)
