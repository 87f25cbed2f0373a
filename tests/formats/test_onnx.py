"""ONNX as a format of its own right: what ONNX Runtime computes from the file itself, Litehouse computes too."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from formats.builders import W, X, branch, external, info, local_function, onnx_graph, op, outcome
from formats.onnx_runs import agrees, direct, model, numbers
from onnx import helper

import litehouse
from conftest import assert_close

BOOL, INT64 = onnx.TensorProto.BOOL, onnx.TensorProto.INT64
array = onnx.numpy_helper.from_array


# Where weights are ---------------------------------------------------------------------------------------------------


def test_weights_inside() -> None:
    session = agrees(onnx_graph(), x=X)
    np.testing.assert_array_equal(session.model.weights["w"], W)
    assert session.model.format == "onnx"
    assert session.model.path == "<bytes>"


def test_one_data_file(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (tmp_path / "m.onnx").write_bytes(onnx_graph(lambda m: external(m.graph.initializer[0], length=W.nbytes)))
    agrees(tmp_path / "m.onnx", x=X)


def test_data_file_without_a_length(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (tmp_path / "m.onnx").write_bytes(onnx_graph(lambda m: external(m.graph.initializer[0])))
    agrees(tmp_path / "m.onnx", x=X)


def test_data_file_with_an_offset(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(4096) + W.tobytes() + b"tail")
    content = onnx_graph(lambda m: external(m.graph.initializer[0], offset=4096, length=W.nbytes))
    (tmp_path / "m.onnx").write_bytes(content)
    agrees(tmp_path / "m.onnx", x=X)


@pytest.mark.parametrize("one_file", [True, False])
def test_as_onnx_writes_them(tmp_path: Path, one_file: bool) -> None:
    weights = [array(numbers(4, 300), "w1"), array(numbers(300, 5, seed=1), "w2"), array(numbers(5, seed=2), "b")]
    nodes = [op("MatMul", "x w1", "h"), op("Relu", "h", "r"), op("MatMul", "r w2", "m"), op("Add", "m b", "y")]
    made = model(nodes, [info("x", [2, 4])], [info("y", [2, 5])], weights)
    onnx.save(
        made,
        tmp_path / "m.onnx",
        save_as_external_data=True,
        all_tensors_to_one_file=one_file,
        location="data.bin" if one_file else None,
        size_threshold=0,
    )
    assert len(list(tmp_path.iterdir())) == (2 if one_file else 4)
    agrees(tmp_path / "m.onnx", x=numbers(2, 4, seed=3))


def test_constants_and_branch_weights_in_data_files(tmp_path: Path) -> None:
    constant = array(W)
    external(constant, offset=12)
    inner = array(W, "inner")
    external(inner)
    then, other = branch([op("Add", "a inner", "t")], "t", [inner]), branch([op("Neg", "a", "e")], "e")
    nodes = [op("Constant", "", "c", value=constant), op("Add", "x c", "a")]
    nodes.append(op("If", "flag", "y", then_branch=then, else_branch=other))
    (tmp_path / "w.bin").write_bytes(W.tobytes() * 2)
    (tmp_path / "m.onnx").write_bytes(
        model(nodes, [info("x"), info("flag", [], BOOL)], [info("y")]).SerializeToString()
    )
    for flag in (True, False):
        session = litehouse.load(tmp_path / "m.onnx", engine="onnxruntime")
        (result,) = session.run({"x": X, "flag": np.array(flag)})
        np.testing.assert_array_equal(result, X + W + W if flag else -(X + W))


def test_data_file_and_inside_mixed(tmp_path: Path) -> None:
    weights = [array(numbers(3), "a"), array(numbers(3, seed=1), "b")]
    external(weights[0])
    (tmp_path / "w.bin").write_bytes(numbers(3).tobytes())
    nodes = [op("Add", "x a", "s"), op("Mul", "s b", "y")]
    (tmp_path / "m.onnx").write_bytes(model(nodes, [info("x")], [info("y")], weights).SerializeToString())
    agrees(tmp_path / "m.onnx", x=X)


# Graphs --------------------------------------------------------------------------------------------------------------


def test_dynamic_dimensions() -> None:
    made = model([op("Relu", "x", "y")], [info("x", ["batch", None, 3])], [info("y", ["batch", None, 3])])
    session = agrees(made.SerializeToString(), x=numbers(4, 2, 3))
    assert session.inputs[0].shape == ("batch", None, 3)
    agrees(made.SerializeToString(), x=numbers(1, 7, 3))


def test_negative_dimensions_are_dynamic() -> None:
    session = litehouse.load(
        model([op("Relu", "x", "y")], [info("x", [-1, 3])], [info("y", [-1, 3])]).SerializeToString(),
        engine="onnxruntime",
    )
    assert session.inputs[0].shape == (None, 3)
    assert session.run([numbers(5, 3)])[0].shape == (5, 3)


def test_branches_with_captured_weights() -> None:
    then = branch([op("Add", "x w", "s"), op("Mul", "s k", "t")], "t", [array(np.float32([2, 3, 4]), "k")])
    other = branch([op("Sub", "x w", "e")], "e")
    node = op("If", "flag", "y", then_branch=then, else_branch=other)
    made = model([node], [info("x"), info("flag", [], BOOL)], [info("y")], [array(W, "w")]).SerializeToString()
    for flag in (True, False):
        agrees(made, x=X, flag=np.array(flag))


def test_loop_with_captured_weights() -> None:
    body = helper.make_graph(
        [
            op("Identity", "cond", "go"),
            op("Mul", "state w", "m"),
            op("Add", "m x", "next"),
            op("Identity", "next", "scan"),
        ],
        "body",
        [info("i", [], INT64), info("cond", [], BOOL), info("state")],
        [info("go", [], BOOL), info("next"), info("scan")],
    )
    node = op("Loop", "n _ x", "final all", body=body)
    outputs = [info("final"), info("all", [None, 2, 3])]
    agrees(
        model([node], [info("x"), info("n", [], INT64)], outputs, [array(W, "w")]).SerializeToString(),
        x=X,
        n=np.array(4),
    )


def test_scan() -> None:
    body = helper.make_graph(
        [op("Add", "sum row", "next"), op("Mul", "next w", "out")],
        "body",
        [info("sum", [3]), info("row", [3])],
        [info("next", [3]), info("out", [3])],
    )
    node = op("Scan", "start x", "final all", body=body, num_scan_inputs=1)
    agrees(
        model(
            [node], [info("start", [3]), info("x")], [info("final", [3]), info("all")], [array(W, "w")]
        ).SerializeToString(),
        start=W,
        x=X,
    )


def test_optional_inputs_and_outputs() -> None:
    nodes = [op("Clip", "x _ top", "c"), op("LayerNormalization", "c scale", "y _ deviation")]
    weights = [array(np.float32(1).reshape(()), "top"), array(W, "scale")]
    outputs = [info("y"), info("deviation", [2, 1])]
    agrees(model(nodes, [info("x")], outputs, weights).SerializeToString(), x=X)


def test_weight_and_input_as_outputs() -> None:
    nodes = [op("Identity", "w", "copy"), op("Relu", "x", "y")]
    agrees(model(nodes, [info("x")], [info("copy", [3]), info("y")], [array(W, "w")]).SerializeToString(), x=X)


@pytest.mark.parametrize("shape", ["none", "type alone"])
def test_outputs_without_shape(shape: str) -> None:
    nodes = [op("Reshape", "x to", "r"), op("Neg", "r", "y")]
    output = onnx.ValueInfoProto(name="y") if shape == "none" else info("y", None)
    made = model(nodes, [info("x")], [output], [array(np.array([3, 2]), "to")])
    session = agrees(made.SerializeToString(), x=X)
    assert session.outputs[0].shape == (3, 2)
    assert session.outputs[0].dtype == np.float32


def test_output_of_unknown_rank() -> None:
    nodes = [op("Reshape", "x to", "y")]
    made = model(nodes, [info("x"), info("to", ["rank"], INT64)], [info("y", None)])
    agrees(made.SerializeToString(), x=X, to=np.array([6, 1]))


# Local functions -----------------------------------------------------------------------------------------------------


def functions(*made: onnx.FunctionProto, domain: str = "own") -> bytes:
    node = op(made[0].name, "x", "y", domain=domain)
    return model([node], [info("x")], [info("y")], functions=list(made)).SerializeToString()


def scaled(opset: int = 21) -> onnx.FunctionProto:
    nodes = [op("Constant", "", "k", value_float=3.0), op("Mul", "p k", "q")]
    return helper.make_function("own", "Scaled", ["p"], ["q"], nodes, [helper.make_opsetid("", opset)])


def calling(name: str, *called: str) -> onnx.FunctionProto:
    names = ["p", *(f"v{index}" for index in range(1, len(called))), "q"]
    nodes = [op(item, names[i], names[i + 1], domain="own") for i, item in enumerate(called)]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["p"], ["q"], nodes, imports)


def test_function() -> None:
    session = agrees(functions(scaled()), x=X)
    assert session.model.source_ops.get("Scaled") is None


def test_functions_that_call_functions() -> None:
    agrees(functions(calling("Outer", "Middle", "Scaled"), calling("Middle", "Scaled", "Scaled"), scaled()), x=X)


def test_function_of_another_version() -> None:
    agrees(functions(scaled(17)), x=X)


def test_function_with_attributes() -> None:
    leaky = op("LeakyRelu", "p", "q")
    leaky.attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    made = helper.make_function(
        "own", "Leaky", ["p"], ["q"], [leaky], [helper.make_opsetid("", 21)], attributes=["slope"]
    )
    node = op("Leaky", "x", "y", domain="own", slope=0.5)
    agrees(model([node], [info("x")], [info("y")], functions=[made]).SerializeToString(), x=X)


def test_function_inside_a_branch() -> None:
    then = branch([op("Scaled", "x", "t", domain="own")], "t")
    node = op("If", "flag", "y", then_branch=then, else_branch=branch([op("Neg", "x", "e")], "e"))
    made = model([node], [info("x"), info("flag", [], BOOL)], [info("y")], functions=[scaled()])
    agrees(made.SerializeToString(), x=X, flag=np.array(True))


def test_many_calls_take_linear_time() -> None:
    names = ["x", *(f"v{index}" for index in range(1999)), "y"]
    nodes = [op("Add1", names[i], names[i + 1], domain="own") for i in range(2000)]
    add = local_function("Add1", [op("Neg", "p", "q")])
    add.opset_import[0].version = 21
    assert outcome(model(nodes, [info("x")], [info("y")], functions=[add]).SerializeToString()) == "Model"


def test_function_for_an_op_of_a_later_version() -> None:
    """A writer may bring the definition of an op that the stated version lacks."""
    swish = helper.make_function(
        "", "Swish", ["p"], ["q"], [op("Sigmoid", "p", "s"), op("Mul", "p s", "q")], [helper.make_opsetid("", 21)]
    )
    (result,) = litehouse.load(functions(swish, domain=""), engine="onnxruntime").run([X])
    assert_close(result, X / (1 + np.exp(-X)))


# Versions and domains ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", range(7, 22))
def test_versions(opset: int) -> None:
    weights = [
        array(numbers(4, 3, 3, 3), "k"),
        *[
            array(np.abs(numbers(4, seed=seed)) + 0.5, name)
            for seed, name in enumerate(("scale", "bias", "mean", "var"))
        ],
        array(numbers(4, 5), "w"),
        array(numbers(5), "b"),
    ]
    nodes = [
        op("Conv", "x k", "c", pads=[1, 1, 1, 1]),
        op("BatchNormalization", "c scale bias mean var", "n"),
        op("Relu", "n", "r"),
        op("GlobalAveragePool", "r", "g"),
        op("Flatten", "g", "f"),
        op("Gemm", "f w b", "m"),
        op("Softmax", "m", "y", axis=1),
    ]
    made = model(nodes, [info("x", [2, 3, 8, 8])], [info("y", [2, 5])], weights, opset)
    made.ir_version = 3 if opset < 9 else 7
    if made.ir_version == 3:  # which asks for every weight among the inputs
        made.graph.input.extend(info(weight.name, list(weight.dims)) for weight in weights)
    session = agrees(made.SerializeToString(), x=numbers(2, 3, 8, 8, seed=9))
    assert [item.name for item in session.inputs] == ["x"]
    assert session.model.metadata["opset.ai.onnx"] == str(opset)


def test_ops_of_onnx_runtime() -> None:
    nodes = [
        op("Gelu", "x", "g", domain="com.microsoft"),
        op("FusedMatMul", "g x", "y", domain="com.microsoft", transB=1, alpha=0.5),
    ]
    agrees(model(nodes, [info("x")], [info("y", [2, 2])]).SerializeToString(), x=X)


@pytest.mark.parametrize("operands", ["x s", "x s b"])
def test_ops_of_onnx_runtime_in_the_standard_domain(engine: str, operands: str) -> None:
    """Its optimiser writes norms that ONNX has not, or not in the version of the file."""
    kind = "LayerNormalization" if "b" in operands else "SimplifiedLayerNormalization"
    weights = [array(numbers(8, seed=seed), name) for seed, name in enumerate("sb")]
    nodes = [op(kind, operands, "n", epsilon=1e-2), op("MatMul", "n w", "y")]
    weights.append(array(numbers(8, 4, seed=2), "w"))
    data = model(nodes, [info("x", [3, 8])], [info("y", [3, 4])], weights, opset=13).SerializeToString()
    x = numbers(3, 8, seed=3)
    (result,) = litehouse.load(data, engine=engine).run([x])
    assert_close(result, direct(data, {"x": x})[0])


def test_unknown_op_of_a_known_domain_is_the_engines_to_refuse() -> None:
    made = model([op("NoSuchOp", "x", "y", domain="com.microsoft")], [info("x")], [info("y")])
    with pytest.raises(litehouse.EngineError, match="NoSuchOp"):
        litehouse.load(made.SerializeToString(), engine="onnxruntime")


def test_standard_domain_by_its_long_name() -> None:
    agrees(model([op("Relu", "x", "y", domain="ai.onnx")], [info("x")], [info("y")]).SerializeToString(), x=X)


def test_metadata() -> None:
    made = model([op("Relu", "x", "y")], [info("x")], [info("y")], producer_name="maker", producer_version="7")
    made.metadata_props.add(key="author", value="me")
    metadata = litehouse.read(made.SerializeToString()).metadata
    assert metadata["producer"] == "maker"
    assert metadata["producer_version"] == "7"
    assert metadata["user_info.author"] == "me"
