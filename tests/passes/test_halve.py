"""Half precision in a whole graph: which ops compute in it, and that the numbers stay near those of 32 bits.

The truth is ONNX Runtime without optimisation on the graph as the file has it.
"""

from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import helper

import litehouse
from litehouse.passes import halve
from litehouse.passes.halve import HIDING, LARGEST, HalvePass
from onnx_models import Shape, model, node
from pass_checks import ops, read, run

T = onnx.TensorProto
HALF = ir.DataType.FLOAT16
ROUNDED = 4e-3  # of the range of an output: a few numbers of eleven bits
numbers = {"drawn": np.random.default_rng(7)}


def drawn(*shape: int) -> np.ndarray:
    return numbers["drawn"].standard_normal(shape).astype(np.float32)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    """Each test draws the same, whichever were before it: how far rounding goes depends on it."""
    numbers["drawn"] = np.random.default_rng(8)


W, V = drawn(8, 8) / 3, drawn(8, 8) / 3


def near(actual: np.ndarray, expected: np.ndarray, tolerance: float = ROUNDED) -> None:
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    assert not np.isnan(actual).any() or np.isnan(expected).any()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * max(float(np.abs(expected).max()), 1e-6))


def halved(data: bytes, *feeds: dict[str, np.ndarray], tolerance: float = ROUNDED) -> ir.Model:
    """The graph with half precision, which must compute nearly the same; inputs are drawn where none are given."""
    graph = litehouse.read(data).graph
    before = graph.clone()
    names = [(value.name, value.dtype) for value in graph.graph.outputs]
    halve(graph)
    assert [(value.name, value.dtype) for value in graph.graph.outputs] == names
    assert [value.dtype for value in graph.graph.inputs] == [value.dtype for value in before.graph.inputs]
    for feed in feeds or ({str(value.name): drawn(*value.shape) for value in graph.graph.inputs},):
        for actual, expected in zip(run(graph, feed), run(before, feed), strict=True):
            near(actual, expected, tolerance)
    return graph


def in_half(graph: ir.Model) -> list[str]:
    """The ops that compute in half precision, in order."""
    return [
        each.op_type
        for each in graph.graph
        if each.op_type != "Cast" and any(value is not None and value.dtype == HALF for value in each.inputs)
    ]


def casts(graph: ir.Model) -> int:
    return ops(graph).count("Cast")


# What computes in it --------------------------------------------------------------------------------------------------

IMAGE: Shape = [1, 8, 6, 6]
PRODUCTS: dict[str, tuple[onnx.NodeProto, Shape, np.ndarray]] = {
    "MatMul": (node("MatMul", "x w", "y"), [3, 8], W),
    "Gemm": (node("Gemm", "x w", "y", transB=1, alpha=0.5), [3, 8], W),
    "Conv": (node("Conv", "x w", "y"), IMAGE, drawn(4, 8, 3, 3) / 8),
    "ConvTranspose": (node("ConvTranspose", "x w", "y"), IMAGE, drawn(8, 4, 3, 3) / 8),
    "Einsum": (node("Einsum", "x w", "y", equation="ij,jk->ik"), [3, 8], W),
}


@pytest.mark.parametrize("op", PRODUCTS)
def test_products(op: str) -> None:
    made, shape, weight = PRODUCTS[op]
    graph = halved(model([made], {"x": shape}, {"y": None}, {"w": weight}))
    assert in_half(graph) == [op]
    (kept,) = (value for value in graph.graph.initializers.values() if value.shape == weight.shape)
    assert kept.dtype == HALF  # and not cast in each run
    assert ops(graph) == ["Clip", "Cast", op, "Cast"]


FOLLOWING: dict[str, tuple[list[onnx.NodeProto], dict[str, np.ndarray]]] = {
    "Softmax": ([node("Softmax", "a", "b")], {}),
    "LayerNormalization": ([node("LayerNormalization", "a g e", "b")], {"g": drawn(8), "e": drawn(8)}),
    "Relu": ([node("Relu", "a", "b")], {}),
    "Add": ([node("Add", "a g", "b")], {"g": drawn(8)}),
    "Mul": ([node("Mul", "a g", "b")], {"g": np.float32(0.125)}),
    "Transpose": ([node("Transpose", "a", "b", perm=(1, 0))], {}),
    "Clip": ([node("Clip", "a g h", "b")], {"g": np.float32(0), "h": np.float32(6)}),
    "Sigmoid": ([node("Sigmoid", "a", "b")], {}),
}


@pytest.mark.parametrize("op", FOLLOWING)
def test_what_follows_a_product(op: str) -> None:
    between, weights = FOLLOWING[op]
    nodes = [node("MatMul", "x w", "a"), *between, node("MatMul", "b v", "y")]
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "v": V, **weights}))
    assert in_half(graph) == ["MatMul", op, "MatMul"]
    assert casts(graph) == 2  # at both ends


