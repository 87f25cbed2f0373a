"""Verdicts on engines: trials that die, are late or compute wrong numbers, and safe settings."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from engines.support import ALL, ILLEGAL, PASS, Trials
from onnx import TensorProto, helper

from litehouse import formats
from litehouse.engines import safety
from litehouse.engines.safety import CAP, Verdict, verdict, verdicts
from litehouse.engines.trials import children
from litehouse.engines.trials.cases import float_cases, int8_cases

pytestmark = pytest.mark.usefixtures("unknown")
AMX = frozenset({"avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile"})


# Trials ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "precision"), ALL)
def test_real_trials(name: str, precision: str) -> None:
    (outcome,) = children.run_trials([(name, precision, os.environ)])
    assert outcome.kind in ("passed", "absent"), outcome.words
    assert precision not in ("fp32", "int8") or outcome.kind == "passed"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (ILLEGAL, "it dies of an illegal instruction (SIGILL)"),
        ("import ctypes; ctypes.string_at(0)", "it dies of a memory fault (SIGSEGV)"),
        ("import os; os.abort()", "it aborts (SIGABRT)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it was ended from outside (SIGKILL)"),
        ("import time; print('passed', flush=True); time.sleep(60)", "it did not end within 1.5 seconds"),
        ("print('a sum is off by 7'); raise SystemExit(3)", "it computes wrong numbers: a sum is off by 7"),
        ("print('no such numbers'); raise SystemExit(4)", "no such numbers"),
        ("raise RuntimeError('no room')", "it ends with an error (RuntimeError: no room)"),
        ("raise SystemExit(9)", "it ends with an error (exit status 9)"),
        ("import no_such_engine", "it cannot be imported (ModuleNotFoundError: No module named 'no_such_engine')"),
        ("pass", "it ends without a result"),
    ],
)
def test_how_a_trial_ends(trials: Trials, monkeypatch: pytest.MonkeyPatch, code: str, reason: str) -> None:
    monkeypatch.setattr(children, "LIMIT", 1.5)
    trials.program(code)
    assert verdict("openvino", "fp32") == Verdict("openvino", "fp32", False, reason)


def test_a_trial_that_passes(trials: Trials) -> None:
    trials.program(PASS)
    assert verdict("openvino", "fp32") == Verdict("openvino", "fp32", True)


@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_wrong_numbers_are_found(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The real trial, against an expectation that is off by a little in one place."""
    code = (
        "import sys\n"
        "from litehouse.engines.trials import __main__ as trial\n"
        "cases = list(trial.float_cases())\n"
        "cases[3].expected[5, 7] += 0.01\n"
        "trial.float_cases = lambda: cases\n"
        "trial.main(*sys.argv[1:])\n"
    )
    monkeypatch.setattr(children, "PROGRAM", ("-c", code))
    (outcome,) = children.run_trials([(name, "fp32", os.environ)])
    assert outcome.kind == "broken"
    assert outcome.words.startswith("it computes wrong numbers: a matrix product with 1 thread is off by 0.01")


def test_numbers_that_are_no_numbers_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import numpy\n"
        "from litehouse.engines.trials import __main__ as trial\n"
        "trial.RUNNERS['none'] = lambda _: lambda case, _: case.expected * numpy.nan\n"
        "trial.main('none', 'fp32')\n"
    )
    monkeypatch.setattr(children, "PROGRAM", ("-c", code))
    (outcome,) = children.run_trials([("onnxruntime", "fp32", os.environ)])
    assert "is off by nan" in outcome.words


def test_what_raises_an_error_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys\n"
        "from litehouse.engines.trials import __main__ as trial\n"
        "def run(case, _):\n"
        "    if case.name == 'an LSTM' or sys.argv[2] == 'bf16': raise RuntimeError('no such kernel')\n"
        "    return case.expected\n"
        "trial.RUNNERS['openvino'] = lambda _: run\n"
        "trial.main(*sys.argv[1:])\n"
    )
    monkeypatch.setattr(children, "PROGRAM", ("-c", code))
    some, every = verdicts([("openvino", "fp32"), ("openvino", "bf16")])
    assert some == Verdict("openvino", "fp32", True, "but it cannot run an LSTM")
    assert every == Verdict("openvino", "bf16", False, "it ends with an error (RuntimeError: no such kernel)")


def test_trials_leave_no_core_dump(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import resource\n"
        "from litehouse.engines.trials import __main__ as trial\n"
        "def limit(_): print(resource.getrlimit(resource.RLIMIT_CORE)[0]); raise SystemExit(4)\n"
        "trial.RUNNERS['none'] = limit\n"
        "trial.main('none', 'fp32')\n"
    )
    monkeypatch.setattr(children, "PROGRAM", ("-c", code))
    (outcome,) = children.run_trials([("onnxruntime", "fp32", os.environ)])
    assert outcome.words in ("0", "1")


