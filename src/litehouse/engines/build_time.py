"""`BuildTime`: how long a build may still take for what only makes runs faster, and what that leaves out."""

from __future__ import annotations

import time


class BuildTime:
    """The time of one build, from when the model could run.

    Attributes:
        left_out: What was left out for want of time, with the reasons.
    """

    def __init__(self, seconds: float) -> None:
        """Begin now; `seconds` is about how long it may take."""
        self._seconds, self._begin = seconds, time.perf_counter()
        self._made: list[float] = []
        self.left_out: list[str] = []

    @property
    def left(self) -> float:
        """The seconds that are left; 0 where there are none."""
        return max(0.0, self._seconds - (time.perf_counter() - self._begin))

    def admits(self, name: str, expected: float, further: float) -> bool:
        """Whether there is time for kernels; where there is not, that is noted.

        Args:
            name: What they are made for.
            expected: How long it takes to make them, as far as an engine can tell; what was made before tells more.
            further: The seconds that something else needs behind it.
        """
        if not self._seconds:
            self.left_out.append(f"{name} was left out, as build_seconds is 0")
            return False
        needed, left = min(self._made, default=expected), self.left
        if needed + further <= left:
            return True
        self.left_out.append(
            f"{name} was left out: its kernels and the timing take about {needed + further:.0f} s, "
            f"and {left:.0f} s are left of build_seconds={self._seconds:g}"
        )
        return False

    def note(self, seconds: float) -> None:
        """Take how long kernels took."""
        self._made.append(seconds)
