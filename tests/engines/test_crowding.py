"""Whether others took the cores that a measurement needed."""

import os
import time
from pathlib import Path

import pytest

from litehouse.engines.crowding import Crowding

TICKS = os.sysconf("SC_CLK_TCK")


class Machine:
    """A machine of some cores, of which each can be busy or idle for a while."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, file: Path, cores: int) -> None:
        self.file, self.busy, self.now, self.own = file, [0.0] * cores, 100.0, 3.0
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(time, "process_time", lambda: self.own)
        self._write()

    def work(self, seconds: float, own: float, others: float) -> None:
        """Let this process and others take so many cores for a while."""
        self.now += seconds
        self.own += own * seconds
        for core in range(len(self.busy)):
            self.busy[core] += (own + others) * seconds / len(self.busy)
        self._write()

    def _write(self) -> None:
        lines = ["cpu  1 2 3 4 5 6 7 8 9 10"]
        for core, seconds in enumerate(self.busy):
            ticks = int(seconds * TICKS)
            # A part of it was taken by the host, and the core has idled and waited for a disk, too.
            lines.append(f"cpu{core} {ticks - ticks // 4} 0 0 {10**6} {10**5} 0 0 {ticks // 4} 0 0")
        self.file.write_text("\n".join([*lines, "intr 1 2 3"]))


@pytest.mark.parametrize(
    ("cores", "threads", "others", "is_felt"),
    [
        (2, 2, 0.0, False),
        (2, 2, 0.1, False),
        (2, 2, 0.5, True),
        (2, 1, 0.9, False),
        (2, 1, 1.5, True),
        (8, 4, 3.5, False),
    ],
)
def test_crowding(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cores: int, threads: int, others: float, is_felt: bool
) -> None:
    machine = Machine(monkeypatch, tmp_path / "stat", cores)
    crowding = Crowding(threads, machine.file)
    machine.work(2.0, own=min(threads, cores - others), others=others)
    assert crowding.is_felt() is is_felt


def test_where_the_kernel_tells_nothing_nothing_is_felt(tmp_path: Path) -> None:
    assert Crowding(1, tmp_path / "none").is_felt() is False
    (tmp_path / "stat").write_text("cpu0 no numbers")
    assert Crowding(1, tmp_path / "stat").is_felt() is False


def test_the_kernel_of_this_machine_is_understood() -> None:
    assert Crowding(1)._begin is not None or not Path("/proc/stat").exists()
