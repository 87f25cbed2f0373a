"""Runs of one runner, whose steps are captured: nothing of an earlier run may be seen in a later one."""

from typing import Any

import numpy as np
import onnx
import pytest
from engines.torch.against_runtime import Arrays, whole
from onnx import TensorProto as T
from onnx import helper

from litehouse import Options, read
from litehouse.engines.torch.engine import TorchEngine

X = np.arange(6, dtype=np.float32).reshape(2, 3)
node = helper.make_node
value = helper.make_tensor_value_info


def runner(nodes: list[onnx.NodeProto], inputs: Arrays, outputs: list[str], constants: Arrays | None = None) -> Any:
    model = read(whole(nodes, inputs, outputs, constants))
    return TorchEngine().compile(model, Options(engine="torch", cache=False)).bind()


def loop_body(nodes: list[onnx.NodeProto], gives: str) -> onnx.GraphProto:
    inputs = [value("i", T.INT64, []), value("c", T.BOOL, []), value("s", T.FLOAT, None)]
    outputs = [value("c", T.BOOL, []), *(value(name, T.FLOAT, None) for name in gives.split())]
    return helper.make_graph(nodes, "body", inputs, outputs)


def test_sizes_that_data_decides() -> None:
    nodes = [node("Compress", ["x", "c"], ["k"], axis=1), node("Relu", ["k"], ["a"]), node("Add", ["a", "a"], ["b"])]
    runs = runner([*nodes, node("Transpose", ["b"], ["t"])], {"x": X, "c": np.array([True])}, ["t"])
    for numbers in ("101", "111", "000", "101", "100", "111", "011", "101"):
        chosen = np.array([number == "1" for number in numbers])
        np.testing.assert_array_equal(runs.run([X, chosen])[0], (2 * X[:, chosen]).T)


def test_expanded_value_that_is_used_behind_a_step_that_waits() -> None:
    nodes = [
        *(node("Relu", ["x"], ["r"]), node("Expand", ["r", "n"], ["e"]), node("NonZero", ["x"], ["z"])),
        *(node("Shape", ["z"], ["s"]), node("Add", ["e", "x"], ["y"]), node("Add", ["y", "e"], ["w"])),
    ]
    runs = runner(nodes, {"x": X}, ["w", "s"], {"n": np.array([4, 2, 3])})
    for more in range(4):
        x = X + more
        found, shape = runs.run([x])
        np.testing.assert_array_equal(found, np.broadcast_to(3 * x, (4, 2, 3)))
        assert shape.tolist() == [2, np.count_nonzero(x)]


def test_counts_of_trips_that_change() -> None:
    body = loop_body([node("Add", ["s", "x"], ["s2"]), node("Identity", ["s2"], ["o"])], "s2 o")
    nodes = [
        *(node("Relu", ["x"], ["x0"]), node("Loop", ["M", "", "x0"], ["y", "ys"], body=body)),
        *(node("Add", ["y", "x"], ["z"]), node("Relu", ["z"], ["w"])),
    ]
    runs = runner(nodes, {"x": X, "M": np.array(3)}, ["w", "ys"])
    for trips in (3, 3, 3, 0, 2, 3, 5, 0, 1):
        found, gathered = runs.run([X + trips, np.array(trips)])
        np.testing.assert_array_equal(found, (X + trips) * (trips + 2))
        assert len(gathered) == trips


def test_count_of_trips_that_is_constant() -> None:
    body = loop_body([node("Add", ["s", "x"], ["s2"]), node("Identity", ["s2"], ["o"])], "s2 o")
    nodes = [node("Relu", ["x"], ["x0"]), node("Loop", ["M", "", "x0"], ["y", "ys"], body=body)]
    runs = runner([*nodes, node("Add", ["y", "x"], ["z"])], {"x": X}, ["z", "ys"], {"M": np.array(3)})
    for more in range(4):
        found, gathered = runs.run([X + more])
        np.testing.assert_array_equal(found, (X + more) * 5)
        np.testing.assert_array_equal(gathered[2], (X + more) * 4)


def test_count_of_trips_that_follows_from_sizes() -> None:
    body = loop_body([node("Gather", ["x", "i"], ["row"], axis=0), node("Add", ["s", "row"], ["s2"])], "s2")
    nodes = [
        *(node("Shape", ["x"], ["n"]), node("Gather", ["n", "zero"], ["M"], axis=0)),
        *(node("Gather", ["x", "zero"], ["first"], axis=0), node("Loop", ["M", "", "first"], ["y"], body=body)),
        node("Relu", ["y"], ["w"]),
    ]
    runs = runner(nodes, {"x": X}, ["w"], {"zero": np.array(0)})
    for rows in (2, 2, 2, 3, 3, 3, 1, 2):
        x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
        np.testing.assert_array_equal(runs.run([x])[0], x.sum(0) + x[0])


def test_branches_that_change() -> None:
    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph([node(op, ["x0"], ["out"])], "branch", [], [value("out", T.FLOAT, None)])

    nodes = [
        *(node("Relu", ["x"], ["x0"]), node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))),
        *(node("Add", ["y", "x"], ["z"]), node("Add", ["z", "z"], ["w"])),
    ]
    runs = runner(nodes, {"x": X, "c": np.array(True)}, ["w"])
    for more, choice in enumerate((True, True, False, True, False, False)):
        expected = 4 * (X + more) if choice else 0 * X
        np.testing.assert_array_equal(runs.run([X + more, np.array(choice)])[0], expected)


@pytest.mark.parametrize("op", ["Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"])
def test_gpu_survives_an_index_out_of_range(op: str) -> None:
    """The CPU refuses it; a GPU must not lose its context, as that would end all other networks in the process."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    from litehouse.engines.torch.registry import find_op

    found = find_op("", op, 20)
    assert found is not None
    x = torch.arange(4.0, device="cuda")
    indices = torch.tensor([1, -1, 99, -99], device="cuda")
    given = [x, indices.unsqueeze(1) if op.endswith("ND") else indices]
    result = found.function(*given, *([x] if op.startswith("Scatter") else []))
    torch.cuda.synchronize()
    assert result.shape == (4,)
    if op.startswith("Gather"):
        assert result[:2].tolist() == [1, 3]
