"""What a GPU is to those who hold its memory."""

import builtins
import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from conftest import REAL_GPU
from litehouse import device
from litehouse.device import DeviceArray, assign

pytest.importorskip("torch")

TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
TYPES += ["float16", "float32", "float64"]


@pytest.fixture
def no_torch(monkeypatch):
    real = builtins.__import__

    def fail(name, *rest):
        if name == "torch":
            raise ImportError("No module named 'torch'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", fail)


def counted(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def made(*shape, dtype="float32"):
    array = device.zeros("gpu", shape, dtype)
    array[...] = counted(*shape, dtype=dtype)
    return array


class TestWhichThereAre:
    def test_rehearsal(self, rehearsed_gpu):
        assert (device.device_count("gpu"), device.device_count("ascend"), device.device_count("cpu")) == (1, 0, 0)
        assert device.lack("gpu") is device.lack("gpu:0") is device.lack("cpu") is None
        assert device.lack("gpu:1") == "there is no GPU 1: torch finds 1, from 0 on"
        assert device.place("gpu:0").type == "cpu"

    @pytest.mark.parametrize("value", ["", "0", None])
    def test_only_where_it_is_asked_for(self, monkeypatch, value):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        if value is not None:
            monkeypatch.setenv(device.REHEARSAL, value)
        assert device.device_count("gpu") == 0
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        assert device.lack("gpu").startswith("torch finds no GPU; check that nvidia-smi shows one")

    def test_a_build_without_cuda(self, monkeypatch):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        monkeypatch.setattr(torch.version, "cuda", None)
        monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
        assert device.lack("gpu") == (
            "torch 2.13.0+cpu is built without CUDA; install a build that has it in its place"
        )

    @pytest.mark.parametrize("error", [ImportError("no _C"), OSError("libcudnn.so.9: no such file")])
    def test_a_broken_torch(self, rehearsed_gpu, monkeypatch, error):
        real = builtins.__import__

        def fail(name, *rest):
            if name == "torch":
                raise error
            return real(name, *rest)

        monkeypatch.setattr(builtins, "__import__", fail)
        assert device.device_count("gpu") == 0
        assert device.lack("gpu") == f"torch does not import ({error}); install it with: pip install torch"

    def test_memory_that_torch_holds_is_given_back(self, monkeypatch):
        import torch

        calls = []
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("given back"))
        monkeypatch.setenv(device.REHEARSAL, "1")
        device.give_back("gpu")
        assert calls == []
        monkeypatch.setattr(device, "place", lambda _: torch.device("cuda"))
        device.give_back("gpu")
        assert calls == ["given back"]

    def test_free_memory(self, monkeypatch):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda place: (1000, 9000))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda place: 70)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda place: 50)
        assert device.free_memory("gpu") == 1020
        assert device.free_memory("gpu:1") is device.free_memory("cpu") is None

    def test_gpus(self, monkeypatch):
        import torch

        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        assert device.device_count("gpu") == 2
        assert device.lack("gpu:1") is None
        assert device.lack("gpu:2") == "there is no GPU 2: torch finds 2, from 0 on"
        assert (str(device.place("gpu")), str(device.place("gpu:1"))) == ("cuda:0", "cuda:1")
        assert str(device.place("cpu")) == "cpu"

    def test_fingerprint(self, monkeypatch, tmp_path):
        import torch

        facts = {"name": "H200", "major": 9, "minor": 0, "multi_processor_count": 132, "total_memory": 1 << 37}
        found = SimpleNamespace(**facts)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda place: found)
        monkeypatch.setattr(device, "DRIVER_INFO", tmp_path / "version")
        known = [device.device_fingerprint("gpu:0")]
        assert device.device_fingerprint("gpu:1") == known[0]  # another of the same kind
        assert device.device_fingerprint("gpu:2") is None
        found.name = "H100"
        known.append(device.device_fingerprint("gpu"))
        (tmp_path / "version").write_text("NVRM version: 580.1\nGCC version: 12")
        known.append(device.device_fingerprint("gpu"))
        monkeypatch.setattr(torch, "__version__", "9.9")
        known.append(device.device_fingerprint("gpu"))
        monkeypatch.setattr(torch.backends.cudnn, "version", lambda: 99999)
        known.append(device.device_fingerprint("gpu"))
        assert None not in known
        assert len(set(known)) == len(known) == 5

    def test_fingerprint_of_a_rehearsal(self, rehearsed_gpu):
        assert device.device_fingerprint("gpu") == device.device_fingerprint("gpu:0") is not None
        assert device.device_fingerprint("gpu") != device.device_fingerprint("cpu")

    def test_without_torch(self, rehearsed_gpu, no_torch):
        assert device.device_fingerprint("gpu") is None
        assert device.device_count("gpu") == 0
        assert (
            device.lack("gpu") == "torch does not import (No module named 'torch'); install it with: pip install torch"
        )

    def test_names(self):
        assert [device.named(each) for each in ("gpu", "gpu:0", "gpu:3", "cpu")] == ["gpu:0", "gpu:0", "gpu:3", "cpu"]


