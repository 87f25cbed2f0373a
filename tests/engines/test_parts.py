"""A batch in parts: the same numbers, kept and restored, and errors that arrive."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from litehouse import identity
from litehouse.engines import build as build_module
from litehouse.engines import select
from litehouse.engines.parts import PartsRunner, compile_parts, counts
from litehouse.engines.select import ENGINES
from onnx_models import mlp, mlp_result, model, node

X = np.random.default_rng(0).normal(size=(8, 4)).astype("f")


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_the_numbers_are_those_of_the_whole(engine: str, parts: int, threads: int) -> None:
    options = litehouse.Options(threads=threads)
    program = compile_parts(ENGINES[engine], litehouse.read(mlp(8)), options, "fp32", parts, is_plain=False)
    runner = program.bind()
    for _ in range(3):
        assert_close(runner.run([X])[0], mlp_result(X))


def test_which_parts_are_tried() -> None:
    network = litehouse.read(mlp(8))
    assert counts(network, litehouse.Options(threads=1)) == [8]
    assert counts(network, litehouse.Options(threads=2)) == [2, 8]
    assert counts(network, litehouse.Options(threads=3)) == [8]
    assert counts(network, litehouse.Options(threads=8)) == [8]
    assert counts(network, litehouse.Options(threads=2, inter_op=2)) == []
    assert counts(network, litehouse.Options(threads=2, workers=2)) == []
    assert counts(litehouse.read(mlp(1)), litehouse.Options(threads=2)) == []
    assert counts(litehouse.read(mlp("n")), litehouse.Options(threads=2)) == []
    assert counts(litehouse.read(FIXTURES / "mindir" / "networks" / "counter.mindir"), litehouse.Options()) == []


@pytest.mark.parametrize("thread", [0, 1])
def test_an_error_of_any_part_arrives(thread: int) -> None:
    class Failing:
        def __init__(self, place: int) -> None:
            self.place, self.runs = place, 0

        def run(self, inputs: list[np.ndarray]) -> list[np.ndarray]:
            if not self.runs:
                both.wait(60)  # whoever comes first would take all parts
            self.runs += 1
            if self.place == thread:
                raise litehouse.EngineError("no")
            return list(inputs)

    both = threading.Barrier(2)
    runner = PartsRunner([Failing(0), Failing(1)], 8, ThreadPoolExecutor(1))
    with pytest.raises(litehouse.EngineError, match="no"):
        runner.run([X])


def test_parts_that_win_are_chosen_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_CACHE_BYTES", str(1 << 30))
    monkeypatch.setattr(build_module, "KEEP_SECONDS", -1.0)
    monkeypatch.setattr(identity, "YOUNG_SECONDS", -1.0)
    monkeypatch.setattr(select, "TINY_SECONDS", 0.0)
    monkeypatch.setattr(select, "MIN_PARTED", 0.0)
    # The last of each race wins.
    monkeypatch.setattr(
        select, "race", lambda runners, *_, **__: [[1.0 - 0.1 * place] * 5 for place in range(len(runners))]
    )
    for start in range(2):
        session = litehouse.load(mlp(8), threads=2, tune="fast", cache=tmp_path)
        assert session.engine.parts == 8
        assert "on 8 parts of the batch" in session.engine.reason
        assert session.engine.figures[-1].parts == 8
        assert_close(session.run([X])[0], mlp_result(X))
        session.resize([[3, 4]])
        assert_close(session.run([X[:3]])[0], mlp_result(X[:3]))
        if start == 0:
            monkeypatch.setattr(select, "race", lambda *_, **__: pytest.fail("it is kept"))


def test_images_that_know_of_each_other_are_not_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "TINY_SECONDS", 0.0)
    monkeypatch.setattr(select, "MIN_PARTED", 0.0)
    nodes = [node("ReduceMean", "x zero", "m"), node("Sub", "x m", "y")]
    data = model(nodes, {"x": [8, 4]}, {"y": [8, 4]}, {"zero": np.array([0])})
    monkeypatch.setattr(
        select, "race", lambda runners, *_, **__: [[1.0 - 0.1 * place] * 5 for place in range(len(runners))]
    )
    session = litehouse.load(data, threads=2, tune="fast", cache=False)
    assert session.engine.parts == 1
    assert_close(session.run([X])[0], X - X.mean(axis=0, keepdims=True))
