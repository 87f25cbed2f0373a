"""The cache on disk: bounded, shared by processes, and never believed when it is damaged."""

import multiprocessing
import os
import pwd
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import litehouse
from litehouse import cache as cache_module
from litehouse.cache import LAYOUT, Cache, checksum, default_folder, open_cache, trouble
from litehouse.folders import UnsafeError
from onnx_models import mlp

DATA = bytes(range(256)) * 5000  # more than one block of the sums
SECONDS = 600.0  # for what must happen: a machine may take long to start a process, and who waits longer hangs


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


def test_sums_can_be_left_to_who_uses_the_file(cache: Cache) -> None:
    entry = cache.store("key", {}, _write())
    assert entry is not None
    (entry.folder / "data.bin").write_bytes(DATA[::-1])
    found = cache.find("key", late=("data.bin",))
    assert found is not None
    assert found.sums == {"data.bin": checksum(DATA)}
    assert checksum(DATA[::-1]) != checksum(DATA)
    assert cache.find("key") is None


def _store_often(folder: Path, failures: "multiprocessing.Queue[str]") -> None:
    cache = Cache(folder)
    for place in range(100):
        cache.store(f"key{place % 3}", {"what": "x"}, _write(DATA[:1000]))
        found = cache.find("key0")
        if found is None:
            continue  # another one is just replacing it
        try:
            if (found.folder / "data.bin").read_bytes() != DATA[:1000]:
                failures.put("other bytes")
        except FileNotFoundError:
            continue


@pytest.mark.parametrize("is_cleared", [False, True])
def test_writers_at_the_same_time_do_no_harm(tmp_path: Path, is_cleared: bool) -> None:
    context = multiprocessing.get_context("spawn")
    failures = context.Queue()
    writers = [context.Process(target=_store_often, args=(tmp_path, failures)) for _ in range(4)]
    for writer in writers:
        writer.start()
    cache = Cache(tmp_path)
    while is_cleared and any(writer.is_alive() for writer in writers):
        cache.clear()
        assert cache.nbytes() >= 0
    for writer in writers:
        writer.join(SECONDS)
        assert writer.exitcode == 0
    assert failures.empty()
    if is_cleared:
        cache.clear()
        assert list(tmp_path.iterdir()) == []
        return
    assert all(cache.find(f"key{place}") is not None for place in range(3))
    assert sorted(path.name for path in (tmp_path / LAYOUT / "entries").iterdir()) == ["key0", "key1", "key2"]


def _take_turns(folder: Path, log: Path, seconds: float, tell: Callable[[str], object] = str) -> None:
    with Cache(folder).turn("key", SECONDS, tell) as has_waited, log.open("a", buffering=1) as file:
        file.write(f"begin {has_waited}\n")
        time.sleep(seconds)
        file.write("end\n")


def test_those_who_make_the_same_take_turns(tmp_path: Path) -> None:
    context, log = multiprocessing.get_context("spawn"), tmp_path / "log"
    given, is_waited_for = (tmp_path / "cache", log, 0.2), threading.Event()
    processes = [context.Process(target=_take_turns, args=given) for _ in range(3)]
    threads = [threading.Thread(target=_take_turns, args=(*given, lambda _: is_waited_for.set())) for _ in range(3)]
    with Cache(tmp_path / "cache").turn("key", SECONDS, lambda _: None) as has_waited:
        assert not has_waited
        for item in (*processes, *threads):
            item.start()
        assert is_waited_for.wait(SECONDS)
        assert not log.exists()
    for item in (*processes, *threads):
        item.join(SECONDS)
    lines = log.read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["begin", "end"] * 6
    assert "begin True" in lines


def test_nobody_waits_for_ever(cache: Cache) -> None:
    told: list[str] = []
    with cache.turn("key", 1.0, told.append) as has_waited:
        assert not has_waited
        with cache.turn("key", 0.1, told.append) as has_waited:  # one that hangs has the turn
            assert has_waited
    assert told == ["waiting for another process that builds it"]
    with cache.turn("key", 1.0, told.append) as has_waited:
        assert not has_waited


