"""MegEngine's parameter tables as plain data: fields with kinds and defaults, and the names of enum values.

Container versions 1 and 2 share them. What is not listed has no field, or belongs to ops that no inference uses.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from litehouse.formats.flat import Table

# The names of value 0, 1 and so on.
_ENUMS = {
    "ConvMode": "CROSS_CORRELATION CONVOLUTION",
    "Sparse": "DENSE GROUP",
    "Format": (
        "NCHW NHWC NHWCD4 NCHW4 NCHW8 NCHW32 NCHW88 NCHW44 NCHW44_DOT NCHW4_NCHW32 NCHW32_NCHW4 NCHW4_NCHW "
        "NHWC_NCHW NHWC_NCHW4_IC_SMALL NCHW_NCHW4_IC_SMALL CHWN4 NCHW64 NCHW4_NHWC"
    ),
    "ComputeMode": "DEFAULT FLOAT32",
    "NonlineMode": "IDENTITY RELU SIGMOID H_SWISH",
    "PoolingMode": "MAX AVERAGE AVERAGE_COUNT_EXCLUDE_PADDING",
    "BNParamDim": "DIM_11HW DIM_1CHW DIM_1C11 DIM_111C",
    "BNFwdMode": "TRAINING INFERENCE",
    "ROIMode": "MAX AVERAGE",
    "Interpolation": "NEAREST LINEAR AREA CUBIC LANCZOS4",
    "Border": "REPLICATE REFLECT REFLECT_101 WRAP CONSTANT TRANSPARENT ISOLATED",
    "ElemwiseMode": (
        "RELU ABS ACOS ASIN CEIL COS EXP EXPM1 FLOOR LOG LOG1P NEGATE SIGMOID SIN TANH ABS_GRAD ADD FLOOR_DIV MAX "
        "MIN MOD MUL POW SIGMOID_GRAD SUB SWITCH_GT0 TANH_GRAD TRUE_DIV LOG_SUM_EXP LT LEQ EQ SHL SHR COND_LEQ_MOV "
        "FUSE_MUL_ADD3 FUSE_MUL_ADD4 FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH FAST_TANH FAST_TANH_GRAD ROUND "
        "RMULH ATAN2 ERF ERFINV ERFC ERFCINV H_SWISH H_SWISH_GRAD FUSE_ADD_H_SWISH NOT AND OR XOR SILU SILU_GRAD "
        "GELU GELU_GRAD COND_LT_MOV NEQ ISNAN ISINF SINH COSH ASINH ACOSH ATANH TAN ASINH_GRAD ACOSH_GRAD "
        "ATANH_GRAD PRELU CLIP PRELU_GRAD SOFTPLUS SOFTPLUS_GRAD RELU6 RELU6_GRAD HSIGMOID HSIGMOID_GRAD "
        "LOGSIGMOID SQRT SQUARE SIGN"
    ),
    "ElemwiseMultiTypeMode": (
        "FUSE_MUL_ADD3_INT16x32x32x32 FUSE_MUL_ADD3_IXxF32xF32xI8 ROUND_SHR_SATURATE_IXxI8xI8 "
        "FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8 FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8 "
        "ROUND_SHR_SATURATE_IXxI8xI16 QADD QFUSE_ADD_RELU QMUL QMIN QMAX QSUB QTRUE_DIV QFUSE_ADD_SIGMOID "
        "QFUSE_ADD_TANH QRELU QABS QSIGMOID QEXP QTANH QFUSE_MUL_ADD3 QFAST_TANH QNEGATE QACOS QASIN QCEIL QCOS "
        "QEXPM1 QFLOOR QLOG QLOG1P QSIN QROUND QERF QERFINV QERFC QERFCINV QABS_GRAD QFLOOR_DIV QMOD QSIGMOID_GRAD "
        "QSWITCH_GT0 QTANH_GRAD QLT QLEQ QEQ QPOW QLOG_SUM_EXP QFAST_TANH_GRAD QATAN2 QCOND_LEQ_MOV QH_SWISH "
        "QFUSE_ADD_H_SWISH QH_SWISH_GRAD FUSE_MUL_ADD3_INT16xF32xF32xF32 MUL_INT16xF32xF32 "
        "FUSE_MUL_ADD3_UINT8xF32xF32xF32 QCOND_LT_MOV EQ NEQ LT LEQ ISNAN ISINF"
    ),
    "MatrixMulFormat": "DEFAULT MK4 MK8 MK4_DOT N32K4_DOT",
    "ReduceMode": "SUM SUM_SQR PRODUCT MIN MAX MEAN",
    "ReduceDataType": "DEFAULT FLOAT_IO16xC32 FLOAT_O32xC32 FLOAT_O16xC32 QUINT_I8xO32 QINT_I8xO32",
    "CondTakeMode": "EQ NEQ LT LEQ GT GEQ",
    "ArgsortOrder": "ASCENDING DESCENDING",
    "DTypeEnum": (
        "Float32 Uint8 Int8 Int16 Int32 IntB1 IntB2 IntB4 Byte Float16 UintB4 Quantized8Asymm QuantizedS32 "
        "QuantizedS8 Quantized4Asymm QuantizedS4 QuantizedS16 BFloat16 Bool Uint16 QuantizedS1 Complex64"
    ),
    "CvtColorMode": (
        "RGB2GRAY RGB2YUV YUV2RGB GRAY2RGB RGBA2RGB RGBA2BGR RGBA2GRAY RGB2BGR BGR2GRAY BGR2RGB YUV2GRAY_NV21 "
        "YUV2RGB_NV21 YUV2BGR_NV21 YUV2GRAY_NV12 YUV2RGB_NV12 YUV2BGR_NV12 YUV2GRAY_YV12 YUV2RGB_YV12 YUV2BGR_YV12 "
        "YUV2GRAY_YU12 YUV2RGB_YU12 YUV2BGR_YU12 YCrCb2RGB YCrCb2BGR BT601_YUV2RGB_NV21 BT601_YUV2BGR_NV21 "
        "BT601_YUV2RGB_NV12 BT601_YUV2BGR_NV12 BT601_YUV2RGB_YV12 BT601_YUV2BGR_YV12 BT601_YUV2RGB_YU12 "
        "BT601_YUV2BGR_YU12"
    ),
    "Conv3DDataType": "FLOAT FLOAT_IO16xC32",
    "Format3D": "NCDHW NDHWC",
    "TopKMode": "KTH_ONLY VALUE_IDX_NOSORT VALUE_IDX_SORTED",
    "RelayoutMode": (
        "NHWC_NHWCD4 NHWCD4_NHWC NHWC_NHWCD4I NCHW_NHWCD4 NCHW_NHWCD4I NHWCD4I_NCHW NHWCD4_NCHW INTER_WEIGHT_DENSE "
        "INTER_WEIGHT_DENSEI INTER_WEIGHT_GROUP INTER_WEIGHT_GROUPI INTER_WEIGHT_CHAN INTER_WEIGHT_CHANI "
        "INTER_WEIGHT_DENSEI_DOT INTER_WEIGHT_GROUPI_DOT NCHW4_CHWN4 CHWN4_NCHW4 NCHW_NCHW88_CONV_DENSE_WEIGHT "
        "NCHW_NCHW88_CONV_CHAN_WEIGHT NCHW_NCHW88_CONV_GROUP_WEIGHT NCHW_NCHW88 NCHW88_NCHW NCHW_NCHW4_IC_SMALL "
        "NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT NCHW_NCHW4 NCHW4_NCHW NCHW_NCHW4_WEIGHT NCHW_NCHW64 NCHW64_NCHW "
        "NCHW_NHWC NHWC_NCHW NHWCD4I_NHWC"
    ),
    "DctFastImpl": "NONE FIX_32_MASK",
    "FormatV0": (
        "NCHW NHWC NHWCD4 NCHW4 NCHW8 NCHW32 NCHW88 NCHW44 NCHW44_DOT NCHW_WINOGRAD NCHW88_WINOGRAD "
        "NCHW44_WINOGRAD NCHW4_NCHW32 NCHW32_NCHW4 NCHW4_NCHW NHWC_NCHW NHWC_NCHW4_IC_SMALL NCHW_NCHW4_IC_SMALL "
        "CHWN4 NCHW4_NHWC"
    ),
    "PaddingMode": "REPLICATE REFLECT CONSTANT",
    "RNNMode": "IDENTITY RELU TANH",
    "AttentionMask": "NO_MASK DEFAULT_MASK CUDNN_STYLE_MASK USER_DEFINED_MASK",
    "AttentionTensors": "NONE ONLY_MASK ONLY_BIASKV ALL",
}
ENUMS = {name: tuple(values.split()) for name, values in _ENUMS.items()}

# By the number in the parameter union: name and kind of each field, in the order of the slots, with the default where
# it is not zero.
PARAMS: dict[int, str] = {
    2: "axis:int",  # Axis
    3: (  # Convolution
        "mode:ConvMode=CROSS_CORRELATION pad_h:uint pad_w:uint stride_h:uint=1 stride_w:uint=1 "
        "dilate_h:uint=1 dilate_w:uint=1 sparse:Sparse=DENSE format:Format=NCHW "
        "compute_mode:ComputeMode=DEFAULT"
    ),
    6: (  # ConvBias
        "nonline_mode:NonlineMode=IDENTITY mode:ConvMode=CROSS_CORRELATION sparse:Sparse=DENSE "
        "format:Format=NCHW pad_h:uint pad_w:uint stride_h:uint=1 stride_w:uint=1 dilate_h:uint=1 "
        "dilate_w:uint=1 compute_mode:ComputeMode=DEFAULT"
    ),
    8: (  # Images2Neibs
        "pad_h:uint pad_w:uint stride_h:uint=1 stride_w:uint=1 dilate_h:uint=1 dilate_w:uint=1 "
        "window_h:uint=3 window_w:uint=3"
    ),
    9: (  # Pooling
        "mode:PoolingMode=MAX pad_h:uint pad_w:uint stride_h:uint=2 stride_w:uint=2 window_h:uint=2 "
        "window_w:uint=2 format:Format=NCHW"
    ),
    10: "n:uint=5 k:float=2 alpha:float=0.0001 beta:float=0.75",  # LRN
    11: (  # BN
        "param_dim:BNParamDim=DIM_11HW fwd_mode:BNFwdMode=TRAINING epsilon:double=0.0001 avg_factor:double=1 "
        "scale:float=1 bias:float"
    ),
    12: "mode:ROIMode=MAX scale:float=1",  # ROIPooling
    13: "imode:Interpolation=LINEAR bmode:Border=REPLICATE format:Format=NCHW border_val:float",  # WarpPerspective
    17: "mode:ElemwiseMode=RELU",  # Elemwise
    18: "mode:ElemwiseMultiTypeMode=FUSE_MUL_ADD3_INT16x32x32x32",  # ElemwiseMultiType
    19: "exp:float",  # PowC
    20: (  # MatrixMul
        "transpose_a:bool transpose_b:bool compute_mode:ComputeMode=DEFAULT format:MatrixMulFormat=DEFAULT"
    ),
    22: "full_matrices:bool compute_uv:bool=true",  # SVD
    23: "mode:ReduceMode=SUM axis:int=2147483647 data_type:ReduceDataType=DEFAULT",  # Reduce
    24: "axis:int=2147483647 exclusive:bool=true reverse:bool",  # Cumsum
    25: "mode:CondTakeMode=EQ val:float eps:float=1e-06",  # CondTake
    26: "order:ArgsortOrder=ASCENDING",  # Argsort
    27: "is_non_overlapping:bool",  # IndexingRemap
    29: "endpoint:bool=true",  # Linspace
    31: "k:int dtype:DTypeEnum=Float32",  # Eye
    34: "vertical:bool horizontal:bool",  # Flip
    35: "clockwise:bool=true",  # Rotate
    37: "mode:CvtColorMode=RGB2GRAY",  # CvtColor
    38: "imode:Interpolation=LINEAR border_mode:Border=REPLICATE border_val:float format:Format=NHWC",  # WarpAffine
    39: "border_mode:Border=REPLICATE kernel_height:uint kernel_width:uint sigma_x:float sigma_y:float",  # GaussianBlur
    40: "imode:Interpolation=LINEAR format:Format=NHWC",  # Resize
    41: (  # Convolution3D
        "mode:ConvMode=CROSS_CORRELATION pad_d:uint pad_h:uint pad_w:uint stride_d:uint=1 stride_h:uint=1 "
        "stride_w:uint=1 dilate_d:uint=1 dilate_h:uint=1 dilate_w:uint=1 sparse:Sparse=DENSE "
        "data_type:Conv3DDataType=FLOAT format:Format3D=NCDHW"
    ),
    44: "mode:TopKMode=KTH_ONLY",  # TopK
    45: "mode:RelayoutMode=NHWC_NHWCD4 oc:uint group:uint=1",  # RelayoutFormat
    46: (  # SeparableFilter
        "format:Format=NCHW border_mode:Border=REPLICATE is_symm_kernel:bool=true ksize_h:uint=3 "
        "ksize_w:uint=3 anchor_h:uint=1 anchor_w:uint=1"
    ),
    47: (  # LocalShare
        "mode:ConvMode=CROSS_CORRELATION pad_h:uint pad_w:uint stride_h:uint=1 stride_w:uint=1 "
        "dilate_h:uint=1 dilate_w:uint=1 spatial_groups_h:uint=1 spatial_groups_w:uint=1 sparse:Sparse=DENSE "
        "format:Format=NCHW compute_mode:ComputeMode=DEFAULT"
    ),
    48: (  # ROIAlign
        "mode:ROIMode=MAX format:Format=NCHW spatial_scale:float=1 offset:float pooled_height:uint=1 "
        "pooled_width:uint=1 sample_height:uint=2 sample_width:uint=2"
    ),
    49: (  # DeformablePSROIPooling
        "no_trans:bool=true spatial_scale:float=1 trans_std:float=1 pooled_h:uint=1 pooled_w:uint=1 "
        "part_size:uint=1 sample_per_part:uint=1"
    ),
    50: (  # BatchConvBias
        "nonline_mode:NonlineMode=IDENTITY mode:ConvMode=CROSS_CORRELATION pad_h:uint pad_w:uint "
        "stride_h:uint=1 stride_w:uint=1 dilate_h:uint=1 dilate_w:uint=1 sparse:Sparse=DENSE "
        "format:Format=NCHW compute_mode:ComputeMode=DEFAULT"
    ),
    51: "dtype:DTypeEnum=Byte",  # DType
    53: "axis:int=-1",  # OptionalAxis
    54: "axis:int=7",  # OptionalAxisV1
    56: "maxerr:float=0.0001 verbose:bool",  # AssertEqual
    63: "enable_value_infer:bool=true dump_default_value:bool allow_cpu_mem_fwd:bool=true",  # Host2DeviceCopy
    64: "pattern:ints ndim:uint",  # Dimshuffle
    65: "desc:axes",  # AxisAddRemove
    66: "items:items",  # IndexDescMaskDump
    68: "imode:Interpolation=LINEAR border_type:Border=REPLICATE format:Format=NHWC scalar:float",  # Remap
    69: "iou_thresh:float max_output:uint",  # NMSKeep
    70: "mode:PoolingMode=MAX format:Format=NCHW",  # AdaptivePooling
    72: "format:Format=NCHW fast_impl:DctFastImpl=NONE dct_block_size:int=8",  # DctChannelSelect
    73: "qmin:int=-2147483648 qmax:int=2147483647",  # FakeQuant
    74: "qmin:int=-2147483648 qmax:int=2147483647",  # TQT
    75: (  # Correlation
        "format:FormatV0=NCHW kernel_size:uint=1 max_displacement:uint=1 stride1:uint=1 stride2:uint=1 "
        "pad_size:uint is_multiply:bool=true"
    ),
    76: "qmin:int=-2147483648 qmax:int=2147483647",  # LSQ
    81: (  # SlidingWindowTranspose
        "out_h:uint out_w:uint pad_h:uint pad_w:uint stride_h:uint=1 stride_w:uint=1 dilate_h:uint=1 "
        "dilate_w:uint=1 window_h:uint=3 window_w:uint=3"
    ),
    82: (  # Padding
        "front_offset_dim0:uint front_offset_dim1:uint front_offset_dim2:uint front_offset_dim3:uint "
        "front_offset_dim4:uint front_offset_dim5:uint front_offset_dim6:uint back_offset_dim0:uint "
        "back_offset_dim1:uint back_offset_dim2:uint back_offset_dim3:uint back_offset_dim4:uint "
        "back_offset_dim5:uint back_offset_dim6:uint padding_val:float padding_mode:PaddingMode=CONSTANT"
    ),
    84: "scale:float=1",  # CheckNonFinite
    85: "affine:bool=true eps:float=1e-05 normalized_dim:ulong=1 normalized_size:ulong=1",  # LayerNorm
    86: "drop_prob:float seed:ulong",  # Dropout
    87: "nonline_mode:RNNMode=IDENTITY",  # RNNCell
    88: (  # RNN
        "num_layers:uint=1 bidirectional:bool bias:bool=true hidden_size:uint=128 dropout:float "
        "nonline_mode:RNNMode=IDENTITY fwd_mode:BNFwdMode=TRAINING"
    ),
    89: (  # LSTM
        "num_layers:uint=1 bidirectional:bool bias:bool=true hidden_size:uint=128 proj_size:uint "
        "dropout:float fwd_mode:BNFwdMode=TRAINING"
    ),
    90: "axis:int=-1",  # Softmax
    91: "k:int",  # Diag
    92: "affine:bool=true eps:float=1e-05 group:uint=1 format:Format=NCHW",  # GroupNorm
    93: "value:float",  # Fill
    94: "affine:bool=true eps:float=1e-05 axis_start:ulong axis_end:ulong",  # GeneralNorm
    95: (  # MultiHeadAttn
        "num_heads:uint=1 embedding_size:uint k_size:uint v_size:uint qproj_size:uint kproj_size:uint "
        "vproj_size:uint oproj_size:uint qbias:bool kbias:bool vbias:bool obias:bool sm_scaler:float=1 "
        "input_order:uint attn_mask_type:AttentionMask=NO_MASK tensor_combination_type:AttentionTensors=NONE "
        "add_zero_attn:bool need_weights:bool reslink:bool training:bool=true seed:ulong attn_prob:float "
        "out_prob:float"
    ),
    96: "imode:Interpolation=LINEAR format:Format3D=NDHWC align_corners:bool",  # Resize3D
    97: "axis_a:int=-1 axis_b:int=-1 axis_c:int=-1",  # Cross
}
DTYPE_PARAM = 67

NUMBERS = {"int": "i", "uint": "I", "float": "f", "double": "d", "bool": "?", "ulong": "Q"}
AXIS_WIDTH, ITEM_WIDTH = 8, 5


def read_params(number: int, table: Table | None) -> dict[str, Any]:
    """The fields of a parameter table by name; enum values by their names. Empty for a table without fields.

    Raises:
        ModelFormatError: An enum has a value that does not exist.
    """
    if table is None:
        return {}
    return {name: _field(table, slot, kind, default) for slot, (name, kind, default) in enumerate(_fields(number))}


def enum_name(table: Table, slot: int, enum: str, default: int, kind: str = "I") -> str:
    """The name of the enum value of a field."""
    value: int = table.number(slot, kind, default)
    if value >= len(ENUMS[enum]):
        table.damaged(f"{enum} has no value {value}")
    return ENUMS[enum][value]


@cache
def _fields(number: int) -> tuple[tuple[str, str, Any], ...]:
    found = []
    for item in PARAMS.get(number, "").split():
        name, _, rest = item.partition(":")
        kind, _, default = rest.partition("=")
        found.append((name, kind, _default(kind, default)))
    return tuple(found)


def _default(kind: str, text: str) -> Any:
    if kind in ENUMS:
        return ENUMS[kind].index(text)
    if kind == "bool":
        return text == "true"
    return float(text or 0) if kind in ("float", "double") else int(text or 0)


def _field(table: Table, slot: int, kind: str, default: Any) -> Any:
    if kind in ENUMS:
        # DTypeEnum is the one enum of a single byte.
        return enum_name(table, slot, kind, default, "B" if kind == "DTypeEnum" else "I")
    if kind == "ints":
        return table.numbers(slot, "i")
    if kind == "axes":
        return tuple((("add", "remove")[min(method, 1)], axis) for method, axis in table.structs(slot, "<B3xi"))
    if kind == "items":
        return tuple(table.structs(slot, "<b4?"))
    return table.number(slot, NUMBERS[kind], default)
