"""Stages of a pipeline."""

import numpy as np
import pytest

from benchmarks.networks import plain as networks
from benchmarks.networks.plain import FLOAT, Builder
from distributed.slicing.support import assert_same, sliced
from distributed.slicing.test_networks import NETWORKS
from litehouse.distributed.slicing import Plan
from litehouse.model import EXCHANGE_DOMAIN


def _stack(layers: int, width: int = 16) -> bytes:
    b = Builder()
    x = "x"
    for layer in range(layers):
        x = b.op("Relu", b.linear(x, f"l{layer}", width, width, bias=False))
    return b.model({"x": (FLOAT, (3, width))}, {"y": (x, None)})


X = np.random.default_rng(0).standard_normal((3, 16)).astype("f")


def _stages(made: Plan) -> dict[str, str]:
    return {row.weight: row.how for row in made.rows}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, ranks: int) -> None:
    data, inputs = NETWORKS[name]
    made = sliced(data, ranks, pipeline=True)
    assert_same(made, inputs)
    assert made.is_pipeline
    assert sum(made.bytes_per_rank) >= made.bytes_whole


def test_layers_are_shared_out() -> None:
    made = sliced(_stack(6), 3, pipeline=True)
    assert_same(made, [X])
    stages = ["stage 0", "stage 0", "stage 1", "stage 1", "stage 2", "stage 2"]
    assert _stages(made) == {f"l{layer}.weight": stage for layer, stage in enumerate(stages)}
    # One value from each stage to the next, and the output from the last one to the others.
    assert len(made.exchanges) == 4


def test_values_are_sent_once_to_each_stage_that_needs_them() -> None:
    b = Builder()
    start = x = b.op("Relu", b.linear("x", "first", 16, 16))
    for layer in range(3):
        x = b.op("Add", b.op("Mul", b.linear(x, f"l{layer}", 16, 16), start), start)
    made = sliced(b.model({"x": (FLOAT, (3, 16))}, {"y": (x, None)}), 4, pipeline=True)
    assert_same(made, [X])
    sent = [each.value for each in made.exchanges]
    assert len(sent) == len(set(sent))


def test_more_ranks_than_layers() -> None:
    made = sliced(_stack(1), 5, pipeline=True)
    assert_same(made, [X])
    assert sorted(made.bytes_per_rank) == [0, 0, 0, 0, made.bytes_whole]


def test_outputs_of_different_stages() -> None:
    b = Builder()
    first = b.linear("x", "first", 16, 16)
    second = b.linear(b.op("Relu", first), "second", 16, 16)
    data = b.model({"x": (FLOAT, (3, 16))}, {"a": (first, None), "b": (second, None), "c": ("x", None)})
    for ranks in (2, 3):
        made = sliced(data, ranks, pipeline=True)
        assert_same(made, [X])


def test_a_branch_that_uses_values_of_an_earlier_stage() -> None:
    from onnx import helper

    b = Builder()
    h = b.op("Relu", b.linear("x", "first", 16, 16))
    g = b.linear(h, "second", 16, 16)
    b.weight("inner", 16, 16)
    out = [helper.make_tensor_value_info("inside", FLOAT, None)]
    then = helper.make_graph([helper.make_node("MatMul", [h, "inner"], ["inside"])], "then", [], out)
    other = helper.make_graph([helper.make_node("Identity", [g], ["inside"])], "other", [], out)
    flag = b.op("Greater", b.op("ReduceSum", g, keepdims=0), b.array(0.0, "f"))
    data = b.model({"x": (FLOAT, (3, 16))}, {"y": (b.op("If", flag, then_branch=then, else_branch=other), None)})
    for x in (X, -X):
        assert_same(sliced(data, 2, pipeline=True), [x])
        assert_same(sliced(data, 3, pipeline=True), [x])


def test_constants_are_not_sent() -> None:
    """What follows from weights alone is computed where it is needed."""
    b = Builder()
    table = b.op("Transpose", b.weight("table", 40, 16), perm=[1, 0])
    x = b.op("MatMul", "x", table)
    x = b.op("MatMul", b.op("Relu", x), b.weight("l", 40, 16))
    y = b.op("MatMul", x, table)
    made = sliced(b.model({"x": (FLOAT, (3, 16))}, {"y": (y, None)}), 2, pipeline=True)
    assert_same(made, [X])
    assert not any("Transpose" in each.value for each in made.exchanges)


def test_ranks_exchange_in_one_order() -> None:
    """What a rank receives from another, it receives in the order in which that sends."""
    made = sliced(networks.llama(layers=4), 4, pipeline=True)
    sent: dict[tuple[int, int], list[int]] = {}
    received: dict[tuple[int, int], list[int]] = {}
    for rank in range(4):
        for node in made.model_for(rank).graph.graph:
            if node.domain == EXCHANGE_DOMAIN and node.op_type == "Send":
                sent.setdefault((rank, node.attributes["dest_rank"].as_int()), []).append(
                    node.attributes["sr_tag"].as_int()
                )
            elif node.domain == EXCHANGE_DOMAIN and node.op_type == "Receive":
                received.setdefault((node.attributes["src_rank"].as_int(), rank), []).append(
                    node.attributes["sr_tag"].as_int()
                )
    assert sent == received
    assert sent
