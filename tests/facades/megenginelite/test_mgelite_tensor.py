"""LiteTensor: construction, layouts, copies, slices. What is expected was seen on 1.13.0."""

import ctypes
import logging

import numpy as np
import pytest
from facades.megenginelite.support import address, counted, tensor

from megenginelite import (
    LiteDataType,
    LiteDeviceType,
    LiteLayout,
    LiteTensor,
    LiteTensorConcat,
)

KINDS = ("float32", "float16", "int32", "int16", "int8", "uint8", "uint16")


def test_empty_tensor():
    empty = LiteTensor()
    assert repr(empty) == (
        "{'layout': {'shapes': [], 'ndim': 0, 'data_type': <class 'numpy.float32'>}, "
        "'device_type': <LiteDeviceType.LITE_CPU: 0>, 'device_id': 0, 'is_pinned_host': False}"
    )
    assert (empty.nbytes, empty.is_continue, empty.to_numpy().tolist()) == (0, True, [])
    for use, text in (
        (empty.get_data_by_share, "Tensor layout is not valid when get memory ptr."),
        (empty.get_ctypes_memory, "Tensor layout is not valid when get memory ptr."),
        (empty.fill_zero, "fill_zero can't apply on a tensor with empty layout."),
        (lambda: empty.reshape([1]), "The tensor to be reshape is empty."),
        (lambda: empty.slice([0], [1]), "The start and end must be the same size and less than layout ndim."),
    ):
        with pytest.raises(RuntimeError) as caught:
            use()
        assert str(caught.value) == f"Error: {text}, Error Code: 1"


def test_errors_are_logged(caplog):
    with caplog.at_level(logging.ERROR), pytest.raises(RuntimeError):
        LiteTensor().fill_zero()
    message = "Error: fill_zero can't apply on a tensor with empty layout., Error Code: 1"
    assert [record.getMessage() for record in caplog.records] == [message]


@pytest.mark.parametrize("kind", KINDS)
def test_every_type(kind):  # float16 and uint16 fail in the original
    made = LiteTensor(LiteLayout([2, 3], kind))
    assert made.nbytes == 6 * np.dtype(kind).itemsize
    made.set_data_by_copy(counted(2, 3, dtype=kind))
    np.testing.assert_array_equal(made.to_numpy(), counted(2, 3, dtype=kind))
    made.set_data_by_copy([5, 4, 3])
    assert made.to_numpy().tolist() == [[5, 4, 3], [0, 0, 0]]
    assert made.to_numpy().dtype == kind


def test_construction():
    assert LiteTensor(shapes=[2, 3], dtype="int8").layout.data_type == LiteDataType.LITE_INT8
    assert LiteTensor(LiteLayout([1]), shapes=[2]).layout.shapes == [1]
    assert LiteTensor(dtype="int8").layout.data_type == LiteDataType.LITE_FLOAT
    assert LiteTensor(LiteLayout([2]), device_id=3).device_id == 3
    assert LiteTensor(LiteLayout([2]), is_pinned_host=True).is_pinned_host
    assert LiteTensor(LiteLayout([2]), LiteDeviceType.LITE_DEVICE_DEFAULT).nbytes == 8
    with pytest.raises(TypeError, match="expected LiteLayout instance, got list"):
        LiteTensor([1, 2])
    with pytest.raises(TypeError, match="'str' object cannot be interpreted as an integer"):
        LiteTensor(LiteLayout([2]), "cpu")


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (LiteDeviceType.LITE_CUDA, "request gpu0 out of valid range [0, 0)"),
        (LiteDeviceType.LITE_NPU, "lite unsupported compnode type: enum value: 4."),
        (LiteDeviceType.LITE_CAMBRICON, "cambricon disabled at compile time"),
        (LiteDeviceType.LITE_ATLAS, "acl initialize failed: (acl: ACL_ERROR_INTERNAL_ERROR)"),
        (2, "lite unsupported compnode type: enum value: 2."),
    ],
)
def test_other_devices_are_refused(device, text):
    with pytest.raises(RuntimeError) as caught:
        LiteTensor(LiteLayout([2]), device)
    assert str(caught.value) == f"Error: {text}, Error Code: 1"


