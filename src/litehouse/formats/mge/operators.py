"""The kinds of operators by name and by number, and how many variables each of them makes in files that do not say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

SEED = 20160701  # of the hashes that are the operators' numbers
MASK = (1 << 64) - 1
PRIME1, PRIME2, PRIME3, PRIME4, PRIME5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)

_NAMES = """
AdaptivePoolingV1 AddUpdate AffineInt Alloc Argmax Argmin Argsort AssertEqual AtlasRuntimeOpr AxisAddRemove
BatchConvBiasForward BatchConvBiasForwardV1 BatchNormV1 BatchedIncrMeshIndexing BatchedMatrixMulV2 BatchedMeshIndexing
BatchedSetMeshIndexing BetaRNG Broadcast CheckNonFinite Concat CondExecMark CondExecMarkIfNeed CondExecMerge
CondExecPred CondExecPredLogical CondTake ConvBiasForward ConvBiasForwardV4 Convolution Convolution3D
Convolution3DBackwardData ConvolutionBackwardData ConvolutionBackwardDataV2 ConvolutionV2 Copy CorrelationForward
Cross CumsumV1 CvtColor DctChannelSelectV1 DeformableConvForward DeformableConvForwardV1 DeformablePSROIPoolingForward
Diag Dimshuffle Dot Dropout Elemwise ElemwiseMultiType ExponentialRNG ExternCOprRunner Eye FakeQuant Flip GammaRNG
GaussianBlur GaussianRNGV1 GeneralNorm GetVarShapeV1 GroupLocalV2 GroupNorm Host2DeviceCopy Identity Images2Neibs
ImmutableTensor IncrMeshIndexing IncrSubtensor IndexingIncrMultiAxisVec IndexingMultiAxisVec IndexingOneHot
IndexingRemap IndexingSetMultiAxisVec IndexingSetOneHot InstanceNorm LRN LSQ LSTMCellForward LSTMForward LayerNorm
Linspace LocalShareForward LocalShareForwardV1 LocalV2 Loop MarkDynamicVar MarkNoBroadcastElemwise MaskConvolutionV2
MaskPropagate MaskedFill MatrixInverse MatrixMulV2 MeshIndexing MultiHeadAttn MultinomialRNG
MultipleDeviceTensorHolder MultipleDeviceTensorWithFormatHolder NMSKeepMGB NonZero NvOf Padding PermutationRNG
PersistentOutputStorage PoissonRNG PoolingV1 PowC RNNCellForward RNNForward ROIAlignV1 ROIPooling ReduceV2
RegionRestrictedConvolution RegionRestrictedConvolutionBackwardData RelayoutFormatV1 RemapV1 ReshapeV1 Resize3D
ResizeV2 Rotate SVD SetMeshIndexing SetSubtensor SharedDeviceTensor SharedDeviceTensorWithFormat ShuffleRNG Sleep
SlidingWindowTranspose Softmax Split Subtensor TQT TopK TypeCvtV2 UniformRNGV1 VirtualDep VolatileSharedDeviceTensor
WarpAffineV2 WarpPerspectiveV2 Where
"""
NAMES = tuple(_NAMES.split())

# Where it is not one. Working memory is not counted.
OUTPUT_COUNTS = {
    "Argsort": 2,
    "BatchNorm": 4,
    "CondTake": 2,
    "DeformablePSROIPooling": 2,
    "Dropout": 2,
    "GeneralNorm": 3,
    "GroupNorm": 3,
    "InstanceNorm": 3,
    "LSTM": 4,
    "LSTMCell": 3,
    "LayerNorm": 3,
    "MultiHeadAttn": 4,
    "NMSKeepMGB": 2,
    "RNN": 3,
    "ROIAlign": 2,
    "ROIPooling": 2,
    "SVD": 3,
}
HOLDERS = {"MultipleDeviceTensorHolder", "MultipleDeviceTensorWithFormatHolder"}
# Operators whose first versions wrote -1 for "no axis", and what the later ones write.
NO_AXIS = {"Reduce": 2147483647, "Cumsum": 2147483647, "Reshape": 7, "GetVarShape": 7}


def plain_name(name: str) -> str:
    """The kind of an operator without its version: `Convolution` for `ConvolutionV2`, `LSTM` for `LSTMForward`."""
    return re.sub(r"V\d$", "", name).removesuffix("Forward")


def renewed(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an operator in the meaning of its last version."""
    if name in NO_AXIS and params.get("axis") == -1:
        return {**params, "axis": NO_AXIS[name]}
    return params


def output_count(kind: str, params: Mapping[str, Any], inputs: int, tensors: int) -> int:
    """How many variables an operator makes, in files of version 1."""
    if kind == "Split":
        return max(0, inputs - 1)
    if kind in HOLDERS:
        return tensors
    if kind == "TopK":
        return 1 if params.get("mode") == "KTH_ONLY" else 2
    if kind == "BatchNorm" and params.get("fwd_mode") == "TRAINING" and inputs == 5:
        return 6  # with the statistics that it updates
    return OUTPUT_COUNTS.get(kind, 1)


@cache
def names_by_number(versioned: bool) -> dict[int, str]:
    """The names by the numbers that files have for them; the oldest files hash them without their versions."""
    if versioned:
        return {number_of(name.encode() + b"\0"): name for name in NAMES}
    return {number_of(plain.encode()): plain for plain in (re.sub(r"V\d$", "", name) for name in NAMES)}


def number_of(data: bytes) -> int:
    """The 64-bit XXH hash of the bytes."""
    size = len(data)
    lanes = [SEED + PRIME1 + PRIME2 & MASK, SEED + PRIME2 & MASK, SEED, SEED - PRIME1 & MASK]
    at = 0
    while size - at >= 32:
        for lane in range(4):
            lanes[lane] = _round(lanes[lane], _word(data, at + 8 * lane, 8))
        at += 32
    value = SEED + PRIME5 & MASK
    if size >= 32:
        value = sum(_rotate(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            value = (value ^ _round(0, lane)) * PRIME1 + PRIME4 & MASK
    value = value + size & MASK
    for width, step in ((8, _step8), (4, _step4), (1, _step1)):
        while size - at >= width:
            value = step(value, _word(data, at, width))
            at += width
    for shift, prime in ((33, PRIME2), (29, PRIME3)):
        value = (value ^ value >> shift) * prime & MASK
    return (value ^ value >> 32) or 1


def _word(data: bytes, at: int, width: int) -> int:
    return int.from_bytes(data[at : at + width], "little")


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK


def _round(lane: int, word: int) -> int:
    return _rotate(lane + word * PRIME2 & MASK, 31) * PRIME1 & MASK


def _step8(value: int, word: int) -> int:
    return _rotate(value ^ _round(0, word), 27) * PRIME1 + PRIME4 & MASK


def _step4(value: int, word: int) -> int:
    return _rotate(value ^ word * PRIME1 & MASK, 23) * PRIME2 + PRIME3 & MASK


def _step1(value: int, word: int) -> int:
    return _rotate(value ^ word * PRIME5 & MASK, 11) * PRIME1 & MASK
