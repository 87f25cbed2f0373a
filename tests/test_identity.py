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


def test_a_young_file_is_not_taken_by_its_time(cache: Cache, tmp_path: Path) -> None:
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
    first = Origin(path).identify(cache, ["data"])
    assert first != Origin(path).identify(cache)
    beside.write_text("2")
    assert Origin(path).identify(cache, ["data"]) != first
    beside.unlink()
    assert Origin(path).identify(cache, ["data"]) is None


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


def test_litehouse_itself_has_one() -> None:
    assert len(identity.own_identity()) == 64
