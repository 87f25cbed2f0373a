"""Op by op: a cut that the second of two layers wants moves over the op between them into the first one's weight."""

from collections.abc import Callable

import numpy as np
import pytest

from benchmarks.networks.plain import FLOAT, INT64, Builder
from distributed.slicing.support import FREE, assert_same, ops, sliced, split

RANKS = (2, 3, 4)
Middle = Callable[[Builder, str], str]
WIDTH = 48  # 12 heads of 4


def _model(middle: Middle, *, opset: int = 20, shape: tuple[int | str, ...] = (2, 5, 16)) -> bytes:
    b = Builder(opset=opset)
    h = b.op("MatMul", "x", b.weight("first", 16, WIDTH))
    h = middle(b, h)
    return b.model({"x": (FLOAT, shape)}, {"y": (b.op("MatMul", h, b.weight("second", WIDTH, 16)), None)})


def _check(data: bytes, ranks: int, *, moves: bool = True) -> None:
    made = sliced(data, ranks)
    x = np.random.default_rng(1).standard_normal((2, 5, 16)).astype("f")
    assert_same(made, [x])
    kinds = {name: how for name, how in split(made).items() if name in ("first", "second")}
    if moves:
        assert kinds == {"first": "columns", "second": "rows"}
        assert ops(made) == ["AllReduce"]
    else:
        assert kinds.get("second") in ("rows", "columns")
        assert len(made.exchanges) == 2, "the first layer is cut for itself"


def _row(b: Builder) -> str:
    return b.weight("row", WIDTH, scale=1.0)


def _turned(b: Builder, h: str) -> str:
    return b.op("Transpose", b.op("Relu", b.op("Transpose", h, perm=[2, 0, 1])), perm=[1, 2, 0])


def _heads(b: Builder, h: str) -> str:
    h = b.op("Transpose", b.op("Reshape", h, b.ints(2, 5, 12, 4)), perm=[0, 2, 1, 3])
    return b.op("Reshape", b.op("Transpose", b.op("Tanh", h), perm=[0, 2, 1, 3]), b.ints(2, 5, WIDTH))


def _heads_by_zeros(b: Builder, h: str) -> str:
    h = b.op("Transpose", b.op("Reshape", h, b.ints(0, 0, 12, -1)), perm=[0, 2, 1, 3])
    return b.op("Reshape", b.op("Transpose", h, perm=[0, 2, 1, 3]), b.ints(0, 0, -1))


def _copied_zero(b: Builder, h: str) -> str:
    """A 0 that copies the size of the axis that is cut, at another place of the result."""
    h = b.op("Reshape", b.op("Transpose", h, perm=[0, 2, 1]), b.ints(2, 0, 5, 1))
    return b.op("Transpose", b.op("Squeeze", h, b.ints(3)), perm=[0, 2, 1])


def _stacked_heads(b: Builder, h: str) -> str:
    """The batch and the heads become one axis, as older exporters write it."""
    h = b.op("Transpose", b.op("Reshape", h, b.ints(2, 5, 12, 4)), perm=[0, 2, 1, 3])
    h = b.op("Exp", b.op("Reshape", h, b.ints(24, 5, 4)))
    h = b.op("Transpose", b.op("Reshape", h, b.ints(2, 12, 5, 4)), perm=[0, 2, 1, 3])
    return b.op("Reshape", h, b.ints(2, 5, WIDTH))


def _flat(b: Builder, h: str) -> str:
    flat = b.op("Flatten", h, axis=2)
    return b.op("Reshape", flat, b.ints(2, 5, WIDTH))


def _wide(b: Builder, h: str) -> str:
    h = b.op("Squeeze", b.op("Neg", b.op("Unsqueeze", h, b.ints(0, 3))), b.ints(0, 3))
    return b.op("Squeeze", b.op("Unsqueeze", h, b.ints(-1)), b.ints(-1))


def _expanded(b: Builder, h: str) -> str:
    mean = b.op("ReduceMean", h, b.ints(1), keepdims=1)
    return b.op("Add", h, b.op("Expand", mean, b.ints(2, 5, WIDTH)))


def _spread_row(b: Builder, h: str) -> str:
    return b.op("Mul", h, b.op("Expand", _row(b), b.ints(2, 5, WIDTH)))


def _split_halves(b: Builder, h: str) -> str:
    first, second = b.op("Split", b.op("Reshape", h, b.ints(2, 5, 12, 4)), outputs=2, axis=3, num_outputs=2)
    return b.op("Reshape", b.op("Concat", b.op("Neg", second), first, axis=3), b.ints(2, 5, WIDTH))


def _sliced_rows(b: Builder, h: str) -> str:
    first = b.op("Slice", h, b.ints(0), b.ints(2), b.ints(1))
    rest = b.op("Slice", h, b.ints(2), b.ints(2**40), b.ints(1))
    return b.op("Concat", rest, first, axis=1)


def _whole_slice(b: Builder, h: str) -> str:
    return b.op("Slice", h, b.ints(0), b.ints(2**40), b.ints(2))


