"""Weights that get other values while a session runs."""

import gc
import threading
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest

import litehouse
from conftest import FIXTURES, REPOSITORY, assert_close
from litehouse import Options, Pool, Session, WeightError
from onnx_models import mlp, mlp_result, mlp_weights, model, node

MODES = ("in_place", "swap")
X = np.random.default_rng(1).normal(size=(2, 4)).astype("f")


@pytest.fixture(params=MODES)
def session(request: pytest.FixtureRequest) -> Session:
    return litehouse.load(mlp(), updatable="all", updatable_mode=request.param, engine="onnxruntime")


# Updates --------------------------------------------------------------------------------------------------------------


def test_the_next_run_sees_the_new_weights(session: Session) -> None:
    assert_close(session(X)[0], mlp_result(X))
    session.update_weights(mlp_weights(seed=5))
    assert_close(session(X)[0], mlp_result(X, seed=5))
    first = mlp_weights()
    session.update_weights({"w2": first["w2"]})
    assert_close(session(X)[0], np.maximum(X @ mlp_weights(5)["w1"], 0) @ first["w2"])
    session.update_weights({"w1": first["w1"]})
    assert_close(session(X)[0], mlp_result(X))


def test_what_is_given_is_copied(session: Session) -> None:
    new = mlp_weights(seed=5)
    session.update_weights(new)
    new["w1"][...] = 0
    assert_close(session(X)[0], mlp_result(X, seed=5))


def test_the_model_of_the_file_stays_as_it_is() -> None:
    read = litehouse.read(mlp(), updatable=["*"])
    first = Session(read, Options(updatable="all", updatable_mode="in_place"))
    other = Session(read, Options(updatable="all", updatable_mode="swap"))
    first.update_weights(mlp_weights(seed=5))
    assert_close(other(X)[0], mlp_result(X))
    other.update_weights(mlp_weights(seed=6))
    assert_close(first(X)[0], mlp_result(X, seed=5))
    assert_close(Session(read)(X)[0], mlp_result(X))


def test_all_or_none_and_every_offender_is_named(session: Session) -> None:
    new = mlp_weights(seed=5)
    wrong = {"w1": new["w1"], "w2": new["w2"][:1], "w3": new["w1"], "w": new["w1"].astype("d"), "x": [1.0]}
    with pytest.raises(WeightError) as caught:
        session.update_weights(wrong)  # type: ignore[arg-type]
    text = str(caught.value)
    assert "'w2' must be float32 [300, 3], not float32 [1, 3]" in text
    assert all(name in text for name in ("'w3'", "'w'", "'x'"))
    with pytest.raises(WeightError, match=r"'w1' must be float32 \[4, 300\], not float64"):
        session.update_weights({"w1": new["w1"].astype("d")})
    with pytest.raises(WeightError, match="'w1' must be a numpy array, not list"):
        session.update_weights({"w1": [1.0]})  # type: ignore[dict-item]
    assert_close(session(X)[0], mlp_result(X))


def test_what_is_no_number_is_refused_unless_allowed(session: Session) -> None:
    new = mlp_weights()["w2"]
    new[7, 1] = np.nan
    with pytest.raises(WeightError, match=r"'w2' holds values that are not numbers"):
        session.update_weights({"w2": new})
    session.update_weights({"w2": new}, allow_nan=True)
    np.testing.assert_array_equal(np.isnan(session(X)[0]), [[False, True, False]] * 2)
    session.update_weights({"w2": np.where(np.isnan(new), np.inf, new)})  # a number, if a large one


