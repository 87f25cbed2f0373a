"""Arithmetic, comparisons, activations, matrix products, reductions."""

import numpy as np

from converted_fixtures.sources import LOST, case, ints, node, numbers

ROWS = numbers(3, 5)
POSITIVE = numbers(3, 5, low=0.25, high=4)
OTHER = numbers(3, 5, seed=1)


def scalar(value: float) -> np.ndarray:
    """A number of rank 0."""
    return np.array(value, np.float32)


for op in ("Abs", "Neg", "Ceil", "Floor", "Round", "Sin", "Cos", "Erf", "Exp", "Relu", "Sigmoid", "Tanh", "Softplus"):
    case(f"{op.lower()}", node(op, "x0"), [ROWS])
for op in ("Sqrt", "Log", "Reciprocal"):
    case(f"{op.lower()}", node(op, "x0"), [POSITIVE])
case("elu", node("Elu", "x0", alpha=0.7), [ROWS])
case("elu_default", node("Elu", "x0"), [ROWS])
case("leaky_relu", node("LeakyRelu", "x0", alpha=0.2), [ROWS])
case("leaky_relu_default", node("LeakyRelu", "x0"), [ROWS])
case("hard_sigmoid", node("HardSigmoid", "x0"), [ROWS], follow=LOST)
case("clip", node("Clip", "x0 low high"), [ROWS], weights={"low": scalar(-0.5), "high": scalar(1)})
case("clip_low", node("Clip", "x0 low"), [ROWS], weights={"low": scalar(-0.5)})
case(
    "clip_plain",
    node("Clip", "x0 low high"),
    [ROWS],
    weights={"low": scalar(-0.5), "high": scalar(1)},
    settings={"optimize": "none"},
)
GELU = [
    node("Div", "x0 two", "d"),
    node("Erf", "d", "e"),
    node("Add", "e one", "a"),
    node("Mul", "x0 a", "m"),
    node("Mul", "m half"),
]
case("gelu", GELU, [ROWS], weights={"two": scalar(2**0.5), "one": scalar(1), "half": scalar(0.5)})
case("swish", [node("Sigmoid", "x0", "s"), node("Mul", "x0 s")], [ROWS])

for op in ("Add", "Sub", "Mul", "Div", "Max", "Min"):
    case(f"{op.lower()}_pair", node(op, "x0 x1"), [ROWS, OTHER])
case("add_rows_relu", [node("Add", "x0 x1", "a"), node("Relu", "a")], [numbers(2, 3, 5), numbers(3, 1)])
case("sub_number", node("Sub", "n x0"), [ROWS], weights={"n": scalar(1.5)})
case("pow", node("Pow", "x0 n"), [POSITIVE], weights={"n": scalar(1.5)})
case("square", node("Mul", "x0 x0"), [ROWS])
case("mod", node("Mod", "x0 x1", fmod=1), [ROWS, POSITIVE])
case("sum_of_three", node("Sum", "x0 x1 x2"), [ROWS, OTHER, POSITIVE])
for op in ("Equal", "Greater", "Less", "LessOrEqual"):
    case(f"{op.lower()}", node(op, "x0 x1"), [np.round(ROWS), np.round(OTHER)])
TRUTHS = [[node("Greater", "x0 n", "a"), node("Less", "x1 n", "b")], {"n": scalar(0)}]
for op in ("And", "Or"):
    case(f"{op.lower()}", [*TRUTHS[0], node(op, "a b")], [ROWS, OTHER], weights=TRUTHS[1])
case("not", [TRUTHS[0][0], node("Not", "a")], [ROWS], weights=TRUTHS[1])
case("where", [TRUTHS[0][0], node("Where", "a x0 x1")], [ROWS, numbers(5)], weights=TRUTHS[1])
case("cast_to_int", node("Cast", "x0", to=6), [ROWS])
case("cast_from_bool", [TRUTHS[0][0], node("Cast", "a", to=1)], [ROWS], weights=TRUTHS[1])

for op in ("Tan", "Atan"):
    case(op.lower(), node(op, "x0"), [ROWS / 2])
case("asin", node("Asin", "x0"), [ROWS / 2])
case("clip_high", node("Clip", "x0 - high"), [ROWS], weights={"high": scalar(1)}, follow=LOST)
case("where_rows", [TRUTHS[0][0], node("Where", "a x1 n")], [ROWS, numbers(3, 5, seed=1)], weights=TRUTHS[1])
INTEGERS = [np.array([[7, 9, 20]], np.int32), np.array([[2, 4, 3]], np.int32)]
for op in ("Add", "Sub", "Mul", "Div", "Mod"):
    case(f"integers_{op.lower()}", node(op, "x0 x1"), INTEGERS)

