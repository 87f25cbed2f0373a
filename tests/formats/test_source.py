"""Sources: bytes at offsets, from files and memory."""

import os
from pathlib import Path

import numpy as np
import pytest
from formats.builders import descriptors, refused

from litehouse.errors import LimitError, ModelFormatError
from litehouse.formats.source import Source, open_beside, open_source
from litehouse.options import Limits

CONTENT = bytes(range(100))


@pytest.fixture(params=["file", "bytes", "bytearray", "window", "window of a file", "window of a window"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Source:
    """The same content from a file and from memory."""
    if request.param == "bytes":
        return Source.over(CONTENT)
    if request.param == "bytearray":
        return Source.over(bytearray(CONTENT))
    if request.param == "window":
        return Source.over(b"before" + CONTENT + b"behind").window(6, 100)
    if request.param == "window of a window":
        return Source.over(b"before" + CONTENT + b"behind").window(3, 105).window(3, 100)
    (tmp_path / "f").write_bytes(CONTENT if request.param == "file" else b"before" + CONTENT + b"behind")
    opened = open_source(tmp_path / "f", Limits())
    return opened if request.param == "file" else opened.window(6, 100)


def test_read(source: Source) -> None:
    assert source.size == 100
    assert source.read(0, 100) == CONTENT
    assert source.read(10, 5) == CONTENT[10:15]
    assert source.read(98, 50) == CONTENT[98:]
    assert source.read(100, 1) == b""
    assert source.read(1000, 1) == b""
    assert source.read(5, 0) == b""
    assert source.read(5, -3) == b""


def test_read_into(source: Source) -> None:
    array = np.zeros((2, 3), np.uint16)
    source.read_into(4, array)
    assert array.tobytes() == CONTENT[4:16]
    source.read_into(10**9, np.zeros((0, 3)))


@pytest.mark.parametrize("offset", [-1, 89, 100, 2**63])
def test_read_into_beyond_the_end(source: Source, offset: int) -> None:
    with pytest.raises(Exception, match="end behind the file"):
        source.read_into(offset, np.zeros(12, np.uint8))


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (96, 5), (101, 0), (0, 2**63), (2**63, 1)])
def test_window_beyond_the_end(source: Source, offset: int, size: int) -> None:
    with pytest.raises(ModelFormatError, match="end behind the file"):
        source.window(offset, size)


def test_window_of_a_closed_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    source = open_source(tmp_path / "f", Limits())
    window = source.window(10, 10)
    window.close()
    assert source.read(10, 1) == window.read(0, 1)
    source.close()
    with refused(text="closed"):
        window.read(0, 1)


def test_shrunk_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    with open_source(path, Limits()) as source:
        os.truncate(path, 50)
        assert source.read(0, 50) == CONTENT[:50]
        with refused(text="shrank"):
            source.read(0, 100)
        with refused(text="shrank"):
            source.read_into(40, np.zeros(20, np.uint8))


def test_closed_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(CONTENT)
    before = descriptors()
    source = open_source(path, Limits())
    assert descriptors() == before + 1
    source.close()
    source.close()
    assert descriptors() == before
    with refused(text="closed"):
        source.read(0, 1)
    with refused(text="closed"):
        source.read_into(0, np.zeros(1, np.uint8))


def test_limit(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    with refused(LimitError, "max_model_bytes=99"):
        open_source(tmp_path / "f", Limits(max_model_bytes=99))
    open_source(tmp_path / "f", Limits(max_model_bytes=100)).close()


def test_descriptor_is_not_inherited(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(CONTENT)
    with open_source(tmp_path / "f", Limits()) as source:
        assert not os.get_inheritable(source._open_descriptor())


def test_open_beside(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data").write_bytes(CONTENT)
    model = str(tmp_path / "m.mindir")
    for location in ("sub/data", "./sub/data", "sub//data", "sub/./data"):
        with open_beside(model, location) as data:
            assert data.read(0, 3) == CONTENT[:3]


def test_open_beside_names_with_odd_characters(tmp_path: Path) -> None:
    for name in ("a b", "✓", "..data", "data..", "~", "-rf", "%2e%2e"):
        (tmp_path / name).write_bytes(CONTENT)
        open_beside(str(tmp_path / "m.mindir"), name).close()
