"""Layers of the usual kinds: which weights are cut, and how often the ranks exchange."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.networks.plain import FLOAT, INT64, Builder, attention, heads
from distributed.slicing.support import FREE, SMALL, assert_same, ops, sliced, split
from litehouse.distributed.slicing import Costs, Plan, write
from litehouse.distributed.together import run_together
from litehouse.errors import EngineError
from litehouse.options import Options

RANKS = (2, 3, 4)
X = np.random.default_rng(3).standard_normal((2, 5, 24)).astype("f")


def _plan(b: Builder, y: str, ranks: int, costs: Costs = SMALL, shape: tuple[int | str, ...] = (2, 5, 24)) -> Plan:
    made = sliced(b.model({"x": (FLOAT, shape)}, {"y": (y, None)}), ranks, costs)
    assert_same(made, [X])
    return made


def _split(made: Plan) -> dict[str, str]:
    """Without biases and constants."""
    return {name: how for name, how in split(made).items() if how != "parts"}


@pytest.mark.parametrize("ranks", RANKS)
def test_two_layers(ranks: int) -> None:
    b = Builder()
    y = b.linear(b.op("Relu", b.linear("x", "up", 24, 96)), "down", 96, 24)
    made = _plan(b, y, ranks)
    assert split(made) == {"up.weight": "columns", "up.bias": "parts", "down.weight": "rows"}
    assert ops(made) == ["AllReduce"]
    assert all(size < 1.1 * made.bytes_whole / ranks for size in made.bytes_per_rank)


@pytest.mark.parametrize("ranks", RANKS)
def test_gemm_with_bias(ranks: int) -> None:
    """The bias of the second layer is added once."""
    b = Builder()
    x = b.op("Reshape", "x", b.ints(10, 24))
    h = b.op("Relu", b.op("Gemm", x, b.weight("up", 96, 24), b.weight("a", 96), transB=1, alpha=0.5, beta=2.0))
    y = b.op("Gemm", h, b.weight("down", 96, 24), b.weight("b", 24), alpha=0.25, beta=3.0)
    made = _plan(b, y, ranks)
    assert split(made) == {"up": "columns", "a": "parts", "down": "rows", "b": "rank 0"}
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
def test_bias_of_two_layers(ranks: int) -> None:
    """A bias that another layer uses as well stays what it is for that one."""
    b = Builder()
    x = b.op("Reshape", "x", b.ints(10, 24))
    h = b.op("Relu", b.op("Gemm", x, b.weight("up", 24, 96), b.weight("a", 96)))
    y = b.op("Gemm", h, b.weight("down", 96, 24), b.weight("b", 24))
    y = b.op("Add", y, "b")
    made = _plan(b, y, ranks)
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
def test_gated_layer(ranks: int) -> None:
    b = Builder()
    gate, up = (b.linear("x", name, 24, 96, bias=False) for name in ("gate", "up"))
    y = b.linear(b.op("Mul", b.op("Mul", gate, b.op("Sigmoid", gate)), up), "down", 96, 24, bias=False)
    made = _plan(b, y, ranks)
    assert _split(made) == {"gate.weight": "columns", "up.weight": "columns", "down.weight": "rows"}
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("shape", [(2, 5, 24), ("batch", "length", 24)])
@pytest.mark.parametrize("ranks", RANKS)
def test_attention(ranks: int, shape: tuple[int | str, ...]) -> None:
    b = Builder()
    q, k, v = (heads(b, b.linear("x", each, 24, 48), 12, 4) for each in "qkv")
    y = b.linear(attention(b, q, k, v, 4), "out", 48, 24)
    made = _plan(b, y, ranks, shape=shape)
    assert _split(made) == {"q.weight": "columns", "k.weight": "columns", "v.weight": "columns", "out.weight": "rows"}
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("how", ["split", "slices", "stack", "interleaved"])
def test_one_weight_for_queries_keys_and_values(how: str, ranks: int) -> None:
    """Each rank has its heads' columns of all three."""
    b = Builder()
    h = b.linear("x", "qkv", 24, 144)
    if how == "split":
        parts = b.op("Split", h, b.ints(48, 48, 48), outputs=3, axis=-1)
        q, k, v = (heads(b, part, 12, 4) for part in parts)
    elif how == "slices":
        parts = [b.op("Slice", h, b.ints(48 * i), b.ints(48 * (i + 1)), b.ints(-1)) for i in range(3)]
        q, k, v = (heads(b, part, 12, 4) for part in parts)
    elif how == "stack":
        h = b.op("Transpose", b.op("Reshape", h, b.ints(2, 5, 3, 12, 4)), perm=[2, 0, 3, 1, 4])
        q, k, v = (b.op("Gather", h, b.array(i, np.int64), axis=0) for i in range(3))
    else:
        h = b.op("Transpose", b.op("Reshape", h, b.ints(0, 0, 12, 12)), perm=[0, 2, 1, 3])
        q, k, v = b.op("Split", h, outputs=3, axis=-1, num_outputs=3)
    y = b.linear(attention(b, q, k, v, 4), "out", 48, 24)
    made = _plan(b, y, ranks)
    assert _split(made) == {"qkv.weight": "columns", "out.weight": "rows"}
    assert split(made)["qkv.bias"] == "parts"
    assert ops(made) == ["AllReduce"]


