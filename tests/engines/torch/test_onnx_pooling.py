import pytest
from engines.torch.onnx_cases import cases_of, run_case

OPS = ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxUnpool")


@pytest.mark.parametrize("name", cases_of(*OPS))
def test_case(name):
    run_case(name)
