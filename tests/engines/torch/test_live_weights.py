"""Weights that change on a device: between two runs, under what was captured, all of them or none."""

import gc
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import pytest

import litehouse
from litehouse import EngineError, Options, WeightError
from litehouse.weights.segments import Segment
from onnx_models import mlp, mlp_result, mlp_weights, model, node

torch = pytest.importorskip("torch")

from litehouse.engines.torch import values  # noqa: E402  (it needs torch)
from litehouse.engines.torch.compiled import Kernels  # noqa: E402
from litehouse.engines.torch.engine import TorchEngine  # noqa: E402
from litehouse.engines.torch.program import TorchProgram  # noqa: E402
from litehouse.engines.torch.store import PART, Store, Turns, Upload  # noqa: E402

DIGITS = Path(__file__).parents[3] / "examples/digits/model/digits.mindir"


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def images(batch: int | str = 2) -> bytes:
    """A convolution with a normalisation behind it, and a product whose weight is turned first."""
    nodes = [
        node("Conv", "x k", "c", pads=[1] * 4),
        node("BatchNormalization", "c s b m v", "n"),
        node("GlobalAveragePool", "n", "p"),
        node("Flatten", "p", "f"),
        node("Transpose", "w", "t", perm=[1, 0]),
        node("MatMul", "f t", "y"),
    ]
    weights = {"k": numbers(4, 3, 3, 3), "w": numbers(5, 4, seed=1)}
    weights |= {"s": numbers(4, seed=2), "b": numbers(4, seed=3), "m": numbers(4, seed=4)}
    weights["v"] = np.abs(numbers(4, seed=5)) + 0.5
    return model(nodes, {"x": (batch, 3, 6, 6)}, {"y": (batch, 5)}, weights)


def truth(source: bytes, x: np.ndarray, new: dict[str, np.ndarray]) -> np.ndarray:
    """What ONNX Runtime computes with other weights."""
    session = litehouse.load(source, engine="onnxruntime", updatable="all", updatable_mode="swap", cache=False)
    session.update_weights(new)
    return session.run([x])[0]


@pytest.mark.parametrize("form", ["arrays", "tensors"])
def test_the_next_run_sees_an_update(form: str) -> None:
    source, x = images(), numbers(2, 3, 6, 6, seed=9)
    session = litehouse.load(source, engine="torch", updatable="all", cache=False)
    assert session.options.updatable_mode == "in_place"

    def run() -> np.ndarray:
        return session.run([x])[0] if form == "arrays" else session.run([torch.from_numpy(x)])[0].numpy()

    np.testing.assert_allclose(run(), truth(source, x, {}), rtol=1e-4, atol=1e-5)
    for seed in range(3):
        new = {"k": numbers(4, 3, 3, 3, seed=20 + seed), "w": numbers(5, 4, seed=30 + seed)}
        session.update_weights(new)
        np.testing.assert_allclose(run(), truth(source, x, new), rtol=1e-4, atol=1e-5)


def test_what_depends_on_weights_alone_is_computed_when_they_change() -> None:
    nodes = [node("Exp", "w", "e"), node("MatMul", "x e", "y")]
    source = model(nodes, {"x": (2, 4)}, {"y": (2, 3)}, {"w": numbers(4, 3)})
    session = litehouse.load(source, engine="torch", updatable=["w"], cache=False)
    program = session.loaded.built.program
    assert [step.op for step in program.lowered.derived] == ["Exp"]
    assert [step.op for step in program.lowered.block.steps] == ["MatMul"]
    x, new = numbers(2, 4, seed=1), numbers(4, 3, seed=2)
    session.run([x])
    place = program.weights[program.lowered.derived[0].outputs[0]].data_ptr()
    session.update_weights({"w": new})
    np.testing.assert_allclose(session.run([x])[0], x @ np.exp(new), rtol=1e-4)
    assert program.weights[program.lowered.derived[0].outputs[0]].data_ptr() == place  # what is captured reads it there


