"""The command as a whole: help, versions, exit codes, errors, progress, and what it imports."""

import json
import os
import subprocess
import sys

import pytest
from cli.support import OPS, call, failure

import litehouse
import onnx_models

HEAVY = ("onnxruntime", "openvino", "onnx", "onnx_ir", "google.protobuf", "cryptography")


def shell(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program = "from litehouse.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | environment,
        capture_output=True,
        encoding=environment.get("PYTHONIOENCODING", "utf-8"),
        timeout=600,
        check=False,
    )


def test_as_a_process():
    done = shell("inspect", str(OPS / "act_relu.mindir"))
    assert done.returncode == 0
    assert done.stderr == ""
    assert "ReLU" in done.stdout
    done = shell("inspect", "absent.mindir")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "error: absent.mindir: cannot open the file (No such file or directory); check the path and its permissions"
    ]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_any_encoding(tmp_path, encoding):
    model = tmp_path / "größe.onnx"
    graph = [onnx_models.node("Relu", "x", "größe…")]
    model.write_bytes(onnx_models.model(graph, {"x": [3, 5]}, {"größe…": [3, 5]}))
    shown = {}
    for command in (["run", "--zeros"], ["run"], ["inspect"], ["inspect", "--json"]):
        done = shell(command[0], str(model), *command[1:], PYTHONIOENCODING=encoding, PYTHONUTF8="0")
        assert done.returncode == (1 if command == ["run"] else 0), done.stderr
        assert "Traceback" not in done.stderr
        shown[tuple(command)] = done.stdout
    assert json.loads(shown["inspect", "--json"])["outputs"][0]["name"] == "größe…"


def test_help_imports_no_engine():
    program = (
        "import sys\n"
        "from litehouse.cli import app\n"
        "app(['--help'], standalone_mode=False)\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for command in ("run", "inspect", "convert", "verify"):
        assert f"\n  {command} " in done.stdout


@pytest.mark.parametrize("command", ["run", "inspect", "convert", "verify"])
def test_every_command_has_help(command):
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "MODEL" in result.stdout
    assert "--key" in result.stdout


def test_version():
    assert call("--version").stdout == f"litehouse {litehouse.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument"),
        (["run", "m", "--engine", "abacus"], "engine must be one of"),
        (["run", "m", "--precision", "fp8"], "precision must be one of"),
        (["run", "m", "--device", "toaster"], "device must be one of"),
        (["run", "m", "--threads", "-1"], "--threads"),
        (["run", "m", "--repeat", "0"], "--repeat"),
        (["run", "m", "--zeros", "--random", "1"], "exclude each other"),
        (["verify", "m"], "--reference"),
        (["juggle"], "juggle"),
    ],
)
def test_usage_errors(arguments, message):
    result = call(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


@pytest.mark.parametrize("command", [["run"], ["inspect"], ["convert", "out.onnx"], ["verify", "--reference", "."]])
def test_bad_file(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.mindir").write_bytes(b"\x80\x04K\x01.")
    assert "Python pickle" in failure(call(command[0], "m.mindir", *command[1:]))


def test_debug_shows_the_traceback():
    result = call("inspect", "absent.mindir", "--debug")
    assert result.exit_code == 1
    assert result.stderr.startswith("Traceback")
    assert "ModelFormatError" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("error: absent.mindir")


def test_missing_device_says_what_to_install():
    assert "onnxruntime-gpu" in failure(call("run", OPS / "act_relu.mindir", "--zeros", "--device", "gpu"))


def test_a_terminal_sees_colour_and_progress(monkeypatch):
    quiet = call("run", OPS / "act_relu.mindir", "--zeros", "--repeat", 2)
    assert quiet.stderr == ""
    assert "\x1b[" not in quiet.stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    shown = call("run", OPS / "act_relu.mindir", "--zeros", "--repeat", 2)
    assert shown.exit_code == 0
    for text in ("Reading act_relu.mindir", "Running"):
        assert text in shown.stderr
    assert "\x1b[1;31merror: \x1b[0m\x1b[31mabsent" in call("inspect", "absent").stderr