@pytest.mark.usefixtures("gpu")
class TestMemory:
    @pytest.mark.parametrize("dtype", TYPES)
    def test_types(self, dtype):
        fresh = device.zeros("gpu:0", (2, 3), dtype)
        assert (fresh.shape, fresh.ndim, fresh.size, fresh.dtype) == ((2, 3), 2, 6, np.dtype(dtype))
        assert fresh.nbytes == 6 * np.dtype(dtype).itemsize
        assert not fresh.copy().any()
        whole = made(2, 3, dtype=dtype)
        np.testing.assert_array_equal(whole.copy(), counted(2, 3, dtype=dtype))
        assert whole.copy().dtype == np.dtype(dtype)
        np.testing.assert_array_equal(whole[:, ::2].copy(), counted(2, 3, dtype=dtype)[:, ::2])
        whole[0:1][...] = np.ones((1, 3), dtype)
        assert whole.copy()[0].tolist() == [1, 1, 1]
        whole.fill(0)
        assert not whole.copy().any()

    def test_views_are_of_the_same_memory(self):
        whole = made(2, 3)
        assert whole.reshape((3, 2)).address == whole.reshape(-1).address == whole.view(np.int32).address
        assert whole[1:].address == whole.address + 12
        assert whole.reshape(-1).view(np.uint8).shape == (24,)
        whole[1:].fill(7)
        assert whole.copy().tolist() == [[0, 1, 2], [7, 7, 7]]
        assert (whole.flags.c_contiguous, whole[:, 1:].flags.c_contiguous) == (True, False)

    def test_numpy_does_not_see_it_in_passing(self):
        for attempt in (np.asarray, np.array, lambda array: np.ones(6, np.float32) + array):
            with pytest.raises(TypeError, match=r"this memory is on gpu:0; copy\(\) gives its numbers"):
                attempt(made(6))
        target = np.zeros(6, np.float32)
        with pytest.raises(TypeError):
            target[...] = made(6)

    def test_a_copy_is_a_copy(self):
        source = counted(4)
        whole = made(4)
        whole[...] = source
        source[0] = 9
        found = whole.copy()
        found[1] = 9
        assert whole.copy().tolist() == [0, 1, 2, 3]

    @pytest.mark.parametrize("size", [1 << 60, 1 << 70])
    def test_too_much(self, size):
        with pytest.raises(MemoryError, match="gpu:0 has not enough memory") as caught:
            device.zeros("gpu:0", size)
        assert "\n" not in str(caught.value)
        with pytest.raises(MemoryError, match="the host has not enough memory for gpu:0"):
            device.pinned_zeros("gpu:0", size)

    def test_repr(self):
        assert repr(made(2, 3)) == "<DeviceArray float32[2, 3] on gpu:0>"


