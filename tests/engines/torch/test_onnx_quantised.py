"""Quantised numbers: ONNX's own cases."""

import re

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = (
    *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    *("QLinearMatMul", "QLinearConv", "MatMulInteger", "ConvInteger"),
)
# Neither torch nor ONNX Runtime, from Python, has these dtypes.
NOWHERE = re.compile("int[24]$|float4e2m1")


@pytest.mark.parametrize("name", [name for name in cases_about(*OPS) if not NOWHERE.search(name)])
def test_case(name: str) -> None:
    run_case(name)