def _padded(b: Builder, h: str) -> str:
    longer = b.op("Pad", h, b.ints(0, 1, 0, 0, 1, 0), b.array(0.5, "f"))
    return b.op("Slice", longer, b.ints(1), b.ints(6), b.ints(1))


def _picked(b: Builder, h: str) -> str:
    return b.op("Gather", h, b.ints(4, 3, 2, 1, 0), axis=1)


def _weighted(b: Builder, h: str) -> str:
    mixed = b.op("MatMul", b.op("Softmax", b.weight("mix", 5, 5), axis=-1), h)
    return b.op("MatMul", b.weight("mix2", 5, 5), mixed)


def _einsum(b: Builder, h: str) -> str:
    return b.op("Einsum", h, b.weight("mix", 5, 5), equation="bsk,st->btk")


def _softmax_rows(b: Builder, h: str) -> str:
    return b.op("Softmax", h, axis=1)


def _channels(b: Builder, h: str) -> str:
    """The layers' width is the axis of channels in between."""
    h = b.op("Transpose", h, perm=[0, 2, 1])
    h = b.op("Conv", h, b.weight("depth", WIDTH, 1, 3), group=WIDTH, pads=[1, 1])
    h = b.op("BatchNormalization", h, *(b.array(np.full(WIDTH, v), "f") for v in (1.1, 0.1, 0.2, 0.9)))
    h = b.op("AveragePool", h, kernel_shape=[3], pads=[1, 1])
    h = b.op("InstanceNormalization", h, _row(b), b.weight("shift", WIDTH, scale=1.0))
    return b.op("Transpose", h, perm=[0, 2, 1])


def _groups(b: Builder, h: str) -> str:
    h = b.op(
        "Conv", b.op("Transpose", h, perm=[0, 2, 1]), b.weight("grouped", WIDTH, 4, 1), b.weight("gb", WIDTH), group=12
    )
    return b.op("Transpose", h, perm=[0, 2, 1])


def _shape_reader(b: Builder, h: str) -> str:
    """Sizes that are computed from the shape of a value that is cut."""
    shape = b.op("Shape", b.op("Relu", h))
    wanted = b.op("Concat", b.op("Slice", shape, b.ints(0), b.ints(2)), b.ints(12, 4), axis=0)
    h = b.op("Tanh", b.op("Reshape", h, wanted))
    return b.op("Reshape", h, shape)


def _normalized(b: Builder, h: str) -> str:
    heads = b.op("Reshape", h, b.ints(2, 5, 12, 4))
    heads = b.op("LayerNormalization", heads, b.weight("g", 4, scale=1.0), b.weight("gb", 4), axis=-1)
    return b.op("Reshape", heads, b.ints(2, 5, WIDTH))


def _chosen(b: Builder, h: str) -> str:
    positive = b.op("Greater", h, b.array(0.0, "f"))
    return b.op("Where", positive, b.op("Cast", b.op("Cast", h, to=11), to=FLOAT), b.op("Mul", h, _row(b)))


def _cumulated(b: Builder, h: str) -> str:
    return b.op("CumSum", h, b.array(1, np.int64))


def _best_rows(b: Builder, h: str) -> str:
    values, places = b.op("TopK", h, b.ints(5), outputs=2, axis=1)
    return b.op("Add", values, b.op("Cast", places, to=FLOAT))


def _elements(b: Builder, h: str) -> str:
    order = b.op("Cast", b.op("ReduceMax", b.op("Mul", h, b.array(0.0, "f")), b.ints(1), keepdims=1), to=INT64)
    return b.op("Add", h, b.op("GatherElements", h, b.op("Expand", order, b.ints(2, 5, WIDTH)), axis=1))


MOVES: dict[str, Middle] = {
    "one by one": lambda b, h: b.op("Relu", b.op("Sigmoid", b.op("Clip", h, b.array(-1.0, "f"), b.array(1.0, "f")))),
    "bias": lambda b, h: b.op("Add", h, _row(b)),
    "both orders": lambda b, h: b.op("Sub", _row(b), b.op("Mul", b.array(2.0, "f"), h)),
    "twice": lambda b, h: b.op("Mul", h, b.op("Sigmoid", h)),
    "many": lambda b, h: b.op("Sum", h, b.op("Max", h, _row(b)), b.array([[0.5]], "f")),
    "choice": _chosen,
    "transposes": _turned,
    "heads": _heads,
    "heads by zeros": _heads_by_zeros,
    "a zero that copies": _copied_zero,
    "stacked heads": _stacked_heads,
    "flatten": _flat,
    "axes of size 1": _wide,
    "expand": _expanded,
    "expand a weight": _spread_row,
    "split of another axis": _split_halves,
    "slice of another axis": _sliced_rows,
    "slice of all": _whole_slice,
    "pad": _padded,
    "gather": _picked,
    "matmul from the left": _weighted,
    "einsum": _einsum,
    "softmax of another axis": _softmax_rows,
    "channels": _channels,
    "groups": _groups,
    "shape": _shape_reader,
    "norm of heads": _normalized,
    "cumulative": _cumulated,
    "best": _best_rows,
    "elements": _elements,
}
STAYS: dict[str, Middle] = {
    "softmax": lambda b, h: b.op("Softmax", h, axis=-1),
    "norm": lambda b, h: b.norm(h, "norm", WIDTH),
    "cumulative": lambda b, h: b.op("CumSum", h, b.array(-1, np.int64)),
    "reversed": lambda b, h: b.op("Slice", h, b.ints(-1), b.ints(-(2**40)), b.ints(2), b.ints(-1)),
    "another user": lambda b, h: b.op("Add", h, b.op("ReduceSum", h, b.ints(-1), keepdims=1)),
}


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", MOVES)
def test_moves(name: str, ranks: int) -> None:
    _check(_model(MOVES[name]), ranks)


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str, ranks: int) -> None:
    _check(_model(STAYS[name]), ranks, moves=False)


