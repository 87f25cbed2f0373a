"""`Tensor` and `TensorMeta`.

All of it was seen on 2.0.0, unless a line says "master", or "safer" where 2.0.0 crashes or ignores the data.
"""

import logging

import numpy as np
import pytest

import mindspore_lite as mslite
from mindspore_lite import DataType, Format, Tensor, TensorMeta
from mindspore_lite.tensor import input_tensor

INT = "<class 'int'>"
STR = "<class 'str'>"
NONE = "<class 'NoneType'>"

DTYPES = [
    (DataType.BOOL, np.bool_),
    (DataType.INT8, np.int8),
    (DataType.INT16, np.int16),
    (DataType.INT32, np.int32),
    (DataType.INT64, np.int64),
    (DataType.UINT8, np.uint8),
    (DataType.UINT16, np.uint16),
    (DataType.UINT32, np.uint32),
    (DataType.UINT64, np.uint64),
    (DataType.FLOAT16, np.float16),
    (DataType.FLOAT32, np.float32),
    (DataType.FLOAT64, np.float64),
]


def make(shape, dtype=DataType.FLOAT32):
    tensor = Tensor()
    tensor.shape = shape
    tensor.dtype = dtype
    return tensor


def backed(array, shape=None):
    tensor = make(list(shape or array.shape))
    tensor.set_data_from_numpy(array)
    return tensor


def test_defaults():
    tensor = Tensor()
    assert (tensor.name, tensor.dtype, tensor.shape, tensor.format) == ("", DataType.FLOAT32, [], Format.NCHW)
    assert (tensor.element_num, tensor.data_size) == (1, 4)
    assert tensor.device == "None:-1"  # master
    data = tensor.get_data_to_numpy()
    assert data.shape == ()
    assert data == 0


def test_text():
    tensor = make([1, 3, 224, 224])
    tensor.name = "x"
    assert str(tensor) == (
        "name: x,\n"
        "dtype: DataType.FLOAT32,\n"
        "shape: [1, 3, 224, 224],\n"
        "format: Format.NCHW,\n"
        "element_num: 150528,\n"
        "data_size: 602112.\n"
        "device: None:-1."  # master's line
    )


def test_meta():  # master
    meta = TensorMeta()
    assert str(meta) == (
        "name: ,\ndtype: DataType.UNKNOWN,\nshape: [],\nformat: Format.DEFAULT,\nelement_num: 0,\ndata_size: 0."
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("name", "scores"),
        ("dtype", DataType.INT8),
        ("dtype", DataType.UNKNOWN),
        ("format", Format.NHWC),
        ("shape", [1, 2]),
        ("shape", [-1, 2]),
        ("shape", []),
    ],
)
def test_accepted(name, value):
    tensor = Tensor()
    setattr(tensor, name, value)
    assert getattr(tensor, name) == value


@pytest.mark.parametrize(
    ("name", "value", "error", "text"),
    [
        ("name", None, TypeError, f"name must be str, but got {NONE}."),
        ("name", 1, TypeError, f"name must be str, but got {INT}."),
        ("dtype", 43, TypeError, f"dtype must be DataType, but got {INT}."),
        ("dtype", np.float32, TypeError, "dtype must be DataType, but got <class 'type'>."),
        ("format", 1, TypeError, f"format must be Format, but got {INT}."),
        ("shape", None, TypeError, f"shape must be list or tuple, but got {NONE}."),  # master
        ("shape", ["a"], TypeError, f"shape element must be int, but got {STR} at index 0."),
        ("shape", [1, 1.0], TypeError, "shape element must be int, but got <class 'float'> at index 1."),
        ("shape", [np.int64(2)], TypeError, "shape element must be int, but got <class 'numpy.int64'> at index 0."),
        ("element_num", 1, AttributeError, None),
        ("data_size", 1, AttributeError, None),
        ("device", "x", AttributeError, None),
    ],
)
def test_refused(name, value, error, text):
    tensor = Tensor()
    before = str(tensor)
    with pytest.raises(error) as caught:
        setattr(tensor, name, value)
    assert text is None or str(caught.value) == text
    assert str(tensor) == before


def test_shape_is_a_fresh_list_of_ints():
    tensor = make((2, True))  # a tuple is master's
    assert tensor.shape == [2, 1]
    assert type(tensor.shape[1]) is int
    tensor.shape.append(7)
    assert tensor.shape == [2, 1]


