"""The steps of a Gelu become one op: the same numbers, or the graph stays as it is."""

import math

import numpy as np
import onnx
import pytest

from conftest import assert_close
from litehouse.passes.join_gelu import JoinGeluPass
from onnx_models import Shape, model, node
from pass_checks import drawn, ops, read, run, stays

NUMBERS = {"root": math.sqrt(2), "inverse": math.sqrt(0.5), "one": 1.0, "half": 0.5, "two": 2.0, "other": 0.51}
INSIDE = {
    "divided": [node("Div", "x root", "d")],
    "multiplied": [node("Mul", "x inverse", "d")],
    "number first": [node("Mul", "inverse x", "d")],
}
BEHIND = {
    "x first": [node("Mul", "x a", "m"), node("Mul", "m half", "y")],
    "half first": [node("Mul", "a half", "m"), node("Mul", "x m", "y")],
    "half of x": [node("Mul", "x half", "h"), node("Mul", "h a", "y")],
    "half of x behind": [node("Mul", "half x", "h"), node("Mul", "a h", "y")],
}


def gelu(*nodes: onnx.NodeProto, x: Shape = (4, 8), outputs: str = "y", rank: int = 0, **numbers: float) -> bytes:
    """A network with those of the numbers that it uses, of so many axes."""
    used = {name for each in nodes for name in each.input}
    values = {name: number for name, number in {**NUMBERS, **numbers}.items() if name in used}
    weights = {name: np.full((1,) * rank, number, np.float32) for name, number in values.items()}
    return model(nodes, {"x": x}, dict.fromkeys(outputs.split()), weights)


def whole(inside: str = "divided", behind: str = "x first") -> list[onnx.NodeProto]:
    return [*INSIDE[inside], node("Erf", "d", "e"), node("Add", "e one", "a"), *BEHIND[behind]]


def by_hand(x: np.ndarray) -> np.ndarray:
    curve = np.vectorize(math.erf)(x.astype(np.float64) / math.sqrt(2))
    return (x * (curve + 1) / 2).astype(np.float32)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("inside", INSIDE)
def test_joined(inside: str, behind: str, rank: int) -> None:
    graph = read(gelu(*whole(inside, behind), rank=rank))
    assert JoinGeluPass()(graph).modified
    x = drawn(4, 8) * 2
    assert "Gelu" in ops(graph)
    (found,) = run(graph, {"x": x})
    assert_close(found, by_hand(x))
    assert graph.graph.outputs[0].name == "y"


def test_what_is_left_of_it() -> None:
    import onnx_ir.passes.common as common

    graph = read(gelu(*whole()))
    JoinGeluPass()(graph)
    common.RemoveUnusedNodesPass()(graph)
    assert ops(graph) == ["Gelu"]
    assert graph.graph.opset_imports["com.microsoft"] == 1


def test_several_of_one_value() -> None:
    """Each has its own steps; the division is one."""
    nodes = [*INSIDE["divided"]]
    for place in range(2):
        nodes += [node("Erf", "d", f"e{place}"), node("Add", f"e{place} one", f"a{place}")]
        nodes += [node("Mul", f"x a{place}", f"m{place}"), node("Mul", f"m{place} half", f"y{place}")]
    graph = read(gelu(*nodes, outputs="y0 y1"))
    assert JoinGeluPass()(graph).modified
    assert ops(graph).count("Gelu") == 2
    x = drawn(4, 8)
    for found in run(graph, {"x": x}):
        assert_close(found, by_hand(x))


def test_a_gelu_that_is_multiplied_on() -> None:
    nodes = [
        *whole(behind="half of x")[:-1],
        node("Mul", "h a", "g"),
        node("Mul", "g x", "n"),
        node("Mul", "n half", "y"),
    ]
    graph = read(gelu(*nodes))
    assert JoinGeluPass()(graph).modified
    x = drawn(4, 8)
    assert_close(run(graph, {"x": x})[0], by_hand(x) * x / 2)


