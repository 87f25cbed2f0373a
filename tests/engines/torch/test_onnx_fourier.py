import pytest
from engines.torch.onnx_cases import all_cases, cases_of, run_case

OPS = ("DFT", "STFT", "HannWindow", "HammingWindow", "BlackmanWindow", "MelWeightMatrix")


@pytest.mark.parametrize("name", cases_of(*OPS))
def test_case(name, monkeypatch):
    if "dft" in name or "stft" in name:  # what is 0 but for rounding is a sum of numbers up to a hundred
        monkeypatch.setattr(all_cases()[name], "atol", 1e-5)
    run_case(name)
