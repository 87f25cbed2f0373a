"""One rank on a real GPU: exchanges by NCCL, captured with the network. `pytest tests/distributed/test_nccl.py`."""

from __future__ import annotations

import numpy as np
import pytest

from distributed.jobs import part, ranks_op
from litehouse.distributed.ranked import build_ranked
from litehouse.options import Job, Options
from onnx_models import node

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
NODES = [
    node("MatMul", "x w", "a"),
    ranks_op("AllReduce", "a", "b"),
    ranks_op("AllGather", "b", "c"),
    ranks_op("Broadcast", "c", "d", root_rank=0),
    ranks_op("ReduceScatter", "d", "e"),
    ranks_op("AlltoAll", "e", "f", split_dim=0, concat_dim=0, split_count=1),
    ranks_op("Barrier", "", "g"),
    ranks_op("Depend", "f g", "h"),
    node("Relu", "h", "y"),
]


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_one_rank_with_nccl(precision: str) -> None:
    w = np.random.default_rng(0).normal(size=(8, 8)).astype("f")
    options = Options(device="gpu", precision=precision, job=Job(rank=0, size=1))
    program = build_ranked(part(NODES, {"x": [4, 8]}, {"y": [4, 8]}, {"w": w}), options).program
    assert program._lines._backend == "nccl"  # type: ignore[attr-defined]
    runner = program.bind()
    for seed in range(5):
        x = np.random.default_rng(seed).normal(size=(4, 8)).astype("f")
        tolerance = 1e-5 if precision == "fp32" else 2e-2
        np.testing.assert_allclose(runner.run([x])[0], np.maximum(x @ w, 0), rtol=tolerance, atol=tolerance)
    (whole,) = runner._runner._parts  # type: ignore[attr-defined]  # all of it is one graph
    assert whole.latest is not None
