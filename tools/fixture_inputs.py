"""Inputs of fixture cases: drawn by a seed that comes from the case's name, or literal."""

from __future__ import annotations  # MindSpore 2.0 needs Python 3.9

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Draw:
    """An input to draw: dtype, shape and how to fill it, with a seed that comes from the case's name."""

    dtype: str
    shape: tuple[int, ...]
    low: float | None = None
    high: float | None = None

    def __call__(self, rng: np.random.Generator) -> np.ndarray:
        kind = np.dtype(self.dtype).kind
        if kind == "b":
            return rng.random(self.shape) < 0.5
        if kind in "iu":
            low = -9 if self.low is None else int(self.low)
            high = 9 if self.high is None else int(self.high)
            return rng.integers(low, high, size=self.shape, dtype=np.int64).astype(self.dtype)
        free = self.low is None or self.high is None
        drawn = rng.standard_normal(self.shape) * 1.5 if free else rng.uniform(self.low, self.high, self.shape)
        return (np.round(drawn * 256) / 256).astype(self.dtype)  # short fractions: the files compress better


def f32(*shape: int, low: float | None = None, high: float | None = None) -> Draw:
    return Draw("float32", shape, low, high)


def f16(*shape: int, low: float | None = None, high: float | None = None) -> Draw:
    return Draw("float16", shape, low, high)


def f64(*shape: int, low: float | None = None, high: float | None = None) -> Draw:
    return Draw("float64", shape, low, high)


def i32(*shape: int, low: int = -9, high: int = 9) -> Draw:
    return Draw("int32", shape, low, high)


def i64(*shape: int, low: int = -9, high: int = 9) -> Draw:
    return Draw("int64", shape, low, high)


def u8(*shape: int, low: int = 0, high: int = 200) -> Draw:
    return Draw("uint8", shape, low, high)


def i8(*shape: int, low: int = -100, high: int = 100) -> Draw:
    return Draw("int8", shape, low, high)


def i16(*shape: int, low: int = -100, high: int = 100) -> Draw:
    return Draw("int16", shape, low, high)


def u16(*shape: int, low: int = 0, high: int = 200) -> Draw:
    return Draw("uint16", shape, low, high)


def boolean(*shape: int) -> Draw:
    return Draw("bool", shape)


def values(items: Any, dtype: str = "float32") -> np.ndarray:
    """A literal input."""
    return np.array(items, dtype=dtype)
