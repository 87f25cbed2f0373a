"""Tells the dtypes of what ONNX Runtime's own ops give, which ONNX cannot."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.formats.shapes import infer

MICROSOFT = "com.microsoft"
# Which operand an op's results are of the dtype of; the first one of these that a node has.
LIKE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Attention", "BiasGelu", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "FastGelu"), (0,)),
    **dict.fromkeys(("FusedConv", "FusedGemm", "FusedMatMul", "Gelu", "MatMulBnb4", "MatMulNBits"), (0,)),
    **dict.fromkeys(("MultiHeadAttention", "NhwcMaxPool", "QLinearAdd", "QLinearAveragePool"), (0,)),
    **dict.fromkeys(("QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid"), (0,)),
    **dict.fromkeys(("QLinearSoftmax", "QuickGelu", "RotaryEmbedding"), (0,)),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), (0,)),
    **dict.fromkeys(("DequantizeLinear", "QLinearConcat", "QLinearWhere"), (1,)),
    **dict.fromkeys(("EmbedLayerNormalization", "GatherBlockQuantized", "MatMulIntegerToFloat", "QAttention"), (2,)),
    "QEmbedLayerNormalization": (8,),
    "QGemm": (8, 1),
    "QLinearConv": (7,),
    "QuantizeLinear": (2,),
}
COUNTS = {"EmbedLayerNormalization", "QEmbedLayerNormalization"}  # the second result is of integers


class RuntimeTypesPass(ir.passes.InPlacePass):
    """Records the dtypes of results of ONNX Runtime's own ops where the file does not, and what follows from them."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Record them in the main graph."""
        if not any(_is_untold(node) for node in model.graph):
            return ir.passes.PassResult(model, modified=False)
        opset = model.graph.opset_imports.get("", 1)
        for node in model.graph:
            if node.domain:
                _tell(node)
            else:
                infer([node], opset)
        return ir.passes.PassResult(model, modified=True)


def _is_untold(node: ir.Node) -> bool:
    return node.domain == MICROSOFT and node.op_type in LIKE and any(value.dtype is None for value in node.outputs)


def _tell(node: ir.Node) -> None:
    if not _is_untold(node):
        return  # or one that is not known
    given = [node.inputs[place] for place in LIKE[node.op_type] if place < len(node.inputs)]
    dtype = next((value.dtype for value in given if value is not None), None)
    for place, value in enumerate(node.outputs):
        found = ir.DataType.INT32 if place == 1 and node.op_type in COUNTS else dtype
        if value.dtype is None and found is not None:
            value.dtype = found
