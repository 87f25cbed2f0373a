"""Starts trials as child processes, waits for them under a time limit, and says in words how they ended."""

from __future__ import annotations

import errno
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
from typing import IO, Literal, NoReturn, cast, get_args

PROGRAM = ("-m", "litehouse.engines.trials")
LIMIT = 60.0  # seconds, for a few seconds' work
TAIL = 4096  # bytes of the output that are looked at

FAULTS: dict[int, str] = {
    signal.SIGILL: "it dies of an illegal instruction (SIGILL)",
    signal.SIGSEGV: "it dies of a memory fault (SIGSEGV)",
    signal.SIGBUS: "it dies of a bus error (SIGBUS)",
    signal.SIGFPE: "it dies of an arithmetic fault (SIGFPE)",
}
FAILURES: dict[int, str] = {
    signal.SIGABRT: "it aborts (SIGABRT)",
    signal.SIGTRAP: "it dies of a trap (SIGTRAP)",
    signal.SIGSYS: "it dies of a forbidden system call (SIGSYS)",
}
SIGNALS = {number.value: number.name for number in signal.Signals}
# What the libraries' own errors say where the process may not have more memory or threads.
LACKS = (os.strerror(errno.EAGAIN), os.strerror(errno.ENOMEM), "bad_alloc", "can't alloc", "failed to map segment")

Kind = Literal["passed", "broken", "failed", "absent", "late", "unclear"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a trial ended.

    Attributes:
        kind: "passed"; "broken": the CPU stopped it, or it gave wrong numbers; "failed": an error ended it, which need
            not come again; "absent": the machine does not have what was to be tried; "late": the time limit ended it;
            "unclear": it was ended from outside, or lacked memory or files.
        words: What happened; where it passed, what was amiss all the same.
    """

    kind: Kind
    words: str = ""


def run_trials(trials: Sequence[tuple[str, str, Mapping[str, str]]]) -> list[Outcome]:
    """Run trials (engine, precision, environment) side by side."""
    return run_children([((*PROGRAM, engine, precision), environment) for engine, precision, environment in trials])


def run_children(programs: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[Outcome]:
    """Run Python programs (arguments of the interpreter, environment) side by side, each under the time limit.

    One that does what it should ends with `end("passed")`.
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


def end(kind: Kind, words: str = "") -> NoReturn:
    """End this process, a trial, and tell what it found. An exit status may not reach a parent that ignores SIGCHLD."""
    print(kind, words)
    raise SystemExit


def is_lack(error: Exception) -> bool:
    """Whether an error tells of what this process lacks, and nothing of the engine."""
    return isinstance(error, ImportError | MemoryError | OSError) or _tells_of_lack(str(error))


def _tells_of_lack(text: str) -> bool:
    return any(lack in text for lack in LACKS)


def in_one_line(error: Exception) -> str:
    """An error's type and text."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def restrict() -> None:
    """Let this process, a trial, die without a trace, and end even where its parent was killed before it."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
    signal.alarm(int(LIMIT) + 10)
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
        # Python passes over what is not text, too.
        paths = os.pathsep.join(path for path in sys.path if isinstance(path, str) and path)
        with ExitStack() as files:
            self._output = files.enter_context(_scratch_file())
            self._errors = files.enter_context(_scratch_file())
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


def _scratch_file() -> IO[bytes]:
    """A file in memory: there may be no folder to write to. On disk where the system has no such files."""
    try:
        return open(os.memfd_create("litehouse-trial"), "w+b")
    except (AttributeError, OSError):
        return tempfile.TemporaryFile()


def _last_line(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - TAIL))
    lines = file.read().decode(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def judge(status: int, output: str, errors: str) -> Outcome:
    """What an exit status, with the last lines of output and errors, tells. The status may be 0 whatever happened."""
    if -status in FAULTS:
        return Outcome("broken", FAULTS[-status])
    kind, _, words = output.partition(" ")
    if status == 0 and kind in get_args(Kind):
        return Outcome(cast(Kind, kind), words)
    if errors.startswith(("ImportError", "ModuleNotFoundError", "MemoryError")) or _tells_of_lack(errors):
        return Outcome("unclear", f"something is missing ({errors})")
    if -status in FAILURES:
        return Outcome("failed", FAILURES[-status])
    if status < 0:
        return Outcome("unclear", f"it was ended from outside ({SIGNALS.get(-status, f'signal {-status}')})")
    if status or errors:
        return Outcome("failed", f"it ends with an error ({errors or f'exit status {status}'})")
    return Outcome("failed", "it ends without a result")
