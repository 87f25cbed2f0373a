"""What is between two transpositions is computed without them; where less would be gained than lost, all stays."""

import numpy as np
import onnx
import pytest

from litehouse.passes.sink_transposes import SinkTransposesPass
from litehouse.passes.sketch import is_fixed
from onnx_models import model, node
from pass_checks import apply, drawn, forget_shapes, ops, read, stays

LAST, FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
X = [2, 4, 6, 5]  # channels first
WEIGHTS = {
    "w": drawn(4, 4, 1, 1),
    "channel": drawn(4),
    "columns": drawn(5, 1),
    "image": drawn(1, 6, 5, 4),
    "number": np.array([0.5], np.float32),
    "low": np.array(-1, np.float32),
    "axes": np.array([1, -2]),
    "one": np.array([3]),
    "two": np.array([1, 2]),
    "starts": np.array([1, 0]),
    "ends": np.array([4, -1]),
    "pads": np.array([0, 1, 2, 0, 0, 0, 1, 3]),
    "sizes": np.array([1, 3]),
}


def between(*nodes: onnx.NodeProto, end: str = "m") -> list[onnx.NodeProto]:
    """Nodes with channels last, between two convolutions with channels first."""
    return [
        node("Conv", "x w", "c"),
        node("Transpose", "c", "t", perm=LAST),
        *nodes,
        node("Transpose", end, "b", perm=FIRST),
        node("Sigmoid", "b", "y"),
    ]


def written(nodes: list, inputs: dict | None = None, opset: int = 20) -> bytes:
    taken = {name for each in nodes for name in each.input}
    weights = {name: each for name, each in WEIGHTS.items() if name in taken}
    return model(nodes, inputs or {"x": X}, {"y": None}, weights, opset=opset)


MOVED = {
    "alone": [node("Relu", "t", "m")],
    "bounds": [node("Clip", "t low number", "m")],
    "a number": [node("Mul", "t number", "m")],
    "a weight for channels": [node("Add", "channel t", "m")],
    "a weight for columns": [node("Sub", "t columns", "m")],
    "a weight for an image": [node("Mul", "t image", "m")],
    "slopes": [node("PRelu", "t channel", "m")],
    "two": [node("Relu", "t", "r"), node("Exp", "t", "e"), node("Add", "r e", "m")],
    "concat": [node("Relu", "t", "r"), node("Concat", "t r", "m", axis=-1)],
    "concat with a weight": [node("Concat", "t picture", "m", axis=2)],
    "softmax": [node("Softmax", "t", "m")],
    "log softmax": [node("LogSoftmax", "t", "m", axis=1)],
    "mean": [node("ReduceMean", "t axes", "r", keepdims=1), node("Mul", "t r", "m")],
    "pad": [node("Pad", "t pads", "m")],
    "pad with a number": [node("Pad", "t pads low", "m")],
    "slice": [node("Slice", "t starts ends two", "m")],
    "split": [node("Split", "t sizes", "u v", axis=3), node("Relu", "u", "r"), node("Concat", "v r", "m", axis=3)],
    "cast": [node("Cast", "t", "k", to=11), node("Cast", "k", "m", to=1)],
}


@pytest.mark.parametrize("case", MOVED)
def test_what_may_be_between(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WEIGHTS, "picture", drawn(2, 6, 3, 4))
    graph = read(written(between(*MOVED[case])))
    assert apply(SinkTransposesPass(), graph)
    assert all(is_fixed(each.inputs[0]) for each in graph.graph if each.op_type == "Transpose")


def test_two_branches_that_meet() -> None:
    nodes = [
        node("Conv", "x w", "c"),
        node("Transpose", "c", "t", perm=LAST),
        node("MaxPool", "x", "p", kernel_shape=(1, 1)),
        node("Transpose", "p", "q", perm=LAST),
        node("Add", "t q", "a"),
        node("Relu", "a", "r"),
        node("Transpose", "r", "b", perm=FIRST),
        node("Sigmoid", "b", "y"),
    ]
    graph = read(written(nodes))
    assert apply(SinkTransposesPass(), graph)
    assert "Transpose" not in ops(graph)


def test_a_result_in_both_orders() -> None:
    """One that is needed with channels last too is still transposed once."""
    nodes = [*between(node("Relu", "t", "m"))[:-1], node("MatMul", "m wide", "y0"), node("Sigmoid", "b", "y")]
    taken = {name for each in nodes for name in each.input}
    weights = {name: each for name, each in (WEIGHTS | {"wide": drawn(4, 2)}).items() if name in taken}
    graph = read(model(nodes, {"x": X}, {"y": None, "y0": None}, weights))
    assert apply(SinkTransposesPass(), graph)
    assert ops(graph).count("Transpose") == 1


def test_one_after_the_other() -> None:
    """Of two stretches that share a transposition one is rewritten."""
    nodes = [
        node("Transpose", "x", "t", perm=LAST),
        node("Relu", "t", "r"),
        node("Transpose", "r", "b", perm=FIRST),
        node("Exp", "b", "e"),
        node("Transpose", "e", "u", perm=LAST),
        node("Sigmoid", "u", "s"),
        node("Transpose", "s", "z", perm=FIRST),
        node("Sqrt", "z", "y"),
    ]
    graph = read(written(nodes))
    while apply(SinkTransposesPass(), graph):
        pass
    assert ops(graph) == ["Relu", "Exp", "Sigmoid", "Sqrt"]


KEPT = {
    "nothing undoes it": [node("Transpose", "x", "t", perm=LAST), node("Relu", "t", "y")],
    "another order": [
        node("Transpose", "x", "t", perm=LAST),
        node("Relu", "t", "r"),
        node("Transpose", "r", "b", perm=LAST),
        node("Exp", "b", "y"),
    ],
    "a product": between(node("MatMul", "t square", "m")),
    "orders that differ": [
        node("Transpose", "x", "t", perm=LAST),
        node("Transpose", "x", "u", perm=(0, 2, 3, 1)[::-1]),
        node("Shape", "u", "k"),
        node("Reshape", "t k", "m"),
        node("Relu", "m", "y"),
    ],
    "with what is not transposed": [
        node("Transpose", "x", "t", perm=LAST),
        node("Add", "t z", "m"),
        node("Transpose", "m", "b", perm=FIRST),
        node("Exp", "b", "y"),
    ],
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WEIGHTS, "square", drawn(4, 4))
    taken = {name for each in KEPT[case] for name in each.input}
    assert stays(SinkTransposesPass(), written(KEPT[case], {"x": X} | ({"z": [2, 6, 5, 4]} if "z" in taken else {})))


def test_an_old_opset_is_kept() -> None:
    assert stays(SinkTransposesPass(), written(between(node("Relu", "t", "m")), opset=12))


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(between(node("Relu", "t", "m"))))
    forget_shapes(graph)
    assert not SinkTransposesPass()(graph).modified