@pytest.mark.parametrize("dtype", [DataType.UNKNOWN, DataType.INVALID])
def test_dtype_without_a_size(dtype):
    tensor = make([2, 3], dtype)
    assert (tensor.element_num, tensor.data_size) == (6, 0)
    assert tensor.get_data_to_numpy().size == 0


def test_negative_dimension_has_no_size():
    tensor = make([-1, 2])
    assert (tensor.element_num, tensor.data_size) == (0, 0)
    assert tensor.get_data_to_numpy().size == 0  # safer
    with pytest.raises(RuntimeError, match="data size not equal! Numpy size: 8, Tensor size: 0"):
        tensor.set_data_from_numpy(np.zeros(2, np.float32))


def test_zero_dimension_does_not_crash():  # safer
    tensor = make([2, 0])
    assert (tensor.element_num, tensor.data_size) == (0, 0)
    assert tensor.get_data_to_numpy().size == 0
    tensor.set_data_from_numpy(np.zeros((2, 0), np.float32))
    assert "shape: [2, 0]" in str(tensor)


def test_further_attributes_are_accepted():
    tensor = Tensor()
    tensor.note = "mine"
    assert tensor.note == "mine"


@pytest.mark.parametrize(("dtype", "numpy_type"), DTYPES)
def test_every_dtype_goes_in_and_out(dtype, numpy_type):
    tensor = make([2, 3], dtype)
    assert tensor.get_data_to_numpy().dtype == numpy_type
    data = np.arange(6).astype(numpy_type)
    tensor.set_data_from_numpy(data)
    assert tensor.dtype is dtype
    assert tensor.data_size == data.nbytes
    np.testing.assert_array_equal(tensor.get_data_to_numpy(), data.reshape(2, 3))


def test_other_name_of_int64_is_accepted():
    make([3], DataType.INT64).set_data_from_numpy(np.zeros(3, np.longlong))


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (1, TypeError, f"numpy_obj must be numpy.ndarray, but got {INT}."),
        (None, TypeError, f"numpy_obj must be numpy.ndarray, but got {NONE}."),
        ([1.0], TypeError, "numpy_obj must be numpy.ndarray, but got <class 'list'>."),
        (np.float32(3), TypeError, "numpy_obj must be numpy.ndarray, but got <class 'numpy.float32'>."),
        (np.zeros(3, np.float32), RuntimeError, "data size not equal! Numpy size: 12, Tensor size: 16"),
        (
            np.zeros(4),
            RuntimeError,
            "data type not equal! Numpy type: <class 'numpy.float64'>, Tensor type: DataType.FLOAT32",
        ),
        (
            np.zeros(2),  # the bytes agree
            RuntimeError,
            "data type not equal! Numpy type: <class 'numpy.float64'>, Tensor type: DataType.FLOAT32",
        ),
        (
            np.zeros(4, np.int32),
            RuntimeError,
            "data type not equal! Numpy type: <class 'numpy.int32'>, Tensor type: DataType.FLOAT32",
        ),
        (np.zeros(2, np.complex64), TypeError, "Unsupported numpy dtype value complex64"),  # master
        (np.array(["a"]), TypeError, "Unsupported numpy dtype value <U1"),  # master
    ],
)
def test_data_that_does_not_fit(value, error, text):
    tensor = make([2, 2])
    with pytest.raises(error) as caught:
        tensor.set_data_from_numpy(value)
    assert str(caught.value) == text
    assert not tensor.get_data_to_numpy().any()


@pytest.mark.parametrize("shape", [(4,), (2, 2), (4, 1), (1, 2, 2)])
def test_only_the_bytes_count(shape):
    tensor = backed(np.arange(4, dtype=np.float32).reshape(shape), [2, 2])
    assert tensor.shape == [2, 2]
    np.testing.assert_array_equal(tensor.get_data_to_numpy(), [[0, 1], [2, 3]])


def test_memory_is_shared_with_the_array():
    array = np.arange(4, dtype=np.float32)
    tensor = backed(array, [2, 2])
    array[0] = 99
    assert tensor.get_data_to_numpy()[0, 0] == 99
    tensor.get_data_to_numpy()[1, 1] = -5
    assert array[3] == -5


def test_strided_array_is_copied():
    array = np.arange(8, dtype=np.float32)[::2]
    tensor = backed(array)
    array[0] = 50
    np.testing.assert_array_equal(tensor.get_data_to_numpy(), [0, 2, 4, 6])


