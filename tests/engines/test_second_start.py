"""Two starts on one cache, as users make them: a race, and everything kept that can be."""

import copy
import pickle
import threading
from pathlib import Path

import numpy as np
import onnx
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from litehouse import identity
from litehouse.cache import Cache
from litehouse.engines import build as build_module
from litehouse.engines import select
from litehouse.engines.shell import make_shell
from onnx_models import mlp, mlp_result, model, node

NETWORKS = ("bert_dynamic", "counter", "dynamic_batch", "llama_dynamic", "resnet_dynamic", "vit", "crnn")
FILES = [FIXTURES / "mindir" / "networks" / f"{name}.mindir" for name in NETWORKS]
FILES += [FIXTURES / "flow" / f"{name}.mindir" for name in ("for_break", "for_rows")]
FILES += [FIXTURES / "ms" / f"{name}.ms" for name in ("if_in_while", "nested_if")]
FILES += [FIXTURES / "mge_lite" / f"{name}.mge" for name in ("many", "shrink", "tiny", "type_int8")]
STARTS = ("first", "second", "with nothing left in the cache")


@pytest.fixture(autouse=True)
def _as_users_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("LITEHOUSE_CACHE_BYTES")
    monkeypatch.delenv("LITEHOUSE_TUNE")
    monkeypatch.setitem(select.RACE_SECONDS, "fast", 0.05)
    monkeypatch.setattr(select.Crowding, "is_felt", lambda _: False)
    monkeypatch.setattr(select, "TINY_SECONDS", 0.0)
    monkeypatch.setattr(build_module, "KEEP_SECONDS", -1.0)
    monkeypatch.setattr("litehouse.kept.KEEP_SECONDS", -1.0)
    monkeypatch.setattr(identity, "YOUNG_SECONDS", -1.0)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_start_gives_the_same(path: Path, tmp_path: Path) -> None:
    with np.load(path.with_suffix(".npz")) as stored:
        given = [stored[key] for key in stored if key.startswith("in")]
        wanted = [stored[key] for key in stored if key.startswith("out")]
    for start in STARTS:
        session = litehouse.load(path, threads=1)
        if start == STARTS[-1]:
            Cache(tmp_path / "cache").clear()
        inputs = [array.reshape(array.shape or ()) for array in given[: len(session.inputs)]]
        session.resize([array.shape for array in inputs])
        outputs = session.run(inputs)
        assert wanted
        for found, expected in zip(outputs, wanted, strict=False):
            assert_close(found, expected.reshape(found.shape))


def test_of_threads_that_load_the_same_one_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlp.onnx").write_bytes(mlp())
    built, select_model, results = [], build_module.select, []

    def count(*args):
        built.append(args)
        return select_model(*args)

    def load() -> None:
        results.append(litehouse.load(tmp_path / "mlp.onnx", threads=1).run([np.ones((2, 4), "f")]))

    monkeypatch.setattr(build_module, "select", count)
    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    assert len(results) == 4
    for (found,) in results:
        assert_close(found, mlp_result(np.ones((2, 4), "f")))
    assert len(built) == 1


@pytest.mark.openvino
def test_a_dynamic_model_is_timed_at_its_first_resize_on_both_starts() -> None:
    x = np.ones((3, 4), "f")
    for _ in range(2):
        session = litehouse.load(mlp("n"), threads=1)
        assert not session.engine.figures
        session.resize([[3, 4]])
        assert session.engine.figures
        assert_close(session.run([x])[0], mlp_result(x))


def test_labels_as_outputs() -> None:
    labels = np.array(["cat", "dog", "owl"], dtype=object)
    nodes = [node("ArgMax", "x", "place", axis=1, keepdims=0), node("Gather", "labels place", "y")]
    data = onnx.load_from_string(model(nodes, {"x": [2, 3]}, {"y": [2]}))
    data.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    data.graph.initializer.append(onnx.helper.make_tensor("labels", onnx.TensorProto.STRING, [3], labels))
    x = np.array([[0, 2, 1], [3, 2, 1]], "f")
    for _ in range(2):
        (found,) = litehouse.load(data.SerializeToString(), threads=1).run([x])
        assert found.tolist() == ["dog", "cat"]


@pytest.mark.parametrize("tune", ["off", "full"])
def test_a_loop_that_may_never_end_is_not_run_unasked(tune: str) -> None:
    body = onnx.helper.make_graph(
        [node("Sub", "v one", "v_out"), node("Cast", "v_out", "go", to=onnx.TensorProto.BOOL)],
        "body",
        [
            onnx.helper.make_tensor_value_info("i", onnx.TensorProto.INT64, []),
            onnx.helper.make_tensor_value_info("go_in", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("v", onnx.TensorProto.FLOAT, []),
        ],
        [
            onnx.helper.make_tensor_value_info("go", onnx.TensorProto.BOOL, []),
            onnx.helper.make_tensor_value_info("v_out", onnx.TensorProto.FLOAT, []),
        ],
        [onnx.numpy_helper.from_array(np.array(1, "f"), "one")],
    )
    nodes = [node("Cast", "x", "start", to=onnx.TensorProto.BOOL)]
    nodes += [onnx.helper.make_node("Loop", ["", "start", "x"], ["y"], body=body)]
    data = model(nodes, {"x": []}, {"y": []})
    for _ in range(2):
        session = litehouse.load(data, threads=1, tune=tune, engine="onnxruntime")
        assert session.run([np.array(5, "f")]) == [0]


def test_an_output_that_is_an_input(engine: str) -> None:
    session = litehouse.load(model([node("Relu", "x", "y")], {"x": [2, 3]}, {"y": [2, 3], "x": [2, 3]}), engine=engine)
    x = np.full((2, 3), -1, "f")
    for _ in range(2):
        y, same = session.run([x])
        assert (y == 0).all()
        assert (same == -1).all()


@pytest.mark.openvino
def test_a_choice_can_be_copied_and_sent() -> None:
    engine = litehouse.load(mlp(), threads=1).engine
    assert engine.figures
    for again in (copy.deepcopy(engine), pickle.loads(pickle.dumps(engine))):
        assert (again, again.reason, again.figures) == (engine, engine.reason, engine.figures)


def test_threads_may_prepare_one_model_at_once() -> None:
    read = litehouse.read(mlp())
    failures: list[BaseException] = []

    def prepare(engine: str) -> None:
        try:
            for _ in range(60):
                assert set(make_shell(read, engine).weights) == {"w1", "w2"}
        except BaseException as error:  # noqa: BLE001  (for the main thread)
            failures.append(error)

    threads = [threading.Thread(target=prepare, args=(name,)) for name in ("", "onnxruntime", "", "openvino")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
