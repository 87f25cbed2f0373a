"""The loader: declarations against bytes. `test_hostile_paths.py` has the attacks through whole models."""

from pathlib import Path

import numpy as np
import pytest
from formats.builders import descriptors, refused

from litehouse.errors import LimitError
from litehouse.formats.loader import Place, WeightLoader, check_shape
from litehouse.formats.source import Source, open_source
from litehouse.options import Limits

FLOAT = np.dtype(np.float32)
DATA = np.arange(8, dtype=FLOAT)


def loader(**limits: int) -> WeightLoader:
    return WeightLoader(Source.over(b"head" + DATA.tobytes()), Limits(**limits))


def test_weights_from_places_and_arrays() -> None:
    load = loader()
    load.add("a", FLOAT, (2, 2), Place(4, 16))
    load.add("b", FLOAT, (4,), Place(20))
    load.add("c", FLOAT, (2,), np.array([8, 9], FLOAT))
    weights = load.load()
    np.testing.assert_array_equal(weights["a"], [[0, 1], [2, 3]])
    np.testing.assert_array_equal(weights["b"], [4, 5, 6, 7])
    np.testing.assert_array_equal(weights["c"], [8, 9])


def test_fetch() -> None:
    assert loader().fetch("t", 32, (1,), Place(8)) == DATA[1:2].tobytes()
    assert loader().fetch("t", 4, (3,), Place(0)) == b"he"


def test_names() -> None:
    load = loader()
    load.add("a", FLOAT, (1,), Place(0))
    with refused(text="'a' occurs twice"):
        load.add("a", FLOAT, (1,), Place(0))
    with refused(text="no name"):
        load.add("", FLOAT, (1,), Place(0))


def test_limit_and_length() -> None:
    with refused(LimitError, "max_tensor_bytes=15"):
        loader(max_tensor_bytes=15).add("a", FLOAT, (4,), Place(0))
    with refused(text="has 15 bytes, not 16"):
        loader().add("a", FLOAT, (4,), Place(0, 15))
    with refused(text="bytes 24 to 40 of a file of 36"):
        loader().add("a", FLOAT, (4,), Place(24, 16))


@pytest.mark.parametrize("shape", [(-1,), (2, -2), (1,) * 65, (2**59,), (0, 2**59), (2**40, 2**40)])
def test_impossible_shapes(shape: tuple[int, ...]) -> None:
    with refused(text="impossible shape"):
        check_shape("t", shape, "m")


def test_possible_shapes() -> None:
    for shape in ((), (0,), (1,) * 64, (2**58,), (0, 0, 3)):
        assert check_shape("t", shape, "m") == shape


def test_data_files_are_closed_also_after_errors(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"model")
    (tmp_path / "data").write_bytes(DATA.tobytes())
    before = descriptors()
    with open_source(tmp_path / "m", Limits()) as source:
        load = WeightLoader(source, Limits())
        load.add("a", FLOAT, (8,), Place(0, None, "data"))
        np.testing.assert_array_equal(load.load()["a"], DATA)
        (tmp_path / "data").write_bytes(b"short")
        with refused(text="end behind the file"):
            load.load()
    assert descriptors() == before


def test_unlock_sees_every_data_file(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"model")
    (tmp_path / "data").write_bytes(bytes(byte ^ 0xFF for byte in DATA.tobytes()))
    with open_source(tmp_path / "m", Limits()) as source:
        load = WeightLoader(
            source, Limits(), lambda data: Source.over(bytes(b ^ 0xFF for b in data.read(0, data.size)))
        )
        load.add("a", FLOAT, (8,), Place(0, None, "data"))
        np.testing.assert_array_equal(load.load()["a"], DATA)
