"""What the torch engine says of itself: where it can run, in which forms, and what it does not do."""

import sys
from pathlib import Path

import numpy as np
import pytest

import litehouse
from litehouse import EngineError, Options
from litehouse.engines.base import Names
from litehouse.engines.torch.engine import TorchEngine
from onnx_models import mlp, mlp_result, model, node

torch = pytest.importorskip("torch")

ENGINE = TorchEngine()


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two GPUs, as far as torch tells."""
    monkeypatch.delenv("LITEHOUSE_REHEARSE_GPU", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LITEHOUSE_REHEARSE_GPU", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")


# Where ----------------------------------------------------------------------------------------------------------------


def test_on_the_cpu_it_must_be_asked_for() -> None:
    assert ENGINE.available(Options(engine="torch")) is None
    assert ENGINE.available(Options()) == "on the CPU it is used only where it is asked for"


@pytest.mark.parametrize("engine", ["auto", "torch"])
def test_on_each_gpu_that_is_there(gpus: None, engine: str) -> None:
    for device in ("gpu", "gpu:0", "gpu:1"):
        assert ENGINE.available(Options(device=device, engine=engine)) is None
    reason = ENGINE.available(Options(device="gpu:2", engine=engine))
    assert reason == "there is no GPU 2: torch finds 2, from 0 on"


def test_no_gpu(no_gpu: None) -> None:
    reason = ENGINE.available(Options(device="gpu"))
    assert reason == "torch finds no GPU; check that nvidia-smi shows one, and what CUDA_VISIBLE_DEVICES says"
    with pytest.raises(EngineError, match=r"no engine can run on 'gpu:1'\. torch: torch finds no GPU"):
        litehouse.load(mlp(), device="gpu:1", engine="torch", cache=False)


def test_a_gpu_that_is_too_small(rehearsed_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(nbytes: int, place: object) -> None:
        raise torch.OutOfMemoryError(f"{nbytes} bytes for weights")

    monkeypatch.setattr("litehouse.engines.torch.ipc.allocate", full)
    with pytest.raises(EngineError, match=r"gpu:0 has not enough memory for the model \(\d+ bytes for weights\); free"):
        litehouse.load(mlp(), device="gpu:0", cache=False)


def test_what_does_not_fit_in_beside_the_first_takes_no_part(
    rehearsed_gpu: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that takes most of a GPU runs on it: only other forms of it have no room."""
    from litehouse.engines.torch import ipc

    real, calls = ipc.allocate, list[int]()

    def nearly_full(nbytes: int, place: torch.device) -> torch.Tensor:
        calls.append(nbytes)
        if len(calls) > 1:
            raise torch.OutOfMemoryError("no room")
        return real(nbytes, place)

    monkeypatch.setattr(ipc, "allocate", nearly_full)
    monkeypatch.setattr("litehouse.engines.select.race", None)  # one alone is not timed
    session = litehouse.load(mlp(), device="gpu", precision="fp16", tune="full", cache=False)
    assert session.precision == "fp32"
    assert len(calls) > 1
    x = np.ones((2, 4), "f")
    np.testing.assert_allclose(session.run([x])[0], mlp_result(x), rtol=1e-5)


def test_ascend(gpus: None) -> None:
    assert ENGINE.available(Options(device="ascend", engine="torch")) == "it does not run on 'ascend'"


def test_advice_is_of_use(rehearsed_gpu: None) -> None:
    with pytest.raises(EngineError) as caught:  # no other package would bring that GPU
        litehouse.load(mlp(), cache=False, device="gpu:7")
    assert str(caught.value) == "no engine can run on 'gpu:7'. torch: there is no GPU 7: torch finds 1, from 0 on"
    with pytest.raises(EngineError, match=r"install onnxruntime-gpu.*\. Without a provider, torch would run it$"):
        litehouse.load(mlp(), cache=False, device="gpu", provider="tensorrt")


