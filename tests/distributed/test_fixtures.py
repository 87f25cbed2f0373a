"""Files of all ranks of a job that MindSpore exported, run together: what they give is what it computed itself.

Where it has no CPU kernel for an op the expected outputs are numpy's; `manifest.json` beside the files says which.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from distributed.jobs import PATIENCE
from litehouse.distributed.together import Together
from litehouse.options import Job, Options

FOLDER = FIXTURES / "distributed"
CASES: dict[str, dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text())


def stored(name: str, kind: str, ranks: int) -> list[list[np.ndarray]]:
    with np.load(FOLDER / name / "arrays.npz") as arrays:
        names = [sorted(key for key in arrays if key.startswith(f"rank_{rank}_{kind}_")) for rank in range(ranks)]
        return [[arrays[key] for key in keys] for keys in names]


@pytest.mark.parametrize("name", CASES)
def test_what_mindspore_exported(name: str, engine: str) -> None:
    ranks = CASES[name]["ranks"]
    models = [litehouse.read(FOLDER / name / f"rank_{rank}.mindir") for rank in range(ranks)]
    groups = FOLDER / name / "groups.pb"
    job = replace(Job(timeout=PATIENCE), groups=str(groups) if groups.exists() else "")
    together = Together(models, Options(engine=engine, job=job))
    try:
        found = together.run(stored(name, "input", ranks))
    finally:
        together.close()
    for rank, expected in enumerate(stored(name, "output", ranks)):
        assert [(array.shape, array.dtype) for array in found[rank]] == [(each.shape, each.dtype) for each in expected]
        assert [info.shape for info in models[rank].outputs] == [array.shape for array in expected]
        if rank not in CASES[name]["meaningless"]:
            for actual, wanted in zip(found[rank], expected, strict=True):
                assert_close(actual, wanted, f"rank {rank}")


def test_every_file_is_tested() -> None:
    files = {str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.mindir")}
    assert files == {f"{name}/rank_{rank}.mindir" for name in CASES for rank in range(CASES[name]["ranks"])}


def test_mindspore_itself_computed_what_it_can() -> None:
    """Numpy stands in only where an op has no CPU kernel there."""
    by_itself = {name for name, facts in CASES.items() if facts["outputs_by"].startswith("MindSpore")}
    assert by_itself >= {"tp_mlp", "matmul", "all_gather", "all_reduce_fp16", "broadcast"}
    assert all(facts.get("because") for name, facts in CASES.items() if name not in by_itself)
