"""What nearly looks like what a pass rewrites: with all passes of an engine it must compute the same, and soon."""

import sys
from collections.abc import Callable
from types import FrameType

import numpy as np
import onnx
import onnx.reference
import onnx_ir as ir
import pytest
from onnx import helper

import litehouse
from conftest import assert_close
from litehouse.passes import speed_up
from litehouse.passes.gelu import GeluPass
from litehouse.passes.join_cells import JoinCellsPass
from litehouse.passes.move_bias import MoveBiasPass
from litehouse.passes.move_shuffles import MoveShufflesPass
from litehouse.passes.sketch import is_fixed
from onnx_models import Shape, model, node
from pass_checks import drawn, ops, read, run

FLOAT = onnx.TensorProto.FLOAT
WIDE = drawn(112, 120, 3, 3) / 30  # wide enough for Winograd's scheme
IMAGE = [1, 120, 14, 14]


def sped_up(data: bytes, feed: dict[str, np.ndarray], engine: str) -> ir.Model:
    """The graph as the passes of an engine leave it, which must compute the same."""
    graph = litehouse.read(data).graph
    before = run(graph, feed)
    speed_up(graph, engine)
    for actual, expected in zip(run(graph, feed), before, strict=True):
        assert actual.shape == expected.shape
        assert_close(actual, expected)
    return graph


def with_records(data: bytes, **shapes: Shape) -> bytes:
    """A model that records the shapes of some results."""
    proto = onnx.ModelProto.FromString(data)
    proto.graph.value_info.extend(helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in shapes.items())
    return proto.SerializeToString()


def loop(taken: str, result: str, kind: str = "Relu", *, shape: Shape | None) -> onnx.NodeProto:
    """A loop of one turn whose body takes a value from outside; it has names as passes might invent them."""
    inner = [node("Identity", "going", "val_0"), node("Identity", "turn", "val_1"), node(kind, taken, "val_2")]
    infos = [
        helper.make_tensor_value_info("turn", onnx.TensorProto.INT64, []),
        helper.make_tensor_value_info("going", onnx.TensorProto.BOOL, []),
        helper.make_tensor_value_info("state", FLOAT, None),
    ]
    ends = [helper.make_tensor_value_info("val_0", onnx.TensorProto.BOOL, [])]
    ends.append(helper.make_tensor_value_info("val_2", FLOAT, shape))
    return node("Loop", "turns truth start", result, body=helper.make_graph(inner, "body", infos, ends))


LOOP = {"turns": np.array(1), "truth": np.array(True), "start": np.zeros((), np.float32)}


# Names ----------------------------------------------------------------------------------------------------------------


def test_new_names_are_not_those_of_inner_graphs(cpu_engine: str) -> None:
    nodes = [node("Conv", "x w", "c"), loop("c", "y", shape=[1, 112, 12, 12])]
    data = model(nodes, {"x": IMAGE}, {"y": None}, {"w": WIDE, **LOOP})
    assert "Conv" not in ops(sped_up(data, {"x": drawn(*IMAGE)}, cpu_engine))


def test_new_names_are_not_those_of_weights(engine: str) -> None:
    weights = {"w": WIDE, "#int64(1,)[1]": drawn(1), "#0": drawn(1)}
    nodes = [node("Conv", "x w", "c")]
    nodes += [helper.make_node("Mul", ["c", "#int64(1,)[1]"], ["m"]), helper.make_node("Add", ["m", "#0"], ["y"])]
    sped_up(model(nodes, {"x": IMAGE}, {"y": None}, weights), {"x": drawn(*IMAGE)}, engine)


UNNAMED = {
    "pools": [
        *(node("Pad", "x p", "a"), node("MaxPool", "a", "b", kernel_shape=(2, 2))),
        *(node("Pad", "b p", "c"), node("MaxPool", "c", "d", kernel_shape=(2, 2))),
    ],
    "numbers": [
        *(node("ReduceMean", "x", "m"), node("Reshape", "m none", "a"), node("Reshape", "m none", "b")),
        node("Add", "a b", "d"),
    ],
    "absolute values": [
        *(node("Shape", "x", "s"), node("Neg", "s", "n"), node("Abs", "n", "a")),
        *(node("Neg", "a", "m"), node("Abs", "m", "b"), node("Reshape", "x b", "d")),
    ],
}


