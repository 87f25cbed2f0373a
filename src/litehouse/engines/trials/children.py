"""Starts trials as child processes, waits for them under a time limit, and says in words how they ended."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.spawn import get_executable
from pathlib import Path
from typing import IO, Literal

PROGRAM = ("-m", "litehouse.engines.trials")
LIMIT = 60.0  # seconds, for a few seconds' work
TAIL = 4096  # bytes of the output that are looked at

# How a trial tells what it found.
PASSED = "passed"
WRONG, ABSENT = 3, 4

DEATHS = {
    signal.SIGILL: "it dies of an illegal instruction",
    signal.SIGSEGV: "it dies of a memory fault",
    signal.SIGBUS: "it dies of a bus error",
    signal.SIGFPE: "it dies of an arithmetic fault",
    signal.SIGABRT: "it aborts",
    signal.SIGTRAP: "it dies of a trap",
    signal.SIGSYS: "it dies of a forbidden system call",
}

Kind = Literal["passed", "broken", "absent", "late", "unclear"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended.

    Attributes:
        kind: "passed"; "broken": it died, failed or gave wrong numbers; "absent": the machine does not have what was
            to be tried; "late": the time limit ended it; "unclear": it was ended from outside, or could not begin.
        words: What happened; where it passed, what was amiss all the same.
    """

    kind: Kind
    words: str = ""


def run_trials(trials: Sequence[tuple[str, str, Mapping[str, str]]]) -> list[Outcome]:
    """Run trials (engine, precision, environment) side by side."""
    return run_children([((*PROGRAM, engine, precision), environment) for engine, precision, environment in trials])


def run_children(programs: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[Outcome]:
    """Run Python programs (arguments of the interpreter, environment) side by side, each under the time limit.

    One that does what it should prints `PASSED` as its last word.
    """
    deadline = time.monotonic() + LIMIT
    started: list[_Child | Outcome] = []
    try:
        for arguments, environment in programs:
            started.append(_start(arguments, environment))
        return [item if isinstance(item, Outcome) else item.outcome(deadline) for item in started]
    finally:
        for item in started:
            if isinstance(item, _Child):
                item.close()


def forbid_core_dump() -> None:
    """Let this process die without a trace: it is a trial, and somebody watches it."""
    # One byte is too little for a file, and is the value at which the kernel does not pipe the dump either.
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0) if hard == 0 else (1, 1))


def _start(arguments: Sequence[str], environment: Mapping[str, str]) -> _Child | Outcome:
    python = os.fsdecode(get_executable() or "")
    # Inside another program it may be that program, which would start once more.
    if getattr(sys, "frozen", False) or "py" not in Path(python).name.lower():
        return Outcome("unclear", f"no Python to start a child process with ({python or 'none'})")
    try:
        return _Child([python, "-P", *arguments], environment)
    except OSError as error:
        return Outcome("unclear", f"no child process could be started ({error})")


class _Child:
    """A trial that runs."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; it imports from where this process does, but not from the current folder."""
        paths = os.pathsep.join(path for path in sys.path if path)
        with ExitStack() as files:
            self._output: IO[bytes] = files.enter_context(tempfile.TemporaryFile())
            self._errors: IO[bytes] = files.enter_context(tempfile.TemporaryFile())
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._errors,
                env={**environment, "PYTHONPATH": paths},
                start_new_session=True,  # what interrupts this process must not look like a death of the trial
            )
            self._files = files.pop_all()

    def outcome(self, deadline: float) -> Outcome:
        """Wait for the end, and say how it was."""
        try:
            status = self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return Outcome("late", f"it did not end within {LIMIT:g} seconds")
        return judge(status, _last_line(self._output), _last_line(self._errors))

    def close(self) -> None:
        """End it where it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._files.close()


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def judge(status: int, output: str, errors: str) -> Outcome:
    """What an exit status, with the last lines of output and errors, tells."""
    if status < 0:
        number = signal.Signals(-status)
        if number in DEATHS:
            return Outcome("broken", f"{DEATHS[number]} ({number.name})")
        return Outcome("unclear", f"it was ended from outside ({number.name})")
    if status == WRONG:
        return Outcome("broken", f"it computes wrong numbers: {output}")
    if status == ABSENT:
        return Outcome("absent", output)
    if status == 0:
        word, _, rest = output.partition(" ")
        return Outcome("passed", rest) if word == PASSED else Outcome("broken", "it ends without a result")
    if errors.startswith(("ImportError", "ModuleNotFoundError")):
        return Outcome("unclear", f"it cannot be imported ({errors})")
    return Outcome("broken", f"it ends with an error ({errors or f'exit status {status}'})")
