"""Attention: ONNX's own cases, and rows that attend to nothing."""

import numpy as np
import pytest
import torch
from engines.torch.onnx_cases import cases_about, run_case

from conftest import REAL_GPU
from litehouse.engines.torch.ops import attention, runtime_attention

OPS = ("Attention", "LinearAttention", "RotaryEmbedding")


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


@pytest.mark.parametrize("more", [{}, {"outputs": 4, "qk_matmul_output_mode": attention.AFTER_BIAS}])
def test_hidden_by_numbers_that_are_too_large_for_the_scores(more: dict[str, int]) -> None:
    """They are finite in their own type: a row of nothing else attends to all keys alike, and is not one of zeros."""
    v = np.random.default_rng(0).normal(size=(1, 1, 4, 8)).astype(np.float16)
    mask = np.zeros((3, 4), "f")
    mask[0], mask[1, 1:], mask[2, :3] = np.finfo("f").min, -1e9, -np.inf
    given = [torch.from_numpy(each) for each in (v[:, :, :3], v, v, mask)]
    found, _, _, scores = attention.attention(*given, **more)
    assert scores is None or scores.dtype == found.dtype == torch.float16
    wanted = [v[0, 0].astype("f").mean(0), v[0, 0, 0], v[0, 0, 3]]
    np.testing.assert_allclose(found[0, 0], wanted, atol=2e-3)


def test_padding_that_is_hidden_by_a_number_too_large_for_the_heads() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 3, 8)).astype(np.float16))
    hide = {"num_heads": 1, "mask_filter_value": float(np.finfo("f").min)}
    found = runtime_attention.multi_head_attention(x, x, x, None, torch.tensor([[0, 1, 0]]), **hide)[0]
    np.testing.assert_array_equal(found[0], x[0, [1, 1, 1]])
