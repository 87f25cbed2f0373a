"""Tensors on a GPU. What is expected is what the original's source does."""

import ctypes

import numpy as np
import pytest
from facades.megenginelite.support import address, counted, is_on_device, on_device
from facades.megenginelite.support import tensor as on_host

from conftest import REAL_GPU
from megenginelite import LiteDataType, LiteDeviceType, LiteGlobal, LiteLayout, LiteTensor, LiteTensorConcat

pytestmark = pytest.mark.usefixtures("gpu")

CPU, CUDA = LiteDeviceType.LITE_CPU, LiteDeviceType.LITE_CUDA
HOST_ONLY = r"set_data_by_share can only apply in cpu tensor or pinned tensor\."
TYPES = ["float32", "float16", "int32", "int16", "int8", "uint8", "uint16"]


def pinned(*shape, dtype="float32"):
    made = LiteTensor(LiteLayout(list(shape), dtype), CUDA, is_pinned_host=True)
    made.set_data_by_copy(counted(*shape, dtype=dtype))
    return made


KINDS = {"host": on_host, "pinned": pinned, "device": on_device}


class TestDevices:
    def test_count(self):
        assert LiteGlobal.get_device_count(CUDA) == 1
        with pytest.raises(RuntimeError, match=r"request gpu1 out of valid range \[0, 1\)"):
            LiteTensor(device_type=CUDA, device_id=1)
        with pytest.raises(RuntimeError, match=r"request gpu-1 out of valid range \[0, 1\)"):
            LiteTensor(device_type=CUDA, device_id=-1)

    def test_without_a_gpu(self, monkeypatch):
        monkeypatch.delenv("LITEHOUSE_REHEARSE_GPU", raising=False)
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        monkeypatch.setattr("torch.version.cuda", "13.0")
        assert LiteGlobal.get_device_count(CUDA) == 0
        for is_pinned in (False, True):
            with pytest.raises(RuntimeError, match=r"request gpu0 out of valid range \[0, 0\)") as caught:
                LiteTensor(LiteLayout([2]), CUDA, is_pinned_host=is_pinned)
            assert str(caught.value.__cause__).startswith("torch finds no GPU; check")

    def test_others_are_still_refused(self):
        with pytest.raises(RuntimeError, match="acl initialize failed"):
            LiteTensor(device_type=LiteDeviceType.LITE_ATLAS)


class TestWhere:
    def test_device(self):
        made = LiteTensor(LiteLayout([2, 3], "int16"), CUDA)
        assert is_on_device(made)
        assert (made.device_type, made.device_id, made.is_pinned_host, made.is_continue) == (CUDA, 0, False, True)
        assert (made.layout.shapes, made.layout.dtype, made.nbytes) == ([2, 3], np.int16, 12)
        assert made.to_numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
        assert repr(made) == repr(
            {"layout": made.layout, "device_type": CUDA, "device_id": 0, "is_pinned_host": False},
        )

    def test_pinned(self):
        made = LiteTensor(LiteLayout([2, 3]), CUDA, is_pinned_host=True)
        assert not is_on_device(made)
        assert (made.device_type, made.is_pinned_host) == (CPU, True)
        array = counted(2, 3)
        made.set_data_by_share(array)
        assert address(made) == array.ctypes.data
        assert made.get_data_by_share().ctypes.data == array.ctypes.data

    def test_empty(self):
        made = LiteTensor(device_type=CUDA)
        assert (made.nbytes, made.device_type, made.to_numpy().shape) == (0, CUDA, (0,))
        made.set_data_by_copy(counted(2, 2))
        assert is_on_device(made)
        made = LiteTensor(device_type=CUDA)
        with pytest.raises(RuntimeError, match=r"Tensor layout is not valid when get memory ptr\."):
            made.get_ctypes_memory()
        with pytest.raises(RuntimeError, match="fill_zero can't apply on a tensor with empty layout"):
            made.fill_zero()

    def test_too_much(self):
        with pytest.raises(RuntimeError, match=r"out of memory: a tensor of shape .* takes 4611686018427387904 bytes"):
            LiteTensor(LiteLayout([1 << 30, 1 << 30]), CUDA)