@pytest.mark.parametrize(
    "between",
    [
        *(
            [node("Exp", "a", "b")],
            [node("Pow", "a two", "b")],
            [node("ReduceSum", "a axes", "b")],
            [node("Log", "a", "b")],
        ),
        *([node("ReduceMean", "a axes", "b")], [node("Mul", "a a", "b")], [node("CumSum", "a axis", "b")]),
        *([node("Sqrt", "a", "b")], [node("Softplus", "a", "b")], [node("ReduceL2", "a axes", "b")]),
    ],
    ids=lambda between: between[0].op_type,
)
def test_what_stays_in_32_bits(between: list[onnx.NodeProto]) -> None:
    nodes = [node("MatMul", "x w", "p"), node("Sigmoid", "p", "a"), *between, node("MatMul", "b v", "y")]
    operands = {"two": np.float32(2), "axis": np.array(1), "axes": np.array([0])}
    weights = {name: operands[name] for name in between[0].input if name in operands}
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "v": V[:8], **weights}))
    assert in_half(graph) == ["MatMul", "Sigmoid", "MatMul"]


def test_what_no_product_is_before_stays() -> None:
    nodes = [node("Relu", "x", "a"), node("Softmax", "a", "y")]
    data = model(nodes, {"x": [8, 8]}, {"y": None})
    graph = halved(data, tolerance=0)
    assert ops(graph) == ["Relu", "Softmax"]


def test_what_takes_32_bits_too_computes_in_them() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Exp", "x", "e"), node("Add", "a e", "y")]
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W}))
    assert in_half(graph) == ["MatMul"]


def test_a_table_of_weights() -> None:
    nodes = [node("Cast", "x", "i", to=T.INT64), node("Gather", "t i", "a"), node("Relu", "a", "r")]
    nodes += [node("MatMul", "r w", "y")]
    feed = {"x": np.float32([3, 0, 9, 3])}
    graph = halved(model(nodes, {"x": [4]}, {"y": None}, {"t": drawn(10, 8), "w": W}), feed)
    assert in_half(graph) == ["Gather", "Relu", "MatMul"]


def test_a_value_that_is_used_twice_has_one_cast_each_way() -> None:
    nodes = [
        *(node("MatMul", "x w", "a"), node("MatMul", "x v", "b"), node("Conv", "c k", "d")),
        *(node("Exp", "a", "e"), node("Pow", "a two", "f"), node("Sqrt", "g", "h"), node("Neg", "b", "n")),
    ]
    nodes.insert(2, node("Reshape", "x s", "c"))
    nodes.insert(-2, node("Abs", "a", "g"))
    weights = {"w": W, "v": V, "k": drawn(1, 1, 1, 1), "s": np.array([1, 1, 8, 8]), "two": np.float32(2)}
    data = model(nodes, {"x": [8, 8]}, dict.fromkeys("defhn"), weights)
    graph = halved(data, tolerance=2e-2)
    downs = [each for each in graph.graph if each.op_type == "Cast" and each.outputs[0].dtype == HALF]
    ups = [each for each in graph.graph if each.op_type == "Cast" and each not in downs]
    sources = [each.inputs[0] for each in ups]
    assert len(downs) == 2  # of x, and of the image that it is made
    assert len({id(source) for source in sources}) == len(sources)
    assert ops(graph).count("Clip") == 2


def test_outputs_keep_their_names_and_types() -> None:
    """Those that other nodes use, too, and those that are given twice over."""
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Identity", "a", "c"), node("Exp", "b", "e")]
    graph = halved(model(nodes, {"x": [8, 8]}, {"a": None, "b": None, "c": None, "e": None}, {"w": W}), tolerance=2e-2)
    assert [value.name for value in graph.graph.outputs] == ["a", "b", "c", "e"]


def test_resizes_keep_their_scales() -> None:
    made = helper.make_node("Resize", ["a", "", "s"], ["y"], mode="linear")
    scales = np.array([1, 1, 1.5, 2], np.float32)
    nodes = [node("Conv", "x w", "a"), made]
    graph = halved(model(nodes, {"x": IMAGE}, {"y": None}, {"w": drawn(4, 8, 3, 3) / 8, "s": scales}))
    assert "Resize" in in_half(graph)
    (resize,) = (each for each in graph.graph if each.op_type == "Resize")
    assert resize.inputs[2] is not None
    assert resize.inputs[2].const_value is not None
    np.testing.assert_array_equal(resize.inputs[2].const_value.numpy(), scales)


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 12, 13, 18, 20])
def test_every_version_of_onnx(opset: int) -> None:
    """The bounds of a Clip were attributes once."""
    nodes = [node("MatMul", "x w", "a"), node("Exp", "a", "e"), node("MatMul", "e v", "y")]
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "v": V}, opset=opset))
    assert in_half(graph) == ["MatMul", "MatMul"]


