"""Names in a file cannot control the terminal."""

import onnx
import pytest
from typer.testing import CliRunner

from litehouse.cli import app
from onnx_models import model, node

EVIL = "x\x1b]0;title\x07"


@pytest.fixture
def evil(tmp_path):
    proto = onnx.ModelProto.FromString(model([node("Relu", "x", "y")], {"x": [2]}, {"y": [2]}))
    proto.graph.input[0].name = proto.graph.node[0].input[0] = EVIL
    path = tmp_path / "evil.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize("command", [["inspect"], ["run"], ["run", "--zeros"]])
def test_names_are_escaped(evil, command):
    result = CliRunner().invoke(app, [command[0], str(evil), *command[1:]])
    assert "\x1b" not in result.output
    assert "\x07" not in result.output
    if command != ["run", "--zeros"]:
        assert r"x\x1b]0;title\x07" in result.output
