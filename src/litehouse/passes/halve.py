"""Lets a whole graph compute in half precision, but for what needs 32 bits."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.passes.sketch import Sketch, has_graphs

FULL, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
LARGEST = float(np.finfo(np.float16).max)
# What gains most, and what always adds up in 32 bits inside.
PRODUCTS = {"Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "Linear", "MatMul", "MultiHeadAttention"}
# What is as good in 16 bits where its operands are: it moves numbers, or changes each of them a little. Sums and norms
# among these add up in 32 bits inside.
FOLLOWING = {
    *("Abs", "Add", "AveragePool", "BatchNormalization", "Ceil", "Celu", "Clip", "Compress", "Concat", "DepthToSpace"),
    *("Div", "Dropout", "Elu", "Equal", "Erf", "Expand", "Flatten", "Floor", "Gather", "GatherElements", "GatherND"),
    *("Gelu", "GlobalAveragePool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GridSample", "GroupNormalization"),
    *("HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "IsInf", "IsNaN", "LayerNormalization"),
    *("LeakyRelu", "Less", "LessOrEqual", "Max", "MaxPool", "Min", "Mish", "Mul", "Neg", "PRelu", "Pad", "QuickGelu"),
    *("RMSNormalization", "Relu", "Reshape", "Resize", "Round", "ScatterElements", "ScatterND", "Selu", "Shape"),
    *("Sigmoid", "Sign", "Size", "Slice", "Softmax", "Softsign", "SpaceToDepth", "Split", "Squeeze", "Sub", "Sum"),
    *("Swish", "Tanh", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
}
DECISIONS = {"ArgMax", "ArgMin", "Hardmax", "NonMaxSuppression", "NonZero", "TopK", "Unique"}
TABLES = {"Gather", "GatherElements", "GatherND"}  # of weights, as an embedding is
DOMAINS = ("", "com.microsoft", "litehouse.torch")
KEPT = {"Resize": {1, 2}, "GridSample": {1}}  # operands that are of 32 bits whatever the others are


class HalvePass(ir.passes.InPlacePass):
    """Puts casts between what computes in 16 bits and what does not, and halves the weights of the former.

    Products and convolutions compute in 16 bits. What only moves or changes numbers goes along where all of its
    operands are of 16 bits; all else, such as powers, sums over axes and graphs inside nodes, computes in 32. So does
    what decides on an order, back to the product before it. The inputs and outputs of the graph stay as they are.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Halve the main graph; the types of its values must be known, as far as they are to be halved."""
        return ir.passes.PassResult(model, _Halving(model.graph).run())


class _Halving:
    """The values that are of 16 bits by now."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._halves: set[ir.Value] = set()
        self._exact = _before_decisions(graph)
        self._casts: dict[tuple[ir.Value, ir.DataType], ir.Value] = {}

    def run(self) -> bool:
        for node in list(self._graph):
            self._settle(node)
        for place, value in enumerate(self._graph.outputs):
            if value in self._halves:
                self._restore(place, value)
        return bool(self._halves)

    def _settle(self, node: ir.Node) -> None:
        kept = KEPT.get(node.op_type, set())
        places = [
            place
            for place, value in enumerate(node.inputs)
            if value is not None and place not in kept and (value in self._halves or _dtype(value) == FULL)
        ]
        is_half = self._is_half(node, places)
        for place in places:
            value = node.inputs[place]
            assert value is not None
            if (value in self._halves) != is_half:
                node.replace_input_with(place, self._cast(node, value, HALF if is_half else FULL))
        if not is_half:
            self._restore_inside(node)
            return
        for value in node.outputs:
            if value.dtype == FULL:
                value.type = ir.TensorType(HALF)  # the one that it has may be that of other values, too
                self._halves.add(value)

    def _is_half(self, node: ir.Node, places: list[int]) -> bool:
        is_known = node.domain in DOMAINS and all(value.dtype is not None for value in node.outputs)
        if not is_known or not places or has_graphs(node) or node in self._exact:
            return False
        if node.op_type in PRODUCTS:
            return True
        moving = [node.inputs[place] for place in places if not _is_constant(node.inputs[place])]
        if not moving:
            return node.op_type in TABLES
        return node.op_type in FOLLOWING and all(value in self._halves for value in moving)

    def _restore_inside(self, node: ir.Node) -> None:
        """Let graphs inside a node see what is outside in 32 bits."""
        outer = [graph for each in node.attributes.values() for graph in _graphs(each)]
        for graph in [each for whole in outer for each in (whole, *whole.subgraphs())]:
            for inner in graph:
                for place, value in enumerate(inner.inputs):
                    if value in self._halves:
                        assert value is not None
                        inner.replace_input_with(place, self._cast(node, value, FULL))
            for place, value in enumerate(graph.outputs):
                if value in self._halves:
                    graph.outputs[place] = self._cast(node, value, FULL)

    def _cast(self, node: ir.Node, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """A value in another precision; one cast serves all that come behind it."""
        key = (value, dtype)
        if key not in self._casts:
            sketch = Sketch(self._graph, node)
            if dtype == HALF and _is_constant(value):
                assert value.const_value is not None
                made = sketch.constant(_halved(value.const_value.numpy()))
            else:
                if dtype == HALF:  # what is too large would become infinite, and that times 0 is no number
                    low, high = (sketch.constant(np.array(bound, np.float32)) for bound in (-LARGEST, LARGEST))
                    value = sketch.op("Clip", [value, low, high]) if not _is_bounded(value) else value
                made = sketch.op("Cast", [value], to=int(dtype))
                made.type, made.shape = ir.TensorType(dtype), value.shape
            self._casts[key] = made
        return self._casts[key]

    def _restore(self, place: int, value: ir.Value) -> None:
        """Give an output of the graph in 32 bits, under its own name."""
        name = value.name
        cast = ir.node("Cast", [value], {"to": int(FULL)})
        self._graph.append(cast)
        result = cast.outputs[0]
        result.type, result.shape = ir.TensorType(FULL), value.shape
        self._graph.outputs[place] = result
        result.name, value.name = name, f"{name}/half"


def _before_decisions(graph: ir.Graph) -> set[ir.Node]:
    """What order is decided by: all between a decision and the product before it, that one, too.

    Two scores that differ by little are the same in 16 bits, and which comes first is then another one.
    """
    found: set[ir.Node] = set()
    left = [node for node in graph if node.op_type in DECISIONS and not node.domain]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            makers = [value.producer() for value in node.inputs if value is not None]
            if node.op_type not in PRODUCTS:
                left += [maker for maker in makers if maker is not None]
    return found


def _dtype(value: ir.Value) -> ir.DataType | None:
    return value.dtype if value.const_value is None else value.const_value.dtype


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and not value.is_graph_input()


def _is_bounded(value: ir.Value) -> bool:
    """Whether a value is an input of the graph, or of a kind that is never too large for half precision."""
    node = value.producer()
    return node is None or node.op_type in ("Sigmoid", "Softmax", "Tanh", "LayerNormalization", "Erf")


def _halved(array: np.ndarray) -> np.ndarray:
    """The same numbers in half precision; what is too large becomes the largest that there is."""
    finite = np.clip(array, -LARGEST, LARGEST)
    return np.where(np.isfinite(array), finite, array).astype(np.float16)


def _graphs(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return list(attribute.as_graphs()) if attribute.type == ir.AttributeType.GRAPHS else []
