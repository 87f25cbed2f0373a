"""Workers, and a whole race on a small network."""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks import races, suite
from benchmarks.contenders import CONTENDERS, WORKERS
from benchmarks.figures import BARE, OTHER, OURS, Lane, Race
from benchmarks.networks import PEERS, build
from benchmarks.turns import Burst, Worker, WorkerError, take_turns

FIXTURE = Path(__file__).parent.parent / "fixtures" / "mindir" / "containers" / "plain.mindir"
DUMMY = """
import os, sys
sys.path.insert(0, {workers!r})
from loop import Task, serve

def load(task):
    print("a library prints this")
    os.system("echo and this")
    {failure}
    return lambda: [task.inputs[0] * task.threads], {{"version": "1", "option": task.option}}

serve(Task(), load)
"""


@pytest.fixture
def start(tmp_path):
    """Start a worker that multiplies its input by the count of threads."""
    started = []

    def make(failure="", patience=60.0):
        script = tmp_path / "dummy.py"
        script.write_text(DUMMY.format(workers=str(WORKERS), failure=failure))
        np.savez(tmp_path / "arrays.npz", input_0=np.arange(4.0))
        command = [sys.executable, str(script), "model", str(tmp_path / "arrays.npz"), "3", str(tmp_path / "out.npz")]
        started.append(Worker([*command, "tuned"], tmp_path / "log", patience=patience))
        return started[-1]

    yield make
    for worker in started:
        worker.close()


def test_a_worker_answers(start, tmp_path):
    worker = start()
    facts = worker.ready()
    assert facts.pop("start") >= 0
    assert facts == {"version": "1", "option": "tuned"}
    with np.load(tmp_path / "out.npz") as stored:
        assert stored["output_0"].tolist() == [0, 3, 6, 9]
    for warm, calls in ((0, 1), (1, 1000)):
        took = worker.burst(warm, calls)
        assert 0 < took.best <= took.wall * 1.000001
    assert "a library prints this" in (tmp_path / "log").read_text()


def test_a_worker_that_fails_says_why(start):
    with pytest.raises(WorkerError, match=r"exit 1: ValueError: no such kernel"):
        start("raise ValueError('no such kernel')").ready()


def test_a_worker_that_is_stuck_is_given_up(start):
    with pytest.raises(WorkerError, match="no answer within"):
        start("import time; time.sleep(60)", patience=0.1).ready()


def test_turns_alternate_and_the_slow_are_spared():
    order = []

    def worker(name, seconds):
        return SimpleNamespace(burst=lambda warm, calls: order.append(name) or Burst(seconds, seconds / 2, seconds / 4))

    lanes = {name: Lane(name) for name in "abc"}
    workers = {"a": worker("a", 0.5), "b": worker("b", 0.5), "c": worker("c", 90.0)}
    take_turns(workers, lanes, rounds=4, burst=0.1, budget=20)
    # The first three calls find out how long one takes.
    assert "".join(order[3:]) == "abc" + "cba" + "abc" + "ba"
    assert lanes["a"].wall == dict.fromkeys(range(4), 0.5)
    assert lanes["a"].cpu == dict.fromkeys(range(4), 0.25)
    assert lanes["a"].best == 0.125
    assert lanes["c"].wall == dict.fromkeys(range(3), 90.0)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ([np.array([0.0, 1.002])], "off by 2.0e-03 of its range"),
        ([np.array([0.0, np.nan])], "off by nan"),
        ([np.zeros((1, 2))], "has shape"),
        ([np.zeros(2), np.zeros(2)], "2 outputs, not 1"),
    ],
)
def test_wrong_outputs_end_the_program(found, text):
    with pytest.raises(SystemExit, match=text):
        races.check("someone", found, [np.array([0.0, 1.0])])


def test_rounding_is_no_wrong_output():
    races.check("someone", [np.array([0.0, 1.00009])], [np.array([0.0, 1.0])])


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """A folder for networks, and no peer."""
    monkeypatch.setenv("LITEHOUSE_BENCHMARK_NETWORKS", str(tmp_path))
    for variable in PEERS.values():
        monkeypatch.delenv(variable, raising=False)
    return tmp_path


def test_peers_that_are_not_there_are_left_out(alone, monkeypatch):
    for suffix in ("mindir", "onnx", "lite.mindir"):
        (alone / f"mlp_b1.{suffix}").touch()
    key = ("mlp", "mindir", 1, 2)
    assert [item.name for item in suite.takers(key, ())] == [OURS, BARE, OTHER]
    monkeypatch.setenv("LITEHOUSE_MINDSPORE_LITE_PYTHON", "python")
    assert [item.name for item in suite.takers(key, (BARE,))] == [OURS, OTHER, "MindSpore Lite"]


def test_only_what_was_built_is_raced(alone):
    given = suite.parse(["--networks", "mlp,lstm", "--threads", "2"])
    assert suite.planned(given, given.networks) == []
    for suffix in ("mindir", "onnx", "mge"):
        (alone / f"mlp_b8.{suffix}").touch()
    assert suite.planned(given, given.networks) == [("mlp", "mindir", 8, 2)]  # nobody to race on .mge


@pytest.mark.parametrize("arguments", [["--networks", "alexnet"], ["--without", "us"], ["--clock", "cpu"]])
def test_bad_arguments_are_refused(arguments, capsys):
    with pytest.raises(SystemExit):
        suite.parse(arguments)
    assert "error" in capsys.readouterr().err


def test_the_short_form_can_be_changed():
    assert suite.parse(["--short"]).networks == suite.SHORT["networks"]
    assert suite.parse(["--short", "--networks", "bert"]).networks == ("bert",)


def test_a_race(alone):
    shutil.copy(FIXTURE, alone / "tiny_b1.mindir")
    shutil.copy(FIXTURE.parent / "io.npz", alone / "tiny_b1.npz")
    build.build(("tiny",), (1,))
    race = Race("tiny", "mindir", 1, 1, 0, "wall")
    takers = [item for item in CONTENDERS["mindir"] if item.name in (OURS, BARE, OTHER)]
    races.hold(race, takers, alone, rounds=2, burst=0.001, budget=1, step=lambda: None)
    assert {name: lane.wall.keys() for name, lane in race.lanes.items()} == {n: {0, 1} for n in (OURS, BARE, OTHER)}
    assert race.lanes[OURS].facts["engine"] in ("onnxruntime", "openvino")
    assert race.lanes[BARE].facts["version"]


def test_results_can_be_taken_up_again(monkeypatch, tmp_path, alone):
    monkeypatch.setattr(suite, "RESULTS", tmp_path / "results")
    assert suite.read() == ([], {})
    race = Race("mlp", "mindir", 1, 2, 13568, "wall", {OURS: Lane(OURS, {"version": "1"})})
    race.lanes[BARE] = Lane(BARE)
    for lane in race.lanes.values():
        lane.take(0, 2.0, 1.0, 1.5)
    text = suite.write([race], {2: 1e9})
    assert suite.read() == ([race], {2: 1e9})
    assert (tmp_path / "results" / "suite.md").read_text() == text
    assert "LITEHOUSE_MINDSPORE_PYTHON is not set" in text
