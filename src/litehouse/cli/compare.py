"""How far two arrays are apart, and whether that is too far."""

from dataclasses import dataclass

import numpy as np

from litehouse.cli.console import shape_text

NOISE = 1e-6  # a range below this is mostly what rounding left of zero


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What counts as equal.

    Floating-point values may differ by `range_part` of the expected array's range, and by one rounding step of the
    dtype in any case (float16 cannot hold 1e-4 of its range). Integers and bools may not differ. Where `rtol` or `atol`
    is given, the rule is |actual - expected| <= atol + rtol * |expected| for every value and dtype instead.
    """

    range_part: float = 1e-4
    rtol: float | None = None
    atol: float | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """How far two arrays are apart.

    Attributes:
        error: The largest absolute difference; infinite where the arrays cannot be compared.
        range: What the finite values of the expected array span together with zero.
        ok: Whether the tolerance allows the difference.
        worst: The index of the largest difference.
        note: What else there is to say.
    """

    error: float
    range: float
    ok: bool
    worst: tuple[int, ...] = ()
    note: str = ""

    @property
    def relative(self) -> float:
        """The error as part of the range."""
        if self.error == 0 or self.range == 0:
            return 0.0 if self.error == 0 else np.inf
        return self.error / self.range


def difference(actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance) -> Difference:
    """Compare an array with what was expected."""
    if actual.shape != expected.shape:
        note = f"the shape is {shape_text(actual.shape)}, not {shape_text(expected.shape)}"
        return Difference(np.inf, 0.0, False, note=note)
    note = "" if actual.dtype == expected.dtype else f"{actual.dtype.name}, not {expected.dtype.name}"
    if not _is_number(actual) or not _is_number(expected):
        equal = bool(np.array_equal(actual, expected))
        return Difference(0.0 if equal else np.inf, 0.0, equal, note=note or "" if equal else "the values differ")
    if actual.size == 0:
        return Difference(0.0, 0.0, True, note=note)
    return _numeric(actual, expected, tolerance, note)


def _numeric(actual: np.ndarray, expected: np.ndarray, tolerance: Tolerance, note: str) -> Difference:
    errors, strange = _errors(actual, expected)
    if strange:
        note = f"{strange} of {actual.size} values are NaN or infinite on one side only"
    values = _wide(expected)
    span = _span(values)
    if tolerance.rtol is not None or tolerance.atol is not None:
        allowed: np.ndarray | float = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(values)
        allowed = np.where(np.isnan(allowed), 0.0, allowed)
    elif _is_exact(actual) and _is_exact(expected):
        allowed = 0.0
    else:
        allowed = max(tolerance.range_part, _step(actual), _step(expected)) * max(span, NOISE)
    index = np.unravel_index(int(np.argmax(errors)), errors.shape)
    ok = not strange and bool(np.all(errors <= allowed))
    return Difference(float(errors[index]), span, ok, tuple(int(i) for i in index), note)


def _errors(actual: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, int]:
    """The absolute differences, and how many values are NaN or infinite on one side only."""
    with np.errstate(invalid="ignore", over="ignore"):
        first, second = _wide(actual), _wide(expected)
        errors = np.abs(first - second)
        same = (actual == expected) | (np.isnan(first) & np.isnan(second))
    # Large integers may differ though they are equal as floating-point numbers.
    errors = np.where(same, 0.0, np.where(errors == 0, 1.0, errors))
    strange = ~np.isfinite(errors)
    return np.where(strange, np.inf, errors), int(np.count_nonzero(strange))


def _span(values: np.ndarray) -> float:
    if np.iscomplexobj(values):
        values = np.abs(values)
    finite = values[np.isfinite(values)]
    return float(finite.max(initial=0.0) - finite.min(initial=0.0))


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _is_number(array: np.ndarray) -> bool:
    # ml_dtypes' bfloat16 and its like have the kind V; bare bytes of a file have no names for casting.
    return array.dtype.kind in "biufc" or (array.dtype.kind == "V" and array.dtype.name != f"void{array.itemsize * 8}")


def _is_exact(array: np.ndarray) -> bool:
    return array.dtype.kind in "biu"


def _step(array: np.ndarray) -> float:
    """The distance from 1 to the next number of the dtype."""
    if array.dtype.kind in "fc":
        return float(np.finfo(array.dtype).eps)
    return 0.0 if _is_exact(array) else 2.0**-7  # bfloat16 has 7 bits behind the leading one
