"""Makes a graph for a part of its batch, where it can be shown that no image knows of another."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir

from litehouse.passes.fold_shapes import FoldShapesPass
from litehouse.passes.kinds import ALONE, REDUCTIONS, TOGETHER
from litehouse.passes.move_shuffles import MoveShufflesPass
from litehouse.passes.sketch import Sketch, has_graphs, ints_of, static_shape

OLDEST_OPSET = 13
TOGETHER_TOO = frozenset(("And", "BitShift", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))
TOGETHER_TOO |= frozenset(("Mod", "Not", "Or", "Where", "Xor"))
# One batch goes in first; what else they take is the same for all images.
IMAGES = frozenset(
    (
        *("AveragePool", "BatchNormalization", "Conv", "ConvTranspose", "DepthToSpace", "GlobalAveragePool"),
        *("GlobalMaxPool", "GroupNormalization", "InstanceNormalization", "LRN", "MaxPool", "SpaceToDepth"),
    )
)
NORMS = ("LayerNormalization", "RMSNormalization")  # over all axes from one on


class CannotSplitError(Exception):
    """It cannot be shown that the batch can be split; the text names the node."""


class SplitBatchPass(ir.passes.InPlacePass):
    """Gives all inputs and results of a graph a part of the batch.

    One axis of every value that depends on an input must be the batch, or the batch times something: then a part of the
    batch is a part of the value. A graph that computes each part by itself gives the same numbers.
    """

    def __init__(self, parts: int) -> None:
        """Split the batch into so many equal parts."""
        super().__init__()
        self._parts = parts

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Change the shapes that the graph states.

        Raises:
            CannotSplitError: Some node may mix the images, or it cannot be told.
        """
        if model.graph.opset_imports.get("", 0) < OLDEST_OPSET:
            raise CannotSplitError(f"the graph is older than version {OLDEST_OPSET}")
        # Shuffles of channels that were written with the batch in them go into weights.
        ir.passes.Sequential(FoldShapesPass(), MoveShufflesPass(), FoldShapesPass())(model)
        _Splitter(model.graph, self._parts).run()
        return ir.passes.PassResult(model, True)


