"""The steps of an LSTM become one op; steps that feed back into their inputs, or that others look into, stay."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from litehouse.passes.join_cells import JoinCellsPass
from onnx_models import model, node
from pass_checks import apply, drawn, forget_shapes, ops, read, run, stays

STEPS, B, IN, H = 4, 2, 3, 5
WEIGHTS = {
    "w": drawn(4 * H, IN),
    "r": drawn(4 * H, H),
    "wt": drawn(IN, 4 * H),
    "rt": drawn(H, 4 * H),
    "b": drawn(4 * H),
    "b2": drawn(4 * H),
    "h": drawn(B, H),
    "c": drawn(B, H),
    "back": drawn(H, IN),
    "zero": np.array([0]),
    "one": np.array([1]),
    **{f"i{step}": np.array(step) for step in range(STEPS)},
}


def sums_as_mindspore(t: int, x: str, h: str) -> list[onnx.NodeProto]:
    return [
        node("Gemm", f"{x} w", f"p{t}", transB=1),
        node("Gemm", f"{h} r", f"q{t}", transB=1),
        node("Add", f"p{t} q{t}", f"s{t}"),
        node("Add", f"s{t} b", f"u{t}"),
        node("Add", f"u{t} b2", f"z{t}"),
    ]


def sums_in_another_order(t: int, x: str, h: str) -> list[onnx.NodeProto]:
    return [
        node("MatMul", f"{h} rt", f"q{t}"),
        node("Gemm", f"{x} wt b", f"p{t}"),
        node("Sum", f"q{t} p{t} b2", f"z{t}"),
    ]


def sums_without_bias(t: int, x: str, h: str) -> list[onnx.NodeProto]:
    return [node("MatMul", f"{x} wt", f"p{t}"), node("MatMul", f"{h} rt", f"q{t}"), node("Add", f"q{t} p{t}", f"z{t}")]


def step(t: int, x: str, h: str, c: str, sums: Callable = sums_as_mindspore, gates: str = "i f g o") -> list:
    """One step: the state h, the cell c."""
    parts = " ".join(f"{gate}{t}_" for gate in gates.split())
    return [
        *sums(t, x, h),
        node("Split", f"z{t}", parts, axis=1, num_outputs=4),
        node("Sigmoid", f"o{t}_", f"so{t}"),
        node("Sigmoid", f"f{t}_", f"sf{t}"),
        node("Mul", f"sf{t} {c}", f"k{t}"),
        node("Sigmoid", f"i{t}_", f"si{t}"),
        node("Tanh", f"g{t}_", f"tg{t}"),
        node("Mul", f"si{t} tg{t}", f"n{t}"),
        node("Add", f"k{t} n{t}", f"c{t}"),
        node("Tanh", f"c{t}", f"tc{t}"),
        node("Mul", f"so{t} tc{t}", f"h{t}"),
    ]


def loop(count: int = STEPS, axis: int = 0, **how: object) -> list[onnx.NodeProto]:
    """Steps over the slices of x."""
    nodes, h, c = [], "h", "c"
    for t in range(count):
        nodes += [node("Gather", f"x i{t}", f"x{t}", axis=axis), *step(t, f"x{t}", h, c, **how)]
        h, c = f"h{t}", f"c{t}"
    return nodes


def stacked(axis: int = 0, count: int = STEPS) -> list[onnx.NodeProto]:
    name = ("zero", "one")[axis]
    each = [node("Unsqueeze", f"h{t} {name}", f"v{t}") for t in range(count)]
    return [*each, node("Concat", " ".join(f"v{t}" for t in range(count)), "y", axis=axis)]


def written(nodes: list, x: tuple[int, ...] = (STEPS, B, IN), outputs: tuple[str, ...] = ("y",)) -> bytes:
    taken = {name for each in nodes for name in each.input}
    weights = {name: each for name, each in WEIGHTS.items() if name in taken}
    return model(nodes, {"x": list(x)}, dict.fromkeys(outputs), weights)


JOINED = {
    "as MindSpore writes it": [*loop(), *stacked()],
    "in another order": [*loop(sums=sums_in_another_order, gates="g o i f"), *stacked()],
    "without a bias": [*loop(sums=sums_without_bias), *stacked()],
    "the last state and cell": [*loop(), node("Sub", "h3 c3", "y")],
    "single states": [*loop(), node("Sub", "h3 h1", "y")],
    "fewer steps than there are": [*loop(3), node("Relu", "h2", "y")],
}


@pytest.mark.parametrize("case", JOINED)
def test_what_is_joined(case: str) -> None:
    graph = read(written(JOINED[case]))
    assert apply(JoinCellsPass(), graph)
    assert ops(graph).count("LSTM") == 1
    assert not {"Sigmoid", "Gemm", "MatMul"} & set(ops(graph))


def test_the_batch_may_come_first() -> None:
    graph = read(written([*loop(axis=1), *stacked(1)], (B, STEPS, IN)))
    assert apply(JoinCellsPass(), graph)
    assert ops(graph).count("LSTM") == 1
    assert ops(graph)[-1] == "Transpose"


def test_inputs_from_anywhere() -> None:
    nodes = [node("Gather", f"x i{STEPS - 1 - t}", f"x{t}", axis=0) for t in range(STEPS)]
    for t in range(STEPS):
        nodes += step(t, f"x{t}", f"h{t - 1}" if t else "h", f"c{t - 1}" if t else "c")
    graph = read(written([*nodes, *stacked()]))
    assert apply(JoinCellsPass(), graph)
    assert ops(graph).count("LSTM") == 1


def test_two_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one goes over the states of the first, step by step in turn with it."""
    monkeypatch.setitem(WEIGHTS, "w2", drawn(4 * H, H))
    first, second = {"h": "h", "c": "c"}, {"h": "h", "c": "c"}
    nodes = []
    for t in range(3):
        nodes += [node("Gather", f"x i{t}", f"x{t}", axis=0), *step(t, f"x{t}", first["h"], first["c"])]
        upper = step(10 + t, f"h{t}", second["h"], second["c"])
        upper[0] = node("Gemm", f"h{t} w2", f"p{10 + t}", transB=1)
        nodes += upper
        first, second = {"h": f"h{t}", "c": f"c{t}"}, {"h": f"h{10 + t}", "c": f"c{10 + t}"}
    graph = read(written([*nodes, node("Relu", "h12", "y")]))
    assert apply(JoinCellsPass(), graph)
    assert ops(graph).count("LSTM") == 2
    assert "Sigmoid" not in ops(graph)


