"""Attention of language models, with its cache."""

from typing import Any

import numpy as np
import pytest
from engines.torch import against_runtime
from engines.torch.against import agrees, numbers, one_op

from litehouse import EngineError

HEADS, SHARED, SIZE, LONGEST = 4, 2, 16, 12
OPTIONS: dict[str, Any] = {"domain": "com.microsoft", "outputs": 3, "num_heads": HEADS, "kv_num_heads": SHARED}
SINGLE = OPTIONS | {"dtypes": ["float32"] * 3, "tolerance": 1e-4}
HALF = OPTIONS | {"dtypes": ["float16"] * 3, "tolerance": 1e-2}
Inputs = list[np.ndarray | None]


def turns(width: int = SIZE) -> Inputs:
    angles = numbers(LONGEST, width // 2, seed=9)
    return [np.cos(angles), np.sin(angles)]


def new(batch: int, count: int) -> Inputs:
    sizes = [HEADS * SIZE, SHARED * SIZE, SHARED * SIZE]
    return [numbers(batch, count, size, seed=seed) for seed, size in enumerate(sizes)]


def old(batch: int, count: int) -> Inputs:
    return [numbers(batch, SHARED, count, SIZE, seed=seed) for seed in (3, 4)]


def ends(*lengths: int) -> Inputs:
    return [np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)]


def on_torch(inputs: Inputs, **attributes: Any) -> list[np.ndarray]:
    model = one_op("GroupQueryAttention", inputs, **OPTIONS, dtypes=["float32"] * 3, **attributes)
    return against_runtime.run(model, {f"x{place}": array for place, array in enumerate(inputs) if array is not None})


# What comes, what came before, and how long each sequence is in the end.
CASES: dict[str, Inputs] = {
    "prompt": [*new(2, 5), None, None, *ends(5, 5)],
    "prompts of several lengths": [*new(2, 5), None, None, *ends(5, 3)],
    "prompt into a cache": [*new(2, 5), *old(2, 8), *ends(5, 5)],
    "token": [*new(2, 1), *old(2, 6), *ends(7, 7)],
    "tokens of several lengths": [*new(3, 1), *old(3, 6), *ends(7, 3, 5)],
    "tokens into a larger cache": [*new(2, 1), *old(2, 10), *ends(7, 4)],
    "further prompt": [*new(1, 3), *old(1, 6), *ends(9)],
    "further prompt into a larger cache": [*new(1, 3), *old(1, 10), *ends(8)],
}
MANY, TOKENS = CASES["further prompt into a larger cache"], CASES["tokens of several lengths"]


@pytest.mark.parametrize("name", CASES)
def test_where_keys_go(name: str) -> None:
    agrees("GroupQueryAttention", CASES[name], **SINGLE)
    agrees("GroupQueryAttention", CASES[name], known=[6], scale=0.3, **SINGLE)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotation(name: str, interleaved: int) -> None:
    inputs = [*CASES[name], *turns()]
    agrees("GroupQueryAttention", inputs, do_rotary=1, rotary_interleaved=interleaved, **SINGLE)


def test_rotation_of_other_places() -> None:
    prompt = [*CASES["prompt"], *turns(), np.array([[2, 9, 9, 9, 9], [9, 9, 9, 9, 9]], np.int64)]
    agrees("GroupQueryAttention", prompt, do_rotary=1, **SINGLE)
    agrees("GroupQueryAttention", [*MANY, *turns(), np.array([[3, 0, 8]], np.int64)], do_rotary=1, **SINGLE)


def test_rotation_of_a_part() -> None:
    for heads in (CASES["prompt"], TOKENS):
        agrees("GroupQueryAttention", [*heads, *turns(SIZE)], do_rotary=1, **SINGLE)
    angles = numbers(LONGEST, 8, seed=9)
    wide = [np.concatenate([array, array], -1) for array in new(1, 3)]
    caches = [np.concatenate([array, array], -1) for array in old(1, 10)]
    inputs = [*wide, *caches, *ends(8), np.cos(angles), np.sin(angles)]
    agrees("GroupQueryAttention", inputs, do_rotary=1, **SINGLE)


