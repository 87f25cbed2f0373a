"""`Mail`: arrays that the ranks of a job send each other, and how a rank learns that another one failed.

A letter has a key that both sides know, so it does not matter in which order the letters of a run are sent and read.
Whoever waits is told of a rank that died, left, failed or hangs, and by its number.
"""

from __future__ import annotations

import abc
import contextlib
import functools
import json
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np

from litehouse.errors import RankError, printable

LETTER, FREE, BYE, FAIL, WAITING, BUSY, STEP = range(7)
"""What is sent: an array; its memory can be used again; a rank leaves, has failed, waits for another one, is at work
on something long, has come to a run."""
PAUSE = 0.25  # seconds, after which a rank that waits looks whether anything has changed
SOON = 1.0  # seconds, after which a rank that waits says so
MAX_BUSY = 20  # how many times the timeout a rank may be at work on something long
LEAST_BEAT = 0.05
AHEAD = 8  # runs that a rank may be ahead of the slowest one
STEPS = 4  # runs after which it says how far it is
MAX_REASON = 2000
HAS_LEFT = "left the job"
Item = TypeVar("Item")
MALFORMED = (ValueError, TypeError, AttributeError, KeyError, IndexError, OverflowError, RecursionError, MemoryError)


def next_of(box: queue.SimpleQueue[Item], seconds: float) -> Item:
    """What is next in a box.

    A queue that was not just found empty may wait for ever: it takes a time that is up when it begins to wait for none.

    Raises:
        queue.Empty: Nothing has come in time.
    """
    try:
        return box.get_nowait()
    except queue.Empty:
        if seconds <= 0:
            raise
    return box.get(timeout=seconds)


class Key(NamedTuple):
    """What a letter is: the model, its run, and the op in it."""

    channel: int
    run: int
    label: str


@dataclass(slots=True)
class Letter:
    """What has arrived.

    Attributes:
        source: Who sent it.
        kind: What it is.
        key: Which letter it is.
        array: What it holds; its memory is the sender's until `release`.
        release: Gives the memory back.
    """

    source: int
    kind: int
    key: Key
    array: np.ndarray
    release: Callable[[], None] | None = None

    def close(self) -> None:
        """The array is not used any more."""
        if self.release is not None:
            self.release()
            self.release = None


@dataclass(slots=True)
class Peer:
    """What is known of another rank.

    Attributes:
        inbox: The letters from it that nobody has read.
        gone: Why nothing more comes from it.
        waits_for: The rank that it says it waits for.
        beat: When it last said that it is at work on something long.
        runs: The run that it has come to, of each model.
        heard: When something came from it.
    """

    inbox: dict[Key, deque[Letter]] = field(default_factory=dict)
    gone: str = ""
    waits_for: int | None = None
    beat: float = 0.0
    runs: dict[int, int] = field(default_factory=dict)
    heard: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """What ended a job, or a run of it."""

    text: str
    rank: int | None
    op: str

    def error(self, before: str = "", behind: str = "") -> RankError:
        """A new error that says so: one that is kept would keep what the frames hold that raised it."""
        return RankError(f"{before}{self.text}{behind}", rank=self.rank, op=self.op)

    def facts(self) -> dict[str, object]:
        """The same as plain data."""
        return {"text": self.text, "rank": self.rank, "op": self.op}


NO_KEY = Key(0, 0, "")
LEFT = Failure("this process has left the job", None, "")
FORKED = Failure("this process was forked off a rank, and is none; load the model here", None, "")


