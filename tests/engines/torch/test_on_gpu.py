"""What only a GPU that is there can show, beside the tests of ops: streams, scratch memory, and many at once."""

import gc
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from engines.torch.against import one_op
from engines.torch.against_runtime import whole
from engines.torch.onnx_cases import runs
from engines.torch.quantised_cases import CASES
from onnx import helper

import litehouse
from conftest import REAL_GPU
from litehouse import Options, read
from litehouse.engines.torch import ipc, pieces
from litehouse.engines.torch.captures import Capture
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.frame import Frame, Step
from onnx_models import mlp, mlp_result, mlp_weights, model, node

pytestmark = pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
TO = {"to": np.array([3, 2])}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's compiler, in torch itself
@pytest.mark.parametrize("form", ["", "compiled"])
def test_no_warnings(form: str) -> None:
    """Of an empty graph, as one that only reshapes has; nor of the precision that the caller has chosen."""
    x = np.arange(6, dtype="f").reshape(2, 3)
    reshaped = whole([node("Reshape", "x to", "y"), node("Transpose", "y", "z")], {"x": x}, ["z"], TO)
    multiplied = whole([node("MatMul", "x w", "y"), node("Relu", "y", "z")], {"x": x}, ["z"], {"w": x.T})
    for data, wanted in ((reshaped, x.reshape(3, 2).T), (multiplied, x @ x.T)):
        options = Options(engine="torch", device="gpu", cache=False)
        runner = TorchEngine().compile(read(data), options, is_plain=True, form=form, precision="fp32").bind()
        for _ in range(3):
            np.testing.assert_allclose(runner.run([x])[0], wanted, 1e-5)


EXACT = ["QLinearAdd", "QLinearAveragePool", "QLinearConcat", "QLinearConv", "QLinearMul", "QLinearSigmoid"]


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_made_kernels_round_as_torch_s_own(op: str) -> None:
    case = next(each for each in CASES.values() if each.op == op)
    data = one_op(op, case.inputs, domain="com.microsoft", dtypes=case.dtypes, known=case.known, more=case.attributes)
    given = [array for place, array in enumerate(case.inputs) if array is not None and place not in case.known]
    options = Options(engine="torch", device="gpu", cache=False)
    programs = [TorchEngine().compile(read(data), options, form=form, precision="fp32") for form in ("", "compiled")]
    plain, made = (runs(program, given)[-1][0] for program in programs)
    assert programs[1].kernels._made
    np.testing.assert_array_equal(made, plain)


def _side_by_side(count: int, work: Callable[[int], None]) -> None:
    """Do work in threads that are all there at a time: none gets what another one had of torch's libraries."""
    wrong, all_there = [], threading.Barrier(count)

    def run(number: int) -> None:
        try:
            all_there.wait()
            work(number)
        except Exception as error:  # noqa: BLE001
            wrong.append(repr(error))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


def test_many_sessions_beside_streams_of_the_caller() -> None:
    """More than torch has streams: what one captures is not disturbed by what others do on theirs."""
    sessions = [litehouse.load(mlp(seed=seed % 5), device="gpu", cache=False, tune="off") for seed in range(40)]
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("f")
    wanted, on_device = [mlp_result(x, seed=seed) for seed in range(5)], torch.from_numpy(x).cuda()

    def ask(first: int) -> None:
        for number in range(60):
            chosen = (first * 7 + number * 3) % 40
            np.testing.assert_allclose(sessions[chosen].run([x])[0], wanted[chosen % 5], 1e-4, 1e-4)
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                stream.wait_stream(torch.cuda.default_stream())
                found = sessions[chosen].run([on_device])[0].cpu()
            np.testing.assert_allclose(found, wanted[chosen % 5], 1e-4, 1e-4)

    _side_by_side(8, ask)


