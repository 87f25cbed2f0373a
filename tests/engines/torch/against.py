"""One op on torch, against ONNX Runtime without its optimisations."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
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
    may_lack: bool = False,
    is_equal: bool = False,
    dtype: Any = None,
    **attributes: Any,
) -> list[np.ndarray]:
    """Both compute the same; all on torch. Returns what they compute.

    Args:
        op: Its name.
        inputs: Its inputs; None for one that is left out.
        opset: The version of ONNX.
        outputs: How many outputs are wanted.
        domain: The op's domain.
        known: The places of inputs that are weights of the model.
        tolerance: How far numbers may be apart, relative and absolute.
        may_lack: Whether ONNX Runtime may compute it.
        is_equal: Whether all bits must be equal.
        dtype: That of the outputs, where it does not follow from the inputs by itself.
        attributes: Those of the op.
    """
    from formats.onnx_runs import direct

    names = ["" if array is None else f"in_{place}" for place, array in enumerate(inputs)]
    made = [f"out_{place}" for place in range(outputs)]
    given = [
        onnx.ValueInfoProto(name=name)
        if dtype is None
        else helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), None)
        for name in made
    ]
    node = helper.make_node(op, names, made, domain=domain, **attributes)
    kinds = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for place, (name, array) in enumerate(zip(names, inputs, strict=True))
        if array is not None and place not in known
    ]
    weights = [onnx.numpy_helper.from_array(np.asarray(inputs[place]), names[place]) for place in known]
    graph = helper.make_graph([node], "op", kinds, given, weights)
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    feeds = {
        name: array
        for place, (name, array) in enumerate(zip(names, inputs, strict=True))
        if array is not None and place not in known
    }
    expected = direct(model, feeds)
    found = on_torch(model, list(feeds.values()), may_lack=may_lack)
    assert len(found) == len(expected)
    for actual, wanted in zip(found, expected, strict=True):
        assert actual.shape == wanted.shape
        assert actual.dtype == wanted.dtype
        if is_equal or wanted.dtype.kind in "biu":
            np.testing.assert_array_equal(actual, wanted)
        else:
            np.testing.assert_allclose(actual, wanted, rtol=tolerance, atol=tolerance)
    return expected


def on_torch(model: bytes, inputs: Sequence[np.ndarray], *, may_lack: bool = False) -> list[np.ndarray]:
    """What a model gives on torch."""
    from litehouse import Options, read
    from litehouse.engines.torch.engine import TorchEngine

    program = TorchEngine().compile(read(model), Options(engine="torch", cache=False))
    found = program.bind().run(list(inputs))
    assert may_lack or not program.lacking, f"torch lacks {program.lacking}"
    return found


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Random ones."""
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)
