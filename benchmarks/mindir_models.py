"""Large MindIR files, written as MindSpore 2.10 exports them, so that loading can be measured without MindSpore."""

from pathlib import Path

import numpy as np

from litehouse.formats.mindir import schema_pb2 as schema

FLOAT, INT32 = 1, 6
BOOL_KIND, FLOAT_KIND, INT_KIND, TENSORS, TUPLE, UMONAD = 9, 1, 7, 19, 20, 23
LENGTH, WIDTH, HEADS, LAYERS, WORDS = 128, 768, 12, 12, 30522


class Writer:
    """Writes one graph, op by op. Every value has a recorded shape, and every use of a weight its Load, as exported."""

    def __init__(self) -> None:
        """Start with an empty graph."""
        self.model = schema.Model(ir_version="1.1", producer_name="MindSpore", model_version="2.10.0")
        self.model.little_endian = True
        self.model.mind_ir_version = 3
        self.graph = self.model.graph
        self.graph.name = "1_network_construct"
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._primitives: set[str] = set()
        self._random = np.random.default_rng(0)
        self._monad = self._constant(schema.Attribute(name="value", type=UMONAD))

    def input(self, name: str, shape: tuple[int, ...], dtype: int = FLOAT) -> str:
        """A graph input."""
        return self._info(self.graph.input.add(), f"{self.graph.name}:{name}", shape, dtype)

    def weight(self, name: str, *shape: int) -> str:
        """A weight, loaded."""
        full = f"{self.graph.name}:{name}"
        data = self._random.standard_normal(shape, np.float32) * np.float32(0.02)
        self.graph.parameter.add(name=full, dims=shape, data_type=FLOAT, raw_data=data.tobytes())
        return self.op("Load", full, self._monad, shape=shape)

    def op(self, kind: str, *operands: object, shape: tuple[int, ...] = (), count: int = 1) -> str:
        """An op; names are values, anything else is a constant. With a `count`, the first item of its result."""
        if kind not in self._primitives:
            self._primitives.add(kind)
            self.model.primitives.add(name=f"{kind}:1", op_type=kind, prim_type=2)
        name = f"{self.graph.name}:CNode_{len(self.graph.node)}:1"
        names = [item if isinstance(item, str) else self._literal(item) for item in operands]
        node = self.graph.node.add(input=names, output=[name], name=name, op_type=f"REF::{kind}:1")
        node.domain = f"Default/{kind}-op{len(self.graph.node)}"
        recorded = node.attribute.add(name="shape", type=TENSORS if count == 1 else TUPLE)
        for _ in range(count):
            item = recorded if count == 1 else recorded.values.add(type=TENSORS)
            item.tensors.add(dims=shape, data_type=FLOAT)
        self._shapes[name] = shape
        return name if count == 1 else self.op("TupleGetItem", name, 0, shape=shape)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an op's result."""
        return self._shapes[name]

    def write(self, path: Path, output: str) -> None:
        """Write the file."""
        self._info(self.graph.output.add(), output, self._shapes[output], FLOAT)
        path.write_bytes(self.model.SerializeToString())

    def _info(self, info: schema.ValueInfo, name: str, shape: tuple[int, ...], dtype: int) -> str:
        info.name = name
        info.tensor.add(dims=shape, data_type=dtype)
        return name

    def _constant(self, attribute: schema.Attribute) -> str:
        name = f"ValueNode_{len(self.graph.node)}"
        self.graph.node.add(output=[name], name=name, op_type="Constant", attribute=[attribute])
        return name

    def _literal(self, value: object) -> str:
        if isinstance(value, tuple):
            items = [schema.Attribute(type=INT_KIND, ints=[item]) for item in value]
            return self._constant(schema.Attribute(name="value", type=TUPLE, values=items))
        if isinstance(value, float):
            return self._constant(schema.Attribute(name="value", type=FLOAT_KIND, f=value))
        kind = BOOL_KIND if isinstance(value, bool) else INT_KIND
        return self._constant(schema.Attribute(name="value", type=kind, i=int(value)))  # type: ignore[call-overload]


