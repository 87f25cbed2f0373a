"""Kinds of ONNX ops, by what they do to the places of elements."""

from __future__ import annotations

ALONE = frozenset(
    (
        *("Abs", "Cast", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish"),
        *("Identity", "LeakyRelu", "Log", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
        *("Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu"),
    )
)
"""Every element by itself; operands behind the first are single numbers."""

TOGETHER = frozenset(("Add", "Div", "Max", "Mean", "Min", "Mul", "PRelu", "Pow", "Sub", "Sum"))
"""Elements at the same place in several operands, which may be spread over axes that they lack."""

REDUCTIONS = frozenset(
    (
        *("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd"),
        *("ReduceSum", "ReduceSumSquare"),
    )
)
"""All elements along axes."""
