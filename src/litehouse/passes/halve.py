"""Lets a whole graph compute in half precision, but for what needs 32 bits."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from litehouse.passes.sketch import Sketch, has_graphs, only_user
from litehouse.passes.tell_types import gives_means

FULL, HALF = ir.DataType.FLOAT, ir.DataType.FLOAT16
LARGEST = float(np.finfo(np.float16).max)
SMALLEST = float(np.finfo(np.float16).smallest_normal)  # with all digits
HIDING = LARGEST / 2  # as a mask: what it is added to does not make it infinite
# What gains most, and what always adds up in 32 bits inside.
PRODUCTS = {"Attention", "Conv", "ConvTranspose", "Einsum", "Gemm", "Linear", "MatMul", "MultiHeadAttention"}
# What is as good in 16 bits where its operands are: it moves numbers, or changes each of them a little. Sums and norms
# among these add up in 32 bits inside.
FOLLOWING = {
    *("Abs", "Add", "AveragePool", "BatchNormalization", "Celu", "Clip", "Compress", "Concat", "DepthToSpace"),
    *("Div", "Dropout", "Elu", "Equal", "Erf", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
    *("Gelu", "GlobalAveragePool", "GlobalMaxPool", "Greater", "GreaterOrEqual", "GridSample", "GroupNormalization"),
    *("HardSigmoid", "HardSwish", "Identity", "InstanceNormalization", "IsInf", "IsNaN", "LayerNormalization"),
    *("LeakyRelu", "Less", "LessOrEqual", "Max", "MaxPool", "Min", "Mish", "Mul", "Neg", "PRelu", "Pad", "QuickGelu"),
    *("RMSNormalization", "Relu", "Reshape", "Resize", "ScatterElements", "ScatterND", "Selu", "Shape"),
    *("Sigmoid", "Sign", "Size", "Slice", "Softmax", "Softsign", "SpaceToDepth", "Split", "Squeeze", "Sub", "Sum"),
    *("Swish", "Tanh", "ThresholdedRelu", "Tile", "TopK", "Transpose", "Trilu", "Unsqueeze", "Where"),
}
# What decides on an order, or on a whole number.
DECISIONS = {
    *("ArgMax", "ArgMin", "Ceil", "Floor", "Hardmax", "NonMaxSuppression", "NonZero", "Round", "TopK", "Unique"),
}
PLACES = {"GridSample": 1, "RoiAlign": 1}  # operands that say where something is, which is a decision, too
LONG = {ir.DataType.INT32, ir.DataType.INT64, ir.DataType.UINT32, ir.DataType.UINT64}
WHOLE = {*LONG, ir.DataType.INT8, ir.DataType.INT16, ir.DataType.UINT8, ir.DataType.UINT16}
SIZES = {"Shape", "Size"}
MOVING = {"Concat", "Expand", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Tile", "Transpose", "Unsqueeze"}
# Of operands, the one that is added to what the others give.
BIASES = {
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "FusedGemm", "Gemm", "Linear"), 2),
    **dict.fromkeys(("NhwcConv", "NhwcFusedConv"), 2),
    "MatMulNBits": 5,
}
# Of weights, as embeddings are.
TABLES = {"EmbedLayerNormalization", "Gather", "GatherBlockQuantized", "GatherElements", "GatherND"}
# The same of ONNX Runtime's own.
PRODUCTS |= {
    *("FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "GemmFastGelu", "GroupQueryAttention"),
    *("MatMulNBits", "NhwcConv", "NhwcFusedConv", "TransposeMatMul"),
}
FOLLOWING |= {
    *("BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BranchwiseRMSNorm", "EmbedLayerNormalization"),
    *("ExpandDims", "FastGelu", "GatedAdd", "GatedRMSNorm", "GroupNorm", "MRotaryEmbedding", "RotaryEmbedding"),
    *("ScaledSiLU", "SimplifiedLayerNormalization", "SkipGroupNorm", "SkipLayerNormalization"),
    *("SkipSimplifiedLayerNormalization", "UnfoldTensor"),
}
DOMAINS = ("", "com.microsoft", "litehouse.torch")
NORMS = {"BatchNormalization", "LayerNormalization", "RMSNormalization"}  # what else they give is of 32 bits
BOUNDS = {"Clip", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Pad"}
ATTENTIONS = {"Attention", "BiasSoftmax", "GroupQueryAttention", "MultiHeadAttention"}
MASKED = {*ATTENTIONS, "Add", "Sub", "Where"}
SUMS, CELLS = {"Add", "Sub", "Sum"}, 16  # how many whole or half numbers make a constant a grid
OLD_CLIP = 11  # the first version of ONNX whose Clip takes its bounds as operands
# Operands that are of 32 bits whatever the others are.
KEPT = {"GridSample": {1}, "GroupQueryAttention": {12, 13}, "Resize": {1, 2}}


class HalvePass(ir.passes.InPlacePass):
    """Puts casts between what computes in 16 bits and what does not, and halves the weights of the former.

    Products and convolutions compute in 16 bits. What only moves or changes numbers goes along where all of its
    operands are of 16 bits; all else, such as powers, sums over axes and graphs inside nodes, computes in 32. So does
    what decides on an order, a whole number or a place, back to the product before it, what has constants that half
    precision cannot hold, a sum with the cells of a grid, and a product of whole numbers or of constants alone. The
    inputs and outputs of the graph stay as they are.
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
        self._casts: dict[tuple[ir.Value, ir.DataType, float], ir.Value] = {}

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
        values = [*(value for value in node.inputs if value is not None), *node.outputs]
        is_known = node.domain in DOMAINS and all(_dtype(value) is not None for value in values)
        if not is_known or not places or has_graphs(node) or node in self._exact:
            return False
        if (node.op_type in NORMS and len(node.outputs) > 1) or gives_means(node):
            return False
        if _is_square(node) or _states_more(node):
            return False
        moving = [node.inputs[place] for place in places if not _is_constant(node.inputs[place])]
        follows = node.op_type in (FOLLOWING if moving else TABLES) and all(value in self._halves for value in moving)
        if node.op_type not in PRODUCTS and not follows:
            return False
        if node.op_type in PRODUCTS and (not moving or any(_is_whole(node.inputs[place]) for place in places)):
            return False
        return all(_can_hold(node, place) for place in places)

    def _restore_inside(self, node: ir.Node) -> None:
        """Let graphs inside a node see what is outside in 32 bits."""
        for graph in _all_graphs(node):
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
        bound = HIDING if node.op_type in MASKED else LARGEST
        key = (value, dtype, bound if dtype == HALF else 0.0)
        if key not in self._casts:
            sketch = Sketch(self._graph, node)
            if dtype == HALF and _is_constant(value):
                assert value.const_value is not None
                made = sketch.constant(_halved(value.const_value.numpy(), bound))
            else:
                if dtype == HALF and not _is_bounded(value):
                    value = self._clipped(sketch, value, bound)
                made = sketch.op("Cast", [value], to=int(dtype))
                made.type, made.shape = ir.TensorType(dtype), value.shape
            self._casts[key] = made
        return self._casts[key]

    def _clipped(self, sketch: Sketch, value: ir.Value, bound: float) -> ir.Value:
        """A value without what is too large: that would become infinite, which times 0 is no number."""
        if self._graph.opset_imports.get("", OLD_CLIP) < OLD_CLIP:
            return sketch.op("Clip", [value], min=-bound, max=bound)  # type: ignore[no-any-return]
        low, high = (sketch.constant(np.array(each, np.float32)) for each in (-bound, bound))
        return sketch.op("Clip", [value, low, high])  # type: ignore[no-any-return]

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
    """What is decided by: all between a decision and the product before it, that one, too.

    Two scores that differ by little are the same in 16 bits, and which comes first is then another one. A place in an
    image of 300 pixels is off by an eighth of one.
    """
    found: set[ir.Node] = set()
    left = [node for node in graph if any(_is_decision(each) for each in (node, *_inside(node)))]
    places = [node.inputs[PLACES[node.op_type]] for node in graph if node.op_type in PLACES]
    left += [maker for maker in (value.producer() for value in places if value) if maker and maker.graph is graph]
    while left:
        node = left.pop()
        if node not in found:
            found.add(node)
            taken = [value for each in (node, *_inside(node)) for value in each.inputs if value is not None]
            taken += [value for each in _all_graphs(node) for value in each.outputs]
            makers = [value.producer() for value in taken]
            if node.op_type not in PRODUCTS | SIZES:
                left += [maker for maker in makers if maker is not None and maker.graph is graph]
    return found