class Mail(abc.ABC):
    """The letters of one rank. Used by one thread at a time, which holds `using`.

    Attributes:
        rank: Which rank this is.
        size: How many there are.
        timeout: Seconds after which one that does not answer has failed.
        failure: What ended the job; None while it goes on.
        bytes_sent: What was sent so far, in letters.
        using: Held by the thread that uses it.
        lines: What the ranks exchange tensors by, for each device.
    """

    def __init__(self, rank: int, size: int, timeout: float) -> None:
        """Begin with nobody connected."""
        self.rank, self.size, self.timeout = rank, size, timeout
        self.failure: Failure | None = None
        self.bytes_sent = 0
        self.using = threading.RLock()
        self.lines: dict[str, Any] = {}
        self._peers = {other: Peer() for other in range(size) if other != rank}
        self._channels = 0
        self._runs: dict[int, int] = {}  # of each model
        self._failed: dict[tuple[int, int], Failure] = {}  # runs that a rank has given up, by model and number
        _all.add(self)

    def channel(self) -> int:
        """A number for one more model; all ranks open their models in the same order."""
        self._channels += 1
        self._runs[self._channels] = 0
        return self._channels

    def post(self, to: int, key: Key, array: np.ndarray, what: str) -> None:
        """Send an array; it may be changed afterwards.

        Raises:
            RankError: That rank, or another one, has failed.
        """
        self._check(what)
        if self._peers[to].gone:
            self._lose(to, what)
        self.bytes_sent += array.nbytes
        try:
            self._send(to, LETTER, key, _native(array), what)
        except OSError as error:
            self._pump(0.0)  # it may have said why
            self._raise_failure()
            self._peers[to].gone = self._peers[to].gone or f"died ({error.strerror or error})"
            self._lose(to, what)

    @contextlib.contextmanager
    def fetched(self, source: int, key: Key, what: str, *, timeout: float | None = None) -> Iterator[np.ndarray]:
        """The array that a rank sent, in its memory, which it gets back at the end.

        Args:
            source: The rank.
            key: Which letter.
            what: The op, for error texts.
            timeout: Seconds to wait; None for those of the job.

        Raises:
            RankError: It does not come.
        """
        letter = self._fetch(source, key, what, self.timeout if timeout is None else timeout)
        try:
            yield letter.array
        finally:
            letter.close()

    def has(self, source: int, key: Key) -> bool:
        """Whether a letter has come that nobody has read."""
        return key in self._peers[source].inbox

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Tell the others from time to time that this rank is alive, in work that may take long."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(max(LEAST_BEAT, self.timeout / 4)):
                self._notify(BUSY, {})

        self._notify(BUSY, {})
        beating = threading.Thread(target=beat, name="litehouse-rank-busy", daemon=True)
        beating.start()
        try:
            yield
        finally:
            ended.set()
            beating.join()

    def begin(self, channel: int) -> int:
        """The number of a run that begins; what is left of those before it is thrown away.

        A rank that needs nothing from others, as the first stage of a pipeline, waits here for those that lag behind.

        Raises:
            RankError: The job has ended.
        """
        self._check("")
        self._runs[channel] += 1
        run = self._runs[channel]
        if run % STEPS == 0:
            self._notify(STEP, {"channel": channel, "run": run})
        for peer in self._peers.values():
            for key in [key for key in peer.inbox if key.channel == channel and key.run < run]:
                for letter in peer.inbox.pop(key):
                    letter.close()
        for old in [old for old in self._failed if old[0] == channel and old[1] < run]:
            del self._failed[old]
        if run > AHEAD:
            for other in self._peers:
                self._await(other, functools.partial(self._is_near, other, channel, run), "an earlier run")
        return run

    def _is_near(self, other: int, channel: int, run: int) -> bool:
        """Whether a rank is not too far behind a run; what it said of itself may be some runs ago."""
        return self._peers[other].runs.get(channel, 0) + STEPS > run - AHEAD

    def stop(self, channel: int, run: int, error: BaseException, what: str) -> None:
        """Tell the others that this rank gives a run up; the job goes on with the next one."""
        if self.failure is None and (channel, run) not in self._failed:
            self._notify(FAIL, {**self._blame(error, what).facts(), "channel": channel, "run": run})
            self._flush()

    def fail(self, error: BaseException, what: str = "") -> None:
        """Tell the others that this rank cannot go on, and end the job here."""
        self._end(self._blame(error, what))

    def look(self) -> None:
        """Take what has come, so that the end of the job is known here, too."""
        if self.failure is None:
            self._pump(0.0)
            gone = [(other, peer.gone) for other, peer in self._peers.items() if peer.gone]
            if gone and self.failure is None:
                self._end(Failure(f"rank {gone[0][0]} {gone[0][1]}", gone[0][0], ""))

    def watch(self, start: float, what: str, told: float) -> float:
        """Look whether the job goes on, while something else than a letter is waited for.

        Args:
            start: Since when.
            what: The op, for error texts.
            told: When the others were last told so.

        Returns:
            When they were told.

        Raises:
            RankError: The job has ended, or nothing has happened for too long: a rank that has said nothing since is
                blamed for it.
        """
        now = time.monotonic()
        if self.failure is None:
            self._pump(0.0)
            for other, peer in self._peers.items():
                has_left = peer.gone == HAS_LEFT  # what is waited for may have been sent before
                if peer.gone and (not has_left or now - start > SOON):
                    self._end(Failure(f"rank {other} {peer.gone}{_at(what)}", other, what))
        self._raise_failure()
        since = max([start, *(peer.beat for peer in self._peers.values())])
        if now - since > self.timeout or now - start > MAX_BUSY * self.timeout:
            silent = [other for other, peer in self._peers.items() if now - peer.heard > self.timeout / 2]
            who = f"rank {silent[0]}" if silent else "the other ranks"
            text = f"{who} did not answer within {self.timeout:g} s{_at(what)}; if that is only slow, raise the timeout"
            self._end(Failure(f"{text} of the job", silent[0] if silent else None, what))
            self._raise_failure()
        if now - told < min(SOON, self.timeout / 8):
            return told
        self._notify(WAITING, {"for": None})
        return now

    def close(self) -> None:
        """Leave the job."""
        if self.failure is None:
            self.failure = LEFT
            self._notify(BYE, {})
            self._forget()

    def abandon(self) -> None:
        """This process was forked off, and is no rank: let the others learn of the end of the one that they know."""
        self.failure = self.failure or FORKED
        self.using = threading.RLock()
        self._abandon()

    def _fetch(self, source: int, key: Key, what: str, timeout: float) -> Letter:
        self._check(what)
        inbox = self._peers[source].inbox

        def has_come() -> bool:
            if key not in inbox and (key.channel, key.run) in self._failed:
                raise self._failed[key.channel, key.run].error()
            return key in inbox

        self._await(source, has_come, what, timeout)
        letter = inbox[key].popleft()
        if not inbox[key]:
            del inbox[key]
        return letter

    def _await(self, source: int, has_come: Callable[[], bool], what: str, timeout: float | None = None) -> None:
        """Take letters until what is waited for has come from a rank."""
        timeout = self.timeout if timeout is None else timeout
        start, has_told = time.monotonic(), False
        while not has_come():
            self._raise_failure()
            if self._peers[source].gone:
                self._lose(source, what)
            now = time.monotonic()
            # Who is waited for may wait in turn for one that is at work on something long.
            since = max(start, *(peer.beat for peer in self._peers.values()))
            if now - since > timeout or now - start > MAX_BUSY * timeout:
                self._give_up(source, what)
            if not has_told and now - start > min(SOON, timeout / 4):
                self._notify(WAITING, {"for": source})
                has_told = True
            self._pump(min(PAUSE, timeout / 8))
        if has_told:
            self._notify(WAITING, {"for": None})

    def _take(self, letter: Letter) -> None:
        """Note what has come."""
        peer = self._peers[letter.source]
        peer.heard = time.monotonic()
        if letter.kind == LETTER:
            peer.inbox.setdefault(letter.key, deque()).append(letter)
            return
        try:
            facts = json.loads(letter.array.tobytes())
            self._take_notice(letter, peer, facts)
        except MALFORMED as error:
            peer.gone = f"sent what is no letter ({error})"

    def _take_notice(self, letter: Letter, peer: Peer, facts: dict[str, Any]) -> None:
        if letter.kind == BUSY:
            peer.beat = time.monotonic()
        elif letter.kind == BYE:
            peer.gone = peer.gone or HAS_LEFT
        elif letter.kind == WAITING:
            peer.waits_for = None if facts["for"] is None else self._known(facts["for"])
        elif letter.kind == STEP:
            peer.runs[int(facts["channel"])] = int(facts["run"])
        elif letter.kind == FAIL:
            blamed = letter.source if facts["rank"] is None else self._known(facts["rank"])
            text, op = str(facts["text"])[:MAX_REASON], str(facts["op"])[:MAX_REASON]
            failure = Failure(text, blamed, op)
            if "run" in facts:
                self._failed[int(facts["channel"]), int(facts["run"])] = failure
            else:
                self._end(failure)
        else:
            raise ValueError(f"kind {letter.kind}")

    def _known(self, rank: object) -> int:
        if not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ValueError(f"there is no rank {rank}")
        return rank

    def _blame(self, error: BaseException, what: str) -> Failure:
        """What all ranks are told of an error."""
        text = (str(error).partition("\n")[0] or type(error).__name__)[:MAX_REASON]
        if isinstance(error, RankError):
            return Failure(text, error.rank, error.op)
        return Failure(f"rank {self.rank} failed{_at(what)}: {text}", self.rank, what)

    def _give_up(self, source: int, what: str) -> NoReturn:
        """The rank does not answer; it may wait for another one in turn."""
        blamed, seen = source, {self.rank}
        while blamed not in seen and (then := self._peers[blamed].waits_for) is not None and then not in seen:
            seen.add(blamed)
            blamed = then
        through = "" if blamed == source else f" (rank {source} waits for it, too)"
        text = f"rank {blamed} did not answer within {self.timeout:g} s{_at(what)}{through}; if it is only slow, "
        self._end(Failure(text + "raise the timeout of the job", blamed, what))
        self._raise_failure()
        raise AssertionError("the job has not ended")

    def _lose(self, source: int, what: str) -> NoReturn:
        self._end(Failure(f"rank {source} {self._peers[source].gone}{_at(what)}", source, what))
        self._raise_failure()
        raise AssertionError("the job has not ended")

    def _end(self, failure: Failure) -> None:
        if self.failure is None:
            self.failure = failure
            self._notify(FAIL, failure.facts())
            self._forget()

    def _forget(self) -> None:
        for peer in self._peers.values():
            peer.inbox.clear()
        self._close()

    def _raise_failure(self) -> None:
        if self.failure is not None:
            raise self.failure.error()

    def _check(self, what: str) -> None:
        if self.failure is not None:
            before = f"the job has ended{_at(what)}: "
            raise self.failure.error(before, "; load the model again, on all ranks")

    def _notify(self, kind: int, facts: dict[str, object]) -> None:
        """Tell all others something, as far as they can be reached."""
        array = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        for other, peer in self._peers.items():
            if not peer.gone:
                with contextlib.suppress(OSError):
                    self._send(other, kind, NO_KEY, array, "")

    @abc.abstractmethod
    def _send(self, to: int, kind: int, key: Key, array: np.ndarray, what: str) -> None:
        """Hand a letter over; raises OSError where the other one cannot be reached."""

    @abc.abstractmethod
    def _pump(self, seconds: float) -> None:
        """Take what has come, and wait for it so long at most."""

    def _flush(self) -> None:  # noqa: B027  (nothing where nothing is kept back)
        """Send what is kept back, as far as that is possible soon."""

    @abc.abstractmethod
    def _close(self) -> None:
        """Close what connects the ranks."""

    @abc.abstractmethod
    def _abandon(self) -> None:
        """Let go of what connects the ranks, in a process that was forked off."""


def _native(array: np.ndarray) -> np.ndarray:
    """The array in the byte order of this machine, in which all are sent."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _at(what: str) -> str:
    return f" in {printable(what)}" if what else ""


_all: weakref.WeakSet[Mail] = weakref.WeakSet()


def _after_fork() -> None:
    for mail in list(_all):
        mail.abandon()


os.register_at_fork(after_in_child=_after_fork)
