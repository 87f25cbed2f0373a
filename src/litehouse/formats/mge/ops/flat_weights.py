"""Weights that lie in one flat tensor."""

from __future__ import annotations

import math

import onnx_ir as ir

from litehouse.formats.mge.tape import MgeTape


class FlatWeights:
    """A tensor that holds several weights, one behind the other; they are taken off its front."""

    def __init__(self, t: MgeTape, value: ir.Value) -> None:
        """Start at its front."""
        self._tape = t
        self._flat: ir.Value = value if t.rank(value) == 1 else t.op("Reshape", [value, t.ints(-1)])
        self._size = math.prod(t.sizes(value))
        self._place = 0

    def take(self, *sizes: int) -> ir.Value:
        """The next weight, which has these sizes."""
        t = self._tape
        start, self._place = self._place, self._place + math.prod(sizes)
        if self._place > self._size:
            t.refuse(f"weights of {self._size} numbers, where there must be more")
        part: ir.Value = t.op("Slice", [self._flat, t.ints(start), t.ints(self._place)])
        return part if len(sizes) == 1 else t.op("Reshape", [part, t.ints(sizes)])

    def finish(self) -> None:
        """Refuse weights that hold more than was taken."""
        if self._place != self._size:
            self._tape.refuse(f"weights of {self._size} numbers, of which {self._place} are used")
