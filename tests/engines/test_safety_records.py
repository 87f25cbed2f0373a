"""Verdicts on engines that are kept, and failures that are rehearsed."""

import time
from pathlib import Path

import pytest
from engines.support import ALL, ILLEGAL, PASS, Trials

from litehouse import EngineError
from litehouse.engines import safety
from litehouse.engines.safety import Verdict, verdict, verdicts
from litehouse.engines.trials import children

pytestmark = pytest.mark.usefixtures("unknown")


def _again(trials: Trials) -> int:
    """How many trials another process starts."""
    before = len(trials.caps)
    safety.forget()
    verdict("openvino", "fp32")
    return len(trials.caps) - before


@pytest.mark.parametrize("code", [PASS, ILLEGAL, "print('none'); raise SystemExit(4)"])
def test_a_verdict_is_kept(trials: Trials, code: str) -> None:
    trials.program(code)
    first = verdict("openvino", "fp32")
    assert _again(trials) == 0
    assert verdict("openvino", "fp32") == first
    trials.program(PASS)
    verdicts([("openvino", "fp32")], again=True)
    assert len(trials.caps) == 2
    assert verdict("openvino", "fp32").safe
    assert _again(trials) == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("engine_version", lambda _: "openvino 2999.1"),
        ("cpu_fingerprint", lambda: "another"),
        ("__version__", "another"),
        ("_trial_identity", lambda: "another"),
    ],
)
def test_a_verdict_holds_for_what_was_tried(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    trials.program(PASS)
    verdict("openvino", "fp32")
    monkeypatch.setattr(safety, name, value)
    assert _again(trials) == 1
    assert _again(trials) == 0


def test_a_late_trial_is_repeated_after_a_day(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "LIMIT", 0.2)
    trials.program("import time; time.sleep(60)")
    assert not verdict("openvino", "fp32").safe
    safety.forget()
    trials.program(PASS)
    assert not verdict("openvino", "fp32").safe
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + safety.LATE_SECONDS + 1)
    monkeypatch.setattr(children, "LIMIT", 60.0)
    safety.forget()
    assert verdict("openvino", "fp32").safe


def test_what_says_nothing_is_not_kept(trials: Trials) -> None:
    trials.program("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    verdict("openvino", "fp32")
    assert _again(trials) == 1


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"value": "{}", "sum": ""}'])
def test_a_damaged_record_counts_for_nothing(trials: Trials, tmp_path: Path, text: str) -> None:
    trials.program(PASS)
    verdict("openvino", "fp32")
    (record,) = (tmp_path / "cache").rglob("*.json")
    record.write_text(text)
    assert _again(trials) == 1


@pytest.mark.parametrize(
    "value", [{}, {"safe": True}, {"safe": True, "reason": "", "environment": {"LD_PRELOAD": "x"}, "until": None}]
)
def test_a_strange_record_counts_for_nothing(trials: Trials, value: dict[str, object]) -> None:
    trials.program(PASS)
    store = safety.open_cache()
    assert store is not None
    store.put_record("safety", safety._key("openvino", "fp32"), value)
    assert _again(trials) == 1


@pytest.mark.parametrize("setting", ["file", "empty", "off"])
def test_without_a_cache(trials: Trials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, setting: str) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(tmp_path / "file") if setting == "file" else "")
    trials.program(PASS)
    cache = setting != "off"
    for _ in range(2):
        assert verdict("openvino", "fp32", cache=cache).safe
    assert len(trials.caps) == 1  # this process remembers
    assert _again(trials) == 1


def test_an_engine_that_is_not_installed(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "engine_version", lambda _: None)
    assert verdict("openvino", "fp32") == Verdict(
        "openvino", "fp32", False, "the engine is not installed; reinstall litehouse"
    )
    assert trials.caps == []


def test_a_precision_that_an_engine_does_not_have(trials: Trials) -> None:
    assert verdict("onnxruntime", "bf16").reason == "the engine does not compute in bf16"
    assert trials.caps == []


def test_versions_of_the_engines() -> None:
    import onnxruntime
    import openvino

    assert safety.engine_version("onnxruntime") == f"onnxruntime {onnxruntime.__version__}"
    version = safety.engine_version("openvino")
    assert version is not None
    assert openvino.__version__.startswith(version.removeprefix("openvino "))


# Rehearsals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "failing"),
    [
        ("", []),
        ("openvino:int8", [("openvino", "int8")]),
        ("onnxruntime:int8, openvino:bf16", [("onnxruntime", "int8"), ("openvino", "bf16")]),
        ("openvino", [pair for pair in ALL if pair[0] == "openvino"]),
        ("all", [pair for pair in ALL if pair[0] == "openvino"]),
        ("all,onnxruntime", ALL),
    ],
)
def test_rehearsed_failures(
    trials: Trials, monkeypatch: pytest.MonkeyPatch, text: str, failing: list[tuple[str, str]]
) -> None:
    trials.program(PASS)
    monkeypatch.setenv(safety.REHEARSAL, text)
    found = verdicts(ALL)
    assert [(item.engine, item.precision) for item in found if not item.safe] == failing
    assert {item.reason for item in found if not item.safe} <= {"rehearsed failure (LITEHOUSE_FAIL_PROBES)"}
    assert len(trials.caps) == len(ALL) - len(failing)
    monkeypatch.delenv(safety.REHEARSAL)
    assert all(item.safe for item in verdicts(ALL))
    assert len(trials.caps) == len(ALL)  # the rehearsal was kept nowhere


@pytest.mark.parametrize("text", ["tensorrt", "openvino:fp64", "all:int8"])
def test_a_rehearsal_of_what_does_not_exist(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(safety.REHEARSAL, text)
    with pytest.raises(EngineError, match=f"LITEHOUSE_FAIL_PROBES names '{text}'"):
        verdict("openvino", "fp32")
