"""The weights on a device: in one piece of memory, each as it was."""

import gc
import itertools
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import litehouse
from litehouse import EngineError, Options, WeightError, read
from onnx_models import mlp, mlp_result, mlp_weights, model, node

torch = pytest.importorskip("torch")

from litehouse.engines.torch import ipc  # noqa: E402
from litehouse.engines.torch.arena import ALIGNMENT, Arena  # noqa: E402
from litehouse.engines.torch.engine import TorchEngine  # noqa: E402

CPU = torch.device("cpu")
X = torch.arange(24.0).reshape(2, 3, 4)
IMAGES = torch.arange(120.0).reshape(2, 3, 4, 5)
SPACE = torch.arange(720.0).reshape(2, 3, 4, 5, 6)
GIVEN = {
    "plain": X,
    "turned": X.permute(2, 0, 1),
    "repeated": X[:1, :1].expand(5, 3, 4),
    "one number repeated": torch.tensor(3.0).expand(7),
    "apart": X[:, :, 1],
    "backwards by columns": X[0].t()[1:],
    "scalar": torch.tensor(7),
    "empty": X[:0],
    "truth": torch.tensor([True, False, True]),
    "bits": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    "long": torch.tensor([1 << 40, -1]),
    "channels last": IMAGES.contiguous(memory_format=torch.channels_last),
    "channels last in space": torch.arange(720.0)
    .reshape(2, 3, 4, 5, 6)
    .contiguous(memory_format=torch.channels_last_3d),
    "part of channels last": IMAGES.contiguous(memory_format=torch.channels_last)[:, :2],
    "overlapping": torch.arange(8.0).as_strided((3, 4), (2, 1)),
}
KEPT = ("plain", "turned", "channels last", "channels last in space", "scalar")
ORDERED = ("repeated", "one number repeated", "apart", "part of channels last", "overlapping", "backwards by columns")


@pytest.fixture
def arena() -> Arena:
    return Arena(GIVEN, CPU)


def test_numbers_types_and_sizes(arena: Arena) -> None:
    assert arena.tensors.keys() == GIVEN.keys()
    for name, tensor in GIVEN.items():
        assert torch.equal(arena.tensors[name], tensor), name
        assert arena.tensors[name].dtype == tensor.dtype


def test_the_order_of_elements_stays_where_each_has_a_place(arena: Arena) -> None:
    for name in KEPT:
        assert arena.tensors[name].stride() == GIVEN[name].stride(), name
    for name in ORDERED:
        assert arena.tensors[name].is_contiguous(), name