def test_a_turn_ends_with_its_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    holder = context.Process(target=_take_turns, args=(tmp_path / "cache", tmp_path / "log", SECONDS))
    holder.start()
    while not (tmp_path / "log").exists():
        assert holder.is_alive()
        time.sleep(0.01)
    holder.kill()
    holder.join()
    with Cache(tmp_path / "cache").turn("key", SECONDS, lambda _: None) as has_waited:
        assert not has_waited


def test_what_is_gone_meanwhile_is_no_error(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    names = cache_module.names
    monkeypatch.setattr(cache_module, "names", lambda folder: names(folder) | {".old-gone", "gone"})
    monkeypatch.setattr(cache_module, "MAX_RECORDS", 2)
    assert cache.store("key", {}, _write()) is not None
    for key in "abc":
        cache.put_record("files", key, {})
    assert [entry.key for entry in cache.entries()] == ["key"]


def test_records(cache: Cache) -> None:
    assert cache.record("choices", "key") is None
    cache.put_record("choices", "key", {"engine": "x", "figures": [1.5]})
    assert cache.record("choices", "key") == {"engine": "x", "figures": [1.5]}
    assert cache.record("files", "key") is None
    path = cache.folder / LAYOUT / "records" / "choices" / "key.json"
    path.write_text(path.read_text().replace("1.5", "2.5"))
    assert cache.record("choices", "key") is None


def test_records_are_bounded(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_module, "MAX_RECORDS", 10)
    for place in range(25):
        cache.put_record("files", str(place), {})
    assert len(list((cache.folder / LAYOUT / "records" / "files").iterdir())) <= 10
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
    Cache(tmp_path)._make(tmp_path / LAYOUT)
    tmp_path.chmod(0o777)
    assert "can be written by others" in str(trouble(tmp_path))
    assert open_cache(tmp_path) is None
    tmp_path.chmod(0o755)
    assert open_cache(tmp_path) is not None


@pytest.mark.parametrize("inner", ["", "entries", "records", "entries/key", "entries/key/data.bin"])
@pytest.mark.parametrize("harm", ["mode", "link", "owner"])
def test_what_a_stranger_may_have_put_there_is_not_trusted(cache: Cache, inner: str, harm: str) -> None:
    cache.store("key", {}, _write())
    cache.put_record("files", "key", {})
    assert trouble(cache.folder) is None
    place = cache.folder / LAYOUT / inner
    if harm == "mode":
        place.chmod(0o770)
    elif harm == "link":
        place.rename(cache.folder / "elsewhere")
        place.symlink_to(cache.folder / "elsewhere")
    elif os.geteuid() == 0:
        os.chown(place, 12345, -1)
    else:
        pytest.skip("only root can give a file away")
    if "key" not in inner:
        assert str(place) in str(trouble(cache.folder))
        assert open_cache(cache.folder) is None
        assert cache.store("other", {}, _write()) is None or inner == "records"
    else:
        assert cache.find("key") is None


@pytest.mark.parametrize("inner", ["files", "files/key.json"])
def test_records_that_a_stranger_may_have_put_there_are_not_trusted(cache: Cache, inner: str) -> None:
    cache.put_record("files", "key", {})
    assert cache.record("files", "key") == {}
    (cache.folder / LAYOUT / "records" / inner).chmod(0o770)
    assert cache.record("files", "key") is None


def test_nothing_is_put_into_a_folder_that_a_stranger_made_first(cache: Cache) -> None:
    cache.folder.mkdir()
    cache.folder.chmod(0o777)
    assert cache.store("key", {}, _write()) is None
    cache.put_record("files", "key", {})
    assert list(cache.folder.rglob("*.*")) == []


def test_a_careless_umask_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", "1G")
    before = os.umask(0o002)
    try:
        cache = open_cache(tmp_path / "new" / "cache")
        assert cache is not None
        assert cache.store("key", {}, _write()) is not None
        cache.put_record("files", "key", {})
    finally:
        os.umask(before)
    assert trouble(cache.folder) is None
    assert cache.record("files", "key") == {}
    assert {path.stat().st_mode & 0o077 for path in (cache.folder, *cache.folder.rglob("*"))} == {0}


@pytest.fixture
def closed() -> Iterator[Path]:
    """A cache that another user filled, of which this one sees the outermost folder alone."""
    with tempfile.TemporaryDirectory() as name:
        folder, user = Path(name), os.geteuid()
        Cache(folder).store("key", {}, _write())
        folder.chmod(0o755)
        inner = folder / LAYOUT
        inner.chmod(0o700 if user == 0 else 0)
        if user == 0:
            os.seteuid(12345)
        yield folder
        if user == 0:
            os.seteuid(user)
        inner.chmod(0o700)


def test_a_cache_that_cannot_be_looked_into_is_no_error(closed: Path) -> None:
    assert "Permission denied" in str(trouble(closed))
    assert open_cache(closed) is None
    cache = Cache(closed)
    assert cache.find("key") is None
    assert cache.store("key", {}, _write()) is None
    cache.put_record("files", "key", {})
    assert cache.record("files", "key") is None
    assert cache.entries() == []
    assert cache.nbytes() == 0
    assert not cache.has_room_for(1)


def test_clear_takes_its_own_files_alone(cache: Cache) -> None:
    cache.store("key", {}, _write())
    mine = cache.folder / "v1" / "mine.txt"
    mine.parent.mkdir()
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


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "LITEHOUSE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # the user is not in the list
    assert default_folder() is None
    assert open_cache() is None
    assert "no home folder" in str(trouble(None))


def test_a_relative_folder_stays_where_it_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    cache = open_cache(Path("cache"))
    assert cache is not None
    cache.limit = len(DATA)
    cache.store("key", {}, _write())
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert cache.find("key") is not None
    (tmp_path / "other").rmdir()
    assert "cannot be used" in str(trouble(Path("cache")))
    assert open_cache(Path("cache")) is None


def test_room(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache.has_room_for(cache.limit)
    assert not cache.has_room_for(cache.limit + 1)
    assert not Cache(cache.folder, 0).has_room_for(0)
    assert not Cache(cache.folder, 1 << 60).has_room_for(1 << 59)  # no disk is that large
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert not cache.has_room_for(1)


def test_a_folder_that_cannot_be_written_serves_if_it_is_filled(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", "1G")
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_, **__: False)
        assert "nothing can be written" in str(trouble(cache.folder))
        assert open_cache(cache.folder) is None
    cache.store("key", {}, _write())
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    opened = open_cache(cache.folder)
    assert opened is not None
    assert opened.find("key") is not None


def test_a_record_that_cannot_be_written_leaves_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    cache.put_record("files", "key", {})
    assert list((cache.folder / LAYOUT / "records" / "files").iterdir()) == []


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("123", 123),
        ("", 16_000_000_000),
        ("0", 0),
        ("1k", 1000),
        ("2KB", 2000),
        ("3 MB", 3_000_000),
        ("1GB", 10**9),
        ("4gib", 4 << 30),
        ("5Ti", 5 << 40),
        ("6B", 6),
    ],
)
def test_the_limit_can_be_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, limit: int) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", text)
    opened = open_cache(tmp_path)
    assert opened is not None
    assert opened.limit == limit