class TestData:
    @pytest.mark.parametrize("dtype", TYPES)
    def test_array(self, dtype):
        made = on_device(2, 3, dtype=dtype)
        found = made.to_numpy()
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(found, counted(2, 3, dtype=dtype))
        found[...] = 1
        np.testing.assert_array_equal(made.to_numpy(), counted(2, 3, dtype=dtype))

    def test_array_may_change_at_once(self):
        array, made = counted(2, 3), LiteTensor(LiteLayout([2, 3]), CUDA)
        made.set_data_by_copy(array)
        array[...] = -1
        np.testing.assert_array_equal(made.to_numpy(), counted(2, 3))

    def test_array_of_another_layout(self):
        made = on_device(4, 8, dtype="int16")
        before = address(made)
        made.set_data_by_copy(counted(2, 3))
        assert (made.layout.shapes, made.layout.dtype, address(made)) == ([2, 3], np.float32, before)
        made.set_data_by_copy(counted(80))
        np.testing.assert_array_equal(made.to_numpy(), counted(80))
        assert is_on_device(made)

    def test_list(self):  # the original's own test
        made = LiteTensor(LiteLayout([2, 16], "int8"), device_type=CUDA)
        made.set_data_by_copy(list(range(32)))
        np.testing.assert_array_equal(made.to_numpy(), counted(2, 16, dtype="int8"))
        made.set_data_by_copy([7, 8])
        assert made.to_numpy().ravel()[:4].tolist() == [7, 8, 0, 0]
        with pytest.raises(AssertionError, match="the length of input data to set to the tensor is too large"):
            made.set_data_by_copy([0] * 33)

    def test_ctypes(self):
        made, numbers = LiteTensor(LiteLayout([2, 3]), CUDA), (ctypes.c_float * 6)(*range(6))
        made.set_data_by_copy(numbers, 24)
        np.testing.assert_array_equal(made.to_numpy(), counted(2, 3))
        made.set_data_by_copy(ctypes.cast(numbers, ctypes.c_void_p), layout=LiteLayout([3]))
        assert made.to_numpy().tolist() == [0, 1, 2]
        with pytest.raises(AssertionError, match="the length of input data or layout must set"):
            made.set_data_by_copy(numbers, 8)

    def test_refused(self):
        made = on_device(2, 3)
        with pytest.raises(AssertionError, match="before call set_data_by_copy"):
            made.set_data_by_copy(counted(3, 2).T)
        with pytest.raises(KeyError):
            made.set_data_by_copy(np.zeros((2, 3)))
        with pytest.raises(AssertionError, match=r"set_data_by_copy can only apply in continue tensor\."):
            on_device(4, 6).slice([0, 2], [4, 4]).set_data_by_copy(counted(4, 2))

    def test_fill_zero(self):
        made = on_device(2, 3)
        made.slice([0, 1], [2, 2]).fill_zero()
        assert made.to_numpy().tolist() == [[0, 0, 2], [3, 0, 5]]
        made.fill_zero()
        assert not made.to_numpy().any()

    def test_cannot_be_seen_from_the_host(self):
        with pytest.raises(RuntimeError, match="the memory is on gpu:0, and cannot be seen from the host; to_numpy"):
            on_device(2, 3).get_data_by_share()


class TestLayout:
    def test_set(self):
        made = on_device(2, 6)
        before = address(made)
        made.layout = [3, 4]
        assert (made.layout.shapes, address(made)) == ([3, 4], before)
        made.layout = LiteLayout([2], LiteDataType.LITE_INT8)
        assert (made.nbytes, address(made)) == (2, before)
        made.layout = LiteLayout([20, 20])
        assert is_on_device(made)
        assert made.nbytes == 1600

    def test_reshape(self):
        made = on_device(2, 6)
        before = address(made)
        made.reshape([3, -1])
        assert (made.to_numpy().tolist(), address(made)) == (counted(3, 4).tolist(), before)
        with pytest.raises(RuntimeError, match=r"The reshape inputs invalid\."):
            made.reshape([5, 2])
        with pytest.raises(RuntimeError, match="a tensor with gaps cannot be reshaped"):
            made.slice([0, 1], [3, 2]).reshape([3])

    def test_slice(self):
        made = on_device(4, 8, dtype="int32")
        part = made.slice([1, 4], [3, 8])
        assert (part.layout.shapes, part.is_continue, part.device_type) == ([2, 4], False, CUDA)
        np.testing.assert_array_equal(part.to_numpy(), counted(4, 8, dtype="int32")[1:3, 4:8])
        rows = made.slice([1], [9])
        assert (rows.layout.shapes, rows.is_continue, address(rows)) == ([3, 8], True, address(made) + 32)
        rows.fill_zero()
        assert not made.to_numpy()[1:].any()
        np.testing.assert_array_equal(on_device(6).slice([1], [6], [2]).to_numpy(), np.array([1, 3, 5], np.float32))
        for step in (0, -1):
            with pytest.raises(RuntimeError):
                made.slice([0], [4], [step])

    def test_part_does_not_grow(self):
        part = on_device(4, 2).slice([1], [2])
        with pytest.raises(RuntimeError, match="can not grow a tensor that does not allow realloc"):
            part.layout = LiteLayout([40])


