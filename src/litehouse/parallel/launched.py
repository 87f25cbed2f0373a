"""`Launched`: the parts of a sliced model in processes of this machine, of which this one is rank 0."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Self

import numpy as np

from litehouse.distributed.mail import Key, Mail
from litehouse.distributed.ranks import find_place
from litehouse.distributed.transports import open_mail
from litehouse.errors import RankError
from litehouse.loading import load
from litehouse.options import Job, Options
from litehouse.session import Session
from litehouse.signature import accept

CHANNEL = 0  # of the mail: what rank 0 tells the others; models have others
FAREWELL = 10.0  # seconds that processes have to end
MAX_TOLD = 2000  # letters of what a process said last


class Launched:
    """A sliced model, ready to run over several processes. Used by one thread at a time.

    Attributes:
        session: The part of this process, rank 0.
    """

    def __init__(self, paths: Sequence[Path], options: Options | None = None) -> None:
        """Start a process for each further part, and load the first one here.

        Args:
            paths: The files, in the order of the ranks, as `litehouse slice` wrote them.
            options: How to run each.

        Raises:
            RankError: A process ended, or did not begin in time.
        """
        options = options or Options()
        self._paths, self._said, self._texts = list(paths), list[IO[bytes]](), list[str]()
        self._name = secrets.token_hex(16)
        self._processes = list[subprocess.Popen[bytes]]()
        self._runs = self._ordered = 0
        try:
            for rank in range(1, len(paths)):
                self._processes.append(self._start(rank, options))
            job = self._job(0, options)
            self.session: Session = load(paths[0], options=replace(options, job=job))
            self._mail: Mail = open_mail(find_place(job), job)
        except BaseException as error:
            self._end(0.0 if not isinstance(error, RankError) else FAREWELL)
            raise self._explained(error) from error

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs, which all ranks get.

        Raises:
            RankError: Another process failed.
        """
        try:
            arrays = accept(inputs, self.session.inputs)  # all ranks get what this one takes
            self._order({"inputs": len(arrays)}, arrays)
            return self.session.run([*arrays])
        except RankError as error:
            raise self._explained(error) from error

    @property
    def bytes_sent(self) -> int:
        """What this rank has sent in exchanges so far; the inputs that it hands on do not count."""
        return self._mail.bytes_sent - self._ordered

    def resize(self, shapes: Sequence[Sequence[int]]) -> None:
        """Give the inputs other shapes, on all ranks."""
        self.session.resize(shapes)
        self._order({"shapes": [list(shape) for shape in shapes]}, ())

    def close(self) -> None:
        """End the other processes, and free the model."""
        self.session.close()
        self._mail.close()
        self._end()

    def __enter__(self) -> Self:
        """The object itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def _start(self, rank: int, options: Options) -> subprocess.Popen[bytes]:
        said = tempfile.TemporaryFile()  # noqa: SIM115  (closed with the processes)
        self._said.append(said)
        order = {"path": str(self._paths[rank]), "options": replace(options, job=self._job(rank, options)).plain()}
        command = [sys.executable, "-P", "-m", "litehouse.parallel.follower", json.dumps(order)]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def _job(self, rank: int, options: Options) -> Job:
        fields = {"rank": rank, "size": len(self._paths), "name": self._name, "transport": "memory"}
        return replace(options.job, **fields, rank_table="", address="", port=0)  # type: ignore[arg-type]

    def _order(self, order: dict[str, Any], arrays: Sequence[np.ndarray]) -> None:
        self._runs += 1
        letters = {"order": np.frombuffer(json.dumps(order).encode(), np.uint8)}
        letters |= {f"input {place}": np.asarray(array) for place, array in enumerate(arrays)}
        before = self._mail.bytes_sent
        with self._mail.using:
            for rank in range(1, self._mail.size):
                for name, array in letters.items():
                    self._mail.post(rank, Key(CHANNEL, self._runs, name), array, "the order to run")
        self._ordered += self._mail.bytes_sent - before

    def _end(self, seconds: float = FAREWELL) -> None:
        """Wait for the processes, which end when this one leaves the job; not long for those that do not."""
        deadline = time.monotonic() + seconds
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
            process.kill()
            process.wait()
        self._texts = [self._text(rank) for rank in range(1, len(self._said) + 1)]
        for said in self._said:
            said.close()

    def _text(self, rank: int) -> str:
        """What the process of a rank has said last."""
        said = self._said[rank - 1]
        if said.closed:
            return self._texts[rank - 1]
        size = os.fstat(said.fileno()).st_size
        return os.pread(said.fileno(), MAX_TOLD, max(0, size - MAX_TOLD)).decode(errors="replace").strip()

    def _explained(self, error: BaseException) -> BaseException:
        """The error with what the process of the rank said, if it said anything."""
        if not isinstance(error, RankError) or not error.rank or error.rank > len(self._said):
            return error
        text = self._text(error.rank)
        if not text or text in str(error):
            return error
        return RankError(f"{error}\nIt said:\n{text}", rank=error.rank, op=error.op)
