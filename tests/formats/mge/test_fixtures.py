"""Every MegEngine fixture against what MegEngine itself computed, on both engines."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import ENGINES, FIXTURES, assert_close

MGE = FIXTURES / "mge"
INDEX: dict[str, dict[str, Any]] = json.loads((MGE / "INDEX.json").read_text())

# What is refused, with a part of the message.
REFUSED = {
    "dropout_training": "it drops numbers at random",
    "quantise_qint4": "the dtype QuantizedS4 is not supported",
    "quantise_quint4": "the dtype Quantized4Asymm is not supported",
    "region_restricted_conv_backward_data": "RegionRestrictedConvolutionBackwardData",
    "reduce_to_data_shape": "a reduction to a shape that depends on the data",
    "svd_product": "SVD",
    "svd_values": "SVD",
    "v1_count_svd": "SVD",
}

# Cases where an engine, or MegEngine itself, is at fault. Each must go on to differ, or its line here can go.
DIFFERENT = {
    ("reduce_sum_overflow", "openvino"): "OpenVINO clips the sum of large integers",
    ("rnn_op_identity", "openvino"): "OpenVINO has no recurrent layer with the activation Affine",
    ("special_switch_gt0", "openvino"): "OpenVINO takes NaN for larger than 0 where it uses AVX-512",
}
BY_CPU = {"special_switch_gt0"}  # right on some CPUs


def path(case: str) -> Path:
    return MGE / INDEX[case]["family"] / f"{case}.mge"


def read(case: str, prefix: str = "") -> tuple[dict[str, np.ndarray], list[np.ndarray]]:
    """The stored inputs by name, and the outputs."""
    with np.load(path(case).with_suffix(".npz")) as stored:
        inputs = {name.removeprefix(f"{prefix}in_"): stored[name] for name in stored if name.startswith(f"{prefix}in_")}
        count = sum(name.startswith(f"{prefix}out_") and name != "out_names" for name in stored)
        return inputs, [stored[f"{prefix}out_{k}"] for k in range(count)]


def names(case: str) -> list[str]:
    """What lite calls the outputs."""
    with np.load(path(case).with_suffix(".npz")) as stored:
        return list(stored["out_names"])


def named(case: str) -> bool:
    """Whether the outputs of the file itself have the stored names; without any, lite invents them."""
    return INDEX[case]["options"].get("keep_var_name") != 0 and "reference" not in INDEX[case]


def compare(case: str, outputs: list[np.ndarray], expected: list[np.ndarray]) -> None:
    """By the tolerance of the type, or by the one that the index states for the case."""
    entry = INDEX[case]
    assert len(outputs) == len(expected)
    for k, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        what = f"output {k}"
        if entry.get("unordered"):
            actual, wanted = np.sort(actual, axis=-1), np.sort(wanted, axis=-1)
        allowed = entry.get("step", 0.0)
        if "relative" in entry and wanted.dtype.kind == "f":
            allowed = entry["relative"] * max(np.ptp(wanted), np.abs(wanted).max(initial=0.0))
        if not allowed:
            assert_close(actual, wanted, what)
            continue
        assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype), what
        error = np.abs(actual.astype(np.float64) - wanted.astype(np.float64)).max(initial=0.0)
        assert error <= allowed * 1.001, f"{what}: error {error:.3g}, allowed {allowed:.3g}"


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", [case for case in INDEX if case not in REFUSED])
def test_matches_megengine(case: str, engine: str, request: pytest.FixtureRequest) -> None:
    reason = DIFFERENT.get((case, engine)) or DIFFERENT.get((case, "*"))
    if reason:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=case not in BY_CPU))
    session = litehouse.load(path(case), engine=engine, threads=1)
    inputs, expected = read(case)
    assert {entry.name for entry in session.inputs} == set(inputs)
    if named(case):
        assert [entry.name for entry in session.outputs] == names(case)
    compare(case, session.run(inputs), expected)
    inputs, expected = read(case, "resized_")
    if inputs:
        session.resize({name: array.shape for name, array in inputs.items()})
        compare(case, session.run(inputs), expected)


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused_by_name(case: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError) as caught:
        litehouse.load(path(case))
    assert REFUSED[case] in str(caught.value)
    assert caught.value.op in str(caught.value)
    assert f"{case}.mge" in str(caught.value)


def test_the_lists_name_what_there_is() -> None:
    assert set(INDEX) >= set(REFUSED)
    assert set(INDEX) >= {case for case, _ in DIFFERENT}
    files = {file.stem: file.parent.name for file in MGE.glob("*/*.mge")}
    assert files == {case: entry["family"] for case, entry in INDEX.items()}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("first", ["plain", "v1"])
@pytest.mark.parametrize("second", ["plain", "v1"])
def test_of_joined_files_the_first_counts(first: str, second: str, engine: str) -> None:
    """What MegEngine's dump writes with `append=True`."""
    session = litehouse.load(path(first).read_bytes() + path(second).read_bytes(), engine=engine, threads=1)
    inputs, expected = read(first)
    compare(first, session.run(inputs), expected)
