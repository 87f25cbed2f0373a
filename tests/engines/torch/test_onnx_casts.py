"""Casts: ONNX's own cases."""

import re

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = ("Cast", "CastLike", "BitCast")
# Neither torch nor ONNX Runtime, from Python, has these dtypes.
NOWHERE = re.compile("U?INT[24]_|_U?INT[24](_|$)|FLOAT4E2M1|E8M0")


@pytest.mark.parametrize("name", [name for name in cases_about(*OPS) if not NOWHERE.search(name)])
def test_case(name: str) -> None:
    run_case(name)