@pytest.mark.parametrize("case", UNNAMED)
def test_guards_of_nodes_without_names(engine: str, case: str) -> None:
    """ONNX Runtime takes no two nodes of one name, and no value of a graph that a graph in it has too."""
    nodes = [*UNNAMED[case], loop("d", "l", shape=None), node("Relu", "l", "y")]
    numbers = {"p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "none": np.zeros(0, np.int64)}
    taken = {name for each in nodes for name in each.input}
    weights = {name: each for name, each in numbers.items() if name in taken} | LOOP
    data = model(nodes, {"x": [1, 2, 4, 4]}, {"y": None}, weights)
    x = drawn(1, 2, 4, 4)
    expected = onnx.reference.ReferenceEvaluator(data).run(None, {"x": x})[0]
    assert_close(litehouse.load(data, engine=engine).run([x])[0], expected)


# Shapes ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", ["n", 2])
def test_recorded_shapes_may_be_wrong(engine: str, batch: int | str) -> None:
    """As in a file whose batch was edited at the input alone."""
    nodes = [node("Relu", "x", "r"), node("Conv", "r w", "c"), node("Shape", "c", "s"), node("Expand", "b s", "y")]
    data = model(nodes, {"x": [batch, *IMAGE[1:]]}, {"y": None}, {"w": WIDE, "b": drawn(1)})
    sped_up(with_records(data, r=[1, 120, 14, 14], c=[1, 112, 12, 12]), {"x": drawn(2, *IMAGE[1:])}, engine)


def test_recorded_shapes_are_kept_where_none_can_be_told(cpu_engine: str) -> None:
    nodes = [node("Relu", "x", "r"), loop("r", "l", shape=["n", 120, 14, 14]), node("Conv", "l w", "y")]
    data = model(nodes, {"x": IMAGE}, {"y": [1, 112, 12, 12]}, {"w": WIDE, **LOOP})
    assert "Conv" in ops(sped_up(data, {"x": drawn(*IMAGE)}, cpu_engine))
    assert "Conv" not in ops(sped_up(with_records(data, l=IMAGE), {"x": drawn(*IMAGE)}, cpu_engine))


POOLS: dict[str, dict] = {
    "window in the padding": {"kernel_shape": (2, 2), "strides": (2, 2), "pads": (1, 1, 1, 1), "ceil_mode": 1},
    "window behind the image": {"kernel_shape": (2, 2), "strides": (3, 3), "ceil_mode": 1},
    "dilated": {"kernel_shape": (3, 3), "strides": (2, 2), "dilations": (2, 2), "auto_pad": "SAME_UPPER"},
}


@pytest.mark.parametrize("case", POOLS)
def test_pools_whose_size_engines_see_otherwise(engine: str, case: str) -> None:
    nodes = [node("MaxPool", "x", "p", **POOLS[case]), node("Conv", "p w", "y", pads=(1, 1, 1, 1))]
    shape = [1, 120, 33, 33]
    graph = sped_up(model(nodes, {"x": shape}, {"y": None}, {"w": WIDE}), {"x": drawn(*shape)}, engine)
    assert "Conv" in ops(graph)


def test_a_usual_pool_is_no_obstacle(cpu_engine: str) -> None:
    pool = node("MaxPool", "x", "p", kernel_shape=(3, 3), strides=(2, 2), ceil_mode=1)
    data = model([pool, node("Conv", "p w", "y")], {"x": [1, 120, 30, 30]}, {"y": None}, {"w": WIDE})
    assert "Conv" not in ops(sped_up(data, {"x": drawn(1, 120, 30, 30)}, cpu_engine))


@pytest.mark.parametrize(("scale", "is_told"), [(1.3, False), (2.3, False), (1.5, True), (2.0, True)])
def test_images_enlarged_by_a_fraction(cpu_engine: str, scale: float, is_told: bool) -> None:
    """1.3 * 30 is 39 in single precision, but less in double."""
    nodes = [helper.make_node("Resize", ["x", "", "s"], ["r"], mode="nearest"), node("Conv", "r w", "y")]
    weights = {"w": WIDE, "s": np.array([1, 1, scale, scale], np.float32)}
    data = model(nodes, {"x": [1, 120, 30, 30]}, {"y": None}, weights)
    assert ("Conv" not in ops(sped_up(data, {"x": drawn(1, 120, 30, 30)}, cpu_engine))) == is_told


EMPTY = {
    "rows": ([node("MatMul", "x w", "p"), node("Add", "p b", "y")], [2, 5, 6], {"w": drawn(6, 0), "b": drawn(1)}),
    "an image to rows": (
        [node("Reshape", "x s", "f", allowzero=1), node("Transpose", "f", "y", perm=(0, 2, 1))],
        [2, 0, 4, 4],
        {"s": np.array([2, 0, 16])},
    ),
    "rows to an image": (
        [node("Transpose", "x", "t", perm=(0, 2, 1)), node("Reshape", "t s", "y", allowzero=1)],
        [2, 0, 3],
        {"s": np.array([2, 3, 4, 0])},
    ),
}


@pytest.mark.parametrize("case", EMPTY)
def test_what_is_empty(engine: str, case: str) -> None:
    nodes, shape, weights = EMPTY[case]
    sped_up(model(nodes, {"x": shape}, {"y": None}, weights), {"x": drawn(*shape)}, engine)


# Weights --------------------------------------------------------------------------------------------------------------


def test_what_a_loop_takes_from_outside_is_not_fixed() -> None:
    """Its inputs alone would tell so."""
    nodes = [node("Conv", "x w", "c"), loop("c", "m", "GlobalAveragePool", shape=[1, 8, 1, 1])]
    nodes += [node("Add", "c m", "a"), node("Relu", "a", "y")]
    data = model(nodes, {"x": [1, 8, 5, 5]}, {"y": None}, {"w": drawn(8, 8, 1, 1), **LOOP})
    graph = sped_up(data, {"x": drawn(1, 8, 5, 5)}, "onnxruntime")
    (made,) = (each for each in graph.graph if each.op_type == "Loop")
    assert not is_fixed(made.outputs[0])


def test_a_weight_of_many_convolutions_is_changed_once(cpu_engine: str) -> None:
    """Engines would keep a copy for each: of a network that was written out step by step, hundreds."""
    square = drawn(112, 112, 3, 3) / 30
    names = ["x", "a", "b", "c"]
    nodes = [node("Conv", f"{x} w", y, pads=(1, 1, 1, 1)) for x, y in zip(names, [*names[1:], "y"], strict=True)]
    shape = [1, 112, 12, 12]
    graph = sped_up(model(nodes, {"x": shape}, {"y": None}, {"w": square}), {"x": drawn(*shape)}, cpu_engine)
    assert "Conv" not in ops(graph)
    assert ops(graph).count("Split") == 1


def test_weights_that_come_behind_the_convolution(engine: str) -> None:
    """Those of its normalisation."""
    nodes = [node("Conv", "x w", "c"), node("Abs", "v0", "v"), node("BatchNormalization", "c g g g v", "y")]
    weights = {"w": WIDE, "v0": drawn(112) + 3, "g": drawn(112)}
    graph = sped_up(model(nodes, {"x": IMAGE}, {"y": None}, weights), {"x": drawn(*IMAGE)}, engine)
    place = {each: index for index, each in enumerate(graph.graph)}
    for each in graph.graph:
        makers = [value.producer() for value in each.inputs if value is not None]
        assert all(place[maker] < place[each] for maker in makers if maker is not None)


# Work -----------------------------------------------------------------------------------------------------------------

COUNT = 12000
MOST_CALLS = 4_000_000


def products_behind_sums() -> bytes:
    chain = [node("Add", f"v{step} b", f"v{step + 1}") for step in range(COUNT)]
    ends = [node("Gelu", f"v{step}", f"y{step}") for step in range(COUNT)]
    nodes = [node("MatMul", "x w", "v0"), *chain, *ends]
    return model(nodes, {"x": [1, 2]}, {f"y{step}": None for step in range(COUNT)}, {"w": drawn(2, 2), "b": drawn(2)})


def sums_of_one_product() -> bytes:
    nodes = [node("Mul", "x x", "m"), *(node("Add", "m m", f"y{step}") for step in range(COUNT))]
    return model(nodes, {"x": [1, 2]}, {f"y{step}": None for step in range(COUNT)})


def joined_images() -> bytes:
    nodes = [node("Concat", "x x2", f"y{step}", axis=1) for step in range(COUNT)]
    return model(nodes, {"x": [1, 2000, 1, 1], "x2": [1, 2000, 1, 1]}, {f"y{step}": None for step in range(COUNT)})


def sums_of_sums() -> bytes:
    nodes = [node("Sum", " ".join([f"s{level}"] * 20), f"s{level + 1}") for level in range(8)]
    nodes += [node("Conv", "x w", "c"), node("Add", "c s8", "a"), node("Relu", "a", "y")]
    return model(nodes, {"x": [1, 8, 2, 2]}, {"y": None}, {"s0": drawn(1, 8, 1, 1), "w": drawn(8, 8, 1, 1)})


SLOW: dict[Callable[[], bytes], ir.passes.PassBase] = {
    products_behind_sums: GeluPass(),
    sums_of_one_product: JoinCellsPass(),
    joined_images: MoveShufflesPass(),
    sums_of_sums: MoveBiasPass(),
}


@pytest.mark.parametrize("made", SLOW)
def test_large_graphs_take_no_more_work_than_others(made: Callable[[], bytes]) -> None:
    """Counted in calls, which no other work on the machine changes; to look back from each node takes 70 million."""
    graph, calls = read(made()), 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        if event in ("call", "c_call"):
            calls += 1
            if calls > MOST_CALLS:
                raise AssertionError(f"more than {MOST_CALLS:,} calls")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        SLOW[made](graph)
    finally:
        sys.setprofile(before)
    assert 0 < calls <= MOST_CALLS