def test_trials_import_nothing_from_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "onnx.py").write_text("raise SystemExit('taken from the current folder')")
    monkeypatch.chdir(tmp_path)
    assert verdict("onnxruntime", "fp32").safe


def test_trials_find_what_this_process_finds(trials: Trials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "only_here.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    trials.program(f"import only_here; {PASS}")
    assert verdict("openvino", "fp32").safe


def test_trials_run_side_by_side(trials: Trials, tmp_path: Path) -> None:
    """Each waits until the other has begun."""
    trials.program(
        "import pathlib, time\n"
        f"pathlib.Path({str(tmp_path)!r}, sys.argv[2]).touch()\n"
        f"other = pathlib.Path({str(tmp_path)!r}, 'int8' if sys.argv[2] == 'fp32' else 'fp32')\n"
        "while not other.exists(): time.sleep(0.01)\n"
        "print('passed')\n"
    )
    pairs = [("openvino", "int8"), ("openvino", "fp32"), ("openvino", "int8")]
    assert verdicts(pairs) == [Verdict(*pair, True) for pair in pairs]
    assert len(trials.caps) == 2


@pytest.mark.parametrize("python", ["", "/usr/sbin/some_server", "/no/such/python"])
def test_without_a_python_to_start(monkeypatch: pytest.MonkeyPatch, python: str) -> None:
    """Nothing speaks against the reference then, and nothing replaces it."""
    monkeypatch.setattr(children, "get_executable", lambda: os.fsencode(python))
    reference, other = verdicts([("onnxruntime", "fp32"), ("openvino", "fp32")])
    assert reference.safe
    assert reference.reason.startswith("it could not be tried: no ")
    assert not other.safe


def test_the_reference_is_refused_only_where_it_breaks(trials: Trials) -> None:
    trials.program(ILLEGAL)
    assert not verdict("onnxruntime", "fp32").safe
    trials.program("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert verdict("onnxruntime", "int8").safe


def test_cases_are_neither_constant_nor_clipped() -> None:
    for case in (*float_cases(), *int8_cases()):
        values, counts = np.unique(np.abs(case.expected), return_counts=True)
        assert len(values) > 50, case.name
        assert counts[-1] < 0.01 * case.expected.size, case.name
        assert np.abs(case.expected).max() > 20 * case.step, case.name


# Safe settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "own", "expected"),
    [
        (AMX, {}, ["AVX512_CORE_FP16", "AVX512_CORE", "AVX2", "AVX", "SSE41"]),
        (AMX - {"amx_tile"}, {}, ["AVX512_CORE", "AVX2", "AVX", "SSE41"]),
        ({"avx", "avx2", "avx512f"}, {}, ["AVX2", "AVX", "SSE41"]),
        ({"avx", "avx2", "avx_vnni"}, {}, ["AVX2", "AVX", "SSE41"]),
        ({"avx", "avx2"}, {}, ["AVX", "SSE41"]),
        ({"avx"}, {}, ["SSE41"]),
        ({"sse4_1"}, {}, []),
        (set(), {}, []),
        (AMX, {CAP: "avx512_core"}, ["AVX2", "AVX", "SSE41"]),
        (AMX, {"DNNL_MAX_CPU_ISA": "AVX2"}, ["AVX", "SSE41"]),
        (AMX, {CAP: "AVX512_CORE_VNNI"}, ["SSE41"]),
        (AMX, {CAP: "SSE41"}, []),
    ],
)
def test_settings_are_lower_than_what_there_is(
    monkeypatch: pytest.MonkeyPatch, flags: set[str], own: Mapping[str, str], expected: list[str]
) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: frozenset(flags))
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert [setting[CAP] for setting in safety._safe_settings("openvino")] == expected
    assert safety._safe_settings("onnxruntime") == []


def test_the_first_setting_that_passes_is_taken(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: AMX)
    trials.program(f"if os.environ.get({CAP!r}) not in ('AVX512_CORE', 'AVX2'): {ILLEGAL}\n{PASS}")
    found = verdict("openvino", "int8")
    assert found == Verdict(
        "openvino", "int8", True, "it dies of an illegal instruction (SIGILL)", {CAP: "AVX512_CORE"}
    )
    assert trials.caps == ["-", "AVX512_CORE_FP16", "AVX512_CORE"]
    safety.forget()
    assert verdict("openvino", "int8") == found
    assert len(trials.caps) == 3