@pytest.mark.parametrize("options", [{"engine": "torch"}, {"engine": "torch", "device": "gpu"}], ids=str)
def test_no_torch(monkeypatch: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    reason = ENGINE.available(Options(**options))
    assert reason is not None
    assert reason.startswith("torch does not import")
    assert reason.endswith("install it with: pip install torch")
    with pytest.raises(EngineError, match=r"torch: torch does not import.*pip install torch"):
        litehouse.load(mlp(), cache=False, **options)


def test_without_torch_the_others_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    x = np.ones((2, 4), np.float32)
    session = litehouse.load(mlp(), cache=False)
    np.testing.assert_allclose(session.run([x])[0], mlp_result(x), rtol=1e-4)
    with pytest.raises(EngineError, match=r"no engine can run on 'gpu'\. torch: .*\. onnxruntime: "):
        litehouse.load(mlp(), cache=False, device="gpu")


# Forms ----------------------------------------------------------------------------------------------------------------

IMAGES = model([node("Conv", "x w", "y")], {"x": [1, 2, 5, 5]}, {"y": None}, {"w": np.ones((2, 2, 3, 3), "f")})
SOUND = model([node("Conv", "x w", "y")], {"x": [1, 2, 5]}, {"y": None}, {"w": np.ones((2, 2, 3), "f")})
BOTH, COMPILED, LAST = "compiled channels last", "compiled", "channels last"


@pytest.mark.parametrize(
    ("data", "tune", "allowed", "precision", "expected"),
    [
        (IMAGES, "fast", "fp32", "fp32", (COMPILED,)),
        (IMAGES, "fast", "fp16", "fp16", (BOTH,)),
        (IMAGES, "full", "fp32", "fp32", (COMPILED, LAST, BOTH)),
        (IMAGES, "full", "fp16", "fp16", (COMPILED, LAST, BOTH)),
        (IMAGES, "full", "fp16", "fp32", ()),  # 16 bits are faster in any form
        (SOUND, "fast", "fp16", "fp16", (COMPILED,)),
        (SOUND, "full", "fp16", "fp16", (COMPILED,)),
        (mlp(), "full", "fp32", "fp32", (COMPILED,)),
    ],
)
def test_forms(data: bytes, tune: str, allowed: str, precision: str, expected: tuple[str, ...], gpus: None) -> None:
    options = Options(device="gpu", tune=tune, precision=allowed)
    assert ENGINE.forms(litehouse.read(data), options, precision) == expected


def test_the_cpu_has_one_form() -> None:
    for tune in ("fast", "full"):
        assert ENGINE.forms(litehouse.read(IMAGES), Options(engine="torch", tune=tune), "fp32") == ()


# What it does not do --------------------------------------------------------------------------------------------------


def test_programs_are_not_kept(tmp_path: Path) -> None:
    read = litehouse.read(mlp())
    program = ENGINE.compile(read, Options(engine="torch", cache=False))
    with pytest.raises(EngineError, match="keeps no programs"):
        program.save(tmp_path)
    with pytest.raises(EngineError, match="keeps no programs"):
        ENGINE.restore(tmp_path, Names.of(read), Options(engine="torch"), "fp32")


def test_a_domain_that_is_not_known() -> None:
    read = litehouse.read(mlp())
    odd = read.graph.graph[1]
    odd.domain, odd.name = "own", "odd"
    with pytest.raises(EngineError, match=r"Relu \(node odd\) is of the domain 'own'"):
        litehouse.Session(read, Options(engine="torch", cache=False))


def test_a_batch_that_cannot_be_split() -> None:
    from onnx import helper

    data = model([helper.make_node("Softmax", ["x"], ["y"], axis=0)], {"x": [4, 2]}, {"y": [4, 2]})
    with pytest.raises(EngineError, match="cannot be made torch functions: Softmax"):  # the race then does without it
        ENGINE.compile(litehouse.read(data), Options(engine="torch", cache=False), parts=2)


def test_what_fails_while_running_is_told_with_its_node() -> None:
    from onnx import helper

    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], name="layer/product")]
    data = model(nodes, {"x": ["n", "m"]}, {"y": None}, {"w": np.ones((4, 2), np.float32)})
    session = litehouse.load(data, engine="torch", cache=False)
    with pytest.raises(EngineError, match=r"torch failed while running: MatMul \(node layer/product\)"):
        session.run([np.ones((2, 3), np.float32)])
    assert session.run([np.ones((2, 4), np.float32)])[0].tolist() == [[4, 4], [4, 4]]
