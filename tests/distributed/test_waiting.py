"""Who is blamed when ranks wait for each other, and who is waited for."""

import threading
import time

import numpy as np
import pytest

from distributed.jobs import PATIENCE, in_all
from litehouse.distributed.local import LocalMail
from litehouse.distributed.mail import Key
from litehouse.errors import RankError

LOOKS = 50000  # of which one in ten thousand did not end
SHORT = 6.0  # seconds of a timeout that a test must wait for


def test_who_waits_for_one_that_waits_blames_the_last() -> None:
    """Rank 0 hangs; each of the others waits for the one before it."""
    world = LocalMail.world(4, SHORT)

    def one(rank: int) -> RankError | None:
        if rank == 0:
            return None
        with pytest.raises(RankError) as caught, world[rank].fetched(rank - 1, Key(1, 1, "x"), f"Receive of {rank}"):
            pass
        return caught.value

    for error in in_all(4, one)[1:]:
        assert error.rank == 0
        assert f"rank 0 did not answer within {SHORT:g} s" in str(error)


def test_a_wait_that_is_over_blames_nobody() -> None:
    """Rank 1 waits for rank 0, gets its letter, and then hangs: rank 0 is not to blame."""
    world = LocalMail.world(3, SHORT)

    def one(rank: int) -> RankError | None:
        if rank == 0:
            time.sleep(SHORT / 2)  # so long that rank 1 says whom it waits for
            world[0].post(1, Key(1, 1, "x"), np.zeros(1), "Send")
        elif rank == 1:
            with world[1].fetched(0, Key(1, 1, "x"), "Receive"):
                pass
        else:
            with pytest.raises(RankError) as caught, world[2].fetched(1, Key(1, 1, "y"), "Receive"):
                pass
            return caught.value
        return None

    error = in_all(3, one)[2]
    assert error is not None
    assert error.rank == 1


def test_one_that_is_at_work_is_waited_for() -> None:
    """Rank 0 builds something for longer than the timeout; rank 1 waits for it, and rank 2 for rank 1."""
    world = LocalMail.world(3, SHORT)

    def one(rank: int) -> None:
        if rank == 0:
            with world[0].busy():
                time.sleep(SHORT * 1.5)
        else:
            with world[rank].fetched(rank - 1, Key(1, 1, "x"), "Receive"):
                pass
        if rank < 2:
            world[rank].post(rank + 1, Key(1, 1, "x"), np.zeros(1), "Send")

    in_all(3, one)


def test_a_look_at_the_mail_ends() -> None:
    """Python's queue may wait for ever where its time is up before it begins to wait."""

    def look() -> None:
        for _ in range(LOOKS):
            LocalMail.world(1, PATIENCE)[0]._pump(0.0)

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(PATIENCE)
    assert not looking.is_alive()


def test_what_ended_a_job_is_told_again_by_a_new_error() -> None:
    """One that is kept would keep the arrays of the run that failed."""
    world = LocalMail.world(2, PATIENCE)
    world[0].fail(RankError("rank 1 is broken", rank=1, op="AllReduce"))
    errors = []
    for _ in range(2):
        with pytest.raises(
            RankError, match="the job has ended in Send: rank 1 is broken; load the model again"
        ) as caught:
            world[0].post(1, Key(1, 1, "x"), np.zeros(1), "Send")
        errors.append(caught.value)
    assert errors[0] is not errors[1]
    assert [error.rank for error in errors] == [1, 1]
