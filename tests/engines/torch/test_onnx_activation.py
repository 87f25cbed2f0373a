"""Activations: ONNX's own cases."""

import pytest
from engines.torch.onnx_cases import cases_about, run_case

OPS = (
    *("Relu", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Gelu", "HardSigmoid", "HardSwish", "Mish", "Sigmoid"),
    *("Tanh", "Softplus", "Softsign", "Softmax", "LogSoftmax", "Hardmax", "Shrink", "ThresholdedRelu", "Swish"),
    *("SwiGLU"),
)


@pytest.mark.parametrize("name", cases_about(*OPS))
def test_case(name: str) -> None:
    run_case(name)