def test_only_what_was_declared_is_updatable() -> None:
    session = litehouse.load(mlp(), updatable=["w?"], engine="onnxruntime")
    assert [name for name, info in session.weights.items() if info.is_updatable] == ["w1", "w2"]
    session = litehouse.load(mlp(), updatable=["w2"], engine="onnxruntime")
    info = session.weights["w1"]
    assert (info.dtype, info.shape, info.is_updatable) == (np.float32, (4, 300), False)
    with pytest.raises(WeightError, match="'w1' is not among the weights that the model was loaded with as updatable"):
        session.update_weights(mlp_weights())
    session.update_weights({"w2": mlp_weights(5)["w2"]})
    assert_close(session(X)[0], np.maximum(X @ mlp_weights()["w1"], 0) @ mlp_weights(5)["w2"])
    with pytest.raises(WeightError, match=r"no weight is updatable; load it with updatable="):
        litehouse.load(mlp()).update_weights({})


@pytest.mark.parametrize("wrong", [None, [np.ones(3, "f")], "w1", [("w1", np.ones(3, "f"))]])
def test_what_is_no_dict_is_told(session: Session, wrong: Any) -> None:
    with pytest.raises(TypeError, match="update_weights takes a dict of arrays by name"):
        session.update_weights(wrong)


def test_convolutions_that_read_their_weights_laid_out_anew_are_swapped() -> None:
    weights = {"k": np.ones((8, 36), "f"), "s": np.array([8, 4, 3, 3])}
    nodes = [node("Reshape", "k s", "r"), node("Conv", "x r", "y")]
    source = model(nodes, {"x": (1, 4, 5, 5)}, {"y": (1, 8, 3, 3)}, weights)
    assert litehouse.load(source, updatable=["k"]).options.updatable_mode == "swap"


def test_names_from_an_iterator() -> None:
    assert litehouse.load(mlp(), updatable=iter(["w1"])).weights["w1"].is_updatable
    for wrong in (None, 5):
        with pytest.raises(ValueError, match="updatable must be a list of names, or 'all'"):
            Options(updatable=wrong)  # type: ignore[arg-type]
    with pytest.raises(WeightError, match=r"no weight fits 'all'; updatable='all', without a list, means every"):
        litehouse.load(mlp(), updatable=["all"])


def test_patterns_that_fit_nothing_are_told() -> None:
    with pytest.raises(WeightError, match=r"no weight fits 'w12'; is 'w.' or 'w.' meant\?"):
        litehouse.load(mlp(), updatable=["w1", "w12"])
    with pytest.raises(WeightError, match=r"no weight that fits .* can be updated"):
        litehouse.load(model([node("Relu", "x", "y")], {"x": [2]}, {"y": [2]}), updatable="all")
    with pytest.raises(ValueError, match="updatable must be a list of names, or 'all'"):
        Options(updatable="w1")
    with pytest.raises(ValueError, match="updatable_mode must be one of"):
        Options(updatable_mode="often")


def test_a_name_with_brackets_is_a_name() -> None:
    weights = {"w[0]": np.ones((4, 300), "f"), "w0": np.ones((300, 3), "f")}
    nodes = [node("MatMul", "x w[0]", "h"), node("MatMul", "h w0", "y")]
    session = litehouse.load(model(nodes, {"x": (2, 4)}, {"y": (2, 3)}, weights), updatable=["w[0]"])
    assert {name: info.is_updatable for name, info in session.weights.items()} == {"w[0]": True, "w0": True}


def test_the_mode_follows_what_reads_the_weights() -> None:
    kernel = np.random.default_rng(0).normal(size=(3, 2, 3, 3)).astype("f")
    matrix = np.random.default_rng(0).normal(size=(6, 40)).astype("f")
    nodes = [node("Conv", "x k", "c", pads=[1] * 4), node("MatMul", "c m", "y")]
    source = model(nodes, {"x": (1, 2, 6, 6)}, {"y": (1, 3, 6, 40)}, {"k": kernel, "m": matrix})
    assert litehouse.load(source, updatable=["m"]).options.updatable_mode == "in_place"
    assert litehouse.load(source, updatable=["k"]).options.updatable_mode == "swap"
    with pytest.raises(litehouse.EngineError, match="not updated in place on the engine openvino"):
        litehouse.load(source, updatable=["m"], updatable_mode="in_place", engine="openvino")


