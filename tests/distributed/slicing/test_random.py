"""Random graphs of ops that the slicer knows, cut and whole."""

import numpy as np
import pytest

from benchmarks.networks.plain import FLOAT, Builder
from distributed.slicing.support import FREE, assert_same, sliced
from litehouse.distributed.slicing import choice

SEEDS = range(60)


class Maker:
    """Grows a graph: values of shape [2, 6, width] or [2, heads, 6, width], each made of earlier ones."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.b = Builder(seed)
        self.values: list[tuple[str, tuple[int, ...]]] = [("x", (2, 6, 12))]

    def pick(self, rank: int = 0) -> tuple[str, tuple[int, ...]]:
        fitting = [item for item in self.values if not rank or len(item[1]) == rank]
        return fitting[int(self.random.integers(max(0, len(fitting) - 4), len(fitting)))] if fitting else self.values[0]

    def grow(self, steps: int) -> bytes:
        kinds = [self.linear, self.linear, self.unary, self.binary, self.heads, self.attend, self.merge, self.along,
                 self.cut, self.join, self.shift, self.fused, self.table]  # fmt: skip
        for _ in range(steps):
            made = kinds[int(self.random.integers(len(kinds)))]()
            if made is not None:
                self.values.append(made)
        outputs = {f"y{i}": (name, None) for i, (name, _) in enumerate(self.values[-2:])}
        return self.b.model({"x": (FLOAT, (2, 6, 12))}, outputs)

    def name(self) -> str:
        return f"w{len(self.b.weights)}"

    def linear(self) -> tuple[str, tuple[int, ...]] | None:
        value, shape = self.pick(3)
        width = int(self.random.choice([12, 24, 16, 15]))
        weight = self.b.weight(self.name(), shape[-1], width)
        made = self.b.op("MatMul", value, weight)
        if self.random.random() < 0.5:
            made = self.b.op("Add", made, self.b.weight(self.name(), width))
        return made, (*shape[:-1], width)

    def unary(self) -> tuple[str, tuple[int, ...]]:
        value, shape = self.pick()
        return self.b.op(
            str(self.random.choice(["Relu", "Sigmoid", "Tanh", "Neg", "Softsign", "Identity"])), value
        ), shape

    def binary(self) -> tuple[str, tuple[int, ...]] | None:
        value, shape = self.pick()
        others = [name for name, each in self.values if each == shape]
        other = str(self.random.choice(others))
        if self.random.random() < 0.3:
            other = self.b.weight(
                self.name(), *(size if self.random.random() < 0.5 else 1 for size in shape), scale=1.0
            )
        return self.b.op(str(self.random.choice(["Add", "Mul", "Sub", "Max"])), value, other), shape

    def heads(self) -> tuple[str, tuple[int, ...]] | None:
        value, shape = self.pick(3)
        count = int(self.random.choice([n for n in (1, 2, 3, 4, 6, 12) if shape[2] % n == 0]))
        h = self.b.op("Reshape", value, self.b.ints(0, 0, count, shape[2] // count))
        return self.b.op("Transpose", h, perm=[0, 2, 1, 3]), (2, count, 6, shape[2] // count)

    def merge(self) -> tuple[str, tuple[int, ...]] | None:
        value, shape = self.pick(4)
        if len(shape) != 4 or shape[2] != 6:
            return None
        h = self.b.op("Transpose", value, perm=[0, 2, 1, 3])
        return self.b.op("Reshape", h, self.b.ints(2, 6, -1)), (2, 6, shape[1] * shape[3])

    def attend(self) -> tuple[str, tuple[int, ...]] | None:
        value, shape = self.pick(4)
        if len(shape) != 4 or shape[2] != 6:
            return None
        scores = self.b.op("MatMul", value, self.b.op("Transpose", value, perm=[0, 1, 3, 2]))
        return self.b.op("MatMul", self.b.op("Softmax", scores, axis=-1), value), shape

    def along(self) -> tuple[str, tuple[int, ...]]:
        value, shape = self.pick()
        axis = int(self.random.integers(1, len(shape)))
        kind = self.random.random()
        if kind < 0.4:
            return self.b.op("Softmax", value, axis=axis), shape
        if kind < 0.7:
            return self.b.op("Sub", value, self.b.op("ReduceMean", value, self.b.ints(axis), keepdims=1)), shape
        return self.b.op("CumSum", value, self.b.array(axis, np.int64)), shape

    def cut(self) -> tuple[str, tuple[int, ...]] | None:
        value, shape = self.pick()
        axis = len(shape) - 1
        if shape[axis] % 2:
            return None
        half = shape[axis] // 2
        if self.random.random() < 0.5:
            first, second = self.b.op("Split", value, self.b.ints(half, half), outputs=2, axis=axis)
        else:
            first, second = (
                self.b.op("Slice", value, self.b.ints(start), self.b.ints(start + half), self.b.ints(axis))
                for start in (0, half)
            )
        return self.b.op("Mul", first, self.b.op("Sigmoid", second)), (*shape[:axis], half)

    def join(self) -> tuple[str, tuple[int, ...]] | None:
        value, shape = self.pick()
        axis = int(self.random.integers(1, len(shape)))
        if shape[axis] > 24 or (len(shape) == 3 and axis == 1) or (len(shape) == 4 and axis == 2):
            return None
        made = self.b.op("Concat", value, self.b.op("Neg", value), axis=axis)
        return made, tuple(2 * size if place == axis else size for place, size in enumerate(shape))

    def shift(self) -> tuple[str, tuple[int, ...]]:
        value, shape = self.pick()
        axis = int(self.random.integers(len(shape)))
        size = shape[axis]
        order = self.b.ints(*((place + 1) % size for place in range(size)))
        return self.b.op("Gather", value, order, axis=axis), shape

    def fused(self) -> tuple[str, tuple[int, ...]]:
        value, shape = self.pick(3)
        h = self.b.op("MatMul", value, self.b.weight(self.name(), shape[-1], 36))
        q, k, v = self.b.op("Split", h, self.b.ints(12, 12, 12), outputs=3, axis=-1)
        return self.b.op("Add", self.b.op("Mul", q, k), v), (*shape[:-1], 12)

    def table(self) -> tuple[str, tuple[int, ...]]:
        value, shape = self.pick(3)
        best = self.b.op("ArgMax", value, axis=-1, keepdims=0)
        return self.b.op("Gather", self.b.weight(self.name(), shape[-1], 12), best), (2, 6, 12)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "SMALLEST", 8)
    data = Maker(seed).grow(14)
    x = np.random.default_rng(seed).standard_normal((2, 6, 12)).astype("f")
    for ranks in (2, 3):
        assert_same(sliced(data, ranks, FREE), [x])
    assert_same(sliced(data, 2, pipeline=True), [x])


def test_random_graphs_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would be worth little if nothing were cut."""
    monkeypatch.setattr(choice, "SMALLEST", 8)
    parts = [sliced(Maker(seed).grow(14), 2, FREE) for seed in SEEDS[:20]]
    whole, held = sum(made.bytes_whole for made in parts), sum(made.bytes_per_rank[0] for made in parts)
    assert held < 0.7 * whole
