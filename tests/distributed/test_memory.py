"""What a process of the same user could send to a rank that is no letter: an error that names the rank, and no harm."""

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from distributed.jobs import PATIENCE, in_all
from litehouse.distributed import memory
from litehouse.distributed.mail import BUSY, FAIL, LETTER, WAITING, Key
from litehouse.distributed.memory import DROP, HEAD, HELLO, MAGIC, MemoryMail
from litehouse.errors import RankError

KEY = Key(1, 1, "x")


@contextmanager
def stranger() -> Iterator[tuple[MemoryMail, socket.socket]]:
    """Rank 0, and the end of a socket that it takes for rank 1."""
    job, made = uuid.uuid4().hex, list[MemoryMail]()
    thread = threading.Thread(target=lambda: made.append(MemoryMail(0, 2, job, PATIENCE)))
    thread.start()
    with _connected(job) as line:
        line.send(HELLO.pack(MAGIC, 1, 2))
        assert HELLO.unpack(line.recv(HELLO.size)) == (MAGIC, 0, 2)
        thread.join(PATIENCE)
        try:
            yield made[0], line
        finally:
            made[0].close()


def _connected(job: str) -> socket.socket:
    deadline = time.monotonic() + PATIENCE
    while True:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            line.connect(memory._address(job, 0))
            return line
        except ConnectionRefusedError:
            line.close()
            assert time.monotonic() < deadline
            time.sleep(0.01)


def head(kind: int, *, dims: tuple[int, ...] = (), block: int = 0, nbytes: int = 0, dtype: bytes = b"int32") -> bytes:
    numbers = b"".join(size.to_bytes(8, "little") for size in dims)
    return HEAD.pack(kind, len(dims), len(dtype), 1, 0, 1, 1, block, nbytes) + numbers + dtype + b"x"


def unsealed(line: socket.socket) -> None:
    """Memory whose size can be changed while it is read."""
    descriptor = os.memfd_create("unsealed")
    os.truncate(descriptor, 4096)
    socket.send_fds(line, [head(LETTER, dims=(4,), block=1, nbytes=16)], [descriptor])
    os.close(descriptor)


def _no_memory(line: socket.socket) -> None:
    with open("/dev/null") as file:
        socket.send_fds(line, [head(LETTER, dims=(4,), block=1, nbytes=16)], [file.fileno()])


LIES: dict[str, Callable[[socket.socket], object]] = {
    "noise": lambda line: line.send(b"\xff" * 300),
    "too short": lambda line: line.send(b"\x00\x01"),
    "bytes that are not there": lambda line: line.send(head(LETTER, dims=(1 << 40,), nbytes=4 << 40)),
    "bytes and shape differ": lambda line: line.send(head(LETTER, dims=(4,), nbytes=4)),
    "a product that overflows": lambda line: line.send(head(LETTER, dims=(1 << 62, 4), nbytes=0)),
    "a block that nobody sent": lambda line: line.send(head(LETTER, dims=(4,), block=7, nbytes=16)),
    "a block given back that was never lent": lambda line: line.send(HEAD.pack(1, 0, 0, 0, 0, 0, 0, 3, 0)),
    "a block dropped that was never lent": lambda line: line.send(HEAD.pack(DROP, 0, 0, 0, 0, 0, 0, 3, 0)),
    "objects": lambda line: line.send(head(LETTER, dims=(1,), nbytes=8, dtype=b"object") + b"\x00" * 8),
    "an unknown dtype": lambda line: line.send(head(LETTER, dims=(1,), nbytes=8, dtype=b"float3")),
    "memory that is not sealed": unsealed,
    "a failure that is no JSON": lambda line: line.send(head(FAIL, dims=(2,), nbytes=2, dtype=b"uint8") + b"{{"),
    "a wait for a rank that there is not": lambda line: line.send(
        head(WAITING, dims=(10,), nbytes=10, dtype=b"uint8") + b'{"for":99}'
    ),
    "a descriptor that is no memory": lambda line: _no_memory(line),
    "a failure without a rank": lambda line: line.send(head(FAIL, dims=(2,), nbytes=2, dtype=b"uint8") + b"{}"),
}


