"""Attention whose memory has one size."""

from typing import Any

import numpy as np
import pytest
from engines.torch import against_runtime
from engines.torch.against import agrees, numbers, one_op
from engines.torch.onnx_cases import check

SIZE, WIDE = 8, 6
RULES = ["linear", "gated", "delta", "gated_delta"]
RUNTIME: dict[str, Any] = {"domain": "com.microsoft", "dtypes": ["float32"] * 2, "outputs": 2, "tolerance": 2e-4}


def inputs_of(
    rule: str, count: int, *, heads: tuple[int, int] = (4, 2), is_each: bool = False, has_past: bool = True
) -> list[np.ndarray | None]:
    """What a rule takes of so many tokens: keys have a length of 1, and memories decay."""
    queries, keys = heads
    k = numbers(2, count, keys, SIZE, seed=1)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    decay = -np.abs(numbers(2, count, keys * (SIZE if is_each else 1), seed=4))
    rates = 1 / (1 + np.exp(-numbers(2, count, keys, seed=5)))
    return [
        numbers(2, count, queries * SIZE),
        k.reshape(2, count, -1),
        numbers(2, count, keys * WIDE, seed=2),
        numbers(2, keys, SIZE, WIDE, seed=3) if has_past else None,
        decay if "gated" in rule else None,
        rates if "delta" in rule else None,
    ]


@pytest.mark.parametrize("count", [1, 5, 32, 70])
@pytest.mark.parametrize("rule", RULES)
def test_rules(rule: str, count: int) -> None:
    """More tokens than are computed at once, too."""
    options = RUNTIME | {"update_rule": rule, "q_num_heads": 4, "kv_num_heads": 2}
    agrees("LinearAttention", inputs_of(rule, count), **options)
    agrees("LinearAttention", inputs_of(rule, count, has_past=False), scale=0.7, **options)
    if "gated" in rule:
        agrees("LinearAttention", inputs_of(rule, count, is_each=True), **options)


def test_one_rate_for_all_heads() -> None:
    inputs = inputs_of("delta", 5)
    inputs[5] = inputs[5][..., :1]
    agrees("LinearAttention", inputs, update_rule="delta", q_num_heads=4, kv_num_heads=2, **RUNTIME)


def test_fewer_queries_than_keys_are_left_to_onnx_runtime() -> None:
    inputs = inputs_of("gated_delta", 5, heads=(2, 4))
    agrees("LinearAttention", inputs, q_num_heads=2, kv_num_heads=4, lacks=True, **RUNTIME)


@pytest.mark.parametrize("rule", RULES)
def test_the_one_of_onnx(rule: str) -> None:
    """ONNX Runtime has it in its own domain alone: the numbers are the same."""
    inputs = inputs_of(rule, 5)
    options = {"update_rule": rule, "q_num_heads": 4, "kv_num_heads": 2}
    expected = agrees("LinearAttention", inputs, **options, **RUNTIME)
    model = one_op("LinearAttention", inputs, opset=28, outputs=2, dtypes=["float32"] * 2, **options)
    found = against_runtime.run(model, {f"x{place}": array for place, array in enumerate(inputs) if array is not None})
    for ours, theirs in zip(found, expected, strict=True):
        check(ours, theirs, 1e-6, 1e-6)


def test_half_precision() -> None:
    inputs = inputs_of("gated_delta", 40)
    (expected, _) = agrees("LinearAttention", inputs, q_num_heads=4, kv_num_heads=2, **RUNTIME)
    halves = [None if array is None else array.astype(np.float16) for array in inputs]
    halves[3] = inputs[3]  # the memory is of 32 bits
    options = RUNTIME | {"dtypes": ["float16", "float32"]}
    del options["tolerance"]
    model = one_op("LinearAttention", halves, q_num_heads=4, kv_num_heads=2, **options)
    found = against_runtime.run(model, {f"x{place}": array for place, array in enumerate(halves) if array is not None})
    assert [array.dtype for array in found] == [np.float16, np.float32]
    check(found[0].astype(np.float32), expected, 2e-2, 2e-2)