@pytest.mark.usefixtures("gpu")
class TestCopies:
    @pytest.mark.parametrize("is_pinned", [False, True])
    def test_to_the_device(self, copies, is_pinned):
        target = device.zeros("gpu:0", (2, 3), np.float32)
        assign(target, counted(2, 3), is_pinned=is_pinned)
        assert copies.taken() == (1, 0)
        np.testing.assert_array_equal(target.copy(), counted(2, 3))

    def test_on_the_device(self, copies):
        source, target = made(2, 3), device.zeros("gpu:0", (2, 3), np.float32)
        copies.taken()
        assign(target, source)
        assign(target[:, 1:], source[:, :2])
        assert copies.taken() == (0, 0)
        assert target.copy().tolist() == [[0, 0, 1], [3, 3, 4]]

    @pytest.mark.parametrize("wait", [True, False])
    def test_from_the_device(self, copies, wait):
        source, target = made(2, 3), np.zeros((2, 3), np.float32)
        copies.taken()
        assign(target, source, wait=wait)
        device.synchronize("gpu:0")
        assert copies.taken() == (0, 1)
        np.testing.assert_array_equal(target, counted(2, 3))

    def test_to_a_part_of_an_array(self):
        target = np.zeros((2, 6), np.float32)
        assign(target[:, ::2], made(2, 3))
        assert target.tolist() == [[0, 0, 1, 0, 2, 0], [3, 0, 4, 0, 5, 0]]

    def test_to_an_array_that_cannot_be_written(self):
        target = np.zeros(3, np.float32)
        target.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            assign(target, made(3))

    def test_on_the_host(self):
        target = np.zeros(3, np.float32)
        assign(target, counted(3))
        assert target.tolist() == [0, 1, 2]

    @pytest.mark.filterwarnings("error")
    def test_from_an_array_that_cannot_be_written(self):
        fixed = counted(3)
        fixed.flags.writeable = False
        target = device.zeros("gpu:0", 3, np.float32)
        for is_pinned in (False, True):
            target.fill(0)
            assign(target, fixed, is_pinned=is_pinned)
            assert target.copy().tolist() == [0, 1, 2]
        assert device.host_tensor(fixed).tolist() == [0, 1, 2]

    def test_host_memory_for_a_tensor_of_torch(self):
        array = counted(2, 3)
        assert device.host_tensor(array).data_ptr() == array.ctypes.data
        assert device.host_tensor(array[:, ::-1]).tolist() == [[2, 1, 0], [5, 4, 3]]
        assert device.host_tensor(np.array(5.0)).shape == ()


@pytest.mark.usefixtures("rehearsed_gpu")
def test_memory_of_others():
    numbers = (ctypes.c_float * 6)(*range(6))
    found = device.at("gpu", ctypes.addressof(numbers), 24, numbers)
    assert isinstance(found, DeviceArray)
    assert (found.address, found.nbytes, found.device) == (ctypes.addressof(numbers), 24, "gpu:0")
    np.testing.assert_array_equal(found.view(np.float32).copy(), counted(6))
    found.view(np.float32).fill(3)
    assert list(numbers) == [3] * 6
    del numbers
    assert found.view(np.float32).copy().tolist() == [3] * 6


def test_pinned_memory(gpu):
    memory = device.pinned_zeros("gpu:0", 12)
    assert isinstance(memory, np.ndarray)
    assert (memory.dtype, memory.nbytes, memory.flags.writeable, memory.any()) == (np.uint8, 12, True, False)
    if REAL_GPU:
        assert device.host_tensor(memory).is_pinned()


@pytest.mark.skipif(not REAL_GPU, reason="LITEHOUSE_TEST_GPU is not set")
def test_memory_of_the_host_is_not_that_of_a_gpu(gpu):
    array = counted(6)
    with pytest.raises(ValueError, match="gpu:0"):
        device.at("gpu:0", array.ctypes.data, 24)
