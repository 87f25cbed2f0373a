"""Kinds of values on the command lines of benchmarks."""

import argparse
from collections.abc import Callable, Sequence


def some(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """Words with commas between, each of which is known."""

    def words(text: str) -> tuple[str, ...]:
        found = tuple(text.split(","))
        if unknown := set(found) - set(known):
            raise argparse.ArgumentTypeError(f"{', '.join(sorted(unknown))}: there are {', '.join(known)}")
        return found

    return words


def numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between."""
    return tuple(int(part) for part in text.split(","))