def _is_decision(node: ir.Node) -> bool:
    if node.op_type == "Cast":
        return _dtype(node.inputs[0]) == FULL and node.attributes.get_int("to", 0) in WHOLE
    return node.op_type in DECISIONS and not node.domain


def _is_whole(value: ir.Value | None) -> bool:
    """Whether a value has whole numbers as large as positions are: half precision leaves some out from 2048 on."""
    left, seen = [value], set[ir.Value]()
    while left:
        value = left.pop()
        if value is None or value in seen:
            continue
        seen.add(value)
        node = value.producer()
        if node is None:
            continue
        if node.op_type == "Range" or (node.op_type == "Cast" and _dtype(node.inputs[0]) in LONG):
            return True
        if node.op_type in MOVING:
            left += node.inputs if node.op_type == "Concat" else node.inputs[:1]
    return False


def _is_square(node: ir.Node) -> bool:
    """Whether a value is multiplied with itself: that is too large in 16 bits from 256 on."""
    return node.op_type == "Mul" and node.inputs[0] is node.inputs[1]


def _states_more(node: ir.Node) -> bool:
    """Whether an attribute is too large for half precision, as what an old Pad fills with; to a Clip it is no bound."""
    numbers = [each.as_float() for each in node.attributes.values() if each.type == ir.AttributeType.FLOAT]
    return node.op_type != "Clip" and any(abs(number) > LARGEST for number in numbers)