# What it cannot hold --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1e5, 1e9, 1e30])
def test_values_that_are_too_large_become_the_largest(size: float) -> None:
    """Infinity times 0 is no number."""
    nodes = [node("MatMul", "x w", "a"), node("Exp", "a", "e"), node("Mul", "e k", "b"), node("MatMul", "b z", "y")]
    graph = halved(
        model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "k": np.float32(size), "z": np.zeros((8, 8), "f")})
    )
    assert in_half(graph) == ["MatMul", "MatMul"]


def test_inputs_that_are_too_large() -> None:
    nodes = [node("MatMul", "x w", "y")]
    halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": np.zeros((8, 8), "f")}), {"x": drawn(8, 8) * np.float32(1e6)})


def test_attributes_that_are_too_large() -> None:
    """What a Pad fills with was an attribute once, as the bounds of a Clip were."""
    pad = node("Pad", "c", "y", pads=(0, 0, 1, 1), value=-1e9)
    nodes = [node("MatMul", "x w", "a"), node("Clip", "a", "c", min=0.0, max=3e38), pad]
    assert in_half(halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W}, opset=10))) == ["MatMul", "Clip"]


@pytest.mark.parametrize("factor", [1e5, 1e6, 1e-6, 1e-9])
def test_factors_that_half_precision_does_not_have(factor: float) -> None:
    """Small weights, which are made large, and the other way round."""
    nodes = [node("MatMul", "x w", "a"), node("Mul", "a k", "b"), node("Tanh", "b", "y")]
    weights = {"w": W / np.float32(factor), "k": np.float32(factor)}
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None, "b": None}, weights))
    assert "Mul" not in in_half(graph)


@pytest.mark.parametrize("op", ["Add", "Max", "Clip"])
@pytest.mark.parametrize("small", [1e-5, 1e-7, 1e-12])
def test_small_numbers_that_keep_others_from_being_zero(op: str, small: float) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "r"), node(op, "r k", "b"), node("Log", "b", "y")]
    weights = {"w": np.diag(np.float32([1, 1, 1, 0, 0, 0, 0, 0])), "k": np.float32(small)}
    x = np.abs(drawn(8, 8)) + np.float32(0.5)
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, weights), {"x": x}, {"x": -x})
    assert in_half(graph) == ["MatMul", "Relu"]


def test_division_by_a_small_number() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Div", "a k", "y")]
    halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "k": np.float32(1e-8)}))


@pytest.mark.parametrize("size", [1e6, 1e-7])
def test_weights_that_are_too_large_or_too_small(size: float) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Add", "a b", "y")]
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W * np.float32(size), "b": drawn(8)}))
    assert in_half(graph) == []


@pytest.mark.parametrize("op", ["Gemm", "Conv"])
@pytest.mark.parametrize("size", [0.0, 1e-9, 1e-5])
def test_biases_that_are_next_to_nothing(op: str, size: float) -> None:
    """As the means of what comes to a batch normalisation, which was folded, may be."""
    w, shape = (W, [8, 8]) if op == "Gemm" else (W.reshape(8, 8, 1, 1), [2, 8, 3, 3])
    weights = {"w": w, "b": drawn(8) * np.float32(size)}
    graph = halved(model([node(op, "x w b", "a"), node("Relu", "a", "y")], {"x": shape}, {"y": None}, weights))
    assert in_half(graph) == [op, "Relu"]


@pytest.mark.parametrize(("names", "beta"), [("x w b", 1e4), ("x b b", 1.0)])
def test_what_is_next_to_nothing_and_counts(names: str, beta: float) -> None:
    """A bias that is made larger, and a weight that is the bias, too."""
    weights = {"w": W, "b": drawn(8, 8) * np.float32(1e-7)}
    graph = halved(model([node("Gemm", names, "y", beta=beta)], {"x": [8, 8]}, {"y": None}, weights))
    assert in_half(graph) == []


def test_zeros_are_held() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Add", "a b", "c"), node("MatMul", "c v", "y")]
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "b": np.zeros(8, "f"), "v": V}))
    assert in_half(graph) == ["MatMul", "Add", "MatMul"]


