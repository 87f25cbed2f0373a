"""Reductions: ONNX's own cases."""

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = (
    *("ArgMax", "ArgMin", "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"),
    *("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"),
)


@pytest.mark.parametrize("name", cases_about(*OPS))
def test_case(name: str) -> None:
    run_case(name)
