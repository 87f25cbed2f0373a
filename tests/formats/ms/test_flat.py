"""The flatbuffer reader, on buffers that are written here."""

import struct
from typing import Any

import pytest
from formats.builders import refused
from formats.ms.ms_builder import Numbers, flat

from litehouse import ModelFormatError
from litehouse.formats.flat import BLOCK, KEPT_BLOCKS, FlatBuffer, Table
from litehouse.formats.source import Source


def root_of(content: dict[int, Any] | bytes) -> Table:
    return FlatBuffer(Source.over(content if isinstance(content, bytes) else flat(content))).root()


SCALARS: dict[str, Any] = {
    "?": True,
    "b": -7,
    "B": 250,
    "h": -30_000,
    "H": 60_000,
    "i": -(2**31),
    "I": 2**32 - 1,
    "q": -(2**63),
    "Q": 2**64 - 1,
    "f": 0.5,
    "d": 0.1,
}


@pytest.mark.parametrize("kind", SCALARS)
def test_scalars(kind: str) -> None:
    table = root_of({3: (kind, SCALARS[kind])})
    assert table.number(3, kind) == SCALARS[kind]
    assert table.has(3)
    assert not table.has(2)
    assert not table.has(4)
    assert table.number(2, kind, 5) == 5
    assert table.number(4, kind) == 0


@pytest.mark.parametrize("kind", SCALARS)
def test_vectors(kind: str) -> None:
    values = (SCALARS[kind],) * 3
    assert root_of({0: Numbers(kind, values)}).numbers(0, kind) == values
    assert root_of({0: Numbers(kind, ())}).numbers(0, kind) == ()
    assert root_of({}).numbers(0, kind) == ()


def test_texts_tables_and_unions() -> None:
    table = root_of({0: "naïve", 1: [{0: ("i", 1)}, {0: ("i", 2)}], 2: ("B", 9), 3: {1: "inner"}, 4: ["a", "b"]})
    assert table.text(0) == "naïve"
    assert [item.number(0, "i") for item in table.tables(1)] == [1, 2]
    assert table.count(1) == 2
    tag, inner = table.union(2)
    assert tag == 9
    assert inner is not None
    assert inner.text(1) == "inner"
    assert table.texts(4) == ["a", "b"]


def test_absent_fields() -> None:
    table = root_of({})
    assert table.text(0) == ""
    assert table.texts(0) == []
    assert table.table(0) is None
    assert table.tables(0) == []
    assert table.place(0) is None
    assert table.bytes(0) == b""
    assert table.count(0) == 0
    assert table.union(0) == (0, None)


def test_bytes_stay_in_the_file() -> None:
    content = flat({0: b"weights"})
    table = root_of(content)
    place = table.place(0)
    assert place is not None
    assert place.length == 7
    assert content[place.offset : place.offset + 7] == b"weights"
    assert table.bytes(0) == b"weights"


def test_a_buffer_inside_a_file() -> None:
    inner = flat({0: b"data", 1: "text"}, b"test")
    content = bytes(100) + inner + bytes(50)
    buffer = FlatBuffer(Source.over(content), 100, len(inner))
    assert buffer.identifier() == b"test"
    assert buffer.root().text(1) == "text"
    place = buffer.root().place(0)
    assert place is not None
    assert content[place.offset :][:4] == b"data"
    with refused(text="broken flatbuffer"):
        FlatBuffer(Source.over(content), 100, len(inner) - 8).root().text(1)


def test_content_across_blocks() -> None:
    """More blocks than are kept, and parts that lie across the end of one."""
    texts = [f"{index:>1000}" for index in range(200)]
    root: dict[int, Any] = {0: texts, 1: bytes(KEPT_BLOCKS * BLOCK), 2: "behind"}
    table = root_of(root)
    assert table.texts(0) == texts
    assert table.text(2) == "behind"
    assert table.texts(0)[7] == texts[7]


def everything(content: bytes) -> tuple[Any, ...] | None:
    """All that a buffer of this layout has; None where it is refused."""
    try:
        table = root_of(content)
        inner = table.table(2)
        return table.text(0), table.numbers(1, "q"), inner.text(0) if inner else None
    except ModelFormatError:
        return None


def test_every_cut_is_noticed() -> None:
    content = flat({0: "some text", 1: Numbers("q", (1, 2, 3)), 2: {0: "more"}})
    whole = everything(content)
    assert whole == ("some text", (1, 2, 3), "more")
    assert everything(content[:-1]) == whole  # only the zero behind the last text is gone
    assert {everything(content[:end]) for end in range(len(content) - 1)} == {None}


def patched(content: bytes, at: int, kind: str, value: int) -> bytes:
    out = bytearray(content)
    struct.pack_into("<" + kind, out, at, value)
    return bytes(out)


BASE = flat({0: "text"})  # root offset, tag, layout at 8 (6 bytes, padded), table at 16


@pytest.mark.parametrize(
    ("at", "kind", "value"),
    [
        (0, "I", 2**32 - 1),  # the root lies behind the end
        (0, "I", len(BASE) - 2),
        (16, "i", 2**31 - 1),  # the layout lies before the start
        (16, "i", -(2**31)),  # or behind the end
        (8, "H", 0),  # a layout without a size
        (8, "H", 5),  # of an odd size
        (8, "H", 65_534),  # of a size beyond the end
        (10, "H", 0),  # a table too small for its own head
        (10, "H", 65_535),  # or larger than the file
        (12, "H", 1),  # a field inside of the head
        (12, "H", 6),  # across the end of the table
        (12, "H", 65_535),  # far behind it
        (20, "I", 2**32 - 1),  # text behind the end
        (24, "I", 2**32 - 1),  # text of 4 GB
        (28, "B", 0xFF),  # text that is no UTF-8
    ],
)
def test_broken(at: int, kind: str, value: int) -> None:
    assert root_of(BASE).text(0) == "text"
    with refused(text="broken flatbuffer"):
        root_of(patched(BASE, at, kind, value)).text(0)


@pytest.mark.parametrize("kind", ["b", "q"])
def test_vector_beyond_the_end(kind: str) -> None:
    content = flat({0: Numbers(kind, (1, 2, 3))})
    with refused(text="vector of 4294967295 elements"):
        root_of(patched(content, 24, "I", 2**32 - 1)).numbers(0, kind)


def test_a_table_that_holds_itself() -> None:
    content = bytearray(flat({0: {}}))
    root = struct.unpack_from("<I", content)[0]
    struct.pack_into("<I", content, root + 4, 2**32 - 4)  # offsets have no sign: this is behind the end
    with refused(text="broken flatbuffer"):
        root_of(bytes(content)).table(0)
    struct.pack_into("<I", content, root + 4, 0)  # the field is a table that starts at itself
    with refused(text="broken flatbuffer"):
        root_of(bytes(content)).table(0)


def test_one_table_used_a_million_times() -> None:
    one: dict[int, Any] = {0: Numbers("q", range(1000))}
    table = root_of({0: [one] * 100_000})
    with refused(text="over and over"):
        for item in table.tables(0):
            item.numbers(0, "q")


def test_one_vector_used_many_times() -> None:
    shared = Numbers("I", range(5000))
    table = root_of({0: [{0: shared} for _ in range(5000)]})
    with refused(text="over and over"):
        for item in table.tables(0):
            item.numbers(0, "I")


def test_overlapping_bytes() -> None:
    shared = bytes(100_000)
    table = root_of({0: [{0: shared} for _ in range(100)]})
    with refused(text="overlap"):
        for item in table.tables(0):
            item.place(0)
