"""`litehouse verify`, without --per-op."""

import numpy as np
import pytest
from cli.support import OPS, call, failure, lines, save, store, write

import onnx_models
from conftest import FIXTURES


@pytest.fixture
def mlp(tmp_path):
    return write(tmp_path / "mlp.onnx", onnx_models.mlp())


@pytest.fixture
def reference(tmp_path):
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 4)
    return store(tmp_path / "reference", [x], [onnx_models.mlp_result(x)])


@pytest.mark.parametrize("name", ["act_relu", "dense", "binary_add", "conv2d_pad", "arg_argmax_float16"])
def test_stored_outputs_of_mindspore(engine, name):
    shown = lines(call("verify", OPS / f"{name}.mindir", "--reference", OPS / f"{name}.npz", "--engine", engine))
    assert shown[0] == ["output", "dtype", "shape", "range", "max", "error", "of", "range", "at"]
    assert "OK" in shown[1]
    assert shown[-1] == ["engine:", engine, "device:", "cpu", "precision:", "fp32"]


def test_folder_and_folder_with_npz(tmp_path, mlp, reference):
    assert call("verify", mlp, "--reference", reference).exit_code == 0
    save(reference / "output_second_call_0.npy", np.zeros(1))
    assert call("verify", mlp, "--reference", reference).exit_code == 0
    (tmp_path / "packed").mkdir()
    arrays = {path.stem: np.load(path) for path in reference.glob("*_0.npy")}
    np.savez(tmp_path / "packed" / "all.npz", **arrays)
    assert call("verify", mlp, "--reference", tmp_path / "packed").exit_code == 0


def test_mismatch(mlp, reference):
    path = reference / "output_0.npy"
    expected = np.load(path)
    expected[1, 2] += 1e-2 * np.ptp(expected)
    save(path, expected)
    result = call("verify", mlp, "--reference", reference)
    assert result.exit_code == 1
    assert result.stderr == ""
    row = result.stdout.splitlines()[1].split()
    assert row[-3:] == ["[1,", "2]", "FAIL"]
    assert 1e-3 < float(row[-4]) < 2e-2
    assert call("verify", mlp, "--reference", reference, "--tolerance", "0.02").exit_code == 0
    assert call("verify", mlp, "--reference", reference, "--atol", "1e-9").exit_code == 1
    assert call("verify", mlp, "--reference", reference, "--rtol", "10").exit_code == 0


def test_16_bits_need_a_tolerance_that_is_told(mlp, reference, rehearsed_gpu, monkeypatch):
    monkeypatch.setenv("LITEHOUSE_TUNE", "off")
    words = ("verify", mlp, "--reference", reference, "--device", "gpu", "--precision")
    result = call(*words, "fp16")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == "fp16 rounds more than that: --tolerance 0.02 lets it"
    assert call(*words, "fp16", "--tolerance", "0.02").exit_code == 0
    assert "--tolerance" not in call(*words, "fp16", "--tolerance", "1e-9").stdout
    assert call(*words, "fp32").exit_code == 0


def test_why_16_bits_are_not_used_is_told(rehearsed_gpu, monkeypatch):
    monkeypatch.setenv("LITEHOUSE_TUNE", "fast")
    stored = FIXTURES / "mindir" / "networks" / "dynamic_batch"
    words = ("verify", f"{stored}.mindir", "--reference", f"{stored}.npz", "--device", "gpu", "--precision")
    shown = call(*words, "fp16").stdout.splitlines()[-2:]
    assert shown[0] == "engine: torch  device: gpu  precision: fp32"
    assert shown[1] == "reason: its sizes are only known when it runs, so nothing was timed"
    assert "reason:" not in call(*words, "fp32").stdout


def test_wrong_shape_fails_with_a_note(mlp, reference):
    save(reference / "output_0.npy", np.zeros((3, 2), np.float32))
    result = call("verify", mlp, "--reference", reference)
    assert result.exit_code == 1
    assert "FAIL" in result.stdout
    assert "y: the shape is [2, 3], not [3, 2]" in result.stdout


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "no input_0.npy, … and output_0.npy, … there"),
        (["input_0"], "no stored output; the first must be named output_0"),
        (["output_0"], "holds 0 inputs"),
        (["input_0", "output_1"], "output_0 is missing, but output_1 is there"),
        (["input_0", "output_0", "output_1"], "holds 2 outputs, but the model returns 1"),
    ],
)
def test_incomplete_references(tmp_path, mlp, files, message):
    folder = tmp_path / "incomplete"
    folder.mkdir()
    for name in files:
        save(folder / f"{name}.npy", np.zeros((2, 4), np.float32))
    assert message in failure(call("verify", mlp, "--reference", folder))


def test_absent_reference(mlp):
    assert "absent: cannot read the file" in failure(call("verify", mlp, "--reference", "absent"))


def test_wrong_inputs(mlp, reference):
    save(reference / "input_0.npy", np.zeros((2, 5), np.float32))
    assert "must have the shape [2, 4], not [2, 5]" in failure(call("verify", mlp, "--reference", reference))


def test_resize(tmp_path, mlp, engine):
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    reference = store(tmp_path / "larger", [x], [onnx_models.mlp_result(x)])
    arguments = ["verify", mlp, "--reference", reference, "--engine", engine, "--per-op"]
    assert "hint: give the inputs the shapes of the arrays with --resize" in failure(call(*arguments))
    shown = lines(call(*arguments, "--resize"))
    assert "OK" in shown[1]
    assert shown[-1][1:5] == ["agrees", "with", "unoptimised", "ONNX"]
