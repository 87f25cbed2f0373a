"""Files of MindSpore Lite's converter, against what MindSpore Lite itself computed, on both engines.

Where its runtime departs from the operator's definition, and the file says what the source model meant, the definition
counts; docs/converted.md lists the cases.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import ENGINES, FIXTURES, TOLERANCE, ZOO, assert_close
from litehouse.formats.mindir.schema_pb2 import Model as ModelProto

CONVERTED = FIXTURES / "converted"
SAMPLES = ZOO / "mindir_converted"
INDEX: dict[str, dict[str, Any]] = json.loads((CONVERTED / "INDEX.json").read_text())
KEY = bytes.fromhex("30313233343637383939414243444546")
QUANTIZED = 1e-3

zoo = pytest.mark.skipif(not SAMPLES.exists(), reason="the model zoo is not beside the checkout")


def _stored(path: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Inputs and outputs of an archive."""
    with np.load(path) as arrays:
        kinds = [
            [arrays[f"{kind}{n}"] for n in range(sum(key.startswith(kind) for key in arrays))] for kind in ("in", "out")
        ]
    return kinds[0], kinds[1]


def _check(session: litehouse.Session, inputs: list[np.ndarray], wanted: list[np.ndarray], loose: float = 0.0) -> None:
    outputs = session.run(inputs)
    assert len(outputs) == len(wanted)
    for index, (actual, expected) in enumerate(zip(outputs, wanted, strict=True)):
        if not loose:
            assert_close(actual, expected, f"output {index}")
            continue
        assert actual.dtype == expected.dtype
        error = np.abs(actual.astype(np.float64) - expected).max()
        assert error <= loose * np.abs(expected).max(), f"output {index}: error {error:.3g}"


# Fixtures ------------------------------------------------------------------------------------------------------------

# Where an engine is at fault. Each must go on to differ, or its line here can go.
DIFFERENT: dict[tuple[str, str], str] = {}
MINDIRS = [name for name in INDEX if (CONVERTED / f"{name}.mindir").exists()]


@pytest.mark.parametrize("name", MINDIRS)
@pytest.mark.parametrize("engine", ENGINES)
def test_fixtures(name: str, engine: str) -> None:
    facts = INDEX[name]
    key = KEY if "encrypt" in facts.get("settings", {}) else None
    inputs, wanted = _stored(CONVERTED / f"{name}.npz")
    with litehouse.load(CONVERTED / f"{name}.mindir", key=key, engine=engine, threads=1) as session:
        given = [tuple(info.shape) for info in session.inputs]
        if facts.get("settings", {}).get("input_format") == "NHWC":
            inputs = [inputs[0].transpose(0, 2, 3, 1)]
        elif any(size is None or isinstance(size, str) for shape in given for size in shape):
            session.resize([array.shape for array in inputs])
        if (name, engine) in DIFFERENT:
            with pytest.raises(AssertionError):
                _check(session, inputs, wanted)
            return
        _check(session, inputs, wanted, facts.get("tolerance", 0.0))


@pytest.mark.parametrize("name", [name for name in MINDIRS if "inputs" in INDEX[name]["mindir"]])
def test_names_are_those_that_mindspore_lite_reports(name: str) -> None:
    reported = INDEX[name]["mindir"]
    model = litehouse.formats.read(CONVERTED / f"{name}.mindir")
    assert [info.name for info in model.inputs] == [entry["name"] for entry in reported["inputs"]]
    assert [info.name for info in model.outputs] == [entry["name"] for entry in reported["outputs"]]


def test_fixtures_are_many() -> None:
    ops = {name for name in MINDIRS if not name.startswith("net_")}
    assert len(ops) >= 150
    real = [name for name in ops if INDEX[name]["truth"] == "mindspore_lite"]
    assert len(real) >= 120


# Damage --------------------------------------------------------------------------------------------------------------


def _quantized() -> ModelProto:
    proto = ModelProto()
    proto.ParseFromString((CONVERTED / "net_cnn_weight_quant.mindir").read_bytes())
    return proto


def _refused(proto: ModelProto, words: str) -> None:
    with pytest.raises(litehouse.ModelFormatError, match=words):
        litehouse.formats.read(proto.SerializeToString())


def test_an_unknown_quantisation_is_refused() -> None:
    proto = _quantized()
    tensor = next(tensor for tensor in proto.graph.parameter if tensor.quant_params)
    tensor.quant_params[0].quant_algo_name = "log_quant"
    _refused(proto, "quantised by 'log_quant'")


def test_scales_that_do_not_fit_the_weight_are_refused() -> None:
    proto = _quantized()
    tensor = next(tensor for tensor in proto.graph.parameter if tensor.quant_params)
    for attribute in tensor.quant_params[0].attribute:
        if attribute.name == "scale_list":
            del attribute.values[-1]
    _refused(proto, "scales; the file is damaged")


