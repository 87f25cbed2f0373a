"""What a program has told torch for its own work changes nothing of what a network computes, then and later.

Truth is numpy's.
"""

import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import pytest

import litehouse
from litehouse import device
from litehouse.apart import unwarned
from onnx_models import model, node

torch = pytest.importorskip("torch")


def numbers(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f")


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextmanager
def default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float16)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


TOLD: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a device": default_device,
    "a device for a while": lambda: torch.device("meta"),
    "a dtype": default_dtype,
}


@pytest.mark.parametrize("when", ["load", "run", "update"])
@pytest.mark.parametrize("what", TOLD)
def test_what_torch_was_told(what: str, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    shape, weights = numbers(0, 4, 8), {"w": numbers(1, 8, 8), "v": numbers(2, 8, 8)}
    nodes = [node("MatMul", "w v", "p"), node("MatMul", "x p", "m"), node("Relu", "m", "r")]
    nodes += [node("Shape", "r", "s"), node("ConstantOfShape", "s", "z"), node("Add", "r z", "y")]
    data = model(nodes, {"x": ["n", 8]}, {"y": ["n", 8], "z": ["n", 8]}, weights)

    def told(now: str) -> AbstractContextManager[None]:
        return TOLD[what]() if now == when else nullcontext()

    with told("load"):
        session = litehouse.load(data, device="gpu", engine="torch", updatable=["w", "v"], tune="off", cache=False)
    place = torch.zeros(shape.shape)
    for turn in range(3):
        for seed in range(4):
            x = numbers(10 + seed, 4, 8)
            place.copy_(torch.from_numpy(x))
            expected = np.maximum(x @ (weights["w"] @ weights["v"]), 0)
            with told("run") if turn < 2 else nullcontext():
                found = session.run([x]), session.run([place])
            for actual, zeros in found:
                np.testing.assert_allclose(np.asarray(actual), expected, rtol=1e-4, atol=1e-4)
                assert np.asarray(zeros).dtype == np.float32
        weights["w"] = numbers(20 + turn, 8, 8)
        with told("update"):
            session.update_weights({"w": weights["w"]})


@pytest.mark.parametrize("what", TOLD)
def test_memory_of_a_device(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    with TOLD[what]():
        memory, pinned = device.zeros("gpu:0", (2, 3), "float32"), device.pinned_zeros("gpu:0", 4)
        memory[...] = numbers(3, 2, 3)
        np.testing.assert_array_equal(memory.copy(), numbers(3, 2, 3))
    memory[...] = numbers(4, 2, 3)
    np.testing.assert_array_equal(memory.copy(), numbers(4, 2, 3))
    assert pinned.tolist() == [0] * 4


def test_warnings_that_another_thread_filters_meanwhile() -> None:
    """Its filters go when it ends, and those that were there before it are there again."""
    before, other = list(warnings.filters), warnings.catch_warnings()
    other.__enter__()
    warnings.simplefilter("ignore")
    with unwarned("of ours"):
        other.__exit__(None, None, None)
    assert list(warnings.filters) == before


def test_warnings_that_another_thread_filters_longer() -> None:
    """It puts back what was there when it began, which was while ours were there."""
    before, other = list(warnings.filters), warnings.catch_warnings()
    with unwarned("of ours"):
        other.__enter__()
    other.__exit__(None, None, None)
    assert list(warnings.filters) == before


def test_two_threads_leave_the_same_warnings_out() -> None:
    own = ("ignore", re.compile("of ours", re.IGNORECASE), Warning, None, 0)
    first, second = unwarned("of ours"), unwarned("of ours")
    with warnings.catch_warnings():
        warnings.resetwarnings()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert list(warnings.filters) == [own]
        second.__exit__(None, None, None)
        assert list(warnings.filters) == []


def test_warnings_that_are_left_out() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with unwarned("of ours", "and ours"):
            for text in ("of ours, and more", "and ours", "of others"):
                warnings.warn(text, stacklevel=1)
        warnings.warn("of ours", stacklevel=1)
    assert [str(each.message) for each in told] == ["of others", "of ours"]
