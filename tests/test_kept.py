"""Translations in the cache: what they are taken for, and that they outlive their files."""

import copy
import io
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from litehouse import formats, identity, kept
from litehouse.cache import Cache
from litehouse.formats.source import Source
from litehouse.identity import Origin
from litehouse.kept import KeptModel
from litehouse.model import Model
from onnx_models import mlp, mlp_result

X = np.random.default_rng(1).normal(size=(5, 4)).astype("f")
TINY = FIXTURES / "mge_lite" / "tiny.mge"


@pytest.fixture(autouse=True)
def _keep_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models are kept too, and files need not lie still."""
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", "1G")
    monkeypatch.setattr("litehouse.engines.build.KEEP_SECONDS", -1.0)
    monkeypatch.setattr(kept, "KEEP_SECONDS", -1.0)
    monkeypatch.setattr(identity, "YOUNG_SECONDS", -1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "model.onnx"
    file.write_bytes(mlp(5))
    return file


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """A network with its weights in `weights.bin`."""
    file = tmp_path / "parted.onnx"
    onnx.save_model(
        onnx.load_from_string(mlp(5)), file, save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    return file


def _twice(source: Path | bytes, folder: Path) -> KeptModel:
    litehouse.read(source, cache=folder)
    model = litehouse.read(source, cache=folder)
    assert isinstance(model, KeptModel)
    return model


def _loaded_twice(source: Path | bytes, folder: Path) -> litehouse.Session:
    """On a given engine, so that the program is restored without a look at the graph."""
    litehouse.load(source, engine="onnxruntime", threads=1, cache=folder).close()
    session = litehouse.load(source, engine="onnxruntime", threads=1, cache=folder)
    assert isinstance(session.model, KeptModel)
    assert "graph" not in vars(session.model)
    return session


def _run(model: Model) -> np.ndarray:
    session = litehouse.Session(model, litehouse.Options(engine="onnxruntime", threads=1, cache=False))
    return session.run([X])[0]


def _weights_file(folder: Path) -> Path:
    (entry,) = (entry for entry in Cache(folder).entries() if entry.facts["what"] == "translation")
    return entry.folder / kept.WEIGHTS


def _damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)


# What a model is taken for --------------------------------------------------------------------------------------------


def test_a_data_file_that_is_replaced_later_does_not_change_what_was_read(parted: Path, folder: Path) -> None:
    cache = Cache(folder)
    old = litehouse.read(parted, cache=folder)
    assert old.origin is not None
    before = old.origin.identify(cache, old.files)
    assert before is not None
    data = parted.with_name("weights.bin")
    data.write_bytes(bytes(data.stat().st_size))
    assert old.origin.identify(cache, old.files) == before
    new = litehouse.read(parted, cache=folder)
    assert new.origin is not None
    assert new.origin.identify(cache, new.files) not in (None, before)
    for model in (new, litehouse.read(parted, cache=folder)):
        assert not any(array.any() for array in model.weights.values())
    assert_close(_run(old), mlp_result(X))


def test_a_data_file_that_is_replaced_while_it_is_read_leaves_nothing(
    parted: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, real = parted.with_name("weights.bin"), formats.read

    def replacing(*arguments: object, **options: object) -> Model:
        model = real(*arguments, **options)
        data.write_bytes(bytes(data.stat().st_size) + b"longer")
        return model

    with monkeypatch.context() as patch:
        patch.setattr(formats, "read", replacing)
        model = litehouse.read(parted, cache=folder)
    assert_close(_run(model), mlp_result(X))
    assert model.origin is not None
    assert model.origin.identify(Cache(folder), model.files) is None
    assert Cache(folder).entries() == []
    assert not any(array.any() for array in litehouse.read(parted, cache=folder).weights.values())


def test_a_data_file_that_changes_between_two_openings_has_no_marks() -> None:
    model, first, second = (Source.over(b"x") for _ in range(3))
    first.marks, second.marks = ("data", 1, 1, 1, 1, 1), ("data", 1, 1, 1, 1, 2)
    model.note("data", first)
    model.note("data", first)
    assert model.beside == {"data": first.marks}
    model.note("data", second)
    assert model.beside == {"data": None}
    model.note("data", second)
    assert model.beside == {"data": None}


# Copies ---------------------------------------------------------------------------------------------------------------


def test_a_copy_shares_what_it_has_not_read_yet(path: Path, folder: Path) -> None:
    model = _twice(path, folder)
    other = copy.copy(model)
    other.inputs = ()
    assert "graph" not in vars(other)
    assert model.inputs != ()
    assert other.graph is model.graph
    assert other.origin is model.origin
    assert_close(_run(model), mlp_result(X))


def test_what_replace_changes_is_another_model(path: Path, folder: Path) -> None:
    model = _twice(path, folder)
    names = model.given_names
    other = replace(model, metadata={"changed": "yes"})
    assert other.origin is None
    assert other.given_names == names
    assert_close(_run(other), mlp_result(X))


# Files that go away ---------------------------------------------------------------------------------------------------


def _clear(folder: Path, _: pytest.MonkeyPatch) -> None:
    Cache(folder).clear()


def _evict(folder: Path, _: pytest.MonkeyPatch) -> None:
    assert Cache(folder, limit=10).store("other", {}, lambda inside: (inside / "x").write_bytes(b"0123456789"))
    assert [entry.key for entry in Cache(folder).entries()] == ["other"]


def _leave(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent.parent)


@pytest.mark.parametrize("happen", [_clear, _evict, _leave])
def test_a_model_that_is_in_use_stays_usable(
    tmp_path: Path, folder: Path, path: Path, monkeypatch: pytest.MonkeyPatch, happen: Callable[..., None]
) -> None:
    monkeypatch.chdir(tmp_path)
    session = _loaded_twice(Path(path.name), Path(folder.name))
    happen(folder, monkeypatch)
    x = np.concatenate([X, X])
    session.resize([[10, 4]])
    assert_close(session.run([x])[0], mlp_result(x))
    assert sorted(session.model.weights) == sorted(litehouse.read(mlp(5)).weights)


@pytest.mark.parametrize("harm", ["gone", "replaced"])
def test_another_network_does_not_take_the_place_of_one_that_was_loaded(
    tmp_path: Path, folder: Path, harm: str
) -> None:
    path = tmp_path / "net.mge"
    shutil.copy(TINY, path)
    session = _loaded_twice(path, folder)
    before = session.run([X[:1]])[0]
    path.unlink()
    if harm == "replaced":
        shutil.copy(FIXTURES / "mge_lite" / "many.mge", path)
    with pytest.raises(litehouse.ShapeError, match="the file has changed since it was loaded"):
        session.resize([[3, 4]])
    np.testing.assert_array_equal(session.run([X[:1]])[0], before)


def test_a_network_is_translated_anew_from_another_current_folder(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(TINY, tmp_path / "net.mge")
    monkeypatch.chdir(tmp_path)
    session = _loaded_twice(Path("net.mge"), folder)
    monkeypatch.chdir("/")
    session.resize([[3, 4]])
    plain = litehouse.load(TINY, engine="onnxruntime", threads=1, cache=False)
    plain.resize([[3, 4]])
    np.testing.assert_array_equal(session.run([X[:3]])[0], plain.run([X[:3]])[0])


# Damage ---------------------------------------------------------------------------------------------------------------


def test_weights_that_nobody_uses_are_not_read(path: Path, folder: Path) -> None:
    session = _loaded_twice(path, folder)
    assert "is_sound" not in vars(session.model._kept)
    assert_close(session.run([X])[0], mlp_result(X))


def test_damaged_weights_are_read_from_the_file(path: Path, folder: Path) -> None:
    litehouse.read(path, cache=folder)
    _damage(_weights_file(folder))
    model = litehouse.read(path, cache=folder)
    assert isinstance(model, KeptModel)
    assert_close(_run(model), mlp_result(X))
    assert Cache(folder).entries() == []  # the next start makes it anew


def test_damaged_weights_of_a_file_that_has_changed_are_an_error(path: Path, folder: Path) -> None:
    litehouse.read(path, cache=folder)
    _damage(_weights_file(folder))
    model = litehouse.read(path, cache=folder)
    path.write_bytes(mlp(7))
    with pytest.raises(litehouse.ModelFormatError, match="the file has changed since it was loaded"):
        _ = model.weights


def test_damage_to_what_came_as_bytes_is_found_at_once(folder: Path) -> None:
    litehouse.read(mlp(5), cache=folder)
    _damage(_weights_file(folder))
    assert not isinstance(litehouse.read(mlp(5), cache=folder), KeptModel)
    assert isinstance(litehouse.read(mlp(5), cache=folder), KeptModel)


def test_damage_to_default_inputs_is_found_at_once(folder: Path) -> None:
    cache, limits, model = Cache(folder), litehouse.Limits(), litehouse.read(TINY)
    model.origin = Origin(TINY)
    model.defaults = {"data": X[:1]}
    kept.store(cache, model, limits)
    found = kept.find(cache, Origin(TINY), limits, lambda: model)
    assert found is not None
    np.testing.assert_array_equal(found.defaults["data"], X[:1])
    _damage(_weights_file(folder))
    assert kept.find(cache, Origin(TINY), limits, lambda: model) is None


def test_bytes_are_not_held(folder: Path) -> None:
    source = mlp(5)
    count = sys.getrefcount(source)
    model = _twice(source, folder)
    assert sys.getrefcount(source) == count
    assert_close(_run(model), mlp_result(X))


# What is not kept -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), ValueError("too large"), MemoryError()])
def test_a_model_that_cannot_be_written_can_be_used(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(kept, "_write", fail)
    assert_close(_run(litehouse.read(path, cache=folder)), mlp_result(X))
    assert Cache(folder).entries() == []
    assert list(folder.rglob(".new-*")) == []


@pytest.mark.parametrize("limit", ["0", "10", "16000"])
def test_what_has_no_room_is_not_written(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    size = litehouse.read(path).weights.nbytes
    assert 10 < size < 16000 < 2 * size  # the last has room for the translation, but not for the program too
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", limit)
    monkeypatch.setattr(kept, "_write", lambda *_: pytest.fail("it was written"))
    litehouse.read(path, cache=folder)


def test_where_nothing_can_be_kept_no_file_is_read_for_it(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    monkeypatch.setattr(identity.hashlib, "file_digest", lambda *_: pytest.fail("it was read"))
    assert_close(_run(litehouse.read(path, cache=folder)), mlp_result(X))


def test_a_cache_that_can_only_be_read_serves(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    litehouse.read(path, cache=folder)
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert isinstance(litehouse.read(path, cache=folder), KeptModel)


# Arrays ---------------------------------------------------------------------------------------------------------------


def test_arrays_share_their_place_where_they_are_the_same_bytes() -> None:
    base = np.arange(36, dtype="f").reshape(6, 6)
    arrays = [base, base.reshape(4, 9), base.T, base.astype(">f4"), base[::2], base[:3]]
    file, written = io.BytesIO(), {}
    places = [kept._append(file, array, written) for array in arrays]
    content = file.getvalue()
    for array, (offset, dtype, shape) in zip(arrays, places, strict=True):
        found = np.frombuffer(content, dtype, array.size, offset).reshape(shape)
        np.testing.assert_array_equal(found, array)
    assert len({offset for offset, *_ in places}) == 5
    assert places[0][0] == places[1][0]
