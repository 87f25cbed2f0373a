"""Graphs that call each other in `.ms` files which are written here: several results, loops, and calls without end."""

from typing import Any

import numpy as np
import pytest
from formats.builders import refused
from formats.ms.ms_builder import (
    ADD,
    GRAPHS,
    INT32,
    Numbers,
    flat,
    model,
    node,
    tensor,
)

import litehouse
from conftest import assert_close
from litehouse import Limits, ModelFormatError, UnsupportedOpError

BOOL = 30
GREATER, MULTIPLY, PARTIAL, SUBTRACT, SWITCH, CALL = 71, 99, 108, 152, 154, 190
X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)


def graph(name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], nodes: tuple[int, ...]) -> dict[int, Any]:
    return {0: name, 1: Numbers("I", inputs), 2: Numbers("I", outputs), 3: Numbers("I", nodes)}


def value(name: str) -> dict[int, Any]:
    return tensor(name, (2, 3))


def number(name: str, content: float | int) -> dict[int, Any]:
    if isinstance(content, int):
        return tensor(name, None, np.int32(content).tobytes(), INT32)
    return tensor(name, None, np.float32(content).tobytes())


def partial(index: int, inputs: tuple[int, ...], output: int) -> dict[int, Any]:
    return node(PARTIAL, inputs, (output,), {0: ("q", index)})


def branches() -> dict[int, Any]:
    """`(x + 1, x * x) if flag else (x - 1, x)`."""
    tensors = [
        tensor("flag", (), None, BOOL),
        value("x"),
        value("then"),
        value("otherwise"),
        value("chosen"),
        value("first"),
        value("second"),
        value("x1"),
        number("one", 1.0),
        value("sum"),
        value("square"),
        value("x2"),
        value("difference"),
    ]
    nodes = [
        partial(1, (1,), 2),
        partial(2, (1,), 3),
        node(SWITCH, (0, 2, 3), (4,)),
        node(CALL, (4,), (5, 6)),
        node(ADD, (7, 8), (9,)),
        node(MULTIPLY, (7, 7), (10,)),
        node(SUBTRACT, (11, 8), (12,)),
    ]
    root = model(tensors, nodes, (0, 1), (5, 6))
    root[GRAPHS] = [
        graph("main", (0, 1), (5, 6), (0, 1, 2, 3)),
        graph("then", (7,), (9, 10), (4, 5)),
        graph("otherwise", (11,), (12, 11), (6,)),
    ]
    return root


def test_several_results_of_a_branch(engine: str) -> None:
    session = litehouse.load(flat(branches()), engine=engine, threads=1)
    for flag, expected in ((True, (X + 1, X * X)), (False, (X - 1, X))):
        for result, wanted in zip(session.run([np.array(flag), X]), expected, strict=True):
            assert_close(result, wanted)


def loop() -> dict[int, Any]:
    """`while n > 0: x, total, n = x * 2, total + x, n - 1`, which gives back x and the total."""
    tensors = [
        tensor("n", (), None, INT32),
        value("x"),
        value("start"),
        value("x end"),
        value("total end"),
        # The header: n, x, total.
        tensor("n1", (), None, INT32),
        value("x1"),
        value("total1"),
        number("zero", 0),
        tensor("goes on", (), None, BOOL),
        value("body"),
        value("leave"),
        value("chosen"),
        value("x1 end"),
        value("total1 end"),
        # The body.
        tensor("n2", (), None, INT32),
        value("x2"),
        value("total2"),
        number("two", 2.0),
        value("x2 next"),
        value("total2 next"),
        number("one", 1),
        tensor("n2 next", (), None, INT32),
        value("again"),
        value("x2 end"),
        value("total2 end"),
        # What it leaves with.
        value("x3"),
        value("total3"),
    ]
    nodes = [
        partial(1, (0, 1, 1), 2),
        node(CALL, (2,), (3, 4)),
        node(GREATER, (5, 8), (9,)),
        partial(2, (5, 6, 7), 10),
        partial(3, (6, 7), 11),
        node(SWITCH, (9, 10, 11), (12,)),
        node(CALL, (12,), (13, 14)),
        node(MULTIPLY, (16, 18), (19,)),
        node(ADD, (17, 16), (20,)),
        node(SUBTRACT, (15, 21), (22,)),
        partial(1, (22, 19, 20), 23),
        node(CALL, (23,), (24, 25)),
    ]
    root = model(tensors, nodes, (0, 1), (3, 4))
    root[GRAPHS] = [
        graph("main", (0, 1), (3, 4), (0, 1)),
        graph("header", (5, 6, 7), (13, 14), (2, 3, 4, 5, 6)),
        graph("body", (15, 16, 17), (24, 25), (7, 8, 9, 10, 11)),
        graph("leave", (26, 27), (26, 27), ()),
    ]
    return root