@pytest.mark.parametrize("lie", LIES)
def test_what_is_no_letter_ends_the_connection(lie: str) -> None:
    with stranger() as (mail, line):
        LIES[lie](line)
        with (
            pytest.raises(RankError, match="rank 1 sent what is no letter") as caught,
            mail.fetched(1, KEY, "AllReduce"),
        ):
            pass
        assert caught.value.rank == 1


def test_a_letter_that_is_one_is_read() -> None:
    """So that the lies above fail for what they lie about."""
    with stranger() as (mail, line):
        line.send(head(BUSY, dims=(2,), nbytes=2, dtype=b"uint8") + b"{}")
        line.send(head(LETTER, dims=(2,), nbytes=8) + np.array([3, 4], np.int32).tobytes())
        with mail.fetched(1, KEY, "AllReduce") as array:
            np.testing.assert_array_equal(array, [3, 4])


def test_who_does_not_greet_does_not_take_the_place_of_a_rank() -> None:
    job, made = uuid.uuid4().hex, list[MemoryMail]()
    first = threading.Thread(target=lambda: made.append(MemoryMail(0, 2, job, PATIENCE)))
    first.start()
    with _connected(job) as noise:
        noise.send(b"GET / HTTP/1.1")
        second = MemoryMail(1, 2, job, PATIENCE)
        first.join(PATIENCE)
        assert made[0].size == 2
        second.close()
        made[0].close()


def test_a_rank_of_a_job_of_another_size_is_told() -> None:
    job, errors = uuid.uuid4().hex, list[RankError]()

    def begin() -> None:
        try:
            MemoryMail(0, 2, job, PATIENCE)
        except RankError as error:
            errors.append(error)

    thread = threading.Thread(target=begin)
    thread.start()
    with pytest.raises(RankError, match="rank 0 is one of 2 ranks, rank 1 one of 3"):
        MemoryMail(1, 3, job, PATIENCE)
    thread.join(PATIENCE)
    assert "rank 1 is one of 3 ranks" in str(errors[0])


def _pair() -> list[MemoryMail]:
    """Two ranks, both here."""
    job = uuid.uuid4().hex
    return in_all(2, lambda rank: MemoryMail(rank, 2, job, PATIENCE))


def test_what_was_sent_before_leaving_is_read() -> None:
    """Also when the one that left had not read everything."""
    found = _pair()
    for number in range(5):
        found[0].post(1, Key(1, number, "x"), np.full(20_000, number), "Send")
    found[1].post(0, KEY, np.zeros(3), "Send")  # nobody reads it
    found[0].close()
    for number in range(5):
        with found[1].fetched(0, Key(1, number, "x"), "Receive") as array:
            assert array[0] == number
    with pytest.raises(RankError, match="rank 0 left the job"), found[1].fetched(0, Key(1, 9, "x"), "Receive"):
        pass


def test_the_first_cause_is_told_where_the_connection_is_closed_already() -> None:
    found = _pair()
    found[0].fail(RankError("rank 0 has seen it", rank=0, op="AllReduce"))
    with pytest.raises(RankError, match="rank 0 has seen it"):
        found[1].post(0, KEY, np.zeros(3), "Send")


def test_the_name_of_a_rank_in_the_hand_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    job = uuid.uuid4().hex
    with memory._listener(job, 0, 2):
        monkeypatch.setattr(memory, "_user", lambda _: os.geteuid() + 1)
        with pytest.raises(RankError, match=r"rank 0 of 2 did not begin within 0\.3 s"):
            MemoryMail(1, 2, job, 0.3)


def test_a_forked_process_is_no_rank_and_keeps_no_line_open() -> None:
    with stranger() as (mail, line):
        child = os.fork()
        if not child:
            os._exit(0 if mail.failure is not None and "forked" in str(mail.failure) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        line.send(head(LETTER, dims=(2,), nbytes=8) + np.array([3, 4], np.int32).tobytes())
        with mail.fetched(1, KEY, "AllReduce") as array:
            assert array[0] == 3
