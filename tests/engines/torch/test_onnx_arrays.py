"""ONNX's own cases for ops that move elements."""

import pytest
from engines.torch.onnx_cases import cases_of, run_case

from litehouse import LitehouseError

OPS = [
    *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Transpose", "Shape", "Size", "Identity"),
    *("Concat", "Split", "Tile"),
    *("Gather", "GatherElements", "GatherND", "Slice", "Compress", "NonZero", "OneHot", "EyeLike", "Trilu"),
    *("ReverseSequence", "Scatter", "ScatterElements", "ScatterND", "TensorScatter"),
    *("ConstantOfShape", "Range", "TopK", "Unique", "Pad"),
]
# What neither torch nor ONNX Runtime computes, or what no model may take.
REFUSED = {
    "test_identity_opt": "only those are supported",
    "test_identity_sequence": "only those are supported",
    "test_top_k_uint64": "ONNX Runtime cannot build it",
}
NAMES = [name for name in cases_of(*OPS) if "_expanded" not in name and name not in REFUSED]


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str) -> None:
    run_case(name)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    with pytest.raises(LitehouseError, match=REFUSED[name]):
        run_case(name)
