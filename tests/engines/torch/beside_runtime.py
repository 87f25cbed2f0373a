"""Single ops on torch beside ONNX Runtime, which computes them with no optimisation."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
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
    **attributes: Any,
) -> bytes:
    """A model of one op; `dtypes` are those of its outputs, where ONNX cannot tell them; some may be left out."""
    names = ["" if array is None else f"x{place}" for place, array in enumerate(inputs)]
    results = ["" if place in left_out else f"y{place}" for place in range(outputs)]
    node = helper.make_node(op, names, results, domain=domain, **attributes)
    graph = helper.make_graph(
        [node],
        "op",
        [_info(name, array.dtype, array.shape) for name, array in zip(names, inputs, strict=True) if array is not None],
        [_info(name, kind) for name, kind in zip(results, dtypes or [None] * outputs, strict=True) if name],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def _info(name: str, dtype: Any, shape: Sequence[int] | None = None) -> onnx.ValueInfoProto:
    if dtype is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def on_torch(model: bytes, inputs: Inputs) -> list[np.ndarray]:
    """What torch computes, and torch alone."""
    from litehouse import Options, read
    from litehouse.engines.torch.engine import TorchEngine

    program = TorchEngine().compile(read(model), Options(engine="torch", cache=False))
    found = program.bind().run([array for array in inputs if array is not None])
    assert not program.lacking, f"torch lacks {program.lacking}"
    return found


def agrees(op: str, *inputs: np.ndarray | None, tolerance: float = 1e-5, **options: Any) -> list[np.ndarray]:
    """Both compute the same; integers are equal, and so are the places of NaN and inf. Returns what ours gives."""
    model = one_op(op, inputs, **options)
    expected = direct(model, {f"x{place}": array for place, array in enumerate(inputs) if array is not None})
    actual = on_torch(model, inputs)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert ours.shape == theirs.shape
        if theirs.dtype.kind == "f":
            np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(ours, theirs)
    return actual


def numbers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    """Numbers around 0; integers from -9 to 9, or from 0 where there is no sign."""
    random = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return random.integers(0, 2, shape).astype(bool)
    if kind.kind in "iu":
        return random.integers(0 if kind.kind == "u" else -9, 10, shape).astype(kind)
    return random.normal(size=shape).astype(kind)
