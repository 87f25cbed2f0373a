"""Normalisations: ONNX's own cases."""

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = (
    *("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization"),
    *("RMSNormalization", "LpNormalization", "MeanVarianceNormalization", "LRN", "Dropout"),
)
NOWHERE = {f"test_training_dropout{name}": "it draws at random" for name in ("", "_mask", "_default", "_default_mask")}


@pytest.mark.parametrize("name", cases_about(*OPS))
def test_case(name: str) -> None:
    if name in NOWHERE:
        pytest.skip(NOWHERE[name])
    run_case(name)
