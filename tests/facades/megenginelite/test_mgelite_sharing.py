"""Memory that tensors, arrays, ctypes and networks share: nothing is copied. What is expected was seen on 1.13.0."""

import ctypes
import gc

import numpy as np
import pytest
from facades.megenginelite.support import ROW, address, counted, load, run, score, tensor

from megenginelite import LiteConfig, LiteLayout, LiteTensor


def test_array_is_shared():
    made, array = tensor(2, 3), counted(2, 3) + 10
    made.set_data_by_share(array)
    assert address(made) == array.ctypes.data
    array[0, 0] = 99
    assert made.to_numpy()[0, 0] == 99
    made.set_data_by_copy(counted(2, 3))
    assert array[1, 2] == 5
    made.set_data_by_copy(counted(1, 3) + 7)
    assert array.tolist() == [[7, 8, 9], [3, 4, 5]]
    made.set_data_by_copy(counted(4, 3))  # too large: memory of its own
    assert array.tolist() == [[7, 8, 9], [3, 4, 5]]


def test_shared_array_keeps_living():
    made = LiteTensor()
    made.set_data_by_share(np.full((2, 2), 3, np.float32))
    gc.collect()
    assert made.to_numpy().tolist() == [[3, 3], [3, 3]]


@pytest.mark.parametrize(
    ("array", "shape"),
    [(counted(4), [4]), (counted(3, 2), [2, 3]), (counted(24, dtype="int8"), [2, 3]), (counted(6, 2), [6, 2])],
)
def test_layout_of_a_shared_array(array, shape):
    made = tensor(2, 3)
    made.set_data_by_share(array)
    assert (made.layout.shapes, made.layout.dtype, address(made)) == (shape, np.float32, array.ctypes.data)


def test_sharing_with_a_layout():
    made = tensor(2, 3)
    made.set_data_by_share(counted(4), layout=LiteLayout([2, 2]))
    assert made.to_numpy().tolist() == [[0, 1], [2, 3]]


def test_memory_that_is_too_small():  # read beyond its end in the original
    with pytest.raises(RuntimeError, match=r"the shared memory has 20 bytes, and the layout .* takes 80"):
        tensor(2, 3).set_data_by_share(counted(4, 5, dtype="int8"))
    with pytest.raises(RuntimeError, match="the shared memory has 16 bytes"):
        tensor(2, 3).set_data_by_share(counted(4), layout=LiteLayout([9, 2]))
    with pytest.raises(RuntimeError, match="the memory has 8 bytes"):
        tensor(2, 3).set_data_by_share((ctypes.c_float * 2)())


def test_ctypes_are_shared():
    numbers = (ctypes.c_float * 6)(*range(6))
    for data in (
        numbers,
        ctypes.cast(numbers, ctypes.c_void_p),
        ctypes.pointer(numbers),
        ctypes.byref(numbers),
        ctypes.addressof(numbers),
        ctypes.cast(numbers, ctypes.POINTER(ctypes.c_float)),
    ):
        made = tensor(2, 3)
        made.set_data_by_share(data)
        assert address(made) == ctypes.addressof(numbers)
    numbers[5] = 50
    assert made.to_numpy()[1, 2] == 50
    made.set_data_by_share(numbers, 24)
    made.set_data_by_share(numbers, layout=LiteLayout([6]))
    assert made.layout.shapes == [6]
    with pytest.raises(AssertionError, match=r"the data length is not match\."):
        made.set_data_by_share(numbers, 12)


def test_shared_ctypes_keep_living():
    made = tensor(2, 3)
    made.set_data_by_share((ctypes.c_float * 6)(*range(6)))
    gc.collect()
    np.testing.assert_array_equal(made.to_numpy(), counted(2, 3))


def test_shared_bytes_are_not_written():
    made = tensor(2, 3)
    made.set_data_by_share(counted(2, 3).tobytes())
    np.testing.assert_array_equal(made.to_numpy(), counted(2, 3))
    with pytest.raises(ValueError, match="read-only"):
        made.fill_zero()


def test_what_cannot_be_shared():
    with pytest.raises(AssertionError, match="before call set_data_by_share"):
        tensor(2, 3).set_data_by_share(counted(4, 5)[:, ::2])
    with pytest.raises(ctypes.ArgumentError):
        tensor(2, 3).set_data_by_share([1, 2, 3])
    with pytest.raises(RuntimeError, match="The prepared_data pass to LITE c_api is null"):
        tensor(2, 3).set_data_by_share(None)