def test_all_is_in_one_piece_and_nothing_overlaps(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, size = arena.memory.data_ptr(), arena.memory.numel()
    assert arena.memory.dtype == torch.uint8
    spans = []
    for tensor in arena.tensors.values():
        if tensor.numel():
            assert tensor.untyped_storage().data_ptr() == begin
            first = tensor.data_ptr() - begin
            assert first % ALIGNMENT == 0
            spans.append((first, first + tensor.numel() * tensor.element_size()))
    spans.sort()
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert spans[-1][1] <= size
    assert size < sum(tensor.nbytes for tensor in arena.tensors.values()) + ALIGNMENT * len(GIVEN)


def test_memory_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    allocate = ipc.allocate
    monkeypatch.setattr(ipc, "allocate", lambda nbytes, place: asked.append(nbytes) or allocate(nbytes, place))
    arena = Arena(GIVEN, CPU)
    assert asked == [arena.memory.numel()]


def test_it_holds_copies(arena: Arena) -> None:
    source = torch.ones(3)
    own = Arena({"x": source}, CPU)
    source.zero_()
    assert own.tensors["x"].tolist() == [1, 1, 1]
    own.tensors["x"].fill_(5)
    assert source.tolist() == [0, 0, 0]


def test_nothing_to_hold() -> None:
    assert Arena({}, CPU).tensors == {}
    assert Arena({"none": X[:0]}, CPU).tensors["none"].shape == (0, 3, 4)


# Of a program ---------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
WEIGHTS = {"w": RNG.normal(size=(4, 3, 3, 3)).astype("f"), "b": RNG.normal(size=4).astype("f")}
CONV = model([node("Conv", "x w b", "c"), node("Relu", "c", "y")], {"x": [1, 3, 6, 6]}, {"y": None}, WEIGHTS)


def compiled(data: bytes, form: str = ""):
    return TorchEngine().compile(read(data), Options(engine="torch", cache=False), form=form)


def test_a_program_reads_its_weights_from_there() -> None:
    """Also after its steps were captured: what is written to the memory is what the next run computes with."""
    x = RNG.normal(size=(1, 3, 6, 6)).astype("f")
    program = compiled(CONV)
    runner = program.bind()
    before = runner.run([x])[0]
    runner.run([x])
    program.arena.memory.zero_()
    np.testing.assert_array_equal(runner.run([x])[0], np.zeros_like(before))
    assert before.any()


def test_weights_of_convolutions_have_channels_last_in_that_form() -> None:
    for form, is_last in (("", False), ("channels last", True)):
        (weight,) = (tensor for tensor in compiled(CONV, form).arena.tensors.values() if tensor.ndim == 4)
        assert weight.is_contiguous(memory_format=torch.channels_last) == is_last
        np.testing.assert_array_equal(weight.numpy(), WEIGHTS["w"])


def test_only_what_the_device_needs_is_there() -> None:
    """Sizes and axes are used on the CPU."""
    nodes = [node("Reshape", "x s", "r"), node("ReduceSum", "r a", "m", keepdims=0), node("Add", "m w", "y")]
    weights = {"s": np.array([2, 12]), "a": np.array([0]), "w": np.ones(12, np.float32)}
    program = compiled(model(nodes, {"x": [2, 3, 4]}, {"y": None}, weights))
    assert [tuple(tensor.shape) for tensor in program.arena.tensors.values()] == [(12,)]


def test_a_weight_that_is_used_often_is_there_once() -> None:
    nodes = [node("MatMul", "x w", "a"), node("MatMul", "a w", "b"), node("MatMul", "b w", "y")]
    program = compiled(model(nodes, {"x": [2, 8]}, {"y": None}, {"w": np.eye(8, dtype=np.float32)}))
    assert program.arena.memory.numel() == 8 * 8 * 4


def test_the_file_is_not_written_to() -> None:
    """Weights are mapped from files: to write there would change them for all."""
    loaded = read(CONV)
    program = TorchEngine().compile(loaded, Options(engine="torch", cache=False))
    program.arena.memory.fill_(1)
    np.testing.assert_array_equal(loaded.weights["w"], WEIGHTS["w"])
    value = loaded.graph.graph.initializers["w"]
    assert isinstance(value, ir.Value)
    assert value.const_value is not None
    np.testing.assert_array_equal(value.const_value.numpy(), WEIGHTS["w"])


# Of several models ----------------------------------------------------------------------------------------------------


def own_bytes(session: litehouse.Session) -> int:
    return session.loaded.built.program.arena.memory.numel()


def test_models_of_a_group_have_what_is_equal_once(rehearsed_gpu: None) -> None:
    group, x = litehouse.Arena(), RNG.normal(size=(2, 4)).astype("f")
    first, second, third = (litehouse.load(mlp(), device="gpu", tune="off", cache=False) for _ in range(3))
    alone = own_bytes(first)
    first.use_arena(group)
    second.use_arena(group)
    assert (own_bytes(first), own_bytes(second)) == (alone, 1)
    first.close()
    del first
    gc.collect()
    third.use_arena(group)  # it is there as long as one of them has it
    assert own_bytes(third) == 1
    for session in (second, third):
        np.testing.assert_allclose(session.run([x])[0], mlp_result(x), rtol=1e-4, atol=1e-5)
    larger = np.repeat(x, 3, 0)
    third.resize([larger.shape])
    np.testing.assert_allclose(third.run([larger])[0], mlp_result(larger), rtol=1e-4, atol=1e-5)
    other = litehouse.load(mlp(seed=1), device="gpu", tune="off", cache=False)
    other.use_arena(group)
    assert own_bytes(other) == alone
    np.testing.assert_allclose(other.run([x])[0], mlp_result(x, seed=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["in_place", "swap"])
def test_updates_of_a_model_of_a_group_are_its_own(rehearsed_gpu: None, mode: str) -> None:
    group, x = litehouse.Arena(), RNG.normal(size=(2, 4)).astype("f")
    how: dict[str, Any] = {"device": "gpu", "tune": "off", "cache": False, "updatable": ["w1"], "updatable_mode": mode}
    first, second = (litehouse.load(mlp(), **how) for _ in range(2))
    for session in (first, second):
        session.use_arena(group)
    first.update_weights({"w1": mlp_weights(1)["w1"]})
    expected = np.maximum(x @ mlp_weights(1)["w1"], 0) @ mlp_weights()["w2"]
    np.testing.assert_allclose(first.run([x])[0], expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(second.run([x])[0], mlp_result(x), rtol=1e-4, atol=1e-5)


def test_a_group_in_a_process_and_shared_memory_between_processes(rehearsed_gpu: None, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(mlp())
    how: dict[str, Any] = {"device": "gpu", "tune": "off", "cache": False}
    first, second = (litehouse.load(tmp_path / "model.onnx", **how) for _ in range(2))
    group = litehouse.Arena()
    for session in (first, second):
        session.use_arena(group)
    with pytest.raises(WeightError, match="in memory that other models use"):
        second.share([])
    first.share([])  # has all in its own memory
    with pytest.raises(WeightError, match="other processes use its weights on the GPU"):
        first.use_arena(litehouse.Arena())


# Of another process ---------------------------------------------------------------------------------------------------


def test_memory_of_others_that_is_too_small_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        def __init__(self, code: int) -> None:
            self.code = code

        def cuMemGetAddressRange_v2(self, base: Any, size: Any, _: Any) -> int:
            base._obj.value, size._obj.value = 0x1000, 0x100
            return self.code

    monkeypatch.setattr(ipc, "driver", lambda: Driver(0))
    ipc._check_size(0x1000, 0x100)
    ipc._check_size(0x1080, 0x80)
    for address, nbytes in ((0x1000, 0x101), (0x1080, 0x81)):
        with pytest.raises(WeightError, match=f"shares 256 bytes on the GPU, where the weights take {nbytes}"):
            ipc._check_size(address, nbytes)
    monkeypatch.setattr(ipc, "driver", lambda: Driver(1))
    ipc._check_size(0x1000, 0x101)  # the driver does not tell


def test_a_block_is_freed_in_its_own_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever thread lets go of it: one that has run nothing has no context, and the driver would refuse."""
    calls = []

    class Driver:
        def cuCtxGetCurrent(self, context: Any) -> int:
            context._obj.value = 7
            return 0

        def __getattr__(self, name: str) -> Any:
            return lambda argument: calls.append((name, getattr(argument, "value", None)))

    monkeypatch.setattr(ipc, "driver", Driver)
    block = ipc._Block(5, 16, "cuMemFree_v2")
    del block
    assert calls == [("cuCtxPushCurrent_v2", 7), ("cuMemFree_v2", 5), ("cuCtxPopCurrent_v2", None)]


def test_a_rehearsed_device_leaves_no_file_open(rehearsed_gpu: None) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        Arena({"x": torch.ones(3)}, CPU)
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_the_gpu_has_no_room_for_is_an_error_that_names_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(nbytes: int, _: Any) -> None:
        raise torch.OutOfMemoryError(f"{nbytes} bytes for weights")

    monkeypatch.setattr(ipc, "allocate", full)
    with pytest.raises(EngineError, match=r"<bytes>: cpu has not enough memory for the model \(.* bytes for weights\)"):
        compiled(CONV)
