"""The tape for MegEngine converters: it folds constants, finds shapes at once, and knows what is quantised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.formats.fold import LARGEST, fold
from litehouse.formats.mge.moves import MOVES, is_idle, shortened
from litehouse.formats.mge.records import DType
from litehouse.formats.shapes import infer
from litehouse.formats.tape import Tape

OPSET = 20
UNKNOWN = -(1 << 31) + 20160701  # stands for a size that depends on the data; a true one is merely not folded
UNKNOWN_BYTES = 4  # what a dtype must have to hold it
MOVING = {"Cast", "Concat", "Expand", "Gather", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze", "Where"}


class MgeTape(Tape):
    """A tape for one graph, translated for fixed sizes of its inputs.

    A quantised tensor is a float32 value that holds its integers with the zero point taken off: their real value is
    that times the scale. Sums of products of such integers are exact up to 2**24, and rounding is written out as
    MegEngine does it.

    Attributes:
        output_dtype: The dtype that the operator at hand was told to give; None where it follows from its operands.
    """

    def __init__(self) -> None:
        """Start with no nodes."""
        super().__init__()
        self.output_dtype: DType | None = None
        self._quantised: dict[ir.Value, DType] = {}
        self._weights: set[ir.Value] = set()
        self._partial: dict[ir.Value | None, np.ndarray] = {}

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        *,
        outputs: int = 1,
        domain: str = "",
        **keywords: Any,
    ) -> Any:
        """Write a node, as `Tape.op` does; small constants are computed at once, and shapes are found."""
        if op_type in ("Add", "Mul") and _is_constant(inputs[0]):
            inputs = inputs[::-1]  # ONNX Runtime folds a constant into the Conv before it where it comes second
        attributes = {name: value for name, value in keywords.items() if name not in ("like", "dtype", "shape")}
        folded = self._folded(op_type, inputs, attributes) if outputs == 1 and not domain else None
        if folded is not None and not _holds_unknown(folded):
            return self.constant(folded)
        if op_type in MOVES:
            inputs, keywords = shortened(op_type, inputs, keywords)
            if is_idle(op_type, inputs, keywords):
                return inputs[0]
        made = super().op(op_type, inputs, outputs=outputs, domain=domain, **keywords)
        if folded is not None:
            self._partial[made] = folded
        infer(self.nodes[-1:], OPSET)
        if not domain and (self.nodes[-1].outputs[0].dtype is None or not self._fits(self.nodes[-1])):
            shapes = [str(list(self.known_sizes(value))) for value in inputs if value is not None]
            self.refuse(f"operands of shapes {' and '.join(shapes)} do not fit")
        self._refine(self.nodes[-1])
        return made

    def weight(self, value: ir.Value) -> ir.Value:
        """Take in a weight, which is never folded into anything."""
        self._weights.add(value)
        return value

    def is_known(self, value: ir.Value) -> bool:
        """Whether `literal` gives the numbers of a value that is no weight."""
        return value.const_value is not None and value not in self._weights

    def shape(self, value: ir.Value) -> tuple[int, ...] | None:
        """The sizes of a value; None where one depends on the data. Other input sizes are translated anew."""
        if value.shape is None or not all(isinstance(size, int) for size in value.shape):
            return None
        return tuple(size for size in value.shape if isinstance(size, int))

    def sizes(self, value: ir.Value) -> tuple[int, ...]:
        """The sizes of a value, all of which must be known."""
        found = self.shape(value)
        if found is None:
            self.refuse("an operand whose size depends on the data is not supported here")
        return found

    def known_sizes(self, value: ir.Value) -> tuple[int | None, ...]:
        """The sizes of a value, None where they depend on the data."""
        rank = self.rank(value)
        assert value.shape is not None
        return tuple(size if isinstance(size, int) else None for size in (value.shape[axis] for axis in range(rank)))

    # Quantised values -------------------------------------------------------------------------------------------------

    def quantised(self, value: ir.Value) -> DType | None:
        """The quantised dtype of a value; None for plain numbers."""
        return self._quantised.get(value)

    def as_quantised(self, value: ir.Value, dtype: DType) -> ir.Value:
        """The same numbers, from now on known as integers of that quantised dtype, less its zero point.

        The value must be made for this: two uses of one value may not be of different dtypes.
        """
        if self._quantised.setdefault(value, dtype) != dtype:
            value = self.op("Identity", [value], like=value)
            self._quantised[value] = dtype
        return value

    # Constants --------------------------------------------------------------------------------------------------------

    def _folded(self, op_type: str, inputs: Sequence[ir.Value | None], attributes: dict[str, Any]) -> np.ndarray | None:
        """The result of a node on constants, with `UNKNOWN` for sizes that depend on the data; None without one."""
        if op_type == "Shape" and inputs[0] is not None and inputs[0].shape is not None:
            sizes = [UNKNOWN if size is None else size for size in self.known_sizes(inputs[0])]
            return np.array(sizes[attributes.get("start", 0) : attributes.get("end")], np.int64)
        arrays: list[np.ndarray | None] = []
        for value in inputs:
            array = None if value is None else self._numbers(value)
            if array is None and value is not None:
                return None
            arrays.append(array)
        narrow = op_type == "Cast" and ir.DataType(attributes["to"]).itemsize < UNKNOWN_BYTES
        if (op_type not in MOVING or narrow) and any(value in self._partial for value in inputs if value is not None):
            return None
        return fold(op_type, arrays, attributes)

    def _numbers(self, value: ir.Value) -> np.ndarray | None:
        if value in self._partial:
            return self._partial[value]
        if value.const_value is None or value in self._weights or value.const_value.size > LARGEST:
            return None
        return value.const_value.numpy()

    def _fits(self, node: ir.Node) -> bool:
        """Whether the operands fit each other, where ONNX's inference of shapes does not look."""
        first, second = node.inputs[:2] if len(node.inputs) > 1 else (None, None)
        if first is None or second is None:
            return True
        given, made = self.shape(first), self.shape(node.outputs[0])
        if node.op_type == "Reshape":
            return given is None or made is None or math.prod(given) == math.prod(made)
        weight = self.shape(second)
        if node.op_type not in ("Conv", "ConvTranspose") or given is None or weight is None:
            return True
        groups = node.attributes.get_int("group", 1)
        return given[1] == (weight[1] * groups if node.op_type == "Conv" else weight[0])

    def _refine(self, node: ir.Node) -> None:
        """Give a result the sizes that its shape operand is known to have, although others depend on the data."""
        place = {"Reshape": 1, "Expand": 1, "ConstantOfShape": 0}.get(node.op_type)
        made = node.outputs[0]
        wanted = None if place is None else node.inputs[place]
        if wanted not in self._partial or made.shape is None:
            return
        # A size of 1 may be expanded by the operand's.
        least = 2 if node.op_type == "Expand" else 0
        sizes = self._partial[wanted].tolist()
        sizes = [None] * (made.shape.rank() - len(sizes)) + sizes
        found = zip(made.shape, sizes, strict=True)
        made.shape = ir.Shape(
            [new if not isinstance(old, int) and new is not None and new >= least else old for old, new in found]
        )


def _holds_unknown(array: np.ndarray) -> bool:
    return array.dtype.itemsize >= UNKNOWN_BYTES and UNKNOWN in array


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None
