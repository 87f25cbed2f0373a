"""Arithmetic: ONNX's own cases."""

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = (
    *("Add", "Sub", "Mul", "Div", "Mod", "Pow", "Neg", "Abs", "Sign", "Sqrt", "Exp", "Log", "Reciprocal", "Floor"),
    *("Ceil", "Round", "Min", "Max", "Sum", "Mean", "Clip", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
    *("BitwiseNot", "CumSum", "CumProd", "Erf", "Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"),
    *("Asinh", "Acosh", "Atanh", "IsNaN", "IsInf"),
)
WIDE = "torch hardly computes with 64 bits without a sign"
LACKING = dict.fromkeys(["test_div_uint64", "test_max_uint64", "test_min_uint64"], WIDE)
NOWHERE = {
    "test_mod_uint64": "nor does ONNX Runtime have this opset",
    "test_pow_types_float32_uint64": "nor does ONNX Runtime compute it",
}


@pytest.mark.parametrize("name", cases_about(*OPS))
def test_case(name: str) -> None:
    if name in NOWHERE:
        pytest.skip(NOWHERE[name])
    run_case(name, may_lack=name.split("_expanded")[0] in LACKING)