def test_set_again_and_again():
    tensor = make([2, 3])
    for order in "CFCF":
        array = np.arange(6, dtype=np.float32).reshape(2, 3).copy(order)
        tensor.set_data_from_numpy(array)
        np.testing.assert_array_equal(tensor.get_data_to_numpy(), array)
        assert tensor.get_data_to_numpy().flags.c_contiguous
        assert np.shares_memory(tensor.get_data_to_numpy(), array) is (order == "C")


def test_fortran_order_is_copied():  # safer: 2.0.0 keeps the old content
    array = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    np.testing.assert_array_equal(backed(array).get_data_to_numpy(), [[0, 1, 2], [3, 4, 5]])


def test_other_byte_order_is_converted():  # safer: 2.0.0 keeps the old content
    data = backed(np.arange(4, dtype=">f4")).get_data_to_numpy()
    np.testing.assert_array_equal(data, [0, 1, 2, 3])
    assert data.dtype.isnative


def test_matrix_and_memmap_are_taken(tmp_path):
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1, 2], [3, 4]], np.float32)
    tensor = backed(matrix, [1, 1, 2, 2])
    assert type(tensor.get_data_to_numpy()) is np.ndarray
    mapped = np.memmap(tmp_path / "data.bin", np.float32, "w+", shape=(4,))
    tensor = backed(mapped)
    mapped[0] = 3
    assert tensor.get_data_to_numpy()[0] == 3


def test_data_is_a_writable_view():
    tensor = make([2, 2])
    first, second = tensor.get_data_to_numpy(), tensor.get_data_to_numpy()
    assert not first.flags.owndata
    assert first.flags.writeable
    assert np.shares_memory(first, second)
    first[0, 1] = 7
    assert second[0, 1] == 7


def test_data_view_outlives_the_tensor():
    tensor = make([1000])
    data = tensor.get_data_to_numpy()
    data[:] = 3
    del tensor
    assert data.sum() == 3000


def test_set_array_fixes_shape_dtype_and_format(caplog):
    tensor = backed(np.arange(4, dtype=np.float32), [2, 2])
    with caplog.at_level(logging.ERROR, logger="mindspore_lite"):
        tensor.shape = [4]
        tensor.dtype = DataType.INT32
        tensor.format = Format.NHWC
    assert (tensor.shape, tensor.dtype, tensor.format) == ([2, 2], DataType.FLOAT32, Format.NCHW)
    assert [record.getMessage().split()[0] for record in caplog.records] == ["shape", "dtype", "format"]
    tensor.name = "still"
    assert tensor.name == "still"
    tensor.set_data_from_numpy(np.arange(4, 8, dtype=np.float32))
    np.testing.assert_array_equal(tensor.get_data_to_numpy(), [[4, 5], [6, 7]])


def test_own_memory_is_kept_where_its_size_stays():
    tensor = make([2, 2])
    tensor.get_data_to_numpy()[:] = [[1, 2], [3, 4]]
    tensor.shape = [4]
    np.testing.assert_array_equal(tensor.get_data_to_numpy(), [1, 2, 3, 4])
    tensor.shape = [2, 3]
    assert tensor.get_data_to_numpy().shape == (2, 3)
    tensor.dtype = DataType.FLOAT16
    assert (tensor.shape, tensor.data_size) == ([2, 3], 12)


