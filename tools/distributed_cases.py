"""The jobs of several ranks that `make_distributed_fixtures.py` exports: networks, inputs, and what numpy computes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.ops import operations as P

Arrays = list[np.ndarray]


@dataclass(frozen=True)
class Case:
    """One job.

    Attributes:
        network: Makes the network of a rank.
        inputs: Gives what a rank takes.
        expected: Gives the outputs of all ranks, for the inputs of all.
        ranks: How many there are.
        groups: Groups of ranks besides the one of all.
        meaningless: Ranks whose outputs have a shape, and no meaning.
    """

    network: Callable[[int], nn.Cell]
    inputs: Callable[[int], Arrays]
    expected: Callable[[list[Arrays]], list[Arrays]]
    ranks: int = 2
    groups: dict[str, list[int]] = field(default_factory=dict)
    meaningless: tuple[int, ...] = ()


def drawn(seed: int, *shape: int, dtype: str = "float32") -> np.ndarray:
    """Short fractions, which no order of a few additions rounds."""
    return (np.random.default_rng(seed).integers(-24, 25, shape) / 16).astype(dtype)


def rows(rank: int) -> Arrays:
    return [drawn(100 + rank, 4, 6)]


def same(_: int) -> Arrays:
    return [drawn(7, 3, 8)]


def part(array: np.ndarray, rank: int, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.split(array, 2, axis)[rank])


def weight(array: np.ndarray, name: str) -> Parameter:
    return Parameter(Tensor(array), name=name)


class Plain(nn.Cell):
    """One op, and a little arithmetic on both sides."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def construct(self, x):
        return self.op(x + x) * 2


class Bfloat16(Plain):
    def construct(self, x):
        return ops.cast(self.op(ops.cast(x, ms.bfloat16)), ms.float32)


class Mlp(nn.Cell):
    """Two layers, the inner width divided."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.inner = weight(part(drawn(1, 8, 16), rank, 1), "inner.weight")
        self.inner_bias = weight(part(drawn(2, 16), rank, 0), "inner.bias")
        self.outer = weight(part(drawn(3, 16, 5), rank, 0), "outer.weight")
        self.outer_bias = weight(drawn(4, 5), "outer.bias")
        self.reduce = P.AllReduce()

    def construct(self, x):
        hidden = ops.relu(ops.matmul(x, self.inner) + self.inner_bias)
        return self.reduce(ops.matmul(hidden, self.outer)) + self.outer_bias


def mlp(inputs: list[Arrays]) -> list[Arrays]:
    hidden = np.maximum(inputs[0][0] @ drawn(1, 8, 16) + drawn(2, 16), 0)
    return [[hidden @ drawn(3, 16, 5) + drawn(4, 5)]] * 2


class Columns(nn.Cell):
    """A layer whose columns are divided; all ranks put the result together."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.weight = weight(part(drawn(5, 8, 10), rank, 1), "weight")
        self.gather = P.AllGather()

    def construct(self, x):
        columns = ops.transpose(ops.matmul(x, self.weight), (1, 0))
        return ops.transpose(self.gather(columns), (1, 0))


