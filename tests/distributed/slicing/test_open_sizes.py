"""Sizes that a file leaves open: what comes out the same for some of them need not be fixed."""

import numpy as np
import onnx
import pytest

from benchmarks.networks.plain import FLOAT, Builder
from distributed.slicing.support import FREE, assert_same, sliced
from litehouse.errors import LitehouseError


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype("f")


def mean_over(b: Builder, value: str, axis: int) -> str:
    """The mean, with the count of numbers read from the shape."""
    count = b.op("Cast", b.op("Gather", b.op("Shape", value), b.array(axis, np.int64)), to=FLOAT)
    return b.op("Div", b.op("ReduceSum", value, b.ints(axis), keepdims=0), count)


def check(data: bytes | onnx.ModelProto, *inputs: np.ndarray, pipeline: bool = False) -> None:
    assert_same(sliced(data, 2, FREE, pipeline=pipeline), list(inputs))


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("length", [1, 5, 8, 12, 100])
def test_the_first_eight(length: int, pipeline: bool) -> None:
    b = Builder()
    y = mean_over(b, b.op("Slice", "x", b.ints(0), b.ints(8), b.ints(1)), 1)
    check(b.model({"x": (FLOAT, ("n", "t", 16))}, {"y": (y, None)}), drawn(2, length, 16), pipeline=pipeline)


@pytest.mark.parametrize("length", [12, 20, 33])
def test_filled_up_to_a_multiple_of_sixteen(length: int) -> None:
    b = Builder()
    missing = b.op("Mod", b.op("Neg", b.op("Gather", b.op("Shape", "x"), b.ints(1))), b.ints(16))
    pads = b.op("Concat", b.ints(0, 0, 0, 0), missing, b.ints(0), axis=0)
    y = mean_over(b, b.op("Pad", "x", pads), 1)
    check(b.model({"x": (FLOAT, ("n", "t", 16))}, {"y": (y, None)}), drawn(2, length, 16))


def test_a_wide_stride() -> None:
    b = Builder()
    image = b.op("Conv", b.op("Unsqueeze", "x", b.ints(1)), b.weight("c", 32, 1, 3), strides=[8], pads=[1, 1])
    check(b.model({"x": (FLOAT, ("n", "t"))}, {"y": (mean_over(b, image, 2), None)}), drawn(2, 1600))


@pytest.mark.parametrize("names", [("batch_beams", "batch"), (None, None)])
@pytest.mark.parametrize("rows", [3, 6])
def test_sizes_of_two_names_need_not_be_equal(rows: int, names: tuple[str | None, str | None]) -> None:
    b = Builder()
    h = b.op("MatMul", "x", b.weight("w", 16, 48))
    wanted = b.op("Concat", b.op("Gather", b.op("Shape", "k"), b.ints(0)), b.ints(-1), axis=0)
    inputs = {"x": (FLOAT, (names[0], 16)), "k": (FLOAT, (names[1], 3))}
    data = b.model(inputs, {"y": (mean_over(b, b.op("Reshape", h, wanted), 1), None)})
    check(data, drawn(rows, 16), drawn(3, 3))


def test_axes_that_only_seem_to_be_kept() -> None:
    b = Builder()
    h = b.op("Transpose", b.op("MatMul", "x", b.weight("w1", 16, 48)), perm=[0, 2, 1])
    r = b.op("Reshape", h, b.op("Concat", b.op("Shape", "k"), b.ints(48, -1), axis=0))
    y = b.op("MatMul", b.op("Transpose", r, perm=[0, 2, 1]), b.weight("w2", 48, 32))
    data = b.model({"x": (FLOAT, ("p", "q", 16)), "k": (FLOAT, ("u",))}, {"y": (y, None)})
    check(data, drawn(2, 6, 16), drawn(4))


def test_names_of_sizes_stay_what_they_are() -> None:
    b = Builder()
    y = b.op("Add", b.op("MatMul", "x", b.weight("w", 16, 48)), b.op("ReduceSum", "k", keepdims=0))
    made = sliced(b.model({"x": (FLOAT, ("a", 16)), "k": (FLOAT, ("b", 3))}, {"y": (y, None)}), 2, FREE)
    shapes = [tuple(value.shape) for value in made.model_for(0).graph.graph.inputs if value.shape is not None]
    assert [str(shape[0]) for shape in shapes] == ["a", "b"]


def test_a_bias_that_is_an_output() -> None:
    b = Builder()
    h = b.op("Relu", b.op("MatMul", "x", b.weight("w1", 16, 64)))
    y = b.op("Gemm", h, b.weight("w2", 64, 16), b.weight("b", 16))
    made = onnx.load_from_string(b.model({"x": (FLOAT, (4, 16))}, {"y": (y, None)}))
    made.graph.output.append(onnx.helper.make_tensor_value_info("b", FLOAT, [16]))
    check(made, drawn(4, 16))


@pytest.mark.parametrize("pipeline", [False, True])
def test_the_shape_of_a_second_result(pipeline: bool) -> None:
    b = Builder()
    h, mean = b.op("LayerNormalization", "x", b.weight("g", 16), outputs=2, axis=-1)
    z = b.op("Expand", b.op("ReduceMax", h, b.ints(-1)), b.op("Shape", mean))
    data = b.model({"x": (FLOAT, ("n", "t", 16))}, {"y": (h, None), "z": (z, None)})
    check(data, drawn(3, 4, 16), pipeline=pipeline)


def test_the_shape_of_a_part_that_is_filled_up() -> None:
    b = Builder()
    h = b.op("MatMul", "x", b.weight("w", 16, 49))
    y = b.op("Cast", b.op("Cast", h, to=onnx.TensorProto.FLOAT16), to=FLOAT)
    data = b.model({"x": (FLOAT, ("n", 16))}, {"y": (y, None), "z": (b.op("ConstantOfShape", b.op("Shape", h)), None)})
    check(data, drawn(3, 16))


def test_old_files_keep_their_tables_whole() -> None:
    b = Builder(opset=8)
    table = b.op("Gather", b.weight("table", 40, 7), "ids")
    made = sliced(b.model({"ids": (onnx.TensorProto.INT64, (3,))}, {"y": (table, None)}), 2, FREE)
    assert_same(made, [np.array([0, 5, 39])])


def test_models_that_differ_in_texts_are_told_apart() -> None:
    def made(word: str) -> str:
        text = onnx.helper.make_tensor("text", onnx.TensorProto.STRING, [1], [word.encode()])
        nodes = [onnx.helper.make_node("Identity", ["x"], ["y"]), onnx.helper.make_node("Identity", ["text"], ["z"])]
        infos = [onnx.helper.make_tensor_value_info(name, FLOAT, [2]) for name in "xy"]
        infos.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.STRING, [1]))
        graph = onnx.helper.make_graph(nodes, "g", infos[:1], infos[1:], [text])
        opsets = [onnx.helper.make_opsetid("", 20)]
        return sliced(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), 2, FREE).fingerprint

    assert made("one") != made("two")
    assert made("one") == made("one")


def test_an_output_of_unknown_rank_is_not_sent() -> None:
    b = Builder()
    y = b.op("Reshape", b.op("MatMul", "x", b.weight("w", 16, 16)), "sizes")
    data = b.model({"x": (FLOAT, (4, 16)), "sizes": (onnx.TensorProto.INT64, ("r",))}, {"y": (y, None)})
    with pytest.raises(LitehouseError, match="cannot be sent to other ranks"):
        sliced(data, 2, FREE, pipeline=True)
