"""The cache on disk: bounded, shared by processes, and never believed when it is damaged."""

import multiprocessing
import os
import time
from pathlib import Path

import pytest

from litehouse import cache as cache_module
from litehouse.cache import Cache, default_folder, open_cache, trouble

DATA = bytes(range(256)) * 5000  # more than one block of the sums


def _write(data: bytes = DATA):
    return lambda folder: (folder / "data.bin").write_bytes(data)


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache", limit=10_000_000)


def test_an_entry_is_found_as_it_was_stored(cache: Cache) -> None:
    assert cache.find("key") is None
    entry = cache.store("key", {"what": "test", "sizes": [1, None]}, _write())
    assert entry is not None
    found = cache.find("key")
    assert found is not None
    assert found.facts == {"what": "test", "sizes": [1, None]}
    assert (found.folder / "data.bin").read_bytes() == DATA
    assert found.nbytes == len(DATA)
    assert cache.find("other") is None


@pytest.mark.parametrize("place", [0, 1 << 19, len(DATA) - 1])
def test_a_changed_byte_is_noticed(cache: Cache, place: int) -> None:
    entry = cache.store("key", {}, _write())
    assert entry is not None
    path = entry.folder / "data.bin"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)
    assert cache.find("key") is None
    assert not entry.folder.exists()  # and is out of the way
    assert cache.store("key", {}, _write()) is not None


@pytest.mark.parametrize("harm", ["cut", "gone", "longer", "notes cut", "notes changed", "notes foreign", "notes gone"])
def test_a_damaged_entry_counts_as_none(cache: Cache, harm: str) -> None:
    entry = cache.store("key", {"what": "x"}, _write())
    assert entry is not None
    data, notes = entry.folder / "data.bin", entry.folder / cache_module.FACTS
    text = notes.read_text()
    if harm == "cut":
        data.write_bytes(DATA[:-1])
    elif harm == "gone":
        data.unlink()
    elif harm == "longer":
        data.write_bytes(DATA + b"x")
    elif harm == "notes cut":
        notes.write_text(text[: len(text) // 2])
    elif harm == "notes changed":
        notes.write_text(text.replace("what", "that"))
    elif harm == "notes foreign":
        notes.write_text('["something else"]')
    else:
        notes.unlink()
    assert cache.find("key") is None


def test_an_error_of_the_writer_leaves_nothing(cache: Cache) -> None:
    def write(folder: Path) -> None:
        (folder / "half.bin").write_bytes(b"half")
        raise RuntimeError("the writer failed")

    with pytest.raises(RuntimeError, match="the writer failed"):
        cache.store("key", {}, write)
    assert cache.find("key") is None
    assert [path for path in cache.folder.rglob("*") if path.is_file()] == []


def test_the_least_recently_used_goes_first(cache: Cache) -> None:
    cache.limit = 3 * len(DATA)
    for place, key in enumerate("abc"):
        entry = cache.store(key, {}, _write())
        assert entry is not None
        os.utime(entry.folder / cache_module.FACTS, (place, place))
    assert cache.find("a") is not None  # which makes b the oldest
    assert cache.store("d", {}, _write()) is not None
    assert {entry.key for entry in cache.entries()} == {"a", "c", "d"}


def test_what_is_larger_than_the_cache_is_not_kept(cache: Cache) -> None:
    cache.limit = len(DATA) - 1
    assert cache.store("key", {}, _write()) is None
    assert cache.entries() == []


def test_what_a_dead_writer_left_is_removed_later(cache: Cache) -> None:
    assert cache.store("key", {}, _write()) is not None
    left = cache._entries / ".new-left"
    left.mkdir()
    (left / "data.bin").write_bytes(DATA)
    cache.store("other", {}, _write())
    assert left.exists()  # it may be writing yet
    old = time.time() - 2 * cache_module.STALE_SECONDS
    os.utime(left, (old, old))
    cache.store("third", {}, _write())
    assert not left.exists()


def _store_often(folder: Path, failures: "multiprocessing.Queue[str]") -> None:
    cache = Cache(folder)
    for _ in range(40):
        cache.store("key", {"what": "x"}, _write())
        found = cache.find("key")
        if found is None:
            continue  # the other one is just replacing it
        try:
            if (found.folder / "data.bin").read_bytes() != DATA:
                failures.put("other bytes")
        except FileNotFoundError:
            continue


def test_writers_at_the_same_time_do_no_harm(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    writers = [context.Process(target=_store_often, args=(tmp_path, failures)) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    assert failures.empty()
    assert Cache(tmp_path).find("key") is not None
    assert [path.name for path in (tmp_path / "v1" / "entries").iterdir()] == ["key"]


def test_records(cache: Cache) -> None:
    assert cache.record("choices", "key") is None
    cache.put_record("choices", "key", {"engine": "x", "figures": [1.5]})
    assert cache.record("choices", "key") == {"engine": "x", "figures": [1.5]}
    assert cache.record("files", "key") is None
    path = cache.folder / "v1" / "records" / "choices" / "key.json"
    path.write_text(path.read_text().replace("1.5", "2.5"))
    assert cache.record("choices", "key") is None


def test_records_are_bounded(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_RECORDS", 10)
    for place in range(25):
        cache.put_record("files", str(place), {})
    assert len(list((cache.folder / "v1" / "records" / "files").iterdir())) <= 10
    assert cache.record("files", "24") == {}


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    cache = Cache(tmp_path / "file")
    cache.put_record("choices", "key", {})
    assert cache.record("choices", "key") is None
    assert cache.store("key", {}, _write()) is None
    assert cache.find("key") is None
    assert cache.entries() == []
    assert open_cache(tmp_path / "file") is None


def test_a_folder_that_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    assert trouble(tmp_path / "new") is None
    tmp_path.chmod(0o777)
    assert "can be written by others" in str(trouble(tmp_path))
    assert open_cache(tmp_path) is None
    tmp_path.chmod(0o755)
    assert open_cache(tmp_path) is not None


def test_clear_takes_its_own_files_alone(cache: Cache) -> None:
    cache.store("key", {}, _write())
    mine = cache.folder / "mine.txt"
    mine.write_text("keep me")
    assert cache.clear() > len(DATA)
    assert mine.read_text() == "keep me"
    assert cache.entries() == []
    assert cache.clear() == 0


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(tmp_path))
    assert default_folder() == tmp_path
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", "")
    assert default_folder() is None
    assert open_cache(True) is None
    monkeypatch.delenv("LITEHOUSE_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "litehouse"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the specification
    assert default_folder() == Path.home() / ".cache" / "litehouse"
    assert open_cache(False) is None


def test_the_limit_can_be_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", "123")
    opened = open_cache(tmp_path)
    assert opened is not None
    assert opened.limit == 123
