"""Numbers that are drawn: each run draws anew, from what the op says."""

from typing import Any

import numpy as np
import pytest
from engines.torch.against_runtime import one_op

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
    program = TorchEngine().compile(read(one_op(op, {"x": x}, opset=15, **attributes)), Options(engine="torch"))
    runner = program.bind()
    draws = [runner.run([x])[0] for _ in range(3)]
    assert not program.lacking
    for found in draws:
        assert found.shape == x.shape
        assert found.dtype == {7: np.int64, 11: np.float64}.get(attributes.get("dtype", 1), np.float32)
        assert abs(found.mean() - mean) < 6 * deviation / COUNT**0.5
        assert abs(found.std() - deviation) < 0.02 * deviation
    assert not np.array_equal(draws[0], draws[1])
    assert not np.array_equal(draws[1], draws[2])


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
