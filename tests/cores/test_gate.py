"""The gate in front of the cores: never more inside than there are places, and who came first goes first."""

import threading
import time

import pytest

from litehouse.cores.gate import Gate

SECONDS = 600  # for what must happen: who waits longer hangs


def _wait_until(condition) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_never_more_inside_than_places() -> None:
    gate, lock, inside, most = Gate(3), threading.Lock(), 0, 0

    def work(count: int) -> None:
        nonlocal inside, most
        for _ in range(200):
            with gate.inside(count):
                with lock:
                    inside += count
                    most = max(most, inside)
                with lock:
                    inside -= count

    threads = [threading.Thread(target=work, args=(1 + place % 3,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert inside == 0
    assert 1 <= most <= 3
    assert gate._free == 3


def test_who_has_waited_goes_first_even_if_it_takes_more() -> None:
    gate, order = Gate(2), list[str]()

    def work(name: str, count: int) -> None:
        gate.enter(count)
        order.append(name)
        gate.leave(count)

    gate.enter()
    threads = []
    for name, count in (("large", 2), ("small", 1), ("other", 1)):
        threads.append(threading.Thread(target=work, args=(name, count)))
        threads[-1].start()
        _wait_until(lambda: len(gate._turns) == len(threads) and gate._turns[0].is_late())
    gate.leave()
    for thread in threads:
        thread.join(SECONDS)
    assert order[0] == "large"


def test_more_than_there_are_is_all_there_are() -> None:
    gate = Gate(2)
    with gate.inside(5):
        assert gate._free == 0
    assert gate._free == 2


def test_nobody_waits_for_ever_behind_those_who_return_at_once() -> None:
    gate, is_over, rounds = Gate(1), threading.Event(), list[int]()

    def hog() -> None:
        while not is_over.is_set():
            with gate.inside():
                pass

    hogs = [threading.Thread(target=hog) for _ in range(2)]
    for thread in hogs:
        thread.start()
    for number in range(50):
        with gate.inside():
            rounds.append(number)
    is_over.set()
    for thread in hogs:
        thread.join(SECONDS)
    assert len(rounds) == 50


@pytest.mark.parametrize("is_let_in", [False, True])
def test_a_wait_that_is_interrupted_takes_no_place(monkeypatch: pytest.MonkeyPatch, is_let_in: bool) -> None:
    gate = Gate(1)
    gate.enter()

    def interrupted(turn) -> None:
        if is_let_in:
            turn.since -= 1.0
            gate.leave()
            assert turn.is_inside
        raise KeyboardInterrupt

    monkeypatch.setattr(gate, "_wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        gate.enter()
    if not is_let_in:
        gate.leave()
    assert gate._free == 1
    assert not gate._turns
