"""Compressed tensors: numbers by hand, those that MegEngine Lite computed with real files, and hostile ones."""

import random
import struct
import tracemalloc

import numpy as np
import pytest
from formats.builders import refused

import litehouse
from conftest import FIXTURES
from litehouse.formats.mge.compressed import decompress
from litehouse.formats.mge.pack import open_packed
from litehouse.formats.mge.reader import read_graph
from litehouse.formats.source import Source
from litehouse.options import Limits

FOLDER = FIXTURES / "mge_packed"
FLOAT = np.dtype(np.float32)


def squeezed(kind: int, step: float, base: float, steps: list[int]) -> bytes:
    return struct.pack("<Bff", kind, step, base) + np.array(steps, {1: "u1", 2: "<u2"}[kind]).tobytes()


def test_by_hand() -> None:
    found = decompress(squeezed(1, 0.5, -1.0, [0, 1, 2, 255]), FLOAT, (2, 2), "m.mge")
    np.testing.assert_array_equal(found, np.array([[-1, -0.5], [0, 126.5]], np.float32))
    assert found.dtype == FLOAT
    found = decompress(squeezed(2, 0.25, 3.0, [0, 65535]), FLOAT, (2,), "m.mge")
    np.testing.assert_array_equal(found, np.array([3, 16386.75], np.float32))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int16", "int8", "uint8", "bool"])
def test_raw(dtype: str) -> None:
    values = np.array([[1, 0, 3], [0, 5, 6]], dtype)
    found = decompress(b"\0" + values.tobytes(), values.dtype, (2, 3), "m.mge")
    np.testing.assert_array_equal(found, values)
    assert found.dtype == values.dtype
    found[0, 0] = 0  # its own memory, and not that of the file


@pytest.mark.parametrize("kind", [1, 2])
def test_arithmetic_is_that_of_float32(kind: int) -> None:
    """A product, rounded, then a sum, rounded: as two operations on float32."""
    dice = np.random.default_rng(kind)
    step, base = dice.normal(size=2).astype(np.float32)
    steps = dice.integers(0, 256 if kind == 1 else 65536, 1000)
    expected = np.array([np.float32(np.float32(step * np.float32(item)) + base) for item in steps], np.float32)
    np.testing.assert_array_equal(
        decompress(squeezed(kind, step, base, steps.tolist()), FLOAT, (1000,), "m.mge"), expected
    )


@pytest.mark.parametrize("name", ["compressed.lite", "compressed_v1.lite", "compressed_rc4.lite"])
def test_what_megengine_lite_loaded(name: str) -> None:
    """The network adds each weight to zeros, so what it gave are the weights, to the last bit."""
    values = np.load(FOLDER / "values.npz")
    expected = {values[key].tobytes() for key in values if key.startswith(name + " ")}
    model = open_packed(Source.over((FOLDER / name).read_bytes()), Limits()).model
    found, kinds = set(), []
    for operator in read_graph(model, Limits()).operators:
        for tensor in operator.tensors:
            if tensor.place is not None:
                data = model.read(tensor.place.offset, tensor.place.length or 0)
                kinds.append(data[0])
                assert tensor.dtype.numpy is not None
                found.add(decompress(data, tensor.dtype.numpy, tensor.shape, name).tobytes())
    assert found == expected
    assert sorted(kinds) == [0, 0, 1, 2]


def test_bytes_behind_the_values_are_passed_over() -> None:
    assert decompress(squeezed(1, 1, 0, [1, 2, 3]), FLOAT, (2,), "m.mge").tolist() == [1, 2]
    assert decompress(b"\0" + bytes(9), FLOAT, (2,), "m.mge").tolist() == [0, 0]


@pytest.mark.parametrize("data", [squeezed(1, 0.5, 0, [1, 2, 3]), squeezed(2, 0.5, 0, [1, 2, 3]), b"\0" + bytes(12)])
def test_cut_everywhere(data: bytes) -> None:
    decompress(data, FLOAT, (3,), "m.mge")
    for length in range(len(data)):
        with refused(text="m.mge: "):
            decompress(data[:length], FLOAT, (3,), "m.mge")


@pytest.mark.parametrize("kind", [3, 4, 127, 255])
def test_unknown_kind(kind: int) -> None:
    with refused(text=f"Unexpected compression method {kind} of tensor 'w'"):
        decompress(bytes([kind]) + bytes(100), FLOAT, (3,), "m.mge", "w")


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int8"])
@pytest.mark.parametrize("kind", [1, 2])
def test_only_float32_is_compressed(dtype: str, kind: int) -> None:
    with refused(text=f"Unexpected compression method {kind} of tensor '' of dtype {dtype}"):
        decompress(bytes([kind]) + bytes(100), np.dtype(dtype), (3,), "m.mge")


@pytest.mark.parametrize(("step", "base"), [(float("nan"), 0), (float("inf"), 0), (3e38, 3e38), (0, float("-inf"))])
def test_odd_numbers(step: float, base: float) -> None:
    """They are values as any other, and raise no warning."""
    found = decompress(squeezed(1, step, base, [0, 1, 255]), FLOAT, (3,), "m.mge")
    assert found.shape == (3,)


@pytest.mark.parametrize("shape", [(2**32 - 1,), (2**32 - 1,) * 7, (2**20, 2**20), (0, *(2**32 - 1,) * 6), (-1,)])
@pytest.mark.parametrize("kind", [0, 1, 2])
def test_shapes_that_ask_for_much(shape: tuple[int, ...], kind: int) -> None:
    tracemalloc.start()
    with refused(text="m.mge: "):
        decompress(bytes([kind]) + bytes(100), FLOAT, shape, "m.mge")
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


@pytest.mark.parametrize("name", ["compressed.lite", "compressed_v1.lite"])
def test_mutated_values(name: str) -> None:
    """Other bytes where the values are: a model, or a documented error."""
    content = (FOLDER / name).read_bytes()
    dice = random.Random(name)
    outcomes = set()
    for _ in range(60):
        made = bytearray(content)
        for _ in range(3):
            made[dice.randrange(100, len(made))] = dice.choice((0, 1, 2, 3, 255))
        try:
            outcomes.add(type(litehouse.read(bytes(made))).__name__)
        except litehouse.LitehouseError as error:
            assert "no check foresaw" not in str(error)  # noqa: PT017
            outcomes.add(type(error).__name__)
    assert {"Model", "ModelFormatError"} <= outcomes
