"""`litehouse convert`."""

import numpy as np
import onnx
import onnxruntime
import pytest
from cli.support import MINDIR, call, failure, write

import onnx_models
from conftest import assert_close
from litehouse.cli import convert

MODELS = [
    "ops/act_relu",
    "ops/conv2d_dynamic_batch",
    "ops/dense_float16",
    "ops/lstm_batch_first",
    "ops/resize_area_primitive",
    "ops/device_view_chunk_written",
    "networks/bert_dynamic",
    "networks/gpt",
    "networks/many_outputs",
    "networks/negative_pool",
    "networks/resnet",
]


@pytest.fixture
def mlp(tmp_path):
    return write(tmp_path / "mlp.onnx", onnx_models.mlp())


def plain_run(path, arrays):
    """What ONNX Runtime makes of a file, without any of Litehouse."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {value.name: array for value, array in zip(session.get_inputs(), arrays, strict=True)})


def stored(name):
    with np.load(MINDIR / f"{name}.npz") as arrays:
        return [[arrays[key] for key in sorted(arrays) if key.startswith(kind)] for kind in ("input", "output")]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("external", [False, True])
def test_plain_onnxruntime_gives_the_same_numbers(tmp_path, name, external):
    target = tmp_path / "out.onnx"
    result = call("convert", MINDIR / f"{name}.mindir", target, *(["--external-data"] if external else []))
    assert result.exit_code == 0, result.stderr
    assert f"wrote {target} (" in result.stdout
    onnx.checker.check_model(target, full_check=True)
    inputs, outputs = stored(name)
    for actual, expected in zip(plain_run(target, inputs), outputs, strict=True):
        assert_close(actual, expected)


def test_pad_before_max_pool_stays_right(tmp_path):
    nodes = [
        onnx_models.node("Pad", "x pads", "p"),
        onnx_models.node("MaxPool", "p", "y", kernel_shape=[2, 2], strides=[2, 2]),
    ]
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    data = onnx_models.model(nodes, {"x": [1, 1, 2, 2]}, {"y": [1, 1, 2, 2]}, {"pads": pads})
    assert call("convert", write(tmp_path / "pool.onnx", data), tmp_path / "out.onnx").exit_code == 0
    (result,) = plain_run(tmp_path / "out.onnx", [-np.ones((1, 1, 2, 2), np.float32)])
    assert not result.any()


def test_large_weights_go_beside(tmp_path, mlp, monkeypatch):
    monkeypatch.setattr(convert, "INLINE_BYTES", 8000)
    result = call("convert", mlp, tmp_path / "out.onnx")
    assert f"wrote {tmp_path / 'out.onnx.data'} (" in result.stdout
    (tmp_path / "moved").mkdir()
    for name in ("out.onnx", "out.onnx.data"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    x = np.ones((2, 4), np.float32)
    (result,) = plain_run(tmp_path / "moved" / "out.onnx", [x])
    assert_close(result, onnx_models.mlp_result(x))


def test_existing_files_are_kept(tmp_path, mlp):
    target = write(tmp_path / "out.onnx", b"precious")
    assert "the file exists; choose another name, or overwrite it with --force" in failure(call("convert", mlp, target))
    assert target.read_bytes() == b"precious"
    assert call("convert", mlp, target, "--force").exit_code == 0
    assert onnx.load(target).graph.node
    data = write(tmp_path / "new.onnx.data", b"precious")
    assert "new.onnx.data: the file exists" in failure(call("convert", mlp, tmp_path / "new.onnx", "--external-data"))
    assert data.read_bytes() == b"precious"
    assert not (tmp_path / "new.onnx").exists()


def test_the_model_itself_is_never_overwritten(tmp_path, mlp):
    before = mlp.read_bytes()
    assert "this is the model itself" in failure(call("convert", mlp, mlp, "--force"))
    assert mlp.read_bytes() == before


def test_nothing_is_left_behind_on_failure(tmp_path, mlp, monkeypatch):
    import onnx_ir

    def full(model, path, **_):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    target = write(tmp_path / "out.onnx", b"precious")
    monkeypatch.setattr(onnx_ir, "save", full)
    assert "No space left on device" in failure(call("convert", mlp, target, "--force"))
    assert target.read_bytes() == b"precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mlp.onnx", "out.onnx"]


def test_bad_targets(tmp_path, mlp):
    for name in ("out.mindir", "out", "onnx"):
        assert f"{name}: the name must end in .onnx" in failure(call("convert", mlp, tmp_path / name))
        assert not (tmp_path / name).exists()
    assert "this is not a file" in failure(call("convert", mlp, tmp_path))
    assert "cannot write the file" in failure(call("convert", mlp, tmp_path / "absent" / "out.onnx"))
