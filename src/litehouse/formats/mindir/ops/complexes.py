"""Complex numbers inside a network: pairs of real tensors.

Engines have no complex dtypes. A complex value is the output of a `Pair` node, which no engine ever sees: each op that
takes the value takes the two inputs of the node instead, and the node itself is then used by nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.literals import TensorType, Type

# What is extended below must be registered first.
from litehouse.formats.mindir.ops import arithmetic, array, index, linear, reduction, unary  # noqa: F401
from litehouse.formats.mindir.registry import CONVERTERS, Function, op
from litehouse.formats.mindir.tape import MindirTape

FLOAT, DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE
REAL = {ir.DataType.COMPLEX64: FLOAT, ir.DataType.COMPLEX128: DOUBLE}
COMPLEX = {FLOAT: ir.DataType.COMPLEX64, DOUBLE: ir.DataType.COMPLEX128}
DOMAIN = "litehouse.complex"
PRODUCT = CONVERTERS["Mul"].function  # of real numbers
Handler = Callable[[MindirTape, Function, Sequence[Any], Mapping[str, Any]], Any]


def is_complex(value: Any) -> bool:
    """Whether a value is complex, or an item of a tuple is."""
    if isinstance(value, tuple | list):
        return any(is_complex(item) for item in value)
    return isinstance(value, ir.Value) and value.dtype in REAL


def pair(t: MindirTape, real: ir.Value, imaginary: ir.Value) -> ir.Value:
    """The complex value of two real ones."""
    value: ir.Value = t.op("Pair", [real, imaginary], domain=DOMAIN, like=real, dtype=COMPLEX[t.dtype(real)])
    return value


def parts(t: MindirTape, value: Any) -> tuple[ir.Value, ir.Value]:
    """The real and the imaginary part of a value or literal."""
    if not is_complex(value):
        real = t.tensor(value, DOUBLE if isinstance(value, ir.Value) and value.dtype == DOUBLE else FLOAT)
        zero = t.constant(0, real.dtype)
        return real, zero if t.is_literal(value) else t.op("Expand", [zero, t.op("Shape", [real])], like=real)
    node = value.producer()
    if node is None and value.const_value is not None and value in t.constants:
        numbers = value.const_value.numpy()
        return t.constant(numbers.real, REAL[t.dtype(value)]), t.constant(numbers.imag, REAL[t.dtype(value)])
    if node is None or node.domain != DOMAIN:
        t.refuse("complex inputs and weights")
    real, imaginary = node.inputs
    for part in (real, imaginary):
        part.shape = value.shape if part.shape is None else part.shape
    return real, imaginary


@op("Complex")
def complex_(t: MindirTape, real: ir.Value, imag: ir.Value) -> Any:
    return pair(t, real, imag)


@op("Polar")
def polar(t: MindirTape, abs: ir.Value, angle: ir.Value) -> Any:
    waves = [t.op(name, [angle], like=angle) for name in ("Cos", "Sin")]
    return pair(t, *(t.op("Mul", [abs, wave], like=angle) for wave in waves))


@op("Real")
def real(t: MindirTape, input: ir.Value) -> Any:
    return t.op("Identity", [parts(t, input)[0]])


@op("Imag")
def imag(t: MindirTape, input: ir.Value) -> Any:
    return t.op("Identity", [parts(t, input)[1]])


@op("Conj")
def conj(t: MindirTape, input: ir.Value) -> Any:
    if not is_complex(input):
        return t.op("Identity", [input])
    first, second = parts(t, input)
    return pair(t, first, t.op("Neg", [second], like=second))


@op("ConjugateTranspose")
def conjugate_transpose(t: MindirTape, x: ir.Value, perm: Any) -> Any:
    turned = CONVERTERS["Transpose"](t, [x, perm], {})
    return conj(t, turned)


@op("Angle")
def angle(t: MindirTape, input: ir.Value) -> Any:
    if not is_complex(input):
        t.refuse("the angle of real numbers")
    first, second = parts(t, input)
    return arithmetic.atan2(t, second, first)


@op("ComplexAbs")
def complex_abs(t: MindirTape, x: ir.Value) -> Any:
    return arithmetic.hypot(t, *parts(t, x))


# Forms of other ops for complex operands -----------------------------------------------------------------------------


def _real_type(type_: Type) -> Any:
    """A recorded type with real dtypes for complex ones."""
    if isinstance(type_, tuple):
        return tuple(_real_type(item) for item in type_)
    return replace(type_, dtype=REAL.get(type_.dtype, type_.dtype)) if isinstance(type_, TensorType) else type_


def _computed(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What an op gives for real operands, in the real dtype of its recorded result."""
    recorded = t.expected
    t.expected = _real_type(recorded)
    result = function(t, *operands, **named)
    for value, type_ in zip(_items(result), _items(t.expected), strict=False):
        value.dtype = type_.dtype
        value.shape = None if type_.shape is None else ir.Shape(type_.shape)
    t.expected = recorded
    return result


