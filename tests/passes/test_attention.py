"""The steps of an attention become one op, in all forms in which frameworks write them; everything else stays."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from litehouse.passes.attention import AttentionPass
from litehouse.passes.sketch import is_fixed
from onnx_models import model, node
from pass_checks import apply, drawn, forget_shapes, ops, read, run, stays

B, T, S, H, D = 2, 5, 7, 3, 4
E = H * D
CONSTANTS = {
    "heads": np.array([B, T, H, D]),
    "other": np.array([B, S, H, D]),
    "rows": np.array([-1, E]),
    "whole": np.array([B, T, E]),
    "five": np.array([B, T, 3, H, D]),
    "scale": np.array(0.4, np.float32),
    "root": np.array([2.5], np.float32),
    "first": np.array([0]),
    "three": np.array([1, 1, 1]),
    "third": np.array([2]),
    **{f"i{index}": np.array(index) for index in range(3)},
}
# The end of every attention: what is behind the scores.
MIXED = [
    node("Softmax", "z", "p", axis=-1),
    node("MatMul", "p v4", "o4"),
    node("Transpose", "o4", "o", perm=(0, 2, 1, 3)),
]
LAST = [*MIXED, node("Reshape", "o whole", "y")]


def split(name: str, shape: str = "heads", order: tuple[int, ...] = (0, 2, 1, 3)) -> list[onnx.NodeProto]:
    """The heads of an operand."""
    return [node("Reshape", f"{name} {shape}", f"{name}r"), node("Transpose", f"{name}r", f"{name}4", perm=order)]


SEPARATE = [*split("q"), *split("k", "other"), node("Transpose", "k4", "kt", perm=(0, 1, 3, 2)), *split("v", "other")]
SCORES = [node("MatMul", "q4 kt", "s")]
SCALED = [*SEPARATE, *SCORES, node("Mul", "s scale", "z")]


ROWS = node("Reshape", "x rows", "r")
PROJECTION = [ROWS, node("Gemm", "r w", "g", transB=1), node("Add", "g b", "h")]
OTHER_PROJECTIONS = {
    "with its bias": [ROWS, node("Gemm", "r w b", "h", transB=1)],
    "without a bias": [ROWS, node("Gemm", "r w", "h", transB=1)],
    "in three axes": [node("MatMul", "x wt", "g"), node("Add", "b g", "h")],
}


def stacked(*taking: onnx.NodeProto, projection: list[onnx.NodeProto] = PROJECTION) -> list[onnx.NodeProto]:
    """Queries, keys and values from one projection."""
    turned = [node("Transpose", "k4", "kt", perm=(0, 1, 3, 2)), *SCORES, node("Mul", "scale s", "z")]
    return [*projection, node("Reshape", "h five", "a"), *taking, *turned, *LAST]


FIRST = node("Transpose", "a", "t", perm=(2, 0, 3, 1, 4))
PARTS = [node("Split", "t three", "q5 k5 v5", axis=0), *(node("Squeeze", f"{c}5 first", f"{c}4") for c in "qkv")]
INDEXED = [node("Gather", f"t i{index}", f"{c}4", axis=0) for index, c in enumerate("qkv")]
LITE = [
    node("Split", "a three", "q5 k5 v5", axis=2),
    *(node("Transpose", f"{c}5", f"{c}6", perm=(2, 0, 3, 1, 4)) for c in "qk"),
    *(node("Squeeze", f"{c}6 first", f"{c}4") for c in "qk"),
    node("Squeeze", "v5 third", "v3"),
    node("Transpose", "v3", "v4", perm=(0, 2, 1, 3)),
]
THREE = {"q": [B, T, E], "k": [B, S, E], "v": [B, S, E]}
ONE = {"x": [B, T, E]}
JOINED = {
    "separate": ([*SCALED, *LAST], THREE),
    "divided": ([*SEPARATE, *SCORES, node("Div", "s root", "z"), *LAST], THREE),
    "keys turned at once": (
        [*split("q"), *split("k", "other", (0, 2, 3, 1)), *split("v", "other"), node("MatMul", "q4 k4", "z"), *LAST],
        THREE,
    ),
    "queries scaled": (
        [*SEPARATE, node("Mul", "q4 scale", "qs"), node("MatMul", "qs kt", "z"), *LAST],
        THREE,
    ),
    "two axes behind": ([*SCALED, *MIXED, node("Reshape", "o rows", "y")], THREE),
    "heads behind": ([*SCALED, *MIXED, node("Relu", "o", "y")], THREE),
    "one projection, split": (stacked(FIRST, *PARTS), ONE),
    "one projection, indexed": (stacked(FIRST, *INDEXED), ONE),
    "one projection, as MindSpore Lite splits it": (stacked(*LITE), ONE),
}


def written(nodes: list, inputs: dict, **weights: np.ndarray) -> bytes:
    weights = {"w": drawn(3 * E, E), "wt": drawn(E, 3 * E), "b": drawn(3 * E)} | CONSTANTS | weights
    taken = {name for each in nodes for name in each.input}
    return model(nodes, inputs, {"y": None}, {name: array for name, array in weights.items() if name in taken})


@pytest.mark.parametrize("case", JOINED)
def test_what_is_joined(case: str) -> None:
    graph = read(written(*JOINED[case]))
    assert apply(AttentionPass(), graph)
    assert not {"Softmax", "Transpose", "Split"} & set(ops(graph))
    assert ops(graph).count("MultiHeadAttention") == 1
    assert ops(graph).count("Gemm") == (3 if case.startswith("one") else 0)


@pytest.mark.parametrize("case", OTHER_PROJECTIONS)
def test_other_projections(case: str) -> None:
    """Queries, keys and values by a product each, so that nothing is sliced but weights."""
    graph = read(written(stacked(FIRST, *PARTS, projection=OTHER_PROJECTIONS[case]), ONE))
    assert apply(AttentionPass(), graph)
    assert ops(graph).count("Gemm") + ops(graph).count("MatMul") == 3
    assert all(is_fixed(each.inputs[0]) for each in graph.graph if each.op_type == "Slice")


def test_a_projection_by_no_weight_is_sliced() -> None:
    nodes = stacked(FIRST, *PARTS, projection=[node("MatMul", "x given", "h")])
    graph = read(written(nodes, ONE | {"given": [E, 3 * E]}))
    assert apply(AttentionPass(), graph)
    assert ops(graph).count("MatMul") == 1


@pytest.mark.parametrize("shape", [(B, 1, 1, S), (T, S), (1, H, T, S), (1, S), (B, 1, T, 1)])
@pytest.mark.parametrize("order", ["s m", "m s"])
def test_masks_that_are_added(shape: tuple[int, ...], order: str) -> None:
    nodes = [*SEPARATE, node("MatMul", "q4 kt", "u"), node("Mul", "u scale", "s"), node("Add", order, "z"), *LAST]
    graph = read(written(nodes, THREE | {"m": list(shape)}))
    assert apply(AttentionPass(), graph)
    assert "MultiHeadAttention" in ops(graph)
    assert "Softmax" not in ops(graph)


@pytest.mark.parametrize("number", [-3.4e38, -np.inf])
@pytest.mark.parametrize("order", ["hide low s", "hide s low"])
def test_masks_that_put_a_number(number: float, order: str) -> None:
    nodes = [*SEPARATE, *SCORES, node("Where", order, "z"), *LAST]
    hide = np.random.default_rng(0).random((1, 1, T, S)) < 0.5
    hide[..., 0], hide[..., 1] = True, False  # no line is hidden as a whole, in either order
    graph = read(written(nodes, THREE, low=np.array(number, np.float32), hide=hide))
    assert apply(AttentionPass(), graph)
    assert "MultiHeadAttention" in ops(graph)


@pytest.mark.parametrize("number", [-3.4e38, -np.inf])
def test_a_line_that_is_hidden_as_a_whole(number: float) -> None:
    """Means of all values, or NaN, as before."""
    mask = np.zeros((T, S), np.float32)
    mask[1] = number
    nodes = [*SEPARATE, *SCORES, node("Add", "s m", "z"), *LAST]
    assert apply(AttentionPass(), read(written(nodes, THREE, m=mask)))


def test_many_tokens() -> None:
    tokens = 520
    shapes = {"heads": np.array([1, tokens, H, D]), "other": np.array([1, tokens, H, D])}
    inputs = {name: [1, tokens, E] for name in THREE}
    graph = read(written([*SCALED, *MIXED, node("Reshape", "o rows", "y")], inputs, **shapes))
    assert apply(AttentionPass(), graph)
    assert "MultiHeadAttention" in ops(graph)


def test_an_older_opset_stays_as_it_is() -> None:
    nodes, inputs = JOINED["separate"]
    proto = onnx.load_from_string(written(nodes, inputs))
    proto.opset_import[0].version = 13
    graph = read(proto.SerializeToString())
    assert apply(AttentionPass(), graph)
    assert graph.opset_imports[""] == 13


OTHER_SCALE = drawn(H, 1, 1)
KEPT = {
    "softmax over another axis": [*SCALED, node("Softmax", "z", "p", axis=2), *LAST[1:]],
    "a scale for each head": [*SEPARATE, *SCORES, node("Mul", "s each", "z"), *LAST],
    "no scale at all": [*SEPARATE, *SCORES, node("Mul", "s zero", "z"), *LAST],
    "weights that others see": [*SCALED, *LAST[:-1], node("Reshape", "o whole", "y0"), node("Sqrt", "p", "y")],
    "scores that others see": [*SCALED, *LAST[:-1], node("Reshape", "o whole", "y0"), node("Sqrt", "s", "y")],
    "values first": [*SCALED, LAST[0], node("MatMul", "v5 p", "o4"), node("Transpose", "o4", "y", perm=(0, 2, 1, 3))],
    "heads left apart": [*SCALED, *LAST[:2], node("Relu", "o4", "y")],
    "heads that are no part of a token": [*SCALED[1:], *LAST],
    "a mask of few": [*SEPARATE, *SCORES, node("Where", "hide few s", "z"), *LAST],
}
KEPT_INPUTS = {
    "values first": THREE | {"v5": [B, H, D, T]},
    "heads that are no part of a token": {"qr": [B, T, H, D]} | {"k": [B, S, E], "v": [B, S, E]},
}


@pytest.mark.parametrize("case", [case for case in KEPT if case != "heads that are no part of a token"])
def test_what_is_kept(case: str) -> None:
    weights = {"each": OTHER_SCALE, "zero": np.array(0, np.float32), "few": np.array(-100, np.float32)}
    weights["hide"] = np.zeros((T, S), bool)
    assert stays(AttentionPass(), written(KEPT[case], KEPT_INPUTS.get(case, THREE), **weights))


def test_heads_from_another_place() -> None:
    """Where the heads are taken apart by no reshape, they are read from where they are."""
    graph = read(written(KEPT["heads that are no part of a token"], KEPT_INPUTS["heads that are no part of a token"]))
    assert apply(AttentionPass(), graph)
    assert "Softmax" not in ops(graph)


def test_nothing_is_done_without_shapes() -> None:
    graph = read(written(*JOINED["separate"]))
    forget_shapes(graph)
    assert not AttentionPass()(graph).modified


def test_double_precision_is_kept() -> None:
    nodes, inputs = JOINED["separate"]
    constants = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in CONSTANTS.items()
    }
    taken = {name for each in nodes for name in each.input}
    weights = {name: array for name, array in constants.items() if name in taken}
    data = model(nodes, inputs, {"y": None}, weights, dtype=onnx.TensorProto.DOUBLE)
    assert stays(AttentionPass(), data)


def test_the_numbers_by_hand() -> None:
    graph = read(written(*JOINED["separate"]))
    feed = {name: drawn(*shape) for name, shape in THREE.items()}
    assert AttentionPass()(graph).modified
    (actual,) = run(graph, feed)
    q, k, v = (feed[name].astype(np.float64).reshape(B, -1, H, D).transpose(0, 2, 1, 3) for name in "qkv")
    powers = np.exp(0.4 * q @ k.swapaxes(2, 3))
    expected = (powers / powers.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(B, T, E)
    np.testing.assert_allclose(actual, expected, atol=1e-6)


@pytest.mark.parametrize("token", [0, 3])
def test_the_query_of_one_token(token: int) -> None:
    """As where one token looks at all others: it is a part of a line of the projection, not of its columns."""
    nodes = [
        *(node("MatMul", "x wt", "g"), node("Add", "g b", "h"), node("Split", "h even", "q k v", axis=2)),
        node("Slice", "q start end axis", "q1"),
        node("Reshape", "q1 one", "qr"),
        node("Transpose", "qr", "q4", perm=(0, 2, 1, 3)),
        *split("k", order=(0, 2, 3, 1)),
        *split("v"),
        *(node("MatMul", "q4 k4", "z"), *MIXED, node("Reshape", "o rows", "y")),
    ]
    numbers = {"start": [token], "end": [token + 1], "axis": [1], "one": [B, 1, H, D], "even": [E] * 3}
    graph = read(written(nodes, ONE, **{name: np.array(each) for name, each in numbers.items()}))
    assert apply(AttentionPass(), graph)
    assert "MultiHeadAttention" in ops(graph)


def test_a_scale_too_small_for_the_op() -> None:
    """Its factors are numbers of single precision, but not their product: 0 would stand for the op's own default."""
    nodes = [*SEPARATE, node("Mul", "q4 tiny", "qs"), node("MatMul", "qs kt", "s"), node("Mul", "s tiny", "z"), *LAST]
    assert stays(AttentionPass(), written(nodes, THREE, tiny=np.array(1e-30, np.float32)))


def test_old_softmaxes_go_over_several_axes() -> None:
    nodes, inputs = JOINED["separate"]
    old = [node("Softmax", "z", "p") if each.output[0] == "p" else each for each in nodes]
    proto = onnx.load_from_string(written(old, inputs))
    proto.opset_import[0].version = 12
    graph = ir.from_proto(onnx.shape_inference.infer_shapes(proto))  # not by reading, which rewrites it
    assert not AttentionPass()(graph).modified


def test_a_mask_of_several_attentions_is_made_once() -> None:
    again = [
        onnx.NodeProto.FromString(each.SerializeToString())
        for each in [*SCORES, node("Where", "hide s low", "z"), *MIXED]
    ]
    for each in again:
        each.output[0] += "_"
        each.input[:] = [f"{name}_" if name in ("s", "z", "p", "o4") else name for name in each.input]
    nodes = [*SEPARATE, *SCORES, node("Where", "hide s low", "z"), *MIXED, *again, node("Sub", "o o_", "y")]
    graph = read(written(nodes, THREE, low=np.array(-np.inf, np.float32), hide=np.tri(T, S) > 0))
    assert apply(AttentionPass(), graph)
    assert ops(graph).count("Where") == ops(graph).count("Expand") == 1