def test_swap_on_each_engine(engine: str) -> None:
    session = litehouse.load(mlp(), updatable="all", updatable_mode="swap", engine=engine)
    session.update_weights(mlp_weights(seed=5))
    assert session.engine == engine
    assert_close(session(X)[0], mlp_result(X, seed=5))


def test_other_sizes_see_the_weights_too(session: Session) -> None:
    wide = np.random.default_rng(2).normal(size=(7, 4)).astype("f")
    session.resize([(7, 4)])
    assert_close(session(wide)[0], mlp_result(wide))
    session.update_weights(mlp_weights(seed=5))
    assert session.inputs[0].shape == (7, 4)
    assert_close(session(wide)[0], mlp_result(wide, seed=5))
    session.resize([(2, 4)])
    assert_close(session(X)[0], mlp_result(X, seed=5))
    assert_close(session.run_any([wide])[0], mlp_result(wide, seed=5))


def test_dynamic_sizes(session: Session) -> None:
    session = litehouse.load(mlp("n"), updatable="all", updatable_mode=session.options.updatable_mode)
    session.update_weights(mlp_weights(seed=5))
    for rows in (1, 3):
        x = np.random.default_rng(rows).normal(size=(rows, 4)).astype("f")
        assert_close(session(x)[0], mlp_result(x, seed=5))


def test_a_twin_sees_what_is_updated_in_place() -> None:
    session = litehouse.load(mlp(), updatable="all", updatable_mode="in_place")
    twin = session.twin()
    session.update_weights(mlp_weights(seed=5))
    assert_close(twin(X)[0], mlp_result(X, seed=5))


def test_a_twin_that_is_built_anew_has_weights_of_its_own() -> None:
    session = litehouse.load(mlp(), updatable="all", updatable_mode="swap")
    twin = session.twin()
    session.update_weights(mlp_weights(seed=5))
    assert_close(twin(X)[0], mlp_result(X))
    twin.update_weights({"w2": mlp_weights(seed=7)["w2"]})
    assert_close(twin(X)[0], np.maximum(X @ mlp_weights()["w1"], 0) @ mlp_weights(seed=7)["w2"])
    assert_close(session(X)[0], mlp_result(X, seed=5))


@pytest.mark.parametrize("shape", [(), (1,)])
def test_numbers_that_fusions_take_for_constants(shape: tuple[int, ...], session: Session) -> None:
    """A normalisation whose smallest divisor is updated: ONNX Runtime's fusion would take its own."""
    nodes = [
        node("ReduceMean", "x axes", "mean"),
        node("Sub", "x mean", "d"),
        node("Pow", "d two", "p"),
        node("ReduceMean", "p axes", "v"),
        node("Add", "v eps", "ve"),
        node("Sqrt", "ve", "s"),
        node("Div", "d s", "n"),
        node("Mul", "n g", "m"),
        node("Add", "m b", "y"),
    ]
    weights = {
        "axes": np.array([-1]),
        "two": np.array(2, "f"),
        "eps": np.full(shape, 0.01, "f"),
        "g": np.ones(8, "f"),
        "b": np.zeros(8, "f"),
    }
    mode = session.options.updatable_mode
    made = litehouse.load(
        model(nodes, {"x": (3, 8)}, {"y": (3, 8)}, weights), updatable=["eps", "g"], updatable_mode=mode, threads=1
    )
    x = (np.random.default_rng(0).normal(size=(3, 8)) * 0.05).astype("f")

    def expected(eps: float) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)).astype("f")

    assert_close(made(x)[0], expected(0.01))
    made.update_weights({"eps": np.full(shape, 1, "f")})
    assert_close(made(x)[0], expected(1))


