import numpy as np
import pytest
from engines.torch.against import agrees, numbers


@pytest.mark.parametrize("length", [None, 6, 13])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_dft(parts, inverse, length):
    x = numbers(2, 8, 9, parts)
    size = None if length is None else np.array(length)
    for axis in (1, 2, -2):
        agrees(
            "DFT", [x, size], known=[] if length is None else [1], opset=17, axis=axis, inverse=inverse, tolerance=1e-4
        )
        known = [2] if length is None else [1, 2]
        agrees("DFT", [x, size, np.array(axis)], known=known, opset=20, inverse=inverse, tolerance=1e-4)


def test_dft_without_an_axis():
    agrees("DFT", [numbers(2, 8, 9, 1)], opset=17, tolerance=1e-4)
    agrees("DFT", [numbers(2, 8, 9, 1)], opset=20, tolerance=1e-4)


@pytest.mark.parametrize("opset", [17, 20])
def test_half_a_dft(opset):
    agrees("DFT", [numbers(2, 8, 9, 1)], opset=opset, onesided=1, tolerance=1e-4)


def test_numbers_of_64_bits():
    agrees("DFT", [numbers(2, 8, 9, 2, dtype=np.float64)], opset=20, tolerance=1e-9)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("windowed", [False, True])
def test_stft(windowed, onesided):
    window, length = (numbers(16, seed=1), None) if windowed else (None, np.array(16))
    inputs = [numbers(2, 50, 1), np.array(6), window, length]
    known = [1] if windowed else [1, 3]
    agrees("STFT", inputs, known=known, opset=17, onesided=onesided, tolerance=1e-4)


def test_stft_of_complex_numbers():
    inputs = [numbers(2, 50, 2), np.array(6), numbers(16, seed=1), np.array(16)]
    agrees("STFT", inputs, known=[1, 3], opset=17, onesided=0, tolerance=1e-4)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows(op, periodic):
    for size in (2, 9, 16):
        agrees(op, [np.array(size)], opset=17, periodic=periodic, tolerance=1e-6)
    agrees(op, [np.array(9)], opset=17, periodic=periodic, output_datatype=11, tolerance=1e-6)


@pytest.mark.parametrize("bins", [4, 8, 40])
def test_mel_weights(bins):
    scalars = [np.array(bins), np.array(64), np.array(8192), np.array(20, np.float32), np.array(4000, np.float32)]
    agrees("MelWeightMatrix", scalars, opset=17, tolerance=1e-6)