class _Splitter:
    def __init__(self, graph: ir.Graph, parts: int) -> None:
        self._graph, self._parts = graph, parts
        sizes = {_shape(value)[0] for value in graph.inputs}
        if len(sizes) != 1:
            raise CannotSplitError("the inputs have no common first axis")
        (self._batch,) = sizes
        if self._batch % parts:
            raise CannotSplitError(f"a batch of {self._batch} has no {parts} equal parts")
        # What depends on the batch, and which of its axes that is; its size may be a multiple of the batch.
        self._axes = dict.fromkeys(graph.inputs, 0)
        self._changes: list[Callable[[], None]] = []

    def run(self) -> None:
        """Look at every node; if all of them are understood, make the changes."""
        for node in self._graph:
            if any(value in self._axes for value in node.inputs):
                self._follow(node)
            elif has_graphs(node):
                raise CannotSplitError(f"{_called(node)} holds graphs")
        for value in self._graph.outputs:
            if self._axes.get(value) != 0:
                raise CannotSplitError(f"the batch is not the first axis of output {value.name!r}")
        for change in self._changes:
            change()
        for node in self._graph:
            for value in node.outputs:
                value.shape = None
        for value in self._graph.inputs:
            value.shape = ir.Shape([_shape(value)[0] // self._parts, *_shape(value)[1:]])

    def _follow(self, node: ir.Node) -> None:
        rule = None if node.domain or has_graphs(node) else RULES.get(node.op_type)
        axis = None if rule is None else rule(self, node)
        if axis is None:
            raise CannotSplitError(f"{_called(node)} may mix the images of a batch")
        for value in node.outputs:
            shape = _shape(value)
            if axis >= len(shape) or shape[axis] % self._batch:
                raise CannotSplitError(f"{value.name!r} has no axis for the batch")
            self._axes[value] = axis

    def _first(self, node: ir.Node) -> int | None:
        """The axis of the batch in the first operand; None where another one depends on it too, or that does not."""
        others = any(value in self._axes for value in node.inputs[1:])
        return None if others or node.inputs[0] is None else self._axes.get(node.inputs[0])

    # Rules: which axis of the results of a node is the batch; None where images may be mixed.

    def alone(self, node: ir.Node) -> int | None:
        """Every element by itself."""
        return self._first(node)

    def images(self, node: ir.Node) -> int | None:
        """Each image by itself. The second result of MaxPool are places in the whole batch."""
        is_plain = len(node.outputs) == 1 and not _int(node, "training_mode", 0)
        return 0 if is_plain and self._first(node) == 0 and len(_shape(node.inputs[0])) > 2 else None

    def together(self, node: ir.Node) -> int | None:
        """Elements at the same place; operands that do not depend on the batch are spread over it."""
        shape = _shape(node.outputs[0])
        found = {axis + len(shape) - len(_shape(value)) for value, axis in self._taken(node)}
        if len(found) != 1:
            return None
        (axis,) = found
        for place, value in enumerate(node.inputs):
            own = () if value is None else _shape(value, scalar=True)
            at = axis - (len(shape) - len(own))
            if value is None or at < 0 or (value not in self._axes and own[at] == 1):
                continue
            if own[at] != shape[axis] or (value not in self._axes and not self._cut(node, place, value, at)):
                return None
        return axis

    def along(self, node: ir.Node) -> int | None:
        """Numbers along another axis, or along all from one behind the batch on."""
        axis = self._first(node)
        if axis is None:
            return None
        given = _int(node, "axis", -1) % len(_shape(node.inputs[0]))
        return axis if (axis < given if node.op_type in NORMS else axis != given) else None

    def splits(self, node: ir.Node) -> int | None:
        """Along another axis."""
        axis = self._first(node)
        return None if axis is None or _int(node, "axis", 0) % len(_shape(node.inputs[0])) == axis else axis

    def joins(self, node: ir.Node) -> int | None:
        """Along another axis; what does not depend on the batch must be the same for all images."""
        found = {(axis, _shape(value)[axis]) for value, axis in self._taken(node)}
        if len(found) != 1:
            return None
        ((axis, _),) = found
        if _int(node, "axis", 0) % len(_shape(node.outputs[0])) == axis:
            return None
        rest = [(place, value) for place, value in enumerate(node.inputs) if value not in self._axes]
        is_whole = all(value is not None and self._cut(node, place, value, axis) for place, value in rest)
        return axis if is_whole else None

    def transposes(self, node: ir.Node) -> int | None:
        """Axes in another order."""
        axis, order = self._first(node), node.attributes.get("perm")
        return None if axis is None or order is None else tuple(order.as_ints()).index(axis)

    def reduces(self, node: ir.Node) -> int | None:
        """Along other axes, which are named."""
        named = node.attributes.get("axes")
        return self._without(node, list(named.as_ints()) if named is not None else ints_of(node, 1))

    def finds(self, node: ir.Node) -> int | None:
        """Along one other axis."""
        return self._without(node, [_int(node, "axis", 0)])

    def _without(self, node: ir.Node, axes: list[int] | None) -> int | None:
        """Where the batch is when axes are left out, or have size 1."""
        axis = self._first(node)
        gone = {each % len(_shape(node.inputs[0])) for each in axes or ()}
        if axis is None or not gone or axis in gone:
            return None
        return axis if node.op_type != "Squeeze" and _int(node, "keepdims", 1) else axis - sum(g < axis for g in gone)

    def squeezes(self, node: ir.Node) -> int | None:
        """Axes of size 1 go."""
        return self._without(node, ints_of(node, 1))

    def unsqueezes(self, node: ir.Node) -> int | None:
        """Axes of size 1 come."""
        axis, axes = self._first(node), ints_of(node, 1)
        if axis is None or axes is None:
            return None
        rank = len(_shape(node.outputs[0]))
        return [each for each in range(rank) if each not in {new % rank for new in axes}][axis]

    def multiplies(self, node: ir.Node) -> int | None:
        """Rows by themselves, or matrices image by image."""
        left, right = node.inputs[0], node.inputs[1]
        assert left is not None
        assert right is not None
        taken = dict(self._taken(node))
        ranks = len(_shape(left)), len(_shape(right))
        if len(taken) == 2 or left is right:
            same = ranks[0] == ranks[1] and len(set(taken.values())) == 1
            same = same and len({_shape(value)[axis] for value, axis in taken.items()}) == 1
            return taken[left] if same and taken[left] < ranks[0] - 2 else None
        if left in taken:
            return taken[left] if ranks[1] <= 2 and taken[left] < ranks[0] - 1 else None
        return taken[right] if ranks[0] <= 2 and taken[right] < ranks[1] - 2 else None

    def gemm(self, node: ir.Node) -> int | None:
        """Rows by themselves."""
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        is_spread = bias is None or len(_shape(bias, scalar=True)) < 2 or _shape(bias)[0] == 1
        return 0 if self._first(node) == 0 and not _int(node, "transA", 0) and is_spread else None

    def reshapes(self, node: ir.Node) -> int | None:
        """A part of the batch is one piece before and behind it."""
        wanted = ints_of(node, 1)
        if not wanted or self._first(node) != 0 or (0 in wanted and _int(node, "allowzero", 0)):
            return None
        if wanted[0] > 0:
            self._state(node, [wanted[0] // self._parts, *wanted[1:]])
        return 0

    def expands(self, node: ir.Node) -> int | None:
        """The batch is spread along other axes."""
        axis, wanted = self._first(node), ints_of(node, 1)
        if axis is None or wanted is None or len(wanted) > len(_shape(node.inputs[0])):
            return None
        at = axis - (len(_shape(node.inputs[0])) - len(wanted))
        if at >= 0 and wanted[at] != 1:
            self._state(node, [*wanted[:at], wanted[at] // self._parts, *wanted[at + 1 :]])
        return axis

    def slices(self, node: ir.Node) -> int | None:
        """Along other axes, which are named."""
        axis, axes = self._first(node), ints_of(node, 3)
        rank = len(_shape(node.inputs[0]))
        return None if axes is None or axis in {each % rank for each in axes} else axis

    def pads(self, node: ir.Node) -> int | None:
        """Along other axes."""
        axis, amounts, rank = self._first(node), ints_of(node, 1), len(_shape(node.inputs[0]))
        if axis is None or amounts is None or (len(node.inputs) > 3 and node.inputs[3] is not None):
            return None
        return axis if amounts[axis] == amounts[axis + rank] == 0 else None

    def gathers(self, node: ir.Node) -> int | None:
        """Rows of a table, or the same places of every image."""
        data, places = node.inputs[0], node.inputs[1]
        assert data is not None
        assert places is not None
        taken = dict(self._taken(node))
        given = _int(node, "axis", 0) % len(_shape(data))
        if len(taken) != 1:
            return None
        if places in taken:
            return given + taken[places]
        axis = taken[data]
        more = len(_shape(places, scalar=True)) - 1
        return None if axis == given else axis + (more if given < axis else 0)

    def resizes(self, node: ir.Node) -> int | None:
        """By scales, of which the first is 1."""
        scales = node.inputs[2] if len(node.inputs) == 3 else None
        known = None if scales is None or scales.is_graph_input() else scales.const_value
        if known is None or "axes" in node.attributes or self._first(node) != 0:
            return None
        return 0 if float(known.numpy()[0]) == 1.0 else None

    def flattens(self, node: ir.Node) -> int | None:
        """The first axis stays whole."""
        is_whole = _int(node, "axis", 1) % len(_shape(node.inputs[0])) > 0
        return 0 if is_whole and self._first(node) == 0 else None

    def _taken(self, node: ir.Node) -> list[tuple[ir.Value, int]]:
        """The operands that depend on the batch, and which axis that is."""
        return [(value, self._axes[value]) for value in node.inputs if value is not None and value in self._axes]

    def _cut(self, node: ir.Node, place: int, value: ir.Value, axis: int) -> bool:
        """Whether a value that does not depend on the batch is the same for all images; then a part of it is taken."""
        size = _shape(value)[axis]
        if axis or size % self._batch or not _is_repeated(value, self._batch):
            return False

        def change() -> None:
            sketch = Sketch(self._graph, node)
            end = sketch.ints(size // self._parts)
            node.replace_input_with(place, sketch.op("Slice", [value, sketch.ints(0), end, sketch.ints(0)]))

        self._changes.append(change)
        return True

    def _state(self, node: ir.Node, shape: Sequence[int]) -> None:
        """Let a node state another shape."""
        self._changes.append(lambda: node.replace_input_with(1, Sketch(self._graph, node).ints(*shape)))


def _shape(value: ir.Value | None, *, scalar: bool = False) -> tuple[int, ...]:
    shape = static_shape(value)
    if shape is None or not (shape or scalar):
        raise CannotSplitError(f"the shape of {value.name if value is not None else 'an operand'!r} is not known")
    return shape


def _int(node: ir.Node, name: str, usual: int) -> int:
    attribute = node.attributes.get(name)
    return usual if attribute is None else attribute.as_int()


def _called(node: ir.Node) -> str:
    return f"{node.op_type} (node {node.name})"


def _is_repeated(value: ir.Value, batch: int) -> bool:
    """Whether a value that depends on no input is the same for all images."""
    shape, node = _shape(value), value.producer()
    if node is not None:
        before = static_shape(node.inputs[0]) if node.op_type == "Expand" and not node.domain else None
        return before is not None and (len(before) < len(shape) or before[0] == 1)
    if value.const_value is None or value.is_graph_input() or math.prod(shape) > 1 << 24:
        return False
    parts = value.const_value.numpy().reshape(batch, -1)
    return bool((parts == parts[:1]).all())


Rule = Callable[[_Splitter, ir.Node], int | None]
RULES: dict[str, Rule] = {
    **dict.fromkeys(IMAGES, _Splitter.images),
    **dict.fromkeys(ALONE, _Splitter.alone),
    **dict.fromkeys(TOGETHER | TOGETHER_TOO, _Splitter.together),
    **dict.fromkeys(("Hardmax", "LogSoftmax", "Softmax", *NORMS), _Splitter.along),
    **dict.fromkeys(REDUCTIONS, _Splitter.reduces),
    **dict.fromkeys(("ArgMax", "ArgMin"), _Splitter.finds),
    "Concat": _Splitter.joins,
    "Expand": _Splitter.expands,
    "Flatten": _Splitter.flattens,
    "Gather": _Splitter.gathers,
    "Gemm": _Splitter.gemm,
    "MatMul": _Splitter.multiplies,
    "Pad": _Splitter.pads,
    "Reshape": _Splitter.reshapes,
    "Resize": _Splitter.resizes,
    "Slice": _Splitter.slices,
    "Split": _Splitter.splits,
    "Squeeze": _Splitter.squeezes,
    "Transpose": _Splitter.transposes,
    "Unsqueeze": _Splitter.unsqueezes,
}
