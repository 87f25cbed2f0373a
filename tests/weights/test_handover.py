"""The exchange between the process that offers memory and those that ask for it."""

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from litehouse import WeightError
from litehouse.weights import handover
from litehouse.weights.handover import ANSWERED, MAGIC, Asker, Offer

SECONDS = 60  # for what must happen: who waits longer hangs


@pytest.fixture
def offer() -> Iterator[Offer]:
    made = Offer(_answer, "a model")
    yield made
    made.close()


def _answer() -> Any:
    descriptor = os.memfd_create("test")
    os.write(descriptor, b"memory")
    return {"number": 7}, [descriptor]


def _connect(offer: Offer) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(SECONDS)
    connection.connect(handover._address(offer.handle))
    return connection


def test_who_asks_gets_the_memory(offer: Offer) -> None:
    before = len(os.listdir("/proc/self/fd"))
    asker = Asker(offer.handle)
    assert asker.pid == os.getpid()
    for _ in range(3):
        facts, (descriptor,) = asker.ask()
        assert facts["number"] == 7
        assert os.pread(descriptor, 10, 0) == b"memory"
        os.close(descriptor)
    asker.close()
    deadline = time.monotonic() + SECONDS
    while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_name_of_the_socket_does_not_tell_the_handle(offer: Offer) -> None:
    with open("/proc/net/unix") as lines:
        listed = lines.read()
    assert handover._address(offer.handle)[1:].decode() in listed
    assert str(offer.handle) not in listed
    assert f"{offer.handle:x}" not in listed


def test_handles_differ() -> None:
    offers = [Offer(_answer, "a model") for _ in range(5)]
    assert len({offer.handle for offer in offers}) == 5
    for offer in offers:
        offer.close()


@pytest.mark.parametrize("words", [b"", b"LH", b"nonsense" * 100, MAGIC + b"\0" * 8])
def test_those_who_ask_wrongly_or_never_end_hold_nobody_up(offer: Offer, words: bytes) -> None:
    with _connect(offer) as connection:
        connection.sendall(words)
        asker = Asker(offer.handle)
        os.close(asker.ask()[1][0])
        asker.close()
        if len(words) >= handover.ASKED.size:  # it was told off
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(100) == b""
            return
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):  # it is heard yet, so nobody waited until it was given up
            connection.recv(100)
        offer.close()  # does not wait for it either
        assert connection.recv(100) == b""


def test_strangers_are_refused_before_they_say_anything(offer: Offer, monkeypatch: Any, caplog: Any) -> None:
    real = handover.peer
    monkeypatch.setattr(handover, "peer", lambda _: (1, os.getuid()))
    silent = [_connect(offer) for _ in range(20)]
    with pytest.raises(WeightError, match="process 1 is not in the list of those that may have them"):
        Asker(offer.handle).ask()
    monkeypatch.setattr(handover, "peer", real)
    asker = Asker(offer.handle)
    os.close(asker.ask()[1][0])  # they do not hold anybody up
    asker.close()
    assert caplog.text.count("a model: refused to share the weights: process 1") == len(silent) + 1
    for connection in silent:
        connection.close()


def _fake(answers: list[bytes]) -> tuple[int, threading.Thread]:
    """Somebody who answers something else."""
    handle = int.from_bytes(os.urandom(7), "big") + 1
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(handover._address(handle))
    listener.listen()

    def serve() -> None:
        with listener, listener.accept()[0] as connection:
            connection.recv(100)
            for answer in answers:
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    return handle, thread


@pytest.mark.parametrize(
    "answers",
    [
        [],
        [b"LHW1"],
        [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
        [ANSWERED.pack(MAGIC, 2**31)],
        [ANSWERED.pack(MAGIC, 4), b"{..."],
        [ANSWERED.pack(MAGIC, 100), b"{}"],
        [ANSWERED.pack(MAGIC, 20), json.dumps({"descriptors": 3}).encode().ljust(20)],
        [ANSWERED.pack(MAGIC, 2), b"[]"],
    ],
    ids=range(8),
)
def test_wrong_answers_are_told(answers: list[bytes]) -> None:
    handle, thread = _fake(answers)
    asker = Asker(handle)
    with pytest.raises(WeightError, match="which offered the weights, does not answer"):
        asker.ask()
    asker.close()
    thread.join(SECONDS)


def test_an_offer_is_closed_once(offer: Offer) -> None:
    asker = Asker(offer.handle)
    offer.close()
    offer.close()
    with pytest.raises(WeightError, match="does not answer"):
        asker.ask()
    asker.close()
    with pytest.raises(WeightError, match="nobody offers"):
        Asker(offer.handle)
