"""MindIR files that are wrong in one place each: every one is refused quickly, with an error that names the fault."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from formats.builders import (
    EXPECTED,
    HUGE,
    INT64,
    STRING_DTYPE,
    W,
    X,
    attribute,
    constant,
    function,
    mindir,
    nested,
    node,
    outcome,
    refused,
    schema,
    tensor,
    value,
    weight,
)

import litehouse
from litehouse import LimitError, ModelFormatError, UnsupportedOpError

Change = Callable[[schema.Model], Any]


def nested_tuple(depth: int) -> schema.Attribute:
    made = attribute("value", 1)
    for _ in range(depth):
        made = schema.Attribute(name="value", type=20, values=[made])
    return made


def old_form(name: str, form: str, **fields: Any) -> schema.Attribute:
    return schema.Attribute(name=name, ref_attr_name=form, **fields)


def shape_of_result(model: schema.Model, made: schema.Attribute) -> None:
    made.name = "shape"
    model.graph.node[0].ClearField("attribute")
    model.graph.node[0].attribute.append(made)


def replace_weight(model: schema.Model, **fields: Any) -> None:
    for name, content in fields.items():
        if name == "dims":
            model.graph.parameter[0].ClearField("dims")
            model.graph.parameter[0].dims.extend(content)
        else:
            setattr(model.graph.parameter[0], name, content)


def add_constant(model: schema.Model, content: Any) -> None:
    model.graph.node.insert(0, constant("c", content))
    model.graph.node[1].input[1] = "c"


def call(model: schema.Model, *functions: schema.Graph) -> None:
    """Let the main graph call the first of these functions."""
    model.functions.extend(functions)
    model.graph.node.append(node(f"REF::{functions[0].name}", "G:r:2", "G:c:3"))
    model.graph.output[0].name = "G:c:3"


def twice(name: str, called: str) -> schema.Graph:
    calls = [node(f"REF::{called}", f"{name}:p", f"{name}:{index}") for index in range(2)]
    return function(name, calls, f"{name}:1", f"{name}:p")


def call_itself(model: schema.Model) -> None:
    call(model, function("f", [node("REF::f", "f:p", "f:q")], "f:q", "f:p"))


def call_each_other(model: schema.Model) -> None:
    one = function("f", [node("REF::g", "f:p", "f:q")], "f:q", "f:p")
    two = function("g", [node("REF::f", "g:p", "g:q")], "g:q", "g:p")
    call(model, one, two)


def call_twice_each(model: schema.Model) -> None:
    """A billion laughs: forty functions, each of which calls the next one twice."""
    bottom = function("f40", [node("REF::ReLU:2", "f40:p", "f40:q")], "f40:q", "f40:p")
    call(model, *[twice(f"f{index}", f"f{index + 1}") for index in range(40)], bottom)


def call_deep(model: schema.Model) -> None:
    chain = [
        function(f"f{i}", [node(f"REF::f{i + 1}", f"f{i}:p", f"f{i}:q")], f"f{i}:q", f"f{i}:p") for i in range(3000)
    ]
    call(model, *chain, function("f3000", [], "f3000:p", "f3000:p"))


def swap_nodes(model: schema.Model) -> None:
    first = schema.Node()
    first.CopyFrom(model.graph.node[0])
    model.graph.node[0].CopyFrom(model.graph.node[1])
    model.graph.node[1].CopyFrom(first)


def duplicate_weight(model: schema.Model) -> None:
    model.graph.parameter.append(weight("G:w", W))


ATTACKS: dict[str, tuple[Change, type[Exception], str]] = {
    # Weights: what they declare against the bytes that are there.
    "dims product is huge": (lambda m: replace_weight(m, dims=[2**20, 2**20, 2**10]), LimitError, "max_tensor_bytes"),
    "dims product overflows": (lambda m: replace_weight(m, dims=[2**40, 2**40]), ModelFormatError, "impossible shape"),
    "dims hide behind a zero": (lambda m: replace_weight(m, dims=[0, HUGE, HUGE]), ModelFormatError, "impossible"),
    "dim is the largest int": (lambda m: replace_weight(m, dims=[HUGE]), ModelFormatError, "impossible shape"),
    "dim is negative": (lambda m: replace_weight(m, dims=[-3]), ModelFormatError, "impossible shape"),
    "dims are negative twice": (lambda m: replace_weight(m, dims=[-3, -1]), ModelFormatError, "impossible shape"),
    "rank 10000": (lambda m: replace_weight(m, dims=[1] * 10_000), ModelFormatError, "impossible shape"),
    "too few bytes": (lambda m: replace_weight(m, raw_data=b"\0" * 11), ModelFormatError, "has 11 bytes, not 12"),
    "too many bytes": (lambda m: replace_weight(m, raw_data=b"\0" * 13), ModelFormatError, "has 13 bytes, not 12"),
    "no bytes at all": (lambda m: m.graph.parameter[0].ClearField("raw_data"), ModelFormatError, "has no data"),
    "dtype unknown": (lambda m: replace_weight(m, data_type=99), ModelFormatError, "unknown data type number 99"),
    "dtype undefined": (lambda m: replace_weight(m, data_type=0), ModelFormatError, "unknown data type number 0"),
    "dtype int4": (lambda m: replace_weight(m, data_type=18), ModelFormatError, "unknown data type number 18"),
    # The bytes of such a weight would be taken for pointers.
    "dtype text": (lambda m: replace_weight(m, data_type=8, raw_data=b"\1" * 24), ModelFormatError, "holds text"),
    "compressed": (lambda m: replace_weight(m, compression_type=1), ModelFormatError, "is compressed"),
    "weight without a name": (lambda m: replace_weight(m, name=""), ModelFormatError, "named ''"),
    "weight occurs twice": (duplicate_weight, ModelFormatError, "named 'w'"),
    "weight named as the input": (lambda m: replace_weight(m, name="G:x"), ModelFormatError, "named 'x'"),
    # Constants and literals.
    "constant too short": (lambda m: add_constant(m, tensor("c", (3,), 1, b"1234")), ModelFormatError, "has 4 bytes"),
    "constant of text": (
        lambda m: add_constant(m, tensor("c", (1,), STRING_DTYPE, b"\1" * 8)),
        ModelFormatError,
        "text",
    ),
    "constant of rank 10000": (lambda m: add_constant(m, tensor("c", [1] * 10_000, 1, b"")), ModelFormatError, "shape"),
    "constant behind a zero": (
        lambda m: add_constant(m, tensor("c", (0, HUGE, HUGE), 1, b"")),
        ModelFormatError,
        "shape",
    ),
    "constant of unknown dtype": (
        lambda m: add_constant(m, tensor("c", (1,), 77, b"1")),
        ModelFormatError,
        "number 77",
    ),
    "constant without a value": (
        lambda m: m.graph.node.insert(0, schema.Node(output=["c"], op_type="Constant")),
        ModelFormatError,
        "has no value",
    ),
    "literal of unknown type": (
        lambda m: m.primitives[0].attribute.add(name="a", type=1234),
        ModelFormatError,
        "unknown type 1234",
    ),
    "literal lacks its tensor": (lambda m: m.primitives[0].attribute.add(name="a", type=19), ModelFormatError, "lacks"),
    "old tuples 1000 deep": (
        lambda m: m.primitives[0].attribute.append(old_form("a", "scalar:" + "Tuple[" * 1000 + "],," * 1000)),
        LimitError,
        "too deeply",
    ),
    "old type without a tensor": (
        lambda m: m.primitives[0].attribute.append(old_form("a", "type:value0")),
        ModelFormatError,
        "unknown form",
    ),
    "old form is nonsense": (
        lambda m: m.primitives[0].attribute.append(old_form("a", "../../etc/passwd")),
        ModelFormatError,
        "unknown form",
    ),
    "old form is unbalanced": (
        lambda m: m.primitives[0].attribute.append(old_form("a", "scalar:Tuple[value0]]]")),
        ModelFormatError,
        "",
    ),
    "old form lacks values": (
        lambda m: m.primitives[0].attribute.append(old_form("a", "scalar:Tuple[value0,value1,],", ints=[1])),
        ModelFormatError,
        "more values than are stored",
    ),
    # The graph.
    "no graph": (lambda m: m.ClearField("graph"), ModelFormatError, "no graph"),
    "big-endian": (lambda m: setattr(m, "little_endian", False), ModelFormatError, "big-endian"),
    "hash tables": (lambda m: m.graph.map_parameter.add(name="t"), ModelFormatError, "hash-table"),
    "no outputs": (lambda m: m.graph.ClearField("output"), ModelFormatError, "returns nothing"),
    "output is not defined": (lambda m: setattr(m.graph.output[0], "name", "G:z"), ModelFormatError, "'G:z'"),
    "operand is not defined": (lambda m: m.graph.node[0].input.__setitem__(1, "G:z"), ModelFormatError, "'G:z'"),
    "used before it is defined": (swap_nodes, ModelFormatError, "nothing defines"),
    "node uses itself": (lambda m: m.graph.node[0].input.__setitem__(0, "G:a:1"), ModelFormatError, "nothing defines"),
    "node without output or name": (
        lambda m: (m.graph.node[0].ClearField("output"), m.graph.node[0].ClearField("name")),
        ModelFormatError,
        "'G:a:1', which nothing defines",
    ),
    "100000 operands": (lambda m: m.graph.node[0].input.extend(["G:x"] * 100_000), UnsupportedOpError, "operands"),
    "no operands": (lambda m: m.graph.node[0].ClearField("input"), UnsupportedOpError, "missing"),
    "unknown op": (lambda m: setattr(m.primitives[0], "op_type", "os.system"), UnsupportedOpError, "os.system"),
    "op of no primitive": (lambda m: m.ClearField("primitives"), ModelFormatError, "which the file lacks"),
    "op that was never compiled": (
        lambda m: setattr(m.graph.node[0], "op_type", "REF::MetaFuncGraph::add"),
        UnsupportedOpError,
        "MetaFuncGraph::add",
    ),
    "input is a tuple": (lambda m: m.graph.input[0].ClearField("tensor"), ModelFormatError, "only tensors"),
    "input of unknown dtype": (
        lambda m: setattr(m.graph.input[0].tensor[0], "data_type", 99),
        ModelFormatError,
        "unknown data type number 99",
    ),
    "input of rank 10000": (
        lambda m: m.graph.input[0].tensor[0].dims.extend([1] * 10_000),
        ModelFormatError,
        "impossible rank",
    ),
    "input of dynamic rank": (
        lambda m: m.graph.input[0].tensor[0].dims.__setitem__(slice(None), [-2]),
        ModelFormatError,
        "dynamic rank",
    ),
    "two inputs of one name": (lambda m: m.graph.input.append(value("G:x", (2, 3))), ModelFormatError, "named 'x'"),
    # Functions.
    "function calls itself": (call_itself, UnsupportedOpError, "a loop has no end"),
    "functions call each other": (call_each_other, UnsupportedOpError, "a loop has no end"),
    "functions call twice each": (call_twice_each, LimitError, "max_nodes"),
    "functions 3000 deep": (call_deep, LimitError, "more than 128 deep"),
    "two functions of one name": (
        lambda m: call(m, function("f", [], "f:p", "f:p"), function("f", [], "f:p", "f:p")),
        ModelFormatError,
        "two graphs",
    ),
    "call with too many arguments": (
        lambda m: call(m, function("f", [], "f:p", "f:p f:z")),
        ModelFormatError,
        "takes 2",
    ),
}


def test_unchanged() -> None:
    (result,) = litehouse.load(mindir(), engine="onnxruntime").run([X])
    np.testing.assert_array_equal(result, EXPECTED)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str) -> None:
    change, error, text = ATTACKS[name]
    content = mindir(change)
    with refused(error, text):
        litehouse.read(content)
    assert outcome(mindir()) == "Model"


def test_names_that_are_not_utf8() -> None:
    content = mindir().replace(b"G:a:1", b"G:\xff:1")
    with refused(text="UTF-8"):
        litehouse.read(content)


def test_names_with_control_characters_are_only_names() -> None:
    evil = "../../\x1b[2J\n\u202e"
    content = mindir(lambda m: setattr(m.graph.parameter[0], "name", f"G:{evil}"))
    with refused(text="nothing defines"):
        litehouse.read(content)

    def both(model: schema.Model) -> None:
        model.graph.parameter[0].name = model.graph.node[0].input[1] = f"G:{evil}"

    assert list(litehouse.read(mindir(both)).weights) == [evil]


def test_attributes_deeper_than_protobuf_allows() -> None:
    values, attribute_field, primitives = 17, 3, 12
    content = mindir() + nested([primitives, attribute_field, *[values] * 5000])
    with refused(text="protobuf"):
        litehouse.read(content)


def test_two_graphs() -> None:
    with refused(text="two main graphs"):
        litehouse.read(mindir() + mindir())


def test_max_nodes() -> None:
    with refused(LimitError, "max_nodes=1"):
        litehouse.read(mindir(), limits=litehouse.Limits(max_nodes=1))


def test_max_tensor_bytes() -> None:
    with refused(LimitError, "max_tensor_bytes=11"):
        litehouse.read(mindir(), limits=litehouse.Limits(max_tensor_bytes=11))


def test_max_model_bytes() -> None:
    with refused(LimitError, "max_model_bytes=100"):
        litehouse.read(mindir(), limits=litehouse.Limits(max_model_bytes=100))


def test_max_depth() -> None:
    with refused(LimitError, "more than 1 deep"):
        litehouse.read(mindir(lambda m: call(m, function("f", [], "f:p", "f:p"))), limits=litehouse.Limits(max_depth=1))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.primitives[0].attribute.append(nested_tuple(70)),
        lambda m: shape_of_result(m, nested_tuple(70)),
    ],
    ids=["a literal", "a recorded type"],
)
def test_max_depth_of_tuples(change: Any) -> None:
    with refused(LimitError, "too deeply"):
        litehouse.read(mindir(change), limits=litehouse.Limits(max_depth=64))


def test_all_unsupported_ops_at_once() -> None:
    def change(model: schema.Model) -> None:
        for primitive, name in zip(model.primitives, ("First", "Second"), strict=True):
            primitive.op_type = name

    with pytest.raises(UnsupportedOpError) as caught:
        litehouse.read(mindir(change))
    assert {op for op, _ in caught.value.all} == {"First", "Second"}


def test_many_nodes_take_linear_time() -> None:
    def change(model: schema.Model) -> None:
        last = "G:r:2"
        for index in range(3000):
            model.graph.node.append(node("REF::ReLU:2", last, f"G:n{index}:0"))
            last = f"G:n{index}:0"
        model.graph.output[0].name = last

    assert outcome(mindir(change)) == "Model"


def test_weight_of_no_elements() -> None:
    def change(model: schema.Model) -> None:
        model.graph.parameter.append(tensor("G:empty", (0, 3), INT64))

    assert litehouse.read(mindir(change)).weights["empty"].shape == (0, 3)
