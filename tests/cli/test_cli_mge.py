"""The commands on MegEngine files."""

import json

import numpy as np
import onnxruntime
import pytest
from cli.support import call, failure

from conftest import FIXTURES, REPOSITORY, assert_close

CONTAINERS = FIXTURES / "mge" / "containers"
DIGITS = REPOSITORY / "examples" / "megengine_digits" / "digits.mge"


@pytest.mark.parametrize("name", ["names", "names_v1", "many_inputs"])
def test_verify(engine, name):
    result = call("verify", CONTAINERS / f"{name}.mge", "--reference", CONTAINERS / f"{name}.npz", "--engine", engine)
    assert result.exit_code == 0, result.stdout


def test_verify_sees_a_difference(tmp_path):
    with np.load(CONTAINERS / "names.npz") as stored:
        arrays = dict(stored)
    arrays["out_1"] = arrays["out_1"] + 1
    np.savez(tmp_path / "other.npz", **arrays)
    assert call("verify", CONTAINERS / "names.mge", "--reference", tmp_path / "other.npz").exit_code == 1


def test_verify_takes_files_by_the_names_of_the_inputs(tmp_path):
    with np.load(CONTAINERS / "names.npz") as stored:
        for name in ("data", "info", "scale"):
            np.save(tmp_path / f"{name}.npy", stored[f"in_{name}"])
        for place in (0, 1):
            np.save(tmp_path / f"out_{place}.npy", stored[f"out_{place}"])
    assert call("verify", CONTAINERS / "names.mge", "--reference", tmp_path).exit_code == 0
    (tmp_path / "scale.npy").unlink()
    assert "holds 0 inputs" in failure(call("verify", CONTAINERS / "names.mge", "--reference", tmp_path))


def test_inspect():
    report = json.loads(call("inspect", DIGITS, "--json").stdout)
    assert (report["format"], report["supported"]) == ("mge", True)
    assert report["inputs"] == [{"name": "data", "dtype": "float32", "shape": [1, 3, 224, 224]}]
    assert report["outputs"] == [{"name": "probabilities", "dtype": "float32", "shape": [1, 10]}]
    assert report["source_ops"]["Convolution"] == 3
    assert report["metadata"] == {"container": "v2", "mge_version": "1.13.0"}


def test_inspect_what_is_not_supported(tmp_path):
    path = tmp_path / "strange.mge"
    path.write_bytes(DIGITS.read_bytes().replace(b"MatrixMulV2", b"MatrixFanV2"))
    result = call("inspect", path, "--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [item["op"] for item in report["unsupported"]] == ["MatrixFan"]
    assert report["inputs"] == [{"name": "data", "dtype": "float32", "shape": [1, 3, 224, 224]}]
    assert report["weights"]["count"] > 3


def test_inspect_packed_and_encrypted():
    packed = FIXTURES / "mge_packed" / "packed_rc4.lite"
    report = json.loads(call("inspect", packed, "--json").stdout)
    assert report["metadata"]["container"] == "packed, v2"
    assert "version" in json.loads(report["metadata"]["info"])
    bare = FIXTURES / "mge_packed" / "bare_rc4.mge"
    assert call("inspect", bare, "--mode", "RC4_default").exit_code == 0
    assert "neither MindIR" in failure(call("inspect", bare))


def test_convert(tmp_path):
    target = tmp_path / "names.onnx"
    assert call("convert", CONTAINERS / "names.mge", target).exit_code == 0
    session = onnxruntime.InferenceSession(target)
    with np.load(CONTAINERS / "names.npz") as stored:
        results = session.run(None, {info.name: stored[f"in_{info.name}"] for info in session.get_inputs()})
        for place, result in enumerate(results):
            assert_close(result, stored[f"out_{place}"])


def test_run(tmp_path):
    assert call("run", DIGITS, "--random", "1", "--output", tmp_path).exit_code == 0
    assert np.load(tmp_path / "output_0.npy").sum() == pytest.approx(1, abs=1e-5)


def test_verify_takes_scalars_for_rows_of_one(tmp_path):
    """MegEngine's files have no scalars, but its tensors in Python do."""
    case = FIXTURES / "mge" / "reduction" / "sum_all"
    with np.load(f"{case}.npz") as stored:
        arrays = {name: stored[name].reshape(()) if name.startswith("out_0") else stored[name] for name in stored}
    np.savez(tmp_path / "scalar.npz", **arrays)
    assert call("verify", f"{case}.mge", "--reference", tmp_path / "scalar.npz").exit_code == 0