def test_no_setting_passes(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: frozenset({"avx", "avx2"}))
    trials.program(f"print('off by ' + os.environ.get({CAP!r}, 'much')); raise SystemExit(3)")
    assert verdict("openvino", "fp32") == Verdict("openvino", "fp32", False, "it computes wrong numbers: off by much")
    assert trials.caps == ["-", "AVX", "SSE41"]


@pytest.mark.parametrize(
    "code", ["print('none'); raise SystemExit(4)", "import time; time.sleep(60)", "import nothing"]
)
def test_no_setting_helps_against(trials: Trials, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: AMX)
    monkeypatch.setattr(children, "LIMIT", 1.5)
    trials.program(code)
    assert not verdict("openvino", "bf16").safe
    assert trials.caps == ["-"]


CAPPED = Verdict("openvino", "int8", True, "it dies", {CAP: "AVX2"})


def test_settings_are_put_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "_is_loaded", lambda _: False)
    monkeypatch.setenv(CAP, "")
    assert safety.apply(CAPPED) == CAPPED
    assert os.environ[CAP] == "AVX2"
    lower = Verdict("openvino", "fp32", True, "it dies", {CAP: "SSE41"})
    assert safety.apply(lower) == lower
    assert os.environ[CAP] == "SSE41"
    monkeypatch.setattr(safety, "_is_loaded", lambda _: True)
    assert safety.apply(CAPPED) == CAPPED  # what is in force is lower still


@pytest.mark.parametrize("own", ["", "AVX512_CORE"])
def test_a_trial_is_for_any_process(trials: Trials, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    """What this process has put in force for another precision is not there in the trial."""
    monkeypatch.setattr(safety, "_is_loaded", lambda _: False)
    monkeypatch.setenv(CAP, own)
    safety.apply(CAPPED)
    trials.program(PASS)
    verdict("openvino", "fp32")
    assert os.environ[CAP] == "AVX2"
    assert trials.caps == [own or "none"]


def test_a_library_that_was_loaded_without_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "_is_loaded", lambda _: True)
    held = safety.apply(CAPPED)
    assert not held.safe
    assert held.reason.startswith(
        f"it dies; with {CAP}=AVX2 it is safe, but it was loaded in this process without that"
    )
    assert CAP not in os.environ
    plain = Verdict("openvino", "fp32", True)
    assert safety.apply(plain) == plain


def test_refusal(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    trials.program(f"if sys.argv[2] == 'int8': {ILLEGAL}\n{PASS}")
    assert safety.refusal("openvino", {"fp32"}) is None
    text = safety.refusal("openvino", {"fp32", "int8"})
    assert text is not None
    assert text.startswith("it is not safe here in int8: it dies of an illegal instruction (SIGILL); ")


# What a model needs ---------------------------------------------------------------------------------------------------


def _needs(*nodes: onnx.NodeProto) -> set[str]:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    constants = [
        helper.make_tensor("step", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
    ]
    graph = helper.make_graph(list(nodes), "g", [x], [y], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return safety.needs(formats.read(made.SerializeToString()))


QUANTISED = (
    helper.make_node("QuantizeLinear", ["x", "step"], ["q"]),
    helper.make_node("DequantizeLinear", ["q", "step"], ["y"]),
)


def test_needs_of_floats() -> None:
    assert _needs(helper.make_node("Neg", ["x"], ["y"])) == {"fp32"}


def test_needs_of_quantised_numbers() -> None:
    assert _needs(*QUANTISED) == {"fp32", "int8"}
    dynamic = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    assert _needs(dynamic, helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])) == {"fp32", "int8"}


def test_needs_of_a_branch() -> None:
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    plain = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "else", [], [out])
    inner = helper.make_graph(list(QUANTISED), "then", [], [out])
    assert _needs(helper.make_node("If", ["true"], ["y"], then_branch=inner, else_branch=plain)) == {"fp32", "int8"}


def test_whether_the_library_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(safety, "MAPS", maps)
    maps.write_text("7f00-7f01 r-xp 00000000 00:01 1 /usr/lib/libc.so.6\n")
    assert not safety._is_loaded("openvino")
    maps.write_text("7f00-7f01 r-xp 00000000 00:01 1 /x/openvino/libs/libopenvino_intel_cpu_plugin.so\n")
    assert safety._is_loaded("openvino")
    maps.unlink()
    monkeypatch.setitem(sys.modules, "openvino", sys)
    assert safety._is_loaded("openvino")  # nothing tells that it is not
    monkeypatch.delitem(sys.modules, "openvino")
    assert not safety._is_loaded("openvino")
