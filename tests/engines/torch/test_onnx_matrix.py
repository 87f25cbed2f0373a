"""Products of matrices: ONNX's own cases."""

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = ("MatMul", "Gemm", "Einsum", "Det")


@pytest.mark.parametrize("name", cases_about(*OPS))
def test_case(name: str) -> None:
    run_case(name)
