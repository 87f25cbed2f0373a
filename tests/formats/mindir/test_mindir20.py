"""MindIR's first version, where the parameters of an op are attributes: every fixture against what MindSpore 2.0
computed, on both engines."""

from pathlib import Path

import numpy as np
import pytest
from formats.mindir.single_op import run_op

import litehouse
from conftest import ENGINES, FIXTURES, assert_close
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.tape import MindirTape

FOLDER = FIXTURES / "mindir20"
CASES = sorted(FOLDER.glob("*.mindir"))

# Cases where MindSpore 2.0 itself is at fault. Each must go on to differ, or its line here can go.
DIFFERENT = {"index_slice_steps": "MindSpore 2.0 reads x[::-1] forwards; MindSpore 2.10 and NumPy read it backwards"}


def _arrays(path: Path, kind: str) -> list[np.ndarray]:
    with np.load(path.with_suffix(".npz")) as stored:
        return [stored[f"{kind}_{index}"] for index in range(sum(name.startswith(f"{kind}_") for name in stored.files))]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_matches_mindspore_20(case: Path, engine: str, request: pytest.FixtureRequest) -> None:
    if case.stem in DIFFERENT:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENT[case.stem], strict=True))
    session = litehouse.load(case, engine=engine, threads=1)
    for kind in ("output", "again"):  # cases that keep state were run twice
        expected = _arrays(case, kind)
        if expected:
            _compare(session.run(_arrays(case, "input")), expected)


def _compare(outputs: list[np.ndarray], expected: list[np.ndarray]) -> None:
    assert len(outputs) == len(expected)
    for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_close(actual, wanted, f"output {index}")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("op", "expected"), [("SequenceMax", 7), ("SequenceMin", 3)])
def test_sequences_of_numbers_known_when_the_model_runs(op: str, expected: int, engine: str) -> None:
    numbers = (np.array(7, np.int64), np.array(3, np.int64), 5)
    (found,) = run_op(op, [numbers], ["int64"], engine, ranks=[0])
    assert_close(found, np.array(expected, np.int64))
    tape = MindirTape()
    assert CONVERTERS[op](tape, [(7, 3, 5)], {}) == expected