class Rows(nn.Cell):
    """One MatMul, the rows of its weight divided: each rank uses its columns of an input that all have."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.start, self.stop = 8 * rank, 8 * rank + 8
        self.matmul = P.MatMul()
        self.weight = weight(part(drawn(6, 16, 12), rank, 0), "weight")
        self.reduce = P.AllReduce()

    def construct(self, x):
        return self.reduce(self.matmul(x[:, self.start : self.stop], self.weight))


class Sizes(Plain):
    """Sends and receives other sizes on each rank."""

    def __init__(self, op: Any, sent: tuple[int, ...], received: tuple[int, ...]) -> None:
        super().__init__(op)
        self.sent, self.received = sent, received

    def construct(self, x):
        return self.op(x + x, self.sent, self.received) * 2


SIZES = ((5, 7), (4, 8))  # what ranks 0 and 1 send to 0 and 1


def all_to_all_v(inputs: list[Arrays]) -> list[Arrays]:
    pieces = [np.split(array * 4, [sizes[0]]) for (array,), sizes in zip(inputs, SIZES, strict=True)]
    return [[np.concatenate([pieces[0][rank], pieces[1][rank]])] for rank in range(2)]


class Several(Plain):
    """An op of a tuple."""

    def construct(self, x, y):
        first, second = self.op((x, y + y))
        return first * 2, second * 2


class First(nn.Cell):
    """The first stage of two."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = weight(drawn(8, 8, 6), "first.weight")
        self.send = P.Send(sr_tag=3, dest_rank=1)

    def construct(self, x):
        y = ops.relu(ops.matmul(x, self.weight))
        return ops.depend(y, self.send(y))


