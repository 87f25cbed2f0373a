"""Parts of a job as one torch program, run by all ranks in threads of this process, over gloo on tensors of the CPU."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import onnx
import pytest

import litehouse
from conftest import ZOO, assert_close
from distributed.jobs import PATIENCE, in_all, mails, part, ranks_op
from distributed.test_fixtures import CASES, FOLDER, stored
from distributed.test_program import WIDE, halves, weights, whole
from litehouse.builds import Loaded
from litehouse.distributed.order import order_of
from litehouse.distributed.ranked import build_ranked
from litehouse.distributed.together import Together, run_together
from litehouse.errors import EngineError, RankError
from litehouse.live import settle
from litehouse.model import Model, State
from litehouse.options import Job, Options
from litehouse.weights import Weights
from onnx_models import node

torch = pytest.importorskip("torch")

RUNS = 4  # step by step, captured, and again
TORCH = Options(engine="torch", job=Job(timeout=PATIENCE))
Sessions = Callable[..., list[litehouse.Session]]


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    """Makes the sessions of all ranks."""
    with ExitStack() as stack:

        def make(models: Sequence[Model], options: Options = TORCH) -> list[litehouse.Session]:
            world = stack.enter_context(mails("memory", len(models), options.job.timeout))

            def load(rank: int) -> litehouse.Session:
                model, settled = settle(models[rank], options)
                built = build_ranked(model, settled, mail=world[rank])
                assert (str(built.choice), "in one program" in built.choice.reason) == ("torch", True)
                return litehouse.Session.of(Loaded(model, settled, built))

            return in_all(len(models), load)

        yield make


def run_all(made: list[litehouse.Session], inputs: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
    return in_all(len(made), lambda rank: made[rank].run([*inputs[rank]]))


@pytest.mark.parametrize("name", CASES)
def test_what_mindspore_exported_run_after_run(name: str, sessions: Sessions) -> None:
    ranks, groups = CASES[name]["ranks"], FOLDER / name / "groups.pb"
    models = [litehouse.read(FOLDER / name / f"rank_{rank}.mindir") for rank in range(ranks)]
    job = Job(timeout=PATIENCE, groups=str(groups) if groups.exists() else "")
    made = sessions(models, Options(engine="torch", job=job))
    inputs, expected = stored(name, "input", ranks), stored(name, "output", ranks)
    for _ in range(RUNS):
        found = run_all(made, inputs)
        for rank in range(ranks):
            assert [array.shape for array in found[rank]] == [array.shape for array in expected[rank]]
            if rank not in CASES[name]["meaningless"]:
                for actual, wanted in zip(found[rank], expected[rank], strict=True):
                    assert_close(actual, wanted, f"rank {rank}")


@pytest.mark.zoo
@pytest.mark.skipif(not ZOO.exists(), reason="the model zoo is not beside the checkout")
@pytest.mark.parametrize("name", ["alltoall", "pipeline", "tp_allgather", "tp_mlp", "tp_reducescatter"])
def test_pairs_of_the_zoo(name: str, sessions: Sessions) -> None:
    folder = ZOO / "distributed" / name
    made = sessions([litehouse.read(folder / f"rank_{rank}.mindir") for rank in range(2)])

    def arrays(kind: str) -> list[list[np.ndarray]]:
        return [[np.load(path) for path in sorted(folder.glob(f"rank_{rank}_{kind}_*.npy"))] for rank in range(2)]

    for _ in range(RUNS):
        for found, expected in zip(run_all(made, arrays("input")), arrays("output"), strict=True):
            for actual, wanted in zip(found, expected, strict=True):
                assert_close(actual, wanted)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_the_ranks_compute_what_one_would(count: int, sessions: Sessions) -> None:
    made = sessions(halves(count))
    for seed in range(RUNS):
        x = weights(seed, 3, 4)
        for (result,) in run_all(made, [[x]] * count):
            assert_close(result, whole(x))


@pytest.mark.parametrize("op", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "INT32", "UINT8", "INT64"])
def test_reductions_have_the_bits_of_the_cpu_path(op: str, kind: str) -> None:
    """Of a few numbers, and of so many that each rank reduces a part: 3 ranks, whose parts are not equal."""
    for size in (7, 100_001):
        nodes = [ranks_op("AllReduce", "x", "y", op=op)]
        shapes: dict[str, Any] = {"x": [size]}
        dtype = onnx.helper.tensor_dtype_to_np_dtype(getattr(onnx.TensorProto, kind))
        models = [part(nodes, shapes, {"y": [size]}, dtype=getattr(onnx.TensorProto, kind)) for _ in range(3)]
        random_ = np.random.default_rng(0)
        inputs = [[(random_.normal(size=size) * 5).astype(dtype)] for _ in range(3)]
        found = []
        for engine in ("torch", "onnxruntime"):
            together = Together(models, Options(engine=engine, job=Job(timeout=PATIENCE)))
            found.append(together.run(inputs))
            together.close()
        for ours, theirs in zip(*found, strict=True):
            assert ours[0].dtype == dtype
            assert ours[0].tobytes() == theirs[0].tobytes() == found[0][0][0].tobytes()


def test_what_is_sent_or_given_as_it_is(sessions: Sessions) -> None:
    nodes = [
        ranks_op("AllReduce", "x", "sent"),
        ranks_op("AllReduce", "w", "weight"),
        node("Neg", "w", "n"),
        ranks_op("Depend", "n sent", "given"),
    ]
    outputs = {name: [2] for name in ("sent", "weight", "given", "x")}
    made = sessions([part(nodes, {"x": [2]}, outputs, {"w": np.array([3, 4], "f")}) for _ in range(2)])
    x = np.array([1, 2], "f")
    for _ in range(RUNS):
        for results in run_all(made, [[x]] * 2):
            for result, expected in zip(results, [[2, 4], [6, 8], [-3, -4], [1, 2]], strict=True):
                np.testing.assert_array_equal(result, np.array(expected, "f"))
                result[:] = 55  # its memory is nobody else's


def test_an_exchange_that_nothing_uses_is_run(sessions: Sessions) -> None:
    first = part([ranks_op("Send", "x", "s", dest_rank=1, sr_tag=0), node("Neg", "x", "y")], {"x": [2]}, {"y": [2]})
    last = part([ranks_op("Receive", "x", "y", src_rank=0, sr_tag=0)], {"x": [2]}, {"y": [2]}, between={})
    made = sessions([first, last])
    x = np.array([1, 2], "f")
    for _ in range(RUNS):
        sent, received = run_all(made, [[x], [5 * x]])
        np.testing.assert_array_equal(sent[0], -x)
        np.testing.assert_array_equal(received[0], x)


def test_both_send_before_they_receive(sessions: Sessions) -> None:
    """Nobody keeps what is sent: one of them must receive first."""

    def stage(rank: int) -> Model:
        nodes = [
            ranks_op("Send", "x", "s", dest_rank=1 - rank, sr_tag=rank),
            node("Neg", "s", "n"),  # what it gives is used before it has left
            ranks_op("Receive", "x", "r", src_rank=1 - rank, sr_tag=1 - rank),
            node("Add", "n r", "y"),
        ]
        return part(nodes, {"x": [2]}, {"y": [2]}, between={name: [2] for name in "snr"})

    made = sessions([stage(0), stage(1)])
    for _ in range(RUNS):
        first, second = run_all(made, [[np.array([1, 2], "f")], [np.array([10, 20], "f")]])
        np.testing.assert_array_equal(first[0], [9, 18])
        np.testing.assert_array_equal(second[0], [-9, -18])


def test_letters_are_received_in_another_order_than_they_are_sent(sessions: Sessions) -> None:
    sends = [ranks_op("Send", name, f"s_{name}", dest_rank=1, sr_tag=tag) for tag, name in enumerate("ab")]
    first = part(
        [node("Neg", "x", "a"), node("Abs", "x", "b"), *sends, ranks_op("Depend", "a s_a s_b", "y")],
        {"x": [2]},
        {"y": [2]},
        between={name: [2] for name in ("a", "b", "s_a", "s_b")},
    )
    receives = [ranks_op("Receive", "x", name, src_rank=0, sr_tag=tag) for name, tag in (("b", 1), ("a", 0))]
    last = part([*receives, node("Sub", "a b", "y")], {"x": [2]}, {"y": [2]}, between={"a": [2], "b": [2]})
    made = sessions([first, last])
    for _ in range(RUNS):
        found = run_all(made, [[np.array([1, 2], "f")]] * 2)
        np.testing.assert_array_equal(found[1][0], [-2, -4])


def test_steps_that_need_numbers_of_the_device(sessions: Sessions) -> None:
    """A branch behind an exchange: the steps are cut there, and no exchange is run again for it."""
    infos = {name: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("p", "q")}
    added = onnx.helper.make_graph([node("Add", "a b", "p")], "then", [], [infos["p"]])
    taken = onnx.helper.make_graph([node("Sub", "a b", "q")], "else", [], [infos["q"]])
    nodes = [
        node("Neg", "x", "a"),
        ranks_op("AllReduce", "x", "b"),
        node("ReduceMax", "b", "most", keepdims=0),
        node("Greater", "most limit", "c"),
        onnx.helper.make_node("If", ["c"], ["z"], "branch", then_branch=added, else_branch=taken),
        ranks_op("AllReduce", "z", "u"),
        node("Neg", "u", "y"),
    ]
    arrays = {"limit": np.array(10, "f")}
    made = sessions([part(nodes, {"x": [2]}, {"y": [2]}, arrays, {"b": [2], "u": [2]}) for _ in range(2)])
    for _ in range(RUNS):
        for x, expected in ([1.0, 2.0], [6.0, 12.0]), ([8.0, 1.0], [-16.0, -2.0]):
            for (result,) in run_all(made, [[np.array(x, "f")]] * 2):
                np.testing.assert_array_equal(result, np.array(expected, "f"))


def test_sizes_that_are_computed_are_refused_with_a_word(sessions: Sessions) -> None:
    nodes = [node("NonZero", "x", "i"), node("Gather", "x j", "g"), ranks_op("AllGather", "g", "y")]
    nodes.insert(1, node("Squeeze", "i zero", "j"))
    arrays = {"zero": np.zeros(1, np.int64)}
    made = sessions([part(nodes, {"x": [4]}, {"y": ["n"]}, arrays) for _ in range(2)])

    def one(rank: int) -> None:
        (found,) = made[rank].run([np.array([1, 0, 2, 0], "f")])
        np.testing.assert_array_equal(found, [1, 2, 1, 2])
        with pytest.raises(RankError, match="what has fixed sizes"):
            made[rank].run([np.array([1, 3, 2, 0], "f")])

    in_all(2, one)


def test_other_sizes_than_the_file_has(sessions: Sessions) -> None:
    both = sessions(halves())
    for rows in (6, 2, 6):

        def resized(rank: int, rows: int = rows) -> list[np.ndarray]:
            both[rank].resize([(rows, 4)])
            return [both[rank](factor * weights(rows, rows, 4))[0] for factor in range(1, RUNS + 1)]

        for results in in_all(2, resized):
            for factor, result in enumerate(results, 1):
                assert_close(result, whole(factor * weights(rows, rows, 4)))


def test_sizes_that_the_file_leaves_open(sessions: Sessions) -> None:
    both = sessions(halves(batch="n"))
    for rows in (1, 4, 4, 4, 1, 1, 4):
        x = weights(rows, rows, 4)
        for (result,) in in_all(2, lambda rank, x=x: both[rank].run_any([x])):
            assert_close(result, whole(x))


def test_open_sizes_on_a_gpu(sessions: Sessions, rehearsed_gpu: None) -> None:
    """Where no engine is asked for, the session would look for the best one when it knows the sizes."""
    options = Options(device="gpu", job=Job(rank=0, size=1, timeout=PATIENCE))
    (one,) = sessions(halves(1, batch="n"), options)
    for rows in (1, 4, 4, 4, 1):
        x = weights(rows, rows, 4)
        assert_close(one.run_any([x])[0], whole(x))


@pytest.mark.parametrize("own", ["m", 1])
def test_a_stage_receives_other_sizes_than_before(own: str | int, sessions: Sessions) -> None:
    """What the last one takes has one size, which its file may tell; what it receives has not."""
    sent = [ranks_op("Send", "x", "s", dest_rank=1, sr_tag=0), ranks_op("Depend", "x s", "y")]
    first = part(sent, {"x": ["n"]}, {"y": ["n"]}, between={"s": ["n"]})
    nodes = [ranks_op("Receive", "k", "r", src_rank=0, sr_tag=0), node("Neg", "r", "y")]
    last = part(nodes, {"k": [own]}, {"y": ["n"]}, between={"r": ["n"]})
    both = sessions([first, last])
    for size in (2, 3, 3, 3, 2, 2, 2, 3):
        x = np.arange(size).astype("f")
        found = in_all(2, lambda rank, x=x: both[rank].run_any([x if rank == 0 else np.ones(1, "f")]))
        np.testing.assert_array_equal(found[1][0], -x)


def test_weights_are_updated_in_place(sessions: Sessions) -> None:
    options = Options(engine="torch", updatable="all", updatable_mode="in_place", job=Job(timeout=PATIENCE))
    both = sessions(halves(updatable=("w",)), options)
    x, new = weights(7, 3, 4), weights(9, 4, WIDE)
    for _ in range(RUNS):
        for (result,) in run_all(both, [[x]] * 2):
            assert_close(result, whole(x))
    for rank, session in enumerate(both):
        session.update_weights({"w": np.ascontiguousarray(new[:, rank * WIDE // 2 : (rank + 1) * WIDE // 2])})
    for _ in range(RUNS):
        for (result,) in run_all(both, [[x]] * 2):
            assert_close(result, whole(x, new))


def test_a_state_is_kept_on_each_rank(sessions: Sessions) -> None:
    from dataclasses import replace

    nodes = [ranks_op("AllReduce", "x", "s"), node("Add", "count s", "next"), node("Identity", "next", "y")]

    def model() -> Model:
        made = part(nodes, {"x": [2], "count": [2]}, {"y": [2], "next": [2]}, between={"s": [2]})
        changes = {"inputs": made.inputs[:1], "outputs": made.outputs[:1], "states": (State("count", "next"),)}
        return replace(made, weights=Weights.of({"count": np.zeros(2, "f")}), **changes)

    both = sessions([model(), model()])
    for number in range(1, RUNS + 1):
        for (result,) in run_all(both, [[np.ones(2, "f")]] * 2):
            np.testing.assert_array_equal(result, np.full(2, 2 * number, "f"))


def test_tensors_of_torch_come_back_as_such(sessions: Sessions) -> None:
    both = sessions(halves())
    x = weights(7, 3, 4)
    for _ in range(RUNS):
        for (result,) in in_all(2, lambda rank: both[rank].run([torch.from_numpy(x)])):
            assert isinstance(result, torch.Tensor)
            assert_close(result.numpy(), whole(x))


def test_half_precision_is_taken_by_all(sessions: Sessions, rehearsed_gpu: None) -> None:
    both = sessions(halves(), Options(device="gpu", precision="fp16", job=Job(timeout=PATIENCE)))
    x = weights(7, 3, 4)
    for _ in range(RUNS):
        found = run_all(both, [[x]] * 2)
        assert found[0][0].tobytes() == found[1][0].tobytes()
        np.testing.assert_allclose(found[0][0], whole(x), rtol=2e-2, atol=2e-2)
    assert [session.precision for session in both] == ["fp16", "fp16"]


def test_a_failure_on_one_rank_ends_the_job_at_once(sessions: Sessions) -> None:
    def model(rows: int) -> Model:
        nodes = [node("Cast", "x", "i", to=onnx.TensorProto.INT64), node("Gather", "t i", "p")]
        nodes.append(ranks_op("AllReduce", "p", "y"))
        return part(nodes, {"x": [1]}, {"y": [1, 2]}, {"t": weights(rows, rows, 2)}, {"p": [1, 2]})

    both = sessions([model(8), model(2)])
    run_all(both, [[np.array([1], "f")]] * 2)

    def one(rank: int) -> BaseException:
        with pytest.raises(EngineError) as caught:
            both[rank](np.array([5], "f"))
        with pytest.raises(RankError, match="the job has ended"):
            both[rank](np.array([1], "f"))
        return caught.value

    first, second = in_all(2, one)
    assert isinstance(first, RankError)
    assert (first.rank, "rank 1 failed" in str(first)) == (1, True)
    assert not isinstance(second, RankError)


def test_inputs_that_one_rank_refuses_end_the_job(sessions: Sessions) -> None:
    both = sessions(halves())
    x = weights(7, 3, 4)
    run_all(both, [[x]] * 2)

    def one(rank: int) -> BaseException:
        with pytest.raises(litehouse.LitehouseError) as caught:
            both[rank](x if rank == 0 else np.zeros((2, 2), "f"))
        return caught.value

    first, second = in_all(2, one)
    assert isinstance(second, litehouse.ShapeError)
    assert isinstance(first, RankError)
    assert first.rank == 1


def test_ranks_of_other_sizes_do_not_broadcast(sessions: Sessions) -> None:
    sent = [ranks_op("Send", "x", "s", dest_rank=1, sr_tag=0), ranks_op("Depend", "x s", "y")]
    first = part(sent, {"x": [3, 4]}, {"y": [3, 4]}, between={"s": [3, 4]})
    nodes = [ranks_op("Receive", "x", "r", src_rank=0, sr_tag=0), node("Add", "x r", "y")]
    both = sessions([first, part(nodes, {"x": [3, 4]}, {"y": [3, 4]}, between={"r": [3, 4]})])

    def one(rank: int) -> None:
        if rank == 0:
            both[0].resize([(1, 4)])
            both[0](np.ones((1, 4), "f"))
        else:
            with pytest.raises(RankError, match=r"gave float32 \[1, 4\], where the file has \[3, 4\]"):
                both[1](np.ones((3, 4), "f"))

    in_all(2, one)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_alone_is_resized_ends_the_job(rank: int, sessions: Sessions) -> None:
    """Bytes of other counts than expected would end the process, or be taken for what they are not."""
    both = sessions(halves())
    for _ in range(RUNS):
        run_all(both, [[weights(7, 3, 4)]] * 2)
    both[rank].resize([(6, 4)])

    def one(place: int) -> None:
        with pytest.raises(RankError, match=f"rank {rank} runs with other sizes than before, and rank {1 - rank} does"):
            both[place](weights(7, *both[place].inputs[0].shape))

    in_all(2, one)


def test_counts_that_do_not_fit_end_the_job(sessions: Sessions) -> None:
    """They are numbers of the run, which process groups do not compare: gloo would end the process."""
    nodes = [node("Cast", "s", "sent", to=7), node("Cast", "r", "received", to=7)]
    nodes.append(ranks_op("AlltoAllV", "x sent received", "y", block_size=1))
    both = sessions([part(nodes, {"x": [6], "s": [2], "r": [2]}, {"y": ["n"]}) for _ in range(2)])
    x, sent = np.arange(6, dtype="f"), np.array([[2, 3], [1, 4]], "f")
    for _ in range(RUNS):
        first, second = run_all(both, [[x + 10 * rank, sent[rank], sent[:, rank].copy()] for rank in range(2)])
        assert [first[0].tolist(), second[0].tolist()] == [[0, 1, 10], [2, 3, 4, 11, 12, 13, 14]]
    received = [np.array([2, 1], "f"), np.array([2, 4], "f")]

    def one(rank: int) -> None:
        with pytest.raises(
            RankError, match=r"rank 0 sent float32 \[3\] in AlltoAllV .* where rank 1 has float32 \[2\]"
        ):
            both[rank](x, sent[rank], received[rank])

    in_all(2, one)


def test_a_rank_that_exchanges_nothing_need_not_run(sessions: Sessions) -> None:
    sent = [ranks_op("Send", "x", "s", dest_rank=1, sr_tag=0), ranks_op("Depend", "x s", "y")]
    received = [ranks_op("Receive", "x", "r", src_rank=0, sr_tag=0), node("Add", "x r", "y")]
    between: list[dict[str, list[int | str]]] = [{"s": ["n"]}, {"r": ["n"]}, {}]
    nodes = zip([sent, received, [node("Neg", "x", "y")]], between, strict=True)
    made = sessions([part(own, {"x": ["n"]}, {"y": ["n"]}, between=each) for own, each in nodes])
    for size in (2, 3, 3, 3):
        x = np.arange(size).astype("f")
        np.testing.assert_array_equal(run_all(made[:2], [[x]] * 2)[1][0], 2 * x)


def test_other_dtypes_than_those_of_the_others_are_named(sessions: Sessions) -> None:
    both = sessions(halves(batch="n"))

    def one(rank: int) -> None:
        with pytest.raises(RankError, match=r"rank . sent float32 \[., 5\] in AllReduce"):
            both[rank].run_any([weights(1, 2 + rank, 4)])

    in_all(2, one)


def test_a_rank_in_segments_and_one_in_a_program_do_not_meet() -> None:
    models = halves()
    with mails("memory", 2) as world:

        def one(rank: int) -> str:
            engine = ("torch", "onnxruntime")[rank]
            with pytest.raises(RankError) as caught:
                build_ranked(models[rank], Options(engine=engine), mail=world[rank])
            return str(caught.value)

        texts = in_all(2, one)
    assert any("give all ranks the same device, engine and precision" in text for text in texts)


def test_two_threads_cannot_run_one_part(sessions: Sessions) -> None:
    both = sessions(halves())
    x = weights(7, 3, 4)
    run_all(both, [[x]] * 2)  # in which they tell each other their sizes
    thread = threading.Thread(target=both[0], args=(x,))
    program: Any = both[0].loaded.built.program
    thread.start()
    while not program._program.told:  # then it waits for the other rank
        time.sleep(0.001)
    with pytest.raises(EngineError, match="another thread is running a part of this job"):
        both[0](x)
    both[1](x)
    thread.join(PATIENCE)


def test_swapping_and_other_engines_are_refused() -> None:
    from litehouse.engines.build import build

    with pytest.raises(EngineError, match="torch runs the parts of a job, not 'onnxruntime'"):
        build(halves(1)[0], Options(device="gpu", engine="onnxruntime"))
    with pytest.raises(EngineError, match="on the CPU or on a GPU, not on 'ascend'"):
        build(halves(1)[0], Options(device="ascend"))


class TestOrder:
    def test_is_that_of_the_file(self) -> None:
        both = [((0, 1), "AllReduce 0,1 1", "a"), ((), "Depend  1", "d"), ((0, 1), "AllGather 0,1 1", "b")]
        assert order_of({0: both, 1: both}) == {"AllReduce 0,1 1": 0, "AllGather 0,1 1": 1}

    def test_a_send_waits_for_who_receives(self) -> None:
        world, there, back = (0, 1), "Send 0>1 0 1", "Send 1>0 0 1"
        lists = {0: [(world, there, ""), (world, back, "")], 1: [(world, back, ""), (world, there, "")]}
        turns = order_of(lists)
        assert sorted(turns.values()) == [0, 1]

    def test_ranks_that_would_wait_for_each_other_are_told(self) -> None:
        one, two = ((0, 1), "AllReduce 0,1 1", "AllReduce (node a)"), ((0, 1), "AllGather 0,1 1", "AllGather (node b)")
        with pytest.raises(RankError, match=r"rank 0 in AllReduce \(node a\), rank 1 in AllGather \(node b\)"):
            order_of({0: [one, two], 1: [two, one]})

    def test_groups_in_a_circle(self) -> None:
        pairs = {
            name: (group, f"AllReduce {name} 1", name)
            for name, group in {"a": (0, 1), "b": (1, 2), "c": (0, 2)}.items()
        }
        assert (
            len(order_of({0: [pairs["a"], pairs["c"]], 1: [pairs["a"], pairs["b"]], 2: [pairs["c"], pairs["b"]]})) == 3
        )
        with pytest.raises(RankError, match="would wait for each other"):
            order_of({0: [pairs["a"], pairs["c"]], 1: [pairs["b"], pairs["a"]], 2: [pairs["c"], pairs["b"]]})


def test_files_in_orders_that_do_not_go_together_are_refused() -> None:
    nodes = [ranks_op("AllReduce", "x", "a"), ranks_op("AllGather", "x", "b")]
    models = [part(order, {"x": [2]}, {"a": [2], "b": [4]}) for order in (nodes, nodes[::-1])]
    with pytest.raises(RankError, match="the ranks would wait for each other"):
        run_together(models, [np.ones(2, "f")], TORCH)