FED_BACK = [
    node("Gather", "x i0", "x0", axis=0),
    *step(0, "x0", "h", "c"),
    node("MatMul", "h0 back", "x1"),
    *step(1, "x1", "h0", "c0"),
    node("Relu", "h1", "y"),
]
KEPT = {
    "one step": [*loop(1), node("Relu", "h0", "y")],
    "a state that is the next input": FED_BACK,
    "a cell that others see": [*loop(), node("Sub", "h3 c1", "y")],
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    assert stays(JoinCellsPass(), written(KEPT[case]))


def test_other_weights_in_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WEIGHTS, "w9", drawn(4 * H, IN))
    nodes = loop(2)
    place = next(index for index, each in enumerate(nodes) if list(each.input) == ["x1", "w"])
    nodes[place] = node("Gemm", "x1 w9", "p1", transB=1)
    assert stays(JoinCellsPass(), written([*nodes, node("Relu", "h1", "y")]))


def test_another_function() -> None:
    nodes = [each if each.op_type != "Tanh" else node("Relu", each.input[0], each.output[0]) for each in loop()]
    assert stays(JoinCellsPass(), written([*nodes, *stacked()]))


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(JOINED["as MindSpore writes it"]))
    forget_shapes(graph)
    assert not JoinCellsPass()(graph).modified


def test_the_numbers_by_hand() -> None:
    graph = read(written(JOINED["as MindSpore writes it"]))
    x = drawn(STEPS, B, IN)
    assert JoinCellsPass()(graph).modified
    (actual,) = run(graph, {"x": x})
    h, c = WEIGHTS["h"].astype(np.float64), WEIGHTS["c"].astype(np.float64)
    expected = []
    for t in range(STEPS):
        sums = x[t] @ WEIGHTS["w"].T + h @ WEIGHTS["r"].T + WEIGHTS["b"] + WEIGHTS["b2"]
        i, f, g, o = np.split(sums, 4, axis=1)
        c = c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))
        h = np.tanh(c) / (1 + np.exp(-o))
        expected.append(h)
    np.testing.assert_allclose(actual, np.stack(expected), atol=1e-6)


