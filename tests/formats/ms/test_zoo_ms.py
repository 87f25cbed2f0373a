"""The `.ms` files of the model zoo, against what MindSpore Lite 2.0.0 computed with them."""

import json
from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import ZOO, assert_close

FOLDER = ZOO / "mindir_converted"
pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not FOLDER.exists(), reason="the model zoo is not beside the checkout"),
]

NETWORKS = sorted(path.parent.name for path in FOLDER.glob("*/*.ms") if path.stem == path.parent.name)
OPS = sorted(path.stem for path in (FOLDER / "ops").glob("*.ms"))
# MindSpore Lite 2.0.0 departs from the op's definition there, which Litehouse follows: a slope or exponent that the
# source left at its default counts as zero, and the nearest pixel is the one below. The `.mindir` file of the same
# network must agree; its own tests hold it against the definition.
DEPARTS = {"conv_elu", "un_elu", "lrn", "resize_near_half"}
KEY = bytes.fromhex("30313233343637383939414243444546")


def described(infos: tuple[litehouse.TensorInfo, ...]) -> list[tuple[str, str, list[Any]]]:
    return [(info.name, str(info.dtype), list(info.shape)) for info in infos]


@pytest.mark.parametrize("network", NETWORKS)
def test_networks(network: str, engine: str) -> None:
    folder = FOLDER / network
    facts = json.loads((folder / "meta.json").read_text())["files"]["ms"]
    session = litehouse.load(folder / f"{network}.ms", engine=engine, threads=1)
    assert described(session.inputs) == [(item["name"], item["dtype"], item["shape"]) for item in facts["inputs"]]
    assert [row[:2] for row in described(session.outputs)] == [(i["name"], i["dtype"]) for i in facts["outputs"]]
    results = session.run([np.load(folder / item["file"]) for item in facts["inputs"]])
    for result, item in zip(results, facts["outputs"], strict=True):
        assert_close(result, np.load(folder / item["file"]), item["name"])


@pytest.mark.parametrize("name", OPS)
def test_single_ops(name: str, engine: str) -> None:
    session = litehouse.load(FOLDER / "ops" / f"{name}.ms", engine=engine, threads=1)
    stored = np.load(FOLDER / "ops" / f"{name}.ms.npz")
    results = session.run([stored[f"in{index}"] for index in range(len(session.inputs))])
    assert len(results) == sum(key.startswith("out") for key in stored.files)
    for index, result in enumerate(results):
        if name not in DEPARTS:
            assert_close(result, stored[f"out{index}"], f"output {index}")
            continue
        with pytest.raises(AssertionError, match="error"):
            assert_close(result, stored[f"out{index}"])
        x = stored["in0"]
        twin = litehouse.load(FOLDER / "ops" / f"{name}.mindir", engine=engine, threads=1)
        assert_close(result, twin.run([x.transpose(0, 3, 1, 2) if x.ndim == 4 else x])[index])


# One network in many variants -----------------------------------------------------------------------------------------


def lenet(name: str, engine: str, source: str = "input_nchw.npy", **options: Any) -> np.ndarray:
    x = np.load(FOLDER / "lenet_variants" / source)
    x = x if "nchw" in name else np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    session = litehouse.load(FOLDER / "lenet_variants" / f"{name}.ms", engine=engine, threads=1, **options)
    (result,) = session.run([x])
    return result


def expected(name: str) -> np.ndarray:
    return np.load(FOLDER / "lenet_variants" / name)


@pytest.mark.parametrize("name", ["lenet_none", "lenet_nchw", "lenet_fp16", "lenet_dynamic_quant"])
def test_variants(name: str, engine: str) -> None:
    assert_close(lenet(name, engine), expected(f"{name}.ms.out.npy"))


@pytest.mark.parametrize(("name", "tolerance"), [("lenet_weight_quant8", 2e-3), ("lenet_weight_quant4", 3e-2)])
def test_quantised_weights(name: str, tolerance: float, engine: str) -> None:
    """MindSpore Lite 2.0.0 cannot build these; the plain network is what they stand for, as far as their bits go."""
    plain = expected("lenet_none.ms.out.npy")
    difference = np.abs(lenet(name, engine) - plain).max()
    assert 0 < difference < tolerance * np.abs(plain).max()


def test_dynamic_batch(engine: str) -> None:
    name = "lenet_dynamic_batch"
    assert_close(lenet(name, engine, "dynamic_input_b3_nchw.npy"), expected(f"{name}.ms.out_b3.npy"))
    session = litehouse.load(FOLDER / "lenet_variants" / f"{name}.ms", engine=engine, threads=1)
    assert session.inputs[0].shape[1:] == (28, 28, 1)
    session.resize([(5, 28, 28, 1)])
    assert session.outputs[0].shape == (5, 10)


def test_encrypted(engine: str) -> None:
    path = FOLDER / "lenet_variants" / "lenet_encrypted.ms"
    (result,) = litehouse.load(path, key=KEY, engine=engine).run([np.load(FOLDER / "lenet" / "ms_input0.npy")])
    assert_close(result, np.load(FOLDER / "lenet" / "ms_output0.npy"))


def test_the_facade() -> None:
    """As MindSpore Lite 2.0.0 itself: the kind must be named right, and inputs are called NCHW whatever they are."""
    import mindspore_lite as mslite

    path = str(FOLDER / "lenet" / "lenet.ms")
    model = mslite.Model()
    model.build_from_file(path, mslite.ModelType.MINDIR_LITE)
    (taken,) = model.get_inputs()
    assert (taken.name, taken.shape, taken.dtype) == ("x", [1, 28, 28, 1], mslite.DataType.FLOAT32)
    assert taken.format == mslite.Format.NCHW
    taken.set_data_from_numpy(np.load(FOLDER / "lenet" / "ms_input0.npy"))
    (given,) = model.predict([taken])
    assert given.name == "y"
    assert_close(given.get_data_to_numpy(), np.load(FOLDER / "lenet" / "ms_output0.npy"))
    for wrong, kind in ((path, mslite.ModelType.MINDIR), (path[:-3] + ".mindir", mslite.ModelType.MINDIR_LITE)):
        with pytest.raises(RuntimeError, match="build_from_file failed! Error is"):
            mslite.Model().build_from_file(wrong, kind)
