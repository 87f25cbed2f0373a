"""Every MindIR fixture against what MindSpore itself computed, on both engines."""

import json
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import ENGINES, FIXTURES, assert_close

MINDIR = FIXTURES / "mindir"


def _cases(folder: str) -> list[Path]:
    return sorted((MINDIR / folder).glob("*.mindir"))


def _arrays(path: Path, kind: str) -> list[np.ndarray]:
    with np.load(path.with_suffix(".npz")) as stored:
        return [stored[f"{kind}_{index}"] for index in range(sum(name.startswith(f"{kind}_") for name in stored.files))]


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("case", [*_cases("ops"), *_cases("networks")], ids=lambda path: path.stem)
def test_matches_mindspore(case: Path, name: str) -> None:
    session = litehouse.load(case, engine=name, threads=1)
    outputs, expected = session.run(_arrays(case, "input")), _arrays(case, "output")
    assert len(outputs) == len(expected)
    for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_close(actual, wanted, f"output {index}")


KEYS = json.loads((MINDIR / "containers" / "keys.json").read_text())