def test_unknown_type():
    layout = LiteLayout([2])
    layout.data_type = 9
    with pytest.raises(RuntimeError, match=r"unsupport dtype in lite enum id is 9\."):
        LiteTensor(layout)


def test_layout_that_no_memory_can_hold():
    with pytest.raises(RuntimeError, match="out of memory"):
        LiteTensor(LiteLayout([1 << 40, 1 << 20]))
    with pytest.raises(RuntimeError, match="out of memory"):
        LiteTensor(LiteLayout([-1, 2]))


def test_layout_is_not_changed_by_changing_what_it_gave():
    made = tensor(2, 3)
    made.layout.shapes = [6]
    assert made.layout.shapes == [2, 3]


def test_memory_stays_where_a_smaller_layout_fits():
    made = tensor(2, 3)
    before = address(made)
    made.layout = [2]
    assert (address(made), made.to_numpy().tolist()) == (before, [0, 1])
    made.layout = LiteLayout([3, 2])
    assert (address(made), made.to_numpy().tolist()) == (before, [[0, 1], [2, 3], [4, 5]])
    made.layout = LiteLayout([24], "int8")
    assert (address(made), made.nbytes) == (before, 24)
    made.layout = LiteLayout()
    assert (made.layout.ndim, made.nbytes) == (0, 0)
    with pytest.raises(TypeError):
        made.layout = 3


def test_copy_takes_over_shape_and_type():
    made = tensor(2, 3)
    before = address(made)
    made.set_data_by_copy(counted(3, 2) + 7)
    assert (made.layout.shapes, address(made)) == ([3, 2], before)
    made.set_data_by_copy(counted(4, 5, dtype="int8"))
    assert (made.layout.shapes, made.layout.dtype) == ([4, 5], np.int8)
    made.set_data_by_copy(counted(2, 2, dtype="uint32"))
    assert (made.layout.dtype, made.to_numpy().tolist()) == (np.int32, [[0, 1], [2, 3]])
    made.set_data_by_copy(np.array([True, False]))
    assert (made.layout.dtype, made.to_numpy().tolist()) == (np.uint8, [1, 0])
    made.set_data_by_copy(np.zeros((0, 3), np.float32))
    assert (made.layout.shapes, made.nbytes, made.to_numpy().shape) == ([0, 3], 0, (0, 3))


def test_copy_ignores_length_and_layout_for_arrays():
    made = tensor(2, 3)
    made.set_data_by_copy(counted(2, 3) + 5, 8, LiteLayout([2]))
    np.testing.assert_array_equal(made.to_numpy(), counted(2, 3) + 5)


@pytest.mark.parametrize(
    ("array", "error", "text"),
    [
        (counted(4, 5)[:, ::2], AssertionError, "input numpy is not continuous, please call input = "),
        (np.asfortranarray(counted(4, 5)), AssertionError, "before call set_data_by_copy"),
        (counted(4, dtype="float64"), KeyError, "c_double"),
        (counted(4, dtype="int64"), KeyError, "c_long"),
        (counted(4, dtype=">f4"), KeyError, "c_float"),
        (counted(4, dtype="complex64"), NotImplementedError, "complex64"),
        (np.array(3.0, np.float32), RuntimeError, "Tensor layout is empty, please reset with layout"),
        (np.zeros((1,) * 8, np.float32), AssertionError, "Layout max dim is 7."),
        ((1, 2), AssertionError, "when input data is ctypes, the length of input data or layout must set"),
        (None, AssertionError, "when input data is ctypes, the length of input data or layout must set"),
        ([1] * 7, AssertionError, "the length of input data to set to the tensor is too large."),
        ([[9, 8, 7], [1, 2, 3]], TypeError, "must be real number, not list"),
    ],
)
def test_copies_that_are_refused(array, error, text):
    made = tensor(2, 3)
    with pytest.raises(error) as caught:
        made.set_data_by_copy(array)
    assert text in str(caught.value)
    np.testing.assert_array_equal(made.to_numpy(), counted(2, 3))


