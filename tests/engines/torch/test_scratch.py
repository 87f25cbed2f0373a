"""Where the scratch memory of products that are captured comes from, with stand-ins for pools of a GPU."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from litehouse.engines.torch import scratch  # noqa: E402  (it needs torch)


def test_it_comes_from_a_pool_that_is_never_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    @contextlib.contextmanager
    def use(pool: Any, place: Any) -> Iterator[None]:
        notes.append(f"pool {pools.index(pool)} on {place}")
        yield
        notes.append("end")

    def made() -> object:
        pools.append(object())
        return pools[-1]

    def noted(name: str) -> Any:
        return lambda *given, out: notes.append(f"{name} on {out.device.type}")

    pools: list[object] = []
    monkeypatch.setattr(scratch, "_pools", {})
    monkeypatch.setattr(torch.cuda, "MemPool", made)
    monkeypatch.setattr(torch.cuda, "use_mem_pool", use)
    for name in ("mm", "addmm"):
        monkeypatch.setattr(torch, name, noted(name))
    for place in ("cpu:0", "cpu:0", "meta:1"):
        scratch.take_scratch(torch.device(place))
    on_cpu = ["pool 0 on cpu:0", "mm on cpu", "addmm on cpu", "end"]
    assert notes == [*on_cpu, *on_cpu, "pool 1 on meta:1", "mm on meta", "addmm on meta", "end"]
