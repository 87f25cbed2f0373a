"""One order of all exchanges of a job, for ranks that wait for each other in every one of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from litehouse.errors import RankError, printable

Listed = tuple[tuple[int, ...], str, str]
"""The group, the label and the text of an exchange, as a rank lists it."""


def order_of(lists: Mapping[int, Sequence[Listed]]) -> dict[str, int]:
    """The turns of all exchanges, by label.

    Each rank keeps the order of its file, but for what it sends to a single rank: that waits for the moment at which
    the other one receives it, as if it was kept in between. Who runs all of its exchanges by their turns waits for no
    one that waits for it.

    Args:
        lists: The exchanges of each rank, in the order of its file.

    Raises:
        RankError: There is no such order.
    """
    left = {rank: deque(item for item in listed if item[0]) for rank, listed in sorted(lists.items())}
    sent: set[str] = set()
    turns: dict[str, int] = {}
    while any(left.values()):
        before = sum(map(len, left.values()))
        for rank, own in left.items():
            while own and _can_run(rank, own[0], left, sent):
                group, label, _ = own[0]
                ends = ends_of(label)
                if ends is not None and ends[0] == rank:
                    sent.add(label)
                else:
                    turns[label] = len(turns)
                for member in group if ends is None else (rank,):
                    left[member].popleft()
        if sum(map(len, left.values())) == before:
            stuck = [f"rank {rank} in {printable(own[0][2])}" for rank, own in left.items() if own]
            raise RankError(
                f"the ranks would wait for each other: {', '.join(stuck)}; their files have exchanges in orders that "
                "do not go together; run them on the CPU, or export them with the same order on all ranks",
                op=next(own[0][2] for own in left.values() if own),
            )
    return turns


def ends_of(label: str) -> tuple[int, int] | None:
    """Who sends, and who receives, in an exchange between two ranks; None for others."""
    if not label.startswith("Send "):
        return None
    source, target = label.split(" ")[1].split(">")
    return int(source), int(target)


def _can_run(rank: int, item: Listed, left: Mapping[int, deque[Listed]], sent: set[str]) -> bool:
    group, label, _ = item
    ends = ends_of(label)
    if ends is None:
        return all(left.get(member) and left[member][0][1] == label for member in group)
    return ends[0] == rank or label in sent
