"""Networks that are put together at random of what the passes for torch look for, and of what only looks like it.

All passes together must leave the numbers as they are. The truth is ONNX Runtime's, without optimisation.
"""

import math

import numpy as np
import onnx
import pytest
from formats.onnx_runs import direct
from onnx import helper

import litehouse
from conftest import assert_close
from onnx_models import model, node

pytest.importorskip("torch")

from litehouse.engines.torch.engine import TorchEngine

SIZE, ROWS = 8, 6


class Writer:
    """Writes a network of squares of numbers, or images, block by block."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.outputs: list[str] = []
        self._count = 0

    def chance(self, share: float = 0.25) -> bool:
        return bool(self.random.random() < share)

    def weight(self, *shape: int, scale: float = 0.5) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (self.random.normal(size=shape) * scale).astype(np.float32)
        return name

    def number(self, value: float, *, shape: tuple[int, ...] = ()) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.full(shape, value, np.float32)
        return name

    def op(self, op: str, inputs: str, **attributes: object) -> str:
        """Write a node; now and then, its result is an output, or goes through an Identity."""
        self._count += 1
        name = f"v{self._count}"
        self.nodes.append(node(op, inputs, name, **attributes))
        if self.chance(0.08):
            self.nodes.append(node("Identity", name, f"{name}_i"))
            name = f"{name}_i"
        if self.chance(0.06):
            self.outputs.append(name)
        return name

    def either(self, one: str, two: str) -> str:
        return f"{one} {two}" if self.chance(0.5) else f"{two} {one}"

    def linear(self, x: str) -> str:
        product = self.op("MatMul", f"{x} {self.weight(SIZE, SIZE)}")
        shapes = ((SIZE,), (SIZE,), (1,), (), (1, SIZE), (ROWS, 1), (ROWS, SIZE))
        bias = self.weight(*shapes[self.random.integers(len(shapes))])
        op = "Sub" if self.chance(0.1) else "Sum" if self.chance(0.2) else "Add"
        return self.op(op, self.either(product, bias))

    def gelu(self, x: str) -> str:
        shape = (1,) if self.chance() else ()
        root = 1.5 if self.chance(0.1) else math.sqrt(2)
        inside = (
            self.op("Div", f"{x} {self.number(root, shape=shape)}")
            if self.chance(0.5)
            else self.op("Mul", self.either(x, self.number(1 / root, shape=shape)))
        )
        one = self.op("Add", self.either(self.op("Erf", inside), self.number(1 + 0.5 * self.chance(0.1), shape=shape)))
        half = self.number(0.5 + 0.1 * self.chance(0.1), shape=shape)
        way = self.random.integers(4)
        if way == 0:
            return self.op("Mul", self.either(self.op("Mul", self.either(x, one)), half))
        if way == 1:
            return self.op("Mul", self.either(self.op("Mul", self.either(one, half)), x))
        if way == 2:
            return self.op("Mul", self.either(self.op("Mul", self.either(x, half)), one))
        return self.op("Mul", self.either(x, one))

    def attention(self, x: str) -> str:
        """Two heads on rows."""
        heads = []
        for perm in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)):
            part = self.op("MatMul", f"{x} {self.weight(SIZE, SIZE)}")
            split = self._whole(1, ROWS, 2, SIZE // 2)
            heads.append(self.op("Transpose", self.op("Reshape", f"{part} {split}"), perm=perm))
        scores = self.op("MatMul", f"{heads[0]} {heads[1]}")
        if self.chance(0.7):
            scores = self.op("Mul", f"{scores} {self.number(0.5)}")
        if self.chance(0.5):
            large = (-1e4, -1e9, float(np.finfo(np.float32).min))[self.random.integers(3)]
            mask = np.where(self.random.random((ROWS, ROWS)) < 0.4, large, 0).astype(np.float32)
            np.fill_diagonal(mask, 0)
            name = f"w{len(self.weights)}"
            self.weights[name] = mask
            scores = self.op("Add", self.either(scores, name))
        shares = self.op("Softmax", scores, axis=-1)
        mixed = self.op("Transpose", self.op("MatMul", f"{shares} {heads[2]}"), perm=(0, 2, 1, 3))
        return self.op("Reshape", f"{mixed} {self._whole(ROWS, SIZE)}")

    def images(self, x: str) -> str:
        image = self.op("Reshape", f"{x} {self._whole(1, 3, 4, 4)}")
        conv = self.op("Conv", f"{image} {self.weight(3, 3, 3, 3)}", pads=(1, 1, 1, 1))
        count = f"w{len(self.weights)}"
        self.weights[count] = np.abs(self.random.normal(size=3)).astype(np.float32) + np.float32(0.1)
        operands = [self.weight(3), self.weight(3), self.weight(3), count]
        norm = self.op("BatchNormalization", " ".join([conv, *operands]))
        if self.chance(0.2):
            norm = self.op("Add", f"{norm} {conv}")
        return self.op("Reshape", f"{self.op('Relu', norm)} {self._whole(ROWS, SIZE)}")

    def branch(self, x: str) -> str:
        """A branch that takes what is outside of it."""
        self._count += 1
        inner = []
        for place, op in enumerate(("Tanh", "Sigmoid")):
            gives = f"b{self._count}_{place}"
            info = helper.make_tensor_value_info(gives, onnx.TensorProto.FLOAT, None)
            body = [
                node("Identity", x, f"{gives}_i"),
                node(op, f"{gives}_i", f"{gives}_o"),
                node("Add", f"{gives}_o {x}", gives),
            ]
            inner.append(helper.make_graph(body, gives, [], [info]))
        total = self.op("ReduceSum", x, keepdims=0)
        choice = self.op("Greater", f"{total} {self.number(0)}")
        return self.op("If", choice, then_branch=inner[0], else_branch=inner[1])

    def norm(self, x: str) -> str:
        return self.op("LayerNormalization", f"{x} {self.weight(SIZE)} {self.weight(SIZE)}")

    def rest(self, x: str) -> str:
        return self.op("Add", f"{x} x")

    def _whole(self, *numbers: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.array(numbers)
        return name


BLOCKS = ("linear", "gelu", "attention", "images", "branch", "norm", "rest", "linear", "gelu")


def network(seed: int) -> bytes:
    writer = Writer(seed)
    value = "x"
    for place in writer.random.integers(len(BLOCKS), size=6):
        value = getattr(writer, BLOCKS[place])(value)
        if writer.chance(0.5):
            value = writer.norm(value)
    last = writer.op("Tanh", value)
    floats = [name for name in dict.fromkeys([*writer.outputs, last]) if not _is_truth(writer.nodes, name)]
    return model(writer.nodes, {"x": (ROWS, SIZE)}, dict.fromkeys(floats), writer.weights)


def _is_truth(nodes: list[onnx.NodeProto], name: str) -> bool:
    name = name.removesuffix("_i")
    return any(each.op_type == "Greater" and name in each.output for each in nodes)


@pytest.mark.parametrize("seed", range(60))
def test_random_networks(seed: int) -> None:
    data = network(seed)
    loaded, options = litehouse.read(data), litehouse.Options(engine="torch", cache=False)
    runner = TorchEngine().compile(loaded, options).bind()
    half = TorchEngine().compile(loaded, options, precision="fp16").bind()
    for turn in range(2):
        x = np.random.default_rng(turn).normal(size=(ROWS, SIZE)).astype(np.float32)
        expected = direct(data, {"x": x})
        for actual, wanted in zip(runner.run([x]), expected, strict=True):
            assert_close(actual, wanted)
        for actual, wanted in zip(half.run([x]), expected, strict=True):
            assert actual.dtype == wanted.dtype
            assert actual.shape == wanted.shape
            assert np.isfinite(actual).all()


def test_the_networks_have_what_the_passes_look_for() -> None:
    """Or else the test above would show nothing."""
    from litehouse.passes import speed_up

    found: set[str] = set()
    folded = 0
    for seed in range(60):
        graph = litehouse.read(network(seed)).graph.clone()
        before = sum(each.op_type == "BatchNormalization" for each in graph.graph)
        speed_up(graph, "torch")
        found |= {each.op_type for each in graph.graph}
        folded += before - sum(each.op_type == "BatchNormalization" for each in graph.graph)
    assert {"Linear", "Gelu", "MultiHeadAttention", "MatMul", "Erf", "Softmax", "BatchNormalization"} <= found
    assert folded > 5
