"""Computes 3x3 convolutions by fewer multiplications."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from litehouse.passes.sketch import Sketch, folds_weights, is_fixed, only_user, static_shape

# How Winograd's scheme F(2, 3) takes the three weights of a line to four.
SCHEME = np.array([[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]], np.float32)
CENTRE = 5  # of the 16 products, the one that is in all four results once: it takes the bias
PLAIN = {"auto_pad": "NOTSET", "dilations": (1, 1), "group": 1, "kernel_shape": (3, 3), "strides": (1, 1)}
OLDEST_OPSET = 13
# Below these the sums cost more than the products save.
MIN_CHANNELS = 56  # in * out / (in + out)
MIN_TILES = 32
# Each becomes some hundred nodes, and OpenVINO takes a time to build them that grows with their square: 10 s for 30.
MAX_REPLACED = 16


class WinogradPass(ir.passes.InPlacePass):
    """Writes a 3x3 convolution as Winograd's F(2x2, 3x3): sums, and matrix products with 4/9 of the multiplications.

    Neither ONNX Runtime nor OpenVINO (seen in 1.31.1 and 2026.4.1) uses such a kernel on CPUs. The rounding error is
    about that of the engines' own kernels. A batch normalisation behind the convolution goes into its weights, as the
    engines would do.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Replace the convolutions that gain most, in the main graph."""
        found: list[_Convolution] = []
        if model.graph.opset_imports.get("", 0) >= OLDEST_OPSET and folds_weights(model):
            nodes = (node for node in model.graph if node.op_type == "Conv" and not node.domain)
            found = [each for each in map(_find, nodes) if each is not None]
        for each in sorted(found, key=_Convolution.work, reverse=True)[:MAX_REPLACED]:
            _rewrite(model.graph, each)
        if found:
            model.graph.sort()
        return ir.passes.PassResult(model, bool(found))


@dataclass(frozen=True, slots=True)
class _Convolution:
    """A convolution that gains."""

    node: ir.Node
    norm: ir.Node | None  # the batch normalisation behind it
    relu: ir.Node | None  # what follows then
    image: tuple[int, ...]
    result: tuple[int, ...]
    corner: tuple[int, int]  # padding above and left

    @property
    def pairs(self) -> tuple[int, int]:
        """How many pairs of rows, and of columns, the result has; the last one may be half."""
        return (self.result[2] + 1) // 2, (self.result[3] + 1) // 2

    def work(self) -> int:
        """How many multiplications it is, but for a factor."""
        return math.prod(self.result) * self.image[1]


def _find(node: ir.Node) -> _Convolution | None:
    x, weight = node.inputs[:2]
    image, kernel, result = static_shape(x), static_shape(weight), static_shape(node.outputs[0])
    if image is None or kernel is None or result is None or len(kernel) != 4 or kernel[2:] != (3, 3):
        return None
    pads = node.attributes.get("pads")
    others = {name: _plain(each.value) for name, each in node.attributes.items() if name != "pads"}
    if x is None or x.dtype != ir.DataType.FLOAT or any(PLAIN.get(name) != value for name, value in others.items()):
        return None
    norm = _norm_behind(node)
    relu = only_user((norm or node).outputs[0], "Relu")
    top, left = (0, 0) if pads is None else pads.as_ints()[:2]
    found = _Convolution(node, norm, relu, image, result, (top, left))
    rows, columns = found.pairs
    enough = kernel[0] * kernel[1] >= MIN_CHANNELS * (kernel[0] + kernel[1])
    return found if enough and image[0] * rows * columns >= MIN_TILES and is_fixed(weight) else None


def _plain(value: object) -> object:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _norm_behind(node: ir.Node) -> ir.Node | None:
    """The batch normalisation that alone uses the result of a convolution."""
    norm = only_user(node.outputs[0], "BatchNormalization")
    if norm is None or len(norm.outputs) != 1 or not all(is_fixed(value) for value in norm.inputs[1:]):
        return None
    training = norm.attributes.get("training_mode")
    return norm if training is None or not training.as_int() else None


def _rewrite(graph: ir.Graph, found: _Convolution) -> None:
    old = [node for node in (found.relu, found.norm, found.node) if node is not None]
    sketch = Sketch(graph, old[0])  # where the weights of the normalisation are there too
    channels, (rows, columns) = found.image[1], found.pairs
    kernels, bias = _weights(sketch, found)
    products: list[ir.Value] = []
    for line in _spread(sketch, _padded(sketch, found), rows):
        apart = sketch.op("Reshape", [line, sketch.ints(-1, 2 * columns + 2, channels)])
        for tile in _spread(sketch, apart, columns):
            flat, kernel = sketch.op("Reshape", [tile, sketch.ints(-1, channels)]), kernels[len(products)]
            if len(products) == CENTRE and bias is not None:
                products.append(sketch.op("Gemm", [flat, kernel, bias]))
            else:
                products.append(sketch.op("MatMul", [flat, kernel]))
    lines = [_gathered(sketch, products[place::4]) for place in range(4)]
    cells = [cell for upper in range(2) for cell in _gathered(sketch, [line[upper] for line in lines])]
    sketch.replace(old[0].outputs[0], _joined(sketch, cells, found))
    graph.remove(old, safe=True)


def _weights(sketch: Sketch, found: _Convolution) -> tuple[Sequence[ir.Value], ir.Value | None]:
    """The 16 matrices that take channels in to channels out, and the bias."""
    weight, bias = found.node.inputs[1], found.node.inputs[2] if len(found.node.inputs) > 2 else None
    out, channels = found.result[1], found.image[1]
    lines = sketch.shared("Transpose", [weight], perm=(2, 3, 1, 0))
    if found.norm is not None:
        scale, shift, mean, variance = found.norm.inputs[1:]
        epsilon = found.norm.attributes.get("epsilon")
        small = sketch.constant(np.array(1e-5 if epsilon is None else epsilon.as_float(), np.float32))
        factor = sketch.shared("Div", [scale, sketch.shared("Sqrt", [sketch.shared("Add", [variance, small])])])
        centred = sketch.shared("Neg", [mean]) if bias is None else sketch.shared("Sub", [bias, mean])
        bias = sketch.shared("Add", [sketch.shared("Mul", [centred, factor]), shift])
        lines = sketch.shared("Mul", [lines, factor])
    nine = sketch.shared("Reshape", [lines, sketch.ints(9, channels * out)])
    sixteen = sketch.shared("MatMul", [sketch.constant(np.kron(SCHEME, SCHEME)), nine])
    whole = sketch.shared("Reshape", [sixteen, sketch.ints(16 * channels, out)])
    return sketch.shared("Split", [whole, sketch.ints(*[channels] * 16)], outputs=16, axis=0), bias


def _padded(sketch: Sketch, found: _Convolution) -> ir.Value:
    """The operand with channels last, padding, and room for whole pairs: batch, rows, and all else."""
    (batch, channels, height, width), (rows, columns), (top, left) = found.image, found.pairs, found.corner
    below, beside = 2 * rows + 2 - height - top, 2 * columns + 2 - width - left
    last = sketch.op("Transpose", [found.node.inputs[0]], perm=(0, 2, 3, 1))
    # Three axes: OpenVINO changes the order of four in memory, back and forth.
    lines = sketch.op("Reshape", [last, sketch.ints(batch, height, width * channels)])
    return sketch.op("Pad", [lines, sketch.ints(0, top, left * channels, 0, below, beside * channels)])  # type: ignore[no-any-return]


def _spread(sketch: Sketch, x: ir.Value, count: int) -> list[ir.Value]:
    """What the four weights of a line are multiplied with, for each pair of results along the second axis."""
    step, along = sketch.ints(2), sketch.ints(1)
    spans = [(sketch.ints(first), sketch.ints(first + 2 * count - 1)) for first in range(4)]
    a, b, c, d = (sketch.op("Slice", [x, first, last, along, step]) for first, last in spans)
    pairs = (("Sub", a, c), ("Add", b, c), ("Sub", c, b), ("Sub", b, d))
    return [sketch.op(op_type, [left, right]) for op_type, left, right in pairs]


def _gathered(sketch: Sketch, products: Sequence[ir.Value]) -> tuple[ir.Value, ir.Value]:
    """A pair of results from the four products."""
    a, b, c, d = products
    first = sketch.op("Add", [sketch.op("Add", [b, c]), a])
    return first, sketch.op("Sub", [sketch.op("Sub", [b, c]), d])


def _joined(sketch: Sketch, cells: list[ir.Value], found: _Convolution) -> ir.Value:
    """The four results of every tile as one image with channels first."""
    (batch, out, height, width), (rows, columns) = found.result, found.pairs
    line = sketch.ints(batch * rows, 2 * columns * out)
    lines = [sketch.op("Reshape", [sketch.op("Concat", cells[k : k + 2], axis=1), line]) for k in (0, 2)]
    image = sketch.ints(batch, 2 * rows, 2 * columns, out)
    whole = sketch.op("Reshape", [sketch.op("Concat", lines, axis=1), image])
    if (height, width) != (2 * rows, 2 * columns):
        whole = sketch.op("Slice", [whole, sketch.ints(0, 0), sketch.ints(height, width), sketch.ints(1, 2)])
    if found.relu is not None:
        whole = sketch.op(
            "Relu", [whole]
        )  # here: ONNX Runtime puts an image into its own layout with channels last too
    return sketch.op("Transpose", [whole], perm=(0, 3, 1, 2))  # type: ignore[no-any-return]
