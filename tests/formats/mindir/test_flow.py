"""Control flow and state against what MindSpore itself computed, call after call, on both engines."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from typer.testing import CliRunner

import litehouse
from conftest import ENGINES, FIXTURES, assert_close
from litehouse.cli import app

CASES = sorted((FIXTURES / "flow").glob("*.mindir"))


def _calls(case: Path) -> list[tuple[list[np.ndarray], list[np.ndarray]]]:
    with np.load(case.with_suffix(".npz")) as stored:
        keys = [tuple(name.split("_")) for name in stored.files]
        count = 1 + max(int(call) for _, call, _ in keys)

        def arrays(kind: str, call: int) -> list[np.ndarray]:
            indices = sorted(int(index) for k, c, index in keys if k == kind and int(c) == call)
            return [stored[f"{kind}_{call}_{index}"] for index in indices]

        return [(arrays("input", call), arrays("output", call)) for call in range(count)]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_matches_mindspore(case: Path, name: str) -> None:
    session = litehouse.load(case, engine=name, threads=1)
    for number, (inputs, expected) in enumerate(_calls(case)):
        outputs = session.run(inputs)
        assert len(outputs) == len(expected)
        for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
            assert_close(actual, wanted, f"call {number}, output {index}")


def test_what_follows_an_if_is_written_once() -> None:
    """Nine ifs with a return inside: written into both branches of each, this would be more than ten thousand nodes."""
    model = litehouse.read(FIXTURES / "flow" / "if_many_returns.mindir")
    assert sum(1 for _ in model.graph.graph.all_nodes()) < 1000


# State ----------------------------------------------------------------------------------------------------------------

X = np.arange(15, dtype=np.float32).reshape(3, 5)
COUNTER = (
    FIXTURES / "flow" / "state_counter.mindir"
)  # count = 7 in the file; each run adds 1 and gives x + count, count


def test_reset_goes_back_to_the_file(engine: str) -> None:
    session = litehouse.load(COUNTER, engine=engine)
    assert [int(session(X)[1]) for _ in range(3)] == [8, 9, 10]
    session.reset()
    assert int(session(X)[1]) == 8


def test_every_session_has_its_own_state(engine: str) -> None:
    model = litehouse.read(COUNTER)
    first, second = (litehouse.Session(model, litehouse.Options(engine=engine)) for _ in range(2))
    assert [int(first(X)[1]) for _ in range(3)] == [8, 9, 10]
    assert int(second(X)[1]) == 8
    np.testing.assert_array_equal(model.weights["count"], 7)


def test_threads_take_turns(engine: str) -> None:
    session = litehouse.load(COUNTER, engine=engine)
    with ThreadPoolExecutor(4) as pool:
        counts = list(pool.map(lambda _: int(session(X)[1]), range(40)))
    assert sorted(counts) == list(range(8, 48))


def test_a_failed_run_leaves_the_state(engine: str) -> None:
    session = litehouse.load(COUNTER, engine=engine)
    session(X)
    with pytest.raises(litehouse.ShapeError):
        session(X[:2])
    assert int(session(X)[1]) == 9


def test_resize_keeps_the_state(engine: str) -> None:
    session = litehouse.load(COUNTER, engine=engine)
    session(X)
    session.resize([[2, 5]])
    assert [info.shape for info in session.outputs] == [(2, 5), ()]
    outputs = session(X[:2])
    np.testing.assert_array_equal(outputs[0], X[:2] + 9)
    assert int(outputs[1]) == 9


def test_the_caches_state_is_no_input() -> None:
    model = litehouse.read(FIXTURES / "flow" / "state_cache.mindir")
    assert [info.name for info in model.inputs] == ["x"]
    assert len(model.outputs) == 1
    assert {state.name for state in model.states} == {"keys", "values", "position"}


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_converted_to_onnx(case: Path, tmp_path: Path) -> None:
    """A converted file holds its state as optional inputs, and gives the next values behind the outputs."""
    target = tmp_path / "model.onnx"
    assert CliRunner().invoke(app, ["convert", str(case), str(target)]).exit_code == 0
    onnx.checker.check_model(onnx.load(target), full_check=True)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(target, options)
    model = litehouse.read(case)
    state: dict[str, np.ndarray] = {}
    for number, (inputs, expected) in enumerate(_calls(case)):
        fed = dict(zip([info.name for info in model.inputs], inputs, strict=True))
        outputs = session.run(None, fed | state)
        state = dict(zip([item.name for item in model.states], outputs[len(expected) :], strict=True))
        for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=False)):
            assert_close(actual, wanted, f"call {number}, output {index}")


def test_state_can_be_kept_and_put_back(engine: str) -> None:
    session = litehouse.load(COUNTER, engine=engine)
    session(X)
    saved = session.state
    assert {name: int(array) for name, array in saved.items()} == {"count": 8}
    session(X)
    saved_before = {"count": saved["count"].copy()}
    session.reset(saved)
    saved["count"][...] = 100  # a copy: the session does not see it
    assert int(session(X)[1]) == 9
    session.reset(saved_before)
    assert int(session(X)[1]) == 9


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({}, "state 'count' is missing"),
        ({"count": np.int32(1), "other": np.int32(1)}, "there is no state 'other'"),
        ({"count": np.float32(1)}, "must be int32, not float32"),
        ({"count": np.zeros(2, np.int32)}, "must have the shape"),
    ],
)
def test_wrong_state_is_refused(state: dict[str, np.ndarray], text: str) -> None:
    session = litehouse.load(COUNTER, engine="onnxruntime")
    session(X)
    with pytest.raises(litehouse.ShapeError, match=text):
        session.reset(state)
    assert int(session(X)[1]) == 9


def test_a_closed_session_says_so(engine: str) -> None:
    session = litehouse.load(COUNTER, engine=engine)
    session.close()
    for use in (lambda: session(X), session.reset, lambda: session.state):
        with pytest.raises(litehouse.EngineError, match="the session is closed"):
            use()