@pytest.mark.parametrize(
    "options",
    [{"local_window_size": 2}, {"local_window_size": 5, "softcap": 2.0}, {"softcap": 0.7}, {"smooth_softmax": 1}],
)
@pytest.mark.parametrize("name", CASES)
def test_what_bounds_it(name: str, options: dict[str, Any]) -> None:
    agrees("GroupQueryAttention", CASES[name], **options, **SINGLE)


@pytest.mark.parametrize("name", ["prompt", "tokens of several lengths", "further prompt into a larger cache"])
@pytest.mark.parametrize("sizes", [(1, 1), (None, HEADS), (1, HEADS)])
def test_bias_and_sinks(name: str, sizes: tuple[int | None, int]) -> None:
    inputs = CASES[name]
    batch, count, total = len(inputs[0]), inputs[0].shape[1], int(inputs[6])
    bias = numbers(sizes[0] or batch, sizes[1], count, total, seed=5)
    sinks = numbers(HEADS, seed=6)
    agrees("GroupQueryAttention", [*inputs, None, None, None, bias], **SINGLE)
    agrees("GroupQueryAttention", [*inputs, None, None, None, bias, sinks], **SINGLE)
    agrees("GroupQueryAttention", [*inputs, None, None, None, None, sinks], softcap=1.5, **SINGLE)
    agrees("GroupQueryAttention", [*inputs, None, None, None, bias], smooth_softmax=1, local_window_size=2, **SINGLE)


@pytest.mark.parametrize("name", CASES)
def test_both_directions(name: str) -> None:
    agrees("GroupQueryAttention", CASES[name], causal=0, **SINGLE)


@pytest.mark.parametrize("name", CASES)
def test_packed(name: str) -> None:
    """Queries, keys and values in one."""
    q, k, v, *rest = CASES[name]
    inputs = [np.concatenate([q, k, v], -1), None, None, *rest]
    agrees("GroupQueryAttention", [*inputs, *turns()], do_rotary=1, **SINGLE)


def test_keys_of_another_layer() -> None:
    """Where no keys come, all are in the cache by now."""
    for queries in (1, 3):
        q, k, v = new(1, queries)
        agrees("GroupQueryAttention", [q, k[:, :0], v[:, :0], *old(1, 10), *ends(8), *turns()], do_rotary=1, **SINGLE)


def test_norms_before() -> None:
    """ONNX Runtime has them on a GPU alone: they are what the op on its own does with normal queries and keys."""
    scales = [numbers(SIZE, seed=7), numbers(SIZE, seed=8)]
    inputs = [*MANY, *turns()]

    def normal(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
        heads = x.reshape(*x.shape[:2], -1, SIZE)
        return (heads / np.sqrt((heads**2).mean(-1, keepdims=True) + 1e-3) * scale).reshape(x.shape)

    q, k, *rest = inputs
    expected = agrees("GroupQueryAttention", [normal(q, scales[0]), normal(k, scales[1]), *rest], do_rotary=1, **SINGLE)
    found = on_torch(inputs + [None] * 5 + scales, do_rotary=1, qk_norm_epsilon=1e-3)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)


@pytest.mark.parametrize("name", CASES)
def test_half_precision(name: str) -> None:
    inputs = [
        array if array is None or array.dtype != np.float32 else array.astype(np.float16) for array in CASES[name]
    ]
    cos, sin = (array.astype(np.float16) for array in turns())
    agrees("GroupQueryAttention", [*inputs, cos, sin], do_rotary=1, **HALF)


def test_places_that_are_not_there() -> None:
    inputs = list(TOKENS)
    inputs[5] = np.array([6, 40, 4], np.int32)
    with pytest.raises(EngineError, match="out of the range"):
        on_torch(inputs)


@pytest.mark.parametrize("more", [[None] * 7 + [numbers(SIZE)], [None] * 8 + [numbers(SIZE)]])
def test_norms_of_one_alone_are_refused(more: Inputs) -> None:
    with pytest.raises(EngineError, match="GroupQueryAttention"):
        on_torch(MANY + more)


def test_rotation_by_nothing_is_refused() -> None:
    with pytest.raises(EngineError, match="GroupQueryAttention"):
        on_torch(MANY, do_rotary=1)


def test_scores_are_left_to_onnx_runtime() -> None:
    agrees("GroupQueryAttention", MANY, lacks=True, qk_output=1, **SINGLE | {"dtypes": ["float32"] * 4, "outputs": 4})
