"""Every error that Litehouse raises on purpose. The text says what is wrong, where, and what to do."""

from collections.abc import Sequence
from functools import partial
from typing import Any

MAX_NAME = 200


def printable(text: str) -> str:
    """Text with names from a file in it, fit for a terminal: no control characters but line ends."""
    return "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)


def _short(name: str) -> str:
    return name if len(name) <= MAX_NAME else name[:MAX_NAME] + "…"


class LitehouseError(Exception):
    """The base of all errors that Litehouse raises on purpose."""

    def __init__(self, message: str = "") -> None:
        """Make the error; control characters, which names in a file may hold, are written as escapes."""
        super().__init__(printable(message))


class ModelFormatError(LitehouseError):
    """The model file is broken, of an unknown kind, or does not open with the given key."""

    def __init__(self, message: str, *, path: str = "") -> None:
        """Make the error; `path` names the file and is put in front of the message."""
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path


class LimitError(ModelFormatError):
    """The file declares something larger than `Limits` allows."""


class UnsupportedOpError(LitehouseError):
    """The model uses ops that Litehouse does not run. Lists all of them, not only the first.

    Attributes:
        op: The first unsupported op.
        node: The node that uses it.
        format: The format of the file, as `"mindir"`.
        path: The file.
        all: Every (op, node) pair.
        reason: Why a converter refused this use of its op; empty where the op is not known at all.
    """

    def __init__(self, unsupported: Sequence[tuple[str, str]], *, format: str, path: str, reason: str = "") -> None:  # noqa: A002
        """Make the error from (op, node) pairs; `reason` explains a case that an op's converter refused."""
        self.all = list(unsupported)
        self.op, self.node = self.all[0]
        self.format = format
        self.reason = reason
        self.path = path
        nodes: dict[str, list[str]] = {}
        for op, node in self.all:
            nodes.setdefault(op, []).append(node)
        head = f"{path}: {len(nodes)} unsupported {format} op{'s' if len(nodes) > 1 else ''}"
        lines = [f"{head} ({reason}):" if reason else f"{head}:"]
        for op, at in nodes.items():
            more = f" and {len(at) - 1} more" if len(at) > 1 else ""
            lines.append(f"  {_short(op)} (node {_short(at[0])}{more})")
        super().__init__("\n".join([*lines, "`litehouse inspect` shows the whole model; please report what you need."]))

    def __reduce__(self) -> tuple[Any, ...]:
        """How it goes from one process to another, which the text alone does not tell."""
        return partial(type(self), format=self.format, path=self.path, reason=self.reason), (self.all,)


class ShapeError(LitehouseError):
    """An input has the wrong count, shape or dtype, or a resize is impossible for the model."""


class EngineError(LitehouseError):
    """An engine or device is missing, or an engine failed on this model."""


class Overloaded(LitehouseError):  # noqa: N818  (it is no fault)
    """A queue is full: the request was not taken. Try later."""


class DeadlineError(LitehouseError):
    """A request was not done in time."""


class WorkerError(EngineError):
    """The process that ran a request died."""


class RankError(EngineError):
    """Another rank of the job failed, is missing, or does something else than this one.

    Attributes:
        rank: The rank that failed; None where it is not known.
        op: The op that needed it, as the model names it; empty outside of ops.
    """

    def __init__(self, message: str, *, rank: int | None = None, op: str = "") -> None:
        """Make the error; `rank` and `op` are for programs, the message tells them too."""
        super().__init__(message)
        self.rank = rank
        self.op = op


class WeightError(LitehouseError):
    """A weight has the wrong name, shape, dtype or data."""