@pytest.mark.parametrize("text", ["-1", "1.5G", "much", "1 i", "1e9", "G"])
def test_a_limit_that_is_no_size_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", text)
    assert f"LITEHOUSE_CACHE_BYTES is {text!r}" in str(trouble(tmp_path))
    assert open_cache(tmp_path) is None


@pytest.mark.parametrize("harm", ["a wrong bound", "a folder of others", "none"])
def test_a_cache_that_is_not_used_is_told_once(
    harm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(folder))
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", "1.5G" if harm == "a wrong bound" else "1G")
    folder.chmod(0o777 if harm == "a folder of others" else 0o700)
    cache_module._warn.cache_clear()
    for _ in range(2):
        litehouse.load(mlp(), threads=1)
    assert [record.message.startswith("no model is kept") for record in caplog.records] == [True] * (harm != "none")


def test_a_folder_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", "~/kept")
    assert default_folder() == tmp_path / "kept"


def _make_kernels(cache: Cache, key: str, size: int, used: float) -> Path:
    folder = cache.workplace(key, f"{key}.onnx")
    assert folder is not None
    (folder / "ab").mkdir(exist_ok=True)
    (folder / "ab" / "kernel.bin").write_bytes(bytes(size))
    os.utime(folder, (used, used))
    return folder


