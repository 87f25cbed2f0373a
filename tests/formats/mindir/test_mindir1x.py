"""Files as MindSpore 1.x wrote them: the stored files of MindSpore 2.0, rewritten in the older way.

No MindSpore 1.x can be had any more. What its files look like is known from genuine ones and from its loader: ops are
named on the nodes, there is no table of primitives, attributes state their form in `ref_attr_name`, and the
enumerations are numbers. The numbers that a rewritten file must give are those that MindSpore 2.0 computed.
"""

from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import ENGINES, FIXTURES, assert_close
from litehouse.formats.mindir.schema_pb2 import Attribute, Model, Node, Tensor

TENSORS, TUPLE, LIST, UMONAD, IOMONAD, NONE = 19, 20, 21, 23, 24, 25
FIELDS = {1: "f", 8: "s", 11: "d"}
NUMBERS = {"PAD": 0, "SAME": 1, "VALID": 2, "NCHW": 0, "NHWC": 1}
ENUMERATIONS = ("pad_mode", "format", "data_format")


class MixedError(Exception):
    """The older way has no words for a tuple of several types."""


def old_value(value: Attribute) -> Attribute:
    """A literal in the older way."""
    made = Attribute(name=value.name)
    kind = value.type
    if kind in (TUPLE, LIST):
        made.ref_attr_name = f"scalar:{_sequence(value, made)},"
    elif kind in (UMONAD, IOMONAD):
        made.ref_attr_name = "Monad:UMonad" if kind == UMONAD else "Monad:IOMonad"
    elif kind == NONE:
        made.ref_attr_name = "none"
    elif kind == TENSORS:
        made.ref_attr_name = "tensor:value0" if value.tensors[0].HasField("raw_data") else "type:value0"
        made.tensors.append(value.tensors[0])
    elif kind == 8 and value.name in ENUMERATIONS and value.s.decode().upper() in NUMBERS:
        made.ref_attr_name, made.type, made.i = "scalar:value0", 7, NUMBERS[value.s.decode().upper()]
    else:
        field = FIELDS.get(kind, "i")
        made.ref_attr_name, made.type = "scalar:value0", kind
        setattr(made, field, getattr(value, field))
    return made


def _sequence(value: Attribute, made: Attribute) -> str:
    """The form of a tuple or list; its items go to the repeated field of their type, the leaves of inner ones too."""
    items = ""
    for item in value.values:
        if item.type in (TUPLE, LIST):
            items += f"{_sequence(item, made)},"
            continue
        field = (
            "tensors" if item.type == TENSORS else f"{ {1: 'float', 8: 'string', 11: 'double'}.get(item.type, 'int') }s"
        )
        if made.type not in (0, item.type) or item.type not in {*range(1, 14), TENSORS}:
            raise MixedError
        made.type = item.type
        getattr(made, field).append(getattr(item, field)[0])
        items += f"value{len(getattr(made, field))},"
    return f"{'Tuple' if value.type == TUPLE else 'List'}[{items}]"


def old_type(value: Attribute) -> Attribute:
    """The type of a result in the older way."""
    made = Attribute()

    def form(part: Attribute) -> str:
        if part.type in (TUPLE, LIST):
            return f"Tuple[{''.join(f'{form(item)},' for item in part.values)}]"
        if part.type != TENSORS:
            raise MixedError
        tensor = Tensor(name=f"shape{len(made.tensors) + 1}", data_type=part.tensors[0].data_type)
        tensor.dims.extend(part.tensors[0].dims)
        made.tensors.append(tensor)
        return tensor.name

    if value.type not in (UMONAD, IOMONAD):
        made.ref_attr_name = f"shape:{form(value)},"
    return made


def old_node(node: Node, model: Model, names: dict[str, str]) -> Node:
    """A node in the older way: its op's name and attributes on itself."""
    made = Node(op_type=node.op_type, domain=node.domain, name=f"{node.output[0]}:name")
    made.input.extend(names.get(name, name) for name in node.input)
    made.output.append(names.get(node.output[0], node.output[0]))
    if node.op_type == "Constant":
        made.attribute.append(old_value(node.attribute[0]))
        return made
    primitive = next(p for p in model.primitives if f"REF::{p.name}" == node.op_type)
    made.op_type = primitive.op_type
    made.attribute.extend(old_type(attribute) for attribute in node.attribute if attribute.name == "shape")
    made.attribute.extend(old_value(attribute) for attribute in primitive.attribute)
    return made


