"""Long series of calls on small networks, drawn with fixed seeds: no call may see anything of those before it.

Truth is what ONNX Runtime computes with no optimisation from a file that holds the present weights.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import onnx
import pytest
from formats.onnx_runs import direct
from onnx import TensorProto as T
from onnx import helper

import litehouse
from conftest import assert_close
from litehouse import EngineError, WeightError
from litehouse.engines.torch import pieces, shortcut

torch = pytest.importorskip("torch")

value = helper.make_tensor_value_info
CONSTANTS = {"zero": np.int64(0), "last": np.int64([-1]), "two": np.int64([2]), "half": np.float32(0.5)}


class Network:
    """A chain of random nodes on an input `x` of n rows, 8 columns; `i` are indices of columns."""

    def __init__(self, draw: random.Random) -> None:
        """Draw it."""
        self.draw, self.nodes = draw, list[onnx.NodeProto]()
        self.weights: dict[str, np.ndarray] = {}
        self.rows, self.is_cut = draw.choice([3, "n"]), draw.choice([True, False])
        chain, steps = ["x"], [self.plain, self.product, self.derived, self.sizes, self.branch, self.loop]
        steps += [self.picked] * self.is_cut
        for _ in range(draw.randint(3, 8)):
            chain.append(draw.choice(steps)(chain[-1]))
        outputs = [chain[-1], self.node("Gather", chain[-1], "i", axis=1), self.node("Identity", draw.choice(chain))]
        outputs.append(self.node("Identity", draw.choice([*chain, *self.weights])))
        self.outputs = dict.fromkeys(outputs, T.FLOAT)
        self.outputs |= {self.node("Shape", chain[-1]): T.INT64} if self.is_cut else {}

    def node(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; the name of what it gives."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def weight(self, *shape: int) -> str:
        """Add a weight."""
        name = f"w{len(self.weights)}"
        self.weights[name] = numbers(len(self.weights) + 50, *shape)
        return name

    def plain(self, x: str) -> str:
        return self.node(self.draw.choice(["Relu", "Neg", "Abs", "Identity", "Tanh"]), x)

    def product(self, x: str) -> str:
        w = self.weight(8, 8)
        others = self.node("Transpose", w, perm=[1, 0]), self.node("MatMul", w, self.weight(8, 8))
        return self.node("Tanh", self.node("MatMul", x, self.draw.choice([w, *others])))

    def derived(self, x: str) -> str:
        scale = self.node("Add", self.node("Tanh", self.weight(8)), self.weight(1))
        return self.node("LayerNormalization", x, scale, self.weight(8), axis=-1)

    def sizes(self, x: str) -> str:
        """Reshaped and back, by sizes that are computed."""
        flat = self.node("Reshape", self.node("Mul", x, "half"), "last")
        return self.node("Add", x, self.node("Reshape", flat, self.node("Shape", x)))

    def picked(self, x: str) -> str:
        """The mean of numbers whose count data decides: such a network is cut in pieces."""
        places = self.node("Transpose", self.node("NonZero", self.node("Relu", "x")), perm=[1, 0])
        return self.node("Add", x, self.node("ReduceMean", self.node("GatherND", "x", places), keepdims=0))

    def branch(self, x: str) -> str:
        by_data = self.node("Greater", self.node("ReduceMax", "x", keepdims=0), "half")
        by_size = self.node("Greater", self.node("Size", x), self.node("Gather", "two", "zero"))
        then, other = (
            helper.make_graph([helper.make_node(op, inputs, [op])], op, [], [value(op, T.FLOAT, None)])
            for op, inputs in (("Neg", [x]), ("Mul", [x, self.weight(8)]))
        )
        return self.node("If", by_data if self.is_cut else by_size, then_branch=then, else_branch=other)

    def loop(self, x: str) -> str:
        name = f"s{len(self.nodes)}"
        body = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Sub", [x, name], ["next"])]
        takes = [value("trip", T.INT64, []), value("go", T.BOOL, []), value(name, T.FLOAT, None)]
        graph = helper.make_graph(body, "body", takes, [value("on", T.BOOL, []), value("next", T.FLOAT, None)])
        return self.node("Loop", self.node("Gather", self.node("Shape", "x"), "zero"), "", x, body=graph)

    def file(self, weights: dict[str, np.ndarray]) -> bytes:
        """The network with these weights."""
        known = [onnx.numpy_helper.from_array(array, name) for name, array in (weights | CONSTANTS).items()]
        takes = [value("x", T.FLOAT, [self.rows, 8]), value("i", T.INT64, [2])]
        gives = [value(name, kind, None) for name, kind in self.outputs.items()]
        graph = helper.make_graph(self.nodes, "test", takes, gives, known)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        return onnx.shape_inference.infer_shapes(made).SerializeToString()  # type: ignore[no-any-return]


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f")


class Caller:
    """Calls sessions of a network in many ways, and looks at what they give."""

    def __init__(self, seed: int, **options: Any) -> None:
        """Load it."""
        self.draw, self.seed = random.Random(seed), 1000 * seed
        self.network = Network(self.draw)
        self.weights, self.places = self.network.weights, dict[Any, Any]()
        data, live = self.network.file(self.weights), list(self.weights)
        options |= {"updatable": live} if live else {}
        self.sessions = [litehouse.load(data, engine="torch", tune="off", cache=False, **options)]
        self.held: list[tuple[Any, np.ndarray]] = []

    def call(self) -> None:
        """Do one thing."""
        ways: list[Callable[[], None]] = [self.run] * 12 + [self.update] * 3 + [self.spoil, self.twin, self.resize]
        self.draw.choice(ways)()

    def run(self, session: litehouse.Session | None = None, rows: int = 0) -> None:
        session = session or self.draw.choice(self.sessions)
        x, i = self.inputs(rows)
        given = [x, i] if self.draw.random() < 0.4 else [self.given("x", x), self.given("i", i)]
        expected = direct(self.network.file(self.weights), {"x": x, "i": i})
        with self.told():
            found = session.run(given)
        for actual, wanted in zip(found, expected, strict=True):
            assert_close(np.asarray(actual), wanted)
        for array, before in zip(given, (x, i), strict=True):
            np.testing.assert_array_equal(np.asarray(array), before)  # nothing writes to it
        for before, copy in self.held:
            np.testing.assert_array_equal(np.asarray(before), copy)  # it is the caller's
        if self.draw.random() < 0.5:
            with torch.inference_mode():  # where it may have been made
                found[0][...] = 7
        self.held = [(found[0], np.asarray(found[0]).copy())]

    def inputs(self, rows: int = 0) -> tuple[np.ndarray, np.ndarray]:
        self.seed += 1
        rows = rows or (3 if self.network.rows == 3 else self.draw.choice([1, 2, 3, 3, 3, 4]))
        return numbers(self.seed, rows, 8), np.random.default_rng(self.seed).integers(0, 8, 2)

    def given(self, name: str, array: np.ndarray) -> Any:
        """An array as it is, or a tensor: in a place that comes again, in another order, or somewhere else."""
        tensor, ways = torch.from_numpy(array), ["place", "place", "turned", "array", "odd", "moved", "new"]
        way = self.draw.choice(ways if array.ndim > 1 else ways[:1])
        if way in ("array", "new"):
            return array if way == "array" else tensor.clone()
        place = self.places.setdefault((name, array.shape), torch.empty_like(tensor))
        if way == "odd":
            place = self.places.setdefault((name, array.shape, way), torch.empty(array.size + 1, dtype=tensor.dtype))
            place = place[1:].view(array.shape)
        elif way == "turned":
            place = place.view(array.shape[::-1]).t()
        elif way == "moved":
            place.data = tensor.clone()
        return place.copy_(tensor)

    def told(self) -> AbstractContextManager[Any]:
        """What torch is told for other work."""
        ways: Sequence[Any] = [torch.inference_mode, lambda: torch.autocast("cpu", torch.bfloat16)]
        return self.draw.choice([nullcontext, nullcontext, nullcontext, *ways])()

    def update(self) -> None:
        if not self.weights:
            return
        self.seed += 1
        names = self.draw.sample(list(self.weights), self.draw.randint(1, len(self.weights)))
        new = {name: numbers(self.seed, *self.weights[name].shape) for name in names}
        given: dict[str, Any] = {name: torch.nn.Parameter(torch.from_numpy(array)) for name, array in new.items()}
        if self.draw.random() < 0.3:
            given[names[-1]] = np.full_like(new[names[-1]], np.nan)
            with pytest.raises(WeightError, match="not numbers"):
                self.sessions[0].update_weights(given)
            return
        with self.told():
            self.draw.choice(self.sessions).update_weights(given)
        self.weights = self.weights | new

    def spoil(self) -> None:
        x, i = self.inputs()
        i[self.draw.randrange(2)] = 8
        with pytest.raises(EngineError, match=r"Gather.*8"):
            self.draw.choice(self.sessions).run([x, i])

    def twin(self) -> None:
        self.sessions = [*self.sessions[-1:], self.sessions[-1].twin()]

    def resize(self) -> None:
        session = self.sessions[0].twin()
        rows = 3 if self.network.rows == 3 else self.draw.randint(1, 4)
        session.resize([[rows, 8], [2]])
        for _ in range(3):
            self.run(session, rows)


@pytest.mark.parametrize("seed", range(16))
def test_series_of_calls(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_CAPTURES", 2)
    monkeypatch.setattr(pieces, "MIN_SEEN_FULL", 2)
    monkeypatch.setattr(shortcut, "MAX_BOUND", 2)
    monkeypatch.setattr(shortcut, "MIN_TIMES", 2)
    if seed % 2:
        monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    caller = Caller(seed, **({"device": "gpu"} if seed % 2 else {}))
    for _ in range(60):
        caller.call()