def test_updates_beside_captures() -> None:
    """Runs of ever new sizes are captured, and make room for others, while weights change."""
    weight, x = mlp_weights()["w1"], np.random.default_rng(0).normal(size=(1, 4)).astype("f")
    session = litehouse.load(mlp("n"), device="gpu", cache=False, tune="off", updatable=["w1"])
    own = litehouse.load(mlp("n"), engine="onnxruntime", cache=False, updatable=["w1"])
    choices = [weight, weight * np.float32(-2)]
    wanted, wrong, is_over = [], [], threading.Event()
    for each in choices:
        own.update_weights({"w1": each})
        wanted.append(own.run([x])[0])

    def ask() -> None:
        try:
            for number in range(400):
                found = session.run([np.repeat(x, 1 + number // 4 % 40, 0)])[0]
                assert any(np.allclose(found, right, 1e-3, 1e-3) for right in wanted), "a mixture of weights"
        except Exception as error:  # noqa: BLE001
            wrong.append(repr(error))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    ending = threading.Thread(target=lambda: ([thread.join() for thread in threads], is_over.set()))
    for thread in (*threads, ending):
        thread.start()
    for each in itertools.cycle(choices):
        if is_over.is_set():
            break
        session.update_weights({"w1": each})
        session.update_weights({"w1": torch.nn.Parameter(torch.from_numpy(each).cuda())})
    assert not wrong, wrong[0]


def _blocks() -> int:
    """How many blocks of memory for weights there are."""
    return sum(type(each) is ipc._Block for each in gc.get_objects())  # others may warn when they are asked


def test_sessions_that_are_closed_beside_captures() -> None:
    """Their memory is free at once, and what others capture meanwhile is not disturbed."""
    x, wrong, is_over = np.ones((1, 4), "f"), [], threading.Event()
    lasting = litehouse.load(mlp("n"), device="gpu", cache=False, tune="off")

    def capture() -> None:
        try:
            for number in range(400):
                rows = np.repeat(x, 1 + number // 4 % 40, 0)
                np.testing.assert_allclose(lasting.run([rows])[0], mlp_result(rows), 1e-4, 1e-4)
        except Exception as error:  # noqa: BLE001
            wrong.append(repr(error))
        is_over.set()

    def come_and_go(seed: int) -> None:
        try:
            while not is_over.is_set():
                with litehouse.load(mlp(1, seed=seed), device="gpu", cache=False, tune="off") as session:
                    found = [session.run([x])[0] for _ in range(3)]
                np.testing.assert_allclose(found, [mlp_result(x, seed=seed)] * 3, 1e-4, 1e-4)
        except Exception as error:  # noqa: BLE001
            wrong.append(repr(error))

    threads = [threading.Thread(target=capture), *(threading.Thread(target=come_and_go, args=(n,)) for n in (1, 2))]
    gc.disable()
    try:
        before = torch.cuda.mem_get_info()[0]
        others = _blocks()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        left = before - torch.cuda.mem_get_info()[0]
        kept = _blocks() - others
    finally:
        gc.enable()
    assert not wrong, wrong[0]
    assert left < 1 << 30  # a few streams, and what was captured: not hundreds of sessions
    assert kept <= 0


LONG = 1 << 15  # a product over so much is made of parts, which are added up in scratch memory


def _long_product() -> tuple[bytes, np.ndarray, np.ndarray]:
    """A model, its input, and what comes of it."""
    weight = np.random.default_rng(0).normal(size=(LONG, 8)).astype("f") / 128
    x = weight.T.copy()
    data = whole([node("MatMul", "x w", "y"), node("Relu", "y", "z")], {"x": x}, ["z"], {"w": weight})
    return data, x, np.maximum(weight.T.astype("d") @ weight, 0)


def _check_product(session: litehouse.Session, x: np.ndarray, wanted: np.ndarray) -> None:
    on_device = torch.from_numpy(x).cuda()
    for _ in range(6):
        np.testing.assert_allclose(session.run([on_device])[0].cpu(), wanted, 1e-3, 1e-3)


def _check_scratch(session: litehouse.Session, x: np.ndarray, wanted: np.ndarray) -> None:
    """Let others have all memory that is free, and hold both their numbers and the products against what is right."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    others = [torch.full((1 << 18,), float(number), device="cuda") for number in range(256)]
    _check_product(session, x, wanted)
    assert all(bool((other == number).all()) for number, other in enumerate(others))


@pytest.mark.parametrize("is_before", [False, True])
def test_scratch_memory_that_others_let_go_of(is_before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `torch.compile(mode="reduce-overhead")` does with that of all products of the process, at any time."""
    warm_up = Capture._warm_up

    def cleared(self: Capture) -> None:
        torch._C._cuda_clearCublasWorkspaces()
        warm_up(self)

    if is_before:
        monkeypatch.setattr(Capture, "_warm_up", cleared)
    data, x, wanted = _long_product()
    session = litehouse.load(data, device="gpu", cache=False, tune="off")
    _check_product(session, x, wanted)
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    _check_scratch(session, x, wanted)


def _long_product_of_any_rows() -> tuple[bytes, np.ndarray, np.ndarray]:
    """The same, with an input of any count of rows."""
    _, x, wanted = _long_product()
    nodes = [node("MatMul", "x w", "y"), node("Relu", "y", "z")]
    return model(nodes, {"x": ["n", LONG]}, {"z": ["n", 8]}, {"w": x.T.copy()}), x, wanted


def test_scratch_memory_where_a_capture_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch 2.12 lets go of that of its stream then, which others use that were captured there."""
    monkeypatch.setattr(pieces, "MAX_CAPTURES", 1)
    monkeypatch.setattr(pieces, "MIN_SEEN_FULL", 1)
    data, x, wanted = _long_product_of_any_rows()
    session = litehouse.load(data, device="gpu", cache=False, tune="off")
    for rows in (8, 4):
        _check_product(session, x[:rows], wanted[:rows])
    _check_scratch(session, x[:4], wanted[:4])


def test_scratch_memory_where_torch_keeps_all_the_rest() -> None:
    """It lets go of that by itself, but not for memory of a pool."""
    data, x, wanted = _long_product_of_any_rows()
    session = litehouse.load(data, device="gpu", cache=False, tune="off")
    session.run([torch.from_numpy(x).cuda()])
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.empty(torch.cuda.mem_get_info()[0] - (1 << 24), dtype=torch.uint8, device="cuda")
    _check_product(session, x, wanted)
    (piece,) = session._builds.current.runners[-1]._parts
    assert piece._captures


IMAGE = (4, 9, 9)  # 1296 bytes: of images in a row, every other one is not at a multiple of 32
FILTERS, TABLE = (
    np.random.default_rng(seed).normal(size=size).astype("f") for seed, size in ((5, (8, 4, 3, 3)), (6, (8, 5)))
)


def _images(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, *IMAGE)).astype("f")


def _classifier(count: int | str) -> bytes:
    """A convolution and a product: cuDNN, and cuBLAS."""
    nodes = [node("Conv", "x f", "a"), node("Relu", "a", "b"), node("GlobalAveragePool", "b", "c")]
    nodes += [node("Flatten", "c", "d"), node("MatMul", "d t", "e"), node("Tanh", "e", "y")]
    return model(nodes, {"x": [count, *IMAGE]}, {"y": [count, 5]}, {"f": FILTERS, "t": TABLE})


def _classes(x: np.ndarray) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype("d"), (3, 3), (2, 3))
    found = np.maximum(np.einsum("nchwij,ocij->nohw", windows, FILTERS), 0).mean((2, 3))
    return np.tanh(found @ TABLE)


def test_a_network_without_products_where_torch_must_be_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch lets cuBLAS multiply only where a program has told it how much scratch memory it has."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    data = model([node("Conv", "x f", "a"), node("Relu", "a", "y")], {"x": [2, *IMAGE]}, {"y": None}, {"f": FILTERS})
    session = litehouse.load(data, device="gpu", cache=False, tune="off")
    wanted = session.run([_images(2)])[0]
    other = litehouse.load(data, device="gpu", cache=False, tune="off")
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            np.testing.assert_allclose(other.run([_images(2)])[0], wanted, 1e-4, 1e-4)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("form", ["", "compiled"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_captures_in_threads_that_have_not_computed_before(form: str) -> None:
    """What one thread has run once, others capture for arrays, and for inputs where they are."""
    options = Options(engine="torch", device="gpu", cache=False)
    program = TorchEngine().compile(read(_classifier(2)), options, form=form, precision="fp32")
    runners, x = [program.bind() for _ in range(12)], _images(2)
    for runner in runners:
        np.testing.assert_allclose(runner.run([x])[0], _classes(x), 1e-4, 1e-4)

    def ask(number: int) -> None:
        on_device = torch.from_numpy(x).cuda()
        for _ in range(5):
            found = runners[number].run([x])[0] if number % 2 else runners[number].run_tensors([on_device])[0].cpu()
            np.testing.assert_allclose(found, _classes(x), 1e-4, 1e-4)

    _side_by_side(len(runners), ask)


@pytest.mark.parametrize("size", [64, 128])
def test_attention_in_threads_that_have_not_computed_before(size: int) -> None:
    """In 16 bits, by kernels that plan what they do anew in each thread."""
    parts = [np.random.default_rng(seed).normal(size=(1, 32, 4 * size)).astype("f") for seed in range(3)]
    attend = helper.make_node("MultiHeadAttention", ["x0", "x1", "x2"], ["a"], domain="com.microsoft", num_heads=4)
    data = whole([attend, node("Neg", "a", "y")], {f"x{place}": part for place, part in enumerate(parts)}, ["y"])
    options = Options(engine="torch", device="gpu", cache=False)
    exact, program = (TorchEngine().compile(read(data), options, precision=each) for each in ("fp32", "fp16"))
    (wanted,) = exact.bind().run(parts)
    runners = [program.bind() for _ in range(8)]
    for runner in runners:
        runner.run(parts)

    def ask(number: int) -> None:
        on_device = [torch.from_numpy(part).cuda() for part in parts]
        for _ in range(5):
            runner = runners[number]
            found = runner.run(parts)[0] if number % 2 else runner.run_tensors(on_device)[0].cpu().numpy()
            np.testing.assert_allclose(found, wanted, 2e-2, 2e-2)

    _side_by_side(len(runners), ask)


def test_images_between_the_places_that_convolutions_like() -> None:
    """Behind the first one of a row, as a part of a batch: cuDNN's kernels for such are others."""
    session = litehouse.load(_classifier(2), device="gpu", cache=False, tune="off")
    row = torch.from_numpy(_images(5)).cuda()
    for first in (0, 1, 2, 3) * 6:
        found = session.run([row[first : first + 2]])[0].cpu()
        np.testing.assert_allclose(found, _classes(_images(5)[first : first + 2]), 1e-4, 1e-4)


def test_convolutions_of_ever_new_sizes_beside_captures() -> None:
    """New sizes run step by step, and try kernels, for which cuDNN waits for all the GPU; meanwhile others capture."""
    session = litehouse.load(_classifier("n"), device="gpu", cache=False, tune="off")

    def ask(number: int) -> None:
        for turn in range(120):
            x = _images(1 + (turn // 3 + 7 * number) % 40, seed=number)
            np.testing.assert_allclose(session.run([x])[0], _classes(x), 1e-4, 1e-4)

    _side_by_side(4, ask)


def test_scratch_memory_of_a_thread_that_has_ended() -> None:
    """Torch may give it back then, though what the thread has captured still uses it."""
    data, x, wanted = _long_product()
    sessions: list[litehouse.Session] = []

    def begin(_: int) -> None:
        sessions.append(litehouse.load(data, device="gpu", cache=False, tune="off"))
        _check_product(sessions[0], x, wanted)

    _side_by_side(1, begin)
    _check_scratch(sessions[0], x, wanted)


@pytest.mark.parametrize("text", ["out of memory", "of another kind", "that waits"])
def test_a_capture_that_fails_half_way(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is right, and the stream and all memory as before: the next one is captured where it can be."""
    run, x, failed = Frame.run_noted, _images(2), []

    def fail(self: Frame, steps: Sequence[Step]) -> None:
        run(self, steps)
        if torch.cuda.is_current_stream_capturing() and not failed:
            failed.append(True)
            if text == "that waits":
                torch.zeros(1, device="cuda").item()  # CUDA ends the capture, and torch does not know
            raise torch.OutOfMemoryError(text) if text == "out of memory" else RuntimeError(text)

    monkeypatch.setattr(Frame, "run_noted", fail)
    session = litehouse.load(_classifier("n"), device="gpu", cache=False, tune="off")
    for _ in range(2):
        np.testing.assert_allclose(session.run([x])[0], _classes(x), 1e-4, 1e-4)
    assert failed
    for _ in range(6):
        np.testing.assert_allclose(session.run([x])[0], _classes(x), 1e-4, 1e-4)
        found = session.run([torch.from_numpy(x).cuda()])[0].cpu()
        np.testing.assert_allclose(found, _classes(x), 1e-4, 1e-4)
    assert not torch.cuda.is_current_stream_capturing()
    (piece,) = session._builds.current.runners[-1]._parts
    assert (piece.latest is None) == (text == "out of memory")
    torch.rand(1, device="cuda")
    before, other = torch.cuda.memory_reserved(), torch.cuda.Stream()
    for _ in range(20):
        torch.zeros(1 << 24, device="cuda").record_stream(other)
        torch.cuda.synchronize()
    assert torch.cuda.memory_reserved() - before < 1 << 28  # what came free was used again


@pytest.mark.parametrize("shape", [(1, 600, 600), (8, 600, 600), (40, 32, 32), (4, 129, 129)])
def test_matrices_of_all_sizes_are_captured(shape: tuple[int, ...]) -> None:
    """Torch decomposes many large ones by a library that waits for the GPU."""
    x = (np.random.default_rng(0).normal(size=shape) / shape[-1] ** 0.5 + 3 * np.eye(shape[-1])).astype("f")
    nodes = [helper.make_node("Inverse", ["x"], ["y"], domain="com.microsoft"), node("Det", "y", "z")]
    options = Options(engine="torch", device="gpu", cache=False)
    runner = TorchEngine().compile(read(whole(nodes, {"x": x}, ["y", "z"])), options).bind()
    wanted = np.linalg.inv(x.astype("d"))
    for _ in range(4):
        inverse, determinant = runner.run([x])
        np.testing.assert_allclose(inverse, wanted, 1e-3, 1e-5)
        np.testing.assert_allclose(determinant, np.linalg.det(wanted), 1e-2, 1e-6)
    (piece,) = runner._parts
    assert piece.latest is not None


def test_arrays_of_cupy() -> None:
    """On a stream of its own; what comes back goes there without a copy."""
    cupy = pytest.importorskip("cupy")
    session = litehouse.load(mlp(2), device="gpu", cache=False, tune="off")
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("f")
    with cupy.cuda.Stream(non_blocking=True):
        given = cupy.asarray(x)
        for _ in range(6):
            given += np.float32(1)
            (found,) = session.run([given])
            back = cupy.from_dlpack(found)
            assert back.data.ptr == found.data_ptr()
            np.testing.assert_allclose(cupy.asnumpy(back), mlp_result(cupy.asnumpy(given)), 1e-4, 1e-4)


DROPPING = """
import numpy as np, torch, litehouse, sys
sys.path[:0] = {path!r}
from onnx_models import mlp, mlp_result
session = litehouse.load(mlp(1024), device="gpu", cache=False, tune="off")
rest = session.twin()  # so that no weights are freed, for which the driver waits
x = np.random.default_rng(0).normal(size=(1024, 4)).astype("f")
on_device, stream = torch.from_numpy(x).cuda(), torch.cuda.Stream()
for _ in range(6):
    session.run([on_device])
torch.cuda.synchronize()
with torch.cuda.stream(stream):
    torch.cuda._sleep(1 << 31)  # cycles: about a second
    found = session.run([on_device])[0]
session.close()
del session
torch.cuda.empty_cache()
others = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(256)]
torch.cuda.synchronize()
np.testing.assert_allclose(found.cpu(), mlp_result(x), 1e-3, 1e-3)
assert all(bool((other == 7).all()) for other in others)
"""


@pytest.mark.parametrize("setting", ["expandable_segments:False", "expandable_segments:True"])
def test_a_session_that_is_dropped_while_a_caller_s_stream_replays_it(setting: str) -> None:
    """Memory of the expandable kind is unmapped when the stream that it was taken on is through: others may not be."""
    settings = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), setting)
    command = [sys.executable, "-c", DROPPING.format(path=[str(Path(__file__).parents[2])])]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


OTHER_ALLOCATOR = """
import numpy as np, torch, litehouse, sys
sys.path[:0] = {path!r}
from onnx_models import mlp, mlp_result
assert torch.cuda.get_allocator_backend() == "cudaMallocAsync"
session, x = litehouse.load(mlp(4), device="gpu", cache=False, tune="off"), np.ones((4, 4), "f")
for _ in range(6):
    np.testing.assert_allclose(session.run([x])[0], mlp_result(x), 1e-4, 1e-4)
    np.testing.assert_allclose(session.run([torch.from_numpy(x).cuda()])[0].cpu(), mlp_result(x), 1e-4, 1e-4)
"""


def test_an_allocator_without_pools() -> None:
    settings = dict.fromkeys(("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"), "backend:cudaMallocAsync")
    command = [sys.executable, "-c", OTHER_ALLOCATOR.format(path=[str(Path(__file__).parents[2])])]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU, or none")
def test_the_caller_s_current_gpu_stays_as_it_was() -> None:
    session, x = litehouse.load(_classifier(2), device="gpu:1", cache=False, tune="off"), _images(2)
    for _ in range(6):
        np.testing.assert_allclose(session.run([x])[0], _classes(x), 1e-4, 1e-4)
        found = session.run([torch.from_numpy(x).to("cuda:1")])[0]
        np.testing.assert_allclose(found.cpu(), _classes(x), 1e-4, 1e-4)
        assert torch.cuda.current_device() == 0