def test_a_size_that_depends_on_a_weight() -> None:
    """It is another one behind an update, so that there is no memory of its own for it."""
    nodes = [
        node("NonZero", "w", "z"),
        node("Cast", "z", "f", to=1),
        node("ReduceSum", "f", "s"),
        node("Add", "x s", "y"),
    ]
    weights = {"w": np.float32([0, 1, 1, 1])}
    session = litehouse.load(
        model(nodes, {"x": (1, 1)}, {"y": None}, weights), engine="torch", updatable=["w"], cache=False
    )
    x = np.float32([[0.5]])
    for new in ([0, 1, 1, 1], [0, 0, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]):
        session.update_weights({"w": np.float32(new)})
        assert session.run([x])[0].tolist() == [[0.5 + sum(np.flatnonzero(new))]]


TENSORS = {
    "plain": lambda tensor: tensor.clone(),
    "with a gradient": lambda tensor: torch.nn.Parameter(tensor),
    "whose sign is yet to change": lambda tensor: torch.complex(tensor, -tensor).conj().imag,
    "turned": lambda tensor: tensor.t().contiguous().t(),
}


@pytest.mark.parametrize("case", TENSORS)
@pytest.mark.parametrize("engine", ["onnxruntime", "torch"])
def test_a_tensor_of_torch_as_a_weight(engine: str, case: str) -> None:
    session = litehouse.load(mlp(), engine=engine, updatable=["w1"], cache=False)
    new, w2 = numbers(*session.weights["w1"].shape, seed=3), mlp_weights()["w2"]
    session.update_weights({"w1": TENSORS[case](torch.from_numpy(new))})
    x = numbers(*session.inputs[0].shape)
    np.testing.assert_allclose(session.run([x])[0], np.maximum(x @ new, 0) @ w2, rtol=1e-4, atol=1e-4)


def test_a_tensor_of_16_bits_as_a_weight() -> None:
    session = litehouse.load(mlp(), engine="torch", updatable=["w1"], cache=False)
    with pytest.raises(WeightError, match=r"'w1' must be float32 .*, not bfloat16"):
        session.update_weights({"w1": torch.zeros(session.weights["w1"].shape, dtype=torch.bfloat16)})


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda new: new.to_sparse(), "'w1' must be a numpy array, not Tensor"),
        (lambda new: new.to("meta"), "'w1' must be a numpy array, not Tensor"),
    ],
)
def test_tensors_that_are_no_such_weight_are_refused(made: Callable[[Any], Any], message: str) -> None:
    session = litehouse.load(mlp(), engine="torch", updatable=["w1"], cache=False)
    with pytest.raises(WeightError, match=message):
        session.update_weights({"w1": made(torch.ones(session.weights["w1"].shape))})


def test_what_is_no_number_is_refused_and_nothing_changes() -> None:
    session = litehouse.load(mlp(), engine="torch", updatable="all", cache=False)
    x = numbers(*session.inputs[0].shape)
    before = session.run([x])[0]
    w1, w2 = (np.full(session.weights[name].shape, 0.5, "f") for name in ("w1", "w2"))
    w2[0, 0] = np.nan
    with pytest.raises(WeightError, match="'w2' holds values that are not numbers"):
        session.update_weights({"w1": w1, "w2": w2})
    np.testing.assert_array_equal(session.run([x])[0], before)
    session.update_weights({"w2": w2}, allow_nan=True)
    assert np.isnan(session.run([x])[0]).any()


FOUR = np.array([[2, 0, 3, 1]], "f")
# By what they lack to be computed once for an update: nodes from a live weight `w` to `m`, other weights, and the shape
# of a sum with `m`.
BY_WEIGHTS: dict[str, tuple[list[Any], dict[str, np.ndarray], tuple[int | str, ...]]] = {
    "its size": (
        [node("NonZero", "w", "n"), node("Transpose", "n", "t"), node("GatherND", "w t", "m")],
        {},
        (3, "n"),
    ),
    "memory for each element": (
        [node("Exp", "w", "e"), node("Expand", "e s", "m")],
        {"s": np.array([3, 4])},
        (3, 4),
    ),
    "being a tensor": (
        [node("SplitToSequence", "w", "l", axis=1), node("SequenceAt", "l i", "m")],
        {"i": np.array(1)},
        (3, 1),
    ),
}


