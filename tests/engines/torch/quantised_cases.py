"""Uses of the ops that ONNX Runtime's quantisers and its optimiser write."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from engines.torch.against import numbers

BATCH, PLACES, SIZE, HEADS = 2, 5, 24, 4
KINDS = ("uint8", "int8")
INDICES = np.array([[0, -3, 5], [1, 1, 2]], np.int64)


@dataclass(frozen=True)
class Case:
    """A use of an op.

    Attributes:
        op: Its name.
        inputs: Its inputs; None for one that is left out.
        attributes: Its attributes.
        dtypes: Those of its outputs.
        known: The places of inputs that are weights.
        tolerance: How far floats may be apart; integers are equal.
    """

    op: str
    inputs: list[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ("float32",)
    known: tuple[int, ...] = ()
    tolerance: float = 1e-4


def small(*shape: int, dtype: str = "uint8", seed: int = 0) -> np.ndarray:
    """Integers of all that a dtype has."""
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max + 1, shape).astype(dtype)


def one(value: float, dtype: Any = np.float32) -> np.ndarray:
    """A single number."""
    return np.array(value, dtype)


def scales(*shape: int, seed: int = 0) -> np.ndarray:
    """Numbers that scales may be."""
    return np.random.default_rng(seed).uniform(0.005, 0.03, shape).astype(np.float32)


def last(x: np.ndarray) -> np.ndarray:
    """An image with its channels behind."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def zero_of(dtype: str, place: int) -> np.ndarray:
    """A zero point in the middle of a dtype."""
    return one(place if dtype == "uint8" else place - 128, dtype)


def by_place() -> Iterator[tuple[str, Case]]:
    """Sums, products and functions of single numbers, and what moves them."""
    for dtype in KINDS:
        first, second, third = zero_of(dtype, 120), zero_of(dtype, 7), zero_of(dtype, 131)
        wide, high = small(4, 1, 40, dtype=dtype), small(4, 6, 40, dtype=dtype, seed=1)
        pairs = {"same": (high, high[::-1].copy()), "left": (wide, high), "right": (high, wide)}
        pairs |= {"single left": (small(4, 6, 1, dtype=dtype), high), "single right": (high, small(1, dtype=dtype))}
        column = small(960, 1, dtype=dtype)
        pairs |= {"column": (column, small(1, dtype=dtype)), "column and scalar": (column, small(dtype=dtype))}
        for name, (a, b) in pairs.items():
            # Halves are frequent with such scales, and sums of rounded numbers depend on their order.
            for place, (left, right, whole) in enumerate([(0.5, 0.25, 1.0), (0.3, 0.12, 0.36), (0.013, 0.021, 0.017)]):
                given = [a, one(left), first, b, one(right), second]
                yield f"add {dtype} {name} {place}", Case("QLinearAdd", [*given, one(whole), third], dtypes=(dtype,))
                given = [*given, one(whole * 16), third]
                yield f"mul {dtype} {name} {place}", Case("QLinearMul", given, dtypes=(dtype,))
        x = small(3, 7, 9, dtype=dtype)
        for scale in (0.0625, 0.03):
            given = [x, one(scale), first, one(1 / 256), second]
            yield f"sigmoid {dtype} {scale}", Case("QLinearSigmoid", given, dtypes=(dtype,))
            given = [x, one(scale), first, one(scale / 2), third]
            yield f"leaky {dtype} {scale}", Case("QLinearLeakyRelu", given, {"alpha": 0.1}, (dtype,))
            given = [x, one(scale), first, one(0.0041), zero_of(dtype, 3)]
            for opset, axis in ((11, 1), (12, -1), (13, -1), (13, 1), (11, None), (13, None)):
                attributes = {"opset": opset} if axis is None else {"opset": opset, "axis": axis}
                yield f"softmax {dtype} {scale} {attributes}", Case("QLinearSoftmax", given, attributes, (dtype,))
        parts = [x, one(0.02), first, small(3, 2, 9, dtype=dtype, seed=1), one(0.03), second]
        yield f"concat {dtype}", Case("QLinearConcat", [one(0.04), third, *parts], {"axis": 1}, (dtype,))
        chosen = [np.random.default_rng(0).random((3, 1, 9)) < 0.5, x, one(0.02), first, x[::-1].copy(), one(0.03)]
        yield f"where {dtype}", Case("QLinearWhere", [*chosen, second, one(0.04), third], dtypes=(dtype,))


