"""The activation function that MindSpore Lite's ops carry, as an op of its own or behind another."""

from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.mindir.ops.activation import fast_gelu, relu, silu
from litehouse.formats.mindir.ops.common import through
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

NONE, RELU, RELU6, ELU, LEAKY_RELU, HARD_TANH, SWISH, GELU, FAST_GELU, LINEAR = 0, 1, 3, 4, 5, 16, 18, 19, 20, 15
# The numbers of functions that are one ONNX op without parameters.
SINGLE: dict[int, tuple[str, dict[str, Any]]] = {
    2: ("Sigmoid", {}),
    6: ("Abs", {}),
    8: ("Softsign", {}),
    9: ("Softplus", {}),
    10: ("Tanh", {}),
    11: ("Selu", {}),
    12: ("HardSwish", {}),
    13: ("HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
    17: ("Sign", {}),
}


def activate(t: MindirTape, x: ir.Value, activation_type: Any) -> ir.Value:
    """The value behind the activation that another op carries; its parameters are not stored there."""
    kind = t.literal(activation_type)
    return x if kind in (NONE, LINEAR) else apply(t, x, kind)


def apply(
    t: MindirTape,
    x: ir.Value,
    kind: int,
    alpha: float | None = None,
    min_val: float = 0.0,
    max_val: float = 0.0,
    approximate: bool = False,
) -> ir.Value:
    """One of the functions, by its number. A slope that the file leaves out is the source model's default."""
    made: ir.Value
    if kind == RELU:
        made = relu(t, x)
    elif kind == RELU6:
        made = clip(t, x, 0, 6)
    elif kind == HARD_TANH:
        made = clip(t, x, min_val, max_val)
    elif kind == ELU:
        made = through(t, "Elu", [x], alpha=1.0 if alpha is None else alpha)
    elif kind == LEAKY_RELU:
        made = through(t, "LeakyRelu", [x], alpha=0.01 if alpha is None else alpha)
    elif kind == SWISH:
        made = silu(t, x)
    elif kind == GELU:
        made = through(t, "Gelu", [x], approximate="tanh" if approximate else "none")
    elif kind == FAST_GELU:
        made = fast_gelu(t, x)
    elif kind in SINGLE:
        made = through(t, SINGLE[kind][0], [x], **SINGLE[kind][1])
    else:
        t.refuse(f"activation function {kind} is not supported")
    return made


def clip(t: MindirTape, x: ir.Value, low: float, high: float) -> ir.Value:
    """The value kept between two numbers."""
    return through(t, "Clip", [x, t.constant(low, t.dtype(x)), t.constant(high, t.dtype(x))])


@op("Activation")
def activation(
    t: MindirTape,
    x: ir.Value,
    *,
    activation_type: Any = NONE,
    alpha: Any = None,
    min_val: Any = 0.0,
    max_val: Any = 0.0,
    approximate: Any = False,
) -> Any:
    kind = t.literal(activation_type)
    if kind in (NONE, LINEAR):
        return t.op("Identity", [x])
    return apply(t, x, kind, alpha, min_val, max_val, approximate)


@op("LeakyRelu")
def leaky_relu(t: MindirTape, x: ir.Value, *, negative_slope: Any = 0.01) -> Any:
    return through(t, "LeakyRelu", [x], alpha=float(negative_slope))


@op("Clip")
def clip_op(t: MindirTape, x: ir.Value, *bounds: Any, min: Any = None, max: Any = None) -> Any:
    """The bounds are operands (where the attributes hold the largest numbers) or attributes."""
    low, high = (*bounds, None, None)[:2] if bounds else (min, max)
    limits = [None if limit is None else _number(t, limit, t.dtype(x)) for limit in (low, high)]
    return through(t, "Clip", [x, *limits])


def _number(t: MindirTape, value: Any, dtype: ir.DataType) -> ir.Value:
    number = t.tensor(value, dtype)
    if number.shape is not None and number.shape.rank() == 0:
        return number
    single: ir.Value = t.op("Reshape", [number, t.constant(np.zeros(0, np.int64))], dtype=dtype)
    return single
