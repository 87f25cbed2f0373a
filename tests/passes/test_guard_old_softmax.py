"""A Softmax of an old file goes over several axes, on both engines."""

import numpy as np
import onnx
import pytest

import litehouse
from conftest import assert_close
from litehouse.passes.guard_old_softmax import GuardOldSoftmaxPass
from onnx_models import Shape, model, node
from pass_checks import drawn, ops, read, stays


def written(x: Shape, opset: int, **attributes: int) -> bytes:
    return model([node("Relu", "x", "r"), node("Softmax", "r", "y", **attributes)], {"x": x}, {"y": None}, opset=opset)


@pytest.mark.parametrize("batch", [2, "n"])
@pytest.mark.parametrize("axis", [None, 0, 1, -2])
def test_the_numbers_by_hand(engine: str, axis: int | None, batch: int | str) -> None:
    data = written([batch, 3, 4], 12, **({} if axis is None else {"axis": axis}))
    x = drawn(2, 3, 4)
    powers = np.exp(np.maximum(x.astype(np.float64), 0))
    over = (0, 1, 2) if axis == 0 else (1, 2)
    (actual,) = litehouse.load(data, engine=engine).run([x])
    assert_close(actual, (powers / powers.sum(over, keepdims=True)).astype(np.float32))


def test_inner_graphs(engine: str) -> None:
    info = onnx.helper.make_tensor_value_info("s", onnx.TensorProto.FLOAT, None)
    inner = onnx.helper.make_graph([node("Softmax", "r", "val_0"), node("Softmax", "val_0", "s")], "inner", [], [info])
    nodes = [node("Softmax", "x", "r"), node("If", "yes", "y", then_branch=inner, else_branch=inner)]
    data = model(nodes, {"x": [2, 3, 4]}, {"y": None}, {"yes": np.array(True)}, opset=11)
    x = drawn(2, 3, 4)
    expected = x.reshape(2, 12)
    for _ in range(3):
        expected = np.exp(expected) / np.exp(expected).sum(1, keepdims=True)
    assert_close(litehouse.load(data, engine=engine).run([x])[0], expected.reshape(2, 3, 4))


def test_a_file_is_guarded_once() -> None:
    graph = read(written([2, 3, 4], 11))  # reading guards it
    assert ops(graph) == ["Relu", "Flatten", "Shape", "Softmax", "Reshape"]
    assert graph.graph.outputs[0].name == "y"
    assert not GuardOldSoftmaxPass()(graph).modified


@pytest.mark.parametrize(("opset", "axis"), [(13, 1), (12, 2), (12, -1)])
def test_what_goes_along_one_axis_stays(opset: int, axis: int) -> None:
    assert stays(GuardOldSoftmaxPass(), written([2, 3, 4], opset, axis=axis))
