"""Tables on terminals of several widths."""

import re

import numpy as np
import pytest
from cli.support import NETWORKS, call, store, write

import onnx_models
from litehouse.cli.fitted import shorten_end, shorten_start

NAME = "Default/network-Loss/network-Digits/Softmax-op0"


@pytest.fixture
def model(tmp_path):
    nodes = [onnx_models.node("Mul", "x k", NAME)]
    shape = [2, 3, 128, 128]
    data = onnx_models.model(nodes, {"x": shape}, {NAME: shape}, {"k": np.array([-1.23456e-5], np.float32)})
    return write(tmp_path / "long.onnx", data)


@pytest.fixture
def terminal(monkeypatch):
    """Calls a command on a terminal of some width, and gives its lines without colours."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")

    def calls(width, *arguments):
        monkeypatch.setenv("COLUMNS", str(width))
        result = call(*arguments)
        assert result.exit_code == 0, result.output
        return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", result.stdout).splitlines()

    return calls


@pytest.mark.parametrize("width", [80, 100, 130, 300])
def test_run(terminal, model, width):
    head, row, engine = terminal(width, "run", model, "--random", 1)
    assert engine.startswith("engine: ")
    assert max(len(head), len(row)) <= width
    name, *words = row.split()
    assert name == NAME if width == 300 else NAME.endswith(name.removeprefix("…"))
    assert "[2, 3, 128, 128]" in row
    numbers = [word for word in words if re.fullmatch(r"-?\d\.\d+(e-\d\d)?", word)]
    assert len(numbers) >= 3
    assert ("float32" in row) == (width > 80)
    assert len(numbers) == 8 or width < 300


@pytest.mark.parametrize("width", [80, 100])
def test_verify(terminal, tmp_path, model, width):
    x = np.linspace(-1, 1, 2 * 3 * 128 * 128, dtype=np.float32).reshape(2, 3, 128, 128)
    reference = store(tmp_path / "reference", [x], [x * np.float32(-1.23456e-5) * np.float32(1 + 1e-6)])
    head, row, _ = terminal(width, "verify", model, "--reference", reference)
    assert max(len(head), len(row)) <= width
    assert row.startswith("…")
    assert row.rstrip().endswith("OK")
    assert "2.46912e-05" in row


def test_stored_networks_on_80_columns(terminal):
    for path in (NETWORKS / f"{name}.mindir" for name in ("bert", "gpt", "many_outputs", "resnet")):
        reference = path.with_suffix(".npz")
        for line in terminal(80, "verify", path, "--reference", reference):
            assert len(line) <= 80


def test_a_pipe_gets_everything(model):
    row = call("run", model, "--random", 1).stdout.splitlines()[1]
    assert row.startswith(f"{NAME}  float32  [2, 3, 128, 128]")
    assert len(row.split()) == 1 + 1 + 4 + 3 + 6


def test_shortened_texts():
    assert shorten_start("abcdef", 6) == "abcdef"
    assert shorten_start("abcdef", 5) == "…cdef"
    assert shorten_end("1 2 3", 5) == "1 2 3"
    assert shorten_end("1.5 2.5 3.5 …", 9) == "1.5 2.5 …"
    assert shorten_end("1.5 2.5 3.5 …", 3) == "…"
