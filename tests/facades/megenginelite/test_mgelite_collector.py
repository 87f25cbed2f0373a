"""TensorBatchCollector. What is expected was seen on 1.13.0."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from facades.megenginelite.support import counted, tensor

from megenginelite import LiteDataType, LiteDeviceType, LiteLayout, LiteTensor, TensorBatchCollector

CPU = LiteDeviceType.LITE_CPU
FLOAT = LiteDataType.LITE_FLOAT
FULL = r"all batch has been collected, please call free before collect again\."


def test_default_device_is_another():
    with pytest.raises(RuntimeError, match=r"request gpu0 out of valid range \[0, 0\)"):
        TensorBatchCollector([2, 3])


def test_attributes():
    batch = TensorBatchCollector([3, 2], device_type=CPU, device_id=1, is_pinned_host=True)
    assert (batch.shape, batch.dtype, batch.dev_type, batch.dev_id, batch.is_pinned_host) == ([3, 2], 4, CPU, 1, True)
    for dtype in (FLOAT, "float32", np.float32):
        assert TensorBatchCollector((3, 2), dtype, CPU).dtype == FLOAT


def test_collect_one_after_another():
    batch = TensorBatchCollector([2, 3], FLOAT, CPU)
    assert batch.collect(counted(3)) == 0
    assert batch.collect(counted(3) + 1) == 1
    with pytest.warns(UserWarning, match=FULL):
        assert batch.collect(counted(3)) == -1
    assert batch.to_numpy().tolist() == [[0, 1, 2], [1, 2, 3]]
    batch.free([1])
    assert batch.collect(counted(3) + 9) == 1
    assert batch.get().to_numpy().tolist() == [[0, 1, 2], [9, 10, 11]]
    assert batch.get() is batch.get()


def test_collect_at_a_place():
    batch = TensorBatchCollector([3, 2], FLOAT, CPU)
    assert batch.collect_id(counted(2), 2) is None
    assert (batch.collect(counted(2) + 1), batch.collect(counted(2) + 2)) == (0, 1)
    assert batch.to_numpy().tolist() == [[1, 2], [2, 3], [0, 1]]
    with pytest.warns(UserWarning, match=r"batch 0 has been collected, please call free before collected it again\."):
        batch.collect_id(counted(2), 0)
    assert batch.to_numpy()[0].tolist() == [1, 2]
    for place in (3, -1):
        with pytest.raises(AssertionError, match=r"the idx specific the tensor is out of range\."):
            batch.collect_id(counted(2), place)


def test_free_places_are_used_in_the_order_of_freeing():
    batch = TensorBatchCollector([3, 2], FLOAT, CPU)
    batch.free([0])
    assert [batch.collect(counted(2)) for _ in range(3)] == [1, 2, 0]
    batch.free([2, 0])
    batch.free([0, 7, -1])  # what is no place is later given out by the original
    assert [batch.collect(counted(2)) for _ in range(2)] == [2, 0]
    batch.free(range(3))
    assert batch.collect(counted(2)) == 0
    with pytest.raises(TypeError):
        batch.free(1)


@pytest.mark.parametrize(
    "array", [counted(4), counted(1, 3), counted(3, dtype="int8"), counted(6)[::2], [1, 2, 3], tensor(3, 1)]
)
def test_wrong_pieces_take_no_place(array):  # they do in the original
    batch = TensorBatchCollector([2, 3], FLOAT, CPU)
    for _ in range(3):
        with pytest.raises(AssertionError):
            batch.collect(array)
    assert batch.collect(counted(3)) == 0


def test_collect_tensors():
    batch = TensorBatchCollector([4, 6, 8], LiteDataType.LITE_INT, CPU)
    array = np.ones([6, 8], np.int32)
    piece = LiteTensor(LiteLayout([6, 8], LiteDataType.LITE_INT))
    for _ in range(4):
        piece.set_data_by_share(array)
        batch.collect(piece)
        array += 1
    np.testing.assert_array_equal(batch.to_numpy(), np.arange(1, 5).reshape(4, 1, 1) * np.ones((4, 6, 8), np.int32))
    batch.free([0])
    with pytest.raises(RuntimeError, match="attempt to access dtype Int32 as Float32"):
        batch.collect(tensor(6, 8))


def test_collect_ctypes():
    batch = TensorBatchCollector([2, 3], FLOAT, CPU)
    numbers = (ctypes.c_float * 3)(7, 8, 9)
    with pytest.raises(AssertionError, match="the length of input data or layout must set"):
        batch.collect_by_ctypes(numbers, 8)
    assert batch.collect_by_ctypes(numbers, 12) == 0  # None in the original
    assert batch.collect_by_ctypes(ctypes.cast(numbers, ctypes.c_void_p), 12) == 1
    assert batch.collect_by_ctypes(numbers, 12) == -1
    assert batch.to_numpy().tolist() == [[7, 8, 9]] * 2


def test_places_are_views():
    batch = TensorBatchCollector([2, 3], FLOAT, CPU)
    place = batch.get_tensor_at(1)
    assert place.layout.shapes == [1, 3]
    place.set_data_by_copy(counted(3) + 4)
    assert batch.to_numpy()[1].tolist() == [4, 5, 6]
    with pytest.raises(AssertionError, match=r"the idx specific the tensor is out of range\."):
        batch.get_tensor_at(2)


def test_given_tensor():
    whole = tensor(2, 3)
    batch = TensorBatchCollector([2, 3], tensor=whole)
    assert batch.get() is whole
    assert (batch.dtype, batch.dev_type) == (FLOAT, CPU)
    batch.collect(counted(3) + 5)
    assert whole.to_numpy().tolist() == [[5, 6, 7], [3, 4, 5]]
    with pytest.raises(AssertionError, match=r"The tensor set to TensorBatchCollector is not right\."):
        TensorBatchCollector([4, 3], tensor=whole)


def test_pieces_that_are_numbers():
    batch = TensorBatchCollector([2], device_type=CPU)
    assert batch.collect(np.array(5, np.int8)) == 0
    assert batch.to_numpy().tolist() == [5, 0]


def test_several_threads_collect():
    batch = TensorBatchCollector([64, 3], FLOAT, CPU)
    with ThreadPoolExecutor(8) as pool:
        places = list(pool.map(batch.collect, [np.full(3, number, np.float32) for number in range(64)]))
    assert sorted(places) == list(range(64))
    assert batch.to_numpy()[places, 0].tolist() == list(range(64))