@pytest.mark.parametrize("case", BY_WEIGHTS)
def test_what_weights_decide(case: str) -> None:
    nodes, weights, shape = BY_WEIGHTS[case]
    nodes = [*nodes, node("Add", "x m", "a"), node("Abs", "a", "y")]
    source, x = model(nodes, {"x": (3, 1)}, {"y": shape}, {"w": FOUR, **weights}), numbers(3, 1)
    session = litehouse.load(source, engine="torch", updatable=["w"], cache=False)
    for numbers_of_w in ([0, 5, 0, 0], [1, 1, 0, 4], [0, 0, 2, 0]):
        new = {"w": np.array([numbers_of_w], "f")}
        session.update_weights(new)
        for _ in range(3):  # captured, too
            np.testing.assert_allclose(session.run([x])[0], truth(source, x, new), rtol=1e-5)


def test_an_update_while_other_sizes_are_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for what is computed from the old values, and is then seen there, too."""
    nodes = [node("Exp", "w", "e"), node("MatMul", "x e", "y")]
    source = model(nodes, {"x": (2, 4)}, {"y": (2, 3)}, {"w": numbers(4, 3)})
    session = litehouse.load(source, engine="torch", updatable=["w"], cache=False)
    x, new, derive = numbers(3, 4, seed=1), numbers(4, 3, seed=2), TorchProgram.derive
    updates = []

    def slow(program: TorchProgram) -> None:
        derive(program)
        if not updates:
            updates.append(threading.Thread(target=session.update_weights, args=({"w": new},)))
            updates[0].start()
            updates[0].join(0.2)  # which is over only if nobody makes it wait

    monkeypatch.setattr(TorchProgram, "derive", slow)
    session.resize([(3, 4)])
    updates[0].join(60)
    np.testing.assert_allclose(session.run([x])[0], x @ np.exp(new), rtol=1e-4)


@pytest.mark.usefixtures("sibling_sessions")
def test_sessions_of_one_file_have_live_weights_of_their_own() -> None:
    name, images = "network.scores.bias", numbers(10, 1, 8, 8)
    expected = litehouse.load(DIGITS, engine="onnxruntime").run([images])[0]
    first, second = (litehouse.load(DIGITS, engine="torch", updatable=[name]) for _ in range(2))
    more = np.arange(10, dtype="f")
    first.update_weights({name: np.array(first.model.weights[name]) + more})
    third = litehouse.load(DIGITS, engine="torch", updatable=[name])
    raised = expected * np.exp(more)  # a softmax is behind it
    np.testing.assert_allclose(first.run([images])[0], raised / raised.sum(1, keepdims=True), rtol=1e-3, atol=1e-4)
    for other in (second, third):
        np.testing.assert_allclose(other.run([images])[0], expected, rtol=1e-4, atol=1e-4)


def test_an_update_that_cannot_be_shared_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    session = litehouse.load(tmp_path / "model.onnx", device="gpu", updatable=["w1"], cache=False)
    session.share([])

    def full(*_: Any) -> None:
        raise WeightError("no memory to share")

    with monkeypatch.context() as patch:
        patch.setattr("litehouse.sharing.Segment.make", full)
        with pytest.raises(WeightError, match="no memory to share"):
            session.update_weights({"w1": np.zeros((4, 300), "f")})
    x = numbers(2, 4)
    np.testing.assert_allclose(session.run([x])[0], mlp_result(x), rtol=1e-4, atol=1e-5)


def test_a_failed_update_leaves_the_old_values() -> None:
    store = Store({"w": np.ones(3, "f")}, torch.device("cpu"))

    class Follower:
        errors: ClassVar = [None, torch.OutOfMemoryError("3 bytes"), None]

        def derive(self) -> None:
            error = self.errors.pop(0) if self.errors else None
            if error is not None:
                raise error

    follower = Follower()
    store.follow(follower)
    with pytest.raises(EngineError, match="the GPU has not enough memory for an update of weights: 3 bytes"):
        store.update({"w": np.zeros(3, "f")})
    assert store.tensors["w"].tolist() == [1, 1, 1]
    assert not follower.errors  # what depends on them is as before, too
    store.update({"w": np.zeros(3, "f")})
    assert store.tensors["w"].tolist() == [0, 0, 0]


def test_other_sizes_have_the_same_weights() -> None:
    source = images()
    session = litehouse.load(source, engine="torch", updatable=["k"], cache=False)
    large = numbers(4, 3, 8, 8, seed=1)
    session.run([numbers(2, 3, 6, 6)])
    session.resize([large.shape])
    session.run([large])
    programs = [session.loaded.built.program, session._builds.current.program]
    assert programs[0] is not programs[1]
    new = numbers(4, 3, 3, 3, seed=7)
    session.update_weights({"k": new})
    other = litehouse.load(source, engine="onnxruntime", updatable="all", updatable_mode="swap", cache=False)
    other.update_weights({"k": new})
    other.resize([large.shape])
    np.testing.assert_allclose(session.run([large])[0], other.run([large])[0], rtol=1e-4, atol=1e-5)
    session.resize([(2, 3, 6, 6)])
    x = numbers(2, 3, 6, 6, seed=3)
    np.testing.assert_allclose(session.run([x])[0], truth(source, x, {"k": new}), rtol=1e-4, atol=1e-5)


def test_runs_beside_updates_see_no_mixture() -> None:
    """Both weights are always equal, so that the difference of the products is 0 unless a run saw one of each."""
    nodes = [node("MatMul", "x a", "p"), node("MatMul", "x b", "q"), node("Sub", "p q", "y")]
    weights = {"a": np.ones((64, 64), "f"), "b": np.ones((64, 64), "f")}
    source = model(nodes, {"x": (4, 64)}, {"y": (4, 64)}, weights)
    session = litehouse.load(source, engine="torch", updatable=["a", "b"], cache=False)
    x, wrong, is_over = numbers(4, 64), [], threading.Event()
    counts = [0, 0]

    def run(place: int) -> None:
        while not is_over.is_set():
            if np.abs(session.run([x])[0]).max() != 0:
                wrong.append(place)
            counts[place] += 1

    threads = [threading.Thread(target=run, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    for number in range(30):
        same = np.full((64, 64), number, "f")
        session.update_weights({"a": same, "b": same})
        before = list(counts)
        while not any(now > then for now, then in zip(counts, before, strict=True)) and not wrong:
            pass  # a run has ended since
    is_over.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_adapters_are_merged_on_the_device(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    down, up = numbers(2, 4, seed=5), numbers(3, 2, seed=6)
    save_file({"w.lora_A": down, "w.lora_B": up}, tmp_path / "adapter.safetensors")
    weight, x = numbers(4, 3), numbers(2, 4, seed=1)
    source = model([node("MatMul", "x w", "y")], {"x": (2, 4)}, {"y": (2, 3)}, {"w": weight})
    session = litehouse.load(source, engine="torch", updatable=["w"], cache=False)
    session.update_weights_from(tmp_path / "adapter.safetensors")
    np.testing.assert_allclose(session.run([x])[0], x @ (weight + (up @ down).T), rtol=1e-4, atol=1e-5)
    session.remove_adapter(tmp_path / "adapter.safetensors")
    np.testing.assert_allclose(session.run([x])[0], x @ weight, rtol=1e-5, atol=1e-6)


def test_turns_let_runs_in_together_and_updates_alone() -> None:
    turns, inside, order = Turns(), threading.Barrier(2), []

    def run() -> None:
        with turns.run():
            inside.wait(60)  # both are inside at once
            order.append("run")

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert order == ["run", "run"]
    began, ended = threading.Event(), threading.Event()

    def update() -> None:
        began.set()
        with turns.update():
            order.append("update")
        ended.set()

    with turns.run():
        thread = threading.Thread(target=update)
        thread.start()
        began.wait(60)
        order.append("run")
    assert ended.wait(60)
    thread.join(60)
    assert order[-2:] == ["run", "update"]


def test_an_update_that_is_interrupted_while_it_waits_keeps_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, order = Turns(), []

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with turns.run(), monkeypatch.context() as patch:
        patch.setattr(turns._changed, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt), turns.update():
            pass

    def run() -> None:
        with turns.run():
            order.append("run")
        with turns.update():
            order.append("update")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert order == ["run", "update"]


NUMBERS = {
    "plain": (np.array([1, 2], "f"), False),
    "none": (np.array([1, np.nan], "f"), True),
    "in a part behind the first": (np.r_[np.zeros(PART, "f"), np.nan].astype("f"), True),
    "infinities, whose sum is none": (np.array([np.inf, -np.inf, 1], "f"), False),
    "infinities and none": (np.array([np.inf, -np.inf, np.nan], "f"), True),
    "too large a sum": (np.array([3e38, 3e38], "f"), False),
    "16 bits": (np.array([6e4, 6e4, np.nan], np.float16), True),
    "other 16 bits": (np.array([1, np.nan], ml_dtypes.bfloat16), True),
    "8 bits": (np.array([1, np.nan], ml_dtypes.float8_e4m3fn), True),
    "whole": (np.array([1, 2]), False),
    "nothing": (np.zeros((0, 3), "f"), False),
    "a single one": (np.array(np.nan, "f"), True),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_what_is_no_number_is_found(case: str) -> None:
    array, is_none = NUMBERS[case]
    own = Store({"w": np.zeros_like(array)}, torch.device("cpu"))
    kept = own.keep({"w": array})
    assert own.not_numbers(kept) == ["w"] * is_none
    own.keep({"w": np.zeros_like(array)})  # by another thread, say
    assert own.not_numbers(kept) == ["w"] * is_none


def test_a_kept_copy_is_one() -> None:
    array = np.arange(6, dtype="f").reshape(2, 3)
    own = Store({"w": np.zeros((3, 2), "f")}, torch.device("cpu"))
    copy = own.keep({"w": array.T})["w"]
    np.testing.assert_array_equal(copy, array.T)
    array[:] = 0
    assert copy.max() == 5
    own.update({"w": copy})
    np.testing.assert_array_equal(own.tensors["w"].numpy(), copy)
    copy[:] = 7
    assert own.tensors["w"].max() == 5


@pytest.mark.parametrize("wrong", [{"w": np.full((4, 4), np.nan, "f")}, {"w": np.ones((4, 4), "f"), "v": np.ones(1)}])
def test_a_refused_update_leaves_nothing_on_the_device(wrong: dict[str, np.ndarray]) -> None:
    data = model([node("MatMul", "x w", "y")], {"x": [4, 4]}, {"y": [4, 4]}, {"w": np.ones((4, 4), "f")})
    session = litehouse.load(data, engine="torch", updatable=["w"], updatable_mode="in_place", cache=False)
    with pytest.raises(WeightError, match="nothing was updated"):
        session.update_weights(wrong)
    assert not session.model.shelf["torch store"]._uploads


def test_large_weights_go_in_parts() -> None:
    shape = (3, PART // 2 + 5)
    array = np.random.default_rng(0).normal(size=shape).astype("f")
    own = Store({"w": np.zeros(shape, "f")}, torch.device("cpu"))
    own.update(own.keep({"w": array}))
    np.testing.assert_array_equal(own.tensors["w"].numpy(), array)


SHARED = """
import sys
import numpy as np
import litehouse
session = litehouse.attach(int(sys.stdin.readline()), device="gpu:0", cache=False)
for line in sys.stdin:
    array = np.load(line.strip())
    print(repr(session.run([array])[0].tolist()), session.engine, flush=True)
