"""Models with exchanges, run by all of their ranks in threads of this process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest

import litehouse
from conftest import ZOO, assert_close
from distributed.jobs import PATIENCE, in_all, mails, part, ranks_op
from litehouse.builds import Loaded
from litehouse.distributed import ranked
from litehouse.distributed.mail import AHEAD, STEPS
from litehouse.distributed.ranked import build_ranked
from litehouse.distributed.together import Together, run_together
from litehouse.engines import select
from litehouse.errors import EngineError, RankError
from litehouse.live import settle
from litehouse.model import Model, State
from litehouse.options import Job, Options
from litehouse.weights import Weights
from onnx_models import node

WIDE = 24


def weights(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f")


def halves(count: int = 2, batch: int | str = 3, **changes: Any) -> list[Model]:
    """A network of two layers, its inner width divided among the ranks."""
    w, v = weights(1, 4, WIDE), weights(2, WIDE, 5)
    nodes = [
        node("MatMul", "x w", "a"),
        node("Relu", "a", "r"),
        node("MatMul", "r v", "p"),
        ranks_op("AllReduce", "p", "s", rank_size=count),
        node("Add", "s c", "y"),
    ]
    found = []
    for rank in range(count):
        mine = slice(rank * WIDE // count, (rank + 1) * WIDE // count)
        own = {"w": w[:, mine], "v": v[mine], "c": np.ones(5, "f")}
        own = {name: np.ascontiguousarray(array) for name, array in own.items()}
        between = {"p": [batch, 5], "s": [batch, 5]}
        found.append(part(nodes, {"x": [batch, 4]}, {"y": [batch, 5]}, own, between, path=f"rank_{rank}.onnx"))
    return [replace(model, **changes) for model in found]


def whole(x: np.ndarray, w: np.ndarray | None = None) -> np.ndarray:
    w = weights(1, 4, WIDE) if w is None else w
    return np.maximum(x @ w, 0) @ weights(2, WIDE, 5) + 1


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_ranks_compute_what_one_would(count: int) -> None:
    x = weights(7, 3, 4)
    for (result,) in run_together(halves(count), [x]):
        assert_close(result, whole(x))


def test_on_each_engine(engine: str) -> None:
    x = weights(7, 3, 4)
    for (result,) in run_together(halves(), [x], Options(engine=engine)):
        assert_close(result, whole(x))


def test_a_branch_behind_an_exchange_reads_what_is_outside_of_it() -> None:
    info = onnx.helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, [2])
    added = onnx.helper.make_graph([node("Add", "b w", "inner")], "added", [], [info])
    taken = onnx.helper.make_graph([node("Sub", "b x", "inner")], "taken", [], [info])
    nodes = [
        ranks_op("AllReduce", "x", "b"),
        node("ReduceMax", "b", "most", keepdims=0),
        node("Greater", "most limit", "c"),
        onnx.helper.make_node("If", ["c"], ["y"], "branch", then_branch=added, else_branch=taken),
    ]
    arrays = {"w": np.full(2, 7, "f"), "limit": np.array(10, "f")}
    for x, expected in ([1.0, 2.0], [1.0, 2.0]), ([8.0, 1.0], [23.0, 9.0]):
        models = [part(nodes, {"x": [2]}, {"y": [2]}, arrays, {"b": [2]}) for _ in range(2)]
        for (result,) in run_together(models, [np.array(x, "f")]):
            np.testing.assert_array_equal(result, np.array(expected, "f"))


@pytest.mark.zoo
@pytest.mark.skipif(not ZOO.exists(), reason="the model zoo is not beside the checkout")
@pytest.mark.parametrize("name", ["alltoall", "pipeline", "tp_allgather", "tp_mlp", "tp_reducescatter"])
def test_pairs_that_mindspore_exported(name: str) -> None:
    folder = ZOO / "distributed" / name
    models = [litehouse.read(folder / f"rank_{rank}.mindir") for rank in range(2)]

    def stored(kind: str) -> list[list[np.ndarray]]:
        return [[np.load(path) for path in sorted(folder.glob(f"rank_{rank}_{kind}_*.npy"))] for rank in range(2)]

    together = Together(models)
    found = together.run(stored("input"))
    together.close()
    for rank, expected in enumerate(stored("output")):
        assert len(expected) == len(found[rank])
        for actual, wanted in zip(found[rank], expected, strict=True):
            assert_close(actual, wanted)


def test_short_floats_between_segments() -> None:
    """bfloat16, which numpy does not have: what is sent is rounded to it, and the sum again."""
    kind = onnx.TensorProto.BFLOAT16
    nodes = [
        node("Cast", "x", "a", to=kind),
        ranks_op("AllReduce", "a", "b"),
        ranks_op("AllReduce", "b", "c"),
        node("Cast", "c", "y", to=onnx.TensorProto.FLOAT),
    ]
    models = []
    for _ in range(2):
        model = part(nodes, {"x": [5]}, {"y": [5]})
        for each in (graph_node for graph_node in model.graph.graph if graph_node.op_type == "AllReduce"):
            for value in (*each.inputs, *each.outputs):
                value.type, value.shape = ir.TensorType(ir.DataType.BFLOAT16), ir.Shape([5])
        models.append(model)
    x = np.array([1.001, 3.14159, -2.71828, 1e-3, 300.7], "f")
    once = 2 * x.astype(ml_dtypes.bfloat16).astype("f")
    for (result,) in run_together(models, [x]):
        np.testing.assert_array_equal(result, 2 * once)


def test_inputs_weights_and_constants_that_are_sent_or_given_as_they_are() -> None:
    nodes = [
        ranks_op("AllReduce", "x", "sent"),
        ranks_op("AllReduce", "w", "weight"),
        node("Neg", "w", "n"),
        node("Identity", "n", "negative"),
    ]
    outputs = {name: [2] for name in ("sent", "weight", "negative", "n")}
    models = [part(nodes, {"x": [2]}, outputs, {"w": np.array([3, 4], "f")}) for _ in range(2)]
    for results in run_together(models, [np.array([1, 2], "f")]):
        for result, expected in zip(results, [[2, 4], [6, 8], [-3, -4], [-3, -4]], strict=True):
            np.testing.assert_array_equal(result, np.array(expected, "f"))


def test_stages_hand_on_what_they_computed() -> None:
    first = part(
        [node("Neg", "x", "a"), ranks_op("Send", "a", "s", dest_rank=1, sr_tag=3), ranks_op("Depend", "a s", "y")],
        {"x": [2]},
        {"y": [2]},
        between={"a": [2], "s": [2]},
    )
    last = part(
        [ranks_op("Receive", "x", "a", src_rank=0, sr_tag=3), node("Exp", "a", "y")],
        {"x": [2]},
        {"y": [2]},
        between={"a": [2]},
    )
    x = np.array([1, 2], "f")
    found = run_together([first, last], [x])
    np.testing.assert_array_equal(found[0][0], -x)
    assert_close(found[1][0], np.exp(-x))


Sessions = Callable[..., list[litehouse.Session]]


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    """Makes the sessions of all ranks, which are threads of this process."""
    with ExitStack() as stack:

        def make(models: Sequence[Model], options: Options | None = None) -> list[litehouse.Session]:
            world = stack.enter_context(mails("memory", len(models)))

            def load(rank: int) -> litehouse.Session:
                model, settled = settle(models[rank], options or Options())
                return litehouse.Session.of(Loaded(model, settled, build_ranked(model, settled, mail=world[rank])))

            return in_all(len(models), load)

        yield make


def test_weights_are_updated_in_place(sessions: Sessions) -> None:
    options = Options(updatable="all", updatable_mode="in_place")
    both = sessions(halves(updatable=("w",)), options)
    x, new = weights(7, 3, 4), weights(9, 4, WIDE)
    for (result,) in in_all(2, lambda rank: both[rank](x)):
        assert_close(result, whole(x))
    for rank, session in enumerate(both):
        session.update_weights({"w": np.ascontiguousarray(new[:, rank * WIDE // 2 : (rank + 1) * WIDE // 2])})
    for (result,) in in_all(2, lambda rank: both[rank](x)):
        assert_close(result, whole(x, new))


def test_other_sizes_than_the_file_has(sessions: Sessions) -> None:
    both = sessions(halves())
    x = weights(7, 6, 4)

    def resized(rank: int) -> tuple[Any, ...]:
        both[rank].resize([(6, 4)])
        return both[rank].outputs[0].shape, both[rank](x)[0], both[rank](x)[0]

    for shape, first, again in in_all(2, resized):
        assert shape == (None, None)  # a trial run would need the other rank
        assert_close(first, whole(x))
        assert_close(again, whole(x))


def test_sizes_that_the_file_leaves_open(sessions: Sessions) -> None:
    both = sessions(halves(batch="n"))
    for rows in (1, 4):
        x = weights(rows, rows, 4)
        for (result,) in in_all(2, lambda rank, x=x: both[rank].run_any([x])):
            assert_close(result, whole(x))


def test_a_state_is_kept_on_each_rank(sessions: Sessions) -> None:
    nodes = [ranks_op("AllReduce", "x", "s"), node("Add", "count s", "next"), node("Identity", "next", "y")]

    def model() -> Model:
        made = part(nodes, {"x": [2], "count": [2]}, {"y": [2], "next": [2]}, between={"s": [2]})
        states = {"count": np.zeros(2, "f")}
        changes = {"inputs": made.inputs[:1], "outputs": made.outputs[:1], "states": (State("count", "next"),)}
        return replace(made, weights=Weights.of(states), **changes)

    both = sessions([model(), model()])
    x = np.ones(2, "f")
    for times in range(1, 4):
        for (result,) in in_all(2, lambda rank: both[rank](x)):
            np.testing.assert_array_equal(result, 2 * times * x)


def test_segments_that_look_alike_are_raced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    races = itertools.count()
    original = select._challenge

    def counted(*arguments: Any) -> Any:
        next(races)
        return original(*arguments)

    monkeypatch.setattr(select, "_challenge", counted)
    nodes, between = [], {"x0": [4, 4]}
    for layer in range(6):
        nodes.append(node("MatMul", f"x{layer} w{layer}", f"a{layer}"))
        nodes.append(ranks_op("AllReduce", f"a{layer}", f"x{layer + 1}"))
        between |= {f"a{layer}": [4, 4], f"x{layer + 1}": [4, 4]}
    arrays = {f"w{layer}": weights(layer, 4, 4) for layer in range(6)}
    model = part(nodes, {"x0": [4, 4]}, {"x6": [4, 4]}, arrays, between)
    run_together([model, model], [weights(1, 4, 4)])  # the second rank takes the choice of the first
    assert next(races) == 1


def test_a_part_of_a_job_of_more_ranks_says_how_to_start_it() -> None:
    with pytest.raises(
        EngineError, match=r"AllReduce \(node AllReduce s\) is for 2 ranks, but there is 1; start it with"
    ):
        litehouse.Session(halves()[0])


def test_a_file_for_another_rank_is_refused() -> None:
    models = halves()
    for rank, model in enumerate(models):
        slip = {"fingerprint": "a", "rank": 1 - rank, "size": 2}
        model.metadata["user_info.litehouse_job"] = str(slip).replace("'", '"')
    with pytest.raises(EngineError, match="the file is the part of rank 1 of 2, but this process is rank 0 of 2"):
        run_together(models, [weights(7, 3, 4)])


def test_files_of_two_slicings_are_refused() -> None:
    models = halves()
    for rank, model in enumerate(models):
        slip = {"fingerprint": "ab"[rank], "rank": rank, "size": 2}
        model.metadata["user_info.litehouse_job"] = str(slip).replace("'", '"')
    with pytest.raises(RankError, match="a file that is not of the same job"):
        run_together(models, [weights(7, 3, 4)])


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("Neg", "x", "p"), ranks_op("AllGather", "p", "y", rank_size=2)], "no counterpart to All(Reduce|Gather)"),
        ([node("Neg", "x", "p"), ranks_op("AllReduce", "p", "y", op="max")], "AllReduce .* is FLOAT .* on rank"),
        ([node("Neg", "x", "y")], "no counterpart to AllReduce"),
    ],
)
def test_models_that_do_not_belong_together_are_refused(nodes: list[Any], text: str) -> None:
    own = part([node("Neg", "x", "p"), ranks_op("AllReduce", "p", "y")], {"x": [2]}, {"y": [2]}, between={"p": [2]})
    other = part(nodes, {"x": [2]}, {"y": [2]}, between={"p": [2]})
    with pytest.raises(RankError, match=text) as caught:
        run_together([own, other], [np.zeros(2, "f")])
    assert caught.value.rank in (0, 1)


def test_a_rank_whose_engine_fails_is_named_on_the_others(sessions: Sessions) -> None:
    """Rank 1 reads beyond its table; rank 0 waits for it in the exchange."""

    def model(rows: int) -> Model:
        nodes = [
            node("Cast", "x", "i", to=onnx.TensorProto.INT64),
            node("Gather", "t i", "p"),
            ranks_op("AllReduce", "p", "y"),
        ]
        return part(nodes, {"x": [1]}, {"y": [1, 2]}, {"t": weights(rows, rows, 2)}, {"p": [1, 2]})

    both = sessions([model(8), model(2)], Options(engine="onnxruntime"))
    x = np.array([5], "f")

    def one(rank: int) -> BaseException:
        with pytest.raises(EngineError) as caught:
            both[rank](x)
        return caught.value

    first, second = in_all(2, one)
    assert isinstance(first, RankError)
    assert first.rank == 1
    assert "rank 1 failed" in str(first)
    assert not isinstance(second, RankError)  # its own error, as it is
    fine = np.array([1], "f")  # the job goes on
    for (result,) in in_all(2, lambda rank: both[rank](fine)):
        assert_close(result, weights(8, 8, 2)[1:2] + weights(2, 2, 2)[1:2])


def test_a_run_that_one_rank_refuses_is_no_run_on_any(sessions: Sessions) -> None:
    both = sessions(halves())
    x = weights(7, 3, 4)

    def one(rank: int) -> BaseException:
        with pytest.raises(litehouse.LitehouseError) as caught:
            both[rank](x if rank == 0 else np.zeros((2, 2), "f"))
        return caught.value

    first, second = in_all(2, one)
    assert isinstance(second, litehouse.ShapeError)
    assert isinstance(first, RankError)
    assert first.rank == 1
    for factor in (1, 2):
        for (result,) in in_all(2, lambda rank, factor=factor: both[rank](factor * x)):
            assert_close(result, whole(factor * x))


def test_a_failed_run_leaves_nothing_to_the_sizes_that_follow(sessions: Sessions) -> None:
    both = sessions(halves())
    x = weights(7, 6, 4)

    def refused(rank: int) -> None:
        with pytest.raises(litehouse.LitehouseError):
            both[rank](np.ones((3, 4), "f") if rank == 0 else np.zeros((2, 2), "f"))

    def resized(rank: int) -> list[np.ndarray]:
        both[rank].resize([(6, 4)])
        return [both[rank](factor * x)[0] for factor in (1, 2, 3)]

    for _ in range(3):
        in_all(2, refused)
    for results in in_all(2, resized):
        for factor, result in enumerate(results, 1):
            assert_close(result, whole(factor * x))


def test_ranks_of_other_sizes_do_not_broadcast(sessions: Sessions) -> None:
    first = part(
        [ranks_op("Send", "x", "s", dest_rank=1, sr_tag=0), ranks_op("Depend", "x s", "y")],
        {"x": [3, 4]},
        {"y": [3, 4]},
        between={"s": [3, 4]},
    )
    nodes = [ranks_op("Receive", "x", "r", src_rank=0, sr_tag=0), node("Add", "x r", "y")]
    last = part(nodes, {"x": [3, 4]}, {"y": [3, 4]}, between={"r": [3, 4]})
    both = sessions([first, last])

    def one(rank: int) -> Any:
        if rank == 0:
            both[0].resize([(1, 4)])
            return both[0](np.ones((1, 4), "f"))
        with pytest.raises(RankError, match=r"gave float32 \[1, 4\], where the file has FLOAT \[3,4\]"):
            both[1](np.ones((3, 4), "f"))
        return None

    in_all(2, one)


def test_outputs_own_their_memory(sessions: Sessions) -> None:
    nodes = [ranks_op("Depend", "x w", "d"), ranks_op("Broadcast", "x", "b", root_rank=0)]
    names = ["d", "b", "x", "w"]
    (one,) = sessions([part(nodes, {"x": [2]}, {name: [2] for name in names}, {"w": np.ones(2, "f")})])
    x = np.array([1, 2], "f")
    results = one(x)
    x[:] = 9
    for result in results[:3]:
        np.testing.assert_array_equal(result, [1, 2])
    for result in results:
        result[:] = 55
    np.testing.assert_array_equal(one(np.array([1, 2], "f"))[3], [1, 1])


def test_a_job_with_a_state_ends_with_a_run_that_fails(sessions: Sessions) -> None:
    """Some ranks have the state behind that run, and others not."""
    nodes = [ranks_op("AllReduce", "x", "s"), node("Add", "count s", "next"), node("Identity", "next", "y")]

    def model() -> Model:
        made = part(nodes, {"x": [2], "count": [2]}, {"y": [2], "next": [2]}, between={"s": [2]})
        changes = {"inputs": made.inputs[:1], "outputs": made.outputs[:1], "states": (State("count", "next"),)}
        return replace(made, weights=Weights.of({"count": np.zeros(2, "f")}), **changes)

    both = sessions([model(), model()])

    def one(rank: int) -> None:
        with pytest.raises(litehouse.LitehouseError):
            both[rank](np.ones(2 + rank, "f"))
        with pytest.raises(RankError, match="the job has ended"):
            both[rank](np.ones(2, "f"))

    in_all(2, one)


def test_stages_that_hand_something_back_and_forth(sessions: Sessions) -> None:
    def stage(rank: int) -> Model:
        own = [
            ranks_op("Receive", "x", "a", src_rank=1 - rank, sr_tag=rank),
            node("MatMul", "a w", "b"),
            ranks_op("Send", "b", "s", dest_rank=1 - rank, sr_tag=2 + rank),
        ]
        other = [
            ranks_op("Send", "x", "t", dest_rank=1 - rank, sr_tag=1 - rank),
            ranks_op("Receive", "x", "c", src_rank=1 - rank, sr_tag=3 - rank),
            node("MatMul", "c w", "y"),
        ]
        between = {name: [2, 2] for name in ("a", "b", "s", "t", "c")}
        nodes = [*other[:1], *own, *other[1:]]
        return part(nodes, {"x": [2, 2]}, {"y": [2, 2]}, {"w": 2 * np.eye(2, dtype="f")}, between)

    x = np.ones((2, 2), "f")
    for (result,) in run_together([stage(0), stage(1)], [x]):
        np.testing.assert_array_equal(result, 4 * x)


def test_two_threads_cannot_run_one_part(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = sessions(halves(1))
    held, ended = threading.Event(), threading.Event()
    program = one.loaded.built.program
    original = program._run_steps  # type: ignore[attr-defined]

    def slow(*arguments: Any) -> None:
        held.set()
        assert ended.wait(PATIENCE)
        original(*arguments)

    monkeypatch.setattr(program, "_run_steps", slow)
    with ThreadPoolExecutor(1) as other:
        running = other.submit(one, weights(7, 3, 4))
        assert held.wait(PATIENCE)
        with pytest.raises(EngineError, match="another thread is running a part of this job"):
            one(weights(7, 3, 4))
        ended.set()
        assert_close(running.result()[0], whole(weights(7, 3, 4)))


def test_a_stage_does_not_run_far_ahead(sessions: Sessions) -> None:
    first = part(
        [ranks_op("Send", "x", "s", dest_rank=1, sr_tag=0), ranks_op("Depend", "x s", "y")],
        {"x": [2]},
        {"y": [2]},
        between={"s": [2]},
    )
    last = part([ranks_op("Receive", "x", "y", src_rank=0, sr_tag=0)], {"x": [2]}, {"y": [2]})
    both, runs = sessions([first, last]), 60
    done = [0]

    def one(rank: int) -> None:
        for number in range(runs):
            (result,) = both[rank](np.full(2, number, "f"))
            np.testing.assert_array_equal(result, [number, number])
            if rank == 0:
                done[0] = number + 1
            else:
                assert done[0] <= number + 1 + AHEAD + STEPS

    in_all(2, one)


def test_swapping_weights_is_refused() -> None:
    model = halves(1)[0]
    options = Options(updatable="all", updatable_mode="swap")
    with pytest.raises(EngineError, match="use updatable_mode='in_place'"):
        litehouse.Session(replace(model, updatable=("w",)), options)


def test_threads_are_divided_among_ranks_on_the_same_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    original = ranked.select

    def noted(model: Model, options: Options, known: Any) -> Any:
        seen.append(options.threads)
        return original(model, options, known)

    monkeypatch.setattr(ranked, "select", noted)
    monkeypatch.setattr(ranked, "thread_budget", lambda: 8)
    run_together(halves(), [weights(7, 3, 4)])
    assert set(seen) == {4}


def test_a_groups_file_names_the_ranks(tmp_path: Any) -> None:
    """A group of the second and third rank; the first one takes no part."""
    name = b"2-1234"
    ranks = b"\x0a\x02\x01\x02"
    item = b"\x0a" + bytes([len(name)]) + name + b"\x12" + bytes([len(ranks)]) + ranks
    file = tmp_path / "groups.pb"
    file.write_bytes(b"\x0a" + bytes([len(item)]) + item)
    alone = part(
        [node("Neg", "x", "p"), ranks_op("Barrier", "", "b"), node("Identity", "p", "y")],
        {"x": [2]},
        {"y": [2]},
        between={"b": [1]},
    )
    grouped = part(
        [ranks_op("AllReduce", "x", "y", group="2-1234"), ranks_op("Barrier", "", "b")],
        {"x": [2]},
        {"y": [2]},
        between={"b": [1]},
    )
    x = np.array([1, 2], "f")
    found = run_together([alone, grouped, grouped], [x], Options(job=Job(groups=str(file))))
    for rank, factor in enumerate((-1, 2, 2)):
        np.testing.assert_array_equal(found[rank][0], factor * x)