def test_what_is_multiplied_with_itself() -> None:
    """As norms are that were written out: 300 times 300 is infinite in half precision."""
    nodes = [
        *(node("MatMul", "x w", "a"), node("Mul", "a a", "s"), node("ReduceMean", "s", "m", axes=(-1,))),
        *(node("Add", "m e", "t"), node("Sqrt", "t", "r"), node("Div", "a r", "n"), node("MatMul", "n v", "y")),
    ]
    weights = {"w": W * 300, "v": V, "e": np.float32(1e-6)}
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, weights, opset=13), {"x": drawn(8, 8) * 3})
    assert in_half(graph) == ["MatMul", "MatMul"]


def test_variances_that_are_too_large() -> None:
    """Of a normalisation that cannot be folded, since the convolution's result is used elsewhere, too."""
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a g g m v", "n"), node("Add", "n a", "y")]
    weights = {"w": drawn(4, 8, 3, 3), "g": drawn(4), "m": drawn(4), "v": np.float32([1e6, 2e5, 1, 3e7])}
    halved(model(nodes, {"x": IMAGE}, {"y": None, "n": None}, weights))


def test_other_outputs_of_a_norm_are_of_32_bits() -> None:
    nodes = [node("MatMul", "x w", "a"), node("LayerNormalization", "a g", "l m d"), node("MatMul", "m k", "y")]
    data = model(nodes, {"x": [8, 8]}, {"y": None, "l": None}, {"w": W, "g": drawn(8), "k": drawn(1, 4)}, opset=17)
    graph = halved(data)
    assert in_half(graph) == ["MatMul", "MatMul"]


# Masks ----------------------------------------------------------------------------------------------------------------


def attention(*mask: onnx.NodeProto, inputs: dict[str, Shape], weights: dict[str, Any]) -> bytes:
    """Scores that `mask` makes `t` of, behind a softmax."""
    nodes = [
        *(node("MatMul", "x w", "q"), node("Transpose", "q", "k", perm=(1, 0)), node("MatMul", "q k", "s"), *mask),
        *(node("Softmax", "t", "p", axis=-1), node("MatMul", "p x", "y")),
    ]
    return model(nodes, {"x": [6, 8], **inputs}, {"y": None, "p": None}, {"w": W, **weights})


KEEPS = np.float32([1, 1, 0, 1, 0, 0])


@pytest.mark.parametrize("size", [-1e4, -1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("hides_all", [False, True])
def test_masks_that_are_computed(size: float, hides_all: bool) -> None:
    mask = [node("Sub", "one m", "n"), node("Mul", "n large", "o"), node("Add", "s o", "t")]
    weights = {"one": np.float32(1), "large": np.float32(size)}
    data = attention(*mask, inputs={"m": [6]}, weights=weights)
    halved(data, {"x": drawn(6, 8), "m": KEEPS * (not hides_all)})


@pytest.mark.parametrize("size", [-1e4, -1e9, float(np.finfo(np.float32).min), float("-inf")])
@pytest.mark.parametrize("op", ["Add", "Where"])
def test_masks_that_are_constant(op: str, size: float) -> None:
    """The sums are computed in half precision: what is hidden stays so, and no sum is infinite."""
    mask = np.where(np.tril(np.ones((6, 6))) > 0, 0, np.float32(size)).astype(np.float32)
    made = node("Add", "s m", "t") if op == "Add" else node("Where", "c s m", "t")
    weights = {"m": mask} if op == "Add" else {"m": np.float32(size), "c": np.tril(np.ones((6, 6), bool))}
    graph = halved(attention(made, inputs={}, weights=weights))
    assert op in in_half(graph)
    assert "Softmax" in in_half(graph)
    finite = [value.const_value.numpy() for value in graph.graph.initializers.values() if value.dtype == HALF]
    if np.isfinite(size):
        assert all(np.isfinite(array).all() for array in finite)


def test_a_constant_mask_that_hides_all_gives_numbers() -> None:
    """In 32 bits each has the same share then; scores are far below 0, so that the largest of 16 bits is exceeded."""
    mask = np.full((6, 6), np.finfo(np.float32).min, np.float32)
    made = [node("Sub", "s far", "s2"), node("Add", "s2 m", "t")]
    graph = litehouse.read(attention(*made, inputs={}, weights={"m": mask, "far": np.float32(100)})).graph
    halve(graph)
    assert "Add" in in_half(graph)
    found = run(graph, {"x": drawn(6, 8)})
    assert all(np.isfinite(array).all() for array in found)
    np.testing.assert_allclose(found[1].sum(-1), 1, rtol=1e-2)
    assert HIDING > 1e4
    assert HIDING + 1e4 < LARGEST


@pytest.mark.parametrize("op", ["Add", "Sub", "Where"])
def test_a_large_number_that_is_no_mask(op: str) -> None:
    """It counts: the largest of half precision does not stand for it."""
    made = node("Where", "c a k", "b") if op == "Where" else node(op, "a k", "b")
    nodes = [node("MatMul", "x w", "a"), made, node("Mul", "b small", "y")]
    weights = {"w": W * 1000, "k": np.float32(3e5), "small": np.float32(1e-3)}
    weights |= {"c": np.eye(8, dtype=bool)} if op == "Where" else {}
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, weights))
    assert in_half(graph) == ["MatMul"]


