"""Translates a file without a look at the weights that may be updated later, so that nothing is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import onnx_ir as ir

from litehouse.errors import UnsupportedOpError, WeightError
from litehouse.weights import Weights

SMALL = 8  # elements; a pattern that fits everything does not mean ratios and bounds that only shape the graph
FEW = 64  # elements; nor, where something cannot be translated without their values, constants of other kinds

Translated = TypeVar("Translated")


def translate(
    make: Callable[[frozenset[str]], Translated],
    graph_of: Callable[[Translated], ir.Graph],
    weights: Weights,
    patterns: Sequence[str],
    path: str,
) -> tuple[Translated, tuple[str, ...]]:
    """A translation, and the weights that it leaves open.

    Args:
        make: Translates the file without the values of these weights.
        graph_of: The graph of a translation.
        weights: Its weights.
        patterns: What the names of those that may be updated are like.
        path: The file, for errors.

    Raises:
        WeightError: An op cannot be translated without the value of one of them.
    """
    plain = make(frozenset())
    if not patterns:
        return plain, ()
    refusal: UnsupportedOpError | None = None
    used = {name for name, value in graph_of(plain).initializers.items() if value.uses()}
    for names in _choices(weights, patterns, used):
        try:
            return make(frozenset(names)), names
        except UnsupportedOpError as error:
            if not error.reason:
                raise
            refusal = error
    assert refusal is not None  # the loop ran
    raise WeightError(
        f"{path}: {refusal.op} (node {refusal.node}) cannot be built without the value of a weight that was declared "
        f"updatable ({refusal.reason}); declare fewer weights updatable"
    ) from refusal


def _choices(weights: Weights, patterns: Sequence[str], used: set[str]) -> Iterator[tuple[str, ...]]:
    """The weights that fit the patterns: all of them, then without small ones that were not named."""
    fitting = weights.like(patterns)
    found = tuple(name for name in fitting if name in patterns or name in used or weights[name].size > SMALL)
    yield found
    large = tuple(name for name in found if name in patterns or weights[name].size > FEW)
    if large != found:
        yield large
