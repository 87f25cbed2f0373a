"""Groups of ranks: worlds, files of MindSpore, and that broken and hostile files are refused."""

import contextlib
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from litehouse import EngineError, LitehouseError, ModelFormatError, Place
from litehouse.distributed import groups
from litehouse.distributed.groups import WORLDS, Groups, read_groups

# Written with the messages of MindSpore 2.10: two groups, and the ranks that a checkpoint is restored on.
WRITTEN = (
    b"\n\x1d\n\x152-5004544844489628105\x12\x04\x08\x00\x08\x01\n\x0e\n\x062-9999\x12\x04\x08\x01\x08\x03"
    b"\x12\x04\x08\x00\x08\x01"
)


def place(rank, size):
    return Place(rank, size, rank, (), "127.0.0.1", 20000, "job", "a test")


def field(number, content):
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def item(name, ranks):
    return field(1, field(1, name) + field(2, ranks))


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "groups.pb"
        path.write_bytes(data)
        return str(path)

    return write


@pytest.mark.parametrize("name", WORLDS)
def test_worlds(name):
    assert Groups(place(1, 3)).ranks(name) == (0, 1, 2)
    assert Groups(place(0, 1)).ranks(name) == (0,)


def test_a_file_of_mindspore(write):
    known = Groups(place(1, 4), write(WRITTEN))
    assert known.ranks("2-5004544844489628105") == (0, 1)
    assert known.ranks("2-9999") == (1, 3)
    assert known.ranks("hccl_world_group") == (0, 1, 2, 3)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", {}),
        (item(b"g", b"\x08\x01\x08\x00"), {"g": (1, 0)}),  # the order is kept
        (item(b"g", field(1, b"\x01\x00\xac\x02")), {"g": (1, 0, 300)}),  # packed
        (item(b"g", field(1, b"\x01") + b"\x08\x02"), {"g": (1, 2)}),
        (item(b"g", b"\x08\x01") * 2, {"g": (1,)}),
        (item(b"g", b"\x08\x01") + b"\x18\x05" + field(9, b"x"), {"g": (1,)}),  # fields of later versions
        (item("组".encode(), b"\x08\x01"), {"组": (1,)}),
    ],
)
def test_files(write, data, expected):
    assert read_groups(write(data)) == expected


@pytest.mark.parametrize(
    ("rank", "size", "name", "text"),
    [
        (0, 4, "4-5015", "group '4-5015' of node 'Default/AllReduce' is not known: .*groups.pb does not have it"),
        (0, 4, "2-9999", "has the ranks 1, 3, and this process is rank 0; load"),
        (1, 2, "2-9999", "has rank 3, and the job has 2 ranks"),
        (1, 2, "", "group '' of node"),
    ],
)
def test_groups_that_cannot_be_used(write, rank, size, name, text):
    with pytest.raises(EngineError, match=text):
        Groups(place(rank, size), write(WRITTEN)).ranks(name, "Default/AllReduce")


def test_a_group_without_a_file():
    with pytest.raises(EngineError, match=r"the group '4-5015' is not known: no file tells .* set group_info_file"):
        Groups(place(0, 4)).ranks("4-5015")


@pytest.mark.parametrize(
    "data",
    [
        b"\n",
        b"\n\x05ab",
        b"\xff" * 20,
        b"not a file of groups",
        b"\x08\x01",  # an item that is a number
        field(1, b""),
        field(1, field(1, b"g")),  # no ranks
        field(1, field(2, b"\x08\x01")),  # no name
        field(1, b"\x08\x01" + field(2, b"\x08\x01")),
        field(1, field(1, b"g") + b"\x10\x01"),
        item(b"\xff\xfe", b"\x08\x01"),
        item(b"g", b"\x08"),
        item(b"g", b"\x08\x01\x08\x01"),
        item(b"g", b"\x08" + b"\xff" * 9 + b"\x01"),
        item(b"g", b"\x08\x80\x80\x04"),  # 65536
        item(b"g", b"\x0d\x01\x00\x00\x00"),
        item(b"g", field(1, b"\x01\x80")),
        item(b"g", field(1, b"\x80" * 60 + b"\x00")),
        item(b"g", field(1, b"\x80" * 60 + b"\x01")),
        item(b"g", b"\x08\x01") + item(b"g", b"\x08\x02"),
    ],
)
def test_broken(write, data):
    path = write(data)
    with pytest.raises(ModelFormatError, match=r"groups\.pb: "):
        Groups(place(0, 1), path)


@given(st.binary(max_size=60) | st.integers(0, len(WRITTEN)).map(lambda end: WRITTEN[:end]))
def test_any_bytes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.pb"
    path.write_bytes(data)
    with contextlib.suppress(LitehouseError):
        read_groups(str(path))


def test_files_that_are_none(tmp_path, monkeypatch):
    for path in (str(tmp_path / "none"), "a\0b", str(tmp_path)):
        with pytest.raises(EngineError, match=r"group_info_file .*(cannot be read|is no file)"):
            Groups(place(0, 1), path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(EngineError, match="is no file"):
        Groups(place(0, 1), str(tmp_path / "pipe"))
    monkeypatch.setattr(groups, "MAX_BYTES", 1 << 20)
    (tmp_path / "large").write_bytes(b"\x18\x01" * (1 << 19) + b"\x18\x01")
    with pytest.raises(ModelFormatError, match="larger than 1 MiB"):
        Groups(place(0, 1), str(tmp_path / "large"))