@pytest.mark.parametrize("bound", [3e38, -3e38])
@pytest.mark.parametrize("op", ["Min", "Max", "Clip", "Less"])
def test_bounds_that_no_number_reaches(op: str, bound: float) -> None:
    made = node("Clip", "a l h", "b") if op == "Clip" else node(op, "a k", "b")
    weights = {"l": np.float32(-3e38), "h": np.float32(3e38)} if op == "Clip" else {"k": np.float32(bound)}
    nodes = [node("MatMul", "x w", "a"), made, node("Cast", "b", "y", to=T.FLOAT)]
    if op in ("Min", "Max"):
        nodes[-1] = node("Atan", "b", "y")  # both are the bound itself on one side
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, **weights}))
    assert op in in_half(graph)


# Decisions ------------------------------------------------------------------------------------------------------------

CLOSE = W.copy()
CLOSE[:, 4:] = CLOSE[:, :4] + np.float32(1e-5)  # scores that are one and the same in 16 bits


@pytest.mark.parametrize("op", ["TopK", "ArgMax", "ArgMin", "NonMaxSuppression"])
@pytest.mark.parametrize("between", ["", "Relu", "Softmax"])
def test_what_decides_on_an_order(op: str, between: str) -> None:
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a v", "b")]
    nodes.append(node(between, "b", "c") if between else node("Identity", "b", "c"))
    weights: dict[str, Any] = {"w": V, "v": CLOSE}
    if op == "TopK":
        nodes += [node("TopK", "c k", "values i")]
        weights["k"] = np.array([3])
    elif op == "NonMaxSuppression":
        nodes += [node("Unsqueeze", "c zero", "u"), node("NonMaxSuppression", "boxes u many", "i")]
        corners = np.arange(8, dtype=np.float32)[:, None] * 2 + np.float32([0, 0, 1, 1])
        weights |= {"zero": np.array([0]), "boxes": corners[None], "many": np.array([3])}
    else:
        nodes += [node(op, "c", "i", axis=1)]
    nodes += [node("Cast", "i", "y", to=T.FLOAT)]
    graph = litehouse.read(model(nodes, {"x": [8, 8]}, {"y": None}, weights)).graph
    halve(graph)
    assert in_half(graph) == ["MatMul"]  # the first: what is between the second and the decision is exact
    assert run(graph, {"x": drawn(8, 8)})[0].size


def test_decisions_are_those_of_32_bits() -> None:
    nodes = [node("MatMul", "x v", "b"), node("Sigmoid", "b", "c"), node("ArgMax", "c", "i", axis=1, keepdims=0)]
    nodes += [node("Cast", "i", "y", to=T.FLOAT)]
    halved(model(nodes, {"x": [200, 8]}, {"y": None}, {"v": CLOSE}), tolerance=0)


@pytest.mark.parametrize("op", ["Floor", "Ceil", "Round", "Cast"])
def test_what_decides_on_a_whole_number(op: str) -> None:
    decision = [node("Cast", "c", "i", to=T.INT64), node("Cast", "i", "y", to=T.FLOAT)]
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a v", "b"), node("Relu", "b", "c")]
    nodes += decision if op == "Cast" else [node(op, "c", "y")]
    graph = litehouse.read(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "v": V})).graph
    halve(graph)
    assert in_half(graph) == ["MatMul"]
    halved(model([node("MatMul", "x v", "b"), *nodes[2:]], {"x": [200, 8]}, {"y": None}, {"v": V * 300}), tolerance=0)


def test_sizes_decide_on_nothing_before_them() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Shape", "a", "s", start=0, end=1), node("Cast", "s", "f", to=T.FLOAT)]
    nodes += [node("Mul", "f half", "g"), node("Floor", "g", "h"), node("Cast", "h", "e", to=T.INT64)]
    nodes += [node("Slice", "a zero e", "y")]
    weights = {"w": W, "half": np.float32(0.5), "zero": np.array([0])}
    graph = halved(model(nodes, {"x": ["n", 8]}, {"y": None}, weights), {"x": drawn(5, 8)})
    assert "MatMul" in in_half(graph)


