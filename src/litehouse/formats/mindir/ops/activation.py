"""Activation functions."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.literals import TensorType
from litehouse.formats.mindir.ops.common import through
from litehouse.formats.mindir.registry import Function, op
from litehouse.formats.mindir.tape import MindirTape

GELU_FORMS = {0: "none", 1: "tanh", "none": "none", "tanh": "tanh"}


def floating(t: MindirTape, x: ir.Value) -> ir.Value:
    """The operand as a float: an integer one in the result's dtype."""
    if t.dtype(x).is_floating_point():
        return x
    if not t.result_dtype().is_floating_point():
        t.refuse(f"{t.dtype(x).name} operands are not supported")
    return t.cast(x, t.result_dtype())


# Rectifiers and bounds ------------------------------------------------------------------------------------------------


@op("InplaceReLU", writes=True)
@op("ReLU", "ReLUV3")
def relu(t: MindirTape, input: ir.Value) -> Any:
    if t.dtype(input).is_floating_point():
        return through(t, "Relu", [input])
    return through(t, "Max", [input, t.constant(0, t.dtype(input))])


@op("ReLUV2")
def relu_v2(t: MindirTape, input_x: ir.Value) -> Any:
    return (relu(t, input_x), None)  # the mask is packed bits in a private layout, for training


@op("ReLU6")
def relu6(t: MindirTape, x: ir.Value) -> Any:
    return clamp(t, x, 0, 6)


@op("LeakyReLUExt")
def leaky_relu(t: MindirTape, input: ir.Value, negative_slope: Any = 0.01) -> Any:
    return through(t, "LeakyRelu", [floating(t, input)], alpha=float(t.literal(negative_slope)))


@op("PReLU")
def prelu(t: MindirTape, input: ir.Value, weight: ir.Value) -> Any:
    trailing = t.rank(input) - 2
    if trailing > 0:
        weight = t.op("Reshape", [weight, t.ints((-1,) + (1,) * trailing)], dtype=weight.dtype)
    return through(t, "PRelu", [input, weight])


@op("InplaceThreshold", writes=True)
@op("Threshold")
def threshold(t: MindirTape, input: ir.Value, threshold: Any, value: Any) -> Any:
    x, limit, other = t.promote(input, threshold, value)
    return t.op("Where", [t.op("Greater", [x, limit]), x, other])


@op("InplaceClampScalar", "InplaceClampTensor", writes=True)
@op("ClampScalar", "ClampTensor")
def clamp(t: MindirTape, input: ir.Value, min: Any = None, max: Any = None) -> Any:
    (x,) = t.promote(input)
    lower, upper = (None if bound is None else t.promote(bound)[0] for bound in (min, max))
    if _is_interval(lower, upper):
        return through(t, "Clip", [x, lower, upper])
    if lower is not None:
        x = through(t, "Max", [x, lower])
    if upper is not None:
        x = through(t, "Min", [x, upper])  # last: where the bounds cross, this one wins
    return x


def _is_interval(lower: ir.Value | None, upper: ir.Value | None) -> bool:
    """Whether the bounds are constant numbers in order, which engines fuse with what comes before."""
    numbers = []
    for bound in (lower, upper):
        if bound is None:
            continue
        if bound.const_value is None or bound.const_value.shape.rank() != 0:
            return False
        numbers.append(bound.const_value.numpy())
    return numbers == sorted(numbers)


@op("InplaceHardtanh", writes=True)
@op("Hardtanh")
def hardtanh(t: MindirTape, input: ir.Value, min_val: Any = -1, max_val: Any = 1) -> Any:
    return clamp(t, input, min_val, max_val)


@op("HShrink")
def hard_shrink(t: MindirTape, input: ir.Value, lambd: Any = 0.5) -> Any:
    return through(t, "Shrink", [input], lambd=float(t.literal(lambd)), bias=0.0)


@op("SoftShrink")
def soft_shrink(t: MindirTape, input: ir.Value, lambd: Any = 0.5) -> Any:
    return through(t, "Shrink", [input], lambd=float(t.literal(lambd)), bias=float(t.literal(lambd)))


# Smooth ones ----------------------------------------------------------------------------------------------------------


def _single_node(op_type: str, **attributes: Any) -> Function:
    def convert(t: MindirTape, input: ir.Value) -> Any:
        return through(t, op_type, [floating(t, input)], **attributes)

    return convert


op("InplaceSigmoid", writes=True)(op("Sigmoid")(_single_node("Sigmoid")))
op("InplaceTanh", writes=True)(op("Tanh")(_single_node("Tanh")))
op("Softsign")(_single_node("Softsign"))
op("Softplus")(_single_node("Softplus"))
op("Mish", "MishExt")(_single_node("Mish"))
op("SeLU", "SeLUExt")(_single_node("Selu"))
op("HSwish")(_single_node("HardSwish"))
op("HSigmoid")(_single_node("HardSigmoid", alpha=1 / 6, beta=0.5))
op("GeLU", "Gelu")(_single_node("Gelu", approximate="tanh"))


@op("InplaceSiLU", writes=True)
@op("SiLU")
def silu(t: MindirTape, input: ir.Value) -> Any:
    x = floating(t, input)
    return t.op("Mul", [x, through(t, "Sigmoid", [x])], like=x)