def test_copy_of_ctypes():
    made = tensor(2, 3)
    numbers = (ctypes.c_float * 6)(*range(10, 16))
    made.set_data_by_copy(numbers, 24)
    assert made.to_numpy().tolist() == [[10, 11, 12], [13, 14, 15]]
    numbers[0] = 99
    assert made.to_numpy()[0, 0] == 10
    made.set_data_by_copy(ctypes.cast(numbers, ctypes.c_void_p), layout=LiteLayout([3, 2]))
    assert made.to_numpy().tolist() == [[99, 11], [12, 13], [14, 15]]
    for length in (0, 12, 48):
        with pytest.raises(AssertionError, match="the length of input data or layout must set"):
            made.set_data_by_copy(numbers, length)
    with pytest.raises(RuntimeError, match="the memory has 24 bytes, and the tensor 36"):
        made.set_data_by_copy(numbers, layout=LiteLayout([3, 3]))  # reads beyond the array in the original


def test_copy_of_a_list_into_a_layout():
    made = tensor(2, 3)
    made.set_data_by_copy([1, 2], layout=LiteLayout([2], "int32"))
    assert (made.to_numpy().tolist(), made.to_numpy().dtype) == ([1, 2], np.int32)


def test_to_numpy_is_a_copy():
    made = tensor(2, 3)
    made.to_numpy()[0, 0] = 42
    assert made.to_numpy()[0, 0] == 0


@pytest.mark.parametrize(("shape", "result"), [([3, 2], [3, 2]), ([-1], [6]), ((3, -1), [3, 2])])
def test_reshape(shape, result):
    made = tensor(2, 3)
    before = address(made)
    made.reshape(shape)
    assert (made.layout.shapes, address(made)) == (result, before)
    assert made.to_numpy().ravel().tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("shape", [[4], [-1, -1], [4, -1], [40], [], [0, 3], [-2, 3]])
def test_reshape_that_does_not_fit(shape):
    with pytest.raises(RuntimeError, match=r"The reshape inputs invalid\."):
        tensor(2, 3).reshape(shape)


def test_reshape_to_too_many_sizes():
    with pytest.raises(RuntimeError, match=r"The ndim of reshape input is too large\."):
        tensor(2, 3).reshape([1] * 7 + [6])


@pytest.mark.parametrize(
    ("start", "end", "step", "part", "is_continue"),
    [
        ([1], [3], None, np.s_[1:3], True),
        ([1, 2], [3, 4], None, np.s_[1:3, 2:4], False),
        ([0, 0], [4, 6], [2, 3], np.s_[::2, ::3], False),
        ([1, 2], [2, 5], None, np.s_[1:2, 2:5], True),
        ([1], [30], None, np.s_[1:], True),
        ([-2], [4], None, np.s_[-2:], True),
        ([0], [-1], None, np.s_[:-1], True),
        ([3], [0], [-1], np.s_[3:0:-1], False),
        ([1], [1], None, np.s_[1:1], False),
        ([10], [12], None, np.s_[10:12], False),
        ([], [], None, np.s_[:], True),
    ],
)
def test_slice(start, end, step, part, is_continue):
    piece = tensor(4, 6).slice(start, end, step)
    expected = counted(4, 6)[part]
    np.testing.assert_array_equal(piece.to_numpy(), expected)
    assert (piece.layout.shapes, piece.nbytes, piece.is_continue) == (
        list(expected.shape),
        expected.nbytes,
        is_continue,
    )


def test_slices_that_are_refused():
    made = tensor(4, 6)
    with pytest.raises(AssertionError, match=r"slice with different length of start and end\."):
        made.slice([0, 1], [4])
    with pytest.raises(AssertionError, match=r"slice with different length of start and step\."):
        made.slice([0], [4], [1, 1])
    with pytest.raises(RuntimeError, match=r"The start and end must be the same size and less than layout ndim\."):
        made.slice([0, 0, 0], [1, 1, 1])
    with pytest.raises(RuntimeError, match="Slice step can not be zero"):
        made.slice([0], [4], [0])


def test_slice_shares_memory():
    made = tensor(4, 6)
    columns = made.slice([0, 2], [4, 4])
    assert address(columns) - address(made) == 8
    columns.get_data_by_share()[...] = -1  # the original gives other elements there
    assert made.to_numpy()[:, 2:4].tolist() == [[-1, -1]] * 4
    columns.copy_from(tensor(4, 2))
    assert made.to_numpy()[:, 2:4].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]
    columns.fill_zero()
    assert made.to_numpy()[:, 2:4].sum() == 0
    assert made.slice([0, 2], [4, 6]).slice([1, 1], [3, 3]).to_numpy().tolist() == [[0, 10], [0, 16]]


