"""Verdicts on engines that are kept, and failures that are rehearsed."""

import time
from importlib import metadata
from pathlib import Path

import pytest
from engines.support import ALL, ENDLESS, ILLEGAL, PASS, Trials, verdict

from litehouse import EngineError
from litehouse.engines import safety
from litehouse.engines.safety import Verdict, verdicts

pytestmark = pytest.mark.usefixtures("unknown")


def _again(trials: Trials) -> int:
    """How many trials another process starts."""
    before = len(trials.caps)
    safety._known.clear()
    verdict("openvino", "fp32")
    return len(trials.caps) - before


@pytest.mark.parametrize("code", [PASS, ILLEGAL, "print('absent none')"])
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


LASTING = {
    "an illegal instruction": ILLEGAL,
    "a memory fault": "import ctypes; ctypes.string_at(0)",
    "a bus error": "import os, signal; os.kill(os.getpid(), signal.SIGBUS)",
    "an arithmetic fault": "import os, signal; os.kill(os.getpid(), signal.SIGFPE)",
    "wrong numbers": "print('broken it computes wrong numbers')",
    "no such arithmetic": "print('absent none')",
    "success": PASS,
}
FOR_A_DAY = {
    "an abort": "import os; os.abort()",
    "an error": "raise RuntimeError('no such kernel')",
    "a strange exit": "raise SystemExit(9)",
    "no result": "pass",
    "success but in one case": "print('passed but it cannot run an LSTM')",
    "lateness": ENDLESS,
    "an illegal instruction, then an error under a setting": (
        f"if os.environ.get({safety.CAP!r}): raise RuntimeError('no room')\n{ILLEGAL}"
    ),
    "an error, then success under a setting": f"if not os.environ.get({safety.CAP!r}): raise SystemExit(9)\n{PASS}",
}
NOT_KEPT = {
    "an end from outside": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "too little memory": "raise MemoryError",
    "too few threads": "raise RuntimeError('Resource temporarily unavailable')",
    "a library that is missing": "raise ImportError('libengine.so')",
    "what its own trial calls unclear": "print('unclear')",
}
HOLDS = [
    *((code, "for ever") for code in LASTING.values()),
    *((code, "a day") for code in FOR_A_DAY.values()),
    *((code, "not at all") for code in NOT_KEPT.values()),
]


@pytest.mark.parametrize(("code", "expected"), HOLDS, ids=[*LASTING, *FOR_A_DAY, *NOT_KEPT])
def test_how_long_a_verdict_holds(trials: Trials, monkeypatch: pytest.MonkeyPatch, code: str, expected: str) -> None:
    if safety.CAP in code:
        monkeypatch.setattr(safety, "cpu_flags", lambda: frozenset({"avx"}))
    trials.program(code)
    verdict("openvino", "fp32")
    trials.program(PASS)
    later, now = {"for ever": 1e9, "a day": safety.LATE_SECONDS - 60, "not at all": 0.0}[expected], time.time()
    monkeypatch.setattr(time, "time", lambda: now + later)
    assert _again(trials) == (expected == "not at all")
    monkeypatch.setattr(time, "time", lambda: now + later + 120)
    assert _again(trials) == (expected == "a day")


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


def test_verdicts_are_looked_up_where_nothing_is_kept(trials: Trials, tmp_path: Path) -> None:
    trials.program(PASS)
    assert verdict("openvino", "fp32", cache=False).safe
    assert not (tmp_path / "cache").exists()
    safety._known.clear()
    verdict("openvino", "fp32")
    safety._known.clear()
    assert verdict("openvino", "fp32", cache=False).safe
    assert len(trials.caps) == 2


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


def test_a_copy_of_an_engine_without_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """So it is in frozen programs."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(metadata, "packages_distributions", dict)
    monkeypatch.setitem(safety.PACKAGES, "no_such_engine", ())
    find = safety.engine_version.__wrapped__
    assert find("no_such_engine") is None
    text = find("onnxruntime")
    assert text is not None
    assert text.startswith("onnxruntime (a copy")


def test_without_sources(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "TRIAL_FILES", ("no_such_file.py",))
    safety._trial_identity.cache_clear()
    try:
        trials.program(PASS)
        assert verdict("openvino", "fp32").safe
        assert _again(trials) == 0
        monkeypatch.setattr(safety, "__version__", "another")
        assert _again(trials) == 1
    finally:
        safety._trial_identity.cache_clear()


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
