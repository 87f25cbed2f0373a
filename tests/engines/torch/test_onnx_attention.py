"""Attention: ONNX's own cases, and rows that attend to nothing."""

import pytest
import torch
from engines.torch.onnx_cases import cases_about, run_case

from conftest import REAL_GPU
from litehouse.engines.torch.ops import attention

OPS = ("Attention", "RotaryEmbedding")


@pytest.mark.parametrize("name", cases_about(*OPS))
def test_case(name: str) -> None:
    run_case(name)


@pytest.mark.parametrize("kind", ["bool", "float32"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_nothing_to_attend_to(kind: str, device: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zeros, whatever the kernels give there: some for GPUs give what other keys have."""
    if device == "cpu":
        fused = attention.F.scaled_dot_product_attention
        monkeypatch.setattr(attention.F, "scaled_dot_product_attention", lambda *all, **more: fused(*all, **more) + 1)
    elif not REAL_GPU:
        pytest.skip("LITEHOUSE_TEST_GPU is not set")
    q = torch.randn(1, 2, 4, 64, device=device, dtype=dtype, generator=torch.Generator(device).manual_seed(0))
    allowed = torch.ones(4, 4, dtype=torch.bool, device=device)
    allowed[1] = False
    mask = allowed if kind == "bool" else torch.zeros(4, 4, device=device).masked_fill(~allowed, -torch.inf).to(dtype)
    found = attention.attention(q, q, q, mask)[0]
    assert not found[:, :, 1].any()
    assert found[:, :, [0, 2, 3]].any(-1).all()