# Matrices
case("gemm", node("Gemm", "x0 w b", transB=1), [ROWS], weights={"w": numbers(4, 5), "b": numbers(4)})
case(
    "gemm_transposed", node("Gemm", "x0 w b", transA=1), [numbers(5, 3)], weights={"w": numbers(5, 4), "b": numbers(4)}
)
case(
    "gemm_relu",
    [node("Gemm", "x0 w b", "g", transB=1), node("Relu", "g")],
    [ROWS],
    weights={"w": numbers(4, 5), "b": numbers(4)},
)
case("matmul", node("MatMul", "x0 w"), [numbers(2, 3, 5)], weights={"w": numbers(5, 4)})
case("matmul_batches", node("MatMul", "x0 x1"), [numbers(2, 1, 3, 5), numbers(4, 5, 2)])
case(
    "matmul_bias",
    [node("MatMul", "x0 w", "m"), node("Add", "m b")],
    [numbers(2, 3, 5)],
    weights={"w": numbers(5, 4), "b": numbers(4)},
)
case(
    "matmul_transposed",
    [node("Transpose", "x1", "t", perm=[0, 2, 1]), node("MatMul", "x0 t")],
    [numbers(2, 3, 5), numbers(2, 4, 5)],
)
case("matmul_vector", node("MatMul", "x0 w"), [numbers(2, 3, 5)], weights={"w": numbers(5)})
half = {name: numbers(*shape).astype(np.float16) for name, shape in {"w": (4, 5), "b": (4,)}.items()}
case("half_gemm", node("Gemm", "x0 w b", transB=1), [ROWS.astype(np.float16)], weights=half, tolerance=1e-3)
case("einsum", node("Einsum", "x0 x1", equation="bij,bjk->bik"), [numbers(2, 3, 5), numbers(2, 5, 4)])

# Along axes
for axis in (1, -1):
    case(f"softmax_{axis}".replace("-", "m"), node("Softmax", "x0", axis=axis), [numbers(2, 3, 4, 5)])
case("softmax_old", node("Softmax", "x0", axis=1), [numbers(2, 3, 4)], opset=11, follow=LOST)
case("log_softmax", node("LogSoftmax", "x0", axis=-1), [ROWS])
MEAN = [node("ReduceMean", "x0", "m", axes=[-1], keepdims=1), node("Sub", "x0 m", "d"), node("Pow", "d two", "q")]
ROOT = [
    node("ReduceMean", "q", "v", axes=[-1], keepdims=1),
    node("Add", "v eps", "e"),
    node("Sqrt", "e", "r"),
    node("Div", "d r", "n"),
]
LAYER = [*MEAN, *ROOT, node("Mul", "n g", "s"), node("Add", "s h")]
AFFINE = {"g": numbers(5, seed=3), "h": numbers(5, seed=4)}
case("layernorm", LAYER, [numbers(2, 3, 5)], weights={"two": scalar(2), "eps": scalar(1e-3), **AFFINE})
case(
    "layernorm_op",
    node("LayerNormalization", "x0 g h", axis=-1, epsilon=1e-3),
    [numbers(2, 3, 5)],
    weights=AFFINE,
    opset=17,
    follow=LOST,
)
case("lp_normalization", node("LpNormalization", "x0", axis=-1, p=2), [ROWS])

KINDS = {"Mean": "mean", "Max": "max", "Min": "min", "Prod": "product", "SumSquare": "squares", "L2": "l2"}
for kind, name in KINDS.items():
    case(f"reduce_{name}", node(f"Reduce{kind}", "x0", axes=[1], keepdims=0), [numbers(2, 3, 4)])
    case(f"reduce_{name}_kept", node(f"Reduce{kind}", "x0", axes=[2, 3], keepdims=1), [numbers(2, 3, 4, 5)])
case("reduce_sum", node("ReduceSum", "x0 a", keepdims=0), [numbers(2, 3, 4)], weights={"a": ints(0, 2)})
case("reduce_all", node("ReduceMean", "x0", keepdims=0), [numbers(2, 3, 4)])
case("reduce_channels", node("ReduceMean", "x0", axes=[1], keepdims=1), [numbers(1, 3, 4, 5)])
case("argmax_channels", node("ArgMax", "x0", axis=1, keepdims=1), [numbers(1, 3, 4, 5)])
case("argmax", node("ArgMax", "x0", axis=1, keepdims=0), [numbers(2, 5, 3)])
case("argmax_kept", node("ArgMax", "x0", axis=-1, keepdims=1), [numbers(2, 5, 3)])
case(
    "topk",
    node("TopK", "x0 k", "y0 y1", axis=1, largest=1, sorted=1),
    [numbers(2, 6, 3)],
    weights={"k": ints(3)},
    outputs=2,
)
case(
    "topk_smallest",
    node("TopK", "x0 k", "y0 y1", axis=-1, largest=0, sorted=1),
    [numbers(2, 6)],
    weights={"k": ints(3)},
    outputs=2,
)
case("cumsum", node("CumSum", "x0 a"), [numbers(3, 4)], weights={"a": np.array(1, np.int64)})
case(
    "cumsum_exclusive",
    node("CumSum", "x0 a", exclusive=1),
    [numbers(3, 4)],
    weights={"a": np.array(1, np.int64)},
    follow=LOST,
)
