"""Ranks that are processes: how they find each other, and what the others learn when one dies, hangs or is another."""

from __future__ import annotations

import random
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import litehouse
from distributed.jobs import PATIENCE, free_port, has_torch, needs_torch
from distributed.rank_processes import Rank, expected, network
from litehouse.distributed import memory
from litehouse.distributed.slicing import plan, write

KILLS = 20
GLOO_KILLS = 4
HANG_SECONDS = 8.0  # of the only test that must wait for a timeout
TRANSPORTS = ["memory", pytest.param("gloo", marks=needs_torch)]


class Launcher:
    """Starts ranks of one job, and ends them with the test."""

    def __init__(self, folder: Path) -> None:
        """Slice a network for two ranks."""
        self.folder, self.started = folder, list[Rank]()
        self.job = {"size": 2, "timeout": PATIENCE}
        self.more: dict[str, Any] = {}  # of the orders
        self.environment = {"LITEHOUSE_JOB": uuid.uuid4().hex}
        self.whole = folder / "whole.onnx"
        self.whole.write_bytes(network())
        sliced = plan(litehouse.read(self.whole), 2)
        assert [each.op for each in sliced.exchanges] == ["AllReduce"]
        self.parts = [str(path) for path in write(sliced, folder / "parts")]

    def start(self, rank: int, runs: int | None = 2, times: int = 1, later: float | None = None, **job: Any) -> Rank:
        """Start a rank that loads its part so many times; `later` is the timeout once it is loaded."""
        paths, settings = [self.parts[rank]] * times, {**self.job, "rank": rank, **job}
        order = {"paths": paths, "runs": runs, "job": settings, "later": later, "whole": str(self.whole), **self.more}
        self.started.append(Rank(order, self.environment))
        return self.started[-1]


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    yield made
    for rank in made.started:
        rank.close()


def networked(transport: str) -> dict[str, Any]:
    return {"transport": transport, "port": free_port()} if transport == "gloo" else {"transport": transport}


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_two_processes_compute_what_one_would(launcher: Launcher, transport: str) -> None:
    settings = networked(transport)
    ranks = [launcher.start(rank, **settings) for rank in range(2)]
    for rank in ranks:
        assert rank.hear("ran")["results"] == [pytest.approx(expected(), rel=1e-4)]
        rank.hear("done")
        rank.hear("usable")
        assert rank.end() == 0


def test_a_job_is_loaded_again_in_the_same_processes(launcher: Launcher) -> None:
    ranks = [launcher.start(rank, times=3) for rank in range(2)]
    for rank in ranks:
        for _ in range(3):
            assert rank.hear("ran")["results"] == [pytest.approx(expected(), rel=1e-4)]
        assert rank.end() == 0


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_rank_that_is_killed_is_named_at_once_whenever_it_happens(launcher: Launcher, transport: str) -> None:
    """Rank 0 lives on, and takes part in one job after the other; rank 1 is a new process each time."""
    kills, moments = (KILLS, random.Random(8)) if transport == "memory" else (GLOO_KILLS, random.Random(9))
    settings = networked(transport)
    first = launcher.start(0, runs=None, times=kills, **settings)
    for number in range(kills):
        victim = launcher.start(1, runs=None, **settings)
        victim.hear("loaded" if number % 4 == 0 else "ran")
        time.sleep(moments.uniform(0, 0.05))
        victim.process.kill()
        told = first.hear("failed")
        assert (told["kind"], told["rank"]) == ("RankError", 1), told
        assert "rank 1 died" in told["text"]
        assert not told["op"] or told["op"].startswith(("AllReduce", "the meeting"))
        victim.close()
    first.hear("usable")
    assert first.end() == 0


def test_a_rank_that_dies_before_it_has_begun_is_missed(launcher: Launcher) -> None:
    first = launcher.start(0, timeout=1.0)
    told = first.hear("failed")
    assert (told["kind"], told["rank"]) == ("RankError", 1)
    assert "rank 1 of 2 did not begin within 1 s" in told["text"]
    first.hear("usable")
    assert first.end() == 0


