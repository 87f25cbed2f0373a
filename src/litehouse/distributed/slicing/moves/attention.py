"""Attention as one op. Heads are cut."""

from __future__ import annotations

from litehouse.distributed.slicing.cuts import Cut
from litehouse.distributed.slicing.moves.registry import Move, Site, aligned, moves


@moves("Attention")
def attends(site: Site, cut: Cut) -> Move | None:
    """Queries, keys and values of whole heads; a rank has the queries that its keys belong to."""
    sizes = [site.sizes(place) for place in (0, 1, 2)]
    if any(size is None for size in sizes) or any(site.has(place) for place in (4, 5, 6)) or len(cut.blocks) != 1:
        return None
    query, key, value = (size for size in sizes if size is not None)
    if len(query) == 4:
        if cut.axis > 1 or not isinstance(key[1], int) or not isinstance(value[1], int):
            return None
        found = (
            {0: cut, 1: Cut(cut.axis, (key[1],)), 2: Cut(cut.axis, (value[1],))}
            if cut.axis
            else {0: cut, 1: cut, 2: cut}
        )
        return _masked(site, cut, found, (*query[:3], None))
    return None


def _masked(site: Site, cut: Cut, found: dict[int, Cut], scores: tuple[int | str | None, ...]) -> Move | None:
    """The mask is spread over the scores."""
    own = aligned(site.sizes(3), scores, cut) if site.has(3) else True
    if own is False:
        return None
    return Move(found | {3: own} if isinstance(own, Cut) else found)
