"""`litehouse doctor` on machines of all kinds."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from cli.support import call, lines

from litehouse.cli import doctor
from litehouse.cores import budget
from litehouse.engines import safety
from litehouse.engines.safety import CAP, PRECISIONS, Verdict

DIES = "it dies of an illegal instruction (SIGILL)"
SAFE = [Verdict(engine, precision, True) for engine, precisions in PRECISIONS.items() for precision in precisions]


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("LITEHOUSE_FAIL_PROBES", "LITEHOUSE_CACHE_BYTES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    found(monkeypatch)


def found(monkeypatch: pytest.MonkeyPatch, *others: Verdict) -> list[Any]:
    """Let the trials find this, and all else safe; what is returned grows by one item each time they are asked for."""
    asked: list[Any] = []

    def verdicts(pairs: list[tuple[str, str]], *, again: bool) -> list[Verdict]:
        asked.append(again)
        known = {(item.engine, item.precision): item for item in (*SAFE, *others)}
        return [known[pair] for pair in pairs]

    monkeypatch.setattr(safety, "verdicts", verdicts)
    return asked


def row(result: Any, engine: str, precision: str) -> str:
    """The verdict on an engine, with single spaces."""
    (line,) = (words for words in lines(result) if words[:1] == [engine] and words[2:3] == [precision])
    return " ".join(line[3:])


def value(result: Any, name: str) -> str:
    (line,) = (words for words in lines(result) if words[:1] == [name])
    return " ".join(line[1:])


def test_a_sound_machine(tmp_path: Path) -> None:
    result = call("doctor")
    assert all(row(result, item.engine, item.precision) == "safe" for item in SAFE)
    assert value(result, "folder") == str(tmp_path / "cache")
    assert value(result, "state") == "in use"
    assert value(result, "size") == "0 bytes, 0 kept; 16.0 GB at most"
    assert "rehearsed" not in result.stdout


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """With real trials, kept in the cache."""
    monkeypatch.undo()
    monkeypatch.delenv("LITEHOUSE_FAIL_PROBES", raising=False)
    assert row(call("doctor"), "onnxruntime", "fp32") == "safe"


def test_what_is_not_safe_and_what_it_means(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "it did not end within 60 seconds"
    found(
        monkeypatch,
        Verdict("openvino", "fp32", False, DIES),
        Verdict("openvino", "int8", False, late),
        Verdict("openvino", "bf16", False, "the CPU has no bf16 arithmetic that OpenVINO uses"),
    )
    result = call("doctor")
    assert row(result, "openvino", "fp32") == f"not used {DIES}; no model runs on it"
    assert row(result, "openvino", "int8") == f"not used {late}; quantised models do not run on it"
    assert row(result, "openvino", "bf16").endswith("OpenVINO uses; models that allow 16 bits do not use it")


def test_a_safe_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, Verdict("openvino", "int8", True, DIES, {CAP: "AVX512_CORE"}))
    assert row(call("doctor"), "openvino", "int8") == f"safe with a setting {CAP}=AVX512_CORE; without it, {DIES}"


def test_a_machine_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = [Verdict(engine, "fp32", False, DIES) for engine in PRECISIONS]
    found(monkeypatch, *broken)
    result = call("doctor")
    assert result.exit_code == 1
    assert "No engine can run models on this machine; the table says why." in result.stdout
    assert call("doctor", "--json").exit_code == 1
    found(monkeypatch, broken[0])
    assert call("doctor").exit_code == 0


def test_an_engine_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "engine_version", lambda name: None if name == "openvino" else f"{name} 1.2")
    found(monkeypatch, Verdict("openvino", "fp32", False, "the engine is not installed; reinstall litehouse"))
    assert "openvino (not installed)" in call("doctor").stdout


def test_a_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("LITEHOUSE_FAIL_PROBES", "all")
    result = call("doctor")
    assert row(result, "onnxruntime", "int8") == "safe"
    reason = "not used rehearsed failure (LITEHOUSE_FAIL_PROBES); no model runs on it"
    assert row(result, "openvino", "fp32") == reason
    assert "Failures are rehearsed: LITEHOUSE_FAIL_PROBES=all" in result.stdout


def test_a_rehearsal_of_what_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("LITEHOUSE_FAIL_PROBES", "tensorrt")
    result = call("doctor")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: LITEHOUSE_FAIL_PROBES names 'tensorrt'; it takes all, or engines")


def test_trials_are_repeated_when_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = found(monkeypatch)
    call("doctor")
    call("doctor", "--again")
    assert asked == [False, True]


def test_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found(monkeypatch, Verdict("openvino", "int8", True, DIES, {CAP: "AVX2"}))
    report = json.loads(call("doctor", "--json").stdout)
    assert report["schema"] == 1
    assert report["usable"] is True
    assert report["rehearsed"] is None
    assert report["machine"]["threads"] == budget.thread_budget()
    engines = {(item.pop("engine"), item.pop("precision")): item for item in report["engines"]}
    assert engines["openvino", "int8"] == {
        "version": safety.engine_version("openvino"),
        "safe": True,
        "reason": DIES,
        "environment": {CAP: "AVX2"},
        "meaning": "",
    }
    assert report["cache"] == {
        "folder": str(tmp_path / "cache"),
        "trouble": None,
        "bytes": 0,
        "entries": 0,
        "limit": 16_000_000_000,
        "kernels": None,
    }


@pytest.mark.parametrize(
    ("cores", "allowed", "threads", "text"),
    [
        (8, 8, 8, "8 (all cores)"),
        (8, 2, 2, "2 (the CPU affinity of the process)"),
        (8, 8, 3, "3 (the CPU quota of the cgroup)"),
        (8, 4, 1, "1 (the CPU quota of the cgroup)"),
    ],
)
def test_where_the_threads_come_from(
    monkeypatch: pytest.MonkeyPatch, cores: int, allowed: int, threads: int, text: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(allowed)))
    monkeypatch.setattr(budget, "thread_budget", lambda: threads)
    result = call("doctor")
    assert value(result, "cores") == str(cores)
    assert value(result, "threads") == text


def test_caches_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    anew = "models are built anew at every start"
    file = tmp_path / "file"
    file.touch()
    for folder, state in (
        ("", f"it is turned off by an empty LITEHOUSE_CACHE_DIR; {anew}"),
        (str(file), f"{file} is not a folder; {anew}"),
        (str(file / "cache"), f"{file / 'cache'} cannot be used (Not a directory); {anew}"),
    ):
        monkeypatch.setenv("LITEHOUSE_CACHE_DIR", folder)
        result = call("doctor")
        assert value(result, "folder") == (folder or "none")
        assert value(result, "state") == state


def test_a_cache_that_can_only_be_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(doctor.tempfile, "TemporaryFile", refuse)
    expected = "nothing can be written there (Read-only file system); models that are not there yet are built anew"
    assert value(call("doctor"), "state") == f"{expected} at every start"


def test_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "2")
    assert value(call("doctor"), "gpu:1") == "made of the CPU's memory, as LITEHOUSE_REHEARSE_GPU asks for"
    monkeypatch.setattr("litehouse.device.about", lambda device: ("NVIDIA H200", 150_000_000_000))
    result = call("doctor")
    assert value(result, "gpu:0") == value(result, "gpu:1") == "NVIDIA H200, 150.0 GB"
    report = json.loads(call("doctor", "--json").stdout)
    assert report["gpus"][1] == {"device": "gpu:1", "name": "NVIDIA H200", "bytes": 150_000_000_000}
    assert report["no_gpu"] is None


def test_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITEHOUSE_REHEARSE_GPU", raising=False)
    monkeypatch.setattr("litehouse.device.device_count", lambda kind: 0)
    report = json.loads(call("doctor", "--json").stdout)
    assert report["gpus"] == []
    assert report["no_gpu"].startswith("torch")
    assert value(call("doctor"), "none") == report["no_gpu"]


def test_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: "2.9.0" if name == "torch" else None)
    result = call("doctor")
    assert value(result, "torch") == "2.9.0"
    absent = "not installed; it takes the place of onnxruntime for NVIDIA GPUs"
    assert value(result, "onnxruntime-gpu") == absent
