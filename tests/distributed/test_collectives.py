"""Every exchange, over every transport, against a calculation by hand in numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from distributed.jobs import TRANSPORTS, in_all, mails
from litehouse.distributed.collectives import EXCHANGES, Call
from litehouse.distributed.mail import Key, Mail
from litehouse.distributed.meanings import PARTED_BYTES
from litehouse.errors import RankError

DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "int64", "uint8"]
MANY = PARTED_BYTES // 4 + 7  # floats: three and more ranks reduce parts of them, of unequal sizes


def values(rank: int, shape: tuple[int, ...], dtype: str = "float32") -> np.ndarray:
    """What a rank has: small whole numbers, which all dtypes hold and of which no sum is rounded."""
    kind = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    return np.random.default_rng(rank).integers(1, 5, shape).astype(kind)


def exchange(
    world: list[Mail],
    op: str,
    inputs: Callable[[int], list[np.ndarray]],
    group: tuple[int, ...] | None = None,
    attributes: Callable[[int], dict[str, Any]] | dict[str, Any] | None = None,
) -> dict[int, list[np.ndarray]]:
    """What each rank of the group gets."""
    group = group or tuple(range(len(world)))

    def one(place: int) -> list[np.ndarray]:
        rank = group[place]
        found = attributes(rank) if callable(attributes) else attributes or {}
        call = Call(world[rank], Key(1, 1, op), group, found, f"{op} (node test)")
        with world[rank].using:
            return EXCHANGES[op](call, *inputs(rank))()

    return dict(zip(group, in_all(len(group), one), strict=True))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_all_reduce(transport: str, ranks: int) -> None:
    with mails(transport, ranks) as world:
        for shape in [(3, 5), (), (0, 4), (MANY,)]:
            found = exchange(world, "AllReduce", lambda rank, shape=shape: [values(rank, shape)])
            for rank in range(ranks):
                np.testing.assert_array_equal(found[rank][0], sum(values(other, shape) for other in range(ranks)))


@pytest.mark.parametrize(
    ("op", "reduction"), [("sum", np.add), ("prod", np.multiply), ("max", np.maximum), ("min", np.minimum)]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(op: str, reduction: Any, dtype: str) -> None:
    with mails("memory", 3) as world:
        found = exchange(world, "AllReduce", lambda rank: [values(rank, (4, 3), dtype)], attributes={"op": op})
    first, second, third = (values(rank, (4, 3), dtype).astype(np.float64) for rank in range(3))
    for rank in range(3):
        assert found[rank][0].dtype == values(0, (1,), dtype).dtype
        np.testing.assert_array_equal(found[rank][0].astype(np.float64), reduction(reduction(first, second), third))


def test_short_floats_are_rounded_once() -> None:
    x = [np.float16(2048.0), np.float16(1.0), np.float16(1.0)]
    with mails("local", 3) as world:
        found = exchange(world, "AllReduce", lambda rank: [np.full((2,), x[rank])])
    for rank in range(3):  # one by one in 16 bits, 2048 + 1 is 2048, twice
        np.testing.assert_array_equal(found[rank][0], np.full((2,), 2050, np.float16))


@pytest.mark.parametrize("count", [5, MANY])
def test_all_ranks_have_the_same_sum_to_the_bit(count: int) -> None:
    with mails("memory", 4) as world:
        found = exchange(world, "AllReduce", lambda rank: [np.random.default_rng(rank).normal(size=count).astype("f")])
    assert len({result.tobytes() for (result,) in found.values()}) == 1


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_gather(transport: str) -> None:
    with mails(transport, 3) as world:
        found = exchange(world, "AllGather", lambda rank: [values(rank, (2, 5))])
    for rank in range(3):
        np.testing.assert_array_equal(found[rank][0], np.concatenate([values(other, (2, 5)) for other in range(3)]))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_reduce_scatter(transport: str) -> None:
    with mails(transport, 3) as world:
        found = exchange(world, "ReduceScatter", lambda rank: [values(rank, (6, 2))], attributes={"op": "sum"})
    whole = sum(values(rank, (6, 2)) for rank in range(3))
    for rank in range(3):
        np.testing.assert_array_equal(found[rank][0], whole[2 * rank : 2 * rank + 2])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_to_all(transport: str) -> None:
    with mails(transport, 2) as world:
        attributes = {"split_dim": 1, "concat_dim": 0}
        found = exchange(world, "AlltoAll", lambda rank: [values(rank, (3, 4))], attributes=attributes)
    for rank in range(2):
        pieces = [values(other, (3, 4))[:, 2 * rank : 2 * rank + 2] for other in range(2)]
        np.testing.assert_array_equal(found[rank][0], np.concatenate(pieces))


def test_all_to_all_v() -> None:
    counts = np.array([[1, 2], [3, 0]])  # from each rank, to each rank; in blocks of two numbers
    with mails("memory", 2) as world:
        found = exchange(
            world,
            "AlltoAllV",
            lambda rank: [values(rank, (2 * counts[rank].sum(),)), counts[rank], counts[:, rank]],
            attributes={"block_size": 2},
        )
    first, second = values(0, (6,)), values(1, (6,))
    np.testing.assert_array_equal(found[0][0], np.concatenate([first[:2], second]))
    np.testing.assert_array_equal(found[1][0], first[2:])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_broadcast(transport: str) -> None:
    with mails(transport, 3) as world:
        found = exchange(
            world, "Broadcast", lambda rank: [values(rank, (4,)), values(rank + 9, (2, 2))], attributes={"root_rank": 1}
        )
    for rank in range(3):
        np.testing.assert_array_equal(found[rank][0], values(1, (4,)))
        np.testing.assert_array_equal(found[rank][1], values(10, (2, 2)))


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("size", [10, 100_000])
def test_send_and_receive(transport: str, size: int) -> None:
    with mails(transport, 2) as world:

        def one(rank: int) -> np.ndarray:
            op, name = (("Send", "dest_rank"), ("Receive", "src_rank"))[rank]
            call = Call(world[rank], Key(1, 1, "letter"), (0, 1), {name: 1 - rank}, op)
            return EXCHANGES[op](call, values(rank, (size,)))()[0]

        sent, received = in_all(2, one)
    np.testing.assert_array_equal(received, values(0, (size,)))
    np.testing.assert_array_equal(sent, values(0, (size,)))


def test_neighbor_exchange_in_a_ring() -> None:
    def attributes(rank: int) -> dict[str, Any]:
        return {"send_rank_ids": [(rank + 1) % 3, (rank + 2) % 3], "recv_rank_ids": [(rank + 2) % 3, (rank + 1) % 3]}

    with mails("memory", 3) as world:
        found = exchange(
            world, "NeighborExchange", lambda rank: [values(rank, (2,)), values(rank + 5, (3,))], attributes=attributes
        )
    for rank in range(3):
        np.testing.assert_array_equal(found[rank][0], values((rank + 2) % 3, (2,)))
        np.testing.assert_array_equal(found[rank][1], values((rank + 1) % 3 + 5, (3,)))


def test_neighbor_exchange_to_one_rank_twice() -> None:
    attributes = lambda rank: {"send_rank_ids": [1 - rank] * 2, "recv_rank_ids": [1 - rank] * 2}  # noqa: E731
    with mails("local", 2) as world:
        found = exchange(
            world, "NeighborExchange", lambda rank: [values(rank, (2,)), values(rank + 5, (3,))], attributes=attributes
        )
    for rank in range(2):
        np.testing.assert_array_equal(found[rank][0], values(1 - rank, (2,)))
        np.testing.assert_array_equal(found[rank][1], values(6 - rank, (3,)))


def test_tiles_get_the_edges_of_their_neighbours() -> None:
    """Four ranks have a quarter of an image each; with edges of one row and two columns each sees its surroundings."""
    image = np.arange(2 * 8 * 8, dtype="f").reshape(1, 2, 8, 8)
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (2, 2)))
    ways = [(-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1)]  # top, then clockwise

    def attributes(rank: int) -> dict[str, Any]:
        row, column = divmod(rank, 2)
        ids = [
            2 * (row + down) + column + right if 0 <= row + down < 2 and 0 <= column + right < 2 else -1
            for down, right in ways
        ]
        lengths = [1, 1, 2, 2]
        return {"send_rank_ids": ids, "recv_rank_ids": ids, "send_lens": lengths, "recv_lens": lengths}

    def tile(rank: int) -> np.ndarray:
        row, column = divmod(rank, 2)
        return image[..., 4 * row : 4 * row + 4, 4 * column : 4 * column + 4]

    with mails("memory", 4) as world:
        found = exchange(world, "NeighborExchangeV2", lambda rank: [tile(rank)], attributes=attributes)
    for rank in range(4):
        row, column = divmod(rank, 2)
        np.testing.assert_array_equal(found[rank][0], padded[..., 4 * row : 4 * row + 6, 4 * column : 4 * column + 8])


@pytest.mark.parametrize("op", ["Reduce", "CollectiveGather"])
def test_results_for_one_rank(op: str) -> None:
    with mails("memory", 3) as world:
        found = exchange(world, op, lambda rank: [values(rank, (2, 2))], attributes={"dest_rank": 2, "op": "sum"})
    arrays = [values(rank, (2, 2)) for rank in range(3)]
    np.testing.assert_array_equal(found[2][0], sum(arrays) if op == "Reduce" else np.concatenate(arrays))
    assert found[0][0].shape == found[1][0].shape == (1,)


def test_collective_scatter() -> None:
    with mails("memory", 2) as world:
        found = exchange(world, "CollectiveScatter", lambda rank: [values(rank, (4, 3))], attributes={"src_rank": 1})
    for rank in range(2):
        np.testing.assert_array_equal(found[rank][0], values(1, (4, 3))[2 * rank : 2 * rank + 2])


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_groups_of_some_ranks_at_once(transport: str) -> None:
    groups = [(0, 2), (3, 1)]  # a rank is named by its place in the group
    with mails(transport, 4) as world:

        def one(rank: int) -> np.ndarray:
            group = groups[rank % 2]
            call = Call(world[rank], Key(1, 1, f"AllGather {group}"), group, {}, "AllGather")
            return EXCHANGES["AllGather"](call, values(rank, (2,)))()[0]

        found = in_all(4, one)
    for rank in range(4):
        np.testing.assert_array_equal(found[rank], np.concatenate([values(other, (2,)) for other in groups[rank % 2]]))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_order_of_letters_does_not_matter(transport: str) -> None:
    """Many large and small letters are under way at once, and read in another order than they were sent in."""
    names, count = [f"letter {number}" for number in range(40)], 2
    with mails(transport, count) as world:

        def one(rank: int) -> list[int]:
            mail, found = world[rank], []
            for number, name in enumerate(names):
                array = np.full(20_000 if number % 2 else 3, number, np.int32)
                mail.post(1 - rank, Key(1, 1, name), array, name)
            for name in names[::-1] if rank else names:
                with mail.fetched(1 - rank, Key(1, 1, name), name) as array:
                    assert (array == array[0]).all()
                    found.append(int(array[0]))
            return found

        forward, backward = in_all(count, one)
    assert forward == list(range(40))
    assert backward == list(range(40))[::-1]


def test_an_array_may_change_when_it_was_sent() -> None:
    with mails("memory", 2) as world:
        for size in (3, 50_000):
            array = np.full(size, 1, np.int32)
            world[0].post(1, Key(1, size, "x"), array, "x")
            array[:] = 2
            with world[1].fetched(0, Key(1, size, "x"), "x") as found:
                assert (found == 1).all()


def test_wrong_shapes_name_the_rank_and_the_op() -> None:
    with mails("local", 2) as world:

        def one(rank: int) -> None:
            call = Call(world[rank], Key(1, 1, "x"), (0, 1), {}, "AllReduce (node layer.3)")
            EXCHANGES["AllReduce"](call, np.zeros(3 + rank, "f"))()

        with pytest.raises(RankError, match=r"rank 1 sent float32 \[4\] in AllReduce \(node layer.3\)") as caught:
            in_all(2, one)
    assert (caught.value.rank, caught.value.op) == (1, "AllReduce (node layer.3)")


def test_sizes_that_are_reduced_in_other_ways_are_told_apart_at_once() -> None:
    """Small arrays are sent whole to all ranks, large ones in parts."""
    with mails("memory", 3) as world:

        def one(rank: int) -> None:
            call = Call(world[rank], Key(1, 1, "x"), (0, 1, 2), {}, "AllReduce (node layer.3)")
            with pytest.raises(RankError, match=r"in AllReduce|over"):
                EXCHANGES["AllReduce"](call, np.zeros(3 if rank == 1 else MANY, "f"))()
            world[rank].fail(RankError("over", rank=1))

        in_all(3, one)


def test_gathering_nothing() -> None:
    with mails("local", 2) as world:
        found = exchange(world, "AllGather", lambda rank: [values(rank, (2, 0))])
    assert found[0][0].shape == (4, 0)


@pytest.mark.parametrize(
    ("op", "attributes", "text"),
    [
        ("AllReduce", {"op": "mean"}, "reduces by 'mean'"),
        ("ReduceScatter", {"op": "sum"}, "has no 2 equal parts along axis 0"),
        ("AlltoAll", {"split_dim": 5, "concat_dim": 0}, "has no 2 equal parts along axis 5"),
        ("Send", {"dest_rank": 7}, "names rank 7 of a group of 2"),
        ("Broadcast", {"root_rank": -1}, "names rank -1"),
    ],
)
def test_what_makes_no_sense_is_refused(op: str, attributes: dict[str, Any], text: str) -> None:
    with mails("local", 2) as world, pytest.raises(RankError, match=text):
        exchange(world, op, lambda rank: [values(rank, (3, 3))], attributes=attributes)
