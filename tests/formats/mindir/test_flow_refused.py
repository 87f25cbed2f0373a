"""Control flow that is refused, and attacks with it: files by hand, each a change of `relu(x + w)`."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from formats.builders import EXPECTED, X, attribute, constant, function, mindir, node, refused, schema, tensor

import litehouse
from litehouse import LimitError, ModelFormatError, UnsupportedOpError
from litehouse.formats.mindir import evaluate

OPS = "Add ReLU Switch Partial switch_layer MakeTuple ReduceSum Greater Load Assign raise"
Change = Callable[[schema.Model], Any]


def flow(nodes: list[schema.Node], *functions: schema.Graph) -> Change:
    """Nodes behind `relu(x + w)`, which is `r`. The last one is the network's output."""

    def change(model: schema.Model) -> None:
        del model.primitives[:]
        for name in OPS.split():
            model.primitives.add(name=f"{name}:0", op_type=name)
        model.graph.node[0].op_type, model.graph.node[1].op_type = "REF::Add:0", "REF::ReLU:0"
        model.graph.node[1].output[0] = "r"
        condition = [
            constant("axis", (0, 1)),
            constant("zero", tensor("", (), 1, np.float32(0).tobytes())),
            node("REF::ReduceSum:0", "r axis", "sum", ()),
            node("REF::Greater:0", "sum zero", "c", ()),
        ]
        condition[-1].attribute[0].tensors[0].data_type = 9
        model.graph.node.extend([*condition, *nodes])
        model.graph.output[0].name = nodes[-1].output[0]
        model.functions.extend(functions)

    return change


def one(name: str, body: str = "ReLU", inputs: str = "p") -> schema.Graph:
    """A function of one op."""
    names = " ".join(f"{name}:{item}" for item in inputs.split())
    return function(name, [node(f"REF::{body}:0", names, f"{name}:q")], f"{name}:q", names)


def chosen(then: str = "a", otherwise: str = "b", arguments: str = "r") -> list[schema.Node]:
    """An if between two functions."""
    return [
        node("REF::Partial:0", f"{then} {arguments}", "t", None),
        node("REF::Partial:0", f"{otherwise} {arguments}", "o", None),
        node("REF::Switch:0", "c t o", "s", None),
        node("REF::s", "", "y"),
    ]


CALL = node("REF::f", "r", "y")
SELF = function("f", [node("REF::f", "f:p", "f:q"), node("REF::Add:0", "f:q f:p", "f:z")], "f:z", "f:p")
OTHER_SHAPE = function("b", [node("REF::MakeTuple:0", "b:p b:p", "b:q", None)], "b:q", "b:p")


def test_unchanged() -> None:
    content = mindir(flow(chosen(), one("a"), one("b")))
    (result,) = litehouse.load(content, engine="onnxruntime").run([X])
    np.testing.assert_array_equal(result, EXPECTED)  # relu of what is positive already


def write_after_the_call(model: schema.Model) -> None:
    """A loop that writes a weight behind the call that goes round it."""
    loop = [
        node("REF::f", "f:p", "f:q"),
        node("REF::Assign:0", "G:w f:p", "f:w"),
    ]
    flow([CALL], function("f", loop, "f:q", "f:p"))(model)


def communication(model: schema.Model) -> None:
    """An exchange with other ranks in one branch of an if."""
    flow(chosen(), one("a", "AllReduce"), one("b"))(model)
    primitive = model.primitives.add(name="AllReduce:0", op_type="AllReduce")
    primitive.attribute.append(attribute("group", "world"))


def nested_loops(depth: int) -> Change:
    """Loops inside each other, where all change everything."""
    functions = []
    for level in range(depth):
        inner = f"h{level + 1}" if level + 1 < depth else "leaf"
        header = [
            node("REF::ReduceSum:0", f"h{level}:p axis", f"h{level}:s", ()),
            node("REF::Greater:0", f"h{level}:s zero", f"h{level}:c", ()),
            node("REF::Partial:0", f"b{level} h{level}:p", f"h{level}:t", None),
            node("REF::Partial:0", f"leaf h{level}:p", f"h{level}:o", None),
            node("REF::Switch:0", f"h{level}:c h{level}:t h{level}:o", f"h{level}:w", None),
            node(f"REF::h{level}:w", "", f"h{level}:q"),
        ]
        header[1].attribute[0].tensors[0].data_type = 9
        body = [
            node("REF::Add:0", f"b{level}:p G:w", f"b{level}:a"),
            node(f"REF::{inner}", f"b{level}:a", f"b{level}:i"),
            node(f"REF::h{level}", f"b{level}:i", f"b{level}:q"),
        ]
        functions += [
            function(f"h{level}", header, f"h{level}:q", f"h{level}:p"),
            function(f"b{level}", body, f"b{level}:q", f"b{level}:p"),
        ]
    return flow([node("REF::h0", "r", "y")], *functions, one("leaf"))