def test_full_quantisation_is_refused() -> None:
    proto = _quantized()
    proto.primitives[0].attribute.add().name = "quant_param"
    _refused(proto, "between its ops are quantised")


def test_a_compressed_weight_is_refused() -> None:
    proto = _quantized()
    proto.graph.parameter[0].compression_type = 4
    _refused(proto, "is compressed")


# The zoo -------------------------------------------------------------------------------------------------------------


def _elu(path: Path) -> np.ndarray:
    (x,), _ = _stored(path)
    return np.where(x > 0, x, np.expm1(x))


def _lrn(path: Path) -> np.ndarray:
    (x,), _ = _stored(path)
    squares = np.pad(x * x, ((0, 0), (1, 1), (0, 0), (0, 0)))
    near = sum(squares[:, place : place + x.shape[1]] for place in range(3))
    return x / (1 + np.float32(0.001 / 3) * near) ** np.float32(0.75)


def _nearest(path: Path) -> np.ndarray:
    (x,), _ = _stored(path)
    rows, columns = (np.ceil((np.arange(2 * size) + 0.5) / 2 - 1).clip(0).astype(int) for size in x.shape[2:])
    return x[:, :, rows][:, :, :, columns]


def _other_file(path: Path) -> np.ndarray:
    return _stored(path.with_name(path.name.replace(".mindir", ".ms")))[1][0]


# Single ops where MindSpore Lite 2.0.0 departs from a definition that the file keeps: what is right instead.
DEFINED: dict[str, Callable[[Path], np.ndarray]] = {
    "un_elu": _elu,
    "lrn": _lrn,
    "resize_near_half": _nearest,
    "transpose5": _other_file,
}
OPS = sorted(path.stem for path in (SAMPLES / "ops").glob("*.mindir")) if SAMPLES.exists() else []
FOLDERS = sorted(path.parent.name for path in SAMPLES.glob("*/meta.json")) if SAMPLES.exists() else []
NETWORKS = [name for name in FOLDERS if (SAMPLES / name / f"{name}.mindir").exists()]


@zoo
@pytest.mark.zoo
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("engine", ENGINES)
def test_zoo_ops(name: str, engine: str) -> None:
    path = SAMPLES / "ops" / f"{name}.mindir"
    archive = path.with_name(f"{name}.mindir.npz")
    if not archive.exists():
        pytest.skip("MindSpore Lite cannot run it, so there are no numbers")
    inputs, wanted = _stored(archive)
    with litehouse.load(path, engine=engine, threads=1) as session:
        if name == "conv_elu":  # the same as un_elu, behind a convolution: what is not negative must agree
            (output,) = session.run(inputs)
            assert_close(np.maximum(output, 0), wanted[0])
            assert output.min() < 0
        else:
            _check(session, inputs, [DEFINED[name](archive)] if name in DEFINED else wanted)


@zoo
@pytest.mark.zoo
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("engine", ENGINES)
def test_zoo_networks(name: str, engine: str) -> None:
    folder = SAMPLES / name
    facts = json.loads((folder / "meta.json").read_text())["files"]["mindir"]
    inputs, wanted = ([np.load(folder / entry["file"]) for entry in facts[kind]] for kind in ("inputs", "outputs"))
    with litehouse.load(folder / f"{name}.mindir", engine=engine, threads=1) as session:
        _check(session, inputs, wanted)
        assert [info.name for info in session.inputs] == [entry["name"] for entry in facts["inputs"]]
        assert [info.name for info in session.outputs] == [entry["name"] for entry in facts["outputs"]]


@zoo
@pytest.mark.zoo
@pytest.mark.parametrize("name", ["none", "nhwc", "dynamic_quant", "weight_quant8", "dynamic_batch", "encrypted"])
@pytest.mark.parametrize("engine", ENGINES)
def test_zoo_variants(name: str, engine: str) -> None:
    folder = SAMPLES / "lenet_variants"
    image = np.load(folder / "input_nchw.npy")
    plain = folder / "lenet_none.mindir.out.npy"
    stored = folder / f"lenet_{name}.mindir.out.npy"
    wanted = np.load(stored if stored.exists() else plain)
    key = KEY if name == "encrypted" else None
    with litehouse.load(folder / f"lenet_{name}.mindir", key=key, engine=engine, threads=1) as session:
        if name == "nhwc":
            image = image.transpose(0, 2, 3, 1)
        if name == "dynamic_batch":
            image = np.load(folder / "dynamic_input_b3_nchw.npy")
            wanted = np.load(folder / "lenet_dynamic_batch.mindir.out_b3.npy")
            session.resize([image.shape])
        _check(session, [image], [wanted], QUANTIZED if "quant" in name else TOLERANCE[np.dtype(np.float32)])