class TestSharing:
    def test_no_copy(self, copies):
        source, made = on_device(2, 3), LiteTensor(device_type=CUDA)
        copies.taken()
        made.share_memory_with(source)
        assert copies.taken() == (0, 0)
        assert (address(made), made.layout.shapes) == (address(source), [2, 3])
        source.set_data_by_copy(counted(2, 3) + 5)
        np.testing.assert_array_equal(made.to_numpy(), counted(2, 3) + 5)
        made.fill_zero()
        assert not source.to_numpy().any()

    def test_part(self):
        source, made = on_device(4, 6), LiteTensor(device_type=CUDA)
        made.share_memory_with(source.slice([0, 2], [4, 4]))
        assert (made.is_continue, address(made)) == (False, address(source) + 8)
        np.testing.assert_array_equal(made.to_numpy(), counted(4, 6)[:, 2:4])

    @pytest.mark.parametrize("kind", ["host", "pinned"])
    def test_not_between_host_and_device(self, kind):
        made = KINDS[kind](2, 3)
        for one, other in ((made, on_device(2, 3)), (on_device(2, 3), made)):
            before = one.to_numpy() + 0
            with pytest.raises(RuntimeError, match="share memory must happen in same device"):
                one.share_memory_with(other)
            np.testing.assert_array_equal(one.to_numpy(), before)

    def test_pinned_with_host(self):
        source, made = pinned(2, 3), LiteTensor()
        made.share_memory_with(source)
        assert (address(made), made.is_pinned_host, made.device_type) == (address(source), True, CPU)

    def test_empty(self):
        with pytest.raises(RuntimeError, match=r"To be shared tensor with empty layout\."):
            on_device(2).share_memory_with(LiteTensor(device_type=CUDA))

    def test_arrays_are_not_shared(self):
        made = on_device(2, 3)
        for data in (counted(2, 3), counted(2, 3).tobytes(), (ctypes.c_float * 6)()):
            with pytest.raises(AssertionError, match=HOST_ONLY):
                made.set_data_by_share(data)
        np.testing.assert_array_equal(made.to_numpy(), counted(2, 3))

    def test_device_pointer(self, copies):  # the original's own test
        layout = LiteLayout([4, 8], "int16")
        source = LiteTensor(layout=layout, device_type=CUDA, is_pinned_host=True)
        first, second = (LiteTensor(layout=layout, device_type=CUDA) for _ in range(2))
        array = counted(4, 8, dtype="int16")
        source.set_data_by_share(array.ctypes.data, 4 * 8 * 2)
        first.copy_from(source)
        copies.taken()
        second.set_data_by_share(first.get_ctypes_memory(), first.nbytes)
        assert copies.taken() == (0, 0)
        assert address(second) == address(first)
        np.testing.assert_array_equal(second.to_numpy(), array)
        first.fill_zero()
        assert not second.to_numpy().any()
        with pytest.raises(AssertionError, match=r"the data length is not match\."):
            second.set_data_by_share(first.get_ctypes_memory(), 12)
        with pytest.raises(RuntimeError, match="The prepared_data pass to LITE c_api is null"):
            second.set_data_by_share(ctypes.c_void_p(0))
        if REAL_GPU:
            with pytest.raises(RuntimeError, match="gpu:0"):
                second.set_data_by_share(array.ctypes.data)


