"""Lets single ops compute in half precision."""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

# Ops whose floating-point inputs and outputs all have one and the same type.
UNIFORM = {
    *("Abs", "Add", "AveragePool", "Ceil", "Celu", "Clip", "Concat", "Conv", "ConvTranspose", "Cos", "Div", "Dropout"),
    *("Einsum", "Elu", "Erf", "Exp", "Expand", "Flatten", "Floor", "Gather", "Gelu", "Gemm", "GlobalAveragePool"),
    *("GlobalMaxPool", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "LogSoftmax", "MatMul", "Max"),
    *("MaxPool", "Mean", "Min", "Mish", "Mul", "Neg", "Pad", "Pow", "PRelu", "Reciprocal", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Slice"),
    *("Softmax", "Softplus", "Softsign", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "Tile", "Transpose"),
    *("Unsqueeze", "Where"),
}
NORMS = {"BatchNormalization", "InstanceNormalization", "LayerNormalization"}  # by their first output


class SetPrecisionPass(ir.passes.InPlacePass):
    """Puts casts around the nodes of the named ops, so that they take, compute and give half-precision numbers.

    Engines without half precision for an op compute it in 32 bits, and then leave out some of the rounding.
    A node belongs to an op of the file if its name is the op's, or the op's with something behind a slash.

    Attributes:
        missed: After a run, the names that fit no node whose precision can be set.
    """

    def __init__(self, names: Collection[str]) -> None:
        """Take the names of the ops."""
        super().__init__()
        self._names = frozenset(names)
        self.missed: set[str] = set()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Set every op of the main graph and of those inside it."""
        self.missed = set(self._names)
        modified = False
        for node in list(model.graph.all_nodes()):
            name = self._op_of(node)
            if name is not None and _is_uniform(node) and _lower(node):
                self.missed.discard(name)
                modified = True
        return ir.passes.PassResult(model, modified)

    def _op_of(self, node: ir.Node) -> str | None:
        name = node.name or ""
        while name:
            if name in self._names:
                return name
            name = name.rpartition("/")[0]
        return None


def _is_uniform(node: ir.Node) -> bool:
    return node.domain == "" and (node.op_type in UNIFORM or (node.op_type in NORMS and len(node.outputs) == 1))


def _lower(node: ir.Node) -> bool:
    places = [place for place, value in enumerate(node.inputs) if value is not None and _is_float(value)]
    if not places or node.graph is None:
        return False
    for place in places:
        value = node.inputs[place]
        assert value is not None
        cast = ir.node("Cast", [value], {"to": int(ir.DataType.FLOAT16)}, name=f"{node.name}/half_{place}")
        cast.outputs[0].dtype, cast.outputs[0].shape = ir.DataType.FLOAT16, value.shape
        node.graph.insert_before(node, cast)
        node.replace_input_with(place, cast.outputs[0])
    for place, output in enumerate(node.outputs):
        _restore(node, place, output)
    return True


def _is_float(value: ir.Value) -> bool:
    tensor = value.const_value
    return (value.dtype if tensor is None else tensor.dtype) == ir.DataType.FLOAT


def _restore(node: ir.Node, place: int, output: ir.Value) -> None:
    """Give the op's result back in 32 bits, under its own name."""
    assert node.graph is not None
    cast = ir.node("Cast", [output], {"to": int(ir.DataType.FLOAT)}, name=f"{node.name}/single_{place}")
    result = cast.outputs[0]
    result.dtype, result.shape = ir.DataType.FLOAT, output.shape
    node.graph.insert_after(node, cast)
    output.replace_all_uses_with(result, replace_graph_outputs=True)
    cast.replace_input_with(0, output)
    result.name, output.name = output.name, f"{output.name}/half"
    output.type = ir.TensorType(ir.DataType.FLOAT16)  # the one that it has is that of the graph's copies, too
