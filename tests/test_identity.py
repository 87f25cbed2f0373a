"""What tells one model file from another."""

import os
import time
from pathlib import Path

import pytest

from litehouse import identity
from litehouse.cache import Cache
from litehouse.identity import Origin


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def _file(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def _still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as one that lay still."""
    monkeypatch.setattr(identity, "YOUNG_SECONDS", -1.0)


def test_the_content_counts_and_not_the_name(cache: Cache, tmp_path: Path) -> None:
    first, second, third = (_file(tmp_path / name, text) for name, text in (("a", "x"), ("b", "x"), ("c", "y")))
    assert Origin(first).identify(cache) == Origin(second).identify(cache) != Origin(third).identify(cache)
    assert Origin(b"x").identify(cache) != Origin(b"y").identify(cache)
    assert Origin(b"x").path == "<bytes>"


@pytest.mark.usefixtures("_still")
def test_a_file_is_read_once(cache: Cache, tmp_path: Path) -> None:
    path = _file(tmp_path / "a", "x")
    assert Origin(path).recall(cache) is None
    found = Origin(path).identify(cache)
    assert found is not None
    assert Origin(path).recall(cache) == found


@pytest.mark.usefixtures("_still")
def test_a_rewritten_file_is_another_one_whatever_its_time_says(cache: Cache, tmp_path: Path) -> None:
    path = _file(tmp_path / "a", "old")
    before = path.stat()
    found = Origin(path).identify(cache)
    time.sleep(0.02)  # longer than the clock of any file system here
    path.write_text("new")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Origin(path).recall(cache) is None
    assert Origin(path).identify(cache) != found


def test_a_young_file_is_not_taken_by_its_time(cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "YOUNG_SECONDS", 600.0)  # a slow machine does not make it old
    path = _file(tmp_path / "a", "x")
    found = Origin(path).identify(cache)
    assert found is not None
    assert Origin(path).recall(cache) is None
    path.write_text("y")
    assert Origin(path).identify(cache) != found


def test_a_file_that_changes_while_it_is_read_has_no_identity(cache: Cache, tmp_path: Path) -> None:
    path = _file(tmp_path / "a", "x")
    origin = Origin(path)
    time.sleep(0.02)
    path.write_text("longer")
    assert origin.identify(cache) is None


def test_data_files_beside_count(cache: Cache, tmp_path: Path) -> None:
    path, beside = _file(tmp_path / "a", "x"), _file(tmp_path / "data", "1")

    def found() -> str | None:
        origin = Origin(path)
        return origin.identify(cache, origin.beside(["data"]))

    first = found()
    assert first is not None
    assert first != Origin(path).identify(cache)
    beside.write_text("2")
    assert found() not in (None, first)
    beside.unlink()
    assert found() is None


@pytest.mark.usefixtures("_still")
@pytest.mark.parametrize("is_noted", [False, True])
def test_a_data_file_that_changes_while_it_is_read_has_no_identity(
    cache: Cache, tmp_path: Path, is_noted: bool
) -> None:
    path, beside = _file(tmp_path / "a", "x"), _file(tmp_path / "data", "1")
    origin = Origin(path)
    files = origin.beside(["data"])
    if is_noted:
        assert Origin(path).identify(cache, files) is not None
    beside.write_text("longer")
    assert origin.identify(cache, files) is None


def test_what_was_read_keeps_its_identity(cache: Cache, tmp_path: Path) -> None:
    path, beside = _file(tmp_path / "a", "x"), _file(tmp_path / "data", "1")
    origin = Origin(path)
    files = origin.beside(["data"])
    found = origin.identify(cache, files)
    assert not origin.has_changed()
    beside.write_text("longer")
    path.write_text("longer")
    assert origin.identify(cache, files) == found
    assert origin.has_changed()


def test_what_had_no_identity_gets_none_later(cache: Cache, tmp_path: Path) -> None:
    path = tmp_path / "a"
    origin = Origin(path)
    assert origin.identify(cache) is None
    path.write_text("x")
    assert origin.identify(cache) is None


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "NUL"])
def test_what_is_no_regular_file_has_no_identity(cache: Cache, tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "a")
    if kind == "folder":
        os.mkdir(path)
    elif kind == "pipe":
        os.mkfifo(path)  # opening it would wait for a writer
    elif kind == "NUL":
        path = "a\0b"
    assert Origin(path).recall(cache) is None
    assert Origin(path).identify(cache) is None


def test_litehouse_itself_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    find = identity.own_identity.__wrapped__
    assert identity.own_identity() == find()
    found = {find()}
    monkeypatch.setattr(identity, "_own_files", lambda: [_file(tmp_path / "a.py", "x = 1")])
    found.add(find())
    marks = (tmp_path / "a.py").stat()
    monkeypatch.setattr(identity, "_own_files", lambda: [_file(tmp_path / "a.py", "x = 2")])
    os.utime(tmp_path / "a.py", ns=(marks.st_atime_ns, marks.st_mtime_ns))
    found.add(find())
    monkeypatch.setattr(identity, "_own_files", list)  # an installation without sources
    found.add(find())
    monkeypatch.setattr(identity, "__version__", "0.0.0")
    found.add(find())
    monkeypatch.setattr(identity, "_version", lambda name: f"{name} 99")
    found.add(find())
    assert len(found) == 6


def test_the_libraries_that_translate_have_versions() -> None:
    assert all(identity._version(name) for name in identity.LIBRARIES)
    assert identity._version("no-such-package") is None
