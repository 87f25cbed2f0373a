"""Files written by hand, for operators that MegEngine never dumps itself, against what MegEngine Lite computes."""

from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close

FILES = sorted((FIXTURES / "mge_written").glob("*.mge"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_matches_megengine(file: Path, engine: str) -> None:
    session = litehouse.load(file, engine=engine, threads=1)
    with np.load(file.with_suffix(".npz")) as stored:
        inputs = {name.removeprefix("in_"): stored[name] for name in stored if name.startswith("in_")}
        expected = [stored[name] for name in stored if name.startswith("out_")]
    outputs = session.run(inputs)
    assert len(outputs) == len(expected)
    for actual, wanted in zip(outputs, expected, strict=True):
        assert_close(actual, wanted)


def test_there_are_files() -> None:
    assert len(FILES) > 50