def test_the_folder_of_a_compiler_is_found_again_and_listed(cache: Cache) -> None:
    folder = _make_kernels(cache, "a", 1000, 1e9)
    assert folder.stat().st_mode & 0o777 == folder.parent.stat().st_mode & 0o777 == 0o700
    (entry,) = cache.entries()
    assert (entry.folder, entry.facts, entry.nbytes) == (folder, {"what": "kernels", "path": "a.onnx"}, 1000)
    before = time.time() - 60
    assert cache.workplace("a", "a.onnx") == folder
    assert folder.stat().st_mtime > before  # it was used now
    assert (folder / "ab" / "kernel.bin").exists()
    assert cache.nbytes() >= 1000


def test_kernels_are_held_to_their_share_of_the_limit(cache: Cache) -> None:
    cache.limit = 4000
    folders = [_make_kernels(cache, name, 400, place) for place, name in enumerate("abc", start=1)]
    cache.settle("a")  # which is the oldest, but in use
    assert [folder.exists() for folder in folders] == [True, False, True]
    _make_kernels(cache, "c", 1001, 3)
    cache.settle("c")
    assert [folder.exists() for folder in folders] == [False, False, False]  # more than the share by itself


def test_kernels_count_where_entries_are_trimmed(cache: Cache) -> None:
    cache.limit = 4 * len(DATA)
    folder = _make_kernels(cache, "a", len(DATA) // 2, 1.0)
    for key in "123":
        assert cache.store(key, {}, _write()) is not None
        assert folder.exists()
    assert cache.store("4", {}, _write()) is not None
    assert not folder.exists()  # the least recently used
    assert len(cache.entries()) == 4


def test_a_model_is_forgotten_with_its_kernels(cache: Cache) -> None:
    folders = [_make_kernels(cache, name, 700, 1.0) for name in "ab"]
    assert cache.forget("a.onnx") == 700
    assert [folder.exists() for folder in folders] == [False, True]
    assert cache.record("kernels", "a") is None
    cache.clear()
    assert cache.entries() == []


@pytest.mark.parametrize("inner", ["kernels", "kernels/a"])
@pytest.mark.parametrize("harm", ["mode", "open", "link", "owner"])
def test_a_folder_for_kernels_that_is_not_the_users_alone_is_refused(cache: Cache, inner: str, harm: str) -> None:
    _make_kernels(cache, "a", 10, 1.0)
    assert cache.kernels_trouble() is None
    place = cache.folder / LAYOUT / inner
    if harm in ("mode", "open"):
        place.chmod(0o770 if harm == "mode" else 0o755)
    elif harm == "link":
        place.rename(cache.folder / "elsewhere")
        place.symlink_to(cache.folder / "elsewhere")
    elif os.geteuid() == 0:
        os.chown(place, 12345, -1)
    else:
        pytest.skip("only root can give a file away")
    with pytest.raises(UnsafeError, match=str(place)):
        cache.workplace("a", "a.onnx")
    if inner == "kernels":
        assert str(place) in str(cache.kernels_trouble())
    assert open_cache(cache.folder) is not None  # models are kept as before


def test_a_cache_without_room_has_no_kernels(cache: Cache) -> None:
    assert Cache(cache.folder, 0).workplace("a", "") is None
