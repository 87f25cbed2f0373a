"""Fourier transforms."""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import axis_of, int64_op, positions, size_along
from litehouse.formats.mindir.ops.complexes import is_complex, pair, parts
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
NORMS = {None: "backward", 0: "backward", 1: "forward", 2: "ortho"}
SWAPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
Size = ir.Value | int | None
Parts = tuple[ir.Value, ir.Value]


def _norm(t: MindirTape, norm: Any) -> str:
    name = t.literal(norm)
    name = NORMS.get(name, name)
    if name not in SWAPPED:
        t.refuse(f"norm {name!r}")
    return str(name)


def _axes(t: MindirTape, x: ir.Value, dim: Any, sizes: Any, count: int | None) -> list[int]:
    """The axes to transform: those that are named, or the last ones, or all."""
    rank, axes = t.rank(x), t.literal(dim)
    if axes is None:
        count = len(t.literal(sizes)) if sizes is not None else count or rank
        axes = tuple(range(-count, 0))
    return [axis_of(t, axis, rank) for axis in (axes if isinstance(axes, tuple) else (axes,))]


def _sizes(t: MindirTape, sizes: Any, axes: Sequence[int]) -> list[Size]:
    wanted = t.literal(sizes)
    if wanted is None:
        return [None] * len(axes)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    if len(wanted) != len(axes):
        t.refuse(f"{len(wanted)} sizes for {len(axes)} axes")
    return list(wanted)


def _fitted(t: MindirTape, x: ir.Value, axis: int, size: Size) -> ir.Value:
    """The value cut, or filled up with zeros, to a size along an axis."""
    if size is None:
        return x
    rank = t.rank(x)
    cut = t.op("Slice", [x, t.ints(0), t.ints(size), t.ints(axis)], dtype=x.dtype, shape=[None] * rank)
    missing = int64_op(t, "Sub", t.tensor(size, INT64), size_along(t, cut, axis))
    pads = [0] * rank + [missing if place == axis else 0 for place in range(rank)]
    filled: ir.Value = t.op("Pad", [cut, t.ints(pads)], dtype=x.dtype, shape=[None] * rank)
    return filled


def _transformed(
    t: MindirTape,
    value: tuple[ir.Value, ir.Value],
    axes: Sequence[int],
    sizes: Sequence[Size],
    norm: str,
    inverse: bool,
) -> tuple[ir.Value, ir.Value]:
    """The transform of both parts along some axes."""
    rank, dtype = t.rank(value[0]), t.dtype(value[0])
    joined = t.op("Concat", [t.op("Unsqueeze", [part, t.ints(-1)]) for part in value], axis=-1)
    joined.dtype, joined.shape = dtype, ir.Shape([None] * rank + [2])
    for axis, size in zip(axes, sizes, strict=True):
        joined = _fitted(t, joined, axis, size)
        count = t.cast(size_along(t, joined, axis), dtype)
        joined = _scaled(t, _along(t, joined, axis, inverse), count, norm, inverse)
    halves = [t.op("Gather", [joined, t.constant(place, INT64)], axis=-1, like=value[0]) for place in (0, 1)]
    for half in halves:
        half.shape = ir.Shape([None] * rank)
    return halves[0], halves[1]


def _along(t: MindirTape, x: ir.Value, axis: int, inverse: bool) -> ir.Value:
    """The transform along one axis, which is made the second of three: OpenVINO knows no other."""
    order = list(range(t.rank(x)))
    order[axis], order[-2] = order[-2], order[axis]
    turned = t.op("Transpose", [x], perm=order)
    lines = t.op("Concat", [t.ints(-1), t.op("Shape", [turned], start=-2)], axis=0)
    made = t.op("DFT", [t.op("Reshape", [turned, lines]), None, t.constant(1, INT64)], inverse=int(inverse))
    back: ir.Value = t.op("Transpose", [t.op("Reshape", [made, t.op("Shape", [turned])])], perm=order, like=x)
    return back


