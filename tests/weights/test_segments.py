"""Memory that processes share: what it holds, and that nobody can change it."""

import fcntl
import json
import mmap
import os
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from litehouse import WeightError
from litehouse.weights.segments import HEAD, MAGIC, SEALED, Counter, Segment

ARRAYS = {
    "a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "scalar": np.array(7, np.int64),
    "empty": np.zeros((0, 5), np.float16),
    "narrow": np.arange(5).astype(ml_dtypes.bfloat16),
    "bits": np.array([True, False, True]),
}


def test_arrays_come_back_as_they_were() -> None:
    segment = Segment.make(ARRAYS, {"fact": [1, "x"]})
    try:
        other = Segment(os.dup(segment.descriptor))
        assert other.facts == {"fact": [1, "x"]}
        assert list(other.arrays) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert other.arrays[name].dtype == array.dtype
            np.testing.assert_array_equal(other.arrays[name], array)
            assert other.arrays[name].ctypes.data % 64 == 0
        other.close()
        np.testing.assert_array_equal(other.arrays["a"], ARRAYS["a"])  # the memory stays
    finally:
        segment.close()


def test_nobody_can_change_it() -> None:
    segment = Segment.make(ARRAYS, {})
    with pytest.raises(ValueError, match="read-only"):
        segment.arrays["a"][0, 0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        segment.arrays["a"].flags.writeable = True
    for change in (
        lambda: os.pwrite(segment.descriptor, b"x", 0),
        lambda: os.truncate(segment.descriptor, 1),
        lambda: os.truncate(segment.descriptor, 1 << 20),
        lambda: mmap.mmap(segment.descriptor, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE),
        lambda: fcntl.fcntl(segment.descriptor, fcntl.F_ADD_SEALS, 0x20),
    ):
        with pytest.raises(OSError, match=r"not permitted|Permission denied"):
            change()
    segment.close()


def test_a_counter_is_changed_by_its_owner_alone() -> None:
    own = Counter()
    other = Counter(os.dup(own.descriptor))
    assert other.number == 0
    own.number = 2**40
    assert other.number == 2**40
    with pytest.raises(TypeError, match="read-only"):
        other.number = 1
    with pytest.raises(OSError, match=r"not permitted|Permission denied"):
        mmap.mmap(own.descriptor, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(own.descriptor, b"x", 0)
    own.close()
    other.close()


def test_a_counter_that_its_owner_could_cut_off_is_refused() -> None:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.truncate(descriptor, mmap.PAGESIZE)
    with pytest.raises(WeightError, match="it is not sealed"):
        Counter(descriptor)


def _memory(content: bytes, *, is_sealed: bool = True) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(descriptor, content)
    if is_sealed:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALED)
    return descriptor


def _head(places: Any, facts: Any = None, data: bytes = b"\0" * 64) -> bytes:
    text = json.dumps({"facts": facts or {}, "places": places}).encode()
    start = HEAD.pack(MAGIC, len(text)) + text
    return start + b"\0" * (-len(start) % 64) + data


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"\0" * 4096,
        HEAD.pack(MAGIC, 2**63) + b"{}",
        HEAD.pack(MAGIC, 5) + b"{...}",
        HEAD.pack(MAGIC, 2) + b"[]",
        _head({"a": [0, "float32", [17]]}),
        _head({"a": [-64, "float32", [1]]}),
        _head({"a": [2**62, "float32", [1]]}),
        _head({"a": [0, "float32", [-1]]}),
        _head({"a": [0, "float32", [2**62, 2**62]]}),
        _head({"a": [0, "object", [1]]}),
        _head({"a": [0, "nonsense", [1]]}),
        _head({"a": [0, "bfloat17", [1]]}),
        _head({"a": [0, "float32"]}),
        _head([1]),
        struct.pack("<4sQ", b"LHS0", 2) + b"{}",
        _head({"a": [2**70, "float32", [1]]}),
        _head({}, facts=[1]),
        HEAD.pack(MAGIC, 200_000) + b"[" * 100_000 + b"]" * 100_000,
    ],
    ids=range(19),
)
def test_what_is_no_segment_is_refused(content: bytes) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(WeightError, match="does not hold weights as Litehouse writes them"):
        Segment(_memory(content))
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_is_not_sealed_is_refused() -> None:
    with pytest.raises(WeightError, match="it is not sealed"):
        Segment(_memory(_head({}), is_sealed=False))
    with open("/dev/null", "rb") as file, pytest.raises(WeightError):
        Segment(os.dup(file.fileno()))
