"""Tells the types of what ONNX Runtime's own ops give: ONNX knows of none, nor of any behind them."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from litehouse.formats.shapes import infer

# Of which operand each result has the type; results that are not named, and those of operands left out, have that of
# the first one.
OPERANDS: dict[str, tuple[int, ...]] = {
    "EmbedLayerNormalization": (2, 0, 2),
    "GroupQueryAttention": (0, 3, 4),
    "LinearAttention": (0, 3),
    **dict.fromkeys(("Attention", "DecoderMaskedMultiHeadAttention", "MRotaryEmbedding", "MultiHeadAttention"), ()),
    **dict.fromkeys(("BiasAdd", "BiasGelu", "BiasSoftmax", "BiasSplitGelu", "BranchwiseRMSNorm", "ComplexMul"), ()),
    **dict.fromkeys(("ComplexMulConj", "ConvTransposeWithDynamicPads", "CropAndResize", "ExpandDims", "FastGelu"), ()),
    **dict.fromkeys(("FusedConv", "FusedGemm", "FusedMatMul", "FusedMatMulActivation", "GatedAdd", "GatedRMSNorm"), ()),
    **dict.fromkeys(("GatedRelativePositionBias", "GatherND", "Gelu", "GemmFastGelu", "GridSample", "GroupNorm"), ()),
    **dict.fromkeys(("Inverse", "Irfft", "MoE", "NhwcConv", "NhwcFusedConv", "Pad", "QuickGelu", "Range"), ()),
    **dict.fromkeys(("RelativePositionBias", "Rfft", "RotaryEmbedding", "ScaledSiLU", "SkipGroupNorm"), ()),
    **dict.fromkeys(("SimplifiedLayerNormalization", "SkipLayerNormalization", "TransposeMatMul", "Trilu"), ()),
    **dict.fromkeys(("SkipSimplifiedLayerNormalization", "UnfoldTensor"), ()),
}
MEANS = {"SkipLayerNormalization", "SkipSimplifiedLayerNormalization"}  # may give some, of another type, at 1 and 2


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


def _tell(node: ir.Node) -> None:
    if node.op_type in MEANS and any(value.name for value in node.outputs[1:3]):
        return
    places = OPERANDS[node.op_type]
    for number, value in enumerate(node.outputs):
        place = places[number] if number < len(places) else 0
        operand = node.inputs[place] if place < len(node.inputs) else None
        operand = node.inputs[0] if operand is None else operand
        if value.dtype is None and operand is not None and operand.dtype is not None:
            value.type = ir.TensorType(operand.dtype)