def _scaled(t: MindirTape, x: ir.Value, count: ir.Value, norm: str, inverse: bool) -> ir.Value:
    """ONNX divides by the size where it transforms back; other norms do so elsewhere."""
    if norm == "backward":
        return x
    factor = t.op("Sqrt", [count], dtype=x.dtype) if norm == "ortho" else count
    scaled: ir.Value = t.op("Mul" if inverse else "Div", [x, factor], like=x)
    return scaled


def _halved(t: MindirTape, x: ir.Value, axis: int) -> ir.Value:
    """The part of a real signal's spectrum that tells the whole."""
    end = int64_op(t, "Add", int64_op(t, "Div", size_along(t, x, axis), 2), 1)
    part: ir.Value = t.op("Slice", [x, t.ints(0), t.ints(end), t.ints(axis)], dtype=x.dtype, shape=[None] * t.rank(x))
    return part


def _completed(t: MindirTape, x: ir.Value, axis: int, size: ir.Value, sign: str) -> ir.Value:
    """The whole spectrum of that size: the second half mirrors the first."""
    half = int64_op(t, "Add", int64_op(t, "Div", size, 2), 1)
    first = _fitted(t, x, axis, half)
    rest = int64_op(t, "Sub", int64_op(t, "Div", int64_op(t, "Add", size, 1), 2), 1)
    ends = [t.ints(rest), t.ints(0), t.ints(axis), t.ints(-1)]
    mirrored = t.op(sign, [t.op("Slice", [first, *ends])])
    whole: ir.Value = t.op("Concat", [first, mirrored], axis=axis, dtype=x.dtype, shape=[None] * t.rank(x))
    return whole


def _complex_transform(
    t: MindirTape, x: ir.Value, sizes: Any, dim: Any, norm: Any, inverse: bool, count: Any
) -> ir.Value:
    axes = _axes(t, x, dim, sizes, count)
    return pair(t, *_transformed(t, parts(t, x), axes, _sizes(t, sizes, axes), _norm(t, norm), inverse))


def _real_transform(t: MindirTape, x: ir.Value, sizes: Any, dim: Any, norm: str, count: int | None) -> Parts:
    """The spectrum of a real signal, without the half that mirrors the other."""
    axes = _axes(t, x, dim, sizes, count)
    spectrum = _transformed(t, parts(t, x), axes, _sizes(t, sizes, axes), norm, False)
    return _halved(t, spectrum[0], axes[-1]), _halved(t, spectrum[1], axes[-1])


def _real_inverse(t: MindirTape, x: Any, sizes: Any, dim: Any, norm: str, count: int | None) -> ir.Value:
    """The real signal of such a spectrum."""
    value = x if isinstance(x, tuple) else parts(t, x)
    axes = _axes(t, value[0], dim, sizes, count)
    *outer, size = _sizes(t, sizes, axes)
    if outer:
        value = _transformed(t, value, axes[:-1], outer, norm, True)
    last = axes[-1]
    if size is None:
        size = int64_op(t, "Mul", int64_op(t, "Sub", size_along(t, value[0], last), 1), 2)
    whole = t.tensor(size, INT64)
    spectrum = (_completed(t, value[0], last, whole, "Identity"), _completed(t, value[1], last, whole, "Neg"))
    signal: ir.Value = t.op("Identity", [_transformed(t, spectrum, [last], [None], norm, True)[0]])
    return signal


def _register(names: str, count: int | None) -> None:
    """One, two or any number of axes; the names are those of the four transforms."""
    forward, backward, real, real_back = names.split()

    @op(forward)
    def fft(t: MindirTape, input: ir.Value, n: Any = None, dim: Any = None, norm: Any = None) -> Any:
        return _complex_transform(t, input, n, dim, norm, False, count)

    @op(backward)
    def ifft(t: MindirTape, input: ir.Value, n: Any = None, dim: Any = None, norm: Any = None) -> Any:
        return _complex_transform(t, input, n, dim, norm, True, count)

    @op(real)
    def rfft(t: MindirTape, input: ir.Value, n: Any = None, dim: Any = None, norm: Any = None) -> Any:
        return pair(t, *_real_transform(t, input, n, dim, _norm(t, norm), count))

    @op(real_back)
    def irfft(t: MindirTape, input: ir.Value, n: Any = None, dim: Any = None, norm: Any = None) -> Any:
        return _real_inverse(t, input, n, dim, _norm(t, norm), count)


