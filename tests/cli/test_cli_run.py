"""`litehouse run`."""

import numpy as np
import onnx
import pytest
from cli.support import OPS, call, failure, lines, save, write

import onnx_models

ADD = OPS / "binary_add.mindir"


@pytest.fixture
def stored():
    with np.load(OPS / "binary_add.npz") as arrays:
        return dict(arrays)


@pytest.fixture
def files(tmp_path, stored):
    return [save(tmp_path / f"{name}.npy", stored[name]) for name in ("input_0", "input_1")]


@pytest.fixture
def mlp(tmp_path):
    return write(tmp_path / "mlp.onnx", onnx_models.mlp())


@pytest.mark.parametrize("engine", ["auto", "onnxruntime", "openvino"])
def test_table_of_outputs(files, stored, engine):
    head, row, last = lines(call("run", ADD, "--input", files[0], "--input", files[1], "--engine", engine))
    assert head == ["output", "dtype", "shape", "min", "max", "mean", "first", "values"]
    expected = stored["output_0"]
    assert row[:5] == ["Default/Add-op0", "float32", "[2,", "3,", "5]"]
    numbers = [float(word) for word in row[5:13]]
    np.testing.assert_allclose(numbers[:3], [expected.min(), expected.max(), expected.mean()], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(numbers[3:], expected.reshape(-1)[:5], rtol=1e-4)
    assert row[-1] == "…"
    used = "onnxruntime" if engine == "auto" else engine
    assert last == ["engine:", used, "device:", "cpu", "precision:", "fp32"]


def test_inputs_by_name_in_any_order(tmp_path, files, stored):
    folder = tmp_path / "out"
    call("run", ADD, "--input", f"y={files[1]}", "--input", f"x={files[0]}", "--output", folder)
    np.testing.assert_allclose(np.load(folder / "output_0.npy"), stored["output_0"], rtol=1e-5)


@pytest.mark.parametrize("names", [("x", "y"), ("input_0", "input_1")])
def test_inputs_from_npz(tmp_path, stored, names):
    np.savez(tmp_path / "all.npz", **dict(zip(names, (stored["input_0"], stored["input_1"]), strict=True)))
    folder = tmp_path / "new" / "out"
    result = call("run", ADD, "--input", tmp_path / "all.npz", "--output", folder)
    assert f"wrote {folder / 'output_0.npy'}" in result.stdout
    np.testing.assert_allclose(np.load(folder / "output_0.npy"), stored["output_0"], rtol=1e-5)


def test_one_array_npz_by_name(tmp_path, files, stored):
    np.savez(tmp_path / "one.npz", stored["input_1"])
    result = call("run", ADD, "--input", files[0], "--input", f"y={tmp_path / 'one.npz'}")
    assert result.exit_code == 0, result.stderr


def test_reference_npz_as_input():
    assert call("run", ADD, "--input", OPS / "binary_add.npz").exit_code == 0


def test_bare_values(tmp_path, mlp):
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    x.tofile(tmp_path / "x.bin")
    assert call("run", mlp, "--input", tmp_path / "x.bin", "--output", tmp_path).exit_code == 0
    np.testing.assert_allclose(np.load(tmp_path / "output_0.npy"), onnx_models.mlp_result(x), rtol=1e-4)
    x[:1].tofile(tmp_path / "x.bin")
    message = failure(call("run", mlp, "--input", tmp_path / "x.bin"))
    assert "x.bin: 16 bytes, 32 expected: input 'x' is float32 [2, 4]" in message
    assert "cannot read the file" in failure(call("run", mlp, "--input", tmp_path / "absent.bin"))


def test_missing_inputs_are_listed(files):
    message = failure(call("run", ADD, "--input", files[0]))
    assert message.splitlines() == [
        "error: 1 of 2 inputs not given",
        "the model takes:",
        "  x  float32  [2, 3, 5]",
        "  y  float32  [3, 1]",
        "give each with --input FILE.npy or --input NAME=FILE.npy, or fill them with --zeros or --random SEED",
    ]


def test_zeros_and_random(tmp_path, mlp):
    for folder, *fill in (("a", "--random", 7), ("b", "--random", 7), ("c", "--random", 8), ("d", "--zeros")):
        assert call("run", mlp, *fill, "--output", tmp_path / folder).exit_code == 0
    a, b, c, d = (np.load(tmp_path / folder / "output_0.npy") for folder in "abcd")
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)
    assert not d.any()


def test_random_fills_every_dtype_and_dynamic_sizes(tmp_path):
    graph = [onnx_models.node("Cast", "x", "y", to=onnx.TensorProto.INT32)]
    for dtype in (onnx.TensorProto.BOOL, onnx.TensorProto.INT64, onnx.TensorProto.FLOAT16):
        data = onnx.load_from_string(onnx_models.model(graph, {"x": ["batch", 3]}, {"y": ["batch", 3]}, dtype=dtype))
        data.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
        result = call("run", write(tmp_path / "cast.onnx", data.SerializeToString()), "--random", 1)
        assert lines(result)[1][:4] == ["y", "int32", "[1,", "3]"]
        assert "note: input 'x' is filled as [1, 3]: the dynamic dimensions of [batch, 3] become 1" in result.stderr


