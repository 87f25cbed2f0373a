"""A worker process: `python -m litehouse.parallel.isolated SOCKET MEMORY CONTROL`, with numbers of descriptors.

Its parent sends a model and options first, then inputs; it answers with outputs, or with an error. Meanwhile it can be
told to stop a run. It ends when its parent does.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from litehouse.errors import LitehouseError, ModelFormatError
from litehouse.identity import marks_at
from litehouse.loading import load
from litehouse.options import Options
from litehouse.parallel.exchange import SERIAL, Line, SharedMemory
from litehouse.session import Session

CHANGED = "the file has changed since the pool was made; make the pool anew"


def main(arguments: list[str]) -> None:
    """Serve until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # what stops the parent from a terminal is for the parent to decide
    end, stops = socket.socket(fileno=int(arguments[0])), _Stops()
    threading.Thread(target=_listen, args=(end, int(arguments[2]), stops), daemon=True).start()
    line = Line(end)
    memory = SharedMemory(int(arguments[1]))
    try:
        session = _load(line.receive())
    except Exception as error:  # noqa: BLE001  (the parent tells it)
        line.send({"error": _told(error)})
        return
    line.send({"engine": session.engine.facts()})
    while True:
        try:
            asked = line.receive()
        except EOFError:
            return
        line.send(_answer(session, memory, asked, stops))


class _Stops:
    """Stops the run that is under way, if that is the one which the parent means."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stop: Callable[[], None] | None = None
        self._serial = self._asked = 0

    def begin(self, serial: int) -> None:
        """A run begins."""
        with self._lock:
            self._serial = serial

    def stoppable(self, stop: Callable[[], None] | None) -> None:
        """Take how to stop it, and None when it has ended."""
        with self._lock:
            self._stop = stop
            self._act()

    def ask(self, serial: int) -> None:
        """Stop that run."""
        with self._lock:
            self._asked = serial
            self._act()

    def _act(self) -> None:
        if self._stop is not None and self._asked == self._serial:
            self._stop()


def _listen(end: socket.socket, control: int, stops: _Stops) -> None:
    """Stop what the parent wants stopped, and end this process when the parent is gone, even in a run that hangs."""
    heard = select.poll()
    heard.register(end, 0)  # of all that may happen, its end is told without being asked for
    heard.register(control, select.POLLIN)
    while True:
        if any(descriptor == end.fileno() for descriptor, _ in heard.poll()):
            os._exit(0)
        told = os.read(control, SERIAL.size)
        if len(told) < SERIAL.size:
            os._exit(0)
        stops.ask(*SERIAL.unpack(told))


def _load(what: dict[str, Any]) -> Session:
    key = None if what["key"] is None else bytes.fromhex(what["key"])
    source: str | bytes = what["path"]
    if what["descriptor"] is not None:
        with os.fdopen(what["descriptor"], "rb") as file:
            source = file.read()
    _check_unchanged(source, what["marks"])
    session = load(source, key=key, mode=what["mode"], options=Options.of(what["options"]))
    _check_unchanged(source, what["marks"])
    if {name: list(marks or ()) for name, marks in session.model.files.items()} != what["files"]:
        raise ModelFormatError(CHANGED, path=session.model.path)
    return session


def _check_unchanged(source: str | bytes, marks: list[Any]) -> None:
    """All workers of a pool run one model: what lies there now may be another."""
    if isinstance(source, str) and marks != list(marks_at(source) or ()):
        raise ModelFormatError(CHANGED, path=source)


def _answer(session: Session, memory: SharedMemory, asked: dict[str, Any], stops: _Stops) -> dict[str, Any]:
    stops.begin(asked["serial"])
    try:
        results = session.run_any(memory.read(asked["inputs"], copy=False), stops.stoppable)
        places, _ = memory.write(results, asked["end"])
    except Exception as error:  # noqa: BLE001  (the parent raises it)
        return {"error": _told(error)}
    return {"outputs": places}


def _told(error: BaseException) -> list[str]:
    kind = type(error).__name__ if isinstance(error, LitehouseError) else "EngineError"
    return [kind, str(error) or type(error).__name__]


if __name__ == "__main__":
    main(sys.argv[1:])
