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
# Along the axis that an attribute names, or all from there on.
ALONG = {"LogSoftmax": -1, "Softmax": -1, "LayerNormalization": -1, "RMSNormalization": -1, "Hardmax": -1}


class CannotSplitError(Exception):
    """It cannot be shown that the batch can be split; the text names the node."""


class SplitBatchPass(ir.passes.InPlacePass):
    """Gives all inputs and results of a graph a part of the batch.

    The first axis of every value that depends on an input must be the batch, or the batch times something: then a part
    of the batch is a part of the value, in one piece. A graph that computes each part by itself gives the same numbers.
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
        # What depends on the batch: it is the first axis, or that is a multiple of it.
        self._split = set(graph.inputs)
        self._changes: list[Callable[[], None]] = []

    def run(self) -> None:
        """Look at every node; if all of them are understood, make the changes."""
        for node in self._graph:
            if any(value in self._split for value in node.inputs):
                self._follow(node)
            elif has_graphs(node):
                raise CannotSplitError(f"{_called(node)} holds graphs")
        for value in self._graph.outputs:
            if value not in self._split:
                raise CannotSplitError(f"output {value.name!r} is the same for every batch")
        for change in self._changes:
            change()
        for node in self._graph:
            for value in node.outputs:
                value.shape = None
        for value in self._graph.inputs:
            value.shape = ir.Shape([_shape(value)[0] // self._parts, *_shape(value)[1:]])

    def _follow(self, node: ir.Node) -> None:
        rule = None if node.domain or has_graphs(node) else RULES.get(node.op_type)
        if rule is None or not rule(self, node):
            raise CannotSplitError(f"{_called(node)} may mix the images of a batch")
        for value in node.outputs:
            self._take(value)

    def _take(self, value: ir.Value) -> None:
        if _shape(value)[0] % self._batch:
            raise CannotSplitError(f"{value.name!r} has no axis for the batch")
        self._split.add(value)

    # Rules: whether a node, of which an input depends on the batch, keeps the images apart.

    def first_only(self, node: ir.Node) -> bool:
        """The batch goes in first, and nothing else depends on it."""
        return node.inputs[0] in self._split and not any(value in self._split for value in node.inputs[1:])

    def images(self, node: ir.Node) -> bool:
        """Each image by itself."""
        training = node.attributes.get("training_mode")
        # The second result of MaxPool are places in the whole batch.
        is_alone = len(node.outputs) == 1 and (training is None or not training.as_int())
        return self.first_only(node) and len(_shape(node.inputs[0])) > 2 and is_alone

    def together(self, node: ir.Node) -> bool:
        """Elements at the same place; operands that do not depend on the batch are spread over it."""
        shape = _shape(node.outputs[0])
        for place, value in enumerate(node.inputs):
            if value is None:
                continue
            own = _shape(value, scalar=True)
            if value in self._split:
                if len(own) != len(shape) or own[0] != shape[0]:
                    return False
            elif len(own) == len(shape) and own[0] != 1 and not self._cut(node, place, value):
                return False
        return True

    def along(self, node: ir.Node) -> bool:
        """Numbers along other axes than the first."""
        axis = _int(node, "axis", ALONG[node.op_type])
        return self.first_only(node) and axis % len(_shape(node.inputs[0])) != 0

    def axis_attribute(self, node: ir.Node) -> bool:
        """Along one axis, which is not the first."""
        return self.first_only(node) and _int(node, "axis", 0) % len(_shape(node.inputs[0])) != 0

    def joins(self, node: ir.Node) -> bool:
        """Parts along another axis than the first; those that do not depend on the batch must be the same for all."""
        if _int(node, "axis", 0) % len(_shape(node.outputs[0])) == 0:
            return False
        sizes = {_shape(value)[0] for value in node.inputs if value in self._split}
        rest = [(place, value) for place, value in enumerate(node.inputs) if value not in self._split]
        return len(sizes) == 1 and all(value is not None and self._cut(node, place, value) for place, value in rest)

    def transposes(self, node: ir.Node) -> bool:
        """The first axis stays the first."""
        order = node.attributes.get("perm")
        return order is not None and tuple(order.as_ints())[:1] == (0,)

    def reduces(self, node: ir.Node) -> bool:
        """Along axes that are named, and are not the first."""
        named = node.attributes.get("axes")
        axes = list(named.as_ints()) if named is not None else ints_of(node, 1)
        return self.first_only(node) and bool(axes) and all(axis % len(_shape(node.inputs[0])) for axis in axes or ())

    def moves_axes(self, node: ir.Node) -> bool:
        """Axes of size 1 come or go, but not before the first."""
        axes = ints_of(node, 1)
        longer = node.inputs[0] if node.op_type == "Squeeze" else node.outputs[0]
        return axes is not None and all(axis % len(_shape(longer)) for axis in axes)

    def multiplies(self, node: ir.Node) -> bool:
        """Rows by themselves, or matrices image by image."""
        left, right = node.inputs[:2]
        sizes = len(_shape(left)), len(_shape(right))
        if left in self._split and right in self._split:
            return sizes[0] == sizes[1] > 2 and _shape(left)[0] == _shape(right)[0]
        if left in self._split:
            return sizes[0] > 1 and sizes[1] <= 2
        return sizes[1] > 2 and sizes[0] <= 2

    def gemm(self, node: ir.Node) -> bool:
        """Rows by themselves."""
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        spread = bias is None or len(_shape(bias, scalar=True)) < 2 or _shape(bias)[0] == 1
        return self.first_only(node) and not _int(node, "transA", 0) and spread

    def reshapes(self, node: ir.Node) -> bool:
        """A part of the batch is one piece before and behind it."""
        wanted = ints_of(node, 1)
        if not wanted or not self.first_only(node) or (0 in wanted and _int(node, "allowzero", 0)):
            return False
        if wanted[0] > 0:
            self._state(node, 1, [wanted[0] // self._parts, *wanted[1:]])
        # Behind it, -1 stands for a size that is not that of the batch, unless it is the first.
        return _shape(node.outputs[0])[0] % self._batch == 0

    def expands(self, node: ir.Node) -> bool:
        """The batch is spread along other axes."""
        wanted, before = ints_of(node, 1), _shape(node.inputs[0])
        if wanted is None or not self.first_only(node) or len(wanted) > len(before):
            return False
        if len(wanted) == len(before) and wanted[0] != 1:
            self._state(node, 1, [wanted[0] // self._parts, *wanted[1:]])
        return True

    def slices(self, node: ir.Node) -> bool:
        """Along axes that are named, and are not the first."""
        axes = ints_of(node, 3)
        return self.first_only(node) and axes is not None and all(axis % len(_shape(node.inputs[0])) for axis in axes)

    def pads(self, node: ir.Node) -> bool:
        """Not at the first axis."""
        amounts, rank = ints_of(node, 1), len(_shape(node.inputs[0]))
        named = len(node.inputs) > 3 and node.inputs[3] is not None
        return self.first_only(node) and amounts is not None and not named and amounts[0] == amounts[rank] == 0

    def gathers(self, node: ir.Node) -> bool:
        """Rows of a table, or the same places of every image."""
        data, places = node.inputs[:2]
        axis = _int(node, "axis", 0) % len(_shape(data))
        if places in self._split:
            return data not in self._split and axis == 0
        return axis != 0

    def resizes(self, node: ir.Node) -> bool:
        """By scales, of which the first is 1."""
        scales = node.inputs[2] if len(node.inputs) == 3 else None
        known = None if scales is None or scales.is_graph_input() else scales.const_value
        has_axes = "axes" in node.attributes
        return self.first_only(node) and known is not None and not has_axes and float(known.numpy()[0]) == 1.0

    def flattens(self, node: ir.Node) -> bool:
        """The first axis stays whole."""
        return _int(node, "axis", 1) % len(_shape(node.inputs[0])) > 0

    def _cut(self, node: ir.Node, place: int, value: ir.Value) -> bool:
        """Whether a value that does not depend on the batch is the same for all images; then a part of it is taken."""
        size = _shape(value)[0]
        if size % self._batch or not _is_repeated(value, self._batch):
            return False

        def change() -> None:
            sketch = Sketch(self._graph, node)
            end = sketch.ints(size // self._parts)
            node.replace_input_with(place, sketch.op("Slice", [value, sketch.ints(0), end, sketch.ints(0)]))

        self._changes.append(change)
        return True

    def _state(self, node: ir.Node, place: int, numbers: Sequence[int]) -> None:
        def change() -> None:
            node.replace_input_with(place, Sketch(self._graph, node).ints(*numbers))

        self._changes.append(change)


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


Rule = Callable[[_Splitter, ir.Node], bool]
RULES: dict[str, Rule] = {
    **dict.fromkeys(IMAGES, _Splitter.images),
    **dict.fromkeys(ALONE, _Splitter.first_only),
    **dict.fromkeys(TOGETHER | TOGETHER_TOO, _Splitter.together),
    **dict.fromkeys(ALONG, _Splitter.along),
    **dict.fromkeys(("ArgMax", "ArgMin", "Split"), _Splitter.axis_attribute),
    **dict.fromkeys(REDUCTIONS, _Splitter.reduces),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), _Splitter.moves_axes),
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
    "Transpose": _Splitter.transposes,
}