def test_repeat_prints_times(mlp):
    shown = lines(call("run", mlp, "--zeros", "--repeat", 3, "--threads", 1))
    assert shown[-2] == ["runs", "median", "mean", "least", "90", "%", "most", "runs/s"]
    assert shown[-1][0] == "3"
    assert shown[-1][2] in ("s", "ms", "µs")


def test_resize(tmp_path, mlp):
    x = np.ones((5, 4), np.float32)
    given = ["--input", save(tmp_path / "x.npy", x)]
    message = failure(call("run", mlp, *given))
    assert "must have the shape [2, 4], not [5, 4]" in message
    assert message.splitlines()[-1] == "hint: give the inputs the shapes of the arrays with --resize"
    assert call("run", mlp, *given, "--resize", "--output", tmp_path).exit_code == 0
    np.testing.assert_allclose(np.load(tmp_path / "output_0.npy"), onnx_models.mlp_result(x), rtol=1e-4)


def test_outputs_are_not_overwritten(tmp_path, mlp):
    precious = save(tmp_path / "output_0.npy", np.zeros(1))
    assert "--force" in failure(call("run", mlp, "--zeros", "--output", tmp_path))
    assert np.load(precious).shape == (1,)
    assert call("run", mlp, "--zeros", "--output", tmp_path, "--force").exit_code == 0
    assert np.load(precious).shape == (2, 3)


def test_output_that_is_a_file(tmp_path, mlp):
    precious = write(tmp_path / "out", b"precious")
    for folder in (precious, precious / "inner"):
        message = failure(call("run", mlp, "--zeros", "--force", "--output", folder))
        assert f"{precious}: this is a file; --output names the folder" in message
    assert precious.read_bytes() == b"precious"


def test_values_that_are_not_finite(tmp_path):
    data = onnx_models.model([onnx_models.node("Log", "x", "y")], {"x": [4]}, {"y": [4]})
    x = save(tmp_path / "x.npy", np.array([1, 1, 0, -1], np.float32))
    row = lines(call("run", write(tmp_path / "log.onnx", data), "--input", x))[1]
    assert row == ["y", "float32", "[4]", "0", "0", "0", "(2", "not", "finite)", "0", "0", "-inf", "nan"]


def test_empty_output(tmp_path):
    data = onnx_models.model([onnx_models.node("Identity", "x", "y")], {"x": [0, 3]}, {"y": [0, 3]})
    row = lines(call("run", write(tmp_path / "empty.onnx", data), "--zeros", "--engine", "onnxruntime"))[1]
    assert row == ["y", "float32", "[0,", "3]", "-", "-", "-"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["z=x.npy"], "there is no input 'z'"),
        (["absent.npy"], "absent.npy: cannot read the file (No such file or directory)"),
        (["x.npy", "x.npy"], "more inputs than the model takes"),
        (["x=x.npy", "x=x.npy"], "input 'x' is given twice"),
        (["text.npy"], "text.npy: not a readable .npy or .npz file"),
        (["pickle.npy"], "pickle.npy: not a readable .npy or .npz file"),
        (["two.npz"], "two.npz: the array 'a' is no input"),
        (["extra.npz"], "extra.npz: the array 'label' is no input"),
        (["many.npz"], "many.npz: the array 'input_1' is no input"),
        (["outputs.npz"], "outputs.npz: holds no input"),
        (["x=two.npz"], "two.npz: holds 2 arrays"),
        (["double.npy"], "input 'x' must be float32, not float64"),
    ],
)
def test_bad_inputs(tmp_path, monkeypatch, mlp, given, message):
    monkeypatch.chdir(tmp_path)
    x = save(tmp_path / "x.npy", np.zeros((2, 4), np.float32))
    save(tmp_path / "double.npy", np.zeros((2, 4)))
    write(tmp_path / "text.npy", b"1 2 3")
    np.save(tmp_path / "pickle.npy", np.array([{}]), allow_pickle=True)
    np.savez(tmp_path / "two.npz", a=np.load(x), b=np.load(x))
    np.savez(tmp_path / "extra.npz", x=np.load(x), label=np.load(x))
    np.savez(tmp_path / "many.npz", input_0=np.load(x), input_1=np.load(x))
    np.savez(tmp_path / "outputs.npz", output_0=np.load(x))
    arguments = [word for text in given for word in ("--input", text)]
    assert message in failure(call("run", mlp, *arguments))


def test_a_gpu(monkeypatch, mlp):
    pytest.importorskip("torch")
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    found = call("run", mlp, "--zeros", "--device", "gpu:0", "--precision", "fp16", "--build-seconds", 0)
    assert ["engine:", "torch", "device:", "gpu:0", "precision:", "fp16"] in lines(found)
    assert call("run", mlp, "--zeros", "--build-seconds", -1).exit_code == 2
    assert "'cuda' is for the device 'gpu'" in call("run", mlp, "--zeros", "--provider", "cuda").stderr
    missing = failure(call("run", mlp, "--zeros", "--device", "gpu", "--provider", "tensorrt"))
    assert "install onnxruntime-gpu in its place, and TensorRT beside it" in missing
