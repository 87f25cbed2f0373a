"""Flips, which MegEngine 1.13 does not load, comparisons in float16, and what image operators refuse."""

from typing import Any

import numpy as np
import pytest
from formats.mge.one_operator import run_operator, translated

import litehouse
from conftest import assert_close

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def drawn_bytes(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape).astype(np.uint8)


@pytest.mark.parametrize("vertical", [False, True])
@pytest.mark.parametrize("horizontal", [False, True])
@pytest.mark.parametrize("draw", [drawn, drawn_bytes])
def test_flip(draw: Any, horizontal: bool, vertical: bool, engine: str) -> None:
    x = draw(2, 4, 5, 3)
    (y,) = run_operator(engine, "Flip", [x], {"vertical": vertical, "horizontal": horizontal})
    assert_close(y, x[:, :: -1 if vertical else 1, :: -1 if horizontal else 1])


CORRELATION = {
    "format": "NCHW",
    "kernel_size": 3,
    "max_displacement": 2,
    "stride1": 2,
    "stride2": 1,
    "pad_size": 1,
    "is_multiply": True,
}


def test_correlation_in_float16(engine: str) -> None:
    a, b = (drawn(2, 3, 9, 8).astype(np.float16) for _ in range(2))
    (y,) = run_operator(engine, "Correlation", [a, b], CORRELATION)
    wide = [np.pad(x.astype(np.float32), ((0, 0), (0, 0), (1, 1), (1, 1))) for x in (a, b)]
    expected = np.zeros((2, 25, 3, 2), np.float32)
    for (channel, row, column), _ in np.ndenumerate(expected[0]):
        down, right = channel // 5, channel % 5
        first = wide[0][:, :, row * 2 + 2 : row * 2 + 5, column * 2 + 2 : column * 2 + 5]
        second = wide[1][:, :, row * 2 + down : row * 2 + down + 3, column * 2 + right : column * 2 + right + 3]
        expected[:, channel, row, column] = (first * second).mean((1, 2, 3))
    assert_close(y, expected.astype(np.float16))


BLUR = {"border_mode": "REPLICATE", "kernel_height": 3, "kernel_width": 3, "sigma_x": 0.0, "sigma_y": 0.0}
DCT = {"format": "NCHW", "dct_block_size": 4}
IMAGE, BYTES = drawn(1, 6, 8, 3), drawn_bytes(1, 6, 8, 3)
PLANES = drawn_bytes(1, 2, 8, 12)


@pytest.mark.parametrize(
    ("kind", "operands", "params", "reason"),
    [
        ("Flip", [drawn(4, 5, 3)], {"vertical": True, "horizontal": True}, "rank 3"),
        ("Rotate", [drawn(4, 5, 3)], {"clockwise": True}, "rank 3"),
        ("CvtColor", [drawn(6, 8, 3)], {"mode": "RGB2GRAY"}, "rank 3"),
        ("CvtColor", [IMAGE.astype(np.float16)], {"mode": "RGB2GRAY"}, "FLOAT16"),
        ("CvtColor", [IMAGE], {"mode": "RGB2BGR"}, "uint8 alone"),
        ("CvtColor", [drawn(1, 6, 8, 4)], {"mode": "RGBA2GRAY"}, "uint8 alone"),
        ("CvtColor", [BYTES], {"mode": "YUV2RGB_NV12"}, "3 channels"),
        ("CvtColor", [drawn_bytes(1, 9, 8, 1)], {"mode": "YUV2RGB_YU12"}, "9 rows"),
        ("GaussianBlur", [drawn(1, 6, 8, 2)], BLUR, "2 channels"),
        ("GaussianBlur", [IMAGE], BLUR | {"kernel_width": 4}, "size 4"),
        ("GaussianBlur", [IMAGE], BLUR | {"kernel_height": 0}, "size 0"),
        ("GaussianBlur", [IMAGE], BLUR | {"border_mode": "WRAP"}, "WRAP"),
        ("GaussianBlur", [IMAGE], BLUR | {"kernel_width": 999_999_999}, "beyond"),
        ("DctChannelSelect", [PLANES], DCT | {"dct_block_size": 5}, "5 x 5"),
        ("DctChannelSelect", [PLANES], DCT | {"dct_block_size": 0}, "0 x 0"),
        ("DctChannelSelect", [PLANES], DCT | {"dct_block_size": 1 << 20}, "beyond"),
        ("DctChannelSelect", [PLANES], DCT | {"format": "NCHW4"}, "NCHW4"),
        (
            "DctChannelSelect",
            [PLANES, np.array([0, 1, 2], np.int32), np.array([0, 1], np.int32)],
            DCT,
            "when the model",
        ),
        ("Correlation", [drawn(1, 2, 4, 4)] * 2, CORRELATION | {"stride2": 0}, "strides"),
        ("Correlation", [drawn(1, 2, 4, 4)] * 2, CORRELATION | {"pad_size": 0}, "smaller"),
        ("Correlation", [drawn(1, 2, 9, 9), drawn(1, 2, 9, 8)], CORRELATION, "two sizes"),
        ("Correlation", [drawn(1, 2, 9, 9)] * 2, CORRELATION | {"format": "NHWC"}, "NHWC"),
    ],
)
def test_refused(kind: str, operands: list[np.ndarray], params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated(kind, operands, params)