@op("GeluExt", "NpuGelu")
def gelu_ext(t: MindirTape, input: ir.Value, approximate: Any = "none") -> Any:
    form = t.literal(approximate)
    if form not in GELU_FORMS:
        t.refuse(f"the approximation {form!r} is not supported")
    return through(t, "Gelu", [input], approximate=GELU_FORMS[form])


@op("FastGeLU", "FastGelu")
def fast_gelu(t: MindirTape, x: ir.Value) -> Any:
    # x * exp(0.851 * (x - |x|)) / (1 + exp(-1.702 * |x|)), written in one piece for both signs.
    scaled = t.op("Mul", [x, t.constant(1.702, t.dtype(x))], like=x)
    return t.op("Mul", [x, through(t, "Sigmoid", [scaled])])


@op("InplaceElu", writes=True)
@op("Elu", "EluExt")
def elu(t: MindirTape, input_x: ir.Value, alpha: Any = 1.0) -> Any:
    return through(t, "Elu", [floating(t, input_x)], alpha=float(t.literal(alpha)))


@op("CeLU")
def celu(t: MindirTape, x: ir.Value, alpha: Any = 1.0) -> Any:
    if t.literal(alpha) <= 0:
        t.refuse(f"alpha {t.literal(alpha)} is not supported, only positive ones")
    scale = t.constant(t.literal(alpha), t.dtype(x))
    inner = through(t, "Elu", [t.op("Div", [x, scale], like=x)], alpha=1.0)
    return t.op("Mul", [inner, scale])


@op("LogSigmoid")
def log_sigmoid(t: MindirTape, input: ir.Value) -> Any:
    negative = t.op("Neg", [input], like=input)
    y = t.op("Neg", [through(t, "Softplus", [negative])], like=input)
    return (y, t.op("Exp", [t.op("Neg", [t.op("Abs", [input])])]))


@op("SoftplusExt")
def softplus_ext(t: MindirTape, input: ir.Value, beta: Any = 1, threshold: Any = 20) -> Any:
    scale, limit = (t.constant(t.literal(number), t.dtype(input)) for number in (beta, threshold))
    scaled = t.op("Mul", [input, scale], like=input)
    curved = t.op("Div", [through(t, "Softplus", [scaled]), scale])
    return t.op("Where", [t.op("Greater", [scaled, limit]), input, curved])


# Along an axis --------------------------------------------------------------------------------------------------------


@op("Softmax")
def softmax(t: MindirTape, input: ir.Value, axis: Any = -1) -> Any:
    axes = t.literal(axis)
    axes = axes if isinstance(axes, tuple) else (axes,)
    if len(axes) == 1:
        return through(t, "Softmax", [input], axis=axes[0])
    largest = t.op("ReduceMax", [input, t.ints(axes)], keepdims=1)
    powers = t.op("Exp", [t.op("Sub", [input, largest])])
    return t.op("Div", [powers, t.op("ReduceSum", [powers, t.ints(axes)], keepdims=1)])


@op("LogSoftmax")
def log_softmax(t: MindirTape, logits: ir.Value, axis: Any = -1) -> Any:
    return through(t, "LogSoftmax", [logits], axis=t.literal(axis))


@op("LogSoftmaxExt")
def log_softmax_ext(t: MindirTape, input: ir.Value, dim: Any = None, dtype: Any = None) -> Any:
    if dim is None:
        dim = 0 if t.rank(input) in (0, 1, 3) else 1
    return log_softmax(t, t.cast(input, t.type_id(dtype, t.dtype(input))), dim)


@op("GLU")
def glu(t: MindirTape, x: ir.Value, axis: Any = -1) -> Any:
    value, gate = _halves(t, x, axis)
    return t.op("Mul", [value, through(t, "Sigmoid", [gate])])


@op("Swiglu")
def swiglu(t: MindirTape, input: ir.Value, dim: Any = -1) -> Any:
    gate, value = _halves(t, input, dim)
    return t.op("Mul", [silu(t, gate), value])


def _halves(t: MindirTape, x: ir.Value, axis: Any) -> tuple[ir.Value, ir.Value]:
    first, second = t.op("Split", [x], outputs=2, axis=t.literal(axis), num_outputs=2)
    first.dtype = second.dtype = x.dtype
    return first, second


# Dropout: a file is for inference, where nothing is dropped -----------------------------------------------------------


@op("Dropout")
def dropout(t: MindirTape, x: ir.Value, keep_prob: Any = 0.5, seed0: Any = 0, seed1: Any = 0) -> Any:
    """Files of the Lite converter have no mask."""
    y = t.op("Identity", [x])
    return y if isinstance(t.expected, TensorType) else (y, None)


@op("DropoutExt")
def dropout_ext(t: MindirTape, input: ir.Value, p: Any, seed: Any = None, offset: Any = None) -> Any:
    return (t.op("Identity", [input]), None)


@op("FuncDropoutExt", "Dropout2dExt")
def func_dropout_ext(
    t: MindirTape, input: ir.Value, p: Any, training: Any, inplace: Any, seed: Any = None, offset: Any = None
) -> Any:
    return t.op("Identity", [input])
