"""The ops of `.ms` files as plain data: their numbers, and the fields of their tables with kinds and defaults.

The numbers are those of files with the tag `MSL2`, to which later versions only append.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from litehouse.formats.flat import Table

# The op of number 1, of number 2 and so on.
_NAMES = """
Abs Activation ActivationGrad Adam AddFusion AdderFusion AddGrad AddN All ApplyMomentum ArgMaxFusion ArgMinFusion
Assert Assign AssignAdd AudioSpectrogram AvgPoolFusion AvgPoolGrad BatchNorm BatchNormGrad BatchToSpace BatchToSpaceND
BiasAdd BinaryCrossEntropy BinaryCrossEntropyGrad BiasAddGrad BroadcastTo Cast Ceil Clip Concat Attention
Conv2DBackpropFilterFusion Conv2DBackpropInputFusion Conv2DFusion Conv2dTransposeFusion Cos ConstantOfShape Crop
CustomExtractFeatures CustomNormalize CustomPredict DeConv2DGradFilter Depend DepthToSpace DetectionPostProcess
DivFusion DivGrad Dropout DropoutGrad Elu Eltwise Equal EmbeddingLookupFusion ExpFusion ExpandDims
FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel FftReal FftImag Flatten FlattenGrad Floor FloorDiv FloorMod
Fill FullConnection FusedBatchNorm Gather GatherNd Greater GreaterEqual HashtableLookup InstanceNorm LayerNormFusion
LeakyRelu Less LessEqual Log LogGrad LogicalAnd LogicalNot LogicalOr LpNormalization LRN LshProjection LSTM
L2NormalizeFusion MatMulFusion Maximum MaximumGrad MaxPoolFusion MaxPoolGrad SwitchLayer Mfcc Minimum MinimumGrad Mod
MulFusion MulGrad Neg NegGrad NotEqual NonMaxSuppression OneHot OnesLike PadFusion PartialFusion PowerGrad PowFusion
PriorBox PReLUFusion QuantDTypeCast Rank Range Reciprocal RealDiv ReduceFusion Reshape Resize ReverseSequence
ReverseV2 Rfft ROIPooling Round Rsqrt ScaleFusion ScatterNd SGD Shape SigmoidCrossEntropyWithLogits
SigmoidCrossEntropyWithLogitsGrad Sin SkipGram SliceFusion SmoothL1Loss SmoothL1LossGrad Softmax
SoftmaxCrossEntropyWithLogits SpaceToBatch SpaceToBatchND SpaceToDepth SparseSoftmaxCrossEntropyWithLogits
SparseToDense Split Sqrt Squeeze Square SquaredDifference Stack StridedSlice SubFusion SubGrad Switch
TensorListFromTensor TensorListGetItem TensorListReserve TensorListSetItem TensorListStack TileFusion TopKFusion
Transpose Unique UnsortedSegmentSum Unsqueeze Unstack LSTMGrad Where ZerosLike Select ScatterNdUpdate GRU NonZero
InvertPermutation Size RandomStandardNormal CropAndResize Erf StridedSliceGrad IsFinite LinSpace UniformReal AbsGrad
RsqrtGrad SqrtGrad LayerNormGrad ResizeGrad Splice LogSoftmax Call Custom CumSum SplitWithOverlap GenOP RaggedRange
GLU TensorArray TensorArrayRead TensorArrayWrite Affine AllGather ReduceScatter DynamicQuant LSTMGradData
LSTMGradWeight RandomNormal NLLLoss NLLLossGrad FormatTranspose GatherD GroupNormFusion Log1p TensorScatterAdd
SparseFillEmptyRows SparseReshape SparseSegmentSum ScatterElements Triu Tril AdamWeightDecay FillV2
"""
NAMES = tuple(_NAMES.split())

# By op: name and kind of each field, in the order of the slots, with the default where it is not zero.
FIELDS: dict[str, str] = {
    "Activation": "activation_type:byte alpha:float min_val:float max_val:float approximate:bool",
    "AddFusion": "activation_type:byte",
    "AdderFusion": (
        "format:int kernel_size:longs stride:longs dilation:longs pad_mode:byte pad_list:longs group:long "
        "in_channel:long out_channel:long activation_type:byte"
    ),
    "All": "keep_dims:long",
    "ArgMaxFusion": "axis:long top_k:long=1 keep_dims:bool out_max_value:bool",
    "ArgMinFusion": "axis:long top_k:long keep_dims:bool out_max_value:bool",
    "Assert": "summarize:long",
    "AudioSpectrogram": "window_size:long stride:long mag_square:bool",
    "AvgPoolFusion": (
        "kernel_size:longs strides:longs pad:longs pad_mode:byte round_mode:byte format:int global:bool "
        "activation_type:byte"
    ),
    "BatchNorm": "epsilon:float format:int is_training:bool",
    "BatchToSpace": "block_size:longs crops:pairs",
    "BatchToSpaceND": "block_shape:longs crops:pairs",
    "BiasAdd": "format:int",
    "BroadcastTo": "shape:longs",
    "Clip": "max:float min:float",
    "Concat": "axis:long",
    "Attention": "head_num:long head_size:long cross:bool scale:float",
    "Conv2DFusion": (
        "format:int kernel_size:longs stride:longs dilation:longs pad_mode:byte pad_list:longs mode:long "
        "group:long in_channel:long out_channel:long activation_type:byte"
    ),
    "Conv2dTransposeFusion": (
        "format:int kernel_size:longs stride:longs dilation:longs pad_mode:byte pad:longs pad_list:longs "
        "mode:long group:long in_channel:long out_channel:long activation_type:byte output_paddings:longs"
    ),
    "ConstantOfShape": "data_type:long value:floats",
    "Crop": "axis:long offsets:longs",
    "CustomPredict": "output_num:long weight_threshold:float",
    "DepthToSpace": "block_size:long format:int mode:string",
    "DetectionPostProcess": (
        "format:int input_size:long scale:floats nms_iou_threshold:float nms_score_threshold:float "
        "max_detections:long detections_per_class:long max_classes_per_detection:long num_classes:long "
        "use_regular_nms:bool out_quantized:bool"
    ),
    "DivFusion": "activation_type:byte",
    "Dropout": "keep_prob:float=0.5",
    "Elu": "alpha:float",
    "Eltwise": "mode:byte",
    "EmbeddingLookupFusion": "max_norm:float",
    "ExpFusion": "base:float=-1 scale:float=1.0 shift:float",
    "FakeQuantWithMinMaxVars": "num_bits:long narrow_range:bool",
    "FakeQuantWithMinMaxVarsPerChannel": "num_bits:long narrow_range:bool",
    "Flatten": "axis:long=1",
    "FullConnection": "has_bias:bool use_axis:bool axis:long activation_type:byte",
    "FusedBatchNorm": "epsilon:float=0.0001 momentum:float=0.9 mode:long",
    "InstanceNorm": "epsilon:float",
    "LayerNormFusion": "begin_norm_axis:long epsilon:float=0.00001 elementwise_affine:bool begin_params_axis:long",
    "LeakyRelu": "negative_slope:float",
    "LpNormalization": "axis:long p:long",
    "LRN": "depth_radius:long bias:float alpha:float beta:float norm_region:string",
    "LshProjection": "type:byte",
    "LSTM": (
        "bidirectional:bool has_bias:bool input_size:long hidden_size:long num_layers:long "
        "num_directions:long dropout:float zoneout_cell:float zoneout_hidden:float proj_size:long"
    ),
    "L2NormalizeFusion": "axis:longs epsilon:float activation_type:byte",
    "MatMulFusion": "transpose_a:bool transpose_b:bool activation_type:byte",
    "MaxPoolFusion": (
        "kernel_size:longs strides:longs pad:longs pad_mode:byte round_mode:byte format:int global:bool "
        "activation_type:byte"
    ),
    "Mfcc": "freq_upper_limit:float freq_lower_limit:float filter_bank_channel_num:long dct_coeff_num:long",
    "MulFusion": "activation_type:byte",
    "NonMaxSuppression": "center_point_box:long",
    "OneHot": "axis:long",
    "PadFusion": "paddings:pairs padding_mode:byte constant_value:float",
    "PartialFusion": "sub_graph_index:long",
    "PowFusion": "scale:float=1 shift:float",
    "PriorBox": (
        "min_sizes:longs max_sizes:longs aspect_ratios:floats variances:floats image_size_w:long "
        "image_size_h:long step_w:float step_h:float clip:bool flip:bool offset:float"
    ),
    "PReLUFusion": "channel_shared:bool",
    "QuantDTypeCast": "src_t:long dst_t:long axis:long",
    "Range": "d_type:long start:long limit:long delta:long=1",
    "ReduceFusion": "keep_dims:bool mode:byte reduce_to_end:bool coeff:float",
    "Resize": (
        "format:int method:byte new_height:long new_width:long preserve_aspect_ratio:bool "
        "coordinate_transform_mode:byte cubic_coeff:float exclude_outside:long extrapolation_value:float "
        "nearest_mode:byte"
    ),
    "ReverseSequence": "seq_dim:long batch_dim:long",
    "ReverseV2": "axis:longs",
    "Rfft": "fft_length:long",
    "ROIPooling": "pooled_h:long pooled_w:long scale:float",
    "ScaleFusion": "axis:long activation_type:byte",
    "SkipGram": "include_all_grams:bool max_skip_size:long ngram_size:long",
    "SliceFusion": "axes:longs",
    "Softmax": "axis:longs",
    "SpaceToBatch": "block_size:longs paddings:pairs",
    "SpaceToBatchND": "block_shape:longs paddings:pairs",
    "SpaceToDepth": "block_size:long format:int",
    "Split": "output_num:long size_splits:longs axis:long",
    "Squeeze": "axis:longs",
    "Stack": "axis:long",
    "StridedSlice": "begin_mask:long end_mask:long ellipsis_mask:long new_axis_mask:long shrink_axis_mask:long",
    "SubFusion": "activation_type:byte",
    "TensorListFromTensor": "element_dtype:long shape_type:long",
    "TensorListGetItem": "element_dtype:long",
    "TensorListReserve": "element_dtype:long shape_type:long",
    "TensorListSetItem": "element_dtype:long",
    "TensorListStack": "num_elements:long element_dtype:long",
    "TileFusion": "dims:longs",
    "TopKFusion": "sorted:bool=true axis:long largest:long",
    "Unsqueeze": "axis:longs",
    "Unstack": "axis:long",
    "GRU": "bidirectional:bool",
    "RandomStandardNormal": "seed:long seed2:long",
    "CropAndResize": "method:byte extrapolation_value:float",
    "UniformReal": "seed:long seed2:long",
    "Splice": "context:longs forward_indexes:longs output_dim:long",
    "LogSoftmax": "axis:long",
    "Call": "is_tail_call:bool=true",
    "Custom": "type:string attr:attributes",
    "CumSum": "exclusive:bool reverse:bool",
    "SplitWithOverlap": "split_dim:long number_split:long ratio:longs extend_top:longs extend_bottom:longs",
    "GenOP": (
        "activation_type:byte alpha:float min_val:float max_val:float is_training:bool format:int "
        "kernel_size:longs stride:longs dilation:longs pad_mode:byte pad_list:longs mode:long group:long "
        "in_channel:long out_channel:long eltwise_mode:byte has_bias:bool use_axis:bool axis:long "
        "epsilon:float=0.0001 momentum:float=0.9 transpose_a:bool transpose_b:bool pad:longs round_mode:byte "
        "global:bool channel_shared:bool axes:longs keep_dims:bool reduce_mode:byte reduce_to_end:bool "
        "coeff:float"
    ),
    "GLU": "axis:long=-1",
    "TensorArray": "dynamic_size:bool identical_element_shapes:bool element_shape:ints data_type:int",
    "Affine": "context:longs output_dim:long activation_type:byte transpose_a:bool transpose_b:bool",
    "AllGather": "group:string rank_size:int",
    "ReduceScatter": "group:string mode:byte rank_size:int",
    "DynamicQuant": (
        "symmetric:bool dst_type:long=32 activation_channel:bool prefer_axis:long transpose:bool prefer_axes:ints"
    ),
    "RandomNormal": "seed:float mean:float scale:float",
    "FormatTranspose": "src_format:int=1 dst_format:int=1",
    "GroupNormFusion": "num_groups:long epsilon:float=1e-5 affine:bool=true",
    "ScatterElements": "axis:long",
}

# Letters of Python's `struct`.
SCALARS = {"bool": "?", "byte": "b", "int": "i", "long": "q", "float": "f"}
VECTORS = {"ints": "i", "longs": "q", "floats": "f"}


def op_name(number: int) -> str:
    """The op of that number; a name that no op has for an unknown one."""
    return NAMES[number - 1] if 0 < number <= len(NAMES) else f"op number {number}"


def decode(name: str, table: Table | None) -> dict[str, Any]:
    """The attributes of an op by the names of its fields, defaults filled in; absent vectors and texts are left out."""
    attributes: dict[str, Any] = {}
    for slot, (title, kind, default) in enumerate(_fields(name)):
        if table is None or not table.has(slot):
            if kind in SCALARS:
                attributes[title] = default
        elif kind in SCALARS:
            attributes[title] = table.number(slot, SCALARS[kind])
        else:
            attributes[title] = _compound(table, slot, kind)
    return attributes


@cache
def _fields(name: str) -> tuple[tuple[str, str, Any], ...]:
    fields = []
    for text in FIELDS.get(name, "").split():
        title, _, rest = text.partition(":")
        kind, _, default = rest.partition("=")
        fields.append((title, kind, _default(kind, default)))
    return tuple(fields)


def _default(kind: str, text: str) -> Any:
    if kind == "bool":
        return text == "true"
    return float(text or 0) if kind == "float" else int(text or 0)


def _compound(table: Table, slot: int, kind: str) -> Any:
    if kind in VECTORS:
        return table.numbers(slot, VECTORS[kind])
    if kind == "string":
        return table.text(slot)
    if kind == "pairs":  # a table with a vector of tables, each with a vector of numbers
        outer = table.table(slot)
        return tuple(row.numbers(0, "q") for row in outer.tables(0)) if outer is not None else ()
    return {row.text(0): row.bytes(1) for row in table.tables(slot)}