def test_places_in_an_image_are_exact() -> None:
    across, down = np.meshgrid(np.linspace(-1, 1, 300), np.linspace(-1, 1, 4))
    base = np.stack([across, down], -1)[None].astype(np.float32)
    nodes = [node("MatMul", "x w", "a"), node("Add", "a base", "grid")]
    nodes += [node("GridSample", "image grid", "y", align_corners=1)]
    weights = {"w": drawn(8, 2) / 99, "base": base, "image": drawn(1, 1, 4, 300)}
    data = model(nodes, {"x": [1, 4, 300, 8]}, {"y": None}, weights)
    assert in_half(halved(data, tolerance=1e-3)) == []
    nodes[1:2] = [node("MatMul", "a v", "b"), node("Add", "b base", "grid")]
    weights = {**weights, "w": W, "v": weights["w"]}
    graph = halved(model(nodes, {"x": [1, 4, 300, 8]}, {"y": None}, weights), tolerance=1e-1)
    assert in_half(graph) == ["MatMul"]  # only the product that the place comes from, and what is behind it, is exact


@pytest.mark.parametrize("op", ["Add", "Sub"])
@pytest.mark.parametrize("first", [0, 0.5])
def test_places_of_boxes_are_exact(op: str, first: float) -> None:
    """A place in a cell of 8 pixels, of an image of 1280: in 16 bits it is off by a pixel."""
    cells = np.arange(160, dtype=np.float32) + np.float32(first)
    nodes = [node("MatMul", "x w", "a"), node("Sigmoid", "a", "s")]
    nodes += [node(op, "cells s", "c"), node("Mul", "c eight", "y")]
    weights = {"w": np.eye(160, dtype=np.float32), "cells": cells, "eight": np.float32(8)}
    graph = halved(model(nodes, {"x": [3, 160]}, {"y": None}, weights), tolerance=4e-3 / 1280)
    assert in_half(graph) == ["MatMul", "Sigmoid"]


@pytest.mark.parametrize("mask", [np.eye(8) * -100, np.triu(np.full((8, 8), -3e38), 1), V])
def test_masks_and_biases_are_no_places(mask: np.ndarray) -> None:
    nodes = [node("MatMul", "x w", "a"), node("Add", "a mask", "b"), node("Softmax", "b", "y", axis=-1)]
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "mask": mask.astype(np.float32)}))
    assert in_half(graph) == ["MatMul", "Add", "Softmax"]


@pytest.mark.parametrize("kind", [T.INT32, T.INT64])
@pytest.mark.parametrize("is_joined", [False, True])
def test_products_of_positions(kind: int, is_joined: bool) -> None:
    """As the angles of a language model: half precision has no 2049."""
    nodes = [node("Cast", "x", "n", to=kind), node("Cast", "n", "f", to=T.FLOAT), node("Unsqueeze", "f axis", "u")]
    nodes += [node("Concat", "u u" if is_joined else "u", "c", axis=0)]
    nodes += [node("MatMul", "c speeds", "a"), node("Cos", "a", "y")]
    weights = {"speeds": np.float32([[1, 0.3, 0.01]]), "axis": np.array([1])}
    graph = halved(model(nodes, {"x": [40]}, {"y": None}, weights), {"x": np.arange(4000, 4040, dtype=np.float32)})
    assert in_half(graph) == []


def test_products_of_counted_positions() -> None:
    nodes = [node("Range", "zero x one", "r"), node("Einsum", "r speeds", "a", equation="i,j->ij")]
    nodes += [node("Cos", "a", "y")]
    weights = {"zero": np.float32(0), "one": np.float32(1), "speeds": np.float32([1, 0.3, 0.01])}
    assert in_half(halved(model(nodes, {"x": []}, {"y": None}, weights), {"x": np.array(4000, "f")})) == []


def test_products_of_constants_are_exact() -> None:
    nodes = [node("MatMul", "places speeds", "a"), node("Cos", "a", "c"), node("MatMul", "x c", "y")]
    weights = {"places": np.arange(4000, 4040, dtype=np.float32)[:, None], "speeds": np.float32([[1, 0.3, 0.01]])}
    graph = halved(model(nodes, {"x": [3, 40]}, {"y": None}, weights))
    assert in_half(graph) == ["MatMul"]


def branch(nodes: list[onnx.NodeProto], gives: str, kind: int = T.FLOAT) -> onnx.GraphProto:
    return helper.make_graph(nodes, f"branch of {gives}", [], [helper.make_tensor_value_info(gives, kind, None)])