WINDOWS: list[dict[str, Any]] = [
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "pads": [1, 0, 0, 1], "strides": [2, 3], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
]


def images() -> Iterator[tuple[str, Case]]:
    """Convolutions and pooling, with channels in front or behind."""
    for dtype in KINDS:
        x, first, second = small(2, 4, 9, 8, dtype=dtype), zero_of(dtype, 120), zero_of(dtype, 131)
        for is_last in (0, 1):
            image, flag = (last(x), {"channels_last": 1}) if is_last else (x, {})
            where = f"{dtype} {'last' if is_last else 'first'}"
            for place, window in enumerate([*WINDOWS, {"kernel_shape": [3, 3], "pads": [1] * 4}]):
                given = [image, one(0.1), first, one(0.1), second]
                for counts in (0, 1):
                    attributes = {**window, **flag, "count_include_pad": counts}
                    yield f"average {where} {place} {counts}", Case("QLinearAveragePool", given, attributes, (dtype,))
            given = [image, one(0.02), first, one(0.013), second]
            yield f"global {where}", Case("QLinearGlobalAveragePool", given, flag, (dtype,))
            weight, bias = small(6, 2, 3, 3, dtype="int8", seed=1), numbers(6, dtype=np.int32, seed=3) * 1000
            for place, scale in enumerate((scales(6), one(0.01))):
                given = [image, one(0.02), first, weight, scale, np.zeros(scale.shape, "int8")]
                attributes = {"group": 2, "pads": [1, 1, 0, 1], "strides": [1, 2], **flag}
                case = Case("QLinearConv", [*given, one(0.6), second, bias], attributes, (dtype,), (3,))
                yield f"convolution {where} {place}", case
        for place, window in enumerate([*WINDOWS, {"kernel_shape": [3, 2], "dilations": [2, 1], "pads": [1] * 4}]):
            yield f"max {dtype} {place}", Case("NhwcMaxPool", [last(x)], window, (dtype,))
        given = [small(2, 3, 11, dtype=dtype), one(0.1), first, one(0.1), second]
        yield (
            f"average {dtype} line",
            Case("QLinearAveragePool", given, {"kernel_shape": [3], "pads": [1, 1]}, (dtype,)),
        )


