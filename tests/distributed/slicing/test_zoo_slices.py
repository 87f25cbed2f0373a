"""The networks of the zoo, of all formats, cut for two ranks and for two stages."""

import json
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import ZOO
from distributed.slicing.support import FREE, assert_same
from litehouse.distributed.slicing import plan

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not ZOO.exists(), reason="the model zoo is not beside the checkout"),
]

MINDIR = sorted((ZOO / "mindir").glob("*/*.mindir")) if ZOO.exists() else []
CONVERTED = (
    sorted(path for path in (ZOO / "mindir_converted").glob("*/*.m*") if path.stem == path.parent.name)
    if ZOO.exists()
    else []
)
MEGENGINE = sorted((ZOO / "mge").glob("*/model.*")) if ZOO.exists() else []


def _inputs(path: Path, model: litehouse.Model) -> list[np.ndarray]:
    folder = path.parent
    if path in MEGENGINE:
        assert json.loads((folder / "meta.json").read_text())["inputs"]
        return [np.load(folder / f"{info.name}.npy") for info in model.inputs]
    pattern = "input_[0-9]*.npy" if path in MINDIR else f"{path.suffix[1:]}_input[0-9]*.npy"
    return [np.load(found) for found in sorted(folder.glob(pattern))]


@pytest.mark.parametrize("pipeline", [False, True], ids=["parts", "pipeline"])
@pytest.mark.parametrize("path", [*MINDIR, *CONVERTED, *MEGENGINE], ids=lambda path: f"{path.parent.name}{path.suffix}")
def test_networks(path: Path, pipeline: bool) -> None:
    model = litehouse.read(path)
    inputs = [*_inputs(path, model), *(model.weights[state.name] for state in model.states)]
    assert_same(plan(model, 2, pipeline=pipeline, costs=FREE), inputs)
