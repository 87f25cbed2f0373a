"""Files that MindSpore Lite's converter made: control flow, quantised weights, and single ops."""

import json
from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close

OWN = FIXTURES / "ms"
FLOW = ("if", "early_return", "nested_if", "while", "if_in_while")
# The step of 4, 6 and 8 bits, as part of a weight's range, and some room for sums of such errors.
STEPS = {4: 0.15, 6: 0.04, 8: 0.01}


@pytest.mark.parametrize("name", FLOW)
def test_control_flow(name: str, engine: str) -> None:
    stored = np.load(OWN / f"{name}.npz")
    session = litehouse.load(OWN / f"{name}.ms", engine=engine, threads=1)
    calls = sum(key.startswith("output_") for key in stored.files)
    assert calls >= 3
    for call in range(calls):
        arrays = {stored[key].ndim: stored[key] for key in stored.files if key.startswith(f"input_{call}_")}
        # The converter orders inputs in its own way; these differ in rank.
        (result,) = session.run([arrays[len(info.shape)] for info in session.inputs])
        assert_close(result, stored[f"output_{call}_0"], f"call {call}")


@pytest.mark.parametrize("name", ["conv", "deconv", "matmul", "gemm"])
@pytest.mark.parametrize("bits", STEPS)
def test_quantised_weights(name: str, bits: int, engine: str) -> None:
    """MindSpore Lite 2.0.0 cannot run what it makes here; the numbers before quantisation are what they stand for."""
    stored = np.load(OWN / f"quant_{name}.npz")
    session = litehouse.load(OWN / f"quant_{name}_{bits}.ms", engine=engine, threads=1)
    (result,) = session.run([stored["input"]])
    assert result.shape == stored["output"].shape
    error = np.abs(result - stored["output"]).max() / np.abs(stored["output"]).max()
    assert 0 < error < STEPS[bits]


# Single ops and small networks, of which there is a `.mindir` file too ------------------------------------------------

CONVERTED = FIXTURES / "converted"
INDEX: dict[str, Any] = json.loads((CONVERTED / "INDEX.json").read_text())
CASES = [name for name in INDEX if (CONVERTED / f"{name}.ms").exists()]
KEY = bytes.fromhex("30313233343637383939414243444546")
# What these files lost on the way: a field that is zero is not written, and `Clip` mixes up its limits.
LOST = {"topk_smallest", "clip_high"}
# Ops that the format has no number for: the converter leaves them out, and of these networks nothing is left.
EMPTY = {"asin", "atan", "tan"}


@pytest.mark.parametrize("name", [name for name in CASES if name not in LOST | EMPTY])
def test_converted(name: str, engine: str) -> None:
    facts = INDEX[name]
    key = KEY if "encrypt" in facts.get("settings", {}) else None
    session = litehouse.load(CONVERTED / f"{name}.ms", key=key, engine=engine, threads=1)
    stored = np.load(CONVERTED / f"{name}.npz")
    inputs = [in_layout(stored[f"in{place}"], info.shape) for place, info in enumerate(session.inputs)]
    if not all(info.is_static for info in session.inputs):
        session.resize([array.shape for array in inputs])
    results = session.run(inputs)
    assert len(results) == sum(key.startswith("out") for key in stored.files)
    for place, result in enumerate(results):
        expected = stored[f"out{place}"]
        if "tolerance" not in facts:
            assert_close(result, expected, f"output {place}")
            continue
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        assert np.abs(result - expected).max() <= facts["tolerance"] * np.abs(expected).max()


@pytest.mark.parametrize("name", sorted(EMPTY & set(CASES)))
def test_networks_of_which_nothing_is_left(name: str) -> None:
    with pytest.raises(litehouse.ModelFormatError, match="computes nothing"):
        litehouse.read(CONVERTED / f"{name}.ms")


def in_layout(array: np.ndarray, shape: tuple[int | str | None, ...]) -> np.ndarray:
    """An input of the source model, channels last where the file takes it so."""

    def fits(sizes: tuple[int, ...]) -> bool:
        return all(not isinstance(size, int) or size == own for size, own in zip(shape, sizes, strict=True))

    if array.ndim == 4 and not fits(array.shape):
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    return array


@pytest.mark.parametrize("name", [name for name in CASES if "inputs" in INDEX[name]["ms"] and name not in EMPTY])
def test_names_are_those_that_mindspore_lite_reports(name: str) -> None:
    reported = INDEX[name]["ms"]
    key = KEY if "encrypt" in INDEX[name].get("settings", {}) else None
    model = litehouse.formats.read(CONVERTED / f"{name}.ms", key=key)
    assert [info.name for info in model.inputs] == [entry["name"] for entry in reported["inputs"]]
    assert [info.name for info in model.outputs] == [entry["name"] for entry in reported["outputs"]]


def test_there_are_many() -> None:
    assert len(CASES) > 150