def test_decisions_inside_of_a_branch() -> None:
    then = branch([node("Sigmoid", "b", "d"), node("ArgMax", "d", "p", axis=1)], "p", T.INT64)
    other = branch([node("ArgMin", "b", "q", axis=1)], "q", T.INT64)
    nodes = [node("MatMul", "x v", "b"), node("If", "c", "i", then_branch=then, else_branch=other)]
    nodes += [node("Cast", "i", "y", to=T.FLOAT), node("MatMul", "x w", "z")]
    weights = {"v": CLOSE, "w": W, "c": np.array(True)}
    graph = litehouse.read(model(nodes, {"x": [200, 8]}, {"y": None, "z": None}, weights)).graph
    before, x = graph.clone(), drawn(200, 8)
    halve(graph)
    assert in_half(graph) == ["MatMul"]
    np.testing.assert_array_equal(run(graph, {"x": x})[0], run(before, {"x": x})[0])


def test_decisions_behind_a_branch() -> None:
    then, other = branch([node("Sigmoid", "b", "p")], "p"), branch([node("Neg", "b", "q")], "q")
    nodes = [node("MatMul", "x v", "b"), node("If", "c", "i", then_branch=then, else_branch=other)]
    nodes += [node("ArgMax", "i", "j", axis=1), node("Cast", "j", "y", to=T.FLOAT)]
    halved(model(nodes, {"x": [200, 8]}, {"y": None}, {"v": CLOSE, "c": np.array(True)}), tolerance=0)


# Graphs inside nodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", [True, False])
def test_branches_see_32_bits(choice: bool) -> None:
    """Their own products, too: and a branch may give a value from outside as it is."""
    then = branch([node("MatMul", "a w", "g"), node("Exp", "g", "p")], "p")
    other = branch([node("Identity", "a", "q")], "q")
    nodes = [node("MatMul", "x w", "a"), node("If", "c", "i", then_branch=then, else_branch=other)]
    nodes += [node("MatMul", "i v", "y")]
    data = model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W / 3, "v": V, "c": np.array(choice)})
    graph = halved(data, tolerance=1e-2)
    assert in_half(graph) == ["MatMul", "MatMul"]


def test_loops_see_32_bits() -> None:
    """In their state, and in what their body takes from outside, at any depth."""
    then, other = branch([node("Add", "s a", "p")], "p"), branch([node("Sub", "s b", "q")], "q")
    body = helper.make_graph(
        [
            *(node("Less", "turn one", "first"), node("If", "first", "r", then_branch=then, else_branch=other)),
            *(node("MatMul", "r w", "s2"), node("Identity", "going", "on"), node("Relu", "a", "o")),
        ],
        "body",
        [
            helper.make_tensor_value_info("turn", T.INT64, []),
            helper.make_tensor_value_info("going", T.BOOL, []),
            helper.make_tensor_value_info("s", T.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", T.BOOL, []),
            helper.make_tensor_value_info("s2", T.FLOAT, None),
            helper.make_tensor_value_info("o", T.FLOAT, [8, 8]),
        ],
    )
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Loop", "turns truth a", "l os", body=body)]
    nodes += [node("MatMul", "l v", "y")]
    counts = {"turns": np.array(3), "truth": np.array(True), "one": np.array(1)}
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None, "os": None}, {"w": W, "v": V, **counts}), tolerance=1e-2)
    assert in_half(graph)[:2] == ["MatMul", "Relu"]


# Types ----------------------------------------------------------------------------------------------------------------


def test_a_graph_of_half_precision_stays() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Softmax", "a", "b"), node("Add", "b k", "y")]
    weights = {"w": W.astype(np.float16), "k": np.float16(1e-7)}
    graph = read(model(nodes, {"x": [8, 8]}, {"y": None}, weights, dtype=T.FLOAT16))
    before = ops(graph)
    assert not HalvePass()(graph).modified
    assert ops(graph) == before


def test_a_graph_of_other_types_stays() -> None:
    for kind, dtype in ((T.DOUBLE, np.float64), (T.INT32, np.int32)):
        graph = read(
            model([node("MatMul", "x w", "y")], {"x": [8, 8]}, {"y": None}, {"w": W.astype(dtype)}, dtype=kind)
        )
        assert not HalvePass()(graph).modified
        assert ops(graph) == ["MatMul"]


def test_half_precision_and_32_bits_in_one_file() -> None:
    nodes = [
        *(node("MatMul", "x w", "a"), node("Cast", "a", "h", to=T.FLOAT16), node("MatMul", "h u", "i")),
        *(node("Cast", "i", "j", to=T.FLOAT), node("MatMul", "j v", "k"), node("Add", "k j", "y")),
    ]
    graph = halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "v": V, "u": W.astype(np.float16)}))
    assert in_half(graph) == ["MatMul", "MatMul", "MatMul"]


