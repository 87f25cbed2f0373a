"""Graphs for a part of the batch: the same numbers, or a refusal."""

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import helper

from litehouse.passes.split_batch import CannotSplitError, SplitBatchPass
from onnx_models import model, node

RANDOM = np.random.default_rng(0)
W = {name: RANDOM.normal(size=shape).astype("f") for name, shape in (("k", (6, 3, 3, 3)), ("m", (5, 7)), ("b", (7,)))}
INTS = {name: np.array(numbers, np.int64) for name, numbers in (("rows", [8, -1]), ("one", [1]), ("zero", [0]))}


def run(data: bytes, *inputs: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(data, options)
    return session.run(None, {item.name: array for item, array in zip(session.get_inputs(), inputs, strict=True)})


def split(data: bytes, parts: int) -> bytes:
    graph = ir.from_proto(onnx.load_from_string(data))
    SplitBatchPass(parts)(graph)
    proto = ir.to_proto(graph)
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    return proto.SerializeToString()


def check(data: bytes, *inputs: np.ndarray) -> None:
    whole = run(data, *inputs)
    for parts in (2, 4, 8):
        part = split(data, parts)
        pieces = [run(part, *arrays) for arrays in zip(*(np.split(x, parts) for x in inputs), strict=True)]
        for wanted, *found in zip(whole, *pieces, strict=True):
            np.testing.assert_allclose(np.concatenate(found), wanted, rtol=1e-5, atol=1e-6)


def graph(text: str, shape: list[int], result: list[int] | None, **weights: np.ndarray) -> bytes:
    """A graph from lines as `y = Softmax x axis=-1`; the last line gives the output."""
    nodes = []
    for line in filter(None, map(str.strip, text.split(";"))):
        outputs, _, call = line.partition(" = ")
        op, *words = call.split()
        attributes = {name: eval(value) for name, _, value in (word.partition("=") for word in words if "=" in word)}
        nodes.append(node(op, " ".join(word for word in words if "=" not in word), outputs, **attributes))
    used = {name for each in nodes for name in each.input}
    given = {name: array for name, array in {**W, **INTS, **weights}.items() if name in used}
    return model(nodes, {"x": shape}, {nodes[-1].output[0]: result}, given)


SPLIT = {
    "images": ("c = Conv x k; r = Relu c; p = GlobalAveragePool r; y = Reshape p rows", [8, 3, 9, 9], [8, 6]),
    "rows": ("f = Reshape x flat; h = MatMul f m; a = Add h b; y = Reshape a back", [8, 4, 5], [8, 4, 7]),
    "attention": (
        "t = Transpose x perm=(0,2,1); s = MatMul x t; a = Softmax s axis=-1; y = MatMul a x",
        [8, 4, 5],
        [8, 4, 5],
    ),
    "a token for all": ("e = Expand token wide; y = Concat e x axis=1", [8, 4, 5], [8, 5, 5]),
    "a table": ("n = Cast x to=7; g = Gather table n axis=0; y = ReduceMean g middle keepdims=0", [8, 4], [8, 5]),
    "numbers for every image": ("y = Mul x same", [8, 4], [8, 4]),
    "queries, keys and values": (
        "h = MatMul x m3; r = Reshape h five; t = Transpose r perm=(2,0,3,1,4); a b2 c = Split t axis=0 num_outputs=3;"
        "q = Squeeze a zero; k2 = Gather b2 first axis=0; v = Squeeze c zero; d = Transpose k2 perm=(0,1,3,2);"
        "s = MatMul q d; w = Softmax s axis=-1; o = MatMul w v; z = Transpose o perm=(0,2,1,3); y = Reshape z back2",
        [8, 4, 5],
        [8, 4, 6],
    ),
    "axes in front": ("u = Unsqueeze x zero; t = Add u ones3; y = Squeeze t zero", [8, 4], [8, 4]),
    "rows behind columns": (
        "t = Transpose x perm=(1,0); n = Softmax t axis=0; m4 = ReduceMax n zero keepdims=0; u = Unsqueeze m4 one;"
        "y = Mul x u",
        [8, 4],
        [8, 4],
    ),
    "the best of each": ("b2 = ArgMax x axis=1 keepdims=0; c = Cast b2 to=1; y = Unsqueeze c one", [8, 4], [8, 1]),
    "parts of an image": ("a b2 = Split x halves axis=1; y = Concat b2 a axis=1", [8, 4], [8, 4]),
}
MORE = {
    "flat": np.array([32, 5]),
    "back": np.array([8, 4, 7]),
    "token": RANDOM.normal(size=(1, 1, 5)).astype("f"),
    "wide": np.array([8, 1, 5]),
    "table": RANDOM.normal(size=(9, 5)).astype("f"),
    "middle": np.array([1]),
    "same": np.tile(np.array([[1, 2, 3, 4]], "f"), (8, 1)),
    "halves": np.array([1, 3]),
    "other": RANDOM.normal(size=(8, 4)).astype("f"),
    "m3": RANDOM.normal(size=(5, 18)).astype("f"),
    "five": np.array([8, 4, 3, 2, 3]),
    "first": np.array(0),
    "back2": np.array([8, 4, 6]),
    "ones3": np.ones((2, 1, 1), "f")[:1],
    "four": RANDOM.normal(size=(4, 8)).astype("f"),
}


@pytest.mark.parametrize("case", SPLIT)
def test_parts_give_what_the_whole_gives(case: str) -> None:
    text, shape, result = SPLIT[case]
    x = RANDOM.integers(0, 9, shape).astype("f") if "table" in text else RANDOM.normal(size=shape).astype("f")
    check(graph(text, shape, result, **MORE), x)


MIXED = {
    "a sum over the batch": ("y = ReduceSum x zero keepdims=1; z = Add x y", [8, 4], [8, 4]),
    "a sum over all": ("y = ReduceSum x keepdims=1; z = Add x y", [8, 4], [8, 4]),
    "a softmax over the batch": ("y = Softmax x axis=0", [8, 4], [8, 4]),
    "a transposed batch": ("t = Transpose x perm=(1,0); y = MatMul x t", [8, 4], [8, 8]),
    "a product with each other": ("t = Transpose x perm=(1,0); a = MatMul t x; y = MatMul x a", [8, 4], [8, 4]),
    "weights for each image": ("y = Mul x other", [8, 4], [8, 4]),
    "a product from the left": ("y = MatMul four x", [8, 4], [4, 4]),
    "some of the images": ("y = Gather x zero axis=0", [8, 4], [1, 4]),
    "places in the batch": ("p i = MaxPool x kernel_shape=(2,2); y = Cast i to=1", [8, 1, 4, 4], [8, 1, 3, 3]),
    "a norm of the batch": ("y = LayerNormalization x scale axis=0", [8, 4], [8, 4]),
    "a sum that runs": ("y = CumSum x zero0", [8, 4], [8, 4]),
    "rows of another shape": ("r = Reshape x crossed; y = MatMul r m2", [8, 5], [5, 3]),
    "a softmax over a moved batch": (
        "t = Transpose x perm=(1,0); s = Softmax t axis=1; y = Transpose s perm=(1,0)",
        [8, 4],
        [8, 4],
    ),
    "a moved batch that is reshaped": ("t = Transpose x perm=(1,0); r = Reshape t rows; y = Relu r", [8, 4], [8, 4]),
    "an output with a moved batch": ("y = Transpose x perm=(1,0)", [8, 8], [8, 8]),
    "one image for all": ("g = Gather x zero axis=0; y = Add x g", [8, 4], [8, 4]),
}


@pytest.mark.parametrize("case", MIXED)
def test_what_mixes_images_is_refused(case: str) -> None:
    text, shape, result = MIXED[case]
    weights = {
        "scale": np.ones((8, 4), "f"),
        "zero0": np.array(0),
        "crossed": np.array([5, 8]),
        "m2": np.ones((8, 3), "f"),
    }
    data = graph(text, shape, result, **MORE, **weights)
    run(data, np.ones(shape, "f"))  # it is a valid graph
    with pytest.raises(CannotSplitError):
        split(data, 2)


def test_a_normalisation_that_learns_is_refused() -> None:
    stats = {name: np.ones(3, "f") for name in ("s", "o", "mean", "var")}
    nodes = [node("BatchNormalization", "x s o mean var", "y m2 v2", training_mode=1)]
    data = model(nodes, {"x": [8, 3, 4, 4]}, {"y": [8, 3, 4, 4]}, stats)
    with pytest.raises(CannotSplitError, match="BatchNormalization"):
        split(data, 2)


def test_a_batch_that_has_no_equal_parts_is_refused() -> None:
    with pytest.raises(CannotSplitError, match="3 equal parts"):
        split(graph("y = Relu x", [8, 4], [8, 4]), 3)
    with pytest.raises(CannotSplitError):
        split(graph("y = Relu x", ["n", 4], ["n", 4]), 2)  # type: ignore[list-item]


def test_branches_are_refused() -> None:
    branch = helper.make_graph(
        [node("Relu", "x", "t")], "b", [], [helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, [8, 4])]
    )
    choose = helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
    data = model([choose], {"x": [8, 4]}, {"y": [8, 4]}, {"yes": np.array(True)})
    with pytest.raises(CannotSplitError):
        split(data, 2)
