"""What is kept between processes: translations and compiled programs, and when they are not used."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import litehouse
from conftest import ENGINES, FIXTURES, assert_close
from litehouse import cache as cache_module
from litehouse import identity
from litehouse.cache import Cache
from litehouse.engines import build as build_module
from litehouse.engines import safety, select
from litehouse.engines.trials import restored
from litehouse.kept import KeptModel
from onnx_models import mlp, mlp_result

MINDIR = FIXTURES / "mindir" / "networks"
NETWORKS = [MINDIR / f"{name}.mindir" for name in ("bert", "mobile", "half", "counter", "many_outputs", "integers")]
NETWORKS += [FIXTURES / "converted" / "add_rows_relu.ms", FIXTURES / "mge_lite" / "tiny.mge"]


@pytest.fixture(autouse=True)
def _keep_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny models are kept too, and files need not lie still."""
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", str(1 << 30))
    monkeypatch.setattr(build_module, "KEEP_SECONDS", -1.0)
    monkeypatch.setattr("litehouse.kept.KEEP_SECONDS", -1.0)
    monkeypatch.setattr(identity, "YOUNG_SECONDS", -1.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def _entries(folder: Path) -> list[str]:
    return sorted(entry.facts["what"] for entry in Cache(folder).entries())


def _check(session: litehouse.Session, path: Path) -> None:
    with np.load(path.with_suffix(".npz")) as stored:
        inputs = [stored[key] for key in stored if key.startswith("in")]
        expected = [stored[key] for key in stored if key.startswith("out")]
    outputs = session.run(inputs)
    assert len(outputs) == len(expected)
    for actual, wanted in zip(outputs, expected, strict=True):
        assert_close(actual, wanted.reshape(actual.shape))


@pytest.mark.parametrize("path", NETWORKS, ids=lambda path: path.name)
def test_a_second_load_gives_the_same(path: Path, folder: Path, cpu_engine: str) -> None:
    first = litehouse.load(path, engine=cpu_engine, threads=1, cache=folder)
    assert not isinstance(first.model, KeptModel)
    _check(first, path)
    assert _entries(folder) == ["program", "translation"]
    second = litehouse.load(path, engine=cpu_engine, threads=1, cache=folder)
    assert isinstance(second.model, KeptModel)
    assert "graph" not in vars(second.model)  # no graph was read
    assert second.engine == first.engine == cpu_engine
    assert second.engine.reason == first.engine.reason
    assert (second.inputs, second.outputs) == (first.inputs, first.outputs)
    _check(second, path)
    # What was kept is the whole model: all of it can be used as if the file had been read.
    assert dict(second.model.weights).keys() == dict(first.model.weights).keys()
    for name, array in first.model.weights.items():
        np.testing.assert_array_equal(second.model.weights[name], array)
    plain = litehouse.Session(second.model, litehouse.Options(engine=cpu_engine, threads=1, cache=False))
    _check(plain, path)


@pytest.mark.skipif("torch" not in ENGINES, reason="torch is not installed")
@pytest.mark.parametrize("path", [NETWORKS[0], NETWORKS[3]], ids=lambda path: path.name)
def test_an_engine_that_keeps_no_programs_still_needs_no_file(path: Path, folder: Path) -> None:
    for is_kept in (False, True):
        session = litehouse.load(path, engine="torch", threads=1, cache=folder)
        assert isinstance(session.model, KeptModel) == is_kept
        _check(session, path)
        assert _entries(folder) == ["translation"]


def test_a_kept_model_can_be_resized(folder: Path, tmp_path: Path, engine: str) -> None:
    path = tmp_path / "mlp.onnx"
    path.write_bytes(mlp(2))
    for _ in range(2):
        session = litehouse.load(path, engine=engine, threads=1, cache=folder)
        x = np.random.default_rng(1).normal(size=(5, 4)).astype("f")
        session.resize([[5, 4]])
        assert_close(session.run([x])[0], mlp_result(x))
    assert isinstance(session.model, KeptModel)


def test_a_kept_network_that_is_translated_anew_reads_its_file_again(folder: Path) -> None:
    path = FIXTURES / "mge_lite" / "tiny.mge"
    first, second = (litehouse.load(path, threads=1, cache=folder) for _ in range(2))
    assert isinstance(second.model, KeptModel)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype("f")
    results = []
    for session in (first, second):
        session.resize([[3, 4]])
        results.append(session.run([x])[0])
    np.testing.assert_array_equal(results[0], results[1])


def test_state_begins_as_the_file_has_it(folder: Path) -> None:
    path = MINDIR / "counter.mindir"
    for _ in range(3):
        _check(litehouse.load(path, threads=1, cache=folder), path)


def test_another_content_is_another_model(folder: Path, tmp_path: Path) -> None:
    path, x = tmp_path / "model.onnx", np.ones((2, 4), "f")
    for seed in (1, 2, 1):
        path.write_bytes(mlp(seed=seed))
        session = litehouse.load(path, threads=1, cache=folder)
        assert_close(session.run([x])[0], mlp_result(x, seed=seed))
    assert _entries(folder) == ["program", "program", "translation", "translation"]


def test_bytes_are_known_by_their_content(folder: Path) -> None:
    x = np.ones((2, 4), "f")
    for seed in (1, 2, 1, 2):
        session = litehouse.load(mlp(seed=seed), threads=1, cache=folder)
        assert_close(session.run([x])[0], mlp_result(x, seed=seed))
    assert isinstance(session.model, KeptModel)


def test_data_files_beside_the_model_count(folder: Path, tmp_path: Path) -> None:
    source = FIXTURES / "mindir" / "containers"
    shutil.copy(source / "split_graph.mindir", tmp_path)
    shutil.copytree(source / "split_variables", tmp_path / "split_variables")
    with np.load(source / "io.npz") as stored:
        inputs = [stored[key] for key in stored if key.startswith("in")]
        expected = [stored[key] for key in stored if key.startswith("out")]
    for _ in range(2):
        session = litehouse.load(tmp_path / "split_graph.mindir", threads=1, cache=folder)
        assert_close(session.run(inputs)[0], expected[0])
    assert isinstance(session.model, KeptModel)
    (data,) = (tmp_path / "split_variables").iterdir()
    changed = bytearray(data.read_bytes())
    changed[-4:] = b"\0\0\0\0"
    data.chmod(0o600)
    data.write_bytes(changed)
    session = litehouse.load(tmp_path / "split_graph.mindir", threads=1, cache=folder)
    assert not isinstance(session.model, KeptModel)
    whole = litehouse.load(tmp_path / "split_graph.mindir", threads=1, cache=False)
    np.testing.assert_array_equal(session.run(inputs)[0], whole.run(inputs)[0])


def test_nothing_of_an_encrypted_model_is_kept(folder: Path) -> None:
    path = FIXTURES / "mindir" / "containers" / "sm4_cbc.mindir"
    litehouse.load(path, key=b"litehouse-key-16", mode="SM4-CBC", threads=1, cache=folder)
    litehouse.load(FIXTURES / "mge_packed" / "bare_rc4.mge", mode="RC4_default", threads=1, cache=folder)
    for packed in sorted((FIXTURES / "mge_packed").glob("*.mge")):
        try:
            model = litehouse.read(packed, cache=folder)
        except litehouse.LitehouseError:
            continue  # it needs a cipher
        if model.is_secret:
            litehouse.Session(model, litehouse.Options(threads=1, cache=folder))
            assert not any(packed.name in entry.facts["path"] for entry in Cache(folder).entries())
    assert "sm4" not in json.dumps([entry.facts["path"] for entry in Cache(folder).entries()])
    assert "rc4" not in json.dumps([entry.facts["path"] for entry in Cache(folder).entries()])


@pytest.mark.parametrize("other", [{"threads": 2}, {"inter_op": 2}, {"engine": "openvino"}], ids=str)
def test_other_options_are_another_program(folder: Path, other: dict) -> None:
    litehouse.load(mlp(), cache=folder, engine="onnxruntime", threads=1)
    litehouse.load(mlp(), cache=folder, **{"engine": "onnxruntime", "threads": 1, **other})
    assert _entries(folder) == ["program", "program", "translation"]


@pytest.mark.parametrize("what", ["machine", "version", "litehouse"])
def test_what_was_built_elsewhere_is_not_used(folder: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    litehouse.load(mlp(), threads=1, cache=folder)
    if what == "machine":
        monkeypatch.setattr(build_module, "cpu_fingerprint", lambda: "another CPU")
    elif what == "version":
        monkeypatch.setattr(build_module.safety, "engine_version", lambda name: "0.0.1")
    else:
        monkeypatch.setattr(build_module, "own_identity", lambda: "another version")
    litehouse.load(mlp(), threads=1, cache=folder)
    assert _entries(folder) == ["program", "program", "translation"]


def test_a_damaged_program_is_built_anew(folder: Path, cpu_engine: str) -> None:
    x = np.ones((2, 4), "f")
    litehouse.load(mlp(), engine=cpu_engine, threads=1, cache=folder)
    for entry in Cache(folder).entries():
        for path in entry.folder.glob("*.b*"):
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0xFF
            path.write_bytes(data)
    session = litehouse.load(mlp(), engine=cpu_engine, threads=1, cache=folder)
    assert_close(session.run([x])[0], mlp_result(x))
    assert _entries(folder) == ["program", "translation"]


def test_a_program_that_does_not_come_back_is_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((2, 4), "f")
    monkeypatch.setattr(restored, "outputs_of", lambda *_: None)  # as when its process dies
    session = litehouse.load(mlp(), threads=1, cache=folder)
    assert_close(session.run([x])[0], mlp_result(x))
    assert _entries(folder) == ["translation"]
    monkeypatch.setattr(restored, "outputs_of", lambda *_: pytest.fail("it was tried again"))
    litehouse.load(mlp(), threads=1, cache=folder)
    later = time.time() + build_module.RETRY_SECONDS + 1
    monkeypatch.setattr(build_module, "time", SimpleNamespace(time=lambda: later))
    monkeypatch.setattr(restored, "outputs_of", lambda *_: [np.zeros((2, 3), "f")])  # or computes something else
    session = litehouse.load(mlp(), threads=1, cache=folder)
    assert_close(session.run([x])[0], mlp_result(x))
    assert _entries(folder) == ["translation"]


def test_a_model_that_is_changed_by_hand_is_not_mistaken_for_its_file(folder: Path) -> None:
    from dataclasses import replace

    litehouse.load(mlp(), threads=1, cache=folder)
    model = litehouse.read(mlp())
    assert model.origin is None
    kept = litehouse.read(mlp(), cache=folder)
    assert kept.origin is not None
    fresh = litehouse.read(mlp(seed=3), cache=folder)
    assert fresh.origin is not None
    assert replace(fresh, outputs=fresh.outputs).origin is None


def test_where_nothing_can_be_written_all_works(tmp_path: Path, engine: str) -> None:
    x = np.ones((2, 4), "f")
    (tmp_path / "file").write_text("not a folder")
    for _ in range(2):
        session = litehouse.load(mlp(), engine=engine, threads=1, cache=tmp_path / "file")
        assert_close(session.run([x])[0], mlp_result(x))


PROGRAM = """
import sys
import litehouse
import litehouse.kept, litehouse.engines.build, litehouse.identity
litehouse.kept.KEEP_SECONDS = litehouse.engines.build.KEEP_SECONDS = litehouse.identity.YOUNG_SECONDS = -1.0
for name in [name for name in sys.modules if name.split(".")[0] in ("onnx", "onnx_ir")]:
    raise SystemExit(f"{name} is imported too early")
session = litehouse.load(sys.argv[1], engine=sys.argv[2], threads=1)
import numpy as np
print(float(session.run([np.ones((2, 4), "f")])[0].sum()), "onnx_ir" in sys.modules, "onnx" in sys.modules)
"""


def test_processes_share_it_and_the_second_needs_no_graph(
    tmp_path: Path, cpu_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    path.write_bytes(mlp())
    expected = float(mlp_result(np.ones((2, 4), "f")).sum())
    command = [sys.executable, "-c", PROGRAM, str(path), cpu_engine]
    together = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    outputs = [process.communicate(timeout=600)[0].split() for process in together]
    outputs.append(subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout.split())
    for total, *_ in outputs:
        assert float(total) == pytest.approx(expected, rel=1e-5)
    assert outputs[-1][1:] == ["False", "False"]
    assert _entries(tmp_path / "cache") == ["program", "translation"]
    assert not list((tmp_path / "cache").rglob(f"{cache_module.FACTS}.*"))


def test_what_a_rehearsal_chose_is_not_for_other_starts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "TINY_SECONDS", 0.0)
    monkeypatch.setattr(
        select, "race", lambda runners, *_, **__: [[1.0 - 0.1 * place] * 5 for place in range(len(runners))]
    )
    monkeypatch.setattr(safety, "refusal", lambda engine, *_, **__: "no" if os.environ.get(safety.REHEARSAL) else None)
    monkeypatch.setattr(
        select, "_refusal", lambda engine, *_: safety.refusal(engine) if engine.name != "onnxruntime" else None
    )
    monkeypatch.setenv(safety.REHEARSAL, "openvino")
    first = litehouse.load(mlp(), threads=1, tune="fast", cache=folder)
    assert [figure.engine for figure in first.engine.figures if figure.engine != "onnxruntime"] == []
    monkeypatch.delenv(safety.REHEARSAL)
    second = litehouse.load(mlp(), threads=1, tune="fast", cache=folder)
    assert "openvino" in [figure.engine for figure in second.engine.figures]