def test_values_of_unknown_type_are_left_alone() -> None:
    """Where a type is not told, it may be any: what takes or gives such a value computes as the file has it."""
    nodes = [node("MatMul", "x w", "a"), node("Relu", "a", "b"), node("Add", "b c", "d"), node("MatMul", "d v", "y")]
    nodes.insert(2, node("Neg", "x", "c"))
    graph = read(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "v": V}))
    x = drawn(8, 8)
    (expected,) = run(graph, {"x": x})
    for each in graph.graph:
        if each.op_type == "Neg":
            each.outputs[0].type = None
    assert HalvePass()(graph).modified
    assert in_half(graph) == ["MatMul", "Relu", "MatMul"]
    near(run(graph, {"x": x})[0], expected)


def test_whole_numbers_are_left_alone() -> None:
    nodes = [node("MatMul", "x w", "a"), node("Shape", "a", "s"), node("Gather", "s zero", "n", axis=0)]
    nodes += [node("Cast", "n", "f", to=T.FLOAT), node("Mul", "f a", "y")]
    halved(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "zero": np.array(0)}))


# The model itself -----------------------------------------------------------------------------------------------------


def test_the_model_stays_as_it_is() -> None:
    """It is compiled again, with other sizes or weights."""
    pytest.importorskip("torch")
    from litehouse.engines.torch.engine import TorchEngine

    nodes = [node("MatMul", "x w", "a"), node("Softmax", "a", "b"), node("MatMul", "b v", "y")]
    loaded = litehouse.read(model(nodes, {"x": [8, 8]}, {"y": None}, {"w": W, "v": V}))
    options, x = litehouse.Options(engine="torch", cache=False), drawn(8, 8)

    def facts() -> list[Any]:
        values = [value for each in loaded.graph.graph for value in (*each.inputs, *each.outputs)]
        return [
            ops(loaded.graph),
            [(value.name, value.dtype) for value in values],
            sorted(loaded.graph.graph.initializers),
        ]

    before = facts()
    found = [
        TorchEngine().compile(loaded, options, precision=precision).bind().run([x])[0]
        for precision in ("fp32", "fp16", "fp16", "fp32")
    ]
    assert facts() == before
    np.testing.assert_array_equal(found[0], found[3])
    np.testing.assert_array_equal(found[1], found[2])
    assert not np.array_equal(found[0], found[1])
    near(found[1], found[0])


# At random ------------------------------------------------------------------------------------------------------------

ALONE = ("Relu", "Sigmoid", "Tanh", "Exp", "Neg", "Abs", "Softmax", "Identity", "Transpose", "Erf", "Sqrt", "Log")
PAIRS = ("Add", "Sub", "Mul", "Div", "Max", "Min", "MatMul", "MatMul", "Concat")


def random_graph(seed: int) -> bytes:
    """Ten to twenty ops on squares of numbers, whose sizes are kept in bounds."""
    random = np.random.default_rng(seed)
    values, nodes, weights = ["x"], [], {}
    for place in range(int(random.integers(10, 20))):
        name, x = f"v{place}", values[random.integers(max(0, len(values) - 4), len(values))]
        if random.random() < 0.5:
            op = ALONE[random.integers(len(ALONE))]
            if op in ("Sqrt", "Log"):
                nodes += [node("Sigmoid", x, f"{name}_in")]
                x = f"{name}_in"
            if op == "Exp":
                nodes += [node("Tanh", x, f"{name}_in")]
                x = f"{name}_in"
            nodes.append(node(op, x, name))
        else:
            op = PAIRS[random.integers(len(PAIRS))]
            if random.random() < 0.5:
                other = f"w{place}"
                scale = 10.0 ** float(random.integers(-1, 2)) if op in ("Mul", "Div") else 1.0
                weights[other] = (np.abs(random.normal(size=(8, 8))) + 0.5).astype("f") * np.float32(scale)
            else:
                other = values[random.integers(len(values))]
            if op == "Div":
                nodes += [node("Sigmoid", other, f"{name}_by")]
                other = f"{name}_by"
            if op == "Concat":
                nodes += [node("Concat", f"{x} {other}", f"{name}_c", axis=0)]
                weights |= {f"{name}_0": np.array([0]), f"{name}_8": np.array([8])}
                nodes += [node("Slice", f"{name}_c {name}_0 {name}_8", name)]
            elif op == "MatMul":
                nodes += [node("MatMul", f"{x} {other}", f"{name}_m"), node("Tanh", f"{name}_m", name)]
            else:
                nodes += [node(op, f"{x} {other}", f"{name}_m"), node("Softsign", f"{name}_m", name)]
        values.append(name)
    gives = {values[-1]: None, values[len(values) // 2]: None}
    return model(nodes, {"x": [8, 8]}, gives, weights)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(seed: int) -> None:
    """Nothing that is not a number, names and types as before, and each value near what it was."""
    halved(random_graph(seed), tolerance=5e-2)