def test_a_rank_that_hangs_is_named_after_the_timeout(launcher: Launcher) -> None:
    stuck = launcher.start(1, runs=None, later=HANG_SECONDS)
    first = launcher.start(0, runs=None, later=HANG_SECONDS)
    stuck.hear("ran")
    stuck.process.send_signal(signal.SIGSTOP)
    told = first.hear("failed")
    assert (told["kind"], told["rank"]) == ("RankError", 1)
    assert f"rank 1 did not answer within {HANG_SECONDS:g} s in AllReduce" in told["text"]
    first.hear("usable")
    assert first.end() == 0
    stuck.process.send_signal(signal.SIGCONT)
    assert stuck.hear("failed")["kind"] == "RankError"  # it learns that the job is over, and goes on
    stuck.hear("usable")
    assert stuck.end() == 0


def test_a_rank_with_the_wrong_file_is_named_on_both(launcher: Launcher) -> None:
    other = plan(litehouse.read(network(seed=5)), 2)
    launcher.parts[1] = str(write(other, launcher.folder / "others")[1])
    ranks = [launcher.start(rank) for rank in range(2)]
    for rank in ranks:
        told = rank.hear("failed")
        assert told["kind"] == "RankError"
        assert "not of the same job" in told["text"]
        rank.hear("usable")
        assert rank.end() == 0


def test_a_rank_with_the_file_of_another_rank_says_so(launcher: Launcher) -> None:
    launcher.parts.reverse()
    ranks = [launcher.start(rank, timeout=5.0) for rank in range(2)]
    for number, rank in enumerate(ranks):
        told = rank.hear("failed")
        assert f"the file is the part of rank {1 - number} of 2, but this process is rank {number}" in told["text"]
        assert rank.end() == 0


@pytest.mark.parametrize("which", ["another rank", "another slicing"])
def test_weights_of_another_slice_are_refused(launcher: Launcher, which: str) -> None:
    """The file with the weights is large, and copied apart from the one with the graph."""
    other = write(plan(litehouse.read(network(seed=5)), 2), launcher.folder / "others")
    source = launcher.parts[0] if which == "another rank" else str(other[1])
    Path(f"{launcher.parts[1]}.data").write_bytes(Path(f"{source}.data").read_bytes())
    ranks = [launcher.start(rank) for rank in range(2)]
    assert "does not hold the weights of this slice" in ranks[1].hear("failed")["text"]
    told = ranks[0].hear("failed")
    assert (told["kind"], told["rank"]) == ("RankError", 1)


def test_a_count_of_ranks_that_the_file_is_not_for_is_told_at_once(launcher: Launcher) -> None:
    told = launcher.start(0, size=3).hear("failed")
    assert (
        "part of rank 0 of 2, but this process is rank 0 of 3; start 2 processes, as with `mpirun -n 2`" in told["text"]
    )


def test_two_processes_of_one_rank(launcher: Launcher) -> None:
    first = launcher.start(0, timeout=PATIENCE)
    first.hear("started")
    deadline = time.monotonic() + PATIENCE
    name = "litehouse-rank"
    while name not in Path("/proc/net/unix").read_text() and time.monotonic() < deadline:
        time.sleep(0.05)
    again = launcher.start(0)
    assert "another process is rank 0 of this job already" in again.hear("failed")["text"]
    second = launcher.start(1)
    assert second.hear("ran")["results"] == [pytest.approx(expected(), rel=1e-4)]
    assert first.hear("ran")["results"] == [pytest.approx(expected(), rel=1e-4)]


def test_nothing_is_left_behind(launcher: Launcher) -> None:
    """The names of sockets are those of the job while it waits for its ranks, and gone with its processes."""
    job = litehouse.Job(rank=0, size=2, name=launcher.environment["LITEHOUSE_JOB"])
    name = memory._address(litehouse.find_place(job).job, 0)[1:]
    first = launcher.start(0, runs=None)
    deadline = time.monotonic() + PATIENCE
    while name not in Path("/proc/net/unix").read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert name in Path("/proc/net/unix").read_text()
    first.process.kill()
    first.process.wait(PATIENCE)
    assert name not in Path("/proc/net/unix").read_text()


@pytest.mark.skipif(has_torch, reason="torch is installed")
def test_several_machines_need_torch(launcher: Launcher) -> None:
    told = launcher.start(0, transport="gloo").hear("failed")
    assert "pip install torch" in told["text"]
