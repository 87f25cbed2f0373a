"""Convolutions that MegEngine on CPU does not dump, against numpy; and what is refused."""

from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import run_operator, translated
from formats.mge.test_fixtures import INDEX, path, read

import litehouse
from conftest import assert_close

RNG = np.random.default_rng(0)
PLAIN: dict[str, Any] = {
    "mode": "CROSS_CORRELATION",
    "sparse": "DENSE",
    "format": "NCHW",
    "compute_mode": "DEFAULT",
    **{f"{name}_{axis}": int(name != "pad") for name in ("pad", "stride", "dilate") for axis in "hw"},
}
FIELDS = {"spatial_groups_h": 3, "spatial_groups_w": 2}


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def windows(x: np.ndarray, size: tuple[int, int], stride: int = 1, pad: int = 0) -> np.ndarray:
    """[N, C, rows, columns, height, width]."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    return np.lib.stride_tricks.sliding_window_view(x, size, (2, 3))[:, :, ::stride, ::stride]


def convolved(x: np.ndarray, w: np.ndarray, stride: int = 1, pad: int = 0) -> np.ndarray:
    """With weights of [groups, out, in, height, width]."""
    parts = windows(x, w.shape[3:], stride, pad)
    parts = parts.reshape(len(x), w.shape[0], w.shape[2], *parts.shape[2:])
    sums = np.einsum("ngirckl,goikl->ngorc", parts, w)
    return sums.reshape(len(x), -1, *sums.shape[3:])


def both(name: str, number: int) -> dict[str, int]:
    return {f"{name}_{axis}": number for axis in "hw"}


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_of_each_sample(groups: int, engine: str) -> None:
    x, w, bias = drawn(3, 4, 6, 5), drawn(3, groups, 2, 4 // groups, 3, 3), drawn(1, 2 * groups, 1, 1)
    expected = np.concatenate([convolved(x[k : k + 1], w[k], 2, 1) for k in range(3)]) + bias
    z = drawn(*expected.shape)
    params = PLAIN | {"nonline_mode": "RELU"} | both("pad", 1) | both("stride", 2)
    if groups == 1:
        w = w[:, 0]
    else:
        params["sparse"] = "GROUP"
    assert_close(run_operator(engine, "BatchConvBias", [x, w, bias, z], params)[0], np.maximum(expected + z, 0))


def test_weights_of_each_place(engine: str) -> None:
    x, w = drawn(2, 3, 6, 5), drawn(4, 3, 3, 3, 3, 2)
    expected = np.einsum("nirckl,rciklo->norc", windows(x, (3, 3)), w)
    assert_close(run_operator(engine, "Local", [x, w], PLAIN)[0], expected)
    flipped = run_operator(engine, "Local", [x, w[:, :, :, ::-1, ::-1].copy()], PLAIN | {"mode": "CONVOLUTION"})[0]
    assert_close(flipped, expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_weights_of_each_field(groups: int, engine: str) -> None:
    x, w = drawn(2, 4, 11, 7), drawn(groups, 3, 2, 4 // groups, 3, 2, 5)
    parts = windows(x, (3, 2), 2, 1)
    parts = parts.reshape(2, groups, 4 // groups, 3, 2, 2, 2, 3, 2)
    expected = np.einsum("ngiarbckl,gabiklo->ngoarbc", parts, w).reshape(2, 5 * groups, 6, 4)
    params = PLAIN | FIELDS | both("pad", 1) | both("stride", 2)
    if groups == 1:
        assert_close(run_operator(engine, "LocalShare", [x, w[0]], params)[0], expected)
    else:
        assert_close(run_operator(engine, "LocalShare", [x, w], params | {"sparse": "GROUP"})[0], expected)


def test_a_mask_for_the_result(engine: str) -> None:
    x, w = drawn(2, 3, 6, 5), drawn(4, 3, 3, 3)
    mask = RNG.integers(0, 2, (4, 3)).astype(np.int32)
    expected = np.where(mask, convolved(x, w[None]), 0)
    assert_close(run_operator(engine, "MaskConvolution", [x, w, mask], PLAIN)[0], expected)


@pytest.mark.parametrize("dtype", ["int32", "int8"])
def test_how_a_mask_spreads(dtype: str, engine: str) -> None:
    mask = (RNG.random((7, 9)) < 0.1).astype(dtype) * 3
    params = both("pad", 1) | both("stride", 2) | both("dilate", 2) | both("kernel", 2)
    padded = np.pad(mask, 1)
    taken = np.lib.stride_tricks.sliding_window_view(padded, (3, 3))[::2, ::2, ::2, ::2]
    expected = (taken != 0).any((2, 3)).astype(dtype)
    assert_close(run_operator(engine, "MaskPropagate", [mask], params)[0], expected)


def test_regions_of_bytes(engine: str) -> None:
    x, w = drawn(2, 4, 6, 5), drawn(2, 3, 2, 3, 3)
    inside, outside = (RNG.integers(0, 3, (2, rows, columns)).astype(np.uint8) for rows, columns in ((6, 5), (4, 3)))
    same = windows(inside[:, None], (3, 3)) == outside[:, None, :, :, None, None]
    parts = (windows(x, (3, 3)) * same).reshape(2, 2, 2, 4, 3, 3, 3)
    expected = np.einsum("ngirckl,goikl->ngorc", parts, w).reshape(2, 6, 4, 3)
    params = PLAIN | {"sparse": "GROUP"}
    assert_close(run_operator(engine, "RegionRestrictedConvolution", [x, w, inside, outside], params)[0], expected)


@pytest.mark.parametrize("case", [case for case in INDEX if case.startswith("conv_halves_")])
def test_quantised_halves_on_onnxruntime_to_every_bit(case: str) -> None:
    inputs, expected = read(case)
    outputs = litehouse.load(path(case), engine="onnxruntime", threads=1).run(inputs)
    for actual, wanted in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(actual, wanted)


SAMPLES = {"no_trans": False, "spatial_scale": 0.5, "trans_std": 0.3, "pooled_h": 2, "pooled_w": 2}
SAMPLES |= {"part_size": 2, "sample_per_part": 2}
X, W = drawn(1, 4, 6, 5), drawn(3, 4, 3, 3)


@pytest.mark.parametrize(
    ("kind", "operands", "params", "reason"),
    [
        ("Convolution", [X, W], PLAIN | {"format": "NHWC_NCHW"}, "NHWC_NCHW"),
        ("Convolution", [X, W], PLAIN | {"format": "NCHW4"}, "rank 4"),
        ("Convolution", [X, W], PLAIN | {"sparse": "GROUP"}, "weight of rank 4"),
        ("Convolution", [drawn(1, 1, 6, 5, 8), drawn(3, 1, 3, 3, 4)], PLAIN | {"format": "NCHW4"}, "blocks of 8"),
        ("ConvolutionBackwardData", [W, drawn(1, 3, 6, 5), drawn(1, 4, 9, 7)], PLAIN, "the least is"),
        ("Convolution3D", [drawn(1, 2, 3, 4, 5), drawn(1, 2, 1, 1, 1)], PLAIN | {"format": "NDHWC"}, "NDHWC"),
        ("GroupLocal", [X, drawn(1, 3, 3, 4, 3, 3, 2)], PLAIN, "3 x 3 places"),
        ("GroupLocal", [X, drawn(1, 4, 3, 4, 3, 3, 2)], PLAIN | {"format": "NHWC"}, "NHWC"),
        ("LocalShare", [X, drawn(1, 1, 4, 3, 3, 2)], PLAIN | FIELDS, "1 x 1 fields"),
        ("LocalShare", [X, drawn(3, 2, 4, 3, 3, 2)], PLAIN | FIELDS, "4 places in 3"),
        ("LocalShare", [X, drawn(3, 2, 4, 3, 3, 2)], PLAIN | FIELDS | both("dilate", 2), "dilation"),
        ("LocalShare", [X, drawn(3, 2, 4, 3, 3, 2)], PLAIN | FIELDS | both("stride", 0), "0 places in 3"),
        ("GroupLocal", [X, drawn(1, 4, 3, 4, 3, 3, 2)], PLAIN | both("stride", 0), r"\[0, 0\] apart"),
        ("MaskPropagate", [np.ones((4, 4), np.int32)], PLAIN | both("pad", 1) | both("kernel", 1), "padding"),
        ("DeformablePSROIPooling", [X, drawn(2, 5), drawn(2, 2, 2, 2)], SAMPLES | {"sample_per_part": 0}, "0 samples"),
        ("DeformablePSROIPooling", [X, drawn(2, 5), drawn(2, 2, 3, 3)], SAMPLES, "offsets of shape"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params)
