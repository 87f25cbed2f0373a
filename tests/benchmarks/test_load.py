"""Latency, memory, swaps and soaking: the arithmetic by hand, and a very short run of each."""

import numpy as np
import pytest

from benchmarks import latency, mixed_load, soak, swaps, worker_memory
from benchmarks.networks import file
from litehouse.parallel.statistics import SECONDS, Histogram


def test_arrivals_have_exponential_gaps():
    due = list(latency.arrivals(1000, 10, seed=1))
    assert due == list(latency.arrivals(1000, 10, seed=1))
    assert due != list(latency.arrivals(1000, 10, seed=2))
    gaps = np.diff([0, *due])
    assert len(due) == pytest.approx(10_000, rel=0.05)
    assert np.std(gaps) == pytest.approx(np.mean(gaps), rel=0.1)


def test_percentiles_are_of_the_nearest_rank():
    values = list(range(1, 101))
    assert [latency.percentile(values, percent) for percent in (50, 99, 100)] == [50, 99, 100]
    assert latency.percentile([7.0], 99) == 7.0


def test_the_median_of_what_a_histogram_gained():
    histogram = Histogram(SECONDS)
    for _ in range(50):
        histogram.add(5.0)
    before = histogram.data()
    for seconds in (0.002, 0.003, 0.004, 0.02):
        histogram.add(seconds)
    # One is below 2.5 ms, two are between that and 5 ms: half of all end in their middle.
    assert latency.median_between(before, histogram.data()) == pytest.approx(0.0025 + 0.0025 / 2)


def test_latency(tiny, results, capsys):
    latency.main(["--network", "mlp", "--rounds", "1", "--seconds", "0.3"])
    assert "p99 / one at a time" in capsys.readouterr().out
    found = results("latency")
    assert found["refused_ms"]["count"] == latency.TRIES
    assert found["results"]["p99_ms"]["median"] >= found["results"]["p50_ms"]["median"] > 0


def test_the_share_of_a_worker_is_the_growth_within_a_round():
    rounds = [{1: {"resident": 100e6}, 8: {"resident": 170e6}}, {1: {"resident": 200e6}, 8: {"resident": 340e6}}]
    found = worker_memory.share(rounds)
    assert (found.median, found.low, found.high) == (15, 10, 20)


@pytest.mark.slow
def test_worker_memory(tiny, results):
    worker_memory.main(["--network", "mlp", "--workers", "1,2", "--rounds", "1", "--kinds", "pool-onnxruntime"])
    found = results("worker_memory")["results"]["pool-onnxruntime"]
    assert found["rounds"][0]["2"]["resident"] > 10e6
    assert found["rounds"][0]["2"]["engine"] == "onnxruntime"


def test_the_memory_of_a_runner(tiny, tmp_path):
    paths = file("mlp", 1, ".mindir"), file("mlp", 1, ".npz")
    assert worker_memory.measure("runner-onnxruntime", 2, *paths, tmp_path / "cache")["proportional"] > 10e6


def test_no_two_requests_of_the_swaps_are_alike():
    asked = {swaps.request(number).tobytes() for number in range(0, 400_000, 7)}
    assert len(asked) == len(range(0, 400_000, 7))
    answers = {swaps.expected(swaps.request(123_456), *numbers).tobytes() for numbers in swaps.MODELS}
    assert len(answers) == len(swaps.MODELS)


def test_swapped_answers_are_counted():
    first, second = ((lambda x, n=numbers: swaps.expected(x, *n)) for numbers in swaps.MODELS)
    assert swaps.ask([first, second], 100, threads=2) == 0
    assert swaps.ask([second, first], 100, threads=2) == 200  # when they came, and again later


def test_answers_that_change_later_are_counted():
    memory = np.empty((1, swaps.FIELDS), np.float32)

    def serve(x):
        memory[...] = swaps.expected(x, *swaps.MODELS[0])
        return memory

    assert swaps.ask([serve], 100, threads=1) == 99  # the last one stays


def test_swaps(results):
    swaps.main(["--requests", "300", "--threads", "3"])
    found = results("swaps")["results"]
    assert {name: own["wrong"] for name, own in found.items()} == {"ModelParallelRunner": 0, "Pool": 0}


def test_levels_are_medians_after_warm_up_and_at_the_end():
    samples = [soak.Sample(second, 100 + second, 0, 5, 7) for second in range(100)]
    found = soak.levels(samples)
    assert (found["memory"].first, found["memory"].last) == (124.5, 194.5)
    assert found["memory"].growth == pytest.approx(70 / 124.5)
    assert found["child_memory"].growth == 0


def test_a_wrong_answer_is_told():
    question = mixed_load.Question(np.zeros(3), np.arange(3.0))
    assert question.check(np.arange(3.0)) == "answered"
    for wrong in (np.arange(4.0), np.arange(3.0) + 0.1, np.full(3, np.nan)):
        with pytest.raises(mixed_load.WrongAnswerError):
            question.check(wrong)


def test_what_a_client_meets_ends_the_load():
    class Broken:
        name = "broken"

        def ask(self, luck):
            raise mixed_load.WrongAnswerError("it is")

    with pytest.raises(mixed_load.WrongAnswerError, match="it is"), mixed_load.Load([Broken()], clients=2):
        pass


@pytest.mark.slow
def test_a_minute_under_load_leaves_nothing_behind(results):
    soak.main(["--minutes", "1", "--clients", "4", "--every", "0.5"])
    found = results("soak")
    assert found["leaked"] == {"threads": 0, "descriptors": 0}
    assert all(tally["answered"] for tally in found["requests"].values())
    assert found["results"]["memory"]["growth"] < 0.03
