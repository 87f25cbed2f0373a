"""What only a GPU that is there can show: kernels that torch lacks for some type, streams, and many at once."""

import gc
import itertools
import threading

import numpy as np
import pytest
import torch
from engines.torch.against_runtime import whole
from engines.torch.onnx_cases import all_cases, run_case

import litehouse
from conftest import REAL_GPU
from litehouse import Options, read
from litehouse.engines.torch import ipc
from litehouse.engines.torch.engine import TorchEngine
from onnx_models import mlp, mlp_result, mlp_weights, node

TO = {"to": np.array([3, 2])}


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
def test_all_cases() -> None:
    """One test, as it is skipped nearly everywhere."""
    wrong = {}
    for name in all_cases():
        if not _error(name, "cpu") and (error := _error(name, "gpu:0")):  # other tests say what the CPU must pass
            wrong[name] = error
    assert not wrong, f"{len(wrong)} cases: {wrong}"


def _error(name: str, device: str) -> str:
    try:
        run_case(name, may_lack=True, device=device)
    except Exception as error:  # noqa: BLE001  (whatever it is, the next case runs)
        return f"{type(error).__name__}: {error}"[:300]
    return ""


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
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


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
def test_many_sessions_beside_streams_of_the_caller() -> None:
    """More than torch has streams: what one captures is not disturbed by what others do on theirs."""
    sessions = [litehouse.load(mlp(seed=seed % 5), device="gpu", cache=False, tune="off") for seed in range(40)]
    x = np.random.default_rng(0).normal(size=(2, 4)).astype("f")
    wanted, on_device, wrong = [mlp_result(x, seed=seed) for seed in range(5)], torch.from_numpy(x).cuda(), []

    def ask(first: int) -> None:
        try:
            for number in range(60):
                chosen = (first * 7 + number * 3) % 40
                np.testing.assert_allclose(sessions[chosen].run([x])[0], wanted[chosen % 5], 1e-4, 1e-4)
                stream = torch.cuda.Stream()
                with torch.cuda.stream(stream):
                    stream.wait_stream(torch.cuda.default_stream())
                    found = sessions[chosen].run([on_device])[0].cpu()
                np.testing.assert_allclose(found, wanted[chosen % 5], 1e-4, 1e-4)
        except Exception as error:  # noqa: BLE001  (it is told in the end)
            wrong.append(repr(error))

    threads = [threading.Thread(target=ask, args=(first,)) for first in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0]


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
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
    return sum(isinstance(each, ipc._Block) for each in gc.get_objects())


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
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


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
def test_scratch_memory_that_others_let_go_of() -> None:
    """As `torch.compile(mode="reduce-overhead")` does with that of all products of the process."""
    long = 1 << 15  # such a product is made of parts, which are added up in scratch memory
    weight = np.random.default_rng(0).normal(size=(long, 8)).astype("f") / 128
    data = whole([node("MatMul", "x w", "y"), node("Relu", "y", "z")], {"x": weight.T}, ["z"], {"w": weight})
    session = litehouse.load(data, device="gpu", cache=False, tune="off")
    x = torch.from_numpy(weight.T.copy()).cuda()
    wanted = np.maximum(weight.T.astype("d") @ weight, 0)
    for _ in range(6):
        np.testing.assert_allclose(session.run([x])[0].cpu(), wanted, 1e-3, 1e-3)
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    others = [torch.full((1 << 18,), float(number), device="cuda") for number in range(256)]
    for _ in range(6):
        np.testing.assert_allclose(session.run([x])[0].cpu(), wanted, 1e-3, 1e-3)
    assert all(bool((other == number).all()) for number, other in enumerate(others))
