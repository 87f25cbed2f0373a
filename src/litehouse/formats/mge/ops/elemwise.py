"""Elemwise: functions of one to four operands, element by element, found by the names of their modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mge.formula import Number, call, where
from litehouse.formats.mge.ops import elemwise_special as special
from litehouse.formats.mge.ops.common import bools_behind, wider
from litehouse.formats.mge.ops.elemwise_special import is_float, truth
from litehouse.formats.mge.records import DType
from litehouse.formats.mge.registry import op
from litehouse.formats.mge.tape import MgeTape

BOOL, FLOAT = ir.DataType.BOOL, ir.DataType.FLOAT
Mode = str | Callable[..., Number]


def relu(x: Number) -> Number:
    """The operand where it is positive, 0 elsewhere."""
    return call("Relu", x) if is_float(x) else call("Max", x, 0)


def switch(x: Number, y: Number) -> Number:
    """The second operand where the first is positive, 0 elsewhere."""
    bools = bools_behind(x.value)
    return where(x > 0 if bools is None else Number(x.t, bools), y, 0)


# An ONNX op, or the formula.
UNARY: dict[str, Mode] = {
    "ABS": "Abs",
    "ACOS": "Acos",
    "ACOSH": "Acosh",
    "ASIN": "Asin",
    "ASINH": "Asinh",
    "ATANH": "Atanh",
    "CEIL": "Ceil",
    "COS": "Cos",
    "COSH": "Cosh",
    "ERF": "Erf",
    "ERFC": special.erfc,
    "ERFCINV": special.erfcinv,
    "ERFINV": special.erfinv,
    "EXP": "Exp",
    "EXPM1": lambda x: call("Exp", x) - 1,
    "FAST_TANH": lambda x: x * (x * x + 27) / (x * x * 9 + 27),
    "FLOOR": "Floor",
    "GELU": "Gelu",
    "HSIGMOID": lambda x: call("HardSigmoid", x, alpha=1 / 6, beta=0.5),
    "H_SWISH": "HardSwish",
    "ISINF": lambda x: truth(call("IsInf", x), x),
    "ISNAN": lambda x: truth(call("IsNaN", x), x),
    "LOG": "Log",
    "LOG1P": lambda x: call("Log", x + 1),
    "LOGSIGMOID": lambda x: -call("Softplus", -x),
    "NEGATE": "Neg",
    "NOT": "Not",
    "RELU": relu,
    "RELU6": lambda x: call("Clip", x, 0, 6),
    "ROUND": special.rounded,
    "SIGMOID": "Sigmoid",
    "SIGN": "Sign",
    "SILU": lambda x: x * call("Sigmoid", x),
    "SIN": "Sin",
    "SINH": "Sinh",
    "SOFTPLUS": "Softplus",
    "SQRT": "Sqrt",
    "SQUARE": lambda x: x * x,
    "TAN": "Tan",
    "TANH": "Tanh",
}
BINARY: dict[str, Mode] = {
    "ADD": "Add",
    "AND": "And",
    "ATAN2": special.atan2,
    "EQ": lambda x, y: truth(call("Equal", x, y), x),
    "FLOOR_DIV": special.floor_div,
    "FUSE_ADD_H_SWISH": lambda x, y: call("HardSwish", x + y),
    "FUSE_ADD_RELU": lambda x, y: relu(x + y),
    "FUSE_ADD_SIGMOID": lambda x, y: call("Sigmoid", x + y),
    "FUSE_ADD_TANH": lambda x, y: call("Tanh", x + y),
    "LEQ": lambda x, y: truth(x <= y, x),
    "LOG_SUM_EXP": lambda x, y: call("Softplus", x - y) + y,
    "LT": lambda x, y: truth(x < y, x),
    "MAX": "Max",
    "MIN": "Min",
    "MOD": special.mod,
    "MUL": "Mul",
    "NEQ": lambda x, y: truth(call("Not", call("Equal", x, y)), x),
    "OR": "Or",
    "POW": special.power,
    "PRELU": special.prelu,
    "RMULH": special.rounded_product,
    "SHL": special.shift_left,
    "SHR": special.shift_right,
    "SUB": "Sub",
    "SWITCH_GT0": switch,
    "TRUE_DIV": "Div",
    "XOR": "Xor",
    **special.GRADIENTS,
}
TERNARY: dict[str, Mode] = {
    "CLIP": special.clip,
    "COND_LEQ_MOV": lambda x, y, z: where(x <= y, z, 0),
    "COND_LT_MOV": lambda x, y, z: where(x < y, z, 0),
    "FUSE_MUL_ADD3": lambda x, y, z: x * y + z,
    "PRELU_GRAD": lambda x, y, z: where(x >= 0, y, y * z),
}
QUATERNARY: dict[str, Mode] = {"FUSE_MUL_ADD4": lambda x, y, z, w: x * y + z * w}
MODES = (UNARY, BINARY, TERNARY, QUATERNARY)

# All modes take floats but those of LOGIC and WHOLE. These take integers, too:
_INTEGERS = """
ABS NEGATE RELU RELU6 SIGN SQUARE ADD SUB MUL MAX MIN FLOOR_DIV MOD LT LEQ EQ NEQ SWITCH_GT0 PRELU FUSE_ADD_RELU
ABS_GRAD SIGMOID_GRAD TANH_GRAD CLIP COND_LEQ_MOV COND_LT_MOV FUSE_MUL_ADD3 FUSE_MUL_ADD4
"""
# What float16 is too short for on the way to the result:
_LONG = "ATAN2 ERFC ERFCINV ERFINV EXPM1 FAST_TANH LOG1P LOGSIGMOID LOG_SUM_EXP PRELU_GRAD"
INTEGERS, LONG = frozenset(_INTEGERS.split()), frozenset(_LONG.split()) | frozenset(special.GRADIENTS)
WHOLE = frozenset({"RMULH", "SHL", "SHR"})  # for integers alone
LOGIC = frozenset({"NOT", "AND", "OR", "XOR"})  # for bools alone
TRUTHS = frozenset({"LT", "LEQ", "EQ", "NEQ"})  # bools can be compared
# On quantised operands of one dtype MegEngine computes these, with the integers as they are.
QUANTISED = frozenset({"ADD", "SUB", "NEGATE", "RELU", "MAX", "MIN"})


def compute(t: MgeTape, mode: str, operands: Sequence[ir.Value]) -> ir.Value:
    """A mode on plain numbers of one dtype, which the result has too."""
    formula = MODES[len(operands) - 1].get(mode) if 0 < len(operands) <= len(MODES) else None
    dtype = t.dtype(operands[0])
    if formula is None:
        t.refuse(f"mode {mode} with {len(operands)} operands")
    if any(t.dtype(value) != dtype for value in operands):
        t.refuse(f"operands of different dtypes: {', '.join(t.dtype(value).name for value in operands)}")
    if not _takes(mode, dtype):
        t.refuse(f"operands of dtype {dtype.name}")
    inside = dtype if mode in LOGIC else FLOAT if mode in LONG and dtype.is_floating_point() else wider(dtype)
    numbers = [Number(t, value).cast(inside) for value in operands]
    if mode == "RMULH":
        result = special.rounded_product(numbers[0], numbers[1], dtype)
    else:
        result = call(formula, *numbers) if isinstance(formula, str) else formula(*numbers)
    return result.cast(dtype).value


def _takes(mode: str, dtype: ir.DataType) -> bool:
    if dtype == BOOL:
        return mode in LOGIC | TRUTHS
    if dtype.is_floating_point():
        return mode not in LOGIC | WHOLE
    return mode in INTEGERS | WHOLE


@op("Elemwise", quantised=True)
def elemwise(t: MgeTape, *operands: ir.Value, mode: str) -> Any:
    """A function of numbers, element by element; the operands are broadcast to each other."""
    if not operands:
        t.refuse("it has no operands")
    dtype = t.quantised(operands[0])
    if len({_plain(t.quantised(value)) for value in operands}) > 1:
        t.refuse("operands of different quantised dtypes")
    if dtype is None:
        return compute(t, mode, operands)
    if mode not in QUANTISED or dtype.name not in ("QuantizedS8", "QuantizedS32"):
        t.refuse(f"operands of dtype {dtype.name}")
    if dtype.name == "QuantizedS32":
        return t.as_quantised(compute(t, mode, operands), dtype)
    integers = [t.cast(value, ir.DataType.INT8) for value in operands]
    return t.as_quantised(t.cast(compute(t, mode, integers), FLOAT), dtype)


def _plain(dtype: DType | None) -> tuple[str, float, int] | None:
    """What makes a quantised dtype; the scale in float32, as MegEngine has those of products."""
    return None if dtype is None else (dtype.name, float(np.float32(dtype.scale)), dtype.zero_point)
