"""The time that a build has for what only makes runs faster: which kernels are made, and what is kept of the choice."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.test_select import FakeEngine, _own_clock, _Program, clock  # noqa: F401  (the first is a fixture)

import litehouse
from litehouse import identity
from litehouse.cache import Cache
from litehouse.engines import build as build_module
from litehouse.engines import build_time, safety, select
from litehouse.engines.build_time import BuildTime
from litehouse.engines.onnxruntime import OnnxRuntimeEngine
from litehouse.engines.progress import Progress
from litehouse.engines.torch.engine import FIRST_SECONDS, TorchEngine
from litehouse.model import Model
from onnx_models import mlp

X = np.ones((2, 4), "f")


class FormEngine(FakeEngine):
    """An engine for a GPU, whose form "compiled" makes kernels in its first run and is faster then."""

    capabilities = frozenset[str]()

    def __init__(self, name: str, seconds: float, makes: float = 5.0) -> None:
        super().__init__(name, seconds)
        self.makes, self.expected, self.all_forms = makes, makes, ("compiled",)
        self.failure: str | None = None
        self.made: list[str] = []

    def available(self, options: litehouse.Options) -> str | None:
        return None

    def forms(self, model: Model, options: litehouse.Options, precision: str) -> tuple[str, ...]:
        return self.all_forms

    def making_seconds(self, model: Model, form: str) -> float:
        return self.expected if form.startswith("compiled") else 0.0

    def compile(self, model, options, shapes=None, precision="fp32", *, is_plain=False, parts=1, form=""):
        self.compiled.append(form)
        program = OnnxRuntimeEngine().compile(model, replace(options, device="cpu"), shapes)
        if not form.startswith("compiled"):
            return _Program(program, self.seconds, 1.0, is_rewritten=False)
        return _Made(program, self.seconds / 2, self, form)


class _Made(_Program):
    def __init__(self, program: Any, seconds: float, engine: FormEngine, form: str) -> None:
        super().__init__(program, seconds, 1.0, is_rewritten=False)
        self.engine, self.form = engine, form

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        if self.engine.failure:
            raise litehouse.EngineError(self.engine.failure)
        if self.form:
            self.engine.made.append(self.form)
            clock.now += self.engine.makes
            self.form = ""
        return super().run(inputs)


@pytest.fixture
def engine(rehearsed_gpu: None, monkeypatch: pytest.MonkeyPatch) -> FormEngine:
    """The only engine of a GPU; the clock of builds is that of its runs."""
    found = FormEngine("torch", 0.004)
    monkeypatch.setattr(select, "ENGINES", {"torch": found})
    monkeypatch.setitem(select.USUAL, "gpu", ("torch",))
    monkeypatch.setattr(build_time, "time", clock)
    monkeypatch.setattr(select, "time", clock)
    monkeypatch.setattr(clock, "time", lambda: 1e9, raising=False)
    return found


def _load(source: bytes | Path | None = None, **fields: Any) -> litehouse.Session:
    return litehouse.load(source or mlp(), **{"device": "gpu", "threads": 1, "tune": "fast", "cache": False, **fields})


def test_kernels_are_made_where_there_is_time(engine: FormEngine) -> None:
    session = _load()
    assert (session.engine, session.engine.form) == ("torch", "compiled")
    assert engine.made == ["compiled"]  # once, and not in the race
    assert "left out" not in session.engine.reason


@pytest.mark.parametrize(("seconds", "is_made"), [(0, False), (6.4, False), (6.6, True)])
def test_kernels_that_take_too_long_are_left_out(engine: FormEngine, seconds: float, is_made: bool) -> None:
    choice = _load(build_seconds=seconds).engine  # 5 for the kernels, and 1.5 for the race
    assert choice.form == ("compiled" if is_made else "")
    assert engine.compiled == (["", "compiled"] if is_made else [""])
    if not seconds:
        assert choice.reason == "nothing else was tried; torch, compiled was left out, as build_seconds is 0"
    elif not is_made:
        assert "torch, compiled was left out: its kernels and the timing take about 6 s" in choice.reason
        assert "6 s are left of build_seconds=6.4" in choice.reason


def test_the_first_kernels_tell_how_long_others_take(engine: FormEngine) -> None:
    engine.all_forms, engine.expected, engine.makes = ("compiled", "channels last", "compiled channels last"), 2.0, 30.0
    choice = _load(build_seconds=50).engine
    assert engine.compiled == ["", "compiled", "channels last"]
    assert [figure.form for figure in choice.figures] == ["", "compiled", "channels last"]
    assert "torch, compiled channels last was left out: its kernels and the timing take about 32 s" in choice.reason
    assert choice.form == "compiled"
    engine.compiled.clear()
    engine.expected, engine.makes = 20.0, 2.0  # there is more time than was thought
    _load(build_seconds=26)
    assert engine.compiled == ["", "compiled", "channels last", "compiled channels last"]


def test_the_race_is_inside_the_time(engine: FormEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    def race(runners: list[Any], samples: Any, seconds: float, *_: Any, **__: Any) -> list[list[float]]:
        given.append(seconds)
        return [[1.0] * 5 for _ in runners]

    monkeypatch.setattr(select, "race", race)
    _load()
    assert given.pop() == select.RACE_SECONDS["fast"]
    engine.expected, engine.makes = 1.0, 7.0  # it took longer than was thought
    _load(build_seconds=8)
    assert 0.9 < given.pop() <= 1.0
    engine.makes = 70.0
    _load(build_seconds=8)
    assert given.pop() == 0.0


def test_a_race_without_time_has_a_round(engine: FormEngine) -> None:
    engine.expected, engine.makes = 1.0, 70.0
    choice = _load(build_seconds=8).engine
    assert [figure.rounds for figure in choice.figures] == [1, 1]
    assert choice.form == "compiled"


def test_on_the_cpu_the_timing_alone_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    engines = {"onnxruntime": FakeEngine("onnxruntime", 0.004), "openvino": FakeEngine("openvino", 0.002)}
    monkeypatch.setattr(select, "ENGINES", engines)
    monkeypatch.setattr(safety, "refusal", lambda engine, precisions, cache=True: None)
    choice = _load(device="cpu", build_seconds=0).engine
    assert choice == "openvino"
    assert [figure.rounds for figure in choice.figures] == [1, 1]


def test_kernels_that_cannot_be_made_take_no_part_for_a_day(engine: FormEngine) -> None:
    engine.failure = "no compiler"
    choice = _load().engine
    assert choice.form == ""
    assert "torch, compiled took no part (no compiler)" in choice.reason
    assert choice.until is not None


def test_the_step_is_shown(engine: FormEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    class Told(Progress):
        def step(self, text: str, *, is_long: bool = False) -> None:
            steps.append(text)

    model = litehouse.read(mlp(), cache=False)
    select.select(model, litehouse.Options(device="gpu", tune="fast", cache=False), progress=Told())
    assert "making kernels for torch, compiled" in steps


def test_time_is_taken_from_when_the_model_could_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_time, "time", clock)
    budget = BuildTime(10)
    clock.now += 4
    assert 5.9 < budget.left < 6.1
    assert budget.admits("x", 5.0, 0.5)
    assert not budget.admits("x", 5.0, 1.5)
    budget.note(3.0)
    assert budget.admits("x", 5.0, 1.5)
    clock.now += 40
    assert budget.left == 0
    assert len(budget.left_out) == 1


def test_what_torch_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = pytest.importorskip("litehouse.engines.torch.compiled")
    engine, model = TorchEngine(), litehouse.read(mlp(), cache=False)
    monkeypatch.setattr(compiled, "_has_made", False)
    first = engine.making_seconds(model, "compiled channels last")
    assert first > FIRST_SECONDS
    monkeypatch.setattr(compiled, "_has_made", True)
    assert 0 < engine.making_seconds(model, "compiled") == pytest.approx(first - FIRST_SECONDS)
    assert engine.making_seconds(model, "") == engine.making_seconds(model, "channels last") == 0
    assert OnnxRuntimeEngine().making_seconds(model, "") == 0


# What is kept ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., litehouse.Session]]:
    """Loads a file as a new process would, with one cache."""
    monkeypatch.setattr(identity, "YOUNG_SECONDS", -1.0)
    monkeypatch.setattr(build_module, "KEEP_SECONDS", -1.0)
    path = tmp_path / "net.onnx"
    path.write_bytes(mlp())
    return lambda **fields: _load(path, **{"cache": tmp_path / "cache", **fields})


def test_a_second_start_builds_what_was_chosen_at_once(
    engine: FormEngine, start: Callable[..., litehouse.Session], tmp_path: Path
) -> None:
    first = start().engine
    engine.compiled.clear(), engine.made.clear()
    session = start()
    assert engine.compiled == engine.made == ["compiled"]  # before the first run
    assert session.engine.facts() == first.facts()
    assert "program" not in [entry.facts["what"] for entry in Cache(tmp_path / "cache").entries()]
    assert not list((tmp_path / "cache").rglob("unkept/*"))  # it was not tried


def test_another_gpu_is_another_choice(
    engine: FormEngine, start: Callable[..., litehouse.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    for fingerprint, built in (("a", 2), ("a", 1), ("b", 2), ("a", 1), ("b", 1)):
        monkeypatch.setattr(build_module, "device_fingerprint", lambda device, known=fingerprint: known)
        engine.compiled.clear()
        start()
        assert len(engine.compiled) == built
    for device in ("gpu:0", "gpu"):  # by whatever name
        engine.compiled.clear()
        start(device=device)
        assert engine.compiled == ["compiled"]


def test_another_time_is_another_choice(engine: FormEngine, start: Callable[..., litehouse.Session]) -> None:
    assert start().engine.form == "compiled"
    assert start(build_seconds=0).engine.form == ""
    assert start().engine.form == "compiled"


def test_nothing_is_kept_where_the_gpu_is_not_known(
    engine: FormEngine, start: Callable[..., litehouse.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "device_fingerprint", lambda device: None)
    for _ in range(2):
        engine.compiled.clear()
        start()
        assert engine.compiled == ["", "compiled"]


def test_kernels_that_can_no_longer_be_made_are_chosen_against(
    engine: FormEngine, start: Callable[..., litehouse.Session]
) -> None:
    assert start().engine.form == "compiled"
    engine.failure = "no compiler"
    choice = start().engine
    assert choice.form == ""
    assert "no compiler" in choice.reason
