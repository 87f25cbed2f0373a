"""What tells one machine from another."""

from pathlib import Path

import pytest

from litehouse import machine

INTEL = """processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 143
model name\t: Intel(R) Xeon(R) Platinum 8480C
stepping\t: 8
flags\t\t: fpu sse4_1 avx avx2 avx512f amx_tile
bogomips\t: 4000.00

processor\t: 1
model name\t: another
flags\t\t: fpu
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"


@pytest.fixture
def cpu_info(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in machine.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    path = tmp_path / "cpuinfo"
    monkeypatch.setattr(machine, "CPU_INFO", path)
    return path


def fingerprint() -> str:
    machine.cpu_fingerprint.cache_clear()
    machine.cpu_flags.cache_clear()
    return machine.cpu_fingerprint()


@pytest.fixture(autouse=True)
def forgotten() -> object:
    yield
    machine.cpu_fingerprint.cache_clear()
    machine.cpu_flags.cache_clear()


def test_name_and_flags_of_the_first_cpu(cpu_info: Path) -> None:
    cpu_info.write_text(INTEL)
    fingerprint()
    assert machine.cpu_name() == "Intel(R) Xeon(R) Platinum 8480C"
    assert machine.cpu_flags() == {"fpu", "sse4_1", "avx", "avx2", "avx512f", "amx_tile"}


def test_flags_of_another_architecture(cpu_info: Path) -> None:
    cpu_info.write_text(ARM)
    fingerprint()
    assert machine.cpu_flags() == {"fp", "asimd", "sve"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("Platinum", "Gold"), ("4000.00", "4001.00"), ("sse4_1 avx avx2", "avx2 avx sse4_1"), ("\n\nprocessor", "\n\np")],
)
def test_same_instructions(cpu_info: Path, old: str, new: str) -> None:
    cpu_info.write_text(INTEL)
    before = fingerprint()
    cpu_info.write_text(INTEL.replace(old, new))
    assert fingerprint() == before


@pytest.mark.parametrize(
    ("old", "new"),
    [("GenuineIntel", "Other"), (": 6", ": 7"), (": 143", ": 144"), (": 8", ": 9"), (" amx_tile", "")],
)
def test_other_instructions(cpu_info: Path, old: str, new: str) -> None:
    cpu_info.write_text(INTEL)
    before = fingerprint()
    cpu_info.write_text(INTEL.replace(old, new))
    assert fingerprint() != before


@pytest.mark.parametrize("name", machine.VARIABLES)
def test_variables_that_change_what_libraries_choose(
    cpu_info: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    before = fingerprint()
    monkeypatch.setenv(name, "SSE41")
    assert machine.cpu_fingerprint() == before  # once per process: libraries read them once, too
    assert fingerprint() != before


def test_without_a_description(cpu_info: Path) -> None:
    assert len(fingerprint()) == 64
    assert machine.cpu_flags() == frozenset()
    assert machine.cpu_name()
