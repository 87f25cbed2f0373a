"""Writes the Chebyshev series of the Bessel functions, `src/litehouse/formats/mindir/ops/bessel_table.py`.

Needs mpmath. Every series is fitted in 60 digits, and cut where its terms no longer matter to float64.
"""

from collections.abc import Callable
from pathlib import Path

import mpmath as mp

TARGET = Path(__file__).parent.parent / "src/litehouse/formats/mindir/ops/bessel_table.py"
POINTS = 90
SMALLEST = mp.mpf(2) ** -55
mp.mp.dps = 60

HEAD = '''"""Chebyshev series for Bessel functions; written by tools/make_bessel_table.py, which says what each is."""

SERIES: dict[str, tuple[float, ...]] = {
'''


def series(function: Callable[[mp.mpf], mp.mpf], low: float, high: float) -> list[mp.mpf]:
    """Coefficients of Chebyshev polynomials whose sum is the function between two numbers."""
    angles = [mp.pi * (2 * k + 1) / (2 * POINTS) for k in range(POINTS)]
    values = [function((mp.cos(angle) + 1) / 2 * (high - low) + low) for angle in angles]
    found = [
        2 * sum(value * mp.cos(n * angle) for value, angle in zip(values, angles, strict=True)) / POINTS
        for n in range(POINTS // 2)
    ]
    found[0] /= 2
    limit = SMALLEST * max(abs(value) for value in values)
    while abs(found[-1]) < limit:
        found.pop()
    return found


def oscillation(order: int, part: int) -> Callable[[mp.mpf], mp.mpf]:
    """The slow parts of J and Y at x = 8 / sqrt(v): amplitude times cosine and sine of the phase's rest.

    J = sqrt(2 / (pi x)) * (P cos(x') - Q sin(x')), Y with sin and cos, where x' is x less a part of a turn.
    Part 0 gives P, part 1 gives Q * x / 8.
    """

    def function(v: mp.mpf) -> mp.mpf:
        x = 8 / mp.sqrt(v)
        turned = x - (2 * order + 1) * mp.pi / 4
        scale = mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x) * scale, mp.bessely(order, x) * scale
        if part == 0:
            return j * mp.cos(turned) + y * mp.sin(turned)
        return (y * mp.cos(turned) - j * mp.sin(turned)) * x / 8

    return function


def tables() -> dict[str, list[mp.mpf]]:
    """Names are those of the functions, with the range of x."""
    found: dict[str, list[mp.mpf]] = {}
    for order in (0, 1):
        # exp(-x) I(x), over x for order 1, by x up to 8; sqrt(x) exp(-x) I(x) by 8 / x beyond.
        found[f"i{order}_near"] = series(lambda x, n=order: mp.exp(-x) * mp.hyp0f1(n + 1, x * x / 4) / 2**n, 0, 8)
        found[f"i{order}_far"] = series(lambda v, n=order: mp.sqrt(8 / v) * mp.exp(-8 / v) * mp.besseli(n, 8 / v), 0, 1)
        # K(x) less its logarithm times I(x), by x * x up to x = 2; sqrt(x) exp(x) K(x) by 2 / x beyond.
        found[f"k{order}_near"] = series(lambda v, n=order: near_k(n, mp.sqrt(v)), 0, 4)
        found[f"k{order}_far"] = series(lambda v, n=order: mp.sqrt(2 / v) * mp.exp(2 / v) * mp.besselk(n, 2 / v), 0, 1)
        # J(x), over x for order 1, by x * x up to x = 8; the like of Y less its logarithm times J.
        found[f"j{order}_near"] = series(lambda v, n=order: mp.hyp0f1(n + 1, -v / 4) / 2**n, 0, 64)
        found[f"y{order}_near"] = series(lambda v, n=order: near_y(n, mp.sqrt(v)), 0, 64)
        found[f"p{order}_far"] = series(oscillation(order, 0), 0, 1)
        found[f"q{order}_far"] = series(oscillation(order, 1), 0, 1)
    return found


def near_k(order: int, x: mp.mpf) -> mp.mpf:
    """K0 + log(x / 2) I0, or x K1 - x log(x / 2) I1."""
    if order == 0:
        return mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x)
    return x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x))


def near_y(order: int, x: mp.mpf) -> mp.mpf:
    """Y0 - 2 / pi log(x) J0, or (Y1 - 2 / pi (log(x) J1 - 1 / x)) / x."""
    if order == 0:
        return mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x)
    return (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x


def main() -> None:
    """Write the file."""
    lines = [HEAD]
    for name, numbers in tables().items():
        lines.append(f'    "{name}": (\n')
        lines += [f"        {float(value)!r},\n" for value in numbers]
        lines.append("    ),\n")
    lines.append("}\n")
    TARGET.write_text("".join(lines))


if __name__ == "__main__":
    main()
