"""The commands on `.ms` files."""

import json
from pathlib import Path

import numpy as np
from cli.support import call
from formats.builders import EXPECTED, X
from formats.ms.ms_builder import NODES, ms, node

import litehouse


def write(folder: Path, content: bytes) -> Path:
    path = folder / "m.ms"
    path.write_bytes(content)
    return path


def test_inspect(tmp_path: Path) -> None:
    result = call("inspect", write(tmp_path, ms()), "--json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["format"] == "ms"
    assert report["source_ops"] == {"AddFusion": 1, "Activation": 1}
    assert report["inputs"] == [{"name": "x", "dtype": "float32", "shape": [2, 3]}]
    assert report["weights"]["bytes"] == 12


def test_inspect_what_is_not_supported(tmp_path: Path) -> None:
    path = write(tmp_path, ms(lambda root: root[NODES].append(node(134, (3,), (3,)))))
    result = call("inspect", path, "--json")
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["unsupported"] == [{"op": "SkipGram", "count": 1, "nodes": ["node3"]}]
    assert report["source_ops"] == {"AddFusion": 1, "Activation": 1, "SkipGram": 1}
    assert [item["name"] for item in report["inputs"]] == ["x"]
    assert [item["name"] for item in report["outputs"]] == ["r"]
    assert report["metadata"]["producer"] == "MindSpore Lite"
    assert report["weights"]["count"] == 1


def test_convert_run_and_verify(tmp_path: Path) -> None:
    path = write(tmp_path, ms())
    np.savez(tmp_path / "io.npz", input_0=X, output_0=EXPECTED)
    np.save(tmp_path / "x.npy", X)
    assert call("convert", path, tmp_path / "m.onnx").exit_code == 0
    (result,) = litehouse.load(tmp_path / "m.onnx", engine="onnxruntime").run([X])
    np.testing.assert_array_equal(result, EXPECTED)
    ran = call("run", path, "--input", tmp_path / "x.npy", "--output", tmp_path / "out", "--engine", "onnxruntime")
    assert ran.exit_code == 0, ran.output
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "output_0.npy"), EXPECTED)
    for flags in ((), ("--per-op",)):
        verified = call("verify", path, "--reference", tmp_path / "io.npz", "--engine", "onnxruntime", *flags)
        assert verified.exit_code == 0, verified.output
    np.savez(tmp_path / "io.npz", input_0=X, output_0=EXPECTED + 1)
    assert call("verify", path, "--reference", tmp_path / "io.npz").exit_code == 1