_register("FFT IFFT RFFT IRFFT", 1)
_register("FFT2 IFFT2 RFFT2 IRFFT2", 2)
_register("FFTN IFFTN RFFTN IRFFTN", None)


@op("HFFT")
def hfft(t: MindirTape, input: ir.Value, n: Any = None, dim: Any = -1, norm: Any = None) -> Any:
    """The real spectrum of a signal whose second half mirrors the first."""
    first, second = parts(t, input)
    mirrored = (first, t.op("Neg", [second], like=second))
    return _real_inverse(t, mirrored, n, dim, SWAPPED[_norm(t, norm)], 1)


@op("IHFFT")
def ihfft(t: MindirTape, input: ir.Value, n: Any = None, dim: Any = -1, norm: Any = None) -> Any:
    first, second = _real_transform(t, input, n, dim, SWAPPED[_norm(t, norm)], 1)
    return pair(t, first, t.op("Neg", [second], like=second))


@op("FFTWithSize")
def fft_with_size(
    t: MindirTape,
    x: ir.Value,
    signal_ndim: Any = None,
    inverse: Any = False,
    real: Any = False,
    norm: Any = "backward",
    onesided: Any = True,
    signal_sizes: Any = (),
) -> Any:
    """The transform of the last axes, in the form of MindSpore before 2.3."""
    count, back, mode = int(t.literal(signal_ndim)), bool(t.literal(inverse)), _norm(t, norm)
    if not t.literal(real):
        return _complex_transform(t, x, None, None, mode, back, count)
    if back:
        sizes = t.literal(signal_sizes) or None
        return _real_inverse(t, x, sizes, None, mode, count)
    if t.literal(onesided):
        return pair(t, *_real_transform(t, x, None, None, mode, count))
    return _complex_transform(t, x, None, None, mode, False, count)


@op("STFT")
def short_time_fourier_transform(
    t: MindirTape,
    x: ir.Value,
    window: ir.Value,
    *,
    n_fft: Any,
    hop_length: Any,
    win_length: Any,
    normalized: Any = False,
    onesided: Any = True,
    return_complex: Any = True,
) -> Any:
    """The spectra of overlapping pieces of a signal: a row for each frequency, a column for each piece."""
    length, step, inner = (int(t.literal(value)) for value in (n_fft, hop_length, win_length))
    signal, dtype = parts(t, x)[0], t.dtype(x)
    if is_complex(x) or is_complex(window):
        t.refuse("complex signals and windows")
    last = int64_op(t, "Sub", size_along(t, signal, t.rank(x) - 1), length)
    starts = int64_op(t, "Mul", positions(t, int64_op(t, "Add", int64_op(t, "Div", last, step), 1)), step)
    places = t.op("Add", [t.op("Unsqueeze", [starts, t.ints(1)]), t.ints(tuple(range(t.bounded(length))))])
    pieces = t.op("Gather", [signal, places], axis=-1, dtype=dtype)
    before = (length - inner) // 2
    shape = t.op("Pad", [t.cast(window, dtype), t.ints((before, length - inner - before))])
    pieces = t.op("Mul", [pieces, shape], dtype=dtype, shape=[None] * (t.rank(x) + 1))
    axis = t.rank(x)
    norm = "ortho" if t.literal(normalized) else "backward"
    spectrum = _transformed(t, parts(t, pieces), [axis], [None], norm, False)
    order = [*range(axis - 1), axis, axis - 1]
    halves = [_halved(t, part, axis) if t.literal(onesided) else part for part in spectrum]
    first, second = (t.op("Transpose", [part], perm=order, dtype=dtype) for part in halves)
    if t.literal(return_complex):
        return pair(t, first, second)
    return t.op("Concat", [t.op("Unsqueeze", [part, t.ints(-1)]) for part in (first, second)], axis=-1)
