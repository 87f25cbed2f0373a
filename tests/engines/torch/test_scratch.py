"""Where the scratch memory of products that are captured comes from, with stand-ins for pools of a GPU."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from litehouse.engines.torch import scratch  # noqa: E402  (it needs torch)


@pytest.fixture
def notes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens, in order."""
    found: list[str] = []
    pools: list[object] = []

    @contextlib.contextmanager
    def use(pool: Any, place: Any) -> Iterator[None]:
        found.append(f"pool {pools.index(pool)} on {place}")
        yield
        found.append("end")

    def made() -> object:
        pools.append(object())
        return pools[-1]

    monkeypatch.setattr(scratch, "_pools", {})
    monkeypatch.setattr(torch.cuda, "MemPool", made)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", use)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: "native")
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: found.append("room"))
    monkeypatch.setattr(torch.cuda, "current_blas_handle", lambda: found.append("handle"))
    monkeypatch.setattr(torch, "addmm", lambda *_, out: found.append(f"addmm on {out.device.type}"))
    return found


def test_it_comes_from_a_pool_that_is_never_let_go_of(notes: list[str]) -> None:
    """For each GPU one; torch makes no room for what comes from a pool."""
    for place in ("cpu:0", "cpu:0", "meta:1"):
        scratch.take_scratch(torch.device(place))
    on_cpu = ["room", "pool 0 on cpu:0", "handle", "addmm on cpu", "end"]
    assert notes == [*on_cpu, *on_cpu, "room", "pool 1 on meta:1", "handle", "addmm on meta", "end"]


@pytest.mark.parametrize("backend", ["cudaMallocAsync", "pluggable"])
def test_some_allocators_have_no_pools(backend: str, notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken all the same: what they give while something is captured belongs to that."""

    def refuse() -> None:
        raise RuntimeError(f"{backend} does not yet support createOrIncrefPool.")

    monkeypatch.setattr(torch.cuda, "MemPool", refuse)
    monkeypatch.setattr(torch.cuda, "get_allocator_backend", lambda: backend)
    scratch.take_scratch(torch.device("cpu"))
    assert notes == ["handle", "addmm on cpu"]


ENDING = """
import contextlib, torch
from litehouse.engines.torch import scratch

class Pool:
    def __del__(self):
        print("destroyed")

torch.cuda.MemPool, torch.cuda.get_allocator_backend = Pool, lambda: "native"
torch.cuda.use_mem_pool = lambda *_: contextlib.nullcontext()
torch.cuda.empty_cache = torch.cuda.current_blas_handle = lambda: None
scratch.take_scratch(torch.device("cpu"))
print("taken")
"""


def test_the_pool_is_not_destroyed_when_the_process_ends() -> None:
    """Torch's pools cannot be while a thread captures, or behind an error of the GPU: the process would be aborted."""
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "taken\n"
