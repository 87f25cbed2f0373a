"""Tells the types of what ONNX Runtime's own ops give: ONNX knows of none, nor of any behind them."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from litehouse.formats.shapes import infer

FIRST = ((0,),)
# Of which operand each result has the type: of several, of the first one that a node has. Results that are not named
# have that of the first operand.
OPERANDS: dict[str, tuple[tuple[int, ...], ...]] = {
    "EmbedLayerNormalization": ((2,), (0,), (2,)),
    "GroupQueryAttention": ((0,), (3, 0), (4, 0)),
    "LinearAttention": ((0,), (3, 0)),
    "QEmbedLayerNormalization": ((8,), (0,)),
    "QGemm": ((8, 1),),
    "QLinearConv": ((7,),),
    **dict.fromkeys(("DequantizeLinear", "QLinearConcat", "QLinearWhere"), ((1,),)),
    **dict.fromkeys(("GatherBlockQuantized", "MatMulIntegerToFloat", "QuantizeLinear"), ((2,),)),
    "QAttention": ((2,), (2,)),
    **dict.fromkeys(("Attention", "DecoderMaskedMultiHeadAttention", "MRotaryEmbedding", "MultiHeadAttention"), FIRST),
    **dict.fromkeys(("BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BranchwiseRMSNorm", "ComplexMul"), FIRST),
    **dict.fromkeys(("ComplexMulConj", "ConvTransposeWithDynamicPads", "CropAndResize", "DynamicQuantizeLSTM"), FIRST),
    **dict.fromkeys(("DynamicQuantizeMatMul", "ExpandDims", "FastGelu", "FusedConv", "FusedGemm"), FIRST),
    **dict.fromkeys(("FusedMatMul", "FusedMatMulActivation", "GatedAdd", "GatedRMSNorm", "GatherND", "Gelu"), FIRST),
    **dict.fromkeys(("GatedRelativePositionBias", "GemmFastGelu", "GridSample", "GroupNorm", "Inverse"), FIRST),
    **dict.fromkeys(("Irfft", "MatMulBnb4", "MatMulNBits", "MoE", "NhwcConv", "NhwcFusedConv", "NhwcMaxPool"), FIRST),
    **dict.fromkeys(("Pad", "QLinearAdd", "QLinearAveragePool", "QLinearGlobalAveragePool"), FIRST),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearMul", "QLinearSigmoid", "QLinearSoftmax", "QuickGelu"), FIRST),
    **dict.fromkeys(("Range", "RelativePositionBias", "Rfft", "RotaryEmbedding", "ScaledSiLU"), FIRST),
    **dict.fromkeys(("SimplifiedLayerNormalization", "SkipGroupNorm", "SkipLayerNormalization"), FIRST),
    **dict.fromkeys(("SkipSimplifiedLayerNormalization", "TransposeMatMul", "Trilu", "UnfoldTensor"), FIRST),
}
# The results that are means and the like, always of 32 bits.
MEANS = {
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), (1, 2)),
    "SimplifiedLayerNormalization": (1,),
}


class TellTypesPass(ir.passes.InPlacePass):
    """Records types, and shapes where they follow, of results that have none, in the main graph."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Go through the nodes in order, where any results have no type."""
        opset = model.graph.opset_imports.get("", 1)
        left = [node for node in model.graph if any(value.dtype is None for value in node.outputs)]
        for node in left:
            if node.op_type in OPERANDS and (node.domain or not onnx.defs.has(node.op_type)):
                _tell(node)
            elif not node.domain and onnx.defs.has(node.op_type):
                infer([node], opset)
        return ir.passes.PassResult(model, any(value.dtype is not None for node in left for value in node.outputs))


def gives_means(node: ir.Node) -> bool:
    """Whether a norm gives a mean or the like, too."""
    return any(node.outputs[place].name for place in MEANS.get(node.op_type, ()) if place < len(node.outputs))


def _tell(node: ir.Node) -> None:
    wanted, means = OPERANDS[node.op_type], MEANS.get(node.op_type, ())
    for number, value in enumerate(node.outputs):
        if number in means:
            value.type = ir.TensorType(ir.DataType.FLOAT) if value.type is None else value.type
            continue
        places = wanted[number] if number < len(wanted) else (0,)
        given = (node.inputs[place] for place in places if place < len(node.inputs))
        operand = next((each for each in given if each is not None), None)
        if value.dtype is None and operand is not None and operand.dtype is not None:
            value.type = ir.TensorType(operand.dtype)