@pytest.mark.parametrize("root", [1.4142, 1.41421, math.sqrt(2)])
def test_roots_of_four_digits(root: float) -> None:
    graph = read(gelu(*whole(), root=root))
    assert JoinGeluPass()(graph).modified
    x = drawn(4, 8) * 2
    assert_close(run(graph, {"x": x})[0], by_hand(x))


CURVE = [node("Div", "x root", "d"), node("Erf", "d", "e")]
SUM = [*CURVE, node("Add", "e one", "a")]
END = BEHIND["x first"]
NEAR: dict[str, bytes] = {
    "another root": gelu(*whole(), root=1.5),
    "nearly the root": gelu(*whole(), root=1.4138),
    "nearly the inverse": gelu(*whole("multiplied"), inverse=0.7068),
    "root and not its inverse": gelu(node("Mul", "x root", "d"), *whole()[1:]),
    "the other way round": gelu(node("Div", "root x", "d"), *whole()[1:]),
    "another sum": gelu(*whole(), one=1.01),
    "a difference": gelu(*CURVE, node("Sub", "e one", "a"), *END),
    "another half": gelu(*whole(), half=0.51),
    "no half": gelu(*SUM, node("Mul", "x a", "y")),
    "two halves": gelu(*SUM, node("Mul", "a half", "m"), node("Mul", "m half", "n"), node("Mul", "n x", "y")),
    "twice x": gelu(*SUM, node("Mul", "a x", "m"), node("Mul", "m x", "n"), node("Mul", "n half", "y")),
    "another x": gelu(*SUM, node("Neg", "x", "z"), node("Mul", "z a", "m"), node("Mul", "m half", "y")),
    "half of another": gelu(*SUM, node("Neg", "x", "z"), node("Mul", "z half", "h"), node("Mul", "a h", "y")),
    "the curve is an output": gelu(*whole(), outputs="y e"),
    "the sum is an output": gelu(*whole(), outputs="y a"),
    "a product is an output": gelu(*whole(), outputs="y m"),
    "the curve is used elsewhere": gelu(*whole(), node("Neg", "e", "z"), outputs="y z"),
    "the sum is used elsewhere": gelu(*whole(), node("Neg", "a", "z"), outputs="y z"),
    "the sum with itself": gelu(*SUM, node("Mul", "a a", "m"), node("Mul", "m half", "y")),
    "divided at the end": gelu(*SUM, node("Mul", "x a", "m"), node("Div", "half m", "y")),
    "a tangent": gelu(node("Div", "x root", "d"), node("Tanh", "d", "e"), node("Add", "e one", "a"), *END),
    "a number that makes it larger": gelu(*whole(), rank=3),
    "a number that gives it an axis": gelu(*whole(), x=(), rank=1),
}


@pytest.mark.parametrize("case", NEAR)
def test_near_misses_stay(case: str) -> None:
    assert stays(JoinGeluPass(), NEAR[case])


def test_other_types_stay() -> None:
    for kind, dtype in ((onnx.TensorProto.FLOAT16, np.float16), (onnx.TensorProto.DOUBLE, np.float64)):
        used = {name: np.array(NUMBERS[name], dtype) for name in ("root", "one", "half")}
        assert stays(JoinGeluPass(), model(whole(), {"x": (4, 8)}, {"y": None}, used, dtype=kind))


def test_numbers_that_are_inputs_stay() -> None:
    weights = {name: np.float32(NUMBERS[name]) for name in ("root", "one")}
    assert stays(JoinGeluPass(), model(whole(), {"x": (4, 8), "half": ()}, {"y": None}, weights))


@pytest.mark.parametrize("case", NEAR)
def test_near_misses_are_right_on_torch(case: str) -> None:
    pytest.importorskip("torch")
    import litehouse

    data = NEAR[case]
    graph = read(data)
    shape = litehouse.read(data).inputs[0].shape
    x = drawn(*shape) if shape else np.array(1.25, np.float32)
    found = litehouse.load(data, engine="torch", cache=False).run([x])
    for actual, expected in zip(found, run(graph, {"x": x}), strict=True):
        assert_close(actual, expected)
