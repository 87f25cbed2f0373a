"""TensorRT's engines are kept for the next start: each for its own model, checked, and never for a secret one."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engines.provider_support import TENSORRT, Build

import litehouse
from litehouse.cache import Cache
from litehouse.engines import tensorrt_kept
from litehouse.engines.onnxruntime import OnnxRuntimeEngine
from litehouse.engines.tensorrt_kept import digest
from litehouse.options import Options
from onnx_models import mlp, mlp_result

ENGINE, TIMING = "graph_sm90.engine", "cache_sm90.timing"
X = np.ones((2, 4), "f")


class TensorRt:
    """What TensorRT's provider does: it takes an engine that it finds under the name of the graph, else it builds one.

    Like it, it looks at no weight.
    """

    def __init__(self) -> None:
        self.built, self.found = 0, 0
        self.folders: list[Path] = []
        self.timings: list[bytes] = []  # what it found of them
        self.refused: list[bytes] = []  # engines that it does not take
        self.is_dynamic = False

    def __call__(self, folder: Path) -> None:
        self.folders.append(folder)
        engine, timing = folder / ENGINE, folder / TIMING
        if engine.exists():
            if engine.read_bytes() in self.refused:
                raise RuntimeError("could not deserialize engine")
            self.found += 1
            return
        self.timings.append(timing.read_bytes() if timing.exists() else b"")
        self.built += 1
        timing.write_bytes(self.timings[-1] + b"t")
        if not self.is_dynamic:
            engine.write_bytes(b"engine %d" % self.built)


@pytest.fixture
def tensorrt(build: Build, monkeypatch: pytest.MonkeyPatch) -> TensorRt:
    monkeypatch.delenv("LITEHOUSE_CACHE_BYTES")
    build.at_work = TensorRt()
    return build.at_work


def _load(cache: Path | bool, *, seed: int = 0, **fields: Any) -> litehouse.Session:
    return litehouse.load(mlp(seed=seed), device="gpu", provider="tensorrt", cache=cache, **fields)


def _entries(cache: Path) -> list[str]:
    return sorted(entry.facts["what"] for entry in Cache(cache).entries())


def test_a_second_start_finds_the_engine(tensorrt: TensorRt, tmp_path: Path) -> None:
    for _ in range(3):
        np.testing.assert_allclose(_load(tmp_path).run([X])[0], mlp_result(X), rtol=1e-4)
    assert (tensorrt.built, tensorrt.found) == (1, 2)
    assert _entries(tmp_path) == ["TensorRT engines", "TensorRT's timings"]
    assert not any(folder.exists() for folder in tensorrt.folders)  # nothing that comes later is read or written there
    assert all(folder.is_relative_to(tmp_path) for folder in tensorrt.folders)  # nobody else can make it anew


def test_another_model_with_the_same_names_gets_its_own(tensorrt: TensorRt, tmp_path: Path) -> None:
    _load(tmp_path)
    _load(tmp_path, seed=1)
    _load(tmp_path, precision="fp16")
    assert (tensorrt.built, tensorrt.found) == (3, 0)
    _load(tmp_path, seed=1)
    assert (tensorrt.built, tensorrt.found) == (3, 1)


def test_an_update_of_weights_does_not_find_the_engine_of_the_old_ones(tensorrt: TensorRt, tmp_path: Path) -> None:
    session = _load(tmp_path, updatable="all", updatable_mode="swap")
    before = tensorrt.built
    session.update_weights({"w1": np.zeros((4, 300), "f")})
    np.testing.assert_array_equal(session.run([X])[0], np.zeros((2, 3), "f"))
    assert tensorrt.built == before + 1


@pytest.mark.parametrize("limit", [None, "0"])
def test_without_a_cache_nothing_is_kept(
    tensorrt: TensorRt, build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str | None
) -> None:
    if limit is not None:
        monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", limit)
    _load(cache=tmp_path if limit else False)
    assert build.given[0][0] == (TENSORRT, {"device_id": "0"})
    assert tensorrt.folders == []


def test_nothing_is_kept_of_a_secret_model(tensorrt: TensorRt, build: Build, tmp_path: Path) -> None:
    model = litehouse.read(mlp())
    options = Options(device="gpu", provider="tensorrt", cache=tmp_path)
    model.is_secret = True
    OnnxRuntimeEngine().compile(model, options)
    assert build.given[0][0] == (TENSORRT, {"device_id": "0"})
    model.is_secret = False
    OnnxRuntimeEngine().compile(model, options)
    assert tensorrt.built == 1


def test_a_damaged_engine_is_built_anew(tensorrt: TensorRt, tmp_path: Path) -> None:
    _load(tmp_path)
    (engine,) = tmp_path.rglob(ENGINE)
    engine.write_bytes(b"engine X")
    _load(tmp_path)
    assert (tensorrt.built, tensorrt.found) == (2, 0)


def test_an_engine_that_others_can_write_is_not_used(tensorrt: TensorRt, tmp_path: Path) -> None:
    _load(tmp_path)
    (engine,) = tmp_path.rglob(ENGINE)
    engine.chmod(0o666)
    _load(tmp_path)
    assert (tensorrt.built, tensorrt.found) == (2, 0)


def test_an_engine_that_tensorrt_refuses_is_built_anew(tensorrt: TensorRt, tmp_path: Path) -> None:
    _load(tmp_path)
    tensorrt.refused = [b"engine 1"]
    _load(tmp_path)
    assert (tensorrt.built, tensorrt.found) == (2, 0)
    _load(tmp_path)
    assert (tensorrt.built, tensorrt.found) == (2, 1)


def test_an_engine_that_is_built_in_a_run_is_not_kept(tensorrt: TensorRt, tmp_path: Path) -> None:
    tensorrt.is_dynamic = True
    np.testing.assert_allclose(_load(tmp_path).run([X])[0], mlp_result(X), rtol=1e-4)
    assert tensorrt.built == 1  # the session is that of the one attempt
    assert _entries(tmp_path) == ["TensorRT's timings"]


def test_timings_help_with_the_next_model_of_the_same_release(tensorrt: TensorRt, build: Build, tmp_path: Path) -> None:
    _load(tmp_path)
    _load(tmp_path, seed=1)
    build.release = 101400
    _load(tmp_path, seed=2)
    build.release = 0  # it cannot be told
    _load(tmp_path, seed=3)
    _load(tmp_path, seed=4)
    assert tensorrt.timings == [b"", b"t", b"", b"", b""]


def test_a_cache_that_can_only_be_read_serves(
    tensorrt: TensorRt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(**_: object) -> None:
        raise PermissionError("read only")

    _load(tmp_path)
    monkeypatch.setattr(tensorrt_kept.tempfile, "mkdtemp", refuse)
    _load(tmp_path)
    assert (tensorrt.built, tensorrt.found) == (1, 1)
    _load(tmp_path, seed=1)  # and another model is built without one
    assert (tensorrt.built, tensorrt.found) == (1, 1)


def test_a_model_that_cannot_be_built_leaves_nothing(tensorrt: TensorRt, build: Build, tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / ENGINE).write_bytes(b"half")
        raise RuntimeError("out of memory")

    build.at_work = fail
    with pytest.raises(litehouse.EngineError, match="cannot build the model: out of memory"):
        _load(tmp_path)
    assert list(tmp_path.rglob(ENGINE)) == []


def test_the_digest_tells_models_apart() -> None:
    array = np.arange(6, dtype="f").reshape(2, 3)
    same = digest(b"g", {"w": array}, "fp32")
    assert digest(b"g", {"w": np.asfortranarray(array)}, "fp32") == same
    others = [
        digest(b"h", {"w": array}, "fp32"),
        digest(b"g", {"v": array}, "fp32"),
        digest(b"g", {"w": array}, "fp16"),
        digest(b"g", {"w": array.reshape(3, 2)}, "fp32"),
        digest(b"g", {"w": array.view(np.int32)}, "fp32"),
        digest(b"g", {"w": array[:, ::-1]}, "fp32"),
        digest(b"g", {"w": array, "s": np.float32(1)}, "fp32"),
        digest(b"g", {"w": array, "s": np.zeros(0, "f")}, "fp32"),
    ]
    assert len({same, *others}) == len(others) + 1