ATTACKS: dict[str, tuple[Change, type[litehouse.LitehouseError], str]] = {
    "recursion that is no loop": (flow([CALL], SELF), UnsupportedOpError, "recursion is not supported"),
    "a loop without an end": (
        flow([CALL], function("f", [node("REF::f", "f:p", "f:q")], "f:q", "f:p")),
        UnsupportedOpError,
        "a loop has no end",
    ),
    "a write behind the last call": (write_after_the_call, UnsupportedOpError, "written after the call"),
    "a call of a tensor": (flow([node("REF::r", "r", "y")]), UnsupportedOpError, "calls a value that is no function"),
    "a choice between tensors": (
        flow([node("REF::Switch:0", "c r r", "s", None), node("REF::s", "r", "y")]),
        UnsupportedOpError,
        "calls a value that is no function",
    ),
    "an op on a function": (
        flow([node("REF::Partial:0", "f r", "t", None), node("REF::Add:0", "t r", "y")], one("f")),
        UnsupportedOpError,
        "a function as an operand",
    ),
    "a function as the output": (
        flow([node("REF::Partial:0", "f r", "y", None)], one("f")),
        UnsupportedOpError,
        "a function as an operand",
    ),
    "Partial of a tensor": (
        flow([node("REF::Partial:0", "r r", "y", None)]),
        UnsupportedOpError,
        "first operand is no function",
    ),
    "communication in a branch": (communication, UnsupportedOpError, "communication with other ranks inside"),
    "a choice from nothing": (
        flow([node("REF::MakeTuple:0", "", "t", None), node("REF::switch_layer:0", "c t", "s", None)]),
        UnsupportedOpError,
        "no tuple of functions",
    ),
    "too many arguments in a branch": (
        flow(chosen(arguments="r r"), one("a"), one("b")),
        ModelFormatError,
        "is called with 2 arguments, takes 1",
    ),
    "branches of different form": (flow(chosen(), one("a"), OTHER_SHAPE), UnsupportedOpError, "of different form"),
    "loops 60 deep": (nested_loops(60), UnsupportedOpError, "nested more than 30 deep"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str) -> None:
    change, error, text = ATTACKS[name]
    content = mindir(change)
    with refused(error, text):
        litehouse.read(content)


def test_a_check_that_fails_is_an_error(engine: str) -> None:
    """The sum of what relu gives is positive: raises; all zeros: passes."""
    fails = function("a", [node("REF::raise:0", "", "a:q", None)], "a:q", "a:p")
    session = litehouse.load(mindir(flow(chosen(), fails, one("b"))), engine=engine)
    with pytest.raises(litehouse.EngineError, match="failed while running"):
        session.run([X])
    np.testing.assert_array_equal(session.run([X - 100])[0], np.zeros_like(X))


def test_a_network_that_only_raises() -> None:
    fails = function("f", [node("REF::raise:0", "", "f:q", None)], "f:q", "f:p")
    with refused(UnsupportedOpError, "nothing but raise an error"):
        litehouse.read(mindir(flow([CALL], fails)))


def test_too_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluate, "STEPS", 20)
    monkeypatch.setattr(evaluate, "STEPS_PER_NODE", 1)
    with refused(LimitError, "take too long"):
        litehouse.read(mindir(nested_loops(4)))


def test_nested_loops_run() -> None:
    """The attack's loops, three deep, end where the sum is not positive."""
    content = mindir(nested_loops(3))
    session = litehouse.load(content, engine="onnxruntime")
    w = session.model.weights["w"]
    w[...] = -1
    (result,) = litehouse.Session(session.model).run([X])

    def loop(level: int, x: np.ndarray) -> np.ndarray:
        if level == 3:
            return np.maximum(x, 0)
        while x.sum() > 0:
            x = loop(level + 1, x + w)
        return np.maximum(x, 0)

    np.testing.assert_array_equal(result, loop(0, np.maximum(X + w, 0)))
