"""Two hundred mutated files of every dialect: each loads, or raises a documented error, in bounded time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from formats import mutations

from conftest import FIXTURES

COUNT, SECONDS, BYTES = 200, 600, 1_000_000_000
ERRORS = {"ModelFormatError", "LimitError", "UnsupportedOpError", "WeightError", "EngineError"}
DIALECTS = {
    "MindSpore 2.10": "mindir/ops/*.mindir",
    "MindSpore 2.10, whole networks": "mindir/networks/*.mindir",
    "control flow and state": "flow/*.mindir",
    "MindSpore 2.0": "mindir20/**/*.mindir",
    "converted": "converted/*.mindir",
    "ms": "converted/*.ms",
    "MegEngine": "mge/**/*.mge",
    "MegEngine, packed": "mge_packed/*.[lm]*",
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_mutated_files(dialect: str) -> None:
    paths = sorted(str(path) for path in FIXTURES.glob(DIALECTS[dialect]))
    assert len(paths) > 10
    command = [sys.executable, str(Path(mutations.__file__)), dialect, str(COUNT), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    result = json.loads(done.stdout)
    assert set(result["outcomes"]) <= ERRORS | {"Session"}, result["outcomes"]
    assert sum(result["outcomes"].values()) == COUNT
    assert 0 < result["outcomes"]["Session"] < COUNT, "the mutations change nothing, or all in one way"
    assert result["peak"] < BYTES