def old_model(path: Path) -> Model:
    """The file in the older way; a returned tuple becomes several outputs."""
    model = Model.FromString(path.read_bytes())
    if model.functions:
        raise MixedError
    constants = [node.output[0] for node in model.graph.node if node.op_type == "Constant"]
    names = {name: f"[ValueNode]{number}" for number, name in enumerate(constants)}
    nodes = [old_node(node, model, names) for node in model.graph.node]
    model.graph.output[0].name = names.get(model.graph.output[0].name, model.graph.output[0].name)
    last = next((node for node in nodes if node.output[0] == model.graph.output[0].name), None)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    if last is not None and last.op_type == "MakeTuple":
        del model.graph.output[:]
        for name in last.input:
            model.graph.output.add(name=name)
    del model.primitives[:]
    for field in ("mind_ir_version", "little_endian"):
        model.ClearField(field)
    model.ir_version, model.model_version = "0.1.0", "1.1.0"
    return model


def _models() -> dict[str, Model]:
    found = {}
    for path in sorted((FIXTURES / "mindir20").glob("*.mindir")):
        try:
            found[path.stem] = old_model(path)
        except MixedError:
            continue
    return found


MODELS = _models()


@pytest.mark.parametrize("name", [name for name in MODELS if name != "index_slice_steps"])
def test_rewritten_files(name: str) -> None:
    session = litehouse.load(MODELS[name].SerializeToString(), engine="onnxruntime", threads=1)
    with np.load(FIXTURES / "mindir20" / f"{name}.npz") as stored:
        inputs, expected = (
            [stored[key] for key in sorted(stored.files) if key.startswith(kind)] for kind in ("input", "output")
        )
    outputs = session.run(inputs)
    assert len(outputs) == len(expected)
    for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_close(actual, wanted, f"output {index}")


def test_most_files_can_be_rewritten() -> None:
    assert len(MODELS) > 200


# By hand: what no file of MindSpore 2.0 has ------------------------------------------------------------------------

X = np.array([[1, -2, 3], [-4, 5, -6]], np.float32)
W = np.array([[0.5, 1, -1], [2, -3, 4]], np.float32)


def hand_made(nodes: list[tuple[str, str, list[str], dict[str, Attribute]]], outputs: list[str]) -> bytes:
    """A file of a network with the input x and the weight w, both of shape [2, 3].

    Args:
        nodes: Name, op, operands and attributes of each node.
        outputs: Names of the nodes that the network returns.
    """
    model = Model(ir_version="0.1.0", producer_name="MindSpore", model_version="1.0.0")
    graph = model.graph
    graph.name = "main"
    info = graph.input.add(name="main:x")
    info.tensor.add(dims=X.shape, data_type=1)
    graph.parameter.add(name="main:layer.w", dims=W.shape, data_type=1, raw_data=W.tobytes())
    for name, op, operands, attributes in nodes:
        node = graph.node.add(op_type=op, name=f"{name}:1", domain=f"Default/{op}-op1")
        node.input.extend({"x": "main:x", "w": "main:layer.w"}.get(operand, operand) for operand in operands)
        node.output.append(name)
        for key, value in attributes.items():
            value.name = "" if key == "result" else key
            node.attribute.append(value)
    for name in outputs:
        graph.output.add(name=name)
    return model.SerializeToString()


def result(*shapes: tuple[int, ...]) -> Attribute:
    """The type of a float result, or of a tuple of them."""
    tensors = [Tensor(name=f"shape{k + 1}", dims=shape, data_type=1) for k, shape in enumerate(shapes)]
    names = "".join(f"{tensor.name}," for tensor in tensors)
    return Attribute(ref_attr_name=f"shape:{names}" if len(shapes) == 1 else f"shape:Tuple[{names}],", tensors=tensors)