class Second(nn.Cell):
    """The last stage of two."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = weight(drawn(9, 6, 5), "second.weight")
        self.receive = P.Receive(sr_tag=3, src_rank=0, shape=[3, 6], dtype=ms.float32)

    def construct(self, x):
        return ops.matmul(self.receive(x), self.weight)


def stages(inputs: list[Arrays]) -> list[Arrays]:
    first = np.maximum(inputs[0][0] @ drawn(8, 8, 6), 0)
    return [[first], [first @ drawn(9, 6, 5)]]


def neighbours(rank: int) -> nn.Cell:
    """Each rank sends two tensors to the other, of other shapes than it gets."""
    shapes = ([4, 6], [3]), ([2, 2], [5])
    other = [1 - rank] * 2
    return Several(P.NeighborExchange(other, other, shapes[1 - rank], shapes[rank], ms.float32))


def neighbour_inputs(rank: int) -> Arrays:
    return [drawn(20, 4, 6), drawn(21, 3)] if rank == 0 else [drawn(22, 2, 2), drawn(23, 5)]


def doubled(arrays: Arrays) -> Arrays:
    return [arrays[0] * 2, arrays[1] * 4]


def tiles(rank: int) -> nn.Cell:
    """An image in two tiles, one above the other: rank 0 gets a row from below, rank 1 two from above."""
    beside = [-1] * 8
    beside[0 if rank else 4] = 1 - rank
    sent, received = ([0, 2, 0, 0], [0, 1, 0, 0]) if rank == 0 else ([1, 0, 0, 0], [2, 0, 0, 0])
    return Plain(P.NeighborExchangeV2(beside, sent, beside, received, "NCHW"))


def tile_inputs(rank: int) -> Arrays:
    return [drawn(30 + rank, 1, 2, 4, 3)]


def tiled(inputs: list[Arrays]) -> list[Arrays]:
    (upper,), (lower,) = inputs
    return [[np.concatenate([upper, lower[:, :, :1]], 2) * 4], [np.concatenate([upper[:, :, -2:], lower], 2) * 4]]


class Waits(Plain):
    def construct(self, x):
        y = x + x
        self.op()
        return y * 2


PAIRS = {"pair_0": [0, 1], "pair_1": [2, 3], "across_0": [0, 2], "across_1": [1, 3]}


class Square(nn.Cell):
    """Four ranks in rows and columns: a sum within a row, and the rows put together."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.reduce = P.AllReduce(group=f"pair_{rank // 2}")
        self.gather = P.AllGather(group=f"across_{rank % 2}")

    def construct(self, x):
        return self.gather(self.reduce(x + x) * 2)


def square(inputs: list[Arrays]) -> list[Arrays]:
    sums = [(inputs[0][0] + inputs[1][0]) * 4, (inputs[2][0] + inputs[3][0]) * 4]
    return [[np.concatenate(sums)]] * 4


def reduced(function: Any, dtype: str = "float32", factor: int = 2) -> Callable[[list[Arrays]], list[Arrays]]:
    def expected(inputs: list[Arrays]) -> list[Arrays]:
        (one,), (other,) = inputs
        return [[(function(one * factor, other * factor) * factor).astype(dtype)]] * 2

    return expected


def split(inputs: list[Arrays]) -> list[Arrays]:
    total = (inputs[0][0] + inputs[1][0]) * 4
    return [[total[:2]], [total[2:]]]


def exchanged(inputs: list[Arrays]) -> list[Arrays]:
    return [[np.concatenate([arrays[0][2 * rank : 2 * rank + 2] * 4 for arrays in inputs], 1)] for rank in range(2)]


def nothing() -> Arrays:
    return [np.zeros(1, "float32")]


def typed(dtype: str) -> Callable[[int], Arrays]:
    return lambda rank: [(rows(rank)[0] * 16).astype(dtype)]


CASES: dict[str, Case] = {
    "tp_mlp": Case(Mlp, same, mlp),
    "matmul": Case(Rows, lambda _: [drawn(10, 4, 16)], lambda inputs: [[inputs[0][0] @ drawn(6, 16, 12)]] * 2),
    "all_gather": Case(Columns, same, lambda inputs: [[inputs[0][0] @ drawn(5, 8, 10)]] * 2),
    "all_reduce_max": Case(lambda _: Plain(P.AllReduce("max")), rows, reduced(np.maximum)),
    "all_reduce_min": Case(lambda _: Plain(P.AllReduce("min")), rows, reduced(np.minimum)),
    "all_reduce_prod": Case(lambda _: Plain(P.AllReduce("prod")), rows, reduced(np.multiply)),
    "all_reduce_int32": Case(lambda _: Plain(P.AllReduce()), typed("int32"), reduced(np.add, "int32")),
    "all_reduce_fp16": Case(lambda _: Plain(P.AllReduce()), typed("float16"), reduced(np.add, "float16")),
    "all_reduce_bf16": Case(lambda _: Bfloat16(P.AllReduce()), rows, reduced(np.add, factor=1)),
    "reduce_scatter": Case(lambda _: Plain(P.ReduceScatter()), rows, split),
    "all_to_all": Case(lambda _: Plain(P.AlltoAll(2, 0, 1)), rows, exchanged),
    "all_to_all_v": Case(
        lambda rank: Sizes(P.AlltoAllV(), SIZES[rank], (SIZES[0][rank], SIZES[1][rank])),
        lambda rank: [drawn(40 + rank, 12)],
        all_to_all_v,
    ),
    "broadcast": Case(
        lambda _: Several(P.Broadcast(1)),
        lambda rank: [*rows(rank), drawn(50 + rank, 3)],
        lambda inputs: [doubled(inputs[1])] * 2,
    ),
    "pipeline": Case(lambda rank: Second() if rank else First(), same, stages),
    "neighbor_exchange": Case(neighbours, neighbour_inputs, lambda inputs: [doubled(inputs[1]), doubled(inputs[0])]),
    "neighbor_exchange_v2": Case(tiles, tile_inputs, tiled),
    "barrier": Case(lambda _: Waits(P.Barrier()), rows, lambda inputs: [[arrays[0] * 4] for arrays in inputs]),
    "reduce": Case(
        lambda _: Plain(P.Reduce(1)),
        rows,
        lambda inputs: [nothing(), [(inputs[0][0] + inputs[1][0]) * 4]],
        meaningless=(0,),
    ),
    "collective_gather": Case(
        lambda _: Plain(P.CollectiveGather(0)),
        rows,
        lambda inputs: [[np.concatenate([inputs[0][0], inputs[1][0]]) * 4], nothing()],
        meaningless=(1,),
    ),
    "collective_scatter": Case(
        lambda _: Plain(P.CollectiveScatter(0)), rows, lambda inputs: [[inputs[0][0][:2] * 4], [inputs[0][0][2:] * 4]]
    ),
    "groups": Case(Square, rows, square, ranks=4, groups=PAIRS),
}
