import pytest
from engines.torch.onnx_cases import cases_of, run_case


@pytest.mark.parametrize("name", cases_of("LSTM", "GRU", "RNN"))
def test_case(name):
    run_case(name)