def _can_hold(node: ir.Node, place: int) -> bool:
    """Whether half precision has the numbers of an operand, as far as they are constant and the op makes use of them.

    What is smaller as a whole would lose digits, or be 0, as the number that keeps a divisor from being 0. To a sum of
    products it is a bias that is next to nothing: half precision rounds the sum as much as it. What is larger would be
    the largest, which is as good for a bound, and for a mask before a softmax.
    """
    value = node.inputs[place]
    if value is None or value.const_value is None or not _is_constant(value):
        return True
    array = value.const_value.numpy()
    if node.op_type in SUMS and _is_grid(array):
        return False
    most = float(max(array.max(), -array.min())) if array.size else 0.0
    if not np.isfinite(most):
        most = float(np.abs(array[np.isfinite(array)]).max(initial=0.0))
    if most <= LARGEST:
        return most == 0 or most >= SMALLEST or _is_bias(node, place)
    if node.op_type in ATTENTIONS or node.op_type in BOUNDS:
        return True
    return node.op_type in MASKED and only_user(node.outputs[0], "Softmax") is not None


def _is_grid(array: np.ndarray) -> bool:
    """Whether a constant is of cells of an image, to which a detector adds where in its cell a box is.

    Half precision has but an eighth of a cell beside numbers from 128 on. A mask has fewer numbers than a grid.
    """
    rest = np.modf(array)[0]
    return bool(np.isin(rest, (-0.5, 0, 0.5)).all()) and len(np.unique(array)) >= CELLS


def _is_bias(node: ir.Node, place: int) -> bool:
    """Whether an operand is added to a sum of products, and not made larger before."""
    return BIASES.get(node.op_type) == place and abs(node.attributes.get_float("beta", 1.0)) <= 1


def _dtype(value: ir.Value | None) -> ir.DataType | None:
    if value is None:
        return None
    return value.dtype if value.const_value is None else value.const_value.dtype


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and not value.is_graph_input()


def _is_bounded(value: ir.Value) -> bool:
    """Whether a value is of a kind that is never too large for half precision."""
    node = value.producer()
    return node is not None and node.op_type in ("Sigmoid", "Softmax", "Tanh", "LayerNormalization", "Erf")


def _halved(array: np.ndarray, bound: float) -> np.ndarray:
    """The same numbers in half precision; what is too large becomes a bound."""
    is_large = np.isfinite(array) & (np.abs(array) > LARGEST)
    return np.where(is_large, np.copysign(np.float32(bound), array), array).astype(np.float16)


def _graphs(attribute: ir.Attr) -> list[ir.Graph]:
    if attribute.type == ir.AttributeType.GRAPH:
        return [attribute.as_graph()]
    return list(attribute.as_graphs()) if attribute.type == ir.AttributeType.GRAPHS else []


def _all_graphs(node: ir.Node) -> list[ir.Graph]:
    """The graphs inside a node, at any depth."""
    outer = [graph for each in node.attributes.values() for graph in _graphs(each)]
    return [each for whole in outer for each in (whole, *whole.subgraphs())]


def _inside(node: ir.Node) -> list[ir.Node]:
    """The nodes of those graphs."""
    return [inner for graph in _all_graphs(node) for inner in graph]