def test_share_memory_with():
    source, made = tensor(2, 3), LiteTensor()
    made.share_memory_with(source)
    source.set_data_by_copy(counted(2, 3) + 5)
    np.testing.assert_array_equal(made.to_numpy(), counted(2, 3) + 5)
    made.get_data_by_share()[0, 0] = -1
    assert source.to_numpy()[0, 0] == -1
    source.set_data_by_copy(counted(20))  # the source goes on in memory of its own
    assert made.to_numpy().shape == (2, 3)
    made.share_memory_with(tensor(3, 3, dtype="int8"))
    assert made.layout.dtype is np.int8
    columns = tensor(4, 6).slice([0, 2], [4, 4])
    made.share_memory_with(columns)
    assert (made.is_continue, made.layout.shapes, address(made)) == (False, [4, 2], address(columns))
    with pytest.raises(RuntimeError, match=r"To be shared tensor with empty layout\."):
        made.share_memory_with(LiteTensor())
    with pytest.raises(AssertionError):
        made.share_memory_with(counted(2))


def test_get_data_by_share_is_a_view():
    made = tensor(2, 3)
    view = made.get_data_by_share()
    assert view.ctypes.data == address(made)
    view[0, 0] = 42
    assert made.to_numpy()[0, 0] == 42
    made.set_data_by_copy(counted(2, 3) + 1)
    np.testing.assert_array_equal(view, counted(2, 3) + 1)


def test_network_sees_what_is_written_to_shared_memory():
    network, array = load(), ROW.copy()
    network.get_io_tensor("data").set_data_by_share(array)
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)
    array += 1
    np.testing.assert_allclose(run(network)["score"], score(ROW + 1), rtol=1e-6)


def test_network_sees_what_is_written_to_a_shared_tensor():
    network, source = load(), LiteTensor(LiteLayout([1, 4]))
    network.get_io_tensor("data").share_memory_with(source)
    for step in range(3):
        source.set_data_by_copy(ROW + step)
        np.testing.assert_allclose(run(network)["score"], score(ROW + step), rtol=1e-6)


@pytest.mark.parametrize("rows", [1, 2])  # without and with gaps
def test_network_runs_on_a_slice(rows):
    network, source = load(), tensor(4, 8)
    network.get_io_tensor("data").share_memory_with(source.slice([1, 2], [1 + rows, 6]))
    for step in range(2):
        source.get_data_by_share()[...] += step
        expected = score(source.to_numpy()[1 : 1 + rows, 2:6])
        np.testing.assert_allclose(run(network)["score"], expected, rtol=1e-6)


def test_outputs_stay_where_they_are():
    network = load()
    data, result = network.get_io_tensor("data"), network.get_io_tensor("score")
    data.set_data_by_copy(ROW)
    run(network)
    before, view = address(result), result.get_data_by_share()
    for step in range(3):
        data.set_data_by_copy(ROW + step)
        run(network)
        assert address(result) == before
        np.testing.assert_allclose(view, score(ROW + step), rtol=1e-6)


@pytest.mark.parametrize("forced", [0, 1])
@pytest.mark.parametrize("shape", [(1, 3), (3,)])
def test_outputs_go_to_the_callers_memory(forced, shape):
    config = LiteConfig()
    config.options.force_output_use_user_specified_memory = forced
    network = load("tiny", config)
    data, result = network.get_io_tensor("data"), network.get_io_tensor("score")
    array = np.zeros(shape, np.float32)
    result.set_data_by_share(array)
    for step in range(2):
        data.set_data_by_copy(ROW + step)
        run(network)
        np.testing.assert_allclose(array.ravel(), score(ROW + step).ravel(), rtol=1e-6)
        assert address(result) == array.ctypes.data
    other = (ctypes.c_float * 3)()
    result.set_data_by_share(other, 12)
    run(network)
    np.testing.assert_allclose(list(other), score(ROW + 1).ravel(), rtol=1e-6)


def test_callers_memory_that_is_too_small_is_not_left_without_a_word():
    config = LiteConfig()
    config.options.force_output_use_user_specified_memory = 1
    network = load("tiny", config)
    network.get_io_tensor("score").set_data_by_share(np.zeros((1, 3), np.float32))
    network.get_io_tensor("data").set_data_by_copy(counted(2, 4))
    with pytest.raises(RuntimeError, match=r"disallowed shape change: \{1,3\} vs \{2,3\}"):
        network.forward()
    network.get_io_tensor("score").set_data_by_share(np.zeros((2, 3), np.float32))
    np.testing.assert_allclose(run(network)["score"], score(counted(2, 4)), rtol=1e-6)


def test_two_names_for_an_input_are_one_tensor():
    network = load()
    first, second = network.get_io_tensor("data"), network.get_io_tensor(b"data")
    array = counted(3, 4)
    first.set_data_by_share(array)
    assert (second.layout.shapes, address(second)) == ([3, 4], array.ctypes.data)


def test_an_output_over_memory_that_cannot_be_written():
    network = load()
    output = network.get_io_tensor("score")
    fixed = np.zeros((1, 3), np.float32)
    fixed.flags.writeable = False
    output.set_data_by_share(fixed)
    with pytest.raises(RuntimeError, match="cannot be written"):
        network.forward()
    output.set_data_by_share(np.zeros((1, 3), np.float32))
    network.forward()