@pytest.mark.parametrize(
    "name", ["heads by zeros", "one by one", "bias", "transposes", "norm of heads", "shape", "expand a weight"]
)
def test_moves_where_sizes_are_unknown(name: str) -> None:
    if name == "norm of heads":
        middle = lambda b, h: b.op(  # noqa: E731
            "Reshape",
            b.op("LayerNormalization", b.op("Reshape", h, b.ints(0, 0, 12, 4)), b.weight("g", 4), axis=-1),
            b.ints(0, 0, -1),
        )
    elif name == "expand a weight":
        middle = lambda b, h: b.op("Mul", h, b.op("Expand", _row(b), b.op("Shape", h)))  # noqa: E731
    else:
        middle = MOVES[name]
    _check(_model(middle, shape=("batch", "length", 16)), 2)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("opset", [9, 11, 12, 13, 17])
def test_old_versions(opset: int, ranks: int) -> None:
    """Axes and the like were attributes once."""

    def middle(b: Builder, h: str) -> str:
        if opset < 13:
            h = b.op("Squeeze", b.op("Unsqueeze", h, axes=[1]), axes=[1])
            h = b.op("Add", h, b.op("ReduceSum", h, axes=[1], keepdims=1))
            first, second = b.op("Split", h, outputs=2, axis=1, split=[2, 3])
        else:
            h = b.op("Squeeze", b.op("Unsqueeze", h, b.ints(1)), b.ints(1))
            h = b.op("Add", h, b.op("ReduceSum", h, b.ints(1), keepdims=1))
            first, second = b.op("Split", h, b.ints(2, 3), outputs=2, axis=1)
        h = b.op("Concat", second, first, axis=1)
        if opset < 10:
            h = b.op("Slice", h, axes=[0], starts=[0], ends=[2])
        return h

    _check(_model(middle, opset=opset), ranks)


@pytest.mark.parametrize("ranks", [2, 4])
def test_axes_in_another_order_within_a_width(ranks: int) -> None:
    """What a rank has of the first layer's columns is not one run of them."""

    def middle(b: Builder, h: str) -> str:
        turned = b.op("Transpose", b.op("Reshape", h, b.ints(2, 5, 12, 4)), perm=[0, 1, 3, 2])
        return b.op("Reshape", turned, b.ints(2, 5, WIDTH))

    _check(_model(middle), ranks)


def test_repeated_heads_by_places() -> None:
    """Heads are repeated by a constant list of places: each rank has its own list."""
    b = Builder()
    h = b.op("Reshape", b.op("MatMul", "x", b.weight("first", 16, 16)), b.ints(2, 5, 4, 4))
    h = b.op("Gather", h, b.ints(0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3), axis=2)
    y = b.op("MatMul", b.op("Reshape", h, b.ints(2, 5, 48)), b.weight("second", 48, 16))
    data = b.model({"x": (FLOAT, (2, 5, 16))}, {"y": (y, None)})
    for ranks in (2, 4):
        _check(data, ranks)


@pytest.mark.parametrize("ranks", RANKS)
def test_tables_by_columns_and_words(ranks: int) -> None:
    """A table is cut along its width, or along its words where that does not divide; negative ids are right."""
    for width in (24, 25):
        b = Builder()
        y = b.op("Relu", b.op("Gather", b.weight("table", 101, width), "ids"))
        made = sliced(b.model({"ids": (INT64, (3, 4))}, {"y": (y, None)}), ranks, FREE)
        ids = np.array([[0, 100, 50, -1], [-101, 33, 34, 67], [25, 26, 75, 76]])
        assert_same(made, [ids])
        assert split(made) == {"table": "columns" if width % ranks == 0 else "vocabulary"}


def test_wrong_ranks_are_refused() -> None:
    from litehouse.errors import LitehouseError

    for ranks in (0, -1, 10**9):
        with pytest.raises(LitehouseError, match="ranks must be"):
            sliced(_model(MOVES["bias"]), ranks)
