"""Torch's settings for all threads, while a model is captured."""

import threading

import pytest

torch = pytest.importorskip("torch")

from litehouse.engines.torch.precision import exact  # noqa: E402  (it needs torch)


def settings() -> tuple[bool, bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark


@pytest.fixture(autouse=True)
def _allowed() -> None:
    before = settings()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = False
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before[:2]
    torch.backends.cudnn.benchmark = before[2]


def test_they_hold_inside_and_are_put_back() -> None:
    with exact():
        assert settings() == (False, False, True)
    assert settings() == (True, True, False)


def test_they_hold_until_the_last_thread_has_gone() -> None:
    first_is_in, second_is_in, first_is_out = threading.Event(), threading.Event(), threading.Event()
    seen: list[tuple[bool, bool, bool]] = []

    def first() -> None:
        with exact():
            first_is_in.set()
            second_is_in.wait(60)
        first_is_out.set()

    def second() -> None:
        first_is_in.wait(60)
        with exact():
            second_is_in.set()
            first_is_out.wait(60)
            seen.append(settings())

    threads = [threading.Thread(target=each) for each in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert seen == [(False, False, True)]
    assert settings() == (True, True, False)


def test_they_are_put_back_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="no"), exact():
        raise RuntimeError("no")
    assert settings() == (True, True, False)
