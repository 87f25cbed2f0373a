"""Shuffles of channels between convolutions go into their weights; where others see them they stay."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from litehouse.passes.channel_moves import ChannelMoves
from litehouse.passes.move_shuffles import MoveShufflesPass
from litehouse.passes.pad_channels import PadChannelsPass
from onnx_models import model, node
from pass_checks import apply, built_ops, drawn, forget_shapes, ops, read, run, stays

BATCH, SIDE = 2, 4
MOVED = {"Reshape", "Transpose", "Gather", "Slice", "Squeeze"}


class Writer:
    """Writes a network of convolutions by their numbers of channels."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}

    def op(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> Any:
        names = [f"v{len(self.nodes)}_{index}" for index in range(outputs)]
        self.nodes.append(node(kind, " ".join(inputs), " ".join(names), **attributes))
        return names[0] if outputs == 1 else names

    def weight(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = array
        return name

    def ints(self, *numbers: int) -> str:
        return self.weight(np.array(numbers, np.int64))

    def conv(self, x: str, count: int, taken: int, *, norm: bool = False) -> str:
        y = self.op("Conv", [x, self.weight(drawn(count, taken, 1, 1)), self.weight(drawn(count))])
        if norm:
            numbers = [self.weight(drawn(count)) for _ in range(3)] + [self.weight(np.abs(drawn(count)) + 1)]
            y = self.op("BatchNormalization", [y, *numbers])
        return self.op("Relu", [y])

    def depthwise(self, x: str, count: int) -> str:
        return self.op("Conv", [x, self.weight(drawn(count, 1, 3, 3))], group=count, pads=[1] * 4)

    def done(self, y: str) -> bytes:
        self.nodes.append(node("Identity", y, "y"))
        return model(self.nodes, {"x": [BATCH, 8, SIDE, SIDE]}, {"y": None}, self.weights)


def by_fives(w: Writer, x: str, count: int) -> list[str]:
    """As torchvision: to five axes and back, then halves."""
    x = w.op("Reshape", [x, w.ints(BATCH, 2, count // 2, SIDE, SIDE)])
    x = w.op("Transpose", [x], perm=[0, 2, 1, 3, 4])
    x = w.op("Reshape", [x, w.ints(BATCH, count, SIDE, SIDE)])
    return w.op("Split", [x, w.ints(count // 2, count // 2)], 2, axis=1)


def by_threes(w: Writer, x: str, count: int) -> list[str]:
    """As mindcv and MegEngine's hub: even and odd channels."""
    x = w.op("Reshape", [x, w.ints(BATCH * count // 2, 2, SIDE * SIDE)])
    x = w.op("Transpose", [x], perm=[1, 0, 2])
    x = w.op("Reshape", [x, w.ints(2, -1, count // 2, SIDE, SIDE)])
    x = w.op("Identity", [x])
    return [w.op("Gather", [x, w.weight(np.array(place))], axis=0) for place in range(2)]


def by_steps(w: Writer, x: str, count: int) -> list[str]:
    return [w.op("Slice", [x, w.ints(place), w.ints(count), w.ints(1), w.ints(2)]) for place in range(2)]


def by_squeezing(w: Writer, x: str, count: int) -> list[str]:
    x = w.op("Reshape", [x, w.ints(BATCH, count // 2, 2, SIDE, SIDE)])
    parts = w.op("Split", [x, w.ints(1, 1)], 2, axis=2)
    return [w.op("Squeeze", [part, w.ints(2)]) for part in parts]


SHUFFLES = {function.__name__: function for function in (by_fives, by_threes, by_steps, by_squeezing)}


def shufflenet(shuffle: Any, count: int = 6, units: int = 3, *, norm: bool = False) -> bytes:
    """Units that pass half of the channels by, then one that takes all of them twice."""
    w = Writer()
    left, right = w.conv("x", count, 8, norm=norm), w.conv("x", count, 8)
    for _ in range(units):
        left, x = shuffle(w, w.op("Concat", [left, right], axis=1), 2 * count)
        x = w.depthwise(w.conv(x, count, count), count)
        right = w.conv(x, count, count, norm=norm)
    whole = w.op("Concat", [left, right], axis=1)
    ends = [w.conv(w.depthwise(whole, 2 * count), 5, 2 * count), w.conv(whole, 5, 2 * count)]
    return w.done(w.op("Concat", ends, axis=1))


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("count", [6, 8])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_shuffles_are_moved(shuffle: str, count: int, norm: bool) -> None:
    graph = read(shufflenet(SHUFFLES[shuffle], count, norm=norm))
    assert apply(MoveShufflesPass(), graph)
    images = {id(value) for value in graph.graph.inputs}
    for each in graph.graph:  # whatever depends on the input is no move of single channels
        if any(id(value) in images for value in each.inputs):
            assert each.op_type not in MOVED
            images.update(id(value) for value in each.outputs)


def test_images_are_filled_up(tmp_path: Path) -> None:
    """ONNX Runtime takes no images of ten channels in its layout, but of twelve."""
    graph = read(shufflenet(by_fives, 10))
    assert apply(MoveShufflesPass(), graph)
    assert apply(PadChannelsPass(), graph)
    built = built_ops(graph, tmp_path)
    assert not built["Conv"] + built["FusedConv"] + built["Transpose"]
    assert built["#Conv"] == 14


def test_an_image_that_is_also_taken_whole() -> None:
    """A convolution beside the shuffle takes all channels, also those that nothing takes behind it."""
    w = Writer()
    left, right = w.conv("x", 8, 8), w.conv("x", 8, 8)
    _, x = by_fives(w, w.op("Concat", [left, right], axis=1), 16)
    graph = read(w.done(w.op("Concat", [w.conv(x, 8, 8), w.conv(left, 8, 8)], axis=1)))
    assert apply(MoveShufflesPass(), graph)
    assert "Transpose" not in ops(graph)


def test_channels_that_nothing_takes_are_not_computed() -> None:
    w = Writer()
    _, x = by_threes(w, w.op("Concat", [w.conv("x", 8, 8), w.conv("x", 8, 8)], axis=1), 16)
    graph = read(w.done(w.conv(x, 8, 8)))
    assert apply(MoveShufflesPass(), graph)
    made = [list(each.outputs[0].shape or ())[1] for each in graph.graph if each.op_type == "Conv"]
    assert made == [4, 4, 8]


def test_no_channel_is_copied_where_it_passes_by() -> None:
    graph = read(shufflenet(by_threes, 8, 2))
    MoveShufflesPass()(graph)
    taken = [len(each.inputs) for each in graph.graph if each.op_type == "Concat" and each.outputs[0].name != "y"]
    # The second unit takes three pieces: of both first images, and of the one that the first unit made.
    assert sorted(taken)[:2] == [2, 2]
    assert ops(graph).count("Split") == 3


def joined_only(w: Writer, left: str, right: str) -> str:
    return w.conv(w.op("Concat", [left, right], axis=1), 8, 16)


def divided_only(w: Writer, left: str, right: str) -> str:
    halves = w.op("Split", [w.op("Concat", [left, right], axis=1), w.ints(8, 8)], 2, axis=1)
    return w.op("Add", [w.conv(half, 8, 8) for half in halves])


def not_made_by_a_convolution(w: Writer, left: str, right: str) -> str:
    return w.op("Add", [w.conv(half, 8, 8) for half in shuffled(w, "x", right)])


def an_output(w: Writer, left: str, right: str) -> str:
    kept, x = shuffled(w, left, right)
    return w.op("Concat", [kept, w.conv(x, 8, 8)], axis=1)


def added(w: Writer, left: str, right: str) -> str:
    kept, x = shuffled(w, left, right)
    return w.op("Add", [w.conv(w.op("Add", [x, right]), 8, 8), w.conv(kept, 8, 8)])


def taken_twice(w: Writer, left: str, right: str) -> str:
    _, x = shuffled(w, left, right)
    return w.conv(w.op("Concat", [x, x], axis=1), 8, 16)


def turned(w: Writer, left: str, right: str) -> str:
    kept, x = shuffled(w, left, right)
    return w.op("Add", [w.conv(w.op("Transpose", [x], perm=[0, 1, 3, 2]), 8, 8), w.conv(kept, 8, 8)])


def seen_on_the_way(w: Writer, left: str, right: str) -> str:
    kept, x = shuffled(w, left, right)
    rows = w.op("Transpose", [left], perm=[0, 2, 3, 1])
    ends = [w.conv(x, 8, 8), w.conv(kept, 8, 8), w.op("Transpose", [rows], perm=[0, 3, 1, 2])]
    return w.op("Concat", ends, axis=1)


def taken_behind_an_activation(w: Writer, left: str, right: str) -> str:
    """Another exchange begins in the region of this one."""
    kept, x = shuffled(w, left, right)
    ends = shuffled(w, w.op("Relu", [x]), w.conv(kept, 8, 8))
    return w.op("Add", [w.conv(end, 8, 8) for end in ends])


def shuffled(w: Writer, left: str, right: str) -> list[str]:
    return by_fives(w, w.op("Concat", [left, right], axis=1), 16)


KEPT = {
    function.__name__: function
    for function in (
        *(joined_only, divided_only, not_made_by_a_convolution, an_output, added, taken_twice, turned),
        *(seen_on_the_way, taken_behind_an_activation),
    )
}


@pytest.mark.parametrize("case", KEPT)
def test_what_is_kept(case: str) -> None:
    w = Writer()
    left, right = w.conv("x", 8, 8), w.conv("x", 8, 8)
    assert stays(MoveShufflesPass(), w.done(KEPT[case](w, left, right)))


def test_an_image_that_a_branch_takes_is_kept() -> None:
    w = Writer()
    joined = w.op("Concat", [w.conv("x", 8, 8), w.conv("x", 8, 8)], axis=1)
    _, x = by_fives(w, joined, 16)
    output = onnx.helper.make_tensor_value_info("r", onnx.TensorProto.FLOAT, None)
    inner = onnx.helper.make_graph([node("Relu", x, "r")], "inner", [], [output])
    w.weights["yes"] = np.array(True)
    chosen = w.op("If", ["yes"], then_branch=inner, else_branch=inner)
    assert stays(MoveShufflesPass(), w.done(w.op("Add", [w.conv(x, 8, 8), chosen])))


def test_nothing_is_done_without_shapes() -> None:
    graph = read(shufflenet(by_fives))
    forget_shapes(graph)
    assert not MoveShufflesPass()(graph).modified


@pytest.mark.parametrize("seed", range(12))
def test_channels_are_followed(seed: int) -> None:
    """Through any moves: images whose channels are numbers of their own show where these went."""
    random = np.random.default_rng(seed)
    w = Writer()
    counts = {name: int(random.integers(1, 5)) for name in ("a", "b")}
    x, count = w.op("Concat", ["a", "b"], axis=1), sum(counts.values())
    for _ in range(4):
        move = random.integers(5)
        if move == 0:
            picked = random.integers(-count, count, int(random.integers(1, 6)))
            x, count = w.op("Gather", [x, w.weight(picked)], axis=1), len(picked)
        elif move == 1 and count > 1:
            first = int(random.integers(1, count))
            x, count = w.op("Split", [x, w.ints(first, count - first)], 2, axis=-3)[0], first
        elif move == 2:
            start, step = int(random.integers(0, count)), int(random.integers(1, 3))
            x = w.op("Slice", [x, w.ints(start), w.ints(10**6), w.ints(1), w.ints(step)])
            count = -(-(count - start) // step)
        elif move == 3:
            x, count = w.op("Concat", [x, "a"], axis=1), count + counts["a"]
        elif count % 2 == 0:
            x = w.op("Concat", by_fives(w, x, count), axis=1)
    w.nodes.append(node("Identity", x, "y"))
    shapes = {name: [BATCH, size, SIDE, SIDE] for name, size in counts.items()}
    graph = read(model(w.nodes, shapes, {"y": None}, w.weights))
    moves = ChannelMoves(graph.graph)
    found = moves.channels[graph.graph.outputs[0]]
    feed = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    for sign, name in ((1, "a"), (-1, "b")):
        feed[name] *= sign * np.arange(1, counts[name] + 1, dtype=np.float32).reshape(1, -1, 1, 1)
    expected = [{"a": 1, "b": -1}[str(image.name)] * (index + 1) for image, index in found]
    assert run(graph, feed)[0][0, :, 0, 0].tolist() == expected


def test_the_order_of_nodes_is_kept() -> None:
    graph = read(shufflenet(by_steps))
    MoveShufflesPass()(graph)
    made: set[ir.Value] = {*graph.graph.inputs, *graph.graph.initializers.values()}
    for each in graph.graph:
        assert made.issuperset(each.inputs)
        made.update(each.outputs)


def test_images_in_another_order() -> None:
    """What is behind the channels of the first image is looked for nowhere."""
    w = Writer()
    x = w.op("Concat", [w.conv("x", 8, 8), w.conv("x", 8, 8)], axis=1)
    _, x = by_fives(w, w.op("Gather", [x, w.ints(1, 0)], axis=0), 16)
    assert stays(MoveShufflesPass(), w.done(w.conv(x, 8, 8)))
