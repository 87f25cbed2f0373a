"""Arithmetic of Python numbers: folded where they are in the file, nodes where they are known when the model runs."""

import math
import operator
from collections.abc import Callable
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

Fold = Callable[..., Any]
LARGEST = 2**63 - 1


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and abs(base) > 1 and exponent > 64:
        raise OverflowError(f"{base} to the power of {exponent} is out of range")
    return base**exponent


# MindIR names: what it does to numbers, and the ONNX op that does it to run-time ones.
ARITHMETIC: dict[tuple[str, ...], tuple[Fold, str]] = {
    ("ScalarAdd",): (operator.add, "Add"),
    ("ScalarSub",): (operator.sub, "Sub"),
    ("ScalarMul",): (operator.mul, "Mul"),
    ("ScalarPow",): (_power, "Pow"),
    ("ScalarMax",): (max, "Max"),
    ("ScalarMin",): (min, "Min"),
    ("bit_and",): (operator.and_, "BitwiseAnd"),
    ("bit_or",): (operator.or_, "BitwiseOr"),
    ("bit_xor",): (operator.xor, "BitwiseXor"),
}
COMPARISONS: dict[tuple[str, ...], tuple[Fold, str]] = {
    ("ScalarEq", "scalar_eq", "bool_eq"): (operator.eq, "Equal"),
    ("ScalarLt", "scalar_lt"): (operator.lt, "Less"),
    ("ScalarLe", "scalar_le"): (operator.le, "LessOrEqual"),
    ("ScalarGt", "scalar_gt"): (operator.gt, "Greater"),
    ("ScalarGe", "scalar_ge"): (operator.ge, "GreaterOrEqual"),
}
LOGIC: dict[tuple[str, ...], tuple[Fold, str]] = {
    ("bool_and",): (lambda x, y: bool(x) and bool(y), "And"),
    ("bool_or",): (lambda x, y: bool(x) or bool(y), "Or"),
}


def _is_number(*values: Any) -> bool:
    return all(isinstance(value, bool | int | float) for value in values)


def _folded(t: MindirTape, fold: Fold, *numbers: Any) -> Any:
    """The result for numbers in the file, which must be one that MindSpore could have: no integer of any length."""
    try:
        result = fold(*numbers)
    except ZeroDivisionError:
        t.refuse("a number is divided by zero")
    if isinstance(result, complex) or (isinstance(result, int) and abs(result) > LARGEST):
        t.refuse(f"the number {result} is out of range")
    return result


def _arithmetic(fold: Fold, onnx_op: str) -> Fold:
    def convert(t: MindirTape, x: Any, y: Any) -> Any:
        return _folded(t, fold, x, y) if _is_number(x, y) else t.op(onnx_op, t.promote(x, y))

    return convert


def _comparison(fold: Fold, onnx_op: str) -> Fold:
    def convert(t: MindirTape, x: Any, y: Any) -> Any:
        return bool(fold(x, y)) if _is_number(x, y) else t.op(onnx_op, t.operands(x, y))

    return convert


for table, maker in ((ARITHMETIC, _arithmetic), (COMPARISONS, _comparison), (LOGIC, _arithmetic)):
    for _names, (_fold, _onnx_op) in table.items():
        op(*_names)(maker(_fold, _onnx_op))


@op("scalar_ne")
def scalar_ne(t: MindirTape, x: Any, y: Any) -> Any:
    return x != y if _is_number(x, y) else t.op("Not", [t.op("Equal", t.operands(x, y))])


@op("ScalarDiv", "ScalarRealDiv")
def scalar_div(t: MindirTape, x: Any, y: Any) -> Any:
    return _folded(t, operator.truediv, x, y) if _is_number(x, y) else t.op("Div", t.promote(x, y))


@op("ScalarFloorDiv", "ScalarFloordiv")
def scalar_floor_div(t: MindirTape, x: Any, y: Any) -> Any:
    if _is_number(x, y):
        return _folded(t, operator.floordiv, x, y)
    a, b = t.promote(x, y)
    if t.result_dtype().is_integer():
        return t.op("Div", [t.op("Sub", [a, t.op("Mod", [a, b])]), b])
    return t.op("Floor", [t.op("Div", [a, b])])


@op("ScalarMod")
def scalar_mod(t: MindirTape, x: Any, y: Any) -> Any:
    if _is_number(x, y):
        return _folded(t, operator.mod, x, y)
    if not t.result_dtype().is_integer():
        t.refuse("the remainder of floating point numbers that are computed when the model runs")
    return t.op("Mod", t.promote(x, y))


@op("ScalarUsub")
def scalar_usub(t: MindirTape, x: Any) -> Any:
    return -x if _is_number(x) else t.op("Neg", t.promote(x))


@op("ScalarUadd")
def scalar_uadd(t: MindirTape, x: Any) -> Any:
    return x


@op("ScalarLog")
def scalar_log(t: MindirTape, x: Any) -> Any:
    return math.log(x) if _is_number(x) else t.op("Log", t.promote(x))


@op("ScalarFloor")
def scalar_floor(t: MindirTape, x: Any) -> Any:
    return float(math.floor(x)) if _is_number(x) else t.op("Floor", t.promote(x))


@op("ScalarBool")
def scalar_bool(t: MindirTape, x: Any) -> Any:
    return bool(x) if _is_number(x) else t.cast(x, ir.DataType.BOOL)


@op("BoolNot", "bool_not", "ScalarBoolNot")
def bool_not(t: MindirTape, x: Any) -> Any:
    return not x if _is_number(x) else t.op("Not", [t.cast(x, ir.DataType.BOOL)])


@op("ScalarCast")
def scalar_cast(t: MindirTape, input_x: Any, input_y: Any) -> Any:
    target = t.type_id(input_y)
    if not _is_number(input_x):
        return t.tensor(input_x, target)
    if target == ir.DataType.BOOL:
        return bool(input_x)
    return int(input_x) if target.is_integer() else float(input_x)


@op("SequenceMax")
def sequence_max(t: MindirTape, sequence: Any) -> Any:
    return max(sequence) if _is_number(*sequence) else t.op("Max", t.promote(*sequence))


@op("SequenceMin")
def sequence_min(t: MindirTape, sequence: Any) -> Any:
    return min(sequence) if _is_number(*sequence) else t.op("Min", t.promote(*sequence))
