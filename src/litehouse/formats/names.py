"""Names for the tensors of a model."""

from __future__ import annotations


def unique(names: list[str], taken: set[str]) -> list[str]:
    """The names, each made different from all others by a number behind it where need be."""
    result: list[str] = []
    used = set(taken)
    counts: dict[str, int] = {}
    for index, wanted in enumerate(names):
        wanted = wanted or f"output_{index}"
        name = wanted
        while name in used:
            counts[wanted] = counts.get(wanted, 0) + 1
            name = f"{wanted}_{counts[wanted]}"
        used.add(name)
        result.append(name)
    return result
