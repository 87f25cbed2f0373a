"""ElemwiseMultiType: functions whose result has another dtype than their operands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.formula import Number, call, where
from litehouse.formats.mge.ops.common import wider
from litehouse.formats.mge.ops.elemwise import compute
from litehouse.formats.mge.ops.elemwise_special import floor_div, powers_of_two, rounded_product, truth
from litehouse.formats.mge.quantised import quantise, real, settle
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

FLOAT, INT8, UINT8 = ir.DataType.FLOAT, ir.DataType.INT8, ir.DataType.UINT8
INT16, UINT16, INT32 = ir.DataType.INT16, ir.DataType.UINT16, ir.DataType.INT32

BOOLS: dict[str, Callable[..., Number]] = {
    "EQ": lambda x, y: call("Equal", x, y),
    "ISINF": lambda x: call("IsInf", x),
    "ISNAN": lambda x: call("IsNaN", x),
    "LEQ": lambda x, y: x <= y,
    "LT": lambda x, y: x < y,
    "NEQ": lambda x, y: call("Not", call("Equal", x, y)),
}


def _mul_add_to_int8(x: Number, factor: Number, bias: Number) -> Number:
    """Rounded with halves to even, unlike elsewhere."""
    return call("Clip", call("Round", factor * x.cast(FLOAT) + bias), -128, 127)


def _round_shift(x: Number, bits: Number) -> Number:
    """The operand over 2**bits, rounded half away from zero."""
    if bits.t.is_known(bits.value) and not all(0 <= count <= 30 for count in np.ravel(bits.t.literal(bits.value))):
        bits.t.refuse("a shift by less than 0 or more than 30 bits")
    divisor = powers_of_two(bits)
    quotient = floor_div(x, divisor)
    half = (divisor - 1) / 2 + truth(x < 0, x)
    return quotient + truth(x - quotient * divisor - half > 0, x)


def _saturated(x: Number, dtype: ir.DataType) -> Number:
    limits = np.iinfo(dtype.numpy())
    return call("Clip", x, int(limits.min), int(limits.max))


def _add_product_shift(dtype: ir.DataType) -> Callable[..., Number]:
    def formula(x: Number, bias: Number, factor: Number, bits: Number, low: Number, high: Number) -> Number:
        total = (x + bias).cast(dtype).cast(INT32)  # keeps the lowest bits
        shifted = _saturated(_round_shift(rounded_product(total, factor, dtype), bits), INT8)
        return call("Max", call("Min", shifted, high), low)

    return formula


# The dtypes of the operands, that of the result, and the formula. It gets integers as int32.
WHOLE = (INT8, UINT8, INT16, UINT16, INT32)
SIGNED = (INT8, INT16, INT32)  # MegEngine shifts unsigned numbers to one and the same result
MIXED: dict[str, tuple[Sequence[Sequence[ir.DataType]], ir.DataType, Callable[..., Number]]] = {
    "FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8": (
        [[INT16]] * 3 + [[INT8]] * 3,
        INT8,
        _add_product_shift(INT16),
    ),
    "FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8": (
        [[INT32]] * 3 + [[INT8]] * 3,
        INT8,
        _add_product_shift(INT32),
    ),
    "FUSE_MUL_ADD3_INT16x32x32x32": ([[INT16], [INT32], [INT32]], INT32, lambda x, y, z: x * y + z),
    "FUSE_MUL_ADD3_INT16xF32xF32xF32": ([[INT16], [FLOAT], [FLOAT]], FLOAT, lambda x, y, z: x.cast(FLOAT) * y + z),
    "FUSE_MUL_ADD3_IXxF32xF32xI8": ([WHOLE, [FLOAT], [FLOAT]], INT8, _mul_add_to_int8),
    "FUSE_MUL_ADD3_UINT8xF32xF32xF32": ([[UINT8], [FLOAT], [FLOAT]], FLOAT, lambda x, y, z: x.cast(FLOAT) * y + z),
    "MUL_INT16xF32xF32": ([[INT16], [FLOAT]], FLOAT, lambda x, y: x.cast(FLOAT) * y),
    "ROUND_SHR_SATURATE_IXxI8xI16": ([SIGNED, [INT8]], INT16, lambda x, bits: _saturated(_round_shift(x, bits), INT16)),
    "ROUND_SHR_SATURATE_IXxI8xI8": ([SIGNED, [INT8]], INT8, lambda x, bits: _saturated(_round_shift(x, bits), INT8)),
}

# Quantised modes for which MegEngine has fast code on x86: it multiplies by the inverse of the result's scale, where it
# divides by the scale otherwise. That decides where a result lies half way between two integers.
_FAST = """
RELU ABS SIGMOID FAST_TANH H_SWISH EXP ADD SUB MUL MIN MAX FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_H_SWISH FUSE_MUL_ADD3
"""
_PARTIAL = "ACOS ASIN ATAN2 ERFCINV ERFINV FLOOR_DIV LOG LOG1P MOD POW TRUE_DIV"
FAST, FAST_WIDE = frozenset(_FAST.split()), frozenset({"RELU", "H_SWISH", "ADD", "FUSE_ADD_RELU", "FUSE_ADD_H_SWISH"})
PARTIAL = frozenset(_PARTIAL.split())  # quantised modes that have no result for some numbers
FAST_DTYPES = {
    ("QuantizedS8", "QuantizedS8"): FAST,
    ("Quantized8Asymm", "Quantized8Asymm"): FAST,
    ("QuantizedS32", "QuantizedS8"): FAST_WIDE,
    ("QuantizedS32", "Quantized8Asymm"): FAST_WIDE,
}


@op("ElemwiseMultiType", quantised=True)
def elemwise_multi_type(t: MgeTape, *operands: ir.Value, mode: str) -> Any:
    """A function of numbers, element by element; the operands are broadcast to each other."""
    if mode.startswith("Q"):
        return _quantised(t, mode[1:], operands)
    if any(t.quantised(value) for value in operands):
        t.refuse("quantised operands")
    return _bool(t, mode, operands) if mode in BOOLS else _mixed(t, mode, operands)


def _bool(t: MgeTape, mode: str, operands: Sequence[ir.Value]) -> ir.Value:
    _check_count(t, operands, 1 if mode.startswith("IS") else 2)
    if len({t.dtype(value) for value in operands}) > 1:
        t.refuse("operands of different dtypes")
    if mode.startswith("IS") and not t.dtype(operands[0]).is_floating_point():
        t.refuse(f"an operand of dtype {t.dtype(operands[0]).name}")
    return BOOLS[mode](*_widened(t, operands)).value


def _mixed(t: MgeTape, mode: str, operands: Sequence[ir.Value]) -> ir.Value:
    wanted, dtype, formula = MIXED[mode]
    _check_count(t, operands, len(wanted))
    for value, expected in zip(operands, wanted, strict=True):
        if t.dtype(value) not in expected:
            t.refuse(f"an operand of dtype {t.dtype(value).name}")
    return formula(*_widened(t, operands)).cast(dtype).value


def _check_count(t: MgeTape, operands: Sequence[ir.Value], wanted: int) -> None:
    if len(operands) != wanted:
        t.refuse(f"{len(operands)} operands instead of {wanted}")


def _widened(t: MgeTape, operands: Sequence[ir.Value]) -> list[Number]:
    return [Number(t, value).cast(wider(t.dtype(value))) for value in operands]


def _quantised(t: MgeTape, mode: str, operands: Sequence[ir.Value]) -> ir.Value:
    """A function of the real numbers."""
    dtype = t.output_dtype
    dtypes = [found for value in operands if (found := t.quantised(value)) is not None]
    if dtype is None or not dtype.is_quantised or len(dtypes) < len(operands):
        t.refuse("operands or a result that are not quantised")
    if len({found.name for found in dtypes}) != 1:
        t.refuse("operands of different quantised dtypes")
    numbers = [real(t, value) for value in operands]
    if mode in ("ATAN2", "TRUE_DIV"):  # the integer 0 has no sign, as the float of a rounded number may have
        numbers = [where(call("Equal", number, 0), 0, number).value for number in (Number(t, x) for x in numbers)]
    result = compute(t, mode, numbers)
    if mode in PARTIAL:  # what is no number becomes the smallest one
        number = Number(t, result)
        result = where(call("IsNaN", number), float("-inf"), number).value
    if mode in FAST_DTYPES.get((dtypes[0].name, dtype.name), ()) and _is_fast(t, operands, result):
        return settle(t, t.op("Mul", [result, t.constant(np.float32(1) / np.float32(dtype.scale))]), dtype)
    return quantise(t, result, dtype)


def _is_fast(t: MgeTape, operands: Sequence[ir.Value], result: ir.Value) -> bool:
    """Whether MegEngine's fast code knows how the operands are broadcast."""
    patterns = [_pattern(t, value, result) for value in operands]
    whole = [not pattern.strip("F") for pattern in patterns]
    one = [not pattern.strip("B") for pattern in patterns]
    channels = [re.fullmatch("B*F+B+", pattern) is not None for pattern in patterns]
    if len(operands) == 3:
        first, second, third = whole
        return (first and second and (third or one[2])) or (channels[0] and second and channels[2])
    return any(whole) and all(w or o or c for w, o, c in zip(whole, one, channels, strict=True))


def _pattern(t: MgeTape, operand: ir.Value, result: ir.Value) -> str:
    """For each axis of the result: F where the operand has it in full, B where it is broadcast."""
    wanted, given = t.known_sizes(result), t.known_sizes(operand)
    given = (1,) * (len(wanted) - len(given)) + given
    return "".join("F" if a == b else "B" for a, b in zip(given, wanted, strict=True) if b != 1)
