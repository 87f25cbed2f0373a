"""`litehouse cache` on folders of all kinds."""

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from cli.support import call, failure, lines

from litehouse.cache import FACTS, LAYOUT, Cache

CHOICE = {"engine": "openvino", "reason": "1.20x as fast"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("LITEHOUSE_CACHE_BYTES", raising=False)
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def keep(folder: Path, key: str, used: float, nbytes: int, **facts: Any) -> None:
    entry = Cache(folder).store(key, facts, lambda inside: (inside / "data.bin").write_bytes(bytes(nbytes)))
    assert entry is not None
    os.utime(entry.folder / FACTS, (used, used))


def test_an_empty_cache(folder: Path) -> None:
    assert lines(call("cache", "list")) == [f"0 kept in {folder}, 0 bytes of 16.0 GB".split()]
    assert call("cache", "clear").stdout == f"freed 0 bytes in {folder}\n"


def test_the_last_used_comes_first(folder: Path) -> None:
    keep(folder, "a", 1.5e9, 2000, what="program", path="new.mindir", choice=CHOICE)
    keep(folder, "b", 1e9, 1000, what="translation", path="old.mge")
    *_, first, second, total = lines(call("cache", "list"))
    assert first[:6] == ["new.mindir", "compiled", "for", "openvino", "2.0", "kB"]
    assert second[:4] == ["old.mge", "translation", "1.0", "kB"]
    assert " ".join(total) == f"2 kept in {folder}, 3.0 kB of 16.0 GB"


def test_the_list_as_json(folder: Path) -> None:
    keep(folder, "a", 1e9, 1000, what="program", path="x.mindir", choice=CHOICE)
    found = json.loads(call("cache", "list", "--json").stdout)
    assert (found["folder"], found["limit"]) == (str(folder), Cache(folder).limit)
    (entry,) = found["entries"]
    assert entry["what"] == "compiled for openvino"
    assert (entry["bytes"], entry["path"], entry["reason"]) == (1000, "x.mindir", CHOICE["reason"])


def test_clearing_frees_all(folder: Path) -> None:
    keep(folder, "a", 1e9, 1_000_000, what="translation", path="x.mge")
    assert call("cache", "clear").stdout == f"freed 1.0 MB in {folder}\n"
    assert Cache(folder).entries() == []


def test_clearing_one_model_leaves_the_others(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "x.mge"
    model.touch()
    keep(folder, "a", 1e9, 3000, what="translation", path=str(model))
    keep(folder, "b", 1e9, 2000, what="program", path=str(model), choice=CHOICE)
    keep(folder, "c", 1e9, 1000, what="translation", path="other.mge")
    Cache(folder).put_record("choices", "b", {"path": str(model)})
    Cache(folder).put_record("choices", "c", {"path": "other.mge"})
    Cache(folder).put_record("safety", "d", {"safe": True})
    monkeypatch.chdir(tmp_path)
    assert call("cache", "clear", "x.mge").stdout == "freed 5.0 kB that was kept of x.mge\n"
    assert [entry.key for entry in Cache(folder).entries()] == ["c"]
    assert Cache(folder).record("choices", "b") is None
    assert Cache(folder).record("choices", "c") is not None
    assert Cache(folder).record("safety", "d") is not None
    assert "y.mge is not there; `litehouse cache list`" in failure(call("cache", "clear", "y.mge"))


def test_a_model_whose_file_is_gone_can_be_cleared(folder: Path) -> None:
    keep(folder, "a", 1e9, 3000, what="translation", path="/gone/x.mge")
    assert call("cache", "clear", "/gone/x.mge").stdout == "freed 3.0 kB that was kept of /gone/x.mge\n"


def test_a_wrong_bound_is_not_blamed_on_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", "plenty")
    text = failure(call("cache", "list"))
    assert "LITEHOUSE_CACHE_BYTES is 'plenty'" in text
    assert "--folder" not in text


def test_another_folder(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    keep(other, "a", 1e9, 1000, what="translation", path="x.mge")
    assert "x.mge" in call("cache", "list", "--folder", other).stdout
    assert "x.mge" not in call("cache", "list").stdout
    call("cache", "clear", "--folder", other)
    assert Cache(other).entries() == []


def test_a_folder_that_is_no_cache_is_left_alone(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "project"
    (other / "v1").mkdir(parents=True)
    (other / "v1" / "mine.txt").write_text("keep me")
    assert f"{other} holds no cache" in failure(call("cache", "clear", "--folder", other))
    assert (other / "v1" / "mine.txt").read_text() == "keep me"
    keep(other, "a", 1e9, 1000, what="translation", path="x.mge")
    call("cache", "clear", "--folder", other)
    assert (other / "v1" / "mine.txt").read_text() == "keep me"
    assert not (other / LAYOUT).exists()


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "LITEHOUSE_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)  # the user is not in the list
    assert "no home folder" in failure(call("cache", "list"))


def test_a_cache_that_is_turned_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", "")
    assert "name a folder with --folder" in failure(call("cache", "list"))


def test_a_path_that_is_no_folder(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    assert str(path) in failure(call("cache", "list", "--folder", path))
