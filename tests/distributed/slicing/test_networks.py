"""Whole networks of the usual kinds: what each rank holds, and that they compute the same as the whole."""

from typing import Any

import numpy as np
import pytest

from benchmarks.networks import plain as networks
from distributed.slicing.support import SMALL, assert_same, ops, sliced, split
from litehouse.distributed.slicing import Costs

RANDOM = np.random.default_rng(0)
IDS = RANDOM.integers(0, 400, (1, 12))
MASK = np.r_[np.ones(9, "f"), np.zeros(3, "f")][None]
IMAGE = RANDOM.standard_normal((1, 3, 32, 32)).astype("f")
HELD = {2: 0.6, 4: 0.35}  # the part of the weights that a rank may hold
DYNAMIC: dict[str, Any] = {"batch": "batch", "length": "length"}
NETWORKS: dict[str, tuple[bytes, list[np.ndarray]]] = {
    "bert": (networks.bert(length=12), [IDS, MASK]),
    "bert of any length": (networks.bert(**DYNAMIC), [IDS, MASK]),
    "bert with tied words": (networks.bert(length=12, tied=True), [IDS, MASK]),
    "llama": (networks.llama(), [IDS]),
    "llama of any length": (networks.llama(**DYNAMIC), [IDS]),
    "llama with tied words": (networks.llama(tied=True, vocabulary=501), [IDS]),
    "resnet": (networks.resnet18(), [IMAGE]),
    "resnet of any size": (networks.resnet18(batch="batch", size="size"), [IMAGE]),
}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name: str, ranks: int) -> None:
    data, inputs = NETWORKS[name]
    made = sliced(data, ranks, SMALL)
    assert_same(made, inputs)
    assert max(made.bytes_per_rank) <= HELD[ranks] * made.bytes_whole


@pytest.mark.parametrize("name", ["llama", "llama of any length"])
def test_a_layer_of_a_decoder_takes_two_exchanges(name: str) -> None:
    made = sliced(NETWORKS[name][0], 4, SMALL)
    kinds = {weight.removeprefix("layer.0."): how for weight, how in split(made).items() if "layer.0." in weight}
    assert kinds == {
        **{f"{name}.weight": "columns" for name in ("q", "k", "v", "gate", "up")},
        **{f"{name}.weight": "rows" for name in ("o", "down")},
    }
    assert ops(made).count("AllReduce") == 4  # two layers


def test_a_layer_of_an_encoder_takes_two_exchanges() -> None:
    made = sliced(NETWORKS["bert"][0], 2, SMALL)
    assert {split(made)[f"layer.1.{name}.weight"] for name in ("q", "k", "v", "up")} == {"columns"}
    assert {split(made)[f"layer.1.{name}.weight"] for name in ("out", "down")} == {"rows"}
    assert len(ops(made)) == 6  # two for each layer, one for the words and places, one for the pooler


@pytest.mark.parametrize("ranks", [3, 5])
def test_heads_that_do_not_divide(ranks: int) -> None:
    """Some weights stay whole; the result is right all the same."""
    for name in ("bert", "llama"):
        data, inputs = NETWORKS[name]
        made = sliced(data, ranks, SMALL)
        assert_same(made, inputs)
        assert made.bytes_per_rank[0] < made.bytes_whole


def test_other_sizes_than_those_that_were_assumed() -> None:
    made = sliced(NETWORKS["llama of any length"][0], 2, Costs(exchange=0, unknown=4))
    for shape in ((1, 1), (3, 7), (2, 12)):
        assert_same(made, [RANDOM.integers(0, 400, shape)])
    made = sliced(NETWORKS["bert of any length"][0], 2, Costs(exchange=0, unknown=4))
    for shape in ((1, 1), (3, 7), (2, 12)):
        assert_same(made, [RANDOM.integers(0, 400, shape), np.ones(shape, "f")])


def test_the_model_stays_as_it_is() -> None:
    import litehouse

    model = litehouse.read(NETWORKS["llama"][0])
    before = [(node.op_type, [str(value.name) for value in node.inputs if value]) for node in model.graph.graph]
    from litehouse.distributed.slicing import plan

    made = plan(model, 2, costs=SMALL)
    made.model_for(0)
    made.model_for(1)
    assert before == [(node.op_type, [str(value.name) for value in node.inputs if value]) for node in model.graph.graph]
    assert made.model_for(1).weights["layer.0.q.weight"].shape == (64, 32)
    np.testing.assert_array_equal(
        made.model_for(1).weights["layer.0.q.weight"], model.weights["layer.0.q.weight"][:, 32:]
    )