def write_bert(path: Path, *, layers: int = LAYERS, words: int = WORDS, batch: int = 1) -> None:
    """BERT-base: 12 layers of width 768, 109 million weights, about 440 MB; or less of it."""
    writer = Writer()
    rows = (batch * LENGTH, WIDTH)
    given = writer.input("words", (batch, LENGTH), INT32)
    table = writer.weight("embedding.words", words, WIDTH)
    places = writer.weight("embedding.places", LENGTH, WIDTH)
    x = writer.op("Gather", table, given, 0, 0, shape=(batch, LENGTH, WIDTH))
    x = writer.op("Add", x, places, shape=(batch, LENGTH, WIDTH))
    x = writer.op("Reshape", x, rows, shape=rows)
    x = _norm(writer, "embedding.norm", x)
    for layer in range(layers):
        x = _layer(writer, f"layer.{layer}", x)
    writer.write(path, writer.op("Tanh", x, shape=rows))


def _layer(writer: Writer, name: str, x: str) -> str:
    rows, size = writer.shape(x), WIDTH // HEADS
    batch = rows[0] // LENGTH
    parts = (batch, LENGTH, HEADS, size)
    turned = (batch, HEADS, LENGTH, size)
    heads = []
    for part in ("query", "key", "value"):
        flat = _dense(writer, f"{name}.{part}", x, WIDTH, WIDTH)
        split = writer.op("Reshape", flat, parts, shape=parts)
        heads.append(writer.op("Transpose", split, (0, 2, 1, 3), shape=turned))
    query, key, content = heads
    square = (batch, HEADS, LENGTH, LENGTH)
    scores = writer.op("BatchMatMul", query, key, False, True, shape=square)
    scores = writer.op("Muls", scores, size**-0.5, shape=square)
    scores = writer.op("Softmax", scores, (-1,), shape=square)
    mixed = writer.op("BatchMatMul", scores, content, False, False, shape=turned)
    mixed = writer.op("Transpose", mixed, (0, 2, 1, 3), shape=parts)
    mixed = writer.op("Reshape", mixed, rows, shape=rows)
    x = writer.op("Add", x, _dense(writer, f"{name}.output", mixed, WIDTH, WIDTH), shape=rows)
    x = _norm(writer, f"{name}.norm1", x)
    wide = _dense(writer, f"{name}.wide", x, WIDTH, 4 * WIDTH)
    wide = writer.op("GeLU", wide, shape=(rows[0], 4 * WIDTH))
    x = writer.op("Add", x, _dense(writer, f"{name}.narrow", wide, 4 * WIDTH, WIDTH), shape=rows)
    return _norm(writer, f"{name}.norm2", x)


def _dense(writer: Writer, name: str, x: str, size: int, result: int) -> str:
    shape = (writer.shape(x)[0], result)
    product = writer.op("MatMul", x, writer.weight(f"{name}.weight", result, size), False, True, shape=shape)
    return writer.op("BiasAdd", product, writer.weight(f"{name}.bias", result), 0, shape=shape)


def _norm(writer: Writer, name: str, x: str) -> str:
    gamma, beta = (writer.weight(f"{name}.{part}", WIDTH) for part in ("gamma", "beta"))
    return writer.op("LayerNorm", x, gamma, beta, -1, -1, 1e-5, shape=writer.shape(x), count=3)


def write_chain(path: Path, nodes: int) -> None:
    """A network of that many nodes: `x + w` and `relu` in turn, with a weight every hundred nodes."""
    writer = Writer()
    value = writer.input("x", (4, 8))
    weight = ""
    while len(writer.graph.node) < nodes:
        if len(writer.graph.node) % 100 == 1 or not weight:
            weight = writer.weight(f"w{len(writer.graph.node)}", 8)
        value = writer.op("Add", value, weight, shape=(4, 8))
        value = writer.op("ReLU", value, shape=(4, 8))
    writer.write(path, value)
