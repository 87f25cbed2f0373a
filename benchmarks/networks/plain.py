"""Networks of the usual kinds, written in plain ONNX with random weights."""

from typing import Any

import numpy as np
import onnx
from onnx import helper

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64


class Builder:
    """Writes a graph; every method gives the name of its result."""

    def __init__(self, seed: int = 0, opset: int = 20) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.random = np.random.default_rng(seed)
        self.opset = opset
        self._count = 0

    def op(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        self._count += 1
        names = [f"{op}_{self._count}" + (f"_{i}" if outputs > 1 else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        if name not in self.weights:
            scale = scale if scale is not None else 1 / np.sqrt(shape[0] if len(shape) < 3 else np.prod(shape[1:]))
            self.weights[name] = (self.random.standard_normal(shape, dtype="f") * np.float32(scale)).astype("f")
        return name

    def array(self, array: Any, dtype: Any = None) -> str:
        self._count += 1
        self.weights[f"c{self._count}"] = np.asarray(array, dtype)
        return f"c{self._count}"

    def ints(self, *numbers: int) -> str:
        return self.array(numbers, np.int64)

    def linear(self, x: str, name: str, rows: int, columns: int, *, bias: bool = True) -> str:
        made = self.op("MatMul", x, self.weight(f"{name}.weight", rows, columns))
        return self.op("Add", made, self.weight(f"{name}.bias", columns, scale=0.1)) if bias else made

    def norm(self, x: str, name: str, width: int) -> str:
        self.weights[f"{name}.gamma"] = np.ones(width, "f")
        return self.op("LayerNormalization", x, f"{name}.gamma", self.weight(f"{name}.beta", width, scale=0.1), axis=-1)

    def rms(self, x: str, name: str, width: int) -> str:
        """As exporters write it: in single ops."""
        mean = self.op("ReduceMean", self.op("Mul", x, x), self.ints(-1), keepdims=1)
        root = self.op("Sqrt", self.op("Add", mean, self.array(1e-5, "f")))
        return self.op("Mul", self.op("Div", x, root), self.weight(f"{name}.gamma", width, scale=1.0))

    def model(self, inputs: dict[str, tuple[int, Any]], outputs: dict[str, tuple[str, Any]]) -> bytes:
        """The bytes of the model; inputs are name: (dtype, shape), outputs name: (value, shape)."""
        for name, (value, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [value], [name]))
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info(name, dtype, shape) for name, (dtype, shape) in inputs.items()],
            [helper.make_tensor_value_info(name, FLOAT, shape) for name, (_, shape) in outputs.items()],
            [onnx.numpy_helper.from_array(array, name) for name, array in self.weights.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        return made.SerializeToString()


def heads(b: Builder, x: str, count: int, width: int) -> str:
    """[batch, length, count * width] -> [batch, count, length, width]."""
    return b.op("Transpose", b.op("Reshape", x, b.ints(0, 0, count, width)), perm=[0, 2, 1, 3])


def attention(b: Builder, q: str, k: str, v: str, width: int, mask: str = "") -> str:
    """Scores, softmax, and the sum; then the heads side by side."""
    scores = b.op("MatMul", q, b.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = b.op("Div", scores, b.array(np.sqrt(width), "f"))
    if mask:
        scores = b.op("Add", scores, mask)
    mixed = b.op("Transpose", b.op("MatMul", b.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    return b.op("Reshape", mixed, b.ints(0, 0, -1))


def bert(
    *,
    layers: int = 2,
    hidden: int = 64,
    count: int = 4,
    vocabulary: int = 999,
    length: Any = 16,
    batch: Any = 1,
    inner: int = 0,
    classes: int = 3,
    positions: int = 32,
    tied: bool = False,
) -> bytes:
    """An encoder with word and position tables, a pooler and a classifier; or a language head with tied weights."""
    b = Builder()
    width, inner = hidden // count, inner or 4 * hidden
    x = b.op("Gather", b.weight("words", vocabulary, hidden, scale=1.0), "ids")
    places = b.op(
        "Range", b.array(0, np.int64), b.op("Gather", b.op("Shape", "ids"), b.array(1, np.int64)), b.array(1, np.int64)
    )
    x = b.op("Add", x, b.op("Gather", b.weight("positions", positions, hidden, scale=1.0), places))
    x = b.norm(x, "embeddings", hidden)
    mask = b.op("Unsqueeze", b.op("Mul", b.op("Sub", b.array(1.0, "f"), "mask"), b.array(-1e4, "f")), b.ints(1, 2))
    for layer in range(layers):
        name = f"layer.{layer}"
        q, k, v = (heads(b, b.linear(x, f"{name}.{each}", hidden, hidden), count, width) for each in "qkv")
        mixed = attention(b, q, k, v, width, mask)
        x = b.norm(b.op("Add", x, b.linear(mixed, f"{name}.out", hidden, hidden)), f"{name}.norm1", hidden)
        h = b.linear(x, f"{name}.up", hidden, inner)
        h = b.op(
            "Mul",
            h,
            b.op(
                "Mul",
                b.op("Add", b.op("Erf", b.op("Div", h, b.array(np.sqrt(2), "f"))), b.array(1.0, "f")),
                b.array(0.5, "f"),
            ),
        )
        x = b.norm(b.op("Add", x, b.linear(h, f"{name}.down", inner, hidden)), f"{name}.norm2", hidden)
    if tied:
        scores = b.op("MatMul", x, b.op("Transpose", "words", perm=[1, 0]))
        out = (scores, [batch, length, vocabulary])
    else:
        first = b.op("Gather", x, b.array(0, np.int64), axis=1)
        b.weight("pooler.weight", hidden, hidden)
        pooled = b.op("Tanh", b.op("Gemm", first, "pooler.weight", b.weight("pooler.bias", hidden)))
        out = (
            b.op(
                "Gemm",
                pooled,
                b.weight("classifier.weight", classes, hidden),
                b.weight("classifier.bias", classes),
                transB=1,
            ),
            [batch, classes],
        )
    return b.model({"ids": (INT64, [batch, length]), "mask": (FLOAT, [batch, length])}, {"y": out})


def llama(
    *,
    layers: int = 2,
    hidden: int = 64,
    count: int = 8,
    pairs: int = 4,
    inner: int = 96,
    vocabulary: int = 500,
    length: Any = 12,
    batch: Any = 1,
    tied: bool = False,
) -> bytes:
    """A decoder with grouped queries, rotary places, RMS norms and gated layers, as torch's exporter writes it."""
    b = Builder()
    width = hidden // count
    x = b.op("Gather", b.weight("embed", vocabulary, hidden, scale=1.0), "ids")
    size = b.op("Gather", b.op("Shape", "ids"), b.array(1, np.int64))
    places = b.op("Cast", b.op("Range", b.array(0, np.int64), size, b.array(1, np.int64)), to=FLOAT)
    rates = b.array(1 / 10000 ** (np.arange(0, width, 2) / width), "f")
    angles = b.op("Mul", b.op("Unsqueeze", places, b.ints(1)), rates)
    angles = b.op("Concat", angles, angles, axis=-1)
    cos, sin = b.op("Cos", angles), b.op("Sin", angles)
    line = b.op("Unsqueeze", places, b.ints(0))
    later = b.op("Greater", line, b.op("Unsqueeze", places, b.ints(1)))
    mask = b.op("Where", later, b.array(-1e9, "f"), b.array(0.0, "f"))
    for layer in range(layers):
        name = f"layer.{layer}"
        h = b.rms(x, f"{name}.norm1", hidden)
        q = heads(b, b.linear(h, f"{name}.q", hidden, hidden, bias=False), count, width)
        k, v = (
            heads(b, b.linear(h, f"{name}.{each}", hidden, pairs * width, bias=False), pairs, width) for each in "kv"
        )
        q, k = (_rotated(b, each, cos, sin, width) for each in (q, k))
        k, v = (_repeated(b, each, pairs, count // pairs) for each in (k, v))
        mixed = attention(b, q, k, v, width, mask)
        x = b.op("Add", x, b.linear(mixed, f"{name}.o", hidden, hidden, bias=False))
        h = b.rms(x, f"{name}.norm2", hidden)
        gate, up = (b.linear(h, f"{name}.{each}", hidden, inner, bias=False) for each in ("gate", "up"))
        h = b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up)
        x = b.op("Add", x, b.linear(h, f"{name}.down", inner, hidden, bias=False))
    x = b.rms(x, "norm", hidden)
    head = b.op("Transpose", "embed", perm=[1, 0]) if tied else b.weight("head", hidden, vocabulary)
    return b.model({"ids": (INT64, [batch, length])}, {"y": (b.op("MatMul", x, head), [batch, length, vocabulary])})


def _rotated(b: Builder, x: str, cos: str, sin: str, width: int) -> str:
    first = b.op("Slice", x, b.ints(0), b.ints(width // 2), b.ints(3))
    second = b.op("Slice", x, b.ints(width // 2), b.ints(np.iinfo(np.int64).max), b.ints(3))
    turned = b.op("Concat", b.op("Neg", second), first, axis=-1)
    return b.op("Add", b.op("Mul", x, cos), b.op("Mul", turned, sin))


def _repeated(b: Builder, x: str, pairs: int, times: int) -> str:
    """[batch, pairs, length, width] -> [batch, pairs * times, length, width], sizes computed from the shape."""
    shape = b.op("Shape", x)
    parts = [b.op("Gather", shape, b.ints(axis)) for axis in range(4)]
    many = b.op("Concat", parts[0], b.ints(pairs), b.ints(times), parts[2], parts[3], axis=0)
    wide = b.op("Expand", b.op("Unsqueeze", x, b.ints(2)), many)
    return b.op("Reshape", wide, b.op("Concat", parts[0], b.ints(pairs * times), parts[2], parts[3], axis=0))


def resnet18(*, width: int = 16, size: int = 32, batch: Any = 1, classes: int = 10) -> bytes:
    """Convolutions with normalisation, four stages of two blocks."""
    b = Builder()
    x = _conv(b, "image", "stem", 3, width, 7, 2)
    x = b.op("MaxPool", b.op("Relu", x), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    before = width
    for stage in range(4):
        channels = width * 2**stage
        for block in range(2):
            name, stride = f"stage{stage}.{block}", 2 if stage and not block else 1
            h = b.op("Relu", _conv(b, x, f"{name}.a", before, channels, 3, stride))
            h = _conv(b, h, f"{name}.b", channels, channels, 3, 1)
            if before != channels:
                x = _conv(b, x, f"{name}.skip", before, channels, 1, stride)
            x, before = b.op("Relu", b.op("Add", h, x)), channels
    x = b.op("Flatten", b.op("GlobalAveragePool", x))
    y = b.op("Gemm", x, b.weight("fc.weight", classes, before), b.weight("fc.bias", classes), transB=1)
    return b.model({"image": (FLOAT, [batch, 3, size, size])}, {"y": (y, [batch, classes])})


def _conv(b: Builder, x: str, name: str, before: int, after: int, kernel: int, stride: int) -> str:
    edge = kernel // 2
    made = b.op(
        "Conv",
        x,
        b.weight(f"{name}.weight", after, before, kernel, kernel),
        strides=[stride] * 2,
        pads=[edge] * 4,
        kernel_shape=[kernel] * 2,
    )
    b.weights[f"{name}.scale"], b.weights[f"{name}.variance"] = np.ones(after, "f"), np.ones(after, "f")
    more = [b.weight(f"{name}.{each}", after, scale=0.1) for each in ("bias", "mean")]
    return b.op("BatchNormalization", made, f"{name}.scale", *more, f"{name}.variance")
