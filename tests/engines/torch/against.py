"""Single ops on torch, with their inputs in a list, against ONNX Runtime without its optimisations."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from engines.torch import against_runtime
from engines.torch.onnx_cases import check
from formats.onnx_runs import direct
from onnx import helper

pytest.importorskip("torch")

Inputs = Sequence[np.ndarray | None]


def one_op(
    op: str,
    inputs: Inputs,
    *,
    opset: int = 21,
    outputs: int = 1,
    domain: str = "",
    dtypes: Any = None,
    left_out: Sequence[int] = (),
    known: Sequence[int] = (),
    more: Mapping[str, Any] | None = None,
    **attributes: Any,
) -> bytes:
    """A model of one op, whose inputs are `x0`, `x1` and so on.

    Args:
        op: Its name.
        inputs: Its inputs; None for one that is left out.
        opset: The version of ONNX.
        outputs: How many outputs are wanted.
        domain: The op's domain.
        dtypes: Those of its outputs, where ONNX cannot tell them.
        left_out: The places of outputs that are not.
        known: The places of inputs that are weights of the model.
        more: Attributes of the op, whatever their names.
        attributes: Others.
    """
    names = ["" if array is None else f"x{place}" for place, array in enumerate(inputs)]
    results = ["" if place in left_out else f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **(more or {}), **attributes)
    given = [(place, array) for place, array in enumerate(inputs) if array is not None]
    graph = helper.make_graph(
        [node],
        "op",
        [_info(f"x{place}", array.dtype, array.shape) for place, array in given if place not in known],
        [_info(name, kind) for name, kind in zip(results, dtypes or [None] * outputs, strict=True) if name],
        [onnx.numpy_helper.from_array(array, f"x{place}") for place, array in given if place in known],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _info(name: str, dtype: Any, shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    if dtype is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def agrees(
    op: str,
    inputs: Inputs,
    *,
    known: Sequence[int] = (),
    tolerance: float = 1e-5,
    lacks: bool = False,
    **options: Any,
) -> list[np.ndarray]:
    """Both compute the same; whole numbers are equal, and so are the places of NaN and inf. Returns what torch gives.

    Args:
        op: The op's name.
        inputs: Its inputs; None for one that is left out.
        known: The places of inputs that are weights of the model.
        tolerance: How far numbers may be apart, relative and absolute.
        lacks: Whether torch may lack it, so that ONNX Runtime computes it.
        options: What else `one_op` takes.
    """
    model = one_op(op, inputs, known=known, **options)
    feeds = {f"x{place}": array for place, array in enumerate(inputs) if array is not None and place not in known}
    actual, expected = against_runtime.run(model, feeds, may_lack=[op] if lacks else []), direct(model, feeds)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        check(ours, np.asarray(theirs), tolerance, tolerance)
    return actual


def on_torch(model: bytes, inputs: Inputs) -> list[np.ndarray]:
    """What torch computes, and torch alone."""
    return against_runtime.run(model, {str(place): array for place, array in enumerate(inputs) if array is not None})


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers around 0; whole ones from -9 to 9, or from 0 where there is no sign."""
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        return random.integers(0 if kind.kind == "u" else -9, 10, shape).astype(kind)
    return random.normal(size=shape).astype(kind)