def integer(value: int) -> Attribute:
    return Attribute(ref_attr_name="scalar:value0", type=7, i=value)


@pytest.mark.parametrize("engine", ENGINES)
def test_weights_are_read_directly_and_ops_have_their_first_names(engine: str) -> None:
    content = hand_made(
        [
            ("sum", "TensorAdd", ["x", "w"], {"result": result((2, 3))}),
            ("both", "make_tuple", ["sum", "x"], {"result": Attribute(ref_attr_name="shape:")}),
            ("pack", "Pack", ["both"], {"result": result((2, 2, 3)), "axis": integer(0)}),
            ("[ValueNode]2", "Constant", [], {"value": integer(0)}),
            ("pick", "GatherV2", ["pack", "[ValueNode]3", "[ValueNode]2"], {"result": result((1, 2, 3))}),
        ],
        ["pick"],
    )
    model = Model.FromString(content)
    index = Tensor(name="value0", dims=[1], data_type=6, raw_data=np.array([1], np.int32).tobytes())
    constant = model.graph.node.add(op_type="Constant", output=["[ValueNode]3"])
    constant.attribute.add(name="value", ref_attr_name="tensor:value0", tensors=[index])
    session = litehouse.load(model.SerializeToString(), engine=engine, threads=1)
    assert [info.name for info in session.inputs] == ["x"]
    assert list(session.model.weights) == ["layer.w"]
    (y,) = session.run([X])
    assert_close(y, X[None])


@pytest.mark.parametrize("engine", ENGINES)
def test_several_outputs_and_a_negative_item(engine: str) -> None:
    content = hand_made(
        [
            ("parts", "Unpack", ["x"], {"result": result((2,), (2,), (2,)), "axis": integer(1), "num": integer(3)}),
            ("[ValueNode]1", "Constant", [], {"value": integer(-1)}),
            ("last", "tuple_getitem", ["parts", "[ValueNode]1"], {"result": result((2,))}),
            ("[ValueNode]2", "Constant", [], {"value": Attribute(ref_attr_name="Monad:UMonad")}),
            ("load", "Load", ["w", "[ValueNode]2"], {"result": result((2, 3))}),
            ("state", "UpdateState", ["[ValueNode]2", "load"], {}),
            ("sum", "Sub", ["x", "load"], {"result": result((2, 3))}),
            ("kept", "Depend", ["sum", "state"], {"result": result((2, 3))}),
        ],
        ["last", "kept"],
    )
    last, kept = litehouse.load(content, engine=engine, threads=1).run([X])
    assert_close(last, X[:, -1])
    assert_close(kept, X - W)


@pytest.mark.parametrize("engine", ENGINES)
def test_forms_of_literals(engine: str) -> None:
    dtype = Attribute(ref_attr_name="type:value0", tensors=[Tensor(data_type=6)])
    nested = Attribute(
        ref_attr_name="scalar:Tuple[Tuple[value1,value2,],Tuple[value3,value4,],],", type=7, ints=[1, 0, 0, 2]
    )
    content = hand_made(
        [
            ("wide", "Pad", ["x"], {"result": result((3, 5)), "paddings": nested}),
            ("[ValueNode]1", "Constant", [], {"value": dtype}),
            ("cast", "Cast", ["wide", "[ValueNode]1"], {"result": result((3, 5))}),
            ("[ValueNode]2", "Constant", [], {"value": Attribute(ref_attr_name="scalar:Tuple[],", type=7)}),
            (
                "total",
                "ReduceMax",
                ["x", "[ValueNode]2"],
                {"result": result(()), "keep_dims": Attribute(ref_attr_name="scalar:value0", type=9, i=0)},
            ),
        ],
        ["cast", "total"],
    )
    model = Model.FromString(content)
    model.graph.node[2].attribute[0].tensors[0].data_type = 6
    cast, total = litehouse.load(model.SerializeToString(), engine=engine, threads=1).run([X])
    assert_close(cast, np.pad(X, ((1, 0), (0, 2))).astype(np.int32))
    assert_close(total, X.max())
