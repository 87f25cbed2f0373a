"""ONNX files that are wrong in one place each: every one is refused quickly, with an error that names the fault."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from formats.builders import (
    EXPECTED,
    FLOAT,
    HUGE,
    W,
    X,
    branch,
    external,
    info,
    local_function,
    nested,
    onnx_graph,
    op,
    outcome,
    refused,
)
from onnx import helper

import litehouse
from litehouse import LimitError, ModelFormatError, UnsupportedOpError
from litehouse.formats import onnx_check

Change = Callable[[onnx.ModelProto], Any]


def replace_weight(model: onnx.ModelProto, **fields: Any) -> None:
    weight = model.graph.initializer[0]
    for name, content in fields.items():
        if name in ("raw_data", "data_type", "name"):
            setattr(weight, name, content)
        else:
            weight.ClearField(name)
            getattr(weight, name).extend(content)


def typed(model: onnx.ModelProto, data_type: int, dims: list[int], **fields: Any) -> None:
    """Store the weight as a list of numbers."""
    weight = model.graph.initializer[0]
    weight.CopyFrom(onnx.TensorProto(name="w", data_type=data_type, dims=dims, **fields))


def prepend(model: onnx.ModelProto, *nodes: onnx.NodeProto) -> None:
    rest = list(model.graph.node)
    model.graph.ClearField("node")
    model.graph.node.extend([*nodes, *rest])


def tensor(**fields: Any) -> onnx.TensorProto:
    return onnx.TensorProto(**fields)


def constant(model: onnx.ModelProto, content: onnx.TensorProto) -> None:
    """Put a Constant node in front."""
    prepend(model, op("Constant", "", "c", value=content))


def condition(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.NodeProto:
    return op("If", "flag", "i", then_branch=then, else_branch=other)


def with_if(model: onnx.ModelProto, then: onnx.GraphProto) -> None:
    model.graph.input.append(info("flag", [], onnx.TensorProto.BOOL))
    model.graph.node.append(condition(then, branch([op("Neg", "x", "e")], "e")))


def nested_if(model: onnx.ModelProto, depth: int) -> None:
    inner = branch([op("Neg", "x", "t")], "t")
    for _ in range(depth):
        inner = branch([condition(inner, branch([op("Neg", "x", "e")], "e"))], "i")
    with_if(model, inner)


def functions(model: onnx.ModelProto, *made: onnx.FunctionProto) -> None:
    """Call the first of these functions."""
    model.functions.extend(made)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(op(made[0].name, "r", "z", domain=made[0].domain))


def call_itself(model: onnx.ModelProto) -> None:
    functions(model, local_function("F", [op("F", "p", "q", domain="own")]))


def call_each_other(model: onnx.ModelProto) -> None:
    one = local_function("F", [op("G", "p", "q", domain="own")])
    functions(model, one, local_function("G", [op("F", "p", "q", domain="own")]))


def call_itself_inside_a_branch(model: onnx.ModelProto) -> None:
    again = branch([op("F", "p", "t", domain="own")], "t")
    functions(model, local_function("F", [op("If", "p", "q", then_branch=again, else_branch=again)]))


def call_twice_each(model: onnx.ModelProto) -> None:
    """A billion laughs: forty functions, each of which calls the next one twice."""
    chain = [
        local_function(f"F{i}", [op(f"F{i + 1}", "p", "t", domain="own"), op(f"F{i + 1}", "t", "q", domain="own")])
        for i in range(40)
    ]
    functions(model, *chain, local_function("F40", [op("Neg", "p", "q")]))


def call_deep(model: onnx.ModelProto) -> None:
    chain = [local_function(f"F{i}", [op(f"F{i + 1}", "p", "q", domain="own")]) for i in range(2000)]
    functions(model, *chain, local_function("F2000", [op("Neg", "p", "q")]))


def sparse() -> onnx.SparseTensorProto:
    values = helper.make_tensor("w", FLOAT, [1], [1.0])
    return helper.make_sparse_tensor(values, helper.make_tensor("i", onnx.TensorProto.INT64, [1], [0]), [3])


DAMAGED = ModelFormatError
FLOAT16, INT4, STRING = onnx.TensorProto.FLOAT16, onnx.TensorProto.INT4, onnx.TensorProto.STRING

ATTACKS: dict[str, tuple[Change, type[Exception], str]] = {
    # Weights: what they declare against the bytes that are there.
    "dims product is huge": (lambda m: replace_weight(m, dims=[2**20, 2**20, 2**10]), LimitError, "max_tensor_bytes"),
    "dims product overflows": (lambda m: replace_weight(m, dims=[2**40, 2**40]), DAMAGED, "impossible shape"),
    "dims hide behind a zero": (lambda m: replace_weight(m, dims=[0, HUGE, HUGE]), DAMAGED, "impossible shape"),
    "dim is the largest int": (lambda m: replace_weight(m, dims=[HUGE]), DAMAGED, "impossible shape"),
    "dim is negative": (lambda m: replace_weight(m, dims=[-3]), DAMAGED, "impossible shape"),
    "rank 10000": (lambda m: replace_weight(m, dims=[1] * 10_000), DAMAGED, "impossible shape"),
    "too few bytes": (lambda m: replace_weight(m, raw_data=b"\0" * 11), DAMAGED, "has 11 bytes, not 12"),
    "too many bytes": (lambda m: replace_weight(m, raw_data=b"\0" * 13), DAMAGED, "has 13 bytes, not 12"),
    "no bytes at all": (lambda m: m.graph.initializer[0].ClearField("raw_data"), DAMAGED, "has 0 numbers, not 3"),
    "dtype unknown": (lambda m: replace_weight(m, data_type=999), DAMAGED, "unknown dtype number 999"),
    "dtype undefined": (lambda m: replace_weight(m, data_type=0), DAMAGED, "unknown dtype number 0"),
    "text as bytes": (lambda m: replace_weight(m, data_type=STRING), DAMAGED, "keeps text as bytes"),
    "weight without a name": (lambda m: replace_weight(m, name=""), DAMAGED, "one has none"),
    "weight occurs twice": (lambda m: m.graph.initializer.append(m.graph.initializer[0]), DAMAGED, "have one name"),
    "typed, without numbers": (lambda m: typed(m, FLOAT, [2**40]), DAMAGED, "has 0 numbers"),
    "typed, too few numbers": (lambda m: typed(m, FLOAT, [3], float_data=[1.0]), DAMAGED, "has 1 numbers, not 3"),
    "typed, wrong list": (lambda m: typed(m, FLOAT, [1], int32_data=[1]), DAMAGED, "has 0 numbers, not 1"),
    "typed, two lists": (lambda m: typed(m, FLOAT, [1], int32_data=[1], float_data=[1]), DAMAGED, "do not fit"),
    "typed int4, too few": (lambda m: typed(m, INT4, [5], int32_data=[1, 2]), DAMAGED, "has 2 numbers, not 3"),
    "int4 of wrong length": (lambda m: replace_weight(m, data_type=INT4, dims=[5]), DAMAGED, "has 12 bytes, not 3"),
    "sparse weight": (lambda m: m.graph.sparse_initializer.append(sparse()), DAMAGED, "sparse"),
    "sparse weight of a branch": (
        lambda m: with_if(m, helper.make_graph([], "b", [], [info("w")], sparse_initializer=[sparse()])),
        DAMAGED,
        "sparse",
    ),
    "sparse constant": (lambda m: prepend(m, op("Constant", "", "c", sparse_value=sparse())), DAMAGED, "sparse"),
    # Tensors in attributes and inner graphs.
    "constant too short": (
        lambda m: constant(m, tensor(data_type=1, dims=[3], raw_data=b"12")),
        DAMAGED,
        "has 2 bytes",
    ),
    "constant without data": (lambda m: constant(m, tensor(data_type=1, dims=[2**40])), DAMAGED, "has 0 numbers"),
    "constant of unknown dtype": (lambda m: constant(m, tensor(data_type=99)), DAMAGED, "unknown dtype"),
    "weight of a branch too short": (
        lambda m: with_if(m, branch([op("Neg", "b", "t")], "t", [tensor(name="b", data_type=1, dims=[3])])),
        DAMAGED,
        "has 0 numbers",
    ),
    "constant of a function": (
        lambda m: functions(m, local_function("F", [op("Constant", "", "q", value=tensor(data_type=1, dims=[HUGE]))])),
        DAMAGED,
        "impossible shape",
    ),
    # The graph.
    "no graph": (lambda m: m.ClearField("graph"), DAMAGED, "no graph"),
    "no outputs": (lambda m: m.graph.ClearField("output"), DAMAGED, "returns nothing"),
    "no version": (lambda m: m.ClearField("opset_import"), DAMAGED, "which version of ONNX"),
    "version is absurd": (lambda m: setattr(m.opset_import[0], "version", -5), UnsupportedOpError, "Add"),
    "output is not defined": (lambda m: setattr(m.graph.output[0], "name", "z"), DAMAGED, "'z' is not defined"),
    "output without a name": (lambda m: setattr(m.graph.output[0], "name", ""), DAMAGED, "one has none"),
    "one output twice": (lambda m: m.graph.output.append(m.graph.output[0]), DAMAGED, "have one name"),
    "operand is not defined": (lambda m: m.graph.node[0].input.__setitem__(1, "z"), DAMAGED, "'z', which nothing"),
    "used before it is defined": (lambda m: m.graph.node.reverse(), DAMAGED, "which nothing before it defines"),
    "node uses itself": (lambda m: m.graph.node[0].input.__setitem__(0, "a"), DAMAGED, "which nothing before it"),
    "defined twice": (lambda m: m.graph.node.append(op("Neg", "x", "a")), DAMAGED, "'a' is defined twice"),
    "node defines an input": (lambda m: m.graph.node.append(op("Neg", "x", "x")), DAMAGED, "'x' is defined twice"),
    "node defines a weight": (lambda m: m.graph.node.append(op("Neg", "x", "w")), DAMAGED, "'w' is defined twice"),
    "two inputs of one name": (lambda m: m.graph.input.append(m.graph.input[0]), DAMAGED, "have one name"),
    "no operands": (lambda m: m.graph.node[0].ClearField("input"), DAMAGED, "has 0 inputs"),
    "pool of nothing": (lambda m: prepend(m, op("MaxPool", "", "p", kernel_shape=[1])), DAMAGED, "has 0 inputs"),
    "100000 operands": (lambda m: m.graph.node[0].input.extend(["x"] * 100_000), DAMAGED, "100002 inputs"),
    "100000 outputs": (lambda m: m.graph.node[0].output.extend(map(str, range(100_000))), DAMAGED, "100001 outputs"),
    "unknown op": (lambda m: setattr(m.graph.node[0], "op_type", "system"), UnsupportedOpError, "system"),
    "unknown domain": (lambda m: setattr(m.graph.node[0], "domain", "evil"), UnsupportedOpError, "evil::Add"),
    "op of a later version": (lambda m: m.graph.node.append(op("Swish", "x", "s")), UnsupportedOpError, "Swish"),
    "input is a sequence": (
        lambda m: m.graph.input.append(helper.make_tensor_sequence_value_info("s", FLOAT, [1])),
        DAMAGED,
        "not a tensor of known dtype",
    ),
    "input of unknown dtype": (lambda m: m.graph.input.append(info("s", [1], 99)), DAMAGED, ""),
    "input of unknown rank": (lambda m: m.graph.input.append(info("s", None)), DAMAGED, "has no sane rank"),
    "input of rank 10000": (lambda m: m.graph.input.append(info("s", [1] * 10_000)), DAMAGED, "has no sane rank"),
    # Nesting.
    "branch uses what is not defined": (
        lambda m: with_if(m, branch([op("Neg", "z", "t")], "t")),
        DAMAGED,
        "'z', which nothing before it defines",
    ),
    "branch leaks its values": (
        lambda m: (with_if(m, branch([op("Neg", "x", "t")], "t")), m.graph.node.append(op("Neg", "t", "n"))),
        DAMAGED,
        "'t', which nothing before it defines",
    ),
    "branch returns an outer value": (lambda m: with_if(m, branch([], "x")), DAMAGED, "'x' is not defined"),
    # Functions.
    "function called with too much": (
        lambda m: (functions(m, local_function("F", [op("Neg", "p", "q")])), m.graph.node[-1].input.append("x")),
        DAMAGED,
        "with 2 inputs",
    ),
    "function named as a standard op": (
        lambda m: functions(m, local_function("Relu", [op("Neg", "p", "q")], domain="")),
        DAMAGED,
        "name of a standard op",
    ),
    "function calls itself": (call_itself, LimitError, "recursion"),
    "functions call each other": (call_each_other, LimitError, "recursion"),
    "function calls itself in a branch": (call_itself_inside_a_branch, LimitError, "recursion"),
    "functions call twice each": (call_twice_each, LimitError, "max_nodes"),
    "functions 2000 deep": (call_deep, LimitError, "recursion"),
    "two functions of one name": (
        lambda m: functions(m, *[local_function("F", [op("Neg", "p", "q")])] * 2),
        DAMAGED,
        "two functions have one name",
    ),
    "function uses what is not defined": (
        lambda m: functions(m, local_function("F", [op("Neg", "x", "q")])),
        DAMAGED,
        "'x', which nothing before it defines",
    ),
    "function returns what is not defined": (
        lambda m: functions(m, local_function("F", [op("Neg", "p", "t")])),
        DAMAGED,
        "'q' of function 'F' is not defined",
    ),
    "unknown op in a function": (
        lambda m: functions(m, local_function("F", [op("system", "p", "q")])),
        UnsupportedOpError,
        "system",
    ),
}


def test_unchanged() -> None:
    (result,) = litehouse.load(onnx_graph(), engine="onnxruntime").run([X])
    np.testing.assert_array_equal(result, EXPECTED)


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name: str) -> None:
    change, error, text = ATTACKS[name]
    content = onnx_graph(change)
    with refused(error, text):
        litehouse.read(content)
    assert outcome(onnx_graph()) == "Model"


def test_names_that_are_not_utf8() -> None:
    content = onnx_graph(lambda m: setattr(m, "producer_name", "QQQQ")).replace(b"QQQQ", b"\xff\xfe\xfd\xfc")
    with refused(text="UTF-8"):
        litehouse.read(content)


def test_two_graphs() -> None:
    with refused(text="two main graphs"):
        litehouse.read(onnx_graph() + onnx_graph())


def test_graphs_nested_deeper_than_protobuf_allows() -> None:
    graph, nodes, attributes, inner = 7, 1, 5, 6
    head = onnx_graph(lambda m: m.ClearField("graph"))
    with refused(text="protobuf"):
        litehouse.read(head + nested([graph, *[nodes, attributes, inner] * 2000]))


def test_graphs_nested_deeper_than_the_limit() -> None:
    with refused(LimitError, "nested more than 3 deep"):
        litehouse.read(onnx_graph(lambda m: nested_if(m, 5)), limits=litehouse.Limits(max_depth=3))


def test_limits() -> None:
    with refused(LimitError, "max_nodes=1"):
        litehouse.read(onnx_graph(), limits=litehouse.Limits(max_nodes=1))
    with refused(LimitError, "max_tensor_bytes=11"):
        litehouse.read(onnx_graph(), limits=litehouse.Limits(max_tensor_bytes=11))
    with refused(LimitError, "max_model_bytes=9"):
        litehouse.read(onnx_graph(), limits=litehouse.Limits(max_model_bytes=9))


def test_all_unsupported_ops_at_once() -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.node[0].domain = model.graph.node[1].domain = "evil"

    with pytest.raises(UnsupportedOpError) as caught:
        litehouse.read(onnx_graph(change))
    assert {name for name, _ in caught.value.all} == {"evil::Add", "evil::Relu"}


def test_training_part_is_dropped(tmp_path: Path) -> None:
    """It may hold graphs and tensors of its own; nothing of it is looked at."""

    def change(model: onnx.ModelProto) -> None:
        part = model.training_info.add()
        external(part.algorithm.initializer.add(data_type=1, dims=[4]), "/etc/passwd")

    (tmp_path / "m.onnx").write_bytes(onnx_graph(change))
    assert outcome(tmp_path / "m.onnx") == "Model"


def test_every_tensor_of_the_schema_is_found() -> None:
    """When a new version of ONNX puts tensors into more messages, this fails, and the reader needs another look."""
    holders = {
        f"{message.name}.{field.name}"
        for message in onnx.ModelProto.DESCRIPTOR.file.message_types_by_name.values()
        for field in message.fields
        if field.message_type is not None and field.message_type.full_name in onnx_check._carriers()
    }
    assert holders == {
        "ModelProto.graph",
        "ModelProto.functions",
        "ModelProto.training_info",  # dropped
        "TrainingInfoProto.initialization",
        "TrainingInfoProto.algorithm",
        "FunctionProto.node",
        "FunctionProto.attribute_proto",
        "GraphProto.node",
        "GraphProto.initializer",
        "GraphProto.sparse_initializer",  # refused
        "NodeProto.attribute",
        "AttributeProto.g",
        "AttributeProto.graphs",
        "AttributeProto.t",
        "AttributeProto.tensors",
        "AttributeProto.sparse_tensor",  # refused
        "AttributeProto.sparse_tensors",  # refused
        "SparseTensorProto.values",
        "SparseTensorProto.indices",
    }


def test_many_branches_take_linear_time() -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.input.append(info("flag", [], onnx.TensorProto.BOOL))
        for index in range(1000):
            model.graph.node.append(op("Neg", "x", f"n{index}"))
        for index in range(1000):
            then, other = branch([op("Neg", "x", "t")], "t"), branch([op("Neg", "x", "e")], "e")
            model.graph.node.append(op("If", "flag", f"i{index}", then_branch=then, else_branch=other))

    assert outcome(onnx_graph(change)) == "Model"


def test_weight_of_no_elements() -> None:
    def change(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((0, 3), np.float32), "empty"))

    assert litehouse.read(onnx_graph(change)).weights["empty"].shape == (0, 3)


def test_input_named_as_a_weight_is_that_weight() -> None:
    """Old files list every weight among the inputs; such an input is fixed, not asked for."""

    def change(model: onnx.ModelProto) -> None:
        model.ir_version = 3
        model.opset_import[0].version = 7
        model.graph.input.append(info("w", [3]))

    session = litehouse.load(onnx_graph(change), engine="onnxruntime")
    assert [item.name for item in session.inputs] == ["x"]
    np.testing.assert_array_equal(session.run([X])[0], np.maximum(X + W, 0))
