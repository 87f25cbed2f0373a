import pytest
from engines.torch.onnx_cases import cases_of, run_case

# They divide by a width that is not whole, where ONNX's text says the length of the resized axis, as ONNX Runtime does.
FAULTS = {"test_resize_downsample_scales_linear_align_corners", "test_resize_downsample_scales_cubic_align_corners"}


@pytest.mark.parametrize("name", [name for name in cases_of("Resize", "Upsample") if name not in FAULTS])
def test_case(name):
    run_case(name)


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="not what ONNX's text says")
@pytest.mark.parametrize("name", sorted(FAULTS))
def test_fault(name):
    run_case(name)
