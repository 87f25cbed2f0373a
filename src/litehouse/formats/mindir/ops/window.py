"""Windows of signals, frequencies, and correlation."""

import math
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.common import axis_of, int64_op, positions
from litehouse.formats.mindir.ops.formula import Formula
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
CORRELATION_MODES = {1: "same", 2: "valid", 3: "full"}


def _turns(t: MindirTape, length: Any, periodic: Any) -> tuple[Formula, ir.Value, ir.Value]:
    """The places in a window as parts of its length, and the number of them."""
    m = Formula(t)
    count = t.op("Squeeze", [t.ints(length)], dtype=INT64)
    # A window of one place is 1, whatever its shape.
    whole = int64_op(t, "Max", count if t.literal(periodic) else int64_op(t, "Sub", count, 1), 1)
    return m, m("Div", t.cast(positions(t, count), m.dtype), t.cast(whole, m.dtype)), count


def _finished(m: Formula, window: ir.Value, count: ir.Value) -> ir.Value:
    alone = m.t.op("Equal", [count, m.t.constant(1, INT64)])
    return m.result(m.where(alone, 1, window))


def _cosine(m: Formula, part: ir.Value, times: int) -> ir.Value:
    return m("Cos", m("Mul", part, 2 * math.pi * times))


@op("BartlettWindow")
def bartlett_window(t: MindirTape, window_length: Any, *, periodic: Any = True, dtype: Any = None) -> Any:
    m, part, count = _turns(t, window_length, periodic)
    twice = m("Mul", part, 2)
    return _finished(m, m("Min", twice, m("Sub", 2, twice)), count)


@op("BlackmanWindow")
def blackman_window(t: MindirTape, window_length: Any, *, periodic: Any = True, dtype: Any = None) -> Any:
    m, part, count = _turns(t, window_length, periodic)
    waves = m("Sub", m("Mul", _cosine(m, part, 2), 0.08), m("Mul", _cosine(m, part, 1), 0.5))
    return _finished(m, m("Add", waves, 0.42), count)


@op("HammingWindow")
def hamming_window(
    t: MindirTape, length: Any, *, periodic: Any = True, alpha: Any = 0.54, beta: Any = 0.46, dtype: Any = None
) -> Any:
    m, part, count = _turns(t, length, periodic)
    wave = m("Mul", _cosine(m, part, 1), float(t.literal(beta)))
    return _finished(m, m("Sub", float(t.literal(alpha)), wave), count)


# Frequencies ---------------------------------------------------------------------------------------------------------


@op("FFTFreq")
def fft_frequencies(t: MindirTape, n: Any, d: Any = 1.0, dtype: Any = None) -> Any:
    return t.constant(np.fft.fftfreq(t.bounded(t.literal(n)), t.literal(d)), t.result_dtype())


@op("RFFTFreq")
def rfft_frequencies(t: MindirTape, n: Any, d: Any = 1.0, dtype: Any = None) -> Any:
    return t.constant(np.fft.rfftfreq(t.bounded(t.literal(n)), t.literal(d)), t.result_dtype())


def _shifted(t: MindirTape, x: ir.Value, dim: Any, surplus: int) -> ir.Value:
    """The value with its second half first along axes; of an odd size, `surplus` more go to the end."""
    axes = range(t.rank(x)) if dim is None else np.atleast_1d(t.literal(dim))
    for axis in (axis_of(t, int(item), t.rank(x)) for item in axes):
        size = t.op("Shape", [x], start=axis, end=axis + 1, dtype=INT64)
        half = t.op("Div", [t.op("Add", [size, t.ints(surplus)]), t.ints(2)])
        pieces = [t.op("Slice", [x, *ends, t.ints(axis)]) for ends in ((half, size), (t.ints(0), half))]
        x = t.op("Concat", pieces, axis=axis, like=x)
    return x


@op("FFTShift")
def fft_shift(t: MindirTape, input: ir.Value, dim: Any = None) -> Any:
    return _shifted(t, input, dim, 1)


@op("IFFTShift")
def ifft_shift(t: MindirTape, input: ir.Value, dim: Any = None) -> Any:
    return _shifted(t, input, dim, 0)


@op("Correlate")
def correlate(t: MindirTape, a: ir.Value, v: ir.Value, pad_mode: Any = "valid") -> Any:
    """The products of a signal with a shorter one at every shift; the order is turned where the second is longer."""
    mode = t.literal(pad_mode)
    mode = CORRELATION_MODES.get(mode, mode)
    if mode not in CORRELATION_MODES.values():
        t.refuse(f"pad mode {mode!r}")
    m, (count,), (other,) = Formula(t), t.sizes(a), t.sizes(v)
    long, short = m.operands(*((a, v) if count >= other else (v, a)))
    width = min(count, other)
    pads = {"full": (width - 1, width - 1), "valid": (0, 0), "same": (width // 2, (width - 1) // 2)}[str(mode)]
    signal, kernel = (t.op("Unsqueeze", [value, t.ints((0, 1))]) for value in (long, short))
    made = t.op("Squeeze", [t.op("Conv", [signal, kernel], pads=pads), t.ints((0, 1))], dtype=m.dtype)
    if count < other:
        made = t.op("Slice", [made, t.ints(-1), t.ints(-(2**31)), t.ints(0), t.ints(-1)], dtype=m.dtype)
    return m.result(made)
