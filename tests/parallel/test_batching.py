"""Whether requests may be joined is found by trying, not assumed."""

import numpy as np
import pytest

import litehouse
from conftest import assert_close
from litehouse import Batching, Pool
from litehouse.model import TensorInfo
from litehouse.parallel import batching
from litehouse.parallel.batching import join, judge, pieces, split
from onnx_models import mlp, mlp_result, model, node

FORCED = Batching(max_size=4, force=True)
X = (TensorInfo("x", np.dtype("f"), (1, 3)),)


def test_a_model_that_treats_rows_alone_may_be_joined() -> None:
    verdict = judge(FORCED, lambda inputs: [np.tanh(inputs[0]) @ np.ones((3, 2), "f")], X)
    assert verdict.sizes == (4, 2)


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda inputs: [inputs[0] - inputs[0].mean(axis=0)], "do not give what they give alone"),
        (lambda inputs: [inputs[0] + len(inputs[0])], "do not give what they give alone"),
        (lambda inputs: [inputs[0][::-1].copy()], "do not give what they give alone"),
        (lambda inputs: [inputs[0].sum(axis=0)], "takes no 4 requests at once"),
        (lambda inputs: [np.float32(1).reshape(())], "takes no 4 requests at once"),
        (lambda inputs: [np.repeat(inputs[0], 2, axis=0)[: 2 * len(inputs[0]) - 1]], "takes no"),
        (lambda inputs: [inputs[0][inputs[0].sum(axis=1) > 100]], "an output is empty for some inputs"),
        (
            lambda inputs: [np.where([[1, 0, 0]], -np.inf, inputs[0] - inputs[0].mean(axis=0)).astype("f")],
            "do not give",
        ),
    ],
    ids=[
        *("mean over the batch", "count of the batch", "reversed", "sum over the batch", "a scalar", "uneven"),
        *("a filter that keeps nothing", "infinities"),
    ],
)
def test_a_model_that_mixes_requests_is_not_joined(run, reason: str) -> None:
    verdict = judge(FORCED, run, X)
    assert verdict.sizes == ()
    assert reason in verdict.reason


def test_a_model_that_refuses_other_sizes_is_not_joined() -> None:
    def run(inputs):
        if len(inputs[0]) != 1:
            raise litehouse.ShapeError("one row only")
        return [inputs[0]]

    verdict = judge(FORCED, run, X)
    assert (verdict.sizes, verdict.reason) == ((), "it takes no 4 requests at once (one row only)")


def test_a_model_that_fails_on_made_up_inputs_is_not_joined() -> None:
    def run(inputs):
        raise litehouse.EngineError("indices are out of range")

    assert judge(FORCED, run, X).reason == "it does not run on made-up inputs (indices are out of range)"


def test_inputs_without_an_axis_are_not_joined() -> None:
    verdict = judge(FORCED, lambda inputs: inputs, (TensorInfo("x", np.dtype("f"), ()),))
    assert verdict.reason == "an input has no axis to join along"


def test_whether_it_pays_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    gains = iter([1.05, 5.0])
    monkeypatch.setattr(batching, "_gain", lambda *_: next(gains))
    slow = judge(Batching(max_size=8), lambda inputs: [inputs[0] * 2], X)
    assert (slow.sizes, slow.reason) == ((), "8 requests at once are only 1.050 times as fast as alone")
    fast = judge(Batching(max_size=8), lambda inputs: [inputs[0] * 2], X)
    assert (fast.sizes, fast.reason) == ((8, 4, 2), "8 requests at once are 5.00 times as fast as alone")


def test_pieces() -> None:
    assert pieces(7, (4, 2)) == [4, 2, 1]
    assert pieces(12, (6, 4, 2)) == [6, 6]
    assert pieces(3, ()) == [1, 1, 1]
    assert pieces(0, (4,)) == []


def test_what_was_joined_is_split_into_parts_that_own_their_memory() -> None:
    requests = [[np.full((2, 3), value, "f"), np.full((1,), value, "i8")] for value in range(4)]
    joined = join(requests)
    assert [array.shape for array in joined] == [(8, 3), (4,)]
    for value, own in enumerate(split(joined, 4, 2, [(2, 2), (1, 2)])):
        for array, expected in zip(own, requests[value], strict=True):
            assert array.base is None
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("wrong", [{"max_size": 1}, {"max_size": 2.5}, {"max_delay": -1}, {"max_delay": 61}], ids=str)
def test_numbers_out_of_range(wrong: dict) -> None:
    with pytest.raises(ValueError, match="max_"):
        Batching(**wrong)


def test_a_pool_joins_and_gives_each_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(mlp(), workers=1, batching=FORCED) as pool:
        assert pool.batching.sizes == (4, 2)
        xs = [np.random.default_rng(seed).normal(size=(2, 4)).astype("f") for seed in range(100)]
        with pool._waiting._arrived:  # no worker takes one before all are there
            futures = [pool.submit([x]) for x in xs]
        for x, future in zip(xs, futures, strict=True):
            assert_close(future.result(60)[0], mlp_result(x))
        sizes = pool.statistics.batch_sizes
        assert sizes["up_to"][1] < sizes["count"] < 100


def test_a_pool_of_a_model_that_mixes_its_batch_joins_nothing() -> None:
    mixing = model(
        [node("ReduceMean", "x", "m", keepdims=1, axes=[0]), node("Sub", "x m", "y")],
        {"x": ["n", 4]},
        {"y": ["n", 4]},
        opset=13,
    )
    with Pool(mixing, workers=1, batching=FORCED) as pool:
        assert pool.batching.sizes == ()
        assert pool.batching.reason == "4 requests at once do not give what they give alone"
        x = np.random.default_rng(0).normal(size=(3, 4)).astype("f")
        futures = [pool.submit([x + value]) for value in range(10)]
        for value, future in enumerate(futures):
            assert_close(future.result(60)[0], (x + value) - (x + value).mean(axis=0))


def test_requests_that_were_not_joined_are_told_why() -> None:
    with Pool(mlp(), workers=1) as pool:
        assert (pool.batching.sizes, pool.batching.reason) == ((), "it was not asked for")


def test_a_model_whose_other_sizes_are_open_is_not_joined() -> None:
    verdict = judge(FORCED, lambda inputs: inputs, (TensorInfo("x", np.dtype("f"), ("n", "m")),))
    assert verdict.reason == "sizes beyond the first axis are not fixed, so nothing could be tried"


def test_rows_that_depend_on_the_data_are_never_shared_out() -> None:
    with pytest.raises(ValueError, match=r"has no 2 parts of 3 rows"):
        split([np.zeros((4, 5))], 2, 3, [(1, 1)])
    assert [part[0].shape for part in split([np.zeros((6, 5))], 2, 3, [(1, 1)])] == [(3, 5), (3, 5)]
    assert [part[0].shape for part in split([np.zeros((600, 5))], 2, 3, [(100, 1)])] == [(300, 5), (300, 5)]


def test_outputs_whose_sizes_depend_on_the_data_are_not_joined() -> None:
    verdict = judge(FORCED, lambda inputs: inputs, X, (TensorInfo("y", np.dtype("f"), (None, 3)),))
    assert verdict.reason == "the sizes of its outputs depend on the data"
