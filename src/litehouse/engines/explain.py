"""Says in words what a race has found."""

from __future__ import annotations

from collections.abc import Sequence

from litehouse.engines.choice import Figure


def explain(names: Sequence[str], figures: Sequence[Figure], best: int, unfit: Sequence[str], least: float) -> str:
    """Why one was chosen. A ratio is not that of the medians alone, so only the first has its time beside it.

    Args:
        names: Those that took part.
        figures: What was measured of them.
        best: The place of the one that was chosen.
        unfit: Those that took no part.
        least: The lead that another than the first must have.
    """
    texts = [f"{names[0]} {_milliseconds(figures[0])}"]
    texts += [f"{name} {figure.lead:.2f}x as fast" for name, figure in list(zip(names, figures, strict=True))[1:]]
    text = ", ".join(texts)
    if len(figures) > 1:
        rounds = figures[0].rounds
        text += f", in {rounds} round{'s' if rounds > 1 else ''}: {names[best]}"
        if best == 0 and max(figure.lead for figure in figures) > 1:
            text += f" stays, with less than {least - 1:.0%} between them"
    if unfit:
        text += f"; {' and '.join(unfit)} computed other numbers and took no part"
    return text


def _milliseconds(figure: Figure) -> str:
    return f"{figure.milliseconds:.3g} ms" if figure.milliseconds < 1000 else f"{figure.milliseconds:.0f} ms"
