import pytest
from engines.torch.onnx_cases import cases_of, run_case

OPS = ("GridSample", "AffineGrid", "RoiAlign", "DepthToSpace", "SpaceToDepth", "CenterCropPad", "NonMaxSuppression")


@pytest.mark.parametrize("name", cases_of(*OPS))
def test_case(name):
    run_case(name)
