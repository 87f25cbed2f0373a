"""Numbers that are drawn: each run draws anew, from what the op says."""

import itertools
from typing import Any

import numpy as np
import pytest
from engines.torch.against_runtime import one_op
from engines.torch.onnx_cases import DEVICE, runs

from litehouse import Options, read
from litehouse.engines.torch.engine import TorchEngine

COUNT = 40_000


@pytest.mark.parametrize(
    ("op", "attributes", "mean", "deviation"),
    [
        ("RandomUniformLike", {}, 0.5, 12**-0.5),
        ("RandomUniformLike", {"low": -3.0, "high": 1.0, "dtype": 11}, -1.0, 4 * 12**-0.5),
        ("RandomNormalLike", {}, 0.0, 1.0),
        ("RandomNormalLike", {"mean": 2.0, "scale": 0.5, "dtype": 11}, 2.0, 0.5),
        ("Bernoulli", {}, 0.25, (0.25 * 0.75) ** 0.5),
        ("Bernoulli", {"dtype": 7}, 0.25, (0.25 * 0.75) ** 0.5),
    ],
)
def test_each_run_draws_anew(op: str, attributes: dict[str, Any], mean: float, deviation: float) -> None:
    x = np.full((4, COUNT // 4), 0.25, np.float32)
    options = Options(engine="torch", device=DEVICE, cache=False)
    program = TorchEngine().compile(read(one_op(op, {"x": x}, opset=15, **attributes)), options)
    draws = [found[0] for found in runs(program, [x])]
    assert not program.lacking
    for found in draws:
        assert found.shape == x.shape
        assert found.dtype == {7: np.int64, 11: np.float64}.get(attributes.get("dtype", 1), np.float32)
        assert abs(found.mean() - mean) < 6 * deviation / COUNT**0.5
        assert abs(found.std() - deviation) < 0.02 * deviation
    assert not np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[1], draws[2])


@pytest.mark.parametrize(
    ("op", "attributes", "mean", "deviation"),
    [
        ("RandomUniform", {}, 0.5, 12**-0.5),
        ("RandomUniform", {"low": -3.0, "high": 1.0, "dtype": 11}, -1.0, 4 * 12**-0.5),
        ("RandomNormal", {}, 0.0, 1.0),
        ("RandomNormal", {"mean": 2.0, "scale": 0.5, "dtype": 10}, 2.0, 0.5),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_drawn_from_nothing(
    op: str, attributes: dict[str, Any], mean: float, deviation: float, device: str, gpu: None
) -> None:
    """On the device: what the CPU draws would be the same in each run of a captured graph."""
    model = one_op(op, {}, opset=15, shape=[4, COUNT // 4], **attributes)
    program = TorchEngine().compile(read(model), Options(engine="torch", device=device, cache=False))
    draws = [found[0].astype(np.float64) for found in runs(program, [])]
    assert not program.lacking
    for found in draws:
        assert found.shape == (4, COUNT // 4)
        assert abs(found.mean() - mean) < 6 * deviation / COUNT**0.5
        assert abs(found.std() - deviation) < 0.02 * deviation
    assert not any(np.array_equal(*pair) for pair in itertools.pairwise(draws))


@pytest.mark.parametrize("dtype", [6, 7])
def test_drawn_by_chances(dtype: int) -> None:
    """Chances are logarithms, and need not be of one in sum; what has none never comes."""
    chances = np.array([[0.1, 0.0, 0.6, 0.3], [0.0, 0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        x = (np.log(chances) + 3).astype(np.float32)
    model = one_op("Multinomial", {"x": x}, opset=15, sample_size=COUNT, dtype=dtype)
    program = TorchEngine().compile(read(model), Options(engine="torch", cache=False))
    runner = program.bind()
    draws = [runner.run([x])[0] for _ in range(3)]
    assert not program.lacking
    for found in draws:
        assert found.dtype == {6: np.int32, 7: np.int64}[dtype]
        counts = np.stack([np.bincount(row, minlength=4) for row in found]) / COUNT
        np.testing.assert_allclose(counts, chances, atol=0.015)
        assert not counts[chances == 0].any()
    assert not np.array_equal(draws[0], draws[1])


@pytest.mark.parametrize("op", ["RandomNormal", "RandomUniform"])
def test_seed_of_what_is_drawn_from_nothing(op: str) -> None:
    """ONNX Runtime gives the same from it in each session."""
    model = one_op(op, {}, opset=15, shape=[8], seed=3.0)
    programs = [TorchEngine().compile(read(model), Options(engine="torch", cache=False)) for _ in range(2)]
    one, two = (program.bind().run([])[0] for program in programs)
    assert programs[0].lacking
    np.testing.assert_array_equal(one, two)


def test_seed_is_left_to_onnx_runtime() -> None:
    x = np.full((4, 4), 0.25, np.float32)
    program = TorchEngine().compile(
        read(one_op("RandomNormalLike", {"x": x}, opset=15, seed=3.0)), Options(engine="torch")
    )
    one, two = (program.bind().run([x])[0] for _ in range(2))
    assert program.lacking
    assert not np.array_equal(one, two)


def test_chances_that_are_none() -> None:
    x = np.array([np.nan, -1, 0, 1, 2], np.float32)
    program = TorchEngine().compile(read(one_op("Bernoulli", {"x": x}, opset=15)), Options(engine="torch"))
    assert program.bind().run([x])[0].tolist() == [0, 0, 0, 1, 1]