def test_a_loop_with_several_results(engine: str) -> None:
    session = litehouse.load(flat(loop()), engine=engine, threads=1)
    for count in (0, 1, 5):
        x, total = X, X
        for _ in range(count):
            x, total = x * 2, total + x
        for result, wanted in zip(session.run([np.array(count, np.int32), X]), (x, total), strict=True):
            assert_close(result, wanted)


# Attacks --------------------------------------------------------------------------------------------------------------


def calls(*targets: int) -> bytes:
    """Graphs that each call another by number: graph n calls `targets[n]`, twice."""
    tensors, nodes, graphs = [], [], []
    for place, target in enumerate(targets):
        first = len(tensors)
        tensors += [value(f"{name}{place}") for name in ("x", "f", "y", "z")]
        names = (first, first + 1, first + 2, first + 3)
        made = [
            partial(target, (), names[1]),
            node(CALL, (names[1], names[0]), (names[2],)),
            node(CALL, (names[1], names[2]), (names[3],)),
        ]
        graphs.append(graph(f"g{place}", names[:1], names[3:], tuple(range(len(nodes), len(nodes) + 3))))
        nodes += made
    tensors += [value("x"), value("y")]
    end = len(tensors) - 2
    graphs.append(graph("end", (end,), (end + 1,), (len(nodes),)))
    nodes.append(node(ADD, (end, end), (end + 1,)))
    root = model(tensors, nodes, (0,), (3,))
    root[GRAPHS] = graphs
    return flat(root)


def test_calls(engine: str) -> None:
    """Three graphs that call the next one twice: x is doubled eight times."""
    (result,) = litehouse.load(calls(1, 2, 3), engine=engine, threads=1).run([X])
    assert_close(result, X * 256)


def test_a_graph_that_calls_itself_without_end() -> None:
    with refused(UnsupportedOpError):
        litehouse.read(calls(1, 1))


def test_graphs_that_call_each_other_without_end() -> None:
    with refused(UnsupportedOpError):
        litehouse.read(calls(1, 2, 1))


def test_many_graphs_that_each_call_the_next_one_twice() -> None:
    """Forty graphs, and two to the power of forty calls."""
    with refused(ModelFormatError):
        litehouse.read(calls(*range(1, 41)), limits=Limits(max_nodes=20_000))


def test_a_long_chain_of_calls() -> None:
    with refused(ModelFormatError):
        litehouse.read(calls(*range(1, 1000)))


@pytest.mark.parametrize("index", [-1, 0, 2, 2**62])
def test_a_graph_that_is_not_there(index: int) -> None:
    with refused(ModelFormatError, "refers to graph"):
        litehouse.read(calls(index))


def test_a_call_of_nothing() -> None:
    root = branches()
    root[6][3] = node(CALL, (), (5, 6))
    with refused(ModelFormatError, "calls nothing"):
        litehouse.read(flat(root))


def test_a_call_of_a_number() -> None:
    root = branches()
    root[6][3] = node(CALL, (1,), (5, 6))
    with refused(UnsupportedOpError, "no function"):
        litehouse.read(flat(root))


def test_a_function_as_an_operand() -> None:
    root = branches()
    root[6][2] = node(ADD, (2, 3), (4,))
    with refused(UnsupportedOpError, "a function as an operand"):
        litehouse.read(flat(root))