def _items(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _half(t: MindirTape, value: Any, place: int) -> Any:
    """One part of the complex values in an operand; what is real stays."""
    if isinstance(value, tuple | list):
        return tuple(_half(t, item, place) for item in value)
    return parts(t, value)[place] if is_complex(value) else value


def _partwise(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Both parts for themselves: ops that only move values, or add values of one operand."""
    halves = [_computed(t, function, [_half(t, value, place) for value in operands], named) for place in (0, 1)]
    pairs = tuple(pair(t, *items) for items in zip(*map(_items, halves), strict=True))
    return pairs if isinstance(halves[0], tuple) else pairs[0]


def _additive(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    first, second = (parts(t, value) for value in operands)
    return pair(t, *(_computed(t, function, both, named) for both in zip(first, second, strict=True)))


def _multiplied(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """A product of two operands."""
    (a, b), (c, d) = (parts(t, value) for value in operands[:2])

    def product(first: ir.Value, second: ir.Value) -> Any:
        return _computed(t, function, [first, second, *operands[2:]], named)

    ac, bd, ad, bc = product(a, c), product(b, d), product(a, d), product(b, c)
    return pair(t, t.op("Sub", [ac, bd], like=ac), t.op("Add", [ad, bc], like=ac))


def _divided(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The product with the conjugate of the divisor, over its square."""
    c, d = parts(t, operands[1])
    square = t.op("Add", [t.op("Mul", [c, c]), t.op("Mul", [d, d])], like=c)
    turned = pair(t, c, t.op("Neg", [d], like=d))
    above = parts(t, _multiplied(t, PRODUCT, [operands[0], turned], {}))
    return pair(t, *(_computed(t, function, [part, square], named) for part in above))


def _size(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The absolute value, which MindSpore states as a complex number too."""
    size = _computed(t, arithmetic.hypot, parts(t, operands[0]), {})
    zero = t.constant(0, size.dtype)
    return pair(t, size, t.op("Expand", [zero, t.op("Shape", [size])], like=size))


def _exponential(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    first, second = parts(t, operands[0])
    return polar(t, t.op("Exp", [first], like=first), second)


def _cast(t: MindirTape, function: Function, operands: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """To complex numbers, whose imaginary part is 0; or back, which drops that part."""
    if t.result_dtype() in REAL:
        return pair(t, *(t.cast(part, REAL[t.result_dtype()]) for part in parts(t, operands[0])))
    return function(t, parts(t, operands[0])[0], *operands[1:], **named)


FORMS: dict[Handler, str] = {
    _partwise: """Reshape Transpose StridedSlice Slice Concat ExpandDims Squeeze Stack StackExt Unstack Split Gather
        GatherD Tile BroadcastTo ReverseV2 Roll Flatten FlattenExt Neg ReduceSum ReduceMean SumExt MeanExt IndexSelect
        TransposeExtView TransposeView ExpandDimsView""",
    _additive: "Add Sub",
    _multiplied: "Mul Muls MatMul BatchMatMul MatMulExt BatchMatMulExt",
    _divided: "Div RealDiv Divs",
    _size: "Abs",
    _exponential: "Exp",
    _cast: "Cast",
}


def _extended(function: Function, handler: Handler) -> Function:
    @wraps(function)
    def convert(t: MindirTape, *operands: Any, **named: Any) -> Any:
        if is_complex(operands) or (isinstance(t.expected, TensorType) and t.expected.dtype in REAL):
            return handler(t, function, operands, named)
        return function(t, *operands, **named)

    return convert


for _handler, _names in FORMS.items():
    for _name in _names.split():
        _converter = CONVERTERS[_name]
        CONVERTERS[_name] = replace(_converter, function=_extended(_converter.function, _handler))