def test_sizes_that_come_and_go_beside_updates(session: Session) -> None:
    """Runs of other sizes, as a ModelParallelRunner has them, go on while weights are updated."""
    ended, counts = threading.Event(), [0, 0, 0]

    def run(seed: int) -> None:
        while not ended.is_set():
            x = np.random.default_rng(seed).normal(size=(1 + counts[seed] % 5, 4)).astype("f")
            (y,) = session.run_any([x])
            assert any(np.allclose(y, mlp_result(x, seed=each), atol=1e-3) for each in (0, 5, 6))
            counts[seed] += 1

    with ThreadPoolExecutor(3) as threads:
        running, turn = [threads.submit(run, seed) for seed in range(3)], 0
        try:
            # Until each of them has run beside updates, or one has failed.
            while turn < 20 or not (all(counts) or any(each.done() for each in running)):
                turn += 1
                session.update_weights(mlp_weights(5 + turn % 2))
                session.resize([(2 + turn % 3, 4)])
                assert session.inputs[0].shape == (2 + turn % 3, 4)
        finally:
            ended.set()
        for each in running:
            each.result(60)
        assert all(counts)


def test_what_was_chosen_can_be_read_when_it_is_closed(session: Session) -> None:
    session.close()
    assert (session.engine, session.precision) == ("onnxruntime", "fp32")
    with pytest.raises(litehouse.EngineError, match="closed"):
        session.update_weights(mlp_weights(5))


def test_nothing_new_is_no_update(session: Session) -> None:
    loaded = session.loaded
    session.update_weights({})
    assert session.loaded is loaded


def test_old_weights_are_given_up() -> None:
    session = litehouse.load(mlp(), updatable="all", updatable_mode="swap")
    found = []
    for seed in range(4):
        session.update_weights(mlp_weights(seed))
        found.append(weakref.ref(session.model.weights["w1"]))
    gc.collect()
    assert [each() is not None for each in found] == [False, False, False, True]


def test_state_and_updates_do_not_mix() -> None:
    path = FIXTURES / "mindir" / "networks"
    counting = next((each for each in sorted(path.glob("*.mindir")) if litehouse.read(each).states), None)
    if counting is None:
        counting = next(each for each in sorted((FIXTURES / "mindir" / "ops").glob("*.mindir")) if _has_state(each))
    state = litehouse.read(counting).states[0].name
    with pytest.raises(WeightError, match=r"is changed by the network itself; Session.reset sets it"):
        litehouse.load(counting, updatable=[state])


def _has_state(path: Path) -> bool:
    try:
        return bool(litehouse.read(path).states)
    except litehouse.LitehouseError:
        return False


# Runs beside updates --------------------------------------------------------------------------------------------------

SIZE, RUNS, THREADS = 64, 300, 4


def _chain() -> bytes:
    """A network whose result tells whether all of its weights are of one update: the product of all must be whole."""
    names = [f"w{place}" for place in range(6)]
    nodes, last = [], "x"
    for name in names:
        nodes.append(node("MatMul", f"{last} {name}", f"{last}_"))
        last += "_"
    nodes.append(node("Identity", last, "y"))
    weights = {name: np.eye(SIZE, dtype="f") for name in names}
    return model(nodes, {"x": (1, SIZE)}, {"y": (1, SIZE)}, weights)


@pytest.mark.parametrize("mode", MODES)
def test_no_run_sees_a_mixture(mode: str) -> None:
    session = litehouse.load(_chain(), updatable="all", updatable_mode=mode, engine="onnxruntime", threads=1)
    x, wrong, seen_enough, ended = np.ones((1, SIZE), "f"), list[float](), threading.Event(), threading.Event()
    allowed = {1.0, 2.0**6, 3.0**6}

    def run(_: int) -> None:
        done = 0
        while done < RUNS or not (seen_enough.is_set() or updating.done()):
            done += 1
            (y,) = session(x)
            if set(np.unique(y).tolist()) - allowed or np.ptp(y):
                wrong.extend(np.unique(y).tolist())

    def update() -> int:
        count = 0
        while not ended.is_set():
            count += 1
            session.update_weights({f"w{place}": np.eye(SIZE, dtype="f") * (2 + count % 2) for place in range(6)})
            if count > 3:
                seen_enough.set()
        return count

    with ThreadPoolExecutor(THREADS + 1) as threads:
        updating = threads.submit(update)
        try:
            list(threads.map(run, range(THREADS)))
        finally:
            ended.set()
        assert updating.result() > 3
    assert not wrong


