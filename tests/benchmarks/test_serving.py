"""Throughput with many clients: bursts that threads share, and a whole race on a small network."""

import sys

import numpy as np
import pytest

from benchmarks import races, serving
from benchmarks.__main__ import main
from benchmarks.contenders import WORKERS
from benchmarks.figures import Lane, Race, relative
from benchmarks.serving import POOL, REAL, RUNNER, SERIAL
from benchmarks.turns import Worker, WorkerError

DUMMY = """
import sys, threading
sys.path.insert(0, {workers!r})
from loop import Task, serve

calls, lock, both = [0], threading.Lock(), threading.Barrier(2)

def load(task):
    def run():
        with lock:
            calls[0] += 1
            number = calls[0]
        with open(task.model, "a") as log:
            log.write(threading.current_thread().name + chr(10))
        {trouble}
        return [task.inputs[0]]

    return run, {{}}

serve(Task(), load)
"""


@pytest.fixture
def start(tmp_path):
    """Start a worker that notes who calls; three threads share the calls of a burst."""
    started = []

    def make(trouble="pass"):
        script = tmp_path / "dummy.py"
        script.write_text(DUMMY.format(workers=str(WORKERS), trouble=trouble))
        np.savez(tmp_path / "arrays.npz", input_0=np.arange(4.0))
        command = [sys.executable, str(script), str(tmp_path / "calls"), str(tmp_path / "arrays.npz"), "1"]
        started.append(Worker([*command, str(tmp_path / "out.npz")], tmp_path / "log", patience=60, clients=3))
        started[-1].ready()
        return started[-1]

    yield make
    for worker in started:
        worker.close()


def test_clients_share_the_calls_of_a_burst(start, tmp_path):
    # The calls with these numbers are the first two that are timed: each waits until the other has begun.
    took = start("if number in (5, 6): both.wait(60)").burst(0, 30)
    assert took.wall > 0
    names = (tmp_path / "calls").read_text().split("\n")[:-1]
    # One call to load, one of each client that is checked, and those that are timed.
    assert len(names) == 1 + 3 + 30
    assert len(set(names[4:])) > 1


def test_an_answer_that_is_wrong_for_one_client_ends_the_worker(start):
    worker = start("if number == 3: return [task.inputs[0] + 1]")
    with pytest.raises(WorkerError, match="a client got an output that is off by"):
        worker.burst(1, 1)


def test_an_error_of_a_client_is_not_lost(start):
    worker = start("if number == 20: raise KeyError('lost')")
    with pytest.raises(WorkerError, match="KeyError: 'lost'"):
        worker.burst(1, 100)


def race(**walls):
    lanes = {name: Lane(name) for name in walls}
    for name, own in walls.items():
        for number, seconds in enumerate(own):
            lanes[name].take(number, seconds, seconds, seconds)
    return Race("mlp", "mindir", 1, 2, 0, "wall", lanes)


def test_a_ratio_over_one_means_more_requests_per_second():
    found = relative(race(a=[1.0, 2.0, 4.0], b=[0.5, 0.5, 0.5]), "b", "a")
    assert (found.median, found.low, found.high) == (4, 2, 8)


def test_the_best_of_the_real_ones_has_the_lowest_median():
    assert race(a=[1.0, 9.0, 9.0], b=[3.0, 3.0, 3.0], c=[1.0]).fastest(["a", "b"]) == "b"
    assert race(a=[1.0]).fastest(["b"]) is None


def test_the_table_names_who_failed():
    one = race(**{SERIAL: [2.0], POOL: [1.0], f"{REAL} 2 × 1": [4.0]})
    one.lanes[f"{REAL} 4 × 1"] = Lane(f"{REAL} 4 × 1", failed="exit 1")
    made = serving.table(one, 4)
    columns = {str(column.header): list(column.cells) for column in made.columns}
    assert columns["requests/s"] == ["0.5", "1.0", "0.2", "failed: exit 1"]
    assert columns[f"to {SERIAL}"][1] == "2.00 [2.00, 2.00]"
    assert columns[f"to {REAL} 2 × 1"][1] == "4.00 [4.00, 4.00]"
    assert columns[f"to {SERIAL}"][3] == "–"


def test_a_race_of_large_networks(tiny, monkeypatch):
    monkeypatch.setattr(serving, "TINY", ())
    takers = serving.takers("mlp", 3)
    assert [item.name for item in takers] == [SERIAL, POOL, RUNNER]
    one = Race("mlp", "mindir", 1, 2, 0, "wall")
    races.hold(one, takers, tiny, rounds=2, burst=0.01, budget=10, step=lambda: None)
    assert {name: lane.wall.keys() for name, lane in one.lanes.items()} == {n: {0, 1} for n in (SERIAL, POOL, RUNNER)}


@pytest.mark.slow
def test_a_tiny_network(tiny, results, capsys):
    main(["serving", "--networks", "mlp", "--clients", "2", "--rounds", "1", "--burst", "0.01"])
    assert f"{POOL}, 32 joined" in capsys.readouterr().out
    assert [race["clients"] for race in results("serving")["races"]] == [2]


@pytest.mark.parametrize("words", [["soup"], ["overhead", "soup"], ["overhead", "--short"]])
def test_unknown_words_are_refused(words):
    with pytest.raises(SystemExit, match="there is no benchmark"):
        main(words)