SPREAD = {
    "a bias of one number": ({"b": drawn(1)}, (STEPS, B, IN)),
    "a product of one column": ({"w": drawn(1, IN)}, (STEPS, B, IN)),
    "inputs of a batch of one": ({}, (STEPS, 1, IN)),
    "no batch": ({"h": drawn(0, H), "c": drawn(0, H)}, (STEPS, 0, IN)),  # ONNX Runtime 1.31.1 dies of such an LSTM
}


@pytest.mark.parametrize("case", SPREAD)
def test_what_is_spread_when_it_is_added(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    weights, x = SPREAD[case]
    for name, array in weights.items():
        monkeypatch.setitem(WEIGHTS, name, array)
    assert stays(JoinCellsPass(), written([*loop(), *stacked()], x))


def test_two_chains_that_feed_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone does not depend on itself, but only one of them can be one op."""
    monkeypatch.setitem(WEIGHTS, "w", drawn(4 * H, H))
    nodes = [node("Gather", "x i0", "x0", axis=0), *step(0, "x0", "h", "c"), *step(10, "x0", "c", "h")]
    nodes += [*step(1, "h10", "h0", "c0"), *step(11, "h0", "h10", "c10"), node("Sub", "h1 h11", "y")]
    graph = read(written(nodes, (STEPS, B, H)))
    assert apply(JoinCellsPass(), graph)
    assert ops(graph).count("LSTM") == 1


def body(nodes: list[onnx.NodeProto], *shape: int) -> onnx.GraphProto:
    """The body of a loop that gives `inner` once; its state is no more than that."""
    info = onnx.helper.make_tensor_value_info
    inputs = [info("turn", onnx.TensorProto.INT64, []), info("going", onnx.TensorProto.BOOL, [])]
    outputs = [info("on", onnx.TensorProto.BOOL, []), info("inner", onnx.TensorProto.FLOAT, shape)]
    return onnx.helper.make_graph([node("Identity", "going", "on"), *nodes], "body", inputs, outputs)


LOOPED = {"turns": np.array(1), "truth": np.array(True), "like": np.array([B, IN])}


def test_a_state_that_comes_back_through_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, array in LOOPED.items():
        monkeypatch.setitem(WEIGHTS, name, array)
    back = node("Loop", "turns truth", "l", body=body([node("MatMul", "h0 back", "inner")], B, IN))
    weights = {"back": WEIGHTS["back"]}
    nodes = [*FED_BACK[:-1]]
    place = next(index for index, each in enumerate(nodes) if each.output[0] == "x1")
    nodes[place : place + 1] = [back, node("Reshape", "l like", "x1")]
    taken = {name for each in nodes for name in each.input}
    weights |= {name: each for name, each in WEIGHTS.items() if name in taken}
    data = model([*nodes, node("Relu", "h1", "y")], {"x": [STEPS, B, IN]}, {"y": None}, weights)
    assert stays(JoinCellsPass(), data)


def test_states_that_are_put_together_in_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, array in LOOPED.items():
        monkeypatch.setitem(WEIGHTS, name, array)
    *parts, whole = stacked()
    whole.output[0] = "inner"
    nodes = [*loop(), node("Loop", "turns truth", "y", body=body([*parts, whole], STEPS, B, H))]
    taken = {name for each in nodes for name in each.input}
    weights = {name: each for name, each in WEIGHTS.items() if name in taken or name == "zero"}
    graph = read(model(nodes, {"x": [STEPS, B, IN]}, {"y": None}, weights))
    assert apply(JoinCellsPass(), graph)
    assert ops(graph).count("LSTM") == 1


def test_weights_of_several_chains_are_ordered_once() -> None:
    """Engines would keep a copy for each."""
    nodes = loop(2)
    for t in (2, 3):
        nodes += step(t, f"x{t - 2}", f"h{t - 1}" if t > 2 else "h", f"c{t - 1}" if t > 2 else "c")
    graph = read(written([*nodes, node("Sub", "h1 h3", "y")]))
    assert apply(JoinCellsPass(), graph)
    orders = [each for each in graph.graph if each.op_type == "LSTM"]
    assert len(orders) == 2
    assert orders[0].inputs[1] is orders[1].inputs[1]
