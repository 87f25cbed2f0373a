"""Fourier transforms, and what goes with them."""

from __future__ import annotations

import math

import numpy as np
import torch

from litehouse.engines.torch.ops.common import wide
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor, dtype_of


@op("DFT", since=20, known=["dft_length", "axis"])
def dft(
    x: Tensor,
    dft_length: Tensor | None = None,
    axis: Tensor | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Tensor:
    place = -2 if axis is None else int(axis)
    length = None if dft_length is None else int(dft_length)
    return _transformed(x, length, place, is_inverse=bool(inverse), is_half=bool(onesided))


@op("DFT", since=17, known=["dft_length"])
def dft_17(
    x: Tensor, dft_length: Tensor | None = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0
) -> Tensor:
    length = None if dft_length is None else int(dft_length)
    return _transformed(x, length, axis, is_inverse=bool(inverse), is_half=bool(onesided))


def _transformed(x: Tensor, length: int | None, axis: int, *, is_inverse: bool, is_half: bool) -> Tensor:
    """The transform along an axis; the last one holds a real part, and maybe an imaginary one."""
    place, dtype = axis % x.ndim, x.dtype
    values = _values(wide(x))
    if is_half and is_inverse:
        size = length if length is not None else 2 * (x.shape[place] - 1)
        return torch.fft.irfft(values, size, place).unsqueeze(-1).to(dtype)
    if is_half and not values.is_complex():
        return torch.view_as_real(torch.fft.rfft(values, length, place)).to(dtype)
    made = (torch.fft.ifft if is_inverse else torch.fft.fft)(values, length, place)
    if is_half:
        made = made.narrow(place, 0, made.shape[place] // 2 + 1)
    return torch.view_as_real(made.resolve_conj()).to(dtype)


def _values(x: Tensor) -> Tensor:
    """Real or complex numbers from their parts."""
    if x.shape[-1] not in (1, 2):
        raise LackingError(f"numbers of {x.shape[-1]} parts")
    if not x.numel():
        raise LackingError("no numbers")
    return x.squeeze(-1) if x.shape[-1] == 1 else torch.view_as_complex(x.contiguous())


@op("STFT", known=["frame_step", "frame_length"])
def stft(
    signal: Tensor,
    frame_step: Tensor,
    window: Tensor | None = None,
    frame_length: Tensor | None = None,
    *,
    onesided: int = 1,
) -> Tensor:
    dtype = signal.dtype
    values = _values(wide(signal if signal.ndim == 3 else signal.unsqueeze(2)))
    lengths = [int(frame_length)] if frame_length is not None else []
    lengths += [window.shape[0]] if window is not None else []
    if not lengths:
        raise LackingError("frames of no known length")
    length = lengths[0]
    frames = values.unfold(1, length, int(frame_step))
    if window is not None:
        if window.shape[0] != length:
            raise LackingError("a window of another length than a frame")
        frames = frames * window.to(values.dtype if not values.is_complex() else values.real.dtype)
    if onesided and not values.is_complex():
        made = torch.fft.rfft(frames)
    else:
        made = torch.fft.fft(frames)
        made = made[..., : length // 2 + 1] if onesided else made
    return torch.view_as_real(made).to(dtype)


@op("HannWindow", known=["size"])
def hann_window(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _window(size, [0.5, 0.5], output_datatype, is_periodic=bool(periodic))


@op("HammingWindow", known=["size"])
def hamming_window(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _window(size, [25 / 46, 21 / 46], output_datatype, is_periodic=bool(periodic))


@op("BlackmanWindow", known=["size"])
def blackman_window(size: Tensor, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
    return _window(size, [0.42, 0.5, 0.08], output_datatype, is_periodic=bool(periodic))


def _window(size: Tensor, shares: list[float], number: int, *, is_periodic: bool) -> Tensor:
    """A sum of cosines, one more oscillation each, of alternating signs."""
    count, dtype = int(size), dtype_of(number)
    length = count if is_periodic else count - 1
    if length <= 0 or dtype is None:
        raise LackingError("a window of no length")
    angles = torch.arange(count, dtype=torch.float64) * (2 * math.pi / length)
    waves = [(-1) ** place * share * torch.cos(place * angles) for place, share in enumerate(shares)]
    return torch.stack(waves).sum(0).to(dtype)


@op(
    "MelWeightMatrix",
    known=["num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"],
)
def mel_weight_matrix(
    num_mel_bins: Tensor,
    dft_length: Tensor,
    sample_rate: Tensor,
    lower_edge_hertz: Tensor,
    upper_edge_hertz: Tensor,
    *,
    output_datatype: int = 1,
) -> Tensor:
    dtype = dtype_of(output_datatype)
    if dtype is None:
        raise LackingError("an unknown type")
    bins, length = int(num_mel_bins), int(dft_length)
    edges = _mel_edges(bins, float(lower_edge_hertz), float(upper_edge_hertz))
    places = np.floor((length + 1) * edges / int(sample_rate)).astype(np.int64)
    weights = np.zeros((length // 2 + 1, bins))
    for mel in range(bins):
        low, middle, high = (int(place) for place in places[mel : mel + 3])
        if low == middle:
            weights[middle, mel] = 1
        else:
            weights[low : middle + 1, mel] = np.arange(middle - low + 1) / (middle - low)
        if high > middle:
            weights[middle:high, mel] = np.arange(high - middle, 0, -1) / (high - middle)
    return torch.from_numpy(weights).to(dtype)


def _mel_edges(bins: int, lower: float, upper: float) -> np.ndarray:
    """Where the bins begin, in hertz: even steps on the mel scale."""
    low, high = (2595 * math.log10(1 + hertz / 700) for hertz in (lower, upper))
    mels = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    edges: np.ndarray = 700 * (10 ** (mels / 2595) - 1)
    return edges


@op("Rfft", domain=MICROSOFT)
def rfft(x: Tensor, *, normalized: int = 0, onesided: int = 1, signal_ndim: int = 1) -> Tensor:
    _check_plain(normalized, onesided, signal_ndim)
    return torch.view_as_real(torch.fft.rfft(wide(x))).to(x.dtype)


@op("Irfft", domain=MICROSOFT)
def irfft(x: Tensor, *, normalized: int = 0, onesided: int = 1, signal_ndim: int) -> Tensor:
    _check_plain(normalized, onesided, signal_ndim)
    return torch.fft.irfft(torch.view_as_complex(wide(x).contiguous())).to(x.dtype)


def _check_plain(normalized: int, onesided: int, signal_ndim: int) -> None:
    if normalized or not onesided or signal_ndim != 1:
        raise LackingError("a transform of several axes, with a norm or of both sides")


@op("ComplexMul", domain=MICROSOFT)
def complex_mul(a: Tensor, b: Tensor) -> Tensor:
    (real, imaginary), (other_real, other_imaginary) = a.unbind(-1), b.unbind(-1)
    products = real * other_real - imaginary * other_imaginary, real * other_imaginary + imaginary * other_real
    return torch.stack(products, -1)


@op("ComplexMulConj", domain=MICROSOFT)
def complex_mul_conj(a: Tensor, b: Tensor) -> Tensor:
    real, imaginary = b.unbind(-1)
    found: Tensor = complex_mul(a, torch.stack([real, -imaginary], -1))
    return found
