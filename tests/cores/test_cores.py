"""The thread budget and the classes of cores, on made-up machines."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

from litehouse.cores.affinity import cores_for, keep_on, pinned, shares
from litehouse.cores.budget import spare_memory, thread_budget
from litehouse.errors import EngineError


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize(
    ("cpu_max", "threads"), [("max 100000", 8), ("250000 100000", 3), ("50000 100000", 1), ("junk", 8)]
)
def test_budget_of_cgroup_2(tmp_path: Path, cpu_max: str, threads: int) -> None:
    _write(tmp_path / "cpu.max", cpu_max)
    assert thread_budget(tmp_path, tmp_path / "own") == threads


@pytest.mark.parametrize(("quota", "threads"), [("-1", 8), ("400000", 4), ("50000", 1)])
def test_budget_of_cgroup_1(tmp_path: Path, quota: str, threads: int) -> None:
    _write(tmp_path / "cpu" / "cpu.cfs_quota_us", quota)
    _write(tmp_path / "cpu" / "cpu.cfs_period_us", "100000")
    assert thread_budget(tmp_path, tmp_path / "own") == threads


def test_budget_without_cgroup(tmp_path: Path) -> None:
    assert thread_budget(tmp_path, tmp_path / "own") == 8


def test_budget_of_a_nested_cgroup(tmp_path: Path) -> None:
    _write(tmp_path / "own", "0::/service/worker\n")
    _write(tmp_path / "service" / "worker" / "cpu.max", "600000 100000")
    assert thread_budget(tmp_path, tmp_path / "own") == 6
    _write(tmp_path / "service" / "cpu.max", "200000 100000")
    assert thread_budget(tmp_path, tmp_path / "own") == 2


def test_budget_of_a_nested_cgroup_1(tmp_path: Path) -> None:
    _write(tmp_path / "own", "4:memory:/service\n3:cpu,cpuacct:/service/worker\n0::/\n")
    for place, quota in (("cpu", "-1"), ("cpu/service", "200000"), ("cpu/service/worker", "600000")):
        _write(tmp_path / place / "cpu.cfs_quota_us", quota)
        _write(tmp_path / place / "cpu.cfs_period_us", "100000")
    assert thread_budget(tmp_path, tmp_path / "own") == 2


def test_budget_in_a_container_that_sees_its_own_cgroup_as_the_root(tmp_path: Path) -> None:
    _write(tmp_path / "own", "3:cpu,cpuacct:/docker/0123\n")
    _write(tmp_path / "cpu" / "cpu.cfs_quota_us", "300000")
    _write(tmp_path / "cpu" / "cpu.cfs_period_us", "100000")
    assert thread_budget(tmp_path, tmp_path / "own") == 3


@pytest.fixture
def three_classes(tmp_path: Path) -> Path:
    for core, capacity in enumerate([512, 512, 512, 512, 800, 800, 800, 1024]):
        _write(tmp_path / f"cpu{core}" / "cpu_capacity", str(capacity))
    return tmp_path


def test_classes_of_cores(three_classes: Path) -> None:
    assert cores_for("big", three_classes) == {7}
    assert cores_for("mid", three_classes) == {4, 5, 6}


def test_classes_by_frequency(tmp_path: Path) -> None:
    for core in range(8):
        _write(tmp_path / f"cpu{core}" / "cpufreq" / "cpuinfo_max_freq", "3000000" if core < 2 else "2000000")
    assert cores_for("big", tmp_path) == {0, 1}
    assert cores_for("mid", tmp_path) == {2, 3, 4, 5, 6, 7}


@pytest.mark.parametrize("affinity", ["big", "mid", (), tuple(range(8))])
def test_equal_cores_leave_nothing_to_bind(tmp_path: Path, affinity: tuple[int, ...] | str) -> None:
    assert cores_for(affinity, tmp_path) == frozenset()


def test_core_list() -> None:
    assert cores_for((2, 5)) == {2, 5}
    with pytest.raises(EngineError, match=r"cores \[8, 9\]"):
        cores_for((1, 8, 9))


def test_pinned_restores(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: calls.append(set(cores)))
    with pytest.raises(KeyError), pinned(frozenset({3})):
        raise KeyError
    assert calls == [{3}, set(range(8))]
    with pinned(frozenset()):
        pass
    assert len(calls) == 2


def test_spare_memory(tmp_path: Path) -> None:
    info, own = tmp_path / "meminfo", tmp_path / "own"
    info.write_text("MemTotal:  100 kB\nMemAvailable:  64 kB\n")
    own.write_text("5:memory:/a\n0::/b/c\n")
    assert spare_memory(info, tmp_path / "none", own) == 64 << 10
    inner = tmp_path / "cgroup" / "b" / "c"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner / "memory.current").write_text("1000\n")
    (inner.parent / "memory.max").write_text("5000\n")
    (inner.parent / "memory.current").write_text("2000\n")
    assert spare_memory(info, tmp_path / "cgroup", own) == 3000
    old = tmp_path / "cgroup" / "memory" / "a"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("2500\n")
    (old / "memory.usage_in_bytes").write_text("2501\n")
    assert spare_memory(info, tmp_path / "cgroup", own) == 0
    assert spare_memory(tmp_path / "no such file", tmp_path / "none", own) == 0
    assert spare_memory() > 1 << 20


FREED = """
from pathlib import Path
from litehouse.cores.budget import give_back_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

blocks = [bytes(100_000) for _ in range(2000)]
last = bytes(100_000)  # what lies behind it the C library does not give back by itself
del blocks
before = resident()
give_back_memory()
print((before - resident()) / 1e6)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="another C library")
def test_freed_memory_goes_back_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 100


def test_workers_have_equal_shares_of_the_cores_that_were_asked_for() -> None:
    assert shares((), 3) == [frozenset()] * 3
    assert shares((0, 1, 2, 3), 2) == [{0, 2}, {1, 3}]
    assert shares((4, 5, 6), 2) == [{4, 6}, {5}]
    assert shares((4, 5), 3) == [{4}, {5}, {4}]
    assert shares((7,), 2) == [{7}, {7}]
    assert shares(tuple(range(8)), 4) == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]  # all that there are


def test_a_worker_that_keeps_to_its_share_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda _, cores: moved.append(set(cores)))
    keep_on(frozenset())
    keep_on(frozenset({3}))
    assert moved == [{3}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3})
    with pinned(frozenset({2, 3})):
        assert moved == [{3}]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1, 3})
    with pinned(frozenset({2, 3})):
        assert moved == [{3}, {2, 3}]
    assert moved == [{3}, {2, 3}, {1, 3}]
