"""Finds where the heads of an attention come from."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from litehouse.passes.sketch import Sketch, is_fixed, static_shape
from litehouse.passes.views import view_of


@dataclass(frozen=True, slots=True)
class Heads:
    """The operand of an attention before its heads were taken apart.

    Attributes:
        source: Holds, for every token, the heads side by side, and maybe other operands beside them.
        shape: Batch, tokens, heads, and the size of a head.
        first: The first column of the operand.
        columns: How many columns the source has.
    """

    source: ir.Value
    shape: tuple[int, int, int, int]
    first: int
    columns: int

    def write(self, sketch: Sketch) -> ir.Value:
        """The operand, as batch, tokens, and all heads side by side."""
        batch, tokens, heads, size = self.shape
        width, source = heads * size, self.source
        if width != self.columns:
            first, last = sketch.ints(self.first), sketch.ints(self.first + width)
            is_by_column = (static_shape(source) or ())[-1:] == (self.columns,)
            made = _projected(sketch, source, first, last) if is_by_column else None
            if made is None:
                rows = sketch.op("Reshape", [source, sketch.ints(batch * tokens, self.columns)])
                made = sketch.op("Slice", [rows, first, last, sketch.ints(1)])
            source = made
        return sketch.op("Reshape", [source, sketch.ints(batch, tokens, width)])  # type: ignore[no-any-return]


def find_heads(value: ir.Value | None, *, turned: bool = False) -> Heads | None:
    """The operand behind a value of batch, heads, tokens and the size of a head; None if it is not recognised.

    Args:
        value: What is multiplied.
        turned: Whether its last two axes are swapped.
    """
    view = None if value is None else view_of(value)
    if view is None or len(view.axes) != 4:
        return None
    batch, heads, tokens, size = (view.axes[axis] for axis in ((0, 1, 3, 2) if turned else (0, 1, 2, 3)))
    elements = math.prod(static_shape(view.source) or (0,))
    columns = elements // (batch[0] * tokens[0])
    wanted = ((batch, tokens[0] * columns), (tokens, columns), (heads, size[0]), (size, 1))
    if any(count > 1 and step != needed for (count, step), needed in wanted):
        return None
    if columns * batch[0] * tokens[0] != elements or view.start + heads[0] * size[0] > columns:
        return None
    return Heads(view.source, (batch[0], tokens[0], heads[0], size[0]), view.start, columns)


def _projected(sketch: Sketch, value: ir.Value, first: ir.Value, last: ir.Value) -> ir.Value | None:
    """Some columns of a matrix product with a weight, by those columns of the weight alone; None if it is no such."""
    node, bias, columns = value.producer(), None, (static_shape(value) or (0,))[-1:]
    if node is not None and node.op_type in ("Add", "Sum") and len(node.inputs) == 2:
        bias = next((each for each in node.inputs if is_fixed(each) and static_shape(each) == columns), None)
        product = node.inputs[0] if bias is node.inputs[1] else node.inputs[1]
        node = None if bias is None or product is None else product.producer()
    if node is None or node.domain or node.op_type not in ("Gemm", "MatMul") or not is_fixed(node.inputs[1]):
        return None
    if len(node.inputs) > 2 and bias is None:
        bias = node.inputs[2]
    elif len(node.inputs) > 2:
        return None
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    if len(static_shape(node.inputs[1]) or ()) != 2 or given.get("transA", 0) or given.get("beta", 1) != 1:
        return None
    if bias is not None and (not is_fixed(bias) or static_shape(bias) != columns):
        return None
    weight = sketch.shared("Slice", [node.inputs[1], first, last, sketch.ints(0 if given.get("transB", 0) else 1)])
    if bias is None:
        return sketch.op(node.op_type, [node.inputs[0], weight], **given)  # type: ignore[no-any-return]
    part = sketch.shared("Slice", [bias, first, last, sketch.ints(0)])
    if node.op_type == "Gemm":
        return sketch.op("Gemm", [node.inputs[0], weight, part], **given)  # type: ignore[no-any-return]
    return sketch.op("Add", [sketch.op("MatMul", [node.inputs[0], weight]), part])  # type: ignore[no-any-return]