def products() -> Iterator[tuple[str, Case]]:
    """Products of small integers."""
    bias = numbers(9, dtype=np.int32) * 1000
    for dtype, kind in (("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8")):
        for turned in (0, 1):
            a, b = small(7, 40, dtype=dtype), small(40, 9, dtype=kind, seed=1)
            a, b = (a.T.copy(), b.T.copy()) if turned else (a, b)
            attributes = {"transA": turned, "transB": turned, "alpha": 0.7}
            for place, scale in enumerate((one(0.02), scales(9))):
                zero = small(*scale.shape, dtype=kind, seed=2)
                given = [a, one(0.03), zero_of(dtype, 120), b, scale, zero, bias if turned else None]
                name = f"{dtype} {kind} {turned} {place}"
                wanted = [one(2.5), zero_of(dtype, 99)]
                yield f"gemm {name}", Case("QGemm", [*given, *wanted], attributes, (dtype,))
                if turned:
                    yield f"gemm to floats {name}", Case("QGemm", given, attributes)
    a, b = (small(*shape, dtype="int16") // 8 for shape in ((2, 5, 60), (60, 4)))
    yield "sixteen bits", Case("MatMulInteger16", [a, b], dtypes=("int32",))


def packed() -> Iterator[tuple[str, Case]]:
    """Weights of few bits."""
    rows = 6
    for bits in (2, 4, 8):
        for columns, block in ((64, 16), (100, 32)):
            blocks = -(-columns // block)
            weight, scale = small(rows, blocks, block * bits // 8, seed=bits), scales(rows, blocks)
            attributes = {"K": columns, "N": rows, "bits": bits, "block_size": block}
            zeros = {"none": None, "packed": small(rows, -(-blocks * bits // 8), seed=3)}
            if bits < 8:
                zeros["floats"] = scales(rows, blocks, seed=4) * 100
            for name, zero in zeros.items():
                given = [numbers(2, 3, columns), weight, scale, zero, None, numbers(rows)]
                yield f"matmul {bits} {columns} {name}", Case("MatMulNBits", given, attributes, known=(1, 2))
            if bits == 4:
                groups = np.random.default_rng(5).permutation(np.arange(columns) // block).astype(np.int32)
                given = [numbers(2, columns), weight, scale, zeros["floats"], groups]
                yield f"matmul groups {columns}", Case("MatMulNBits", given, attributes, known=(1, 2, 3, 4))
        for columns in (64, 96):
            blocks = columns // 32
            given = [small(10, columns * bits // 8), INDICES, scales(10, blocks)]
            attributes = {"bits": bits, "block_size": 32}
            yield f"gather {bits} {columns}", Case("GatherBlockQuantized", given, attributes)
            given = [*given[:2], given[2].astype(np.float16), small(10, -(-blocks * bits // 8), seed=1)]
            yield f"gather {bits} {columns} zeros", Case("GatherBlockQuantized", given, attributes, ("float16",))
    for kind in (0, 1):
        attributes = {"K": 35, "N": 7, "block_size": 32, "quant_type": kind}
        yield f"bnb {kind}", Case("MatMulBnb4", [numbers(3, 35), small(123), scales(8)], attributes)


def four_bits() -> Iterator[tuple[str, Case]]:
    """What is of 4 bits by its type."""
    for dtype, limits in (("int4", (-8, 8)), ("uint4", (0, 16))):
        kind = getattr(ml_dtypes, dtype)
        data = np.random.default_rng(0).integers(*limits, (10, 40, 3)).astype(kind)
        for taken, blocked in ((0, 1), (1, 1), (1, 0)):
            sizes = [-(-size // 16) if axis == blocked else size for axis, size in enumerate(data.shape)]
            attributes = {"block_size": 16, "gather_axis": taken, "quantize_axis": blocked}
            for zero in (None, np.random.default_rng(1).integers(0, 7, sizes).astype(kind)):
                given = [data, INDICES, scales(*sizes), *([] if zero is None else [zero])]
                known = (0,) if zero is None else (0, 3)
                name = f"gather {dtype} {taken} {blocked} {'plain' if zero is None else 'zeros'}"
                yield name, Case("GatherBlockQuantized", given, attributes, known=known)


MASKS: dict[str, Any] = {
    "none": None,
    "ends": [3, 5],
    "starts": [4, 5, 1, 0],
    "keys": [[1, 1, 0, 1, 1], [1, 1, 1, 0, 0]],
    "dummy": [[0], [1]],
    "pairs": np.tril(np.ones((BATCH, PLACES, PLACES))),
    "nothing": [0, 5],
}


def sequences() -> Iterator[tuple[str, Case]]:
    """Attention, embeddings and recurrence."""
    bias, floats = numbers(3 * SIZE), [numbers(BATCH, PLACES, SIZE), numbers(SIZE, 3 * SIZE, seed=1) / 4]
    for kind in KINDS:
        x, weight = small(BATCH, PLACES, SIZE), small(SIZE, 3 * SIZE, dtype=kind, seed=3)
        zero = one(120, "uint8")
        for place, scale in enumerate((one(0.001), scales(3 * SIZE) / 10)):
            zeros = small(*scale.shape, seed=2) if kind == "uint8" else np.zeros(scale.shape, "int8")
            for name, mask in MASKS.items():
                given = [
                    x,
                    weight,
                    bias,
                    one(0.02),
                    scale,
                    None if mask is None else np.array(mask, np.int32),
                    zero,
                    zeros,
                ]
                attributes = {"num_heads": HEADS, "unidirectional": place}
                yield f"attention {kind} {name} {place}", Case("QAttention", given, attributes)
        past = numbers(2, BATCH, HEADS, 3, SIZE // HEADS)
        mask = np.random.default_rng(0).integers(0, 2, (BATCH, PLACES + 3)).astype(np.int32)
        given = [x, weight, bias, one(0.02), one(0.001), mask, zero, zero_of(kind, 130), past]
        attributes = {"num_heads": HEADS, "unidirectional": 1, "scale": 0.3}
        yield f"attention {kind} past", Case("QAttention", given, attributes, ("float32", "float32"))
    given = [*floats, bias, np.array([3, 5], np.int32), None, numbers(1, HEADS, PLACES, PLACES)]
    yield "attention of floats", Case("Attention", given, {"num_heads": HEADS})
    given = [floats[0], numbers(SIZE, 2 * SIZE + 12), numbers(2 * SIZE + 12)]
    attributes = {"num_heads": HEADS, "qkv_hidden_sizes": [SIZE, SIZE, 12]}
    yield "attention of sizes", Case("Attention", given, attributes)
    yield from embeddings()
    yield from recurrences()


def embeddings() -> Iterator[tuple[str, Case]]:
    """Words, places and segments."""
    draw = np.random.default_rng(0)
    words, segments = (draw.integers(0, size, (BATCH, PLACES)).astype(np.int32) for size in (9, 2))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 2]], np.int32)
    shapes = [(9, SIZE), (8, SIZE), (2, SIZE), (SIZE,), (SIZE,)]
    both, epsilon = ("float32", "int32"), {"epsilon": 1e-5}
    for dtype in KINDS:
        tables = [small(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]
        factors, zeros = [one(0.01 * each) for each in range(1, 6)], [zero_of(dtype, 128 + each) for each in range(5)]
        given = [words, segments, *tables, mask, *factors, *zeros]
        yield f"embedding {dtype}", Case("QEmbedLayerNormalization", given, epsilon, both)
        for place in (1, 4, 7, 10, 15):
            given[place] = None
        yield f"embedding {dtype} plain", Case("QEmbedLayerNormalization", given, epsilon, both)
    tables = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    given = [words, segments, *tables, mask, np.array([[3, 4, 5, 6, 7]], np.int32)]
    yield "embedding of floats", Case("EmbedLayerNormalization", given, epsilon, (*both, "float32"))
    given = [words, None, *tables[:2], None, *tables[3:]]
    yield "embedding of floats, plain", Case("EmbedLayerNormalization", given, epsilon, both)


def recurrences() -> Iterator[tuple[str, Case]]:
    """One sequence: with several, ONNX Runtime's threads have a range of numbers each."""
    steps, size, state = 7, 6, 8
    for dtype in KINDS:
        for count, direction in ((1, "forward"), (1, "reverse"), (2, "bidirectional")):
            weights = small(count, size, 4 * state, dtype=dtype), small(count, state, 4 * state, dtype=dtype, seed=1)
            for is_wide in (0, 1):
                shape = (count, 4 * state) if is_wide else (count,)
                middle = 128 if dtype == "uint8" else 0
                parts = [part for seed in (1, 2) for part in (scales(*shape, seed=seed), np.full(shape, middle, dtype))]
                first = [numbers(count, 1, state, seed=seed) for seed in (6, 7)] if is_wide else [None, None]
                peep = numbers(count, 3 * state) if is_wide else None
                given = [
                    numbers(steps, 1, size),
                    *weights,
                    numbers(count, 8 * state, seed=5),
                    None,
                    *first,
                    peep,
                    *parts,
                ]
                attributes = {"hidden_size": state, "direction": direction, "input_forget": is_wide}
                name = f"recurrence {dtype} {direction} {is_wide}"
                yield name, Case("DynamicQuantizeLSTM", given, attributes, ("float32",) * 3)


CASES = dict([*by_place(), *images(), *products(), *packed(), *sequences()])
FOUR_BITS = dict(four_bits())