class TestCopyFrom:
    @pytest.mark.parametrize("target", KINDS)
    @pytest.mark.parametrize("source", KINDS)
    def test_every_direction(self, source, target, copies):
        one, other = KINDS[target](2, 3), KINDS[source](2, 3)
        other.set_data_by_copy(counted(2, 3) + 5)
        before = address(one)
        copies.taken()
        one.copy_from(other)
        assert copies.taken() == (
            int(source != "device" and target == "device"),
            int(source == "device" and target != "device"),
        )
        np.testing.assert_array_equal(one.to_numpy(), counted(2, 3) + 5)
        assert (address(one), is_on_device(one)) == (before, target == "device")
        other.fill_zero()
        np.testing.assert_array_equal(one.to_numpy(), counted(2, 3) + 5)

    @pytest.mark.parametrize("target", KINDS)
    @pytest.mark.parametrize("source", KINDS)
    def test_another_shape(self, source, target):
        one = KINDS[target](2, 3)
        one.copy_from(KINDS[source](4, 5))
        np.testing.assert_array_equal(one.to_numpy(), counted(4, 5))
        assert is_on_device(one) == (target == "device")

    @pytest.mark.parametrize("target", KINDS)
    @pytest.mark.parametrize("source", KINDS)
    def test_parts(self, source, target):
        one, other = KINDS[target](4, 6), KINDS[source](4, 6)
        one.slice([0, 1], [4, 3]).copy_from(other.slice([0, 4], [4, 6]))
        expected = counted(4, 6)
        expected[:, 1:3] = counted(4, 6)[:, 4:6]
        np.testing.assert_array_equal(one.to_numpy(), expected)

    def test_empty_host_tensor_takes_pinned_memory(self):
        made = LiteTensor()
        made.copy_from(on_device(2, 3))
        assert (made.is_pinned_host, made.device_type, is_on_device(made)) == (True, CPU, False)
        np.testing.assert_array_equal(made.to_numpy(), counted(2, 3))

    def test_refused(self):
        with pytest.raises(RuntimeError, match="attempt to access dtype Int8 as Float32"):
            LiteTensor(LiteLayout([2], "int8"), CUDA).copy_from(on_device(2))
        with pytest.raises(RuntimeError, match=r"when tensor copy, the src tensor layout is empty\."):
            on_device(2).copy_from(LiteTensor(device_type=CUDA))
        with pytest.raises(RuntimeError, match=r"shape differs in copy_from_fixlayout: \{4,1\} vs \{3\}"):
            on_device(4, 2).slice([0, 0], [4, 1]).copy_from(on_host(3))


class TestConcat:
    @pytest.mark.parametrize("dim", [0, 1, -1])
    def test_on_the_device(self, dim, copies):
        pieces = [on_device(2, 3), on_device(2, 3)]
        copies.taken()
        joined = LiteTensorConcat(pieces, dim)
        assert copies.taken() == (0, 0)
        assert (joined.device_type, is_on_device(joined)) == (CUDA, True)
        np.testing.assert_array_equal(joined.to_numpy(), np.concatenate([counted(2, 3)] * 2, dim))

    def test_from_both_to_either(self):
        pieces = [on_host(1, 3), on_device(2, 3), pinned(3, 3)]
        expected = np.concatenate([counted(1, 3), counted(2, 3), counted(3, 3)])
        for joined, kind in (
            (LiteTensorConcat(pieces, 0), CPU),
            (LiteTensorConcat(pieces, 0, CUDA, 0), CUDA),
            (LiteTensorConcat(pieces[::-1], 0, CPU), CPU),
            (LiteTensorConcat([pieces[1], pieces[0], pieces[2]], 0), CUDA),
        ):
            assert joined.device_type == kind
            np.testing.assert_array_equal(np.sort(joined.to_numpy(), 0), np.sort(expected, 0))
        assert LiteTensorConcat([pinned(2), on_device(2)], 0).is_pinned_host

    def test_refused(self):
        with pytest.raises(RuntimeError, match="the shape of tensors is not same!"):
            LiteTensorConcat([on_device(2, 3), on_device(2, 4)], 0)
        with pytest.raises(RuntimeError, match=r"request gpu1 out of valid range \[0, 1\)"):
            LiteTensorConcat([on_device(2)], 0, CUDA, 1)
