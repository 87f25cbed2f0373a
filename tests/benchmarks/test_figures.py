"""The arithmetic of the suite, by hand."""

import math
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from benchmarks import chart, tables
from benchmarks.figures import BARE, OTHER, OURS, Lane, Race, geometric_mean, share, speed, spread


def race(network="mlp", batch=1, clock="wall", **times):
    names = {"ours": OURS, "bare": BARE, "other": OTHER, "lite": "MindSpore Lite"}
    lanes = {}
    for key, own in times.items():
        lane = lanes[names[key]] = Lane(names[key], {"engine": "onnxruntime"})
        for number, seconds in own.items():
            lane.take(number, seconds, seconds / 2, seconds)
    return Race(network, "mindir", batch, 1, 1_000_000, clock, lanes)


def test_spread_leaves_a_tenth_out_at_either_end():
    found = spread([5, 1, 2, 3, 4, 6, 7, 8, 9, 100])
    assert (found.median, found.low, found.high) == (5.5, 2, 9)


def test_spread_of_few_is_all_of_them():
    found = spread([3, 1])
    assert (found.median, found.low, found.high) == (2, 1, 3)


def test_speed_is_a_median_of_ratios_within_rounds():
    # The ratio of the medians would be 20 / 2.
    found = speed(race(ours={0: 1.0, 1: 2.0, 2: 10.0}, bare={0: 2.0, 1: 20.0, 2: 30.0}), BARE)
    assert found.median == 3


def test_only_common_rounds_count():
    found = speed(race(ours={0: 1.0, 1: 1.0, 2: 1.0}, lite={1: 4.0}), "MindSpore Lite")
    assert (found.median, found.low, found.high) == (4, 4, 4)
    assert speed(race(ours={0: 1.0}, lite={}), "MindSpore Lite") is None
    assert speed(race(ours={0: 1.0}), "MindSpore Lite") is None


def test_the_clock_of_the_race_is_used():
    both = {"ours": {0: 1.0}, "bare": {0: 2.0}}
    assert race(**both).times(BARE) == {0: 2.0}
    assert race(clock="cpu", **both).times(BARE) == {0: 1.0}


def test_the_better_bare_engine_has_the_lower_median():
    assert race(ours={0: 1.0}, bare={0: 1.0, 1: 5.0, 2: 5.0}, other={0: 4.0, 1: 4.0, 2: 4.0}).better() == OTHER
    assert race(ours={0: 1.0}).better() is None


def test_geometric_mean():
    assert geometric_mean([0.5, 8.0]) == pytest.approx(2)


def test_a_share_fills_its_burst():
    found = share(0.001, rounds=15, burst=0.25, budget=20)
    assert (found.warm, found.calls, found.rounds) == (1, 250, frozenset(range(15)))


def test_a_slow_contender_takes_part_in_few_rounds():
    found = share(4.0, rounds=15, burst=0.25, budget=20)
    assert (found.warm, found.calls, len(found.rounds)) == (0, 1, 5)
    assert len(share(100.0, rounds=15, burst=0.25, budget=20).rounds) == 3
    assert share(100.0, rounds=2, burst=0.25, budget=20).rounds == {0, 1}


def test_a_burst_has_the_least_count_of_calls():
    assert share(4.0, rounds=15, burst=0.25, budget=1e6, least=12).calls == 12
    assert share(0.001, rounds=15, burst=0.25, budget=1e6, least=12).calls == 250


@pytest.mark.parametrize("rounds", [1, 3, 7, 15, 16])
def test_rounds_of_the_slower_are_among_those_of_the_faster(rounds):
    shares = [share(seconds, rounds=rounds, burst=0.25, budget=20).rounds for seconds in (0.1, 1, 2, 3, 4, 6, 100)]
    assert shares[0] == frozenset(range(rounds))
    assert all(later <= earlier for earlier, later in pairwise(shares))


def test_few_rounds_are_spread_over_the_race():
    assert share(100.0, rounds=16, burst=0.25, budget=20).rounds == {0, 8, 4}


def machine():
    return {"cpu": "a CPU", "cores": "2", "python": "3.11", "date": "2026-01-01"}


def test_the_document_sums_up():
    races = [
        race("mlp", ours={0: 1.0}, bare={0: 2.0}, other={0: 0.9}),
        race("lstm", ours={0: 1.0}, bare={0: 8.0}, other={0: 9.0}),
    ]
    text = tables.document(races, {1: 1e7}, {"MindSpore": "THIS is not set"}, machine())
    assert "MindSpore is left out: THIS is not set" in text
    assert text.index("| LSTM") < text.index("| MLP")
    assert f"4.00 times as fast as {BARE}, geometric mean of 2 races" in text
    assert f"worst ratio to the better of {BARE} and {OTHER}: 0.90 (MLP 32-64-64-10, batch 1, 1 thread(s))" in text
    assert "below 0.97 of it: 1 of 2 races" in text
    assert "| 10% |" in text  # a million operations in a second, of ten million


def test_the_document_names_who_failed():
    one = race("mlp", ours={0: 1.0}, bare={0: 2.0})
    one.lanes["MindSpore Lite"] = Lane("MindSpore Lite", failed="exit 1: no kernel")
    assert "MindSpore Lite failed (exit 1: no kernel)" in tables.document([one], {}, {}, machine())


def test_the_chart_is_well_formed():
    races = [race("mlp", ours={0: 1.0}, bare={0: 2.0}, lite={0: 4.0}), race("lstm", ours={0: 2.0}, bare={0: 1.0})]
    root = ElementTree.fromstring(tables.chart(races))
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    # The ground, three of the legend, three and two bars.
    assert len(root.findall(f"{space}rect")) == 1 + 3 + 3 + 2
    words = [text.text for text in root.findall(f"{space}text")]
    assert {OURS, BARE, "MindSpore Lite", "2.00", "0.50"} <= set(words)


def test_bars_are_as_high_as_their_values():
    root = ElementTree.fromstring(chart.bars("a < b", {"one": {"x": 1.0, "y": 0.25}}, ["x", "y"]))
    heights = [float(one.get("height")) for one in root.iter("{http://www.w3.org/2000/svg}rect")][-2:]
    assert heights[0] == pytest.approx(4 * heights[1], abs=0.5)
    assert math.isclose(heights[0], chart.HEIGHT / 1.05, abs_tol=0.1)
