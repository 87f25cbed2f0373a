"""The tape for MindIR converters: it also knows the types that the file records for the node's result."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.literals import TYPE_IDS, ScalarType, TensorType, Type
from litehouse.formats.mindir.memory import Heap
from litehouse.formats.shapes import infer
from litehouse.formats.tape import Tape

OPSET = 20


class MindirTape(Tape):
    """A tape with the recorded type of the result at hand.

    Attributes:
        expected: The recorded type of the result of the node that is translated.
        heap: The memory that the network's tensors lie in.
    """

    def __init__(self) -> None:
        """Start with no nodes."""
        super().__init__()
        self.expected: Type = None
        self.heap = Heap()

    def result_dtype(self, index: int = 0) -> ir.DataType:
        """The recorded dtype of the result, or of one item of a tuple."""
        return self._result(index).dtype

    def result_shape(self, index: int = 0) -> tuple[int | None, ...]:
        """The recorded shape of the result. Ties the translation to the sizes in the file, as `known_sizes` does."""
        found = self._result(index)
        if isinstance(found, ScalarType):
            return ()
        if found.shape is None:
            self.refuse("the result has a dynamic rank")
        if self.label not in self.fixed[-1:]:
            self.fixed.append(self.label)
        return found.shape

    def result_rank(self, index: int = 0) -> int:
        """The recorded rank of the result."""
        found = self._result(index)
        if isinstance(found, ScalarType):
            return 0
        if found.shape is None:
            self.refuse("the result has a dynamic rank")
        return len(found.shape)

    def recorded_rank(self, index: int = 0) -> int | None:
        """The recorded rank of the result, None where the file has none."""
        found: Any = self.expected
        if isinstance(found, tuple):
            found = found[index] if index < len(found) else None
        return len(found.shape) if isinstance(found, TensorType) and found.shape is not None else None

    def complete(self, start: int) -> None:
        """Find the shapes that the file does not record, for what was written since there were `start` nodes."""
        if _lacks_shape(self.expected):
            infer(self.nodes[start:], OPSET)

    def _result(self, index: int) -> TensorType | ScalarType:
        found: Any = self.expected
        if isinstance(found, tuple):
            found = found[index] if index < len(found) else None
        if not isinstance(found, TensorType | ScalarType):
            self.refuse("the file records no type for the result")
        return found

    def type_id(self, value: Any, default: ir.DataType | None = None) -> ir.DataType:
        """The dtype that a TypeId number or dtype literal stands for; None gives the default."""
        if isinstance(value, ir.DataType):
            return value
        value = self.literal(value)
        if isinstance(value, tuple) and len(value) == 1:
            (value,) = value
        if value is None and default is not None:
            return default
        if value not in TYPE_IDS:
            self.refuse(f"unknown dtype number {value}")
        return TYPE_IDS[value]

    def promote(self, *values: Any) -> tuple[ir.Value, ...]:
        """The values and literals in the result's dtype, as arithmetic ops take them."""
        return tuple(self.tensor(value, self.result_dtype()) for value in values)

    def operands(self, *values: Any) -> tuple[ir.Value, ...]:
        """The values and literals in one common dtype: the widest among the tensors, floating before integer."""
        dtypes = [value.dtype for value in values if isinstance(value, ir.Value) and value.dtype is not None]
        kind = (
            max(dtypes, key=lambda dtype: (dtype.is_floating_point(), dtype.bitwidth)) if dtypes else ir.DataType.FLOAT
        )
        has_float = any(isinstance(value, float) for value in values)
        if has_float and not kind.is_floating_point():
            kind = ir.DataType.FLOAT
        return tuple(self.tensor(value, kind) for value in values)


def _lacks_shape(type_: Type) -> bool:
    if isinstance(type_, tuple):
        return any(_lacks_shape(item) for item in type_)
    return type_ is None or (isinstance(type_, TensorType) and type_.shape is None)
