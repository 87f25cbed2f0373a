"""Which engine is chosen: by safety first, then by a race whose figures are kept."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import litehouse
import litehouse.engines.build
import litehouse.sharing  # both with the real engines: a first import while they are replaced would keep the others
from conftest import FIXTURES
from litehouse.cache import Cache
from litehouse.engines import race as race_module
from litehouse.engines import safety, select
from litehouse.engines.choice import Choice, Figure
from litehouse.engines.onnxruntime import OnnxRuntimeEngine
from litehouse.engines.progress import Progress
from litehouse.engines.race import lead, race
from litehouse.engines.safety import Verdict
from litehouse.engines.samples import agree
from onnx_models import mlp, mlp_result, model, node

X = np.ones((2, 4), "f")


class Clock:
    """A clock that only runs of a program, and looks at it, move: races do not depend on the machine."""

    def __init__(self) -> None:
        self.now = 100.0

    def perf_counter(self) -> float:
        self.now += 1e-6
        return self.now


clock = Clock()


@pytest.fixture(autouse=True)
def _own_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(race_module, "time", clock)


class _Program:
    def __init__(self, program: Any, seconds: float, factor: float, *, is_rewritten: bool) -> None:
        self.runner, self.seconds, self.factor = program.bind(), seconds, factor
        self.precision, self.is_rewritten = program.precision, is_rewritten

    def bind(self) -> "_Program":
        return self

    def save(self, folder: Path) -> None:
        raise litehouse.EngineError("nothing to save")

    def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
        clock.now += self.seconds
        return [array * np.float32(self.factor) for array in self.runner.run(inputs)]


class FakeEngine(OnnxRuntimeEngine):
    """ONNX Runtime under another name, slower, or wrong."""

    def __init__(self, name: str, seconds: float, *, factor: float = 1.0, lower: tuple[str, ...] = ()) -> None:
        self.name, self.seconds, self.factor, self.lower = name, seconds, factor, lower
        self.plain_seconds: float | None = None  # where passes rewrite the graph: what the plain one takes
        self.compiled: list[str] = []

    def lower_precisions(self) -> tuple[str, ...]:
        return self.lower

    def compile(self, model, options, shapes=None, precision="fp32", *, is_plain=False, parts=1, form=""):
        if parts > 1:
            raise litehouse.EngineError("not in parts")
        assert is_plain or precision == "fp32"  # the passes are for 32 bits
        self.compiled.append("fp32 plain" if is_plain and precision == "fp32" else precision)
        program = OnnxRuntimeEngine().compile(model, options, shapes)
        if precision != "fp32":
            program.precision = precision
            return _Program(program, self.seconds / 2, 1.01, is_rewritten=False)
        if is_plain:
            return _Program(program, self.plain_seconds, 1.0, is_rewritten=False)
        return _Program(program, self.seconds, self.factor, is_rewritten=self.plain_seconds is not None)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeEngine]:
    """Two engines, the second twice as fast; nothing is tried in a child process."""
    both = {"onnxruntime": FakeEngine("onnxruntime", 0.004), "openvino": FakeEngine("openvino", 0.002)}
    monkeypatch.setattr(select, "ENGINES", both)
    monkeypatch.setattr(safety, "refusal", lambda engine, precisions, cache=True: None)
    monkeypatch.setitem(select.RACE_SECONDS, "fast", 0.1)
    monkeypatch.setitem(select.RACE_SECONDS, "full", 0.1)
    monkeypatch.setattr(safety, "may_change", lambda engine, precisions, cache=True: False)
    monkeypatch.setattr(select.Crowding, "is_felt", lambda _: False)
    return both


def _load(**fields: Any) -> litehouse.Session:
    return litehouse.load(mlp(), threads=1, **{"tune": "fast", "cache": False, **fields})


def test_the_faster_one_wins_and_says_why(engines: dict[str, FakeEngine]) -> None:
    session = _load()
    assert session.engine == "openvino"
    assert [figure.engine for figure in session.engine.figures] == ["onnxruntime", "openvino"]
    assert session.engine.figures[1].lead > 1.3
    assert session.engine.figures[0].milliseconds > session.engine.figures[1].milliseconds > 1
    assert "onnxruntime" in session.engine.reason
    assert "x as fast" in session.engine.reason


def test_a_lead_below_the_margin_changes_nothing(
    engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select, "race", lambda runners, *_, **__: [[1.0] * 5, [0.98] * 5])
    session = _load()
    assert session.engine == "onnxruntime"
    assert "onnxruntime stays, with less than 3% between them" in session.engine.reason
    monkeypatch.setattr(select, "race", lambda runners, *_, **__: [[1.0] * 5, [0.97] * 5])
    assert _load().engine == "openvino"


def test_one_that_computes_something_else_takes_no_part(engines: dict[str, FakeEngine]) -> None:
    engines["openvino"].factor = 1.01
    session = _load()
    assert session.engine == "onnxruntime"
    assert "openvino computed other numbers" in session.engine.reason


def test_the_first_engine_is_held_right_even_where_only_the_other_has_a_plain_graph(
    engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = engines["openvino"]
    other.plain_seconds = 0.001
    compile_right = other.compile

    def compile_wrong(*arguments: Any, **settings: Any) -> _Program:
        program = compile_right(*arguments, **settings)
        program.factor = 1.5
        return program

    monkeypatch.setattr(other, "compile", compile_wrong)
    session = _load()
    assert session.engine == "onnxruntime"
    assert "openvino and openvino with the plain graph computed other numbers" in session.engine.reason


def test_a_graph_that_the_passes_made_slower_is_left_as_it_was(engines: dict[str, FakeEngine], tmp_path: Path) -> None:
    engines["onnxruntime"].plain_seconds = 0.001
    for _ in range(2):
        session = _load(cache=tmp_path)
        assert session.engine == "onnxruntime"
        assert session.engine.is_plain
        assert "onnxruntime with the plain graph" in session.engine.reason
    assert engines["onnxruntime"].compiled == ["fp32", "fp32 plain", "fp32 plain"]
    session.resize([[7, 4]])
    assert engines["onnxruntime"].compiled[-1] == "fp32 plain"


def test_a_graph_that_the_passes_spoilt_takes_no_part(engines: dict[str, FakeEngine]) -> None:
    engines["onnxruntime"].plain_seconds, engines["onnxruntime"].factor = 0.004, 1.01
    engines["openvino"].seconds = 0.008
    session = _load()
    assert (session.engine, session.engine.is_plain) == ("onnxruntime", True)
    assert "onnxruntime computed other numbers" in session.engine.reason


def test_without_room_nothing_else_is_built(engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch) -> None:
    engines["onnxruntime"].plain_seconds = 0.001
    monkeypatch.setattr(select, "spare_memory", lambda: 0)
    engine = _load().engine
    assert engine.reason.startswith("nothing else can run it; too little memory was left to try others")
    assert engine.until is not None
    assert engines["onnxruntime"].compiled == ["fp32"]
    assert engines["openvino"].compiled == []


def test_tuning_off_takes_the_first(engines: dict[str, FakeEngine]) -> None:
    session = _load(tune="off")
    assert session.engine == "onnxruntime"
    assert session.engine.figures == ()
    assert "tuning is off" in session.engine.reason
    assert engines["openvino"].compiled == []


def test_a_named_engine_is_not_raced(engines: dict[str, FakeEngine]) -> None:
    assert _load(engine="onnxruntime").engine == "onnxruntime"
    assert engines["openvino"].compiled == []


def test_tiny_models_are_not_raced_unless_all_are(engines: dict[str, FakeEngine]) -> None:
    engines["onnxruntime"].seconds = engines["openvino"].seconds = 20e-6
    session = _load()
    assert session.engine == "onnxruntime"
    assert "µs" in session.engine.reason
    assert engines["openvino"].compiled == []
    assert _load(tune="full").engine.figures


def test_recurrent_models_are_not_raced_unless_all_are(engines: dict[str, FakeEngine]) -> None:
    weights = {"w": np.ones((1, 8, 4), "f"), "r": np.ones((1, 8, 2), "f")}
    network = model([node("LSTM", "x w r", "y h c", hidden_size=2)], {"x": [3, 2, 4]}, {"y": [3, 1, 2, 2]}, weights)
    session = litehouse.load(network, threads=1, tune="fast", cache=False)
    assert session.engine == "onnxruntime"
    assert "recurrent (LSTM)" in session.engine.reason
    assert litehouse.load(network, threads=1, tune="full", cache=False).engine == "openvino"


def test_without_sizes_the_race_waits_for_a_resize(engines: dict[str, FakeEngine]) -> None:
    session = litehouse.load(mlp("batch"), threads=1, tune="fast", cache=False)
    assert session.engine == "onnxruntime"
    assert "nothing was timed" in session.engine.reason
    session.resize([[2, 4]])
    assert session.engine == "openvino"
    built = len(engines["openvino"].compiled)
    session.resize([[3, 4]])
    assert len(engines["openvino"].compiled) == built
    assert session.run([np.ones((3, 4), "f")])[0].shape == (3, 3)


def test_lower_precision_must_be_allowed_and_win(engines: dict[str, FakeEngine]) -> None:
    engines["openvino"].lower = ("bf16",)
    assert _load().precision == "fp32"
    assert "bf16" not in engines["openvino"].compiled
    session = _load(precision="fp16")
    assert (session.engine, session.precision) == ("openvino", "bf16")
    assert "openvino in bf16" in session.engine.reason
    assert _load(precision="fp16", tune="off").precision == "fp32"
    engines["onnxruntime"].seconds = 0.0005
    session = _load(precision="fp16")
    assert (session.engine, session.precision) == ("onnxruntime", "fp32")


def test_a_precision_that_is_not_safe_takes_no_part(
    engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    engines["openvino"].lower = ("bf16", "fp16")
    refused = {("openvino", "bf16")}
    monkeypatch.setattr(
        safety, "refusal", lambda engine, wanted, cache=True: "no" if refused & {(engine, w) for w in wanted} else None
    )
    assert _load(precision="fp16").precision == "fp16"
    assert engines["openvino"].compiled == ["fp32", "fp16"]


def test_an_engine_that_is_not_safe_is_never_loaded(
    engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    unsafe = Verdict("openvino", "fp32", False, "it dies of an illegal instruction (SIGILL)")
    monkeypatch.setattr(
        safety, "refusal", lambda engine, wanted, cache=True: unsafe.reason if engine == "openvino" else None
    )
    session = _load()
    assert session.engine == "onnxruntime"
    assert engines["openvino"].compiled == []
    with pytest.raises(litehouse.EngineError, match="openvino: it dies of an illegal instruction"):
        _load(engine="openvino")
    monkeypatch.setattr(safety, "refusal", lambda engine, wanted, cache=True: "it dies")
    with pytest.raises(litehouse.EngineError, match=r"onnxruntime: it dies\. openvino: it dies"):
        _load()


def test_the_verdict_is_kept(engines: dict[str, FakeEngine], tmp_path: Path) -> None:
    first = _load(cache=tmp_path)
    assert first.engine == "openvino"
    built = len(engines["onnxruntime"].compiled)
    second = _load(cache=tmp_path)
    assert second.engine == "openvino"
    assert second.engine.reason == first.engine.reason
    assert second.engine.figures == first.engine.figures
    assert len(engines["onnxruntime"].compiled) == built  # it was not even built
    assert len(list((Cache(tmp_path)._records / "choices").iterdir())) == 1


def test_a_noted_choice_that_cannot_be_built_is_chosen_anew(
    engines: dict[str, FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _load(cache=tmp_path).engine == "openvino"

    def fail(*_: Any, **__: Any) -> _Program:
        raise litehouse.EngineError("not today")

    monkeypatch.setattr(engines["openvino"], "compile", fail)
    assert _load(cache=tmp_path).engine == "onnxruntime"


def test_a_choice_made_on_a_busy_machine_holds_a_day(
    engines: dict[str, FakeEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(select.Crowding, "is_felt", lambda _: True)
    engine = _load(cache=tmp_path).engine
    assert engine.reason.endswith("; the machine was busy with other work: it is chosen anew after a day")
    assert engine.until is not None
    assert engine.until == pytest.approx(time.time() + 86400, abs=600)
    monkeypatch.setattr(select.Crowding, "is_felt", lambda _: False)
    engines["onnxruntime"].seconds = 0.0  # by now it is the faster one
    kept = _load(cache=tmp_path).engine
    assert (kept, kept.reason, kept.until) == (engine, engine.reason, engine.until)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86401)
    later = _load(cache=tmp_path).engine
    assert (later, later.until) == ("onnxruntime", None)


def test_a_choice_made_while_an_engine_could_not_be_tried_holds_a_day(
    engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        safety, "refusal", lambda engine, wanted, cache=True: "it took too long" if engine == "openvino" else None
    )
    engine = _load().engine
    assert (engine, engine.until) == ("onnxruntime", None)
    monkeypatch.setattr(safety, "may_change", lambda engine, precisions, cache=True: engine == "openvino")
    engine = _load().engine
    assert engine.until is not None
    assert "openvino was not used this time, since it took too long" in engine.reason


def test_after_few_rounds_only_a_clear_lead_counts(
    engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"rounds": 5}
    monkeypatch.setattr(select, "race", lambda *_, **__: [[1.07] * times["rounds"], [1.0] * times["rounds"]])
    assert _load().engine == "openvino"
    times["rounds"] = 2
    engine = _load().engine
    assert engine == "onnxruntime"
    assert "in 2 rounds: onnxruntime stays, with less than 10% between them" in engine.reason


def test_lower_precision_that_nobody_has_is_told(engines: dict[str, FakeEngine]) -> None:
    reason = _load(precision="fp16").engine.reason
    assert reason.endswith("; 16 bits were allowed, but no engine can compute in them here")
    engines["openvino"].lower = ("bf16",)
    assert "16 bits were allowed" not in _load(precision="fp16").engine.reason
    reason = _load(precision="fp16", op_precision={"any": "float32"}).engine.reason
    assert reason.endswith("; 16 bits were allowed, but not to all of its ops")


def test_after_a_resize_the_reason_names_the_sizes_that_were_timed(engines: dict[str, FakeEngine]) -> None:
    session = _load()
    first = session.engine
    session.resize([(3, 4)])
    assert session.engine == first
    assert session.engine.reason == f"it was chosen for x float32[2, 4]: {first.reason}"
    assert session.engine.figures == ()
    session.resize([(2, 4)])
    assert (session.engine.reason, session.engine.figures) == (first.reason, first.figures)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_lower_precision_that_won_is_kept_too(engines: dict[str, FakeEngine], tmp_path: Path, precision: str) -> None:
    engines["openvino"].lower = (precision,)
    for _ in range(2):
        session = _load(cache=tmp_path, precision="fp16")
        assert (session.engine, session.precision) == ("openvino", precision)
        assert session.loaded.built.program.precision == precision
    assert engines["onnxruntime"].compiled == ["fp32"]


def test_a_choice_is_the_engines_name_and_plain_data() -> None:
    choice = Choice("openvino", "fp32", "because", (Figure("openvino", "fp32", False, 1.5, 1.2, 7),))
    assert choice == "openvino"
    assert f"{choice}" == "openvino"
    again = Choice.of(choice.facts())
    assert (again, again.precision, again.reason, again.figures) == (choice, "fp32", "because", choice.figures)
    assert (again.until, Choice("openvino", "fp32", "", until=5.0).facts()["until"]) == (None, 5.0)


class _Timed:
    def __init__(self, seconds: float) -> None:
        self.seconds, self.calls = seconds, 0

    def run(self, inputs: Any) -> list[np.ndarray]:
        self.calls += 1
        clock.now += self.seconds
        return []


class _Shares(Progress):
    def __init__(self) -> None:
        self.shares: list[float] = []

    def share(self, share: float) -> None:
        self.shares.append(share)


def test_a_race_takes_turns_and_ends() -> None:
    progress = _Shares()
    times = race([_Timed(0.010), _Timed(0.0101)], [], 0.3, progress)
    assert len(times[0]) >= race_module.MIN_ROUNDS
    assert progress.shares[-1] == 1.0
    assert progress.shares == sorted(progress.shares)


def test_a_clear_race_ends_early() -> None:
    times = race([_Timed(0.010), _Timed(0.001)], [], 1000.0)
    assert len(times[0]) == race_module.MIN_ROUNDS


def test_a_thorough_race_takes_its_time() -> None:
    times = race([_Timed(0.010), _Timed(0.001)], [], 0.5, is_thorough=True)
    assert len(times[0]) == len(times[1]) > race_module.MIN_ROUNDS


def test_who_trails_in_every_round_gives_up_and_the_first_never_does() -> None:
    slow, first = _Timed(0.030), _Timed(0.020)
    times = race([first, slow, _Timed(0.001)], [], 1000.0)
    assert [len(own) for own in times] == [race_module.MIN_ROUNDS, race_module.TRAILING_ROUNDS, race_module.MIN_ROUNDS]
    assert lead(times[1], times[0]) < 1 < lead(times[2], times[0])


def test_a_long_first_run_is_not_repeated_before_the_race() -> None:
    runner = _Timed(race_module.LONG_SECONDS * 1.2)
    assert race_module.brief(runner, []) >= race_module.LONG_SECONDS
    assert runner.calls == 1
    times = race([runner], [], 0.01)
    assert runner.calls == 2 + len(times[0])


def test_a_lead_is_taken_from_the_median_and_from_the_best_round() -> None:
    assert lead([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == 2.0
    assert lead([1.0, 1.0, 1.0], [1.0, 9.0, 9.0]) == 3.0  # the reference was disturbed twice
    assert lead([1.0, 9.0, 9.0], [2.0, 2.0, 2.0]) == pytest.approx(2 / 3)


def test_agreement() -> None:
    a = np.array([1.0, 1000.0], "f")
    assert agree([a], [a + np.float32(0.5)])
    assert not agree([a], [a + np.float32(2)])
    assert not agree([a], [np.array([np.nan, 1000.0], "f")])
    assert agree([np.array([np.nan, 1.0], "f")], [np.array([np.nan, 1.0], "f")])
    assert not agree([np.array([1, 2])], [np.array([1, 3])])
    assert not agree([a], [a.reshape(2, 1)])
    assert agree([np.zeros((0, 3), "f")], [np.zeros((0, 3), "f")])
    assert agree([a], [a + np.float32(20)], "fp16")
    assert not agree([a], [a + np.float32(60)], "fp16")


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_agreement_of_whole_numbers_in_16_bits(precision: str) -> None:
    """As the class of each pixel, of which some are nearly as likely as others."""
    classes = np.arange(100)
    assert agree([classes], [np.maximum(classes, 4)], precision)
    assert not agree([classes], [np.maximum(classes, 8)], precision)
    assert not agree([classes], [np.maximum(classes, 1)], "fp32")
    assert not agree([np.array(3)], [np.array(4)], precision)
    assert agree([classes[:0]], [classes[:0]], precision)


# Forms ----------------------------------------------------------------------------------------------------------------


class FormedEngine(FakeEngine):
    """One that can build a model in several forms, each as fast as told."""

    def __init__(self, name: str, seconds: float, **forms: float) -> None:
        super().__init__(name, seconds)
        self.forms_seconds, self.wrong = forms, ""

    def forms(self, model: Any, options: Any, precision: str) -> tuple[str, ...]:
        return tuple(self.forms_seconds)

    def compile(self, model, options, shapes=None, precision="fp32", *, is_plain=False, parts=1, form=""):
        if parts > 1:
            raise litehouse.EngineError("not in parts")
        if form == "broken":
            raise litehouse.EngineError("no compiler")
        self.compiled.append(form)
        program = OnnxRuntimeEngine().compile(model, options, shapes)
        seconds = self.forms_seconds.get(form, self.seconds)
        return _Program(program, seconds, 1.5 if form and form == self.wrong else 1.0, is_rewritten=False)


@pytest.fixture
def formed(engines: dict[str, FakeEngine], monkeypatch: pytest.MonkeyPatch) -> FormedEngine:
    """The first engine, with one form that is slower and one that is faster."""
    engines["onnxruntime"] = formed = FormedEngine("onnxruntime", 0.004, wide=0.008, tight=0.001)
    monkeypatch.setattr("litehouse.engines.build.ENGINES", engines)
    return formed


def test_forms_are_raced(formed: FormedEngine) -> None:
    session = _load()
    assert (session.engine, session.engine.form) == ("onnxruntime", "tight")
    assert [(each.engine, each.form) for each in session.engine.figures] == [
        *(("onnxruntime", ""), ("onnxruntime", "wide"), ("onnxruntime", "tight"), ("openvino", "")),
    ]
    assert "onnxruntime, tight 4.00x as fast" in session.engine.reason
    assert session.run([X])[0].shape == (2, 3)


def test_the_usual_form_wins_too(formed: FormedEngine, engines: dict[str, FakeEngine]) -> None:
    formed.forms_seconds = {"wide": 0.008}
    engines["openvino"].seconds = 0.008
    session = _load()
    assert (session.engine, session.engine.form) == ("onnxruntime", "")


def test_a_form_that_computes_other_numbers_takes_no_part(formed: FormedEngine) -> None:
    formed.wrong = "tight"
    session = _load()
    assert (session.engine, session.engine.form) == ("openvino", "")
    assert "onnxruntime, tight computed other numbers and took no part" in session.engine.reason


def test_a_form_that_cannot_be_built_takes_no_part(formed: FormedEngine) -> None:
    formed.forms_seconds = {"broken": 0.0001, "tight": 0.001}
    session = _load()
    assert session.engine.form == "tight"
    assert "broken" not in session.engine.reason


def test_without_a_race_the_form_is_the_usual_one(formed: FormedEngine) -> None:
    assert _load(tune="off").engine.form == ""
    assert formed.compiled == [""]


def test_the_form_is_kept_and_used_again(formed: FormedEngine, tmp_path: Path) -> None:
    first = _load(cache=tmp_path).engine
    assert Choice.of(first.facts()).form == first.facts()["form"] == "tight"
    assert [figure.form for figure in Choice.of(first.facts()).figures] == ["", "wide", "tight", ""]
    formed.compiled.clear()
    second = _load(cache=tmp_path)
    assert (second.engine.form, second.engine.reason) == ("tight", first.reason)
    assert formed.compiled == ["tight"]  # no other was built
    second.resize([[7, 4]])
    assert second.run([np.ones((7, 4), "f")])[0].shape == (7, 3)
    assert formed.compiled == ["tight", "tight"]
    assert second.engine.form == "tight"


def test_a_model_with_other_weights_is_built_in_the_same_form(formed: FormedEngine) -> None:
    session = _load(updatable=["w2"], updatable_mode="swap")
    assert session.engine.form == "tight"
    formed.compiled.clear()
    session.update_weights({"w2": np.zeros((300, 3), "f")})
    assert formed.compiled == ["tight"]
    assert not session.run([X])[0].any()


# 16 bits on a GPU -----------------------------------------------------------------------------------------------------


class GpuEngine(FakeEngine):
    """One of a GPU, where 16 bits are the usual case."""

    def __init__(self, name: str, factor: float = 1.0001, lower: tuple[str, ...] = ("fp16",)) -> None:
        super().__init__(name, 0.004, factor=factor, lower=lower)
        self.fails = False

    def available(self, options: Any) -> str | None:
        return None

    def forms(self, model: Any, options: Any, precision: str) -> tuple[str, ...]:
        return ()

    def compile(self, model, options, shapes=None, precision="fp32", *, is_plain=False, parts=1, form=""):
        self.compiled.append(precision)
        if self.fails and precision == "fp16":
            raise litehouse.EngineError("not in 16 bits")
        program = OnnxRuntimeEngine().compile(model, litehouse.Options(threads=1), shapes)
        program.precision = precision
        return _Program(program, 0.001, self.factor if precision == "fp16" else 1.0, is_rewritten=False)


@pytest.fixture
def gpu_engine(engines: dict[str, FakeEngine]) -> GpuEngine:
    engines["torch"] = found = GpuEngine("torch")
    engines["onnxruntime"] = GpuEngine("onnxruntime")
    return found


def _load_on_gpu(**fields: Any) -> litehouse.Session:
    return litehouse.load(mlp(), **{"device": "gpu", "precision": "fp16", "tune": "off", "cache": False, **fields})


def test_16_bits_are_taken_without_a_race(gpu_engine: GpuEngine, engines: dict[str, FakeEngine]) -> None:
    session = _load_on_gpu()
    assert (session.engine, session.precision) == ("torch", "fp16")
    assert session.engine.reason == "16 bits were allowed, and tuning is off"
    assert gpu_engine.compiled == ["fp32", "fp16"]
    assert engines["onnxruntime"].compiled == []


RECURRENT = FIXTURES / "converted" / "lstm.mindir"
OPEN_LOOP = FIXTURES / "flow" / "while_dynamic.mindir"
UNKNOWN_SIZES = "its sizes are only known when it runs, so nothing was timed"


def test_a_recurrent_network_takes_16_bits_for_a_reason_of_its_own(gpu_engine: GpuEngine) -> None:
    fields: dict[str, Any] = {"device": "gpu", "precision": "fp16", "cache": False}
    session = litehouse.load(RECURRENT, tune="fast", **fields)
    why = "the network is recurrent (LSTM), and only tune='full' times such"
    assert (session.precision, session.engine.reason) == ("fp16", f"16 bits were allowed, and {why}")
    gpu_engine.factor = 1.5
    assert litehouse.load(RECURRENT, tune="fast", **fields).precision == "fp32"


@pytest.mark.parametrize("tune", ["fast", "full"])
def test_without_known_sizes_16_bits_wait_for_them(gpu_engine: GpuEngine, tune: str) -> None:
    sizes = {"x": ["n", 1, 2]}
    weights = {"w": np.ones((1, 12, 2), "f"), "r": np.ones((1, 12, 3), "f")}
    data = model([node("LSTM", "x w r", "y", hidden_size=3)], sizes, {"y": None}, weights)
    fields: dict[str, Any] = {"device": "gpu", "precision": "fp16", "cache": False}
    session = litehouse.load(data, tune=tune, **fields)
    assert (session.precision, session.engine.reason) == ("fp32", UNKNOWN_SIZES)
    session.resize([(3, 1, 2)])
    assert (session.precision == "fp16") or tune == "full"
    assert litehouse.load(data, tune="off", **fields).precision == "fp16"


@pytest.mark.parametrize("tune", ["fast", "full"])
def test_loops_take_16_bits_only_where_nothing_is_tried(gpu_engine: GpuEngine, tune: str) -> None:
    fields: dict[str, Any] = {"device": "gpu", "precision": "fp16", "cache": False}
    session = litehouse.load(OPEN_LOOP, tune=tune, **fields)
    assert (session.precision, session.engine.reason) == ("fp32", UNKNOWN_SIZES)
    session.resize([(3, 5)])
    why = "it has a loop, which may never end on made-up inputs, so nothing was timed"
    assert (session.precision, session.engine.reason) == ("fp32", why)
    assert litehouse.load(OPEN_LOOP, tune="off", **fields).precision == "fp16"


def test_16_bits_that_compute_other_numbers_are_refused(gpu_engine: GpuEngine) -> None:
    gpu_engine.factor = 1.5
    session = _load_on_gpu()
    assert (session.engine, session.precision) == ("torch", "fp32")
    assert session.engine.reason == "in 16 bits it computes other numbers"
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("f")
    np.testing.assert_allclose(session.run([x])[0], mlp_result(x), rtol=1e-4, atol=1e-4)


def test_16_bits_that_give_no_numbers_are_refused(gpu_engine: GpuEngine) -> None:
    gpu_engine.factor = float("nan")
    assert _load_on_gpu().precision == "fp32"


def test_16_bits_must_be_allowed(gpu_engine: GpuEngine) -> None:
    assert _load_on_gpu(precision="fp32").precision == "fp32"
    session = _load_on_gpu(op_precision={"some op": "float32"})
    assert session.precision == "fp32"
    assert "16 bits were allowed, but not to all of its ops" in session.engine.reason
    assert gpu_engine.compiled == ["fp32", "fp32"]


def test_an_engine_without_16_bits(gpu_engine: GpuEngine) -> None:
    gpu_engine.lower = ()
    session = _load_on_gpu(engine="torch")
    assert session.precision == "fp32"
    assert "no engine can compute in them here" in session.engine.reason


def test_16_bits_that_cannot_be_built(gpu_engine: GpuEngine) -> None:
    """The network runs in 32 bits then; nobody is turned away."""
    gpu_engine.fails = True
    session = _load_on_gpu()
    assert (session.engine, session.precision) == ("torch", "fp32")
    assert session.engine.reason == "16 bits were allowed, but it cannot be built in them: not in 16 bits"
    assert session.run([X])[0].shape == (2, 3)


def test_16_bits_are_of_the_engine_that_serves(gpu_engine: GpuEngine, engines: dict[str, FakeEngine]) -> None:
    """Another engine in 16 bits was not compared with anything it has computed itself."""
    gpu_engine.lower = ()
    session = _load_on_gpu()
    assert (session.engine, session.precision) == ("torch", "fp32")
    assert engines["onnxruntime"].compiled == []


def test_sizes_that_are_open_are_not_compared(gpu_engine: GpuEngine) -> None:
    session = litehouse.load(mlp("n"), device="gpu", precision="fp16", tune="off", cache=False)
    assert session.precision == "fp16"
    assert session.run([X])[0].shape == (2, 3)


def test_a_gpu_with_little_memory_left(gpu_engine: GpuEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "free_memory", lambda device: 0 if device == "gpu:1" else None)
    session = _load_on_gpu(tune="fast", device="gpu:1")
    assert gpu_engine.compiled == ["fp32"]
    assert "too little memory was left to try others" in session.engine.reason


def test_engines_do_not_race_on_a_gpu(gpu_engine: GpuEngine, engines: dict[str, FakeEngine]) -> None:
    """Torch takes tensors of other libraries there, and ONNX Runtime does not."""
    session = _load_on_gpu(tune="full", precision="fp32")
    assert (session.engine, session.engine.reason) == ("torch", "nothing else was tried")
    assert engines["onnxruntime"].compiled == []
    session = _load_on_gpu(tune="full")
    assert [figure.engine for figure in session.engine.figures] == ["torch", "torch"]


def test_what_is_not_raced_on_a_gpu(gpu_engine: GpuEngine) -> None:
    """What is known of engines of the CPU is not said of others."""
    weights = {"w": np.ones((1, 8, 4), "f"), "r": np.ones((1, 8, 2), "f")}
    network = model([node("LSTM", "x w r", "y h c", hidden_size=2)], {"x": [3, 2, 4]}, {"y": [3, 1, 2, 2]}, weights)
    session = litehouse.load(network, device="gpu", tune="fast", cache=False)
    assert session.engine.reason == "the network is recurrent (LSTM), and only tune='full' times such"


@pytest.mark.parametrize("is_kept", [False, True])
def test_what_was_only_tried_leaves_no_memory(
    gpu_engine: GpuEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_kept: bool
) -> None:
    given: list[str] = []
    monkeypatch.setattr("litehouse.engines.build.give_back", given.append)
    monkeypatch.setattr("litehouse.engines.build.device_fingerprint", lambda device: "one")
    _load_on_gpu(tune="fast", device="gpu:1", cache=tmp_path if is_kept else False)
    assert given == ["gpu:1"]
    litehouse.load(mlp(), cache=False)
    assert given == ["gpu:1"]


def test_a_race_that_fails_leaves_the_first(gpu_engine: GpuEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise litehouse.EngineError("the GPU has not enough memory")

    monkeypatch.setattr(select, "race", fail)
    session = _load_on_gpu(tune="fast", engine="torch")
    assert (session.engine, session.precision, session.engine.figures) == ("torch", "fp32", ())
    assert session.engine.reason.startswith("torch stays, as nothing could be timed (the GPU has not enough memory)")


def test_a_named_engine_is_timed_on_a_gpu_when_sizes_are_known(gpu_engine: GpuEngine) -> None:
    """Torch has several forms there."""
    session = litehouse.load(mlp("n"), device="gpu", engine="torch", tune="full", cache=False)
    gpu_engine.forms = lambda *_: ("other",)
    session.resize([(2, 4)])
    assert [figure.form for figure in session.engine.figures] == ["", "other"]


def test_a_race_on_a_gpu_tells_too(gpu_engine: GpuEngine) -> None:
    gpu_engine.factor = 1.5
    session = _load_on_gpu(tune="fast", engine="torch")
    assert session.precision == "fp32"
    assert "torch in fp16 computed other numbers" in session.engine.reason