def test_slice_with_gaps_takes_no_data():
    columns = tensor(4, 6).slice([0, 2], [4, 4])
    with pytest.raises(AssertionError, match=r"set_data_by_copy can only apply in continue tensor\."):
        columns.set_data_by_copy(counted(4, 2))
    with pytest.raises(AssertionError, match=r"set_data_by_share can only apply in continue tensor\."):
        columns.set_data_by_share(counted(4, 2))
    with pytest.raises(RuntimeError, match=r"shape differs in copy_from_fixlayout: \{4,2\} vs \{2,2\}"):
        columns.copy_from(tensor(2, 2))
    with pytest.raises(RuntimeError, match="a tensor with gaps cannot be reshaped"):  # garbage in the original
        columns.reshape([8])


def test_slice_cannot_grow():
    made = tensor(4, 6)
    row = made.slice([1], [2])
    row.set_data_by_copy(np.full(6, 8, np.float32))
    assert (row.layout.shapes, made.to_numpy()[1].tolist()) == ([6], [8] * 6)
    with pytest.raises(RuntimeError, match="can not grow a tensor that does not allow realloc"):
        row.set_data_by_copy(np.zeros((2, 6), np.float32))
    row.copy_from(tensor(2, 6))  # goes to memory of its own
    assert (row.layout.shapes, made.to_numpy()[1].tolist()) == ([2, 6], [8] * 6)


def test_copy_from():
    made = tensor(2, 3)
    before = address(made)
    made.copy_from(tensor(2))
    assert (made.to_numpy().tolist(), address(made)) == ([0, 1], before)
    made.copy_from(tensor(3, 3))
    np.testing.assert_array_equal(made.to_numpy(), counted(3, 3))
    empty = LiteTensor()
    empty.copy_from(tensor(2, dtype="int8"))
    assert empty.layout.dtype is np.int8
    with pytest.raises(RuntimeError, match="attempt to access dtype Float32 as Int8"):
        made.copy_from(tensor(2, dtype="int8"))
    with pytest.raises(RuntimeError, match=r"when tensor copy, the src tensor layout is empty\."):
        made.copy_from(LiteTensor())
    with pytest.raises(AssertionError):
        made.copy_from(counted(2))


@pytest.mark.parametrize("dim", [0, 1, -1, -2])  # negative ones crash the original
def test_concat(dim):
    parts = [tensor(2, 3), tensor(4, 6).slice([0, 2], [2, 5])]
    joined = LiteTensorConcat(parts, dim)
    np.testing.assert_array_equal(joined.to_numpy(), np.concatenate([part.to_numpy() for part in parts], dim))
    assert joined.is_continue
    joined.fill_zero()
    assert parts[0].to_numpy().sum() == 15


@pytest.mark.parametrize(
    ("tensors", "dim", "text"),
    [
        ([tensor(2, 3), tensor(2, 4)], 0, "the shape of tensors is not same!"),
        ([tensor(2, 3), tensor(2)], 0, "the dim size of tensors is not same!"),
        ([tensor(2, 3), tensor(2, 3, dtype="int8")], 0, "the dtype of tensors is not same!"),
        ([tensor(2, 3), tensor(2, 3)], 2, "the dim in concat is error."),
        ([LiteTensor(), tensor(1)], 0, "the dim in concat is error."),
    ],
)
def test_concat_of_what_does_not_fit(tensors, dim, text):
    with pytest.raises(RuntimeError) as caught:
        LiteTensorConcat(tensors, dim)
    assert text in str(caught.value)


def test_concat_of_nothing():
    assert LiteTensorConcat([], 0).nbytes == 0


def test_concat_on_a_device():
    assert LiteTensorConcat([tensor(2)], 0, LiteDeviceType.LITE_CPU, 2).device_id == 2
    with pytest.raises(RuntimeError, match=r"request gpu0 out of valid range \[0, 0\)"):
        LiteTensorConcat([tensor(2)], 0, LiteDeviceType.LITE_CUDA, 0)
