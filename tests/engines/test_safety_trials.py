"""Trials in child processes: how they end, and where they run."""

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
from engines.support import ALL, ENDLESS, ILLEGAL, PASS, Trials, verdict

from litehouse.engines.base import Names
from litehouse.engines.choice import Choice
from litehouse.engines.safety import Verdict, verdicts
from litehouse.engines.trials import children, restored
from litehouse.engines.trials.cases import float_cases, int8_cases
from litehouse.options import Options

pytestmark = pytest.mark.usefixtures("unknown")


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
        (f"print('passed', flush=True); {ENDLESS}", "it did not end within 60 seconds"),
        ("import os, signal; os.kill(os.getpid(), 40)", "it was ended from outside (signal 40)"),
        ("print('broken a sum is off by 7')", "a sum is off by 7"),
        ("print('absent no such numbers')", "no such numbers"),
        ("print('passed'); raise SystemExit(1)", "it ends with an error (exit status 1)"),
        ("raise RuntimeError('no room')", "it ends with an error (RuntimeError: no room)"),
        ("raise SystemExit(9)", "it ends with an error (exit status 9)"),
        ("import no_such_engine", "something is missing (ModuleNotFoundError: No module named 'no_such_engine')"),
        ("pass", "it ends without a result"),
    ],
)
def test_how_a_trial_ends(trials: Trials, code: str, reason: str) -> None:
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
        "def limit(_): trial.end('absent', str(resource.getrlimit(resource.RLIMIT_CORE)[0]))\n"
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


# What a trial lacks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["in one case", "at the start"])
def test_a_lack_says_nothing_of_the_engine(monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    code = (
        "from litehouse.engines.trials import __main__ as trial\n"
        "def run(case, _):\n"
        "    if case is None or case.name == 'an LSTM': raise MemoryError('no\\nroom')\n"
        "    return case.expected\n"
        f"trial.RUNNERS['none'] = lambda _: run if {place!r} == 'in one case' else run(None, 1)\n"
        "trial.main('none', 'fp32')\n"
    )
    monkeypatch.setattr(children, "PROGRAM", ("-c", code))
    (outcome,) = children.run_trials([("openvino", "fp32", os.environ)])
    assert outcome == children.Outcome("unclear", "something is missing (MemoryError: no room)")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (type("_ArrayMemoryError", (MemoryError,), {})(), True),
        (PermissionError(13, "Permission denied"), True),
        (ImportError("libengine.so: failed to map segment from shared object"), True),
        (RuntimeError("Exception from plugin.cpp:54:\nResource temporarily unavailable\n\n"), True),
        (RuntimeError("pthread_create failed, error msg: Cannot allocate memory"), True),
        (RuntimeError("Exception from plugin.cpp:54:\nstd::bad_alloc\n"), True),
        (RuntimeError("no such kernel"), False),
        (ValueError("4 is not 5"), False),
    ],
)
def test_which_errors_tell_of_a_lack(error: Exception, expected: bool) -> None:
    assert children.is_lack(error) == expected


def test_an_abort_for_lack_of_memory() -> None:
    assert children.judge(-signal.SIGABRT, "", "what():  std::bad_alloc").kind == "unclear"
    assert children.judge(-signal.SIGABRT, "", "what():  stoi").kind == "failed"
    assert children.judge(-signal.SIGILL, "", "std::bad_alloc").kind == "broken"


@contextlib.contextmanager
def _ignoring_children() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (PASS, "passed"),
        ("print('absent none')", "absent"),
        ("print('broken it is off')", "broken"),
        ("import no_such_engine", "unclear"),
        ("raise RuntimeError('no room')", "failed"),
        (ILLEGAL, "failed"),
    ],
)
def test_in_a_process_that_gets_no_exit_status(trials: Trials, code: str, kind: str) -> None:
    trials.program(code)
    with _ignoring_children():
        (outcome,) = children.run_trials([("openvino", "fp32", os.environ)])
    assert outcome.kind == kind


# Where a trial runs ---------------------------------------------------------------------------------------------------


def test_a_path_that_is_not_text(trials: Trials, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Python passes over it, too."""
    monkeypatch.setattr(sys, "path", [tmp_path, *sys.path])
    trials.program(PASS)
    assert verdict("openvino", "fp32").safe


def test_without_a_folder_to_write_to(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise FileNotFoundError("no usable temporary directory")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    trials.program(PASS)
    assert verdict("openvino", "fp32") == Verdict("openvino", "fp32", True)


def test_without_files_in_memory(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    trials.program(PASS)
    assert verdict("openvino", "fp32") == Verdict("openvino", "fp32", True)


def test_a_trial_ends_without_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends itself some time after it should have been ended, whatever it inherits."""
    code = (
        "import signal, time\n"
        "from litehouse.engines.trials import children\n"
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})\n"
        "children.LIMIT = -9.0\n"
        "children.restrict()\n"
        "time.sleep(60)\n"
    )
    monkeypatch.setattr(children, "PROGRAM", ("-c", code))
    (outcome,) = children.run_trials([("openvino", "fp32", os.environ)])
    assert outcome.words == "it was ended from outside (SIGALRM)"


def test_a_fork_during_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that holds the lock is not in the process that is forked off."""
    code = (
        "import os, signal, threading, time\n"
        "from litehouse.engines import safety\n"
        "from litehouse.engines.trials import children\n"
        f"began, forked = {str(tmp_path / 'began')!r}, {str(tmp_path / 'forked')!r}\n"
        "wait = f'while not os.path.exists({forked!r}): time.sleep(0.01)'\n"
        'trial = f\'import os, time; open({began!r}, "a")\\n{wait}\\nprint("passed")\'\n'
        "children.PROGRAM = ('-c', trial)\n"
        "thread = threading.Thread(target=safety.verdicts, args=([('openvino', 'fp32')],))\n"
        "thread.start()\n"
        "while not os.path.exists(began): time.sleep(0.01)\n"
        "child = os.fork()\n"
        "open(forked, 'a')\n"
        "if child == 0:\n"
        "    signal.alarm(300)\n"
        "    found = safety.verdicts([('openvino', 'fp32')])\n"
        "    os._exit(0 if found[0].safe else 1)\n"
        "status = os.waitpid(child, 0)[1]\n"
        "thread.join()\n"
        "print('passed' if status == 0 else f'broken the child ended with {status}')\n"
    )
    monkeypatch.setattr(children, "LIMIT", 600.0)  # it starts three processes, one after the other
    (outcome,) = children.run_children([(("-c", code), os.environ)])
    assert outcome.kind == "passed", outcome.words


# Saved models ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["text", "numbers", "cut", "garbage", "nothing"])
def test_answers_of_a_saved_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answer: str) -> None:
    """One that cannot be read is none."""

    def run_children(_: object) -> list[children.Outcome]:
        path = tmp_path / restored.ANSWERED
        if answer != "nothing":
            np.savez(path, np.array(["a"], object) if answer == "text" else np.ones(1000))
        if answer == "cut":
            path.write_bytes(path.read_bytes()[:-100])
        if answer == "garbage":
            path.write_bytes(b"no archive")
        return [children.Outcome("passed")]

    monkeypatch.setattr(restored, "run_children", run_children)
    names = Names("m", ["x"], ["y"])
    found = restored.outputs_of(tmp_path, Choice("onnxruntime", "fp32", ""), names, Options(), [np.ones(3)])
    assert (found is not None) == (answer == "numbers")
    assert list(tmp_path.iterdir()) == []