class TestConstructor:
    """All of master, which takes more than the handle of 2.0.0."""

    def test_array_shares_its_memory(self):
        array = np.arange(6, dtype=np.int32).reshape(2, 3)
        tensor = Tensor(array)
        assert (tensor.shape, tensor.dtype, tensor.data_size) == ([2, 3], DataType.INT32, 24)
        array[0, 0] = 9
        assert tensor.get_data_to_numpy()[0, 0] == 9

    def test_array_that_is_not_contiguous(self):
        tensor = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3).T)
        assert tensor.shape == [3, 2]
        np.testing.assert_array_equal(tensor.get_data_to_numpy(), [[0, 3], [1, 4], [2, 5]])

    def test_tensor_is_copied(self):
        source = backed(np.ones(3, np.float32))
        source.name = "x"
        copy = Tensor(source)
        source.get_data_to_numpy()[:] = 2
        np.testing.assert_array_equal(copy.get_data_to_numpy(), [1, 1, 1])
        copy.shape = [1, 3]
        assert (copy.shape, source.shape) == ([1, 3], [3])

    def test_tensor_without_data_is_copied(self):
        assert Tensor(make([-1, 2], DataType.INT8)).shape == [-1, 2]

    def test_shape_and_dtype(self):
        tensor = Tensor(shape=(2, 3), dtype=DataType.INT64)
        assert (tensor.shape, tensor.dtype, tensor.data_size) == ([2, 3], DataType.INT64, 48)
        assert not tensor.get_data_to_numpy().any()

    @pytest.mark.parametrize("fields", [{"shape": [2, 3]}, {"dtype": DataType.INT64}])
    def test_half_a_description_gives_a_scalar(self, fields):
        tensor = Tensor(**fields)
        assert (tensor.shape, tensor.dtype) == ([], DataType.FLOAT32)

    def test_agreeing_description(self):
        array = np.zeros((2, 3), np.float32)
        assert Tensor(array, [2, 3], DataType.FLOAT32).shape == [2, 3]
        assert Tensor(Tensor(array), (2, 3), DataType.FLOAT32).shape == [2, 3]

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ((1,), f"tensor must be MindSpore Lite's Tensor._tensor or numpy ndarray, but got {INT}."),
            ((None, 3), f"shape must be list or tuple, but got {INT}."),
            ((None, [1, "a"]), f"shape element must be int, but got {STR} at index 1."),
            ((None, None, 43), f"dtype must be DataType, but got {INT}."),
            ((None, None, None, 1), f"device must be str, but got {INT}."),
            ((None, None, None, "ascend:x"), "device must be 'ascend:index', eg: 'ascend:0'"),
            (
                (None, None, None, "cpu:0"),  # the original's words, and what holds here
                "now only support ascend device. Here, 'gpu' and 'gpu:0' are devices, too; "
                "leave `device` out for the host.",
            ),
            ((None, None, None, "ascend:-1"), "device id should >= 0."),
            (
                (np.zeros((2, 3), np.float32), [3, 2]),
                "user set shape is not equal numpy shape, user shape: [3, 2], numpy shape is: (2, 3).",
            ),
            (
                (np.zeros(2, np.float32), None, DataType.INT8),
                "user set dtype is not equal numpy dtype, user dtype: DataType.INT8, numpy dtype is: float32.",
            ),
            (
                (Tensor(), [3]),
                "user set shape is not equal tensor shape, user's shape: [3], tensor shape is: [].",
            ),
            (
                (Tensor(), None, DataType.INT8),
                "user set dtype is not equal tensor dtype, user's dtype: DataType.INT8, "
                "tensor dtype is: DataType.FLOAT32.",
            ),
            ((np.zeros(2, np.complex64),), "Unsupported numpy dtype value complex64"),
        ],
    )
    def test_refused(self, arguments, text):
        with pytest.raises(TypeError) as caught:
            Tensor(*arguments)
        assert str(caught.value) == text

    @pytest.mark.parametrize("device", ["ascend", "ascend:0"])
    def test_device_memory_is_refused(self, device):
        with pytest.raises(RuntimeError, match="tensors live on the host"):
            Tensor(shape=[1], dtype=DataType.INT8, device=device)


def test_tensor_of_the_submodule():
    assert mslite.tensor.TensorMeta is TensorMeta


class TestAxesInAnotherOrder:  # safer: 2.0.0 takes the bytes as they are
    def test_refused(self):
        tensor = input_tensor("x", DataType.FLOAT32, (1, 4, 5, 3))
        with pytest.raises(RuntimeError, match="the axes are in another order; transpose the array"):
            tensor.set_data_from_numpy(np.zeros((1, 3, 4, 5), np.float32))

    @pytest.mark.parametrize("shape", [(60,), (1, 4, 15), (4, 5, 3), (20, 3)])
    def test_what_keeps_the_order_is_taken(self, shape):
        tensor = input_tensor("x", DataType.FLOAT32, (1, 4, 5, 3))
        data = np.arange(60, dtype=np.float32).reshape(shape)
        tensor.set_data_from_numpy(data)
        np.testing.assert_array_equal(tensor.get_data_to_numpy().ravel(), data.ravel())

    def test_one_channel_may_be_first_or_last(self):
        tensor = input_tensor("x", DataType.FLOAT32, (1, 4, 5, 1))
        tensor.set_data_from_numpy(np.zeros((1, 1, 4, 5), np.float32))