def test_slices_that_overlap_stay_whole() -> None:
    b = Builder()
    h = b.linear("x", "up", 24, 64)
    first = b.op("Slice", h, b.ints(0), b.ints(48), b.ints(-1))
    second = b.op("Slice", h, b.ints(16), b.ints(64), b.ints(-1))
    y = b.linear(b.op("Mul", first, second), "down", 48, 24)
    made = _plan(b, y, 2)
    assert len(made.exchanges) == 2


def test_fewer_key_heads_than_ranks() -> None:
    """Queries are cut, keys and values stay whole or are gathered."""
    b = Builder()
    q = heads(b, b.linear("x", "q", 24, 48), 12, 4)
    k, v = (b.op("Expand", heads(b, b.linear("x", each, 24, 4), 1, 4), b.ints(2, 12, 5, 4)) for each in "kv")
    y = b.linear(attention(b, q, k, v, 4), "out", 48, 24)
    made = _plan(b, y, 4)
    assert {"q.weight": "columns", "out.weight": "rows"}.items() <= _split(made).items()


def test_attention_op() -> None:
    b = Builder(opset=23)
    q = heads(b, b.linear("x", "q", 24, 48), 12, 4)
    k, v = (heads(b, b.linear("x", each, 24, 16), 4, 4) for each in "kv")
    mixed = b.op("Reshape", b.op("Transpose", b.op("Attention", q, k, v), perm=[0, 2, 1, 3]), b.ints(0, 0, -1))
    made = _plan(b, b.linear(mixed, "out", 48, 24), 2)
    assert _split(made) == {"q.weight": "columns", "k.weight": "columns", "v.weight": "columns", "out.weight": "rows"}
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
def test_last_layer_alone(ranks: int) -> None:
    """A wide layer behind what cannot be cut: its columns are gathered, filled up where they do not divide."""
    b = Builder()
    y = b.linear(b.norm("x", "norm", 24), "head", 24, 125)
    made = _plan(b, y, ranks)
    assert split(made)["head.weight"] == "columns"
    assert ops(made) == ["AllGather"]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("words", [120, 125])
