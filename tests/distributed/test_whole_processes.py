"""Ranks that are processes and run one torch program each, over gloo: what the others learn when one dies or hangs."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from facades.mindspore_lite.test_published_distributed import (
    EXAMPLE,
    LAUNCHERS,
    check,
    end,
    launch,
    program,
    published,
    run,
    start,
)

import litehouse
from distributed.jobs import free_port
from distributed.rank_processes import expected, network
from distributed.test_processes import Launcher
from litehouse.distributed.slicing import plan, write

pytest.importorskip("torch")

KILLS = 6
HANG_SECONDS = 6.0


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    made = Launcher(tmp_path)
    made.more = {"options": {"engine": "torch"}}
    yield made
    for rank in made.started:
        rank.close()


@pytest.mark.parametrize("transport", ["memory", "gloo"])
def test_two_processes_compute_what_one_would(launcher: Launcher, transport: str) -> None:
    settings = {"transport": transport, "port": free_port()}
    ranks = [launcher.start(rank, runs=5, times=2, **settings) for rank in range(2)]
    for rank in ranks:
        for _ in range(2):
            assert rank.hear("ran")["results"] == [pytest.approx(expected(), rel=1e-4)]
            rank.hear("done")
        rank.hear("usable")
        assert rank.end() == 0


def test_a_rank_alone_needs_no_other(launcher: Launcher, tmp_path: Path) -> None:
    launcher.parts = [str(path) for path in write(plan(litehouse.read(launcher.whole), 1), tmp_path / "one")]
    rank = launcher.start(0, runs=4, size=1)
    assert rank.hear("ran")["results"] == [pytest.approx(expected(), rel=1e-4)]
    assert rank.end() == 0


def test_a_rank_that_is_killed_is_named_at_once_whenever_it_happens(launcher: Launcher) -> None:
    """Rank 0 lives on, and takes part in one job after the other; rank 1 is a new process each time."""
    moments = random.Random(8)
    first = launcher.start(0, runs=None, times=KILLS)
    for number in range(KILLS):
        victim = launcher.start(1, runs=None)
        victim.hear("loaded" if number % 3 == 0 else "ran")
        time.sleep(moments.uniform(0, 0.05))
        begin = time.monotonic()
        victim.process.kill()
        told = first.hear("failed")
        assert (told["kind"], told["rank"]) == ("RankError", 1), told
        assert "rank 1 died" in told["text"]
        assert time.monotonic() - begin < 10
        victim.close()
    first.hear("usable")
    assert first.end() == 0


def test_a_rank_that_hangs_is_named_after_the_timeout(launcher: Launcher) -> None:
    stuck = launcher.start(1, runs=None, later=HANG_SECONDS)
    first = launcher.start(0, runs=None, later=HANG_SECONDS)
    stuck.hear("ran")
    first.hear("ran")
    time.sleep(0.5)
    stuck.process.send_signal(signal.SIGSTOP)
    told = first.hear("failed")
    assert (told["kind"], told["rank"]) == ("RankError", 1)
    assert f"rank 1 did not answer within {HANG_SECONDS:g} s" in told["text"]
    first.hear("usable")
    assert first.end() == 0
    stuck.process.send_signal(signal.SIGCONT)
    assert stuck.hear("failed")["kind"] == "RankError"
    stuck.hear("usable")
    assert stuck.end() == 0


def test_a_rank_that_never_comes_is_missed(launcher: Launcher) -> None:
    first = launcher.start(0, timeout=1.0)
    told = first.hear("failed")
    assert (told["kind"], told["rank"]) == ("RankError", 1)
    assert "rank 1 of 2 did not begin within 1 s" in told["text"]
    first.hear("usable")
    assert first.end() == 0


def test_wrong_files_are_told_when_they_are_loaded(launcher: Launcher) -> None:
    launcher.parts[1] = str(write(plan(litehouse.read(network(seed=5)), 2), launcher.folder / "others")[1])
    for rank in [launcher.start(rank) for rank in range(2)]:
        assert "not of the same job" in rank.hear("failed")["text"]
        rank.hear("usable")
        assert rank.end() == 0


def test_a_wrong_count_of_ranks(launcher: Launcher) -> None:
    told = launcher.start(0, size=3).hear("failed")
    assert "part of rank 0 of 2, but this process is rank 0 of 3; start 2 processes" in told["text"]


def test_a_process_group_of_the_program_stays_its_own(tmp_path: Path) -> None:
    """A program of two ranks that uses torch.distributed itself, and Litehouse between."""
    parts = write(plan(litehouse.read(network()), 2), tmp_path / "parts")
    path = tmp_path / "main.py"
    path.write_text(
        f"""
import torch, torch.distributed as dist, numpy as np, litehouse
dist.init_process_group("gloo")
session = litehouse.load({str(tmp_path / "parts")!r} + f"/rank_{{dist.get_rank()}}.onnx", engine="torch")
for _ in range(3):
    (y,) = session.run([np.ones((2, 64), "f")])
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == 2
print(float(y.sum(dtype=np.float64)), flush=True)
dist.destroy_process_group()
"""
    )
    assert len(parts) == 2
    printed = run([*launch("torchrun"), path])
    assert [float(line) for line in printed.split()] == [pytest.approx(expected(), rel=1e-4)] * 2


@published
@pytest.mark.parametrize("launcher_name", LAUNCHERS)
def test_the_published_program_for_gpus(tmp_path: Path, launcher_name: str) -> None:
    """As it is, with two GPUs that are made of the CPU's memory."""
    path = tmp_path / "main.py"
    path.write_text(program("gpu").replace('["cpu"]', '["gpu"]'), encoding="utf-8")
    assert 'provider = "tensorrt"' in path.read_text()
    command = [*launch(launcher_name), path, f"--model_path={EXAMPLE / 'Matmul.mindir'}"]
    check(run(command, LITEHOUSE_REHEARSE_GPU="2"), 2)


def test_the_example_for_gpus() -> None:
    command = [*launch("mpirun"), EXAMPLE / "main.py", f"--model_path={EXAMPLE / 'Matmul.mindir'}", "--target=gpu"]
    check(run(command, LITEHOUSE_REHEARSE_GPU="2"), 2)


def test_a_rank_without_a_gpu_of_its_own_says_so() -> None:
    command = [*launch("mpirun"), EXAMPLE / "main.py", f"--model_path={EXAMPLE / 'Matmul.mindir'}", "--target=gpu"]
    code, _, errors = end(start(command, LITEHOUSE_REHEARSE_GPU="1"))
    assert code != 0
    assert "there is no GPU 1: torch finds 1" in errors


def test_slices_run_from_the_command_line(launcher: Launcher) -> None:
    command = [sys.executable, "-m", "litehouse", "run", str(launcher.whole), "--ranks", "2", "--zeros"]
    assert "torch" in run([*command, "--engine", "torch"])
