"""A bar chart as SVG: groups of bars, one colour a contender, a line at 1."""

from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0b6e4f", "#9aa5b1", "#3d7ebf", "#e0a03b", "#b5523b")
LEFT, TOP, HEIGHT, BAR, GAP, FOOT = 44, 56, 220, 19, 18, 66


def bars(title: str, groups: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> str:
    """Draw the groups.

    Args:
        title: The text above.
        groups: A value for each name, by the group's label; a name without a value has no bar.
        names: The contenders, in the order of their bars.
    """
    top = max([1.0, *(value for group in groups.values() for value in group.values())]) * 1.05
    each = BAR * len(names) + GAP
    width = LEFT + each * len(groups) + GAP
    parts = [_text(LEFT, 18, title, size=14, weight="bold"), *_legend(names)]
    for step in _steps(top):
        y = TOP + HEIGHT * (1 - step / top)
        parts.append(_line(LEFT, width - GAP / 2, y, "#444" if step == 1 else "#ddd"))
        parts.append(_text(LEFT - 6, y + 4, f"{step:g}", anchor="end"))
    for number, (label, group) in enumerate(groups.items()):
        left = LEFT + GAP / 2 + number * each
        for place, name in enumerate(names):
            if name in group:
                parts.append(_bar(left + place * BAR, group[name] / top, COLOURS[place % len(COLOURS)], group[name]))
        middle, foot = left + BAR * len(names) / 2, TOP + HEIGHT + 14
        parts.append(_text(middle, foot, label, anchor="end", turn=f"rotate(-25 {middle:.1f} {foot:.1f})"))
    height = TOP + HEIGHT + FOOT
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="11" fill="#222"><title>{escape(title)}</title>'
        f'<rect width="{width}" height="{height}" fill="#fff"/>'
    )
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def _steps(top: float) -> list[float]:
    step = 0.25 if top <= 2 else 0.5 if top <= 4 else float(round(top / 6))
    return sorted({1.0, *(step * k for k in range(int(top / step) + 1))})


def _legend(names: Sequence[str]) -> list[str]:
    parts, x = [], float(LEFT)
    for place, name in enumerate(names):
        parts.append(f'<rect x="{x:.1f}" y="28" width="11" height="11" fill="{COLOURS[place % len(COLOURS)]}"/>')
        parts.append(_text(x + 15, 38, name))
        x += 30 + 6.2 * len(name)
    return parts


def _bar(x: float, part: float, colour: str, value: float) -> str:
    y, height = TOP + HEIGHT * (1 - part), HEIGHT * part
    shape = f'<rect x="{x:.1f}" y="{y:.1f}" width="{BAR - 2}" height="{height:.1f}" fill="{colour}"/>'
    return shape + _text(x + BAR / 2 - 1, y - 3, f"{value:.2f}", size=8, anchor="middle")


def _line(left: float, right: float, y: float, colour: str) -> str:
    return f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'


def _text(
    x: float, y: float, text: str, *, size: int = 11, anchor: str = "start", weight: str = "normal", turn: str = ""
) -> str:
    more = f' transform="{turn}"' if turn else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}"{more}>'
        f"{escape(text)}</text>"
    )
