"""What connects ranks that exchange tensors: which kind it is, and how it ends. NCCL is a stand-in here."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace
from typing import Any

import pytest

from distributed.jobs import in_all, mails
from distributed.test_program import halves
from litehouse.distributed import ranked
from litehouse.distributed.local import LocalMail
from litehouse.errors import EngineError, RankError
from litehouse.options import Job, Options

torch = pytest.importorskip("torch")
from litehouse.distributed import lines as lines_  # noqa: E402  (imports torch)

CUDA = torch.device("cuda", 0)


class Group:
    """A process group of NCCL, as far as it is used."""

    def __init__(self, store: Any, rank: int, size: int, options: Any) -> None:
        self.store, self.options, self._rank, self.size = store, options, rank, size
        self.environment = {name: os.environ.get(name) for name in lines_.SETTINGS}
        self.calls: list[str] = []

    def rank(self) -> int:
        return self._rank

    def eager_connect_single_device(self, device: Any) -> None:
        self.calls.append(f"connect {device}")

    def _allgather_base(self, out: Any, data: Any, options: Any) -> Any:
        assert options.asyncOp is False  # on the current stream
        out.copy_(data.repeat(self.size))
        self.calls.append("gather")
        return SimpleNamespace(wait=lambda: self.calls.append("wait"))

    def abort(self) -> None:
        self.calls.append("abort")

    def shutdown(self) -> None:
        self.calls.append("shutdown")


class Stream:
    """A stream that is done, or never."""

    is_done = True

    def query(self) -> bool:
        return self.is_done


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    """Lets NCCL be there, on a stream."""
    monkeypatch.setenv("NCCL_GRAPH_REGISTER", "0")  # and away again behind the test
    Group.Options = SimpleNamespace  # type: ignore[attr-defined]
    made = Stream()
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", Group, raising=False)
    monkeypatch.setattr(torch.cuda, "set_device", lambda _: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: made)
    real = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *a, device=None, **k: real(*a, **k))
    return made


def test_the_kind_follows_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_.backend_for(torch.device("cpu")) == "gloo"
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert lines_.backend_for(CUDA) == "nccl"
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: False)
    with pytest.raises(EngineError, match="need a torch that is built with nccl"):
        lines_.backend_for(CUDA)


def test_a_card_is_known_by_its_machine_and_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda place: SimpleNamespace(uuid=f"card-{place.index}"))
    assert lines_.card_of(CUDA, "here") == "here/card-0"
    assert lines_.card_of(torch.device("cpu"), "here") == ""


def test_two_ranks_on_one_card_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_, "card_of", lambda *_: "here/card-7")
    models = halves(3)
    with mails("local", 3) as world:

        def one(rank: int) -> RankError:
            with pytest.raises(RankError) as caught:
                ranked.build_ranked(models[rank], Options(engine="torch"), mail=world[rank])
            return caught.value

        for error in in_all(3, one):
            assert "are on one GPU (card-7), which NCCL does not support" in str(error)
            assert "context.gpu.device_id = context.gpu.rank_id" in str(error)
            assert error.rank in (0, 1, 2)


def test_nccl_is_set_to_leave_the_process_alone(stream: Stream) -> None:
    before = dict(os.environ) | lines_.LASTING
    (mail,) = LocalMail.world(1, 7.0)
    made = lines_.Lines(mail, CUDA, "127.0.0.1")
    (line,) = made.open([(0,)], 1).values()
    assert dict(os.environ) == before
    assert line.group.environment == lines_.SETTINGS
    assert line.group.environment["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0"
    assert line.group.calls == ["connect cuda:0", "gather", "wait"]
    assert line.group.options._timeout.total_seconds() > 7.0  # it is found out here before
    group = line.group
    made.leave()
    assert group.calls[-1] == "shutdown"


def test_a_stream_that_does_not_end_is_given_up(stream: Stream) -> None:
    mail, _ = LocalMail.world(2, 0.5)
    made = lines_.Lines(mail, CUDA, "127.0.0.1")
    made._store = torch.distributed.HashStore()
    line = made.open([(0, 1)], 1)[0, 1]
    group, dropped = line.group, []

    class User:
        def drop(self) -> None:
            dropped.append(self)

    user = User()
    made.users.add(user)
    stream.is_done = False
    begin = time.monotonic()
    with pytest.raises(RankError, match=r"rank 1 did not answer within 0.5 s in a run") as caught:
        made.finish("a run")
    assert time.monotonic() - begin < 5
    assert caught.value.rank == 1
    assert group.calls[-1] == "abort"
    assert dropped == [user]
    with pytest.raises(RankError, match="the job has ended"):
        line.all_gather(torch.zeros(1, dtype=torch.uint8))
    with pytest.raises(RankError, match="the job has ended"):
        mail.begin(1)


def test_what_torch_says_becomes_an_error_between_ranks(stream: Stream) -> None:
    (mail,) = LocalMail.world(1, 0.3)
    made = lines_.Lines(mail, CUDA, "127.0.0.1")
    line = made.open([(0,)], 1)[0,]

    def fail(*_: object) -> None:
        raise RuntimeError("[file.cpp:7] NCCL error: unhandled system error\nmore")

    line.group._allgather_base = fail
    with pytest.raises(RankError, match="torch lost the other ranks in an exchange of the ranks 0: NCCL error"):
        line.all_gather(torch.zeros(1, dtype=torch.uint8))
    assert made.is_closed


def test_lines_are_those_of_the_mail() -> None:
    first, second = LocalMail.world(1)[0], LocalMail.world(1)[0]
    cpu = torch.device("cpu")
    assert lines_.open_lines(first, cpu, "127.0.0.1") is lines_.open_lines(first, cpu, "127.0.0.1")
    assert lines_.open_lines(first, cpu, "127.0.0.1") is not lines_.open_lines(second, cpu, "127.0.0.1")
    lines_.open_lines(first, cpu, "127.0.0.1").abort()
    assert not lines_.open_lines(first, cpu, "127.0.0.1").is_closed


def test_two_ranks_over_gloo() -> None:
    world = LocalMail.world(2, Job().timeout)

    def one(rank: int) -> list[int]:
        made = lines_.Lines(world[rank], torch.device("cpu"), "127.0.0.1")
        line = made.open([(0, 1)], 1)[0, 1]
        found: list[int] = line.all_gather(torch.full((2,), rank, dtype=torch.uint8)).tolist()
        return found

    assert in_all(2, one) == [[0, 0, 1, 1]] * 2