@pytest.mark.parametrize("how", ["transpose", "gemm"])
def test_tied_tables(words: int, ranks: int, how: str) -> None:
    """One table for words and for the last layer is cut in one way for both."""
    b = Builder()
    x = b.op("Gather", b.weight("table", words, 24), "ids")
    x = b.norm(b.op("Reshape", x, b.ints(10, 24)), "norm", 24)
    if how == "transpose":
        y = b.op("MatMul", x, b.op("Transpose", "table", perm=[1, 0]))
    else:
        y = b.op("Gemm", x, "table", b.weight("bias", words), transB=1)
    made = sliced(b.model({"ids": (INT64, (2, 5))}, {"y": (y, None)}), ranks, FREE)
    ids = np.array([[0, 1, words - 1, -1, -words], [5, 7, words // 2, words // 3, 40]])
    assert_same(made, [ids])
    assert "table" in split(made)
    assert len(made.exchanges) == 2
    row = next(row for row in made.rows if row.weight == "table")
    assert max(row.bytes_per_rank) <= -(-row.bytes_whole // ranks) + 24 * 4


@pytest.mark.parametrize("word", [120, -121, 1 << 40])
@pytest.mark.parametrize("ranks", [2, 7])
def test_words_that_a_table_does_not_have_are_refused_as_before(word: int, ranks: int) -> None:
    b = Builder()
    model = b.model({"ids": (INT64, (2,))}, {"y": (b.op("Gather", b.weight("table", 120, 24), "ids"), None)})
    made = sliced(model, ranks, FREE)
    assert "table" in split(made)
    models = [made.model_for(rank) for rank in range(ranks)]
    with pytest.raises(EngineError, match="out of data bounds"):
        run_together(models, [np.array([3, word])], Options(engine="onnxruntime"))


def test_a_table_that_something_else_needs_stays_whole() -> None:
    b = Builder()
    x = b.op("Gather", b.weight("table", 120, 24), "ids")
    y = b.op("Add", x, b.op("ReduceSum", b.op("CumSum", "table", b.array(1, np.int64)), b.ints(0)))
    made = sliced(b.model({"ids": (INT64, (2, 5))}, {"y": (y, None)}), 2, FREE)
    assert_same(made, [np.arange(10).reshape(2, 5)])
    assert split(made) == {}


@pytest.mark.parametrize("ranks", RANKS)
def test_two_convolutions(ranks: int) -> None:
    b = Builder()
    x = b.op("Reshape", "x", b.ints(2, 12, 5, 2))
    h = b.op("Relu", b.op("Conv", x, b.weight("first", 48, 12, 3, 3), b.weight("a", 48), pads=[1] * 4))
    y = b.op("Conv", h, b.weight("second", 12, 48, 3, 3), b.weight("b", 12), pads=[1] * 4)
    made = _plan(b, y, ranks)
    assert split(made) == {"first": "channels", "a": "parts", "second": "input channels", "b": "rank 0"}
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("groups", [1, 12])
def test_convolutions_back(groups: int, ranks: int) -> None:
    b = Builder()
    x = b.op("Reshape", "x", b.ints(2, 12, 5, 2))
    h = b.op("Relu", b.op("Conv", x, b.weight("first", 48, 12, 1, 1)))
    h = b.op(
        "ConvTranspose", h, b.weight("back", 48, 48 // groups, 2, 2), b.weight("a", 48), group=groups, strides=[2, 2]
    )
    y = b.op("ConvTranspose", h, b.weight("last", 48, 3, 2, 2), b.weight("b", 3), strides=[2, 2])
    made = _plan(b, y, ranks)
    assert {"back": "channels", "last": "input channels", "b": "rank 0"}.items() <= split(made).items()
    assert len(made.exchanges) <= (2 if groups == 1 else 1)


@pytest.mark.parametrize("ranks", RANKS)
def test_group_norm_and_resize(ranks: int) -> None:
    b = Builder(opset=21)
    x = b.op("Reshape", "x", b.ints(2, 12, 5, 2))
    h = b.op("Conv", x, b.weight("first", 48, 12, 1, 1))
    h = b.op("GroupNormalization", h, b.weight("g", 48, scale=1.0), b.weight("gb", 48), num_groups=12)
    h = b.op("Resize", h, "", b.array([1, 1, 2, 2], "f"), mode="nearest")
    h = b.op("Resize", h, "", "", b.ints(2, 48, 5, 2), mode="linear")
    y = b.op("Conv", b.op("GlobalAveragePool", h), b.weight("second", 24, 48, 1, 1))
    made = _plan(b, y, ranks)
    assert split(made)["first"] == "channels"
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
def test_residual_blocks(ranks: int) -> None:
    """In each block one convolution is cut by what it gives, the other by what it takes."""
    b = Builder()
    x = b.op("Reshape", "x", b.ints(2, 24, 5))
    for name in ("one", "two"):
        h = b.op("Relu", b.op("Conv", x, b.weight(f"{name}.a", 24, 24, 3), pads=[1, 1]))
        h = b.op("Conv", h, b.weight(f"{name}.b", 24, 24, 3), pads=[1, 1])
        x = b.op("Relu", b.op("Add", h, x))
    made = _plan(b, x, ranks)
    assert _split(made) == {
        "one.a": "channels",
        "one.b": "input channels",
        "two.a": "channels",
        "two.b": "input channels",
    }
    assert ops(made) == ["AllReduce", "AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
def test_quantised_weights(ranks: int) -> None:
    """Scales for each column are cut with the columns."""
    b = Builder()
    names = []
    for name, shape, axis in (("up", (24, 96), 1), ("down", (96, 24), 1)):
        b.weights[name] = b.random.integers(-127, 127, shape).astype(np.int8)
        scale = b.array(b.random.random(shape[axis]) / 100, "f")
        names.append(b.op("DequantizeLinear", name, scale, b.array(np.zeros(shape[axis]), np.int8), axis=axis))
    y = b.op("MatMul", b.op("Relu", b.op("MatMul", "x", names[0])), names[1])
    made = _plan(b, y, ranks)
    assert {"up": "columns", "down": "rows"}.items() <= _split(made).items()
    assert ops(made) == ["AllReduce"]


def test_half_precision() -> None:
    b = Builder()
    h = b.op("Cast", "x", to=10)
    for name, shape in (("up", (24, 96)), ("down", (96, 24))):
        b.weights[name] = (b.random.standard_normal(shape) / 10).astype(np.float16)
    h = b.op("MatMul", b.op("Relu", b.op("MatMul", h, "up")), "down")
    made = sliced(b.model({"x": (FLOAT, (2, 5, 24))}, {"y": (b.op("Cast", h, to=FLOAT), None)}), 2, SMALL)
    assert _split(made) == {"up": "columns", "down": "rows"}


def test_nothing_is_cut_where_it_does_not_pay() -> None:
    """What is saved must outweigh what is sent."""
    b = Builder()
    y = b.linear(b.op("Relu", b.linear("x", "up", 24, 96)), "down", 96, 24)
    data = b.model({"x": (FLOAT, (2, 5, 24))}, {"y": (y, None)})
    assert split(sliced(data, 2, Costs(exchange=10_000))) == {}
    assert split(sliced(data, 2, Costs(exchange=0, worth=100.0))) == {}
    assert split(sliced(data, 2, Costs(exchange=5_000))) != {}


def test_values_that_are_outputs_too_stay_whole() -> None:
    b = Builder()
    h = b.op("Relu", b.linear("x", "up", 24, 96))
    y = b.linear(h, "down", 96, 24)
    made = sliced(b.model({"x": (FLOAT, (2, 5, 24))}, {"y": (y, None), "h": (h, None)}), 2)
    assert_same(made, [X])
    assert len(made.exchanges) == 2


def test_weights_that_a_branch_uses_stay_whole() -> None:
    from onnx import helper

    b = Builder()
    h = b.op("Relu", b.linear("x", "up", 24, 96))
    inner = helper.make_node("MatMul", [h, "down.weight"], ["inside"])
    out = [helper.make_tensor_value_info("inside", FLOAT, None)]
    branch = helper.make_graph([inner], "branch", [], out)
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["inside"])], "other", [], out)
    b.weight("down.weight", 96, 24)
    flag = b.op("Greater", b.op("ReduceSum", h, keepdims=0), b.array(0.0, "f"))
    y = b.op("If", flag, then_branch=branch, else_branch=other)
    made = sliced(b.model({"x": (FLOAT, (2, 5, 24))}, {"y": (y, None)}), 2, FREE)
    assert_same(made, [X])
    assert "down.weight" not in split(made)


def test_states_of_values() -> None:
    b = Builder()
    y = b.linear(b.op("Relu", b.linear("x", "up", 24, 96, bias=False)), "down", 96, 24, bias=False)
    states = _plan(b, y, 2).states
    assert set(states.values()) == {"Split(0)", "Split(1)", "Split(2)", "Partial"}
    assert states["up.weight"] == "Split(1)"
    assert states["down.weight"] == "Split(0)"


def test_a_bias_that_is_computed_does_not_fill_up() -> None:
    """Columns that do not divide are filled up with zeros, which only weights can be."""
    b = Builder()
    x = b.op("Reshape", "x", b.ints(10, 24))
    bias = b.op("ReduceMean", b.op("Gemm", x, b.weight("other", 24, 125)), b.ints(0), keepdims=0)
    made = _plan(b, b.op("Gemm", x, b.weight("head", 24, 125), bias), 3, FREE)
    assert "head" not in split(made)


@pytest.mark.parametrize("ranks", RANKS)
def test_joined_layers(ranks: int) -> None:
    """Each rank has its part of both of the values that are joined."""
    b = Builder()
    parts = [b.op("Relu", b.linear("x", name, 24, width)) for name, width in (("one", 48), ("two", 96))]
    y = b.linear(b.op("Tanh", b.op("Concat", *parts, axis=-1)), "down", 144, 24)
    made = _plan(b, y, ranks)
    assert _split(made) == {"one.weight": "columns", "two.weight": "columns", "down.weight": "rows"}
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("order", [[0, 1, 2, 3], [0, 2, 3, 1]])
def test_flat_images(order: list[int], ranks: int) -> None:
    """Channels become a part of the width of a layer, in front of the places or behind them."""
    b = Builder()
    x = b.op("Conv", b.op("Reshape", "x", b.ints(2, 12, 5, 2)), b.weight("conv", 24, 12, 1, 1))
    x = b.op("Reshape", b.op("Transpose", b.op("Relu", x), perm=order), b.ints(2, -1))
    made = _plan(b, b.op("Gemm", x, b.weight("down", 240, 24), b.weight("bias", 24)), ranks)
    assert split(made) == {"conv": "channels", "down": "rows", "bias": "rank 0"}
    assert ops(made) == ["AllReduce"]


def test_integer_layers() -> None:
    b = Builder()
    q, scale, zero = b.op("DynamicQuantizeLinear", "x", outputs=3)
    b.weights["layer"] = b.random.integers(-127, 127, (24, 96)).astype(np.int8)
    b.weights["zeros"] = np.zeros(96, np.int8)
    y = b.op("Mul", b.op("Cast", b.op("MatMulInteger", q, "layer", zero, "zeros"), to=FLOAT), scale)
    made = _plan(b, y, 2, FREE)
    assert split(made) == {"layer": "columns", "zeros": "parts"}
    assert ops(made) == ["AllGather"]


def test_chance_is_refused() -> None:
    """Every rank would draw other numbers; in a pipeline only one of them draws."""
    from litehouse.errors import LitehouseError

    b = Builder()
    y = b.op("Add", b.linear("x", "up", 24, 96), b.op("RandomNormal", shape=[96]))
    data = b.model({"x": (FLOAT, (2, 5, 24))}, {"y": (y, None)})
    with pytest.raises(LitehouseError, match=r"random numbers.*--pipeline"):
        sliced(data, 2)
    made = sliced(data, 2, pipeline=True)
    random = [node for rank in (0, 1) for node in made.model_for(rank).graph.graph if node.op_type == "RandomNormal"]
    assert len(random) == 1


@pytest.mark.parametrize("ranks", RANKS)
@pytest.mark.parametrize("bias", [False, True])
def test_layers_beside_each_other(ranks: int, bias: bool) -> None:
    """Their sums over the ranks are one exchange; constants are added once."""
    b = Builder()
    first = b.linear(b.op("Relu", b.linear("x", "up1", 24, 96)), "down1", 96, 24, bias=bias)
    second = b.linear(b.op("Tanh", b.linear("x", "up2", 24, 48)), "down2", 48, 24, bias=False)
    made = _plan(b, b.op("Add", b.op("Add", first, second), "x"), ranks)
    assert (
        _split(made).items()
        >= {f"{name}{i}.weight": how for name, how in (("up", "columns"), ("down", "rows")) for i in (1, 2)}.items()
    )
    assert ops(made) == ["AllReduce"]


def test_sums_that_others_need_stay_apart() -> None:
    b = Builder()
    first = b.linear(b.op("Relu", b.linear("x", "up1", 24, 96)), "down1", 96, 24, bias=False)
    second = b.linear(b.op("Tanh", b.linear("x", "up2", 24, 48)), "down2", 48, 24, bias=False)
    made = _plan(b, b.op("Mul", b.op("Add", first, second), first), 2)
    assert ops(made) == ["AllReduce", "AllReduce"]
    b = Builder()
    first = b.linear(b.op("Relu", b.linear("x", "up1", 24, 96)), "down1", 96, 24, bias=False)
    made = _plan(b, b.op("Add", first, first), 2)
    assert ops(made) == ["AllReduce"]


@pytest.mark.parametrize("ranks", RANKS)
def test_layers_that_share_their_weights(ranks: int) -> None:
    """All uses of a weight are cut alike."""
    b = Builder()
    x = "x"
    for _ in range(3):
        x = b.op("Add", x, b.linear(b.op("Relu", b.linear(x, "up", 24, 96)), "down", 96, 24))
    made = _plan(b, x, ranks)
    assert split(made) == {"up.weight": "columns", "up.bias": "parts", "down.weight": "rows"}
    assert ops(made) == ["AllReduce"] * 3


def test_a_decoder_that_keeps_keys_and_values() -> None:
    """What was computed before comes in whole, and goes out whole: only the rest is cut."""
    b = Builder()
    q, k, v = (heads(b, b.linear("x", each, 24, 48), 12, 4) for each in "qkv")
    k, v = (b.op("Concat", f"past_{name}", value, axis=2) for name, value in (("k", k), ("v", v)))
    y = b.linear(attention(b, q, k, v, 4), "out", 48, 24)
    past = (FLOAT, (2, 12, "past", 4))
    data = b.model(
        {"x": (FLOAT, (2, 5, 24)), "past_k": past, "past_v": past},
        {"y": (y, None), "present_k": (k, None), "present_v": (v, None)},
    )
    made = sliced(data, 2, FREE)
    memory = np.random.default_rng(0).standard_normal((2, 2, 12, 7, 4)).astype("f")
    assert_same(made, [X, *memory])
    assert {"q.weight": "columns", "out.weight": "rows"}.items() <= split(made).items()
    assert made.bytes_per_rank[0] < 0.6 * made.bytes_whole


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_short_floats_are_written_and_read(dtype: str, tmp_path: Path) -> None:
    import ml_dtypes

    from litehouse import read

    b = Builder()
    kind = {"bfloat16": 16, "float16": 10}[dtype]
    for name, shape in (("up", (24, 96)), ("down", (96, 24))):
        array = (b.random.standard_normal(shape) / 10).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
        b.weights[name] = array
    h = b.op("Cast", b.op("MatMul", "x", b.op("Cast", "up", to=FLOAT)), to=kind)
    y = b.op("MatMul", b.op("Cast", b.op("Relu", h), to=FLOAT), b.op("Cast", "down", to=FLOAT))
    made = sliced(b.model({"x": (FLOAT, (2, 5, 24))}, {"y": (y, None)}), 2)
    assert _split(made) == {"up": "columns", "down": "rows"}
    models = [read(path) for path in write(made, tmp_path)]
    assert models[1].weights["up"].dtype.name == dtype
    np.testing.assert_array_equal(models[1].weights["up"], made.model.weights["up"][:, 48:])