def test_updates_by_several_threads_take_turns(session: Session) -> None:
    def update(seed: int) -> None:
        session.update_weights(mlp_weights(seed))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(update, range(12)))
    (y,) = session(X)
    assert any(np.allclose(y, mlp_result(X, seed=seed), atol=1e-3) for seed in range(12))


def test_pools_that_cannot_be_updated_say_so() -> None:
    with pytest.raises(ValueError, match="worker processes have weights of their own"):
        Pool(mlp(), processes=1, updatable="all")
    pool = Pool(mlp(), workers=1, updatable="all")
    pool.close()
    with pytest.raises(litehouse.EngineError, match="the pool is closed; make another one"):
        pool.update_weights(mlp_weights())


def test_a_pool_switches_all_workers() -> None:
    with Pool(mlp(), workers=2, updatable="all") as pool:
        pool.update_weights(mlp_weights(seed=5))
        for future in [pool.submit([X]) for _ in range(20)]:
            assert_close(future.result(60)[0], mlp_result(X, seed=5))
    with Pool(mlp(), processes=1, threads=1) as pool, pytest.raises(litehouse.EngineError, match="are processes"):
        pool.update_weights(mlp_weights(seed=5))


# Every kind of file ---------------------------------------------------------------------------------------------------


def _is_updatable(path: Path) -> bool:
    try:
        read = litehouse.read(path, updatable=["*"])
    except litehouse.LitehouseError:
        return False
    return bool(read.updatable) and not read.states and all(info.is_static for info in read.inputs)


def _expected(path: Path, changes: Mapping[str, np.ndarray], inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime computes without any optimisation from the translated graph with other weights in it."""
    read = litehouse.read(path)
    for name, array in changes.items():
        read.graph.graph.initializers[name].const_value = ir.tensor(array, name=name)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    content = ir.serde.serialize_model(read.graph).SerializeToString()
    bare = onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])
    feed: dict[str, Any] = dict(zip([info.name for info in read.inputs], inputs, strict=True))
    return bare.run(read.given_names, feed)


FOUND = (*(FIXTURES / "converted").glob("net_*.m*"), *(FIXTURES / "mindir" / "networks").glob("*.mindir"))
FILES = [
    FIXTURES / "mindir" / "ops" / "conv2d_batch_norm_relu.mindir",
    FIXTURES / "mge_lite" / "image.mge",
    REPOSITORY / "examples" / "digits" / "model" / "digits.mindir",
    *filter(_is_updatable, sorted(FOUND)),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_each_kind(path: Path, mode: str) -> None:
    session = litehouse.load(path, updatable="all", updatable_mode=mode)
    random = np.random.default_rng(3)
    inputs = [np.abs(random.normal(size=info.shape)).astype(info.dtype) for info in session.inputs]  # type: ignore[arg-type]
    updatable = [name for name, info in session.weights.items() if info.is_updatable]
    assert updatable
    own = litehouse.read(path).weights
    changes = {
        name: (own[name] * random.uniform(0.5, 1.5, own[name].shape)).astype(own[name].dtype) for name in updatable
    }
    before = session.run(inputs)
    session.update_weights(changes)
    after = session.run(inputs)
    for found, wanted in zip(after, _expected(path, changes, inputs), strict=True):
        assert_close(found, wanted)
    assert any(not np.allclose(found, old, rtol=1e-3) for found, old in zip(after, before, strict=True))
