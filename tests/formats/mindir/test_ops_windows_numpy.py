"""Convolutions, pooling and patches without a fixture, against loops over windows in numpy."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close
from litehouse.formats.tape import RefusedError

RANDOM = np.random.default_rng(5)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def convolved(
    x: np.ndarray,
    w: np.ndarray,
    strides: Sequence[int],
    pads: Sequence[tuple[int, int]],
    dilations: Sequence[int],
    groups: int,
) -> np.ndarray:
    """A convolution over all axes but the first two."""
    x = np.pad(x, [(0, 0), (0, 0), *pads])
    extents = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    sizes = [(n - e) // s + 1 for n, e, s in zip(x.shape[2:], extents, strides, strict=True)]
    y = np.zeros((x.shape[0], w.shape[0], *sizes), np.float32)
    inputs, outputs = w.shape[1], w.shape[0] // groups
    for place in itertools.product(*map(range, sizes)):
        cut = tuple(slice(i * s, i * s + e, d) for i, s, e, d in zip(place, strides, extents, dilations, strict=True))
        window = x[(slice(None), slice(None), *cut)]
        for group in range(groups):
            part = window[:, group * inputs : (group + 1) * inputs]
            weights = w[group * outputs : (group + 1) * outputs]
            y[(slice(None), slice(group * outputs, (group + 1) * outputs), *place)] = np.tensordot(
                part, weights, (range(1, part.ndim), range(1, part.ndim))
            )
    return y


@pytest.mark.parametrize(("name", "axes"), [("Conv1DPadding", 1), ("Conv2DPadding", 2), ("Conv3DPadding", 3)])
@pytest.mark.parametrize(("kernel", "dilation"), [(3, 2), (2, 1)])
def test_same_padding_by_name(name: str, axes: int, kernel: int, dilation: int, engine: str) -> None:
    x, w, b = normal(2, 4, *(7, 6, 5)[:axes]), normal(6, 2, *(kernel,) * axes), normal(6)
    total = (kernel - 1) * dilation
    pads = [(total // 2, total - total // 2)] * axes
    expected = convolved(x, w, (1,) * axes, pads, (dilation,) * axes, 2) + b.reshape(1, 6, *(1,) * axes)
    (y,) = run_op(name, [x, w, b, 1, "same", (dilation,), 2], ["float32"], engine, static=True)
    assert_close(y, expected)
    operands = [x, w, None, (1,), 2, (dilation,), False, (0,), 2]  # the number of `valid`
    (y,) = run_op("ConvolutionStr", operands, ["float32"], engine, static=True)
    assert_close(y, convolved(x, w, (1,) * axes, [(0, 0)] * axes, (dilation,) * axes, 2))


def test_a_convolution_without_batch(engine: str) -> None:
    x, w = normal(3, 9, 8), normal(4, 3, 3, 3)
    expected = convolved(x[None], w, (2, 1), [(1, 1), (0, 0)], (1, 1), 1)[0]
    assert_close(
        run_op("Conv2DExt", [x, w, None, (2, 1), (1, 0), (1,), 1], ["float32"], engine, static=True)[0], expected
    )


def test_a_convolution_with_time_first(engine: str) -> None:
    x, w, b = normal(7, 2, 3), normal(3, 3, 4), normal(4)
    expected = convolved(x.transpose(1, 2, 0), w.transpose(2, 1, 0), (1,), [(1, 1)], (1,), 1) + b[:, None]
    assert_close(run_op("ConvTbc", [x, w, b, 1], ["float32"], engine, static=True)[0], expected.transpose(2, 0, 1))


def test_an_old_depthwise_convolution(engine: str) -> None:
    x, w = normal(2, 4, 7, 6), normal(1, 4, 3, 3)
    attributes = {"pad_mode": "pad", "pad_list": (1, 0, 1, 1), "stride": (1, 1, 2, 1), "dilation": (1, 1, 1, 1)}
    expected = convolved(x, w.transpose(1, 0, 2, 3), (2, 1), [(1, 0), (1, 1)], (1, 1), 4)
    (y,) = run_op("DepthwiseConv2dNative", [x, w], ["float32"], engine, attributes=attributes, static=True)
    assert_close(y, expected)
    with pytest.raises(RefusedError, match="multiplier"):
        run_op("DepthwiseConv2dNative", [x, w], ["float32"], engine, attributes={"channel_multiplier": 2}, static=True)


# Pooling --------------------------------------------------------------------------------------------------------------


def pooled(x: np.ndarray, kernel: int, stride: int, pad: int, ceil: bool, kind: str, divisor: int = 0) -> Any:
    """Pooling of square windows over the last two axes, with the places of the largest."""
    sizes = []
    for size in x.shape[2:]:
        steps = (size + 2 * pad - kernel) / stride
        count = int(np.ceil(steps) if ceil else np.floor(steps)) + 1
        sizes.append(count - 1 if (count - 1) * stride >= size + pad else count)
    y, places = np.zeros((*x.shape[:2], *sizes), np.float32), np.zeros((*x.shape[:2], *sizes), np.int64)
    height, width = x.shape[2:]
    for i, j in np.ndindex(*sizes):
        top, left = i * stride - pad, j * stride - pad
        bottom, right = top + kernel, left + kernel
        window = x[:, :, max(top, 0) : bottom, max(left, 0) : right]
        flat = window.reshape(*x.shape[:2], -1)
        if kind == "max":
            best = flat.argmax(-1)
            rows, columns = best // window.shape[3], best % window.shape[3]
            y[:, :, i, j] = flat.max(-1)
            places[:, :, i, j] = (rows + max(top, 0)) * width + columns + max(left, 0)
        else:
            inside = (min(bottom, height + pad) - top) * (min(right, width + pad) - left)
            count = divisor or (inside if kind == "include" else flat.shape[-1])
            y[:, :, i, j] = flat.sum(-1) / count
    return (y, places) if kind == "max" else y


GEOMETRY = [(3, 2, 1), (2, 2, 1), (2, 3, 1), (3, 3, 1), (2, 2, 0)]


@pytest.mark.parametrize(("kernel", "stride", "pad"), GEOMETRY)
@pytest.mark.parametrize("ceil", [False, True])
@pytest.mark.parametrize("size", [5, 6, 7])
def test_pooling_with_ceil_mode(kernel: int, stride: int, pad: int, ceil: bool, size: int, engine: str) -> None:
    x = normal(1, 2, size, 6)
    operands = [x, (kernel, kernel), (stride, stride), (pad, pad)]
    found = run_op("MaxPoolWithIndices", [*operands, (1, 1), ceil, 35], ["float32", "int64"], engine)
    for result, expected in zip(found, pooled(x, kernel, stride, pad, ceil, "max"), strict=True):
        assert_close(result, expected)
    for include, divisor in itertools.product((False, True), (None, 5)):
        (y,) = run_op("AvgPool2D", [*operands, ceil, include, divisor], ["float32"], engine)
        assert_close(y, pooled(x, kernel, stride, pad, ceil, "include" if include else "exclude", divisor or 0))


def test_pooling_of_volumes_and_of_one_sample(engine: str) -> None:
    x = normal(2, 4, 6, 8)
    expected = x.reshape(2, 2, 2, 3, 2, 4, 2).mean((2, 4, 6))
    assert_close(run_op("AvgPool3DExt", [x, (2,), None, (0,), False, True, None], ["float32"], engine)[0], expected)
    y, places = run_op("FuncMaxPool2D", [x[:1], 2, None, 0, 1, False, True], ["float32", "int64"], engine)
    assert_close(y, x[:1].reshape(1, 4, 3, 2, 4, 2).max((3, 5)))
    back = np.zeros_like(x[:1]).reshape(1, 4, -1)
    np.put_along_axis(back, places.reshape(1, 4, -1), y.reshape(1, 4, -1), -1)
    assert_close(
        run_op("MaxUnpool2DExt", [y, places, 2, None, 0, None], ["float32"], engine)[0], back.reshape(x[:1].shape)
    )
    larger = run_op("MaxUnpool2DExt", [y, places, 2, None, 0, (7, 9)], ["float32"], engine)[0]
    assert larger.shape == (1, 4, 7, 9)


def test_adaptive_pooling(engine: str) -> None:
    x = normal(2, 3, 7, 9, 4)
    bounds = {
        (n, s): [(i * s // n, -(-(i + 1) * s // n)) for i in range(n)] for n, s in ((3, 7), (4, 9), (2, 4), (5, 4))
    }
    expected = np.zeros((2, 3, 3, 4, 2), np.float32)
    for (i, (a, b)), (j, (c, d)), (k, (e, f)) in itertools.product(
        enumerate(bounds[3, 7]), enumerate(bounds[4, 9]), enumerate(bounds[2, 4])
    ):
        expected[:, :, i, j, k] = x[:, :, a:b, c:d, e:f].mean((2, 3, 4))
    assert_close(run_op("AdaptiveAvgPool3DExt", [x, (3, 4, 2)], ["float32"], engine)[0], expected)
    line = x[:, :, 0, 0]
    largest = np.stack([line[:, :, a:b].max(-1) for a, b in bounds[5, 4]], -1)
    places = np.stack([line[:, :, a:b].argmax(-1) + a for a, b in bounds[5, 4]], -1)
    y, found = run_op("AdaptiveMaxPool1D", [line, (5,)], ["float32", "int64"], engine)
    assert_close(y, largest)
    assert_close(found, places)


# Patches --------------------------------------------------------------------------------------------------------------


def test_patches_and_back(engine: str) -> None:
    x = normal(2, 3, 6, 7)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0)))
    columns = np.stack([padded[:, :, i : i + 6 : 2, 2 * j : 2 * j + 5] for i, j in np.ndindex(3, 2)], 2).reshape(
        2, 18, 15
    )
    operands = ((3, 2), (1, 2), (1, 0), (2, 1))
    assert_close(run_op("Im2ColExt", [x, *operands], ["float32"], engine, [3])[0], columns)
    assert_close(run_op("Im2ColExt", [x[0], *operands], ["float32"], engine, [2])[0], columns[0])
    back = np.zeros_like(padded)
    parts = columns.reshape(2, 3, 6, 3, 5)
    for index, (i, j) in enumerate(np.ndindex(3, 2)):
        back[:, :, i : i + 6 : 2, 2 * j : 2 * j + 5] += parts[:, :, index]
    (y,) = run_op("Col2ImExt", [columns, (6, 7), *operands], ["float32"], engine, [4])
    assert_close(y, back[:, :, 1:-1])
    assert_close(run_op("Col2ImExt", [columns[1], (6, 7), *operands], ["float32"], engine, [3])[0], back[1, :, 1:-1])


@pytest.mark.parametrize("dtype", ["float32", "int32", "int64"])
@pytest.mark.parametrize("rank", [3, 4, 5])
def test_pixel_shuffle(dtype: str, rank: int, engine: str) -> None:
    x = np.arange(2 * 3 * 8 * 2 * 3).reshape(2, 3, 8, 2, 3).astype(dtype)
    x = x if rank == 5 else x[0] if rank == 4 else x[0, 0]
    outer = x.shape[:-3]
    parts = x.reshape(-1, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3)
    assert_close(run_op("PixelShuffle", [x, 2], [dtype], engine)[0], parts.reshape(*outer, 2, 4, 6))
