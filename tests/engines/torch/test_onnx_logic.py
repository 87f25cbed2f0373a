"""Logic: ONNX's own cases."""

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = ("And", "Or", "Xor", "Not", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Where")
WIDE = ["greater", "greater_equal", "less", "less_equal"]
LACKING = {
    "test_equal_string": "torch has no text",
    "test_equal_string_broadcast": "torch has no text",
    **{f"test_{name}_uint64": "torch hardly computes with 64 bits without a sign" for name in WIDE},
}


@pytest.mark.parametrize("name", cases_about(*OPS))
def test_case(name: str) -> None:
    run_case(name, may_lack=name.split("_expanded")[0] in LACKING)
