"""Torch's settings for all threads, while a model is captured."""

import contextlib
import threading

import pytest

import litehouse
from litehouse import Options
from litehouse.engines.torch.engine import TorchEngine
from onnx_models import mlp

torch = pytest.importorskip("torch")

from litehouse.engines.torch import program  # noqa: E402  (they need torch)
from litehouse.engines.torch.precision import computing  # noqa: E402
from litehouse.engines.torch.program import TorchRunner  # noqa: E402


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
    with computing("fp32"):
        assert settings() == (False, False, True)
    assert settings() == (True, True, False)


@pytest.mark.parametrize(("precision", "is_short"), [("fp32", False), ("fp16", False), ("tf32", True)])
def test_they_hold_in_all_that_a_gpu_is_given_to_do(
    precision: str, is_short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "stream_for", lambda *_, **__: object())
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    read = litehouse.read(mlp())
    made = TorchEngine().compile(read, Options(engine="torch", cache=False))
    made.place, made.precision = torch.device("cuda", 0), precision
    with TorchRunner(made)._at_work():
        assert settings() == (is_short, is_short, True)
    assert settings() == (True, True, False)


def test_what_a_program_asked_of_products_in_the_older_way_stays() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        for word in ("medium", "high", "highest"):
            torch.set_float32_matmul_precision(word)
            for precision in ("fp32", "tf32"):
                with computing(precision):
                    assert torch.get_float32_matmul_precision() == ("highest" if precision == "fp32" else "high")
                assert torch.get_float32_matmul_precision() == word
    finally:
        torch.set_float32_matmul_precision(before)


def test_what_a_program_asked_for_in_the_newer_way_stays() -> None:
    """Torch then refuses to tell what the older settings are. 32 bits are 32 bits, whatever they inherit."""
    kinds = [torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn]
    torch.backends.cuda.matmul.allow_tf32 = False
    before = [kind.fp32_precision for kind in kinds]
    try:
        for words in (("tf32", "ieee", "tf32"), ("ieee", "tf32", "ieee")):
            for kind, word in zip(kinds, words, strict=True):
                kind.fp32_precision = word
            for precision, inside in (("fp32", "ieee"), ("tf32", "tf32")):
                with computing(precision):
                    assert [kind.fp32_precision for kind in kinds] == [inside] * 3
                assert tuple(kind.fp32_precision for kind in kinds) == words
    finally:
        for kind, word in zip(kinds, before, strict=True):
            kind.fp32_precision = word


def test_they_hold_until_the_last_thread_has_gone() -> None:
    first_is_in, second_is_in, first_is_out = threading.Event(), threading.Event(), threading.Event()
    seen: list[tuple[bool, bool, bool]] = []

    def first() -> None:
        with computing("fp32"):
            first_is_in.set()
            second_is_in.wait(60)
        first_is_out.set()

    def second() -> None:
        first_is_in.wait(60)
        with computing("fp32"):
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
    with pytest.raises(RuntimeError, match="no"), computing("fp32"):
        raise RuntimeError("no")
    assert settings() == (True, True, False)


def test_another_setting_waits_for_its_turn() -> None:
    is_in, seen = threading.Event(), []

    def other() -> None:
        is_in.set()
        with computing("tf32"):
            seen.append(settings())

    thread = threading.Thread(target=other)
    with computing("fp32"):
        thread.start()
        is_in.wait(60)
        assert settings() == (False, False, True)
        assert not seen
    thread.join(60)
    assert seen == [(True, True, True)]
