"""`litehouse inspect`."""

import json

import numpy as np
import onnx
import pytest
from cli.support import OPS, call, lines, write

import onnx_models
from conftest import FIXTURES

KEYS = [
    "schema",
    "path",
    "format",
    "supported",
    "message",
    "metadata",
    "inputs",
    "outputs",
    "source_ops",
    "onnx_ops",
    "weights",
    "states",
    "exchanges",
    "unsupported",
]


def document(*arguments, code=0):
    result = call("inspect", *arguments, "--json")
    assert result.exit_code == code, result.output
    assert result.stderr == ""
    found = json.loads(result.stdout)
    assert list(found) == KEYS
    assert list(found["weights"]) == ["count", "bytes", "values", "largest", "all"]
    return found


@pytest.fixture
def mlp(tmp_path):
    return write(tmp_path / "mlp.onnx", onnx_models.mlp("batch"))


@pytest.fixture
def strange_onnx(tmp_path):
    """An ONNX file with two kinds of ops that no engine has, one of them inside a branch."""
    make = onnx.helper.make_node
    branch = onnx.helper.make_graph(
        [make("Juggle", ["x"], ["b"], name="inner", domain="my.circus")],
        "branch",
        [],
        [onnx.helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, [2, 2])],
    )
    nodes = [
        make("Juggle", ["x"], ["h"], name="first", domain="my.circus"),
        make("Abracadabra", ["h"], ["r"], name="second"),
        make("ReduceMax", ["x"], ["m"], keepdims=0),
        make("Cast", ["m"], ["c"], to=onnx.TensorProto.BOOL),
        make("If", ["c"], ["z"], then_branch=branch, else_branch=branch),
        make("MatMul", ["r", "w"], ["y"]),
    ]
    weights = {"w": np.ones((2, 2), np.float32)}
    data = onnx.load_from_string(onnx_models.model(nodes, {"x": ["n", 2]}, {"y": ["n", 2]}, weights))
    data.opset_import.append(onnx.helper.make_opsetid("my.circus", 1))
    return write(tmp_path / "strange.onnx", data.SerializeToString())


@pytest.fixture
def strange_mindir(tmp_path):
    """A MindIR file whose op was renamed to one that does not exist."""
    data = (OPS / "dense.mindir").read_bytes()
    assert b"Dense" in data or b"MatMul" in data
    return write(tmp_path / "strange.mindir", data.replace(b"MatMul", b"MatMix").replace(b"Dense", b"Dance"))


def test_document_of_mindir():
    found = document(OPS / "act_relu.mindir")
    assert found["schema"] == 1
    assert found["path"].endswith("act_relu.mindir")
    assert found["format"] == "mindir"
    assert found["supported"] is True
    assert found["message"] is None
    assert found["metadata"]["producer"] == "MindSpore"
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": [3, 5]}]
    assert found["outputs"] == [{"name": "Default/ReLU-op0", "dtype": "float32", "shape": [3, 5]}]
    assert found["source_ops"]["ReLU"] == 1
    assert found["onnx_ops"]["Relu"] == 1
    assert found["weights"] == {"count": 0, "bytes": 0, "values": 0, "largest": None, "all": None}
    assert found["states"] == []
    assert found["unsupported"] == []


def test_state_is_listed():
    path = FIXTURES / "flow" / "state_counter.mindir"
    assert document(path)["states"] == [{"name": "count", "dtype": "int32", "shape": []}]
    assert "State, which runs change" in call("inspect", path).output


def test_document_of_onnx(mlp):
    found = document(mlp)
    assert found["format"] == "onnx"
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}]
    assert found["source_ops"] == {"MatMul": 2, "Relu": 1}
    assert found["onnx_ops"] == {"MatMul": 2, "Relu": 1}
    largest = {"name": "w1", "dtype": "float32", "shape": [4, 300], "bytes": 4800}
    assert found["weights"] == {"count": 2, "bytes": 8400, "values": 2100, "largest": largest, "all": None}


def test_weights_are_listed_on_request(mlp):
    assert [weight["name"] for weight in document(mlp, "--weights")["weights"]["all"]] == ["w1", "w2"]
    shown = lines(call("inspect", mlp, "--weights"))
    assert ["w1", "float32", "[4,", "300]", "4.8", "kB"] in shown
    assert ["w2", "float32", "[300,", "3]", "3.6", "kB"] in shown


def test_page_of_mindir():
    shown = lines(call("inspect", OPS / "act_relu.mindir"))
    assert shown[0][:2] == ["act_relu.mindir", "mindir"]
    assert ["x", "float32", "[3,", "5]"] in shown
    assert ["Default/ReLU-op0", "float32", "[3,", "5]"] in shown
    assert ["producer", "MindSpore"] in shown
    assert ["mindir", "op", "count", "ONNX", "op", "count"] in shown
    assert not any(words[:1] == ["Unsupported"] for words in shown)


def test_page_of_onnx(mlp):
    shown = lines(call("inspect", mlp))
    assert ["Ops", "(3)"] in shown
    assert ["MatMul", "2"] in shown
    assert any(words[:3] == ["2", "with", "2,100"] for words in shown)


def test_unsupported_onnx(strange_onnx):
    found = document(strange_onnx, code=1)
    assert found["supported"] is False
    assert found["message"] == "2 unsupported onnx ops"
    assert found["unsupported"] == [
        {"op": "my.circus::Juggle", "count": 3, "nodes": ["first", "inner", "inner"]},
        {"op": "Abracadabra", "count": 1, "nodes": ["second"]},
    ]
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": ["n", 2]}]
    assert found["outputs"] == [{"name": "y", "dtype": "float32", "shape": ["n", 2]}]
    assert found["source_ops"]["Juggle"] == 3
    assert found["weights"]["bytes"] == 16


def test_unsupported_mindir(strange_mindir):
    found = document(strange_mindir, code=1)
    (item,) = found["unsupported"]
    assert item["op"] in ("Dance", "MatMix")
    assert item["count"] == 1
    assert found["source_ops"][item["op"]] == 1
    whole = document(OPS / "dense.mindir")
    for name in ("inputs", "weights", "metadata"):
        assert found[name] == whole[name]
    # How an output is called comes out of the translation, which was refused.
    assert [output | {"name": ""} for output in found["outputs"]] == [
        output | {"name": ""} for output in whole["outputs"]
    ]


def test_page_of_unsupported(strange_onnx):
    result = call("inspect", strange_onnx)
    assert result.exit_code == 1
    assert result.stderr == ""
    shown = [line.split() for line in result.stdout.splitlines()]
    assert ["Unsupported"] in shown
    assert ["my.circus::Juggle", "3", "first"] in shown
    assert ["Abracadabra", "1", "second"] in shown


def test_a_part_of_a_job(tmp_path):
    path = FIXTURES / "mindir" / "communication" / "all_reduce.mindir"
    found = document(path)
    assert found["supported"] is True
    assert found["exchanges"] == {"AllReduce": 1}
    assert "1 AllReduce: the file is one part of a job" in " ".join(call("inspect", path).output.split())
    result = call("convert", path, tmp_path / "out.onnx")
    assert result.exit_code == 1
    assert "exchange data between ranks" in result.output


def test_unknown_mode():
    result = call("inspect", OPS / "act_relu.mindir", "--mode", "ROT13")
    assert result.exit_code == 2
    assert "the modes are AES-GCM, AES-CBC, SM4-CBC" in result.output
