"""Names the operators of a ``.mge`` file, for the index of the fixtures."""

import json
import struct
from pathlib import Path

from megengine.core.tensor.megbrain_graph import load_graph
from megengine.utils.comp_graph_tools import get_oprs_seq

from mge_fixtures.table import words

ELEMWISE = words("""
RELU ABS ACOS ASIN CEIL COS EXP EXPM1 FLOOR LOG LOG1P NEGATE SIGMOID SIN TANH ABS_GRAD ADD FLOOR_DIV MAX MIN MOD MUL
POW SIGMOID_GRAD SUB SWITCH_GT0 TANH_GRAD TRUE_DIV LOG_SUM_EXP LT LEQ EQ SHL SHR COND_LEQ_MOV FUSE_MUL_ADD3
FUSE_MUL_ADD4 FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH FAST_TANH FAST_TANH_GRAD ROUND RMULH ATAN2 ERF ERFINV ERFC
ERFCINV H_SWISH H_SWISH_GRAD FUSE_ADD_H_SWISH NOT AND OR XOR SILU SILU_GRAD GELU GELU_GRAD COND_LT_MOV NEQ ISNAN ISINF
SINH COSH ASINH ACOSH ATANH TAN ASINH_GRAD ACOSH_GRAD ATANH_GRAD PRELU CLIP PRELU_GRAD SOFTPLUS SOFTPLUS_GRAD RELU6
RELU6_GRAD HSIGMOID HSIGMOID_GRAD LOGSIGMOID SQRT SQUARE SIGN
""")
MULTI_TYPE = words("""
FUSE_MUL_ADD3_INT16x32x32x32 FUSE_MUL_ADD3_IXxF32xF32xI8 ROUND_SHR_SATURATE_IXxI8xI8
FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT16x16x16x8 FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT32x32x32x8
ROUND_SHR_SATURATE_IXxI8xI16 QADD QFUSE_ADD_RELU QMUL QMIN QMAX QSUB QTRUE_DIV QFUSE_ADD_SIGMOID QFUSE_ADD_TANH QRELU
QABS QSIGMOID QEXP QTANH QFUSE_MUL_ADD3 QFAST_TANH QNEGATE QACOS QASIN QCEIL QCOS QEXPM1 QFLOOR QLOG QLOG1P QSIN
QROUND QERF QERFINV QERFC QERFCINV QABS_GRAD QFLOOR_DIV QMOD QSIGMOID_GRAD QSWITCH_GT0 QTANH_GRAD QLT QLEQ QEQ QPOW
QLOG_SUM_EXP QFAST_TANH_GRAD QATAN2 QCOND_LEQ_MOV QH_SWISH QFUSE_ADD_H_SWISH QH_SWISH_GRAD
FUSE_MUL_ADD3_INT16xF32xF32xF32 MUL_INT16xF32xF32 FUSE_MUL_ADD3_UINT8xF32xF32xF32 QCOND_LT_MOV EQ NEQ LT LEQ ISNAN
ISINF
""")
REDUCE = words("SUM SUM_SQR PRODUCT MIN MAX MEAN")
MODES = {"Elemwise": ELEMWISE, "ElemwiseMultiType": MULTI_TYPE, "ReduceV2": REDUCE, "Reduce": REDUCE}
CONSTANTS = {"Host2DeviceCopy", "ImmutableTensor", "SharedDeviceTensor", "VolatileSharedDeviceTensor"}

OPERATORS, TYPE, PARAM = 2, 0, 4  # fields of the tables Model and Operator


def _field(data: bytes, table: int, number: int) -> int:
    """Position of a field of a FlatBuffers table, or 0 when it is not there."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    if 4 + 2 * number >= struct.unpack_from("<H", data, vtable)[0]:
        return 0
    offset = struct.unpack_from("<H", data, vtable + 4 + 2 * number)[0]
    return table + offset if offset else 0


def _follow(data: bytes, position: int) -> int:
    return position + struct.unpack_from("<I", data, position)[0]


def _second(data: bytes) -> list[str]:
    """Operators of a v2 file, in file order, with the modes of element-wise ones and reductions."""
    vector = _follow(data, _field(data, _follow(data, 4), OPERATORS))
    names = []
    for k in range(struct.unpack_from("<I", data, vector)[0]):
        operator = _follow(data, vector + 4 + 4 * k)
        text = _follow(data, _field(data, operator, TYPE))
        name = data[text + 4 : text + 4 + struct.unpack_from("<I", data, text)[0]].decode()
        if name in MODES:
            mode = _field(data, _follow(data, _field(data, operator, PARAM)), 0)
            name += ":" + MODES[name][struct.unpack_from("<I", data, mode)[0] if mode else 0]
        names.append(name)
    return names


def _first(path: Path) -> list[str]:
    """Operators of a v1 file as MegEngine names them when it has loaded the file."""
    names = []
    for operator in get_oprs_seq(load_graph(str(path)).output_vars_list):
        mode = json.loads(operator.params)["mode"] if operator.type in MODES else None
        names.append(f"{operator.type}:{mode}" if mode else operator.type)
    return names


def op_types(path: Path) -> list[str]:
    """Distinct operators of a file, sorted; inputs and constants are left out."""
    data = path.read_bytes()
    if data.startswith(b"mgbtest0"):
        data = data[12:]
    names = _second(data) if data[8:12] == b"mgv2" else _first(path)
    return sorted({name for name in names if name not in CONSTANTS})
