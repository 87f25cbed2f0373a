"""In-place writes and views: memory must behave as numpy's views do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from conftest import assert_close
from litehouse.formats.mindir.literals import TensorType
from litehouse.formats.mindir.memory import (
    Loaded,
    Memory,
    Passed,
    View,
    content,
    last_content,
    note_reads,
    views,
    written,
)
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import RefusedError
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.session import Session
from litehouse.weights import Weights

X = np.random.default_rng(2).uniform(-3, 3, (3, 4)).astype(np.float32)
FLOAT = ir.DataType.FLOAT


@dataclass
class Twin:
    """The same memory twice: as the translation sees it, and as a numpy view."""

    memory: Memory
    array: np.ndarray


class Network:
    """A network of views and in-place writes that is made step by step."""

    def __init__(self) -> None:
        self.tape = MindirTape()
        self.input = ir.Value(name="x", type=ir.TensorType(FLOAT), shape=ir.Shape(["rows", "columns"]))
        start = self.tape.op("Mul", [self.input, self.tape.constant(2, FLOAT)], dtype=FLOAT, shape=[None, None])
        self.base = Twin(Memory(self.tape.heap, start), X * 2)

    def view(self, name: str, twin: Twin, array: np.ndarray, *operands: Any) -> Twin:
        """A view op; the array is what numpy shows."""

        def show(value: ir.Value) -> ir.Value:
            self.tape.expected = TensorType(FLOAT, (None,) * array.ndim)
            shown: ir.Value = CONVERTERS[name](self.tape, [value, *operands], {})
            shown.dtype, shown.shape = FLOAT, ir.Shape([None] * array.ndim)
            return shown

        overlaps = CONVERTERS[name].overlaps
        return Twin(views(self.tape.heap, self.tape, twin.memory, show, show(twin.memory.read()), overlaps), array)

    def add(self, twin: Twin, number: float) -> None:
        """`twin += number`."""
        value = twin.memory.read()
        written(twin.memory, self.tape.op("Add", [value, self.tape.constant(number, FLOAT)], like=value))
        twin.array += number

    def check(self, engine: str, *twins: Twin) -> None:
        """Run what was made, compare each twin with its array."""
        values = [self.tape.op("Identity", [twin.memory.read()], dtype=FLOAT) for twin in twins]
        graph = ir.Graph(
            [self.input], values, nodes=self.tape.nodes, initializers=self.tape.constants, opset_imports={"": 20}
        )
        infos = [TensorInfo(value.name or "", np.dtype(np.float32), ()) for value in values]
        inputs = (TensorInfo("x", np.dtype(np.float32), ("rows", "columns")),)
        model = Model(ir.Model(graph, ir_version=10), Weights(None, {}), inputs, tuple(infos), "mindir", "memory")
        with Session(model, Options(engine=engine, threads=1)) as session:
            for index, (actual, twin) in enumerate(zip(session.run([X]), twins, strict=True)):
                assert_close(actual, twin.array, f"tensor {index}")


def test_write_to_the_base_shows_in_all_views(engine: str) -> None:
    net = Network()
    turned = net.view("TransposeView", net.base, net.base.array.T, (1, 0))
    narrow = net.view("NarrowView", turned, turned.array[1:3], 0, 1, 2)
    wide = net.view("BroadcastToView", net.base, np.broadcast_to(net.base.array, (2, 3, 4)), (2, -1, -1))
    net.add(net.base, 10)
    net.check(engine, net.base, turned, narrow, wide)


def test_write_to_a_view_shows_in_the_base_and_its_other_views(engine: str) -> None:
    net = Network()
    left = net.view("NarrowView", net.base, net.base.array[:, :3], 1, 0, 3)
    right = net.view("NarrowView", net.base, net.base.array[:, 1:], 1, 1, 3)
    net.add(left, 1)
    net.add(right, 5)
    net.add(left, -3)
    net.check(engine, net.base, left, right)


def test_write_through_a_chain_of_views(engine: str) -> None:
    net = Network()
    turned = net.view("TransposeExtView", net.base, net.base.array.T, 0, 1)
    extended = net.view("ExpandDimsView", turned, turned.array[None], 0)
    row = net.view("SelectExtView", extended, extended.array[:, 2], 1, 2)
    sliced = net.view("SliceExtView", row, row.array[:, 0:3:2], 1, 0, 3, 2)
    net.add(sliced, 7)
    net.add(net.base, 1)
    net.add(row, 2)
    net.check(engine, net.base, turned, extended, row, sliced)


def test_write_to_a_diagonal(engine: str) -> None:
    net = Network()
    base = net.base.array
    line = net.view(
        "DiagonalView", net.base, np.lib.stride_tricks.as_strided(base[:, 1:], (3,), (base.strides[0] + 4,)), 1
    )
    net.add(line, 4)
    net.check(engine, net.base, line)


def test_write_to_a_broadcast_view_is_refused() -> None:
    net = Network()
    wide = net.view("BroadcastToView", net.base, np.broadcast_to(net.base.array, (2, 3, 4)).copy(), (2, 3, 4))
    with pytest.raises(RefusedError, match="broadcast view"):
        net.add(wide, 1)


def test_a_scope_undoes_what_was_written_in_it(engine: str) -> None:
    net = Network()
    left = net.view("NarrowView", net.base, net.base.array[:, :3], 1, 0, 3)
    before = net.base.array.copy()
    with net.tape.heap.scope() as changes:
        net.add(left, 1)
        net.add(net.base, 2)
        assert net.base.memory in changes.written
    net.base.array[...] = before
    net.add(left, 4)
    net.check(engine, net.base, left)


def test_what_may_be_other_memory() -> None:
    net = Network()
    memory = net.base.memory
    passed = Passed(net.tape.heap, net.input, [memory])
    assert passed.read() is net.input
    net.add(net.base, 1)
    with pytest.raises(RefusedError, match="the latter is written, then the former is read"):
        passed.read()
    Passed(net.tape.heap, net.input, [memory]).write(net.input)
    with pytest.raises(RefusedError, match="the former is written, then the latter is read"):
        memory.read()
    weight = Memory(net.tape.heap, net.input, lasting=True)
    with pytest.raises(RefusedError, match="which is a weight"):
        Passed(net.tape.heap, net.input, [weight]).write(net.input)


def test_write_to_what_is_no_memory_is_refused() -> None:
    net = Network()
    with pytest.raises(RefusedError, match="not a tensor's memory"):
        written(Loaded(net.base.memory, net.base.memory.read()), net.base.memory.read())


def test_loaded_memory_is_of_then_for_ops_and_of_now_for_outputs() -> None:
    net = Network()
    then = net.base.memory.read()
    loaded = Loaded(net.base.memory, then)
    net.add(net.base, 1)
    now = net.base.memory.read()
    assert now is not then
    assert content((loaded, 3, None)) == (then, 3, None)
    assert last_content([loaded, net.base.memory]) == (now, now)


def test_unordered_read_of_a_view_is_refused() -> None:
    net = Network()
    turned = net.view("TransposeView", net.base, net.base.array.T, (1, 0))
    assert isinstance(turned.memory, View)
    note_reads([turned.memory], net.tape.op("Exp", [turned.memory.read()], dtype=FLOAT))
    with pytest.raises(RefusedError, match="order that the file does not state"):
        net.add(net.base, 1)
    net.add(turned, 1)  # A write through the same name is ordered.


def test_read_that_the_write_needs_is_ordered() -> None:
    net = Network()
    turned = net.view("TransposeView", net.base, net.base.array.T, (1, 0))
    total = net.tape.op("ReduceSum", [turned.memory.read()], keepdims=0, dtype=FLOAT)
    note_reads([(Loaded(turned.memory, turned.memory.read()), 2)], (total, 3))
    written(net.base.memory, net.tape.op("Add", [net.base.memory.read(), total], dtype=FLOAT, shape=[None, None]))
    stale = Loaded(turned.memory, total)
    with pytest.raises(RefusedError, match="order that the file does not state"):
        note_reads([stale], total)