"""


class Other:
    """Another process that uses the model."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            [sys.executable, "-c", SHARED], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def ask(self, line: str) -> str:
        self.tell(line)
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        self._process.communicate(timeout=60)


@pytest.mark.parametrize("updatable", [(), ("w2",)], ids=["static", "live"])
def test_processes_share_what_is_on_the_device(
    updatable: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    session = litehouse.load(tmp_path / "model.onnx", device="gpu", updatable=updatable, cache=False)
    x = numbers(*session.inputs[0].shape)
    np.save(tmp_path / "x.npy", x)
    other = Other()
    try:
        other.tell(str(session.share([other.pid])))
        assert other.ask(str(tmp_path / "x.npy")) == f"{session.run([x])[0].tolist()!r} torch\n"
        if updatable:
            session.update_weights({"w2": np.full(session.weights["w2"].shape, 0.125, "f")})
            assert other.ask(str(tmp_path / "x.npy")) == f"{session.run([x])[0].tolist()!r} torch\n"
        else:  # it is the same memory: what is written here, is read there
            session.loaded.built.program.arena.memory.zero_()
            assert other.ask(str(tmp_path / "x.npy")) == f"{session.run([x])[0].tolist()!r} torch\n"
            assert not session.run([x])[0].any()
    finally:
        other.end()


def test_a_process_that_may_not_have_it_gets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    session = litehouse.load(tmp_path / "model.onnx", device="gpu", cache=False)
    handle = session.share([])
    code = f"import litehouse\ntry:\n litehouse.attach({handle}, device='gpu')\n"
    code += "except litehouse.WeightError as error:\n print(error)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert "is not in the list of those that may have them" in done.stdout, done.stderr


def test_it_is_attached_on_a_gpu_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    handle = (session := litehouse.load(tmp_path / "model.onnx", device="gpu", cache=False)).share([])
    for device in ("cpu", "ascend"):
        with pytest.raises(WeightError, match=f"on a GPU, and device is '{device}'; use device='gpu'"):
            litehouse.attach(handle, device=device)
    with pytest.raises(litehouse.EngineError, match=r"nothing can run on 'gpu:3': there is no GPU 3"):
        litehouse.attach(handle, device="gpu:3")
    litehouse.attach(handle, device="gpu", cache=False).close()
    session.close()


def test_what_the_host_has_is_not_attached_on_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    with litehouse.load(tmp_path / "model.onnx", cache=False) as session:
        handle = session.share([])
        with pytest.raises(WeightError, match=r"in the host's memory.*cannot on 'gpu'.*Leave `device` out"):
            litehouse.attach(handle, device="gpu")


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    (tmp_path / "other.onnx").write_bytes(images())
    session = litehouse.load(tmp_path / "model.onnx", device="gpu", cache=False)
    handle = session.share([])
    with pytest.raises(WeightError, match="is not the model whose weights"):
        litehouse.attach(handle, tmp_path / "other.onnx", device="gpu")
    (tmp_path / "model.onnx").write_bytes(images())
    with pytest.raises(WeightError, match="has changed since"):
        litehouse.attach(handle, device="gpu")


def test_a_model_without_a_file_is_not_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    session = litehouse.load(mlp(), device="gpu", cache=False)
    with pytest.raises(WeightError, match="a model is shared by its file"):
        session.share([])


def test_weights_on_the_cpu_are_not_shared_by_torch(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(mlp())
    session = litehouse.load(tmp_path / "model.onnx", engine="torch", cache=False)
    with pytest.raises(WeightError, match="shared by the engine onnxruntime alone"):
        session.share([])


def test_what_is_swapped_is_not_shared_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    how: dict[str, Any] = {"updatable": ["w1"], "updatable_mode": "swap", "tune": "off", "cache": False}
    session = litehouse.load(tmp_path / "model.onnx", device="gpu", **how)
    with pytest.raises(WeightError, match="load it with updatable_mode='in_place'"):
        session.share([])


WRONG = {
    "no arena": ({"arena": None}, {}),
    "an arena of another size": ({"nbytes": 1}, {}),
    "no choice": ({"choice": None}, {}),
    "no list of live weights": ({"live": None}, {}),
    "another shape": ({}, {"w1": np.ones((1, 300), "f")}),
    "another dtype": ({}, {"w1": np.ones((4, 300))}),
    "another name": ({}, {"w3": np.ones((4, 300), "f")}),
}


@pytest.mark.parametrize("case", WRONG)
def test_another_process_is_not_trusted(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    session = litehouse.load(tmp_path / "model.onnx", device="gpu", updatable=["w1"], cache=False)
    wrong, live = WRONG[case]
    make = Segment.make

    def forged(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> Segment:
        if "arena" in facts and "nbytes" in wrong:
            facts = facts | {"arena": facts["arena"] | wrong}
        elif "arena" in facts:
            facts = {name: value for name, value in facts.items() if name not in wrong}
        return make(live if live and "w1" in arrays else arrays, facts)

    with monkeypatch.context() as patch:
        patch.setattr("litehouse.sharing.Segment.make", forged)
        handle = session.share([])
    with pytest.raises(
        WeightError, match=r"not understood|has made other weights|not those of the model|in the host's"
    ):
        litehouse.attach(handle, device="gpu", cache=False)


def test_an_update_of_another_shape_is_not_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    (tmp_path / "model.onnx").write_bytes(mlp())
    session = litehouse.load(tmp_path / "model.onnx", device="gpu", updatable=["w1"], cache=False)
    other = litehouse.attach(session.share([]), device="gpu", cache=False)
    make = Segment.make
    with monkeypatch.context() as patch:
        patch.setattr("litehouse.sharing.Segment.make", lambda *_: make({"w1": np.ones((1, 300), "f")}, {}))
        session.update_weights({"w1": np.zeros((4, 300), "f")})
    x = numbers(2, 4)
    np.testing.assert_allclose(other.run([x])[0], mlp_result(x), rtol=1e-4, atol=1e-5)


def test_what_was_fetched_for_an_update_is_not_copied_again() -> None:
    for kind in (torch.float32, torch.bfloat16):
        numbers = torch.arange(6.0).reshape(3, 2).T.to(kind)  # of no plain order
        for given, is_own in ((values.fetched(numbers), True), (values.as_array(numbers), False)):
            upload = Upload(given, torch.device("cpu"))
            np.testing.assert_array_equal(upload.array.astype("f"), [[0, 2, 4], [1, 3, 5]])
            np.testing.assert_array_equal(upload.tensor.float(), upload.array.astype("f"))
            assert np.shares_memory(upload.array, given) is is_own
            assert upload.tensor.untyped_storage().data_ptr() != numbers.untyped_storage().data_ptr()


@pytest.mark.parametrize("form", ["", "compiled"])
def test_memory_of_a_session_that_is_closed_is_free_at_once(
    gpu: None, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the collector of garbage, which does not know how much the device has to lose."""
    monkeypatch.setattr(Kernels, "find", lambda _, __, function, ___: function)  # the compiler's are its own affair
    program = TorchEngine().compile(
        litehouse.read(mlp(), cache=False), Options(engine="torch", device="gpu", cache=False), form=form
    )
    runner, x = program.bind(), np.ones((2, 4), "f")
    for _ in range(4):
        np.testing.assert_allclose(runner.run([x])[0], mlp_result(x), rtol=1e-4, atol=1e-4)
        (found,) = runner.run_tensors([torch.from_numpy(x)])
        np.testing.assert_allclose(found.cpu(), mlp_result(x), rtol=1e-4, atol=1e-4)
    capture = runner._parts[0].latest
    weights = [tensor for tensor in program.weights if tensor is not None]
    gone = [weakref.ref(each) for each in (runner, program, capture, *capture.inputs.values(), *weights)]
    gone += [weakref.ref(tensor) for tensor in capture.own.device.values()]
    gc.collect()
    gc.disable()
    try:
        del runner, program, found, capture, weights
        assert [each() for each in gone] == [None] * len(gone)
    finally:
        gc.enable()


def test_a_session_lets_go_of_its_runners_when_it_is_closed(gpu: None) -> None:
    session = litehouse.load(mlp(), device="gpu", cache=False, tune="off")
    session.run([np.ones((2, 4), "f")])
    session.run([np.ones((2, 4), "f")])
    gone = [weakref.ref(each) for each in session._builds.current.runners]
    gc.collect()
    gc.disable()
    try:
        session.close()
        assert gone
        assert [each() for each in gone] == [None] * len(gone)
    finally:
        gc.enable()
