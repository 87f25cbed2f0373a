"""Element-wise cases: every mode of Elemwise, the comparisons to bool, powers, casts, fake quantisation.

More of the family, with many modes in one file and numbers at their limits, are in `elemwise_limits`.
"""

import megengine.functional as F
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures import elemwise_limits as elemwise_limits  # declares its cases
from mge_fixtures.table import (
    KEEP,
    RAW,
    Draw,
    add,
    applied,
    boolean,
    f16,
    f32,
    i8,
    i16,
    i32,
    run_op,
    u8,
    values,
    weight,
    words,
)


def elemwise(mode):
    return lambda *inputs: run_op(builtin.Elemwise(mode=mode), *inputs)


def multi_type(mode, dtype="bool"):
    return lambda *inputs: run_op(builtin.ElemwiseMultiType(mode=mode, dtype=dtype), *inputs)


FREE = f32(2, 3, 5)
UNIT = f32(2, 3, 5, low=-0.99, high=0.99)
POSITIVE = f32(2, 3, 5, low=0.1, high=4)

# Modes as the operator itself, without the rewriting of newer ones: what each mode computes.
UNARY = {
    **dict.fromkeys(words("RELU ABS CEIL COS EXP EXPM1 FLOOR NEGATE SIGMOID SIN TANH FAST_TANH ROUND ERF ERFC"), FREE),
    **dict.fromkeys(words("H_SWISH SILU GELU SINH COSH ASINH TAN SOFTPLUS RELU6 HSIGMOID LOGSIGMOID SQUARE"), FREE),
    **dict.fromkeys(words("ACOS ASIN ERFINV ATANH"), UNIT),
    **dict.fromkeys(words("LOG LOG1P SQRT"), POSITIVE),
    "SIGN": values([[-2.5, -0.0, 0.0, 1e-30, 3]]),
    "ERFCINV": f32(2, 3, 5, low=0.05, high=1.9),
    "ACOSH": f32(2, 3, 5, low=1, high=5),
    "ISNAN": values([[1, np.nan, np.inf, -np.inf, 0]]),
    "ISINF": values([[1, np.nan, np.inf, -np.inf, 0]]),
}
for mode, drawn in UNARY.items():
    add(f"elemwise_{mode.lower()}", elemwise(mode), drawn, **RAW)

BINARY = {
    **dict.fromkeys(
        words("ADD SUB MUL MAX MIN TRUE_DIV LOG_SUM_EXP ATAN2 SWITCH_GT0 PRELU FLOOR_DIV MOD"), (FREE, FREE)
    ),
    **dict.fromkeys(words("FUSE_ADD_RELU FUSE_ADD_SIGMOID FUSE_ADD_TANH FUSE_ADD_H_SWISH"), (FREE, FREE)),
    **dict.fromkeys(
        words("ABS_GRAD SIGMOID_GRAD TANH_GRAD FAST_TANH_GRAD H_SWISH_GRAD SILU_GRAD GELU_GRAD"), (FREE, FREE)
    ),
    **dict.fromkeys(words("ASINH_GRAD SOFTPLUS_GRAD RELU6_GRAD HSIGMOID_GRAD"), (FREE, FREE)),
    "ACOSH_GRAD": (f32(2, 3, 5, low=1.1, high=5), FREE),
    "ATANH_GRAD": (UNIT, FREE),
    "POW": (POSITIVE, FREE),
}
for mode, drawn in BINARY.items():
    add(f"elemwise_{mode.lower()}", elemwise(mode), *drawn, **RAW)
for mode in words("LT LEQ EQ NEQ"):
    add(
        f"elemwise_{mode.lower()}",
        elemwise(mode),
        f32(4, 5, low=-0.01, high=0.01),
        f32(4, 5, low=-0.01, high=0.01),
        **RAW,
    )
for mode in words("COND_LEQ_MOV COND_LT_MOV FUSE_MUL_ADD3 CLIP PRELU_GRAD"):
    add(f"elemwise_{mode.lower()}", elemwise(mode), FREE, FREE, FREE, **RAW)
add("elemwise_fuse_mul_add4", elemwise("FUSE_MUL_ADD4"), FREE, FREE, FREE, FREE, **RAW)

# Integers.
INTEGERS: dict[str, Draw] = {"int32": i32(4, 6), "int16": i16(4, 6), "int8": i8(4, 6), "uint8": u8(4, 6, high=120)}
for dtype, drawn in INTEGERS.items():
    for mode in words("RELU ABS NEGATE"):
        add(f"elemwise_{mode.lower()}_{dtype}", elemwise(mode), drawn, **RAW)
    for mode in words("ADD SUB MUL MAX MIN SWITCH_GT0 LT LEQ EQ FUSE_ADD_RELU"):
        add(f"elemwise_{mode.lower()}_{dtype}", elemwise(mode), drawn, drawn, **RAW)
    divisor = values([1, 2, 3, 5, 7, 4] if dtype == "uint8" else [1, -2, 3, -5, 7, -1], dtype)
    for mode in words("FLOOR_DIV MOD"):
        add(f"elemwise_{mode.lower()}_{dtype}", elemwise(mode), drawn, divisor, **RAW)
    for mode in words("SHL SHR"):
        add(f"elemwise_{mode.lower()}_{dtype}", elemwise(mode), drawn, values([0, 1, 2, 3, 1, 5], dtype), **RAW)
    for mode in words("RMULH"):
        add(f"elemwise_{mode.lower()}_{dtype}", elemwise(mode), drawn, drawn, **RAW)
    for mode in words("FUSE_MUL_ADD3 COND_LEQ_MOV COND_LT_MOV"):
        add(f"elemwise_{mode.lower()}_{dtype}", elemwise(mode), drawn, drawn, drawn, **RAW)
add(
    "elemwise_floor_div_int32_large",
    lambda x, y: x // y,
    values([2**31 - 1, -(2**31) + 1, 16777217], "int32"),
    values([3, 7, -1], "int32"),
)
add(
    "elemwise_mod_int32_large",
    lambda x, y: x % y,
    values([2**31 - 1, -(2**31) + 1, 16777217], "int32"),
    values([10, 7, -4], "int32"),
)
add("elemwise_square_int32", elemwise("SQUARE"), i32(4, 6), **RAW)
add("elemwise_sign_int32", elemwise("SIGN"), i32(4, 6), **RAW)
add("elemwise_clip_int32", elemwise("CLIP"), i32(4, 6), values([-3], "int32"), values([5], "int32"), **RAW)
add("elemwise_neq_int32", elemwise("NEQ"), i32(4, 6, low=0, high=3), i32(4, 6, low=0, high=3), **RAW)

# Half precision.
for mode in words("RELU ABS EXP SIGMOID TANH ERF H_SWISH GELU SILU ROUND FLOOR"):
    add(f"elemwise_{mode.lower()}_float16", elemwise(mode), f16(2, 3, 5), **RAW)
for mode in words("ADD SUB MUL TRUE_DIV MAX MIN POW LT MOD FLOOR_DIV"):
    add(
        f"elemwise_{mode.lower()}_float16",
        elemwise(mode),
        f16(4, 5, low=0.2, high=4),
        f16(4, 5, low=0.2, high=4),
        **RAW,
    )
add("elemwise_fuse_mul_add3_float16", elemwise("FUSE_MUL_ADD3"), f16(4, 5), f16(4, 5), f16(4, 5), **RAW)

# Bools.
add("elemwise_not_bool", elemwise("NOT"), boolean(3, 5), **RAW)
for mode in words("AND OR XOR"):
    add(f"elemwise_{mode.lower()}_bool", elemwise(mode), boolean(3, 5), boolean(3, 5), **RAW)
for mode in words("LT LEQ EQ"):
    add(f"elemwise_{mode.lower()}_bool", elemwise(mode), boolean(3, 5), boolean(3, 5), **RAW)

# Numbers compared to bools.
for mode in words("EQ NEQ LT LEQ"):
    add(
        f"multi_type_{mode.lower()}",
        multi_type(mode),
        f32(4, 5, low=-0.02, high=0.02),
        f32(5, low=-0.02, high=0.02),
        **RAW,
    )
    for dtype, drawn in INTEGERS.items():
        add(f"multi_type_{mode.lower()}_{dtype}", multi_type(mode), drawn, drawn, **RAW)
    add(
        f"multi_type_{mode.lower()}_float16",
        multi_type(mode),
        f16(4, 5, low=0, high=0.03),
        f16(4, 5, low=0, high=0.03),
        **RAW,
    )
    add(f"multi_type_{mode.lower()}_bool", multi_type(mode), boolean(3, 5), boolean(3, 5), **RAW)
add("multi_type_isnan", multi_type("ISNAN"), values([[1, np.nan, np.inf, -np.inf, 0]]), **RAW)
add("multi_type_isinf", multi_type("ISINF"), values([[1, np.nan, np.inf, -np.inf, 0]]), **RAW)
add("multi_type_mul_int16_float32", multi_type("MUL_INT16xF32xF32", "float32"), i16(4, 6), f32(4, 6), **RAW)
add(
    "multi_type_mul_add3_int16_float32",
    multi_type("FUSE_MUL_ADD3_INT16xF32xF32xF32", "float32"),
    i16(4, 6),
    f32(6),
    f32(6),
    **RAW,
)
add(
    "multi_type_mul_add3_uint8_float32",
    multi_type("FUSE_MUL_ADD3_UINT8xF32xF32xF32", "float32"),
    u8(4, 6),
    f32(6),
    f32(6),
    **RAW,
)
add(
    "multi_type_mul_add3_int16_int32",
    multi_type("FUSE_MUL_ADD3_INT16x32x32x32", "int32"),
    i16(4, 6),
    i32(6),
    i32(6),
    **RAW,
)
add("multi_type_mul_add3_to_int8", multi_type("FUSE_MUL_ADD3_IXxF32xF32xI8", "int8"), i32(4, 6), f32(6), f32(6), **RAW)
add(
    "multi_type_round_shift_int8",
    multi_type("ROUND_SHR_SATURATE_IXxI8xI8", "int8"),
    i32(4, 6, low=-900, high=900),
    values([2], "int8"),
    **RAW,
)
add(
    "multi_type_round_shift_int16",
    multi_type("ROUND_SHR_SATURATE_IXxI8xI16", "int16"),
    i32(4, 6, low=-90000, high=90000),
    values([1], "int8"),
    **RAW,
)

# The functions of Python in default dumps: newer modes are rewritten into older ones.
WRITTEN = {
    "asinh": F.asinh, "cosh": F.cosh, "sinh": F.sinh, "tan": F.tan, "relu6": F.nn.relu6, "hsigmoid": F.nn.hsigmoid,
    "softplus": F.nn.softplus, "logsigmoid": F.nn.logsigmoid, "square": F.square, "sign": F.sign, "atan": F.atan,
    "round": F.round, "silu": F.nn.silu, "gelu": F.nn.gelu, "hswish": F.nn.hswish, "neg": F.neg, "expm1": F.expm1,
    "leaky_relu": F.nn.leaky_relu,
    "clip": lambda x: F.clip(x, -0.5, 0.7),
    "clip_lower": lambda x: F.clip(x, lower=-0.5),
    "clip_upper": lambda x: F.clip(x, upper=0.5),
    "minus_constant": lambda x: x - 1.5,
    "constant_minus": lambda x: 1.5 - x,
    "over_constant": lambda x: x / 3,
    "constant_over": lambda x: 3 / (x * x + 1),
    "times_itself": lambda x: x * x,
    "mul_add": lambda x: x * 0.5 + 2,
    "add_relu": lambda x: F.relu(x + 0.5),
    "power_2": lambda x: x**2,
    "power_3": lambda x: x**3,
    "power_minus_1": lambda x: (x * x + 1) ** -1,
    "rsqrt": lambda x: (x * x + 0.1) ** -0.5,
    "power_zero": lambda x: x**0,
    "logaddexp": lambda x: F.logaddexp(x, -x),
}  # fmt: skip
for name, function in WRITTEN.items():
    add(f"function_{name}", function, FREE)
for name in ("sign", "clip", "softplus", "leaky_relu", "square", "times_itself"):
    add(f"function_{name}_keep", WRITTEN[name], FREE, **KEEP)
add("function_sqrt", F.sqrt, POSITIVE)
add("function_acosh", F.acosh, f32(2, 3, 5, low=1, high=5))
add("function_atanh", F.atanh, UNIT)
add("function_log", F.log, POSITIVE)
add("function_prelu", lambda x: F.nn.prelu(x, weight(1, 3, 1)), FREE)
add("function_power_of_tensor", lambda x, y: x**y, POSITIVE, f32(5))
add("function_int_true_div", lambda x, y: x / y, i32(4, 6), i32(4, 6, low=1, high=9))
add("function_int_power", lambda x: x**2, i32(4, 6))
add("function_mixed_types", lambda x, y: x * y + 1, i32(4, 6), f32(6))
add("function_where", lambda x, y: F.where(x > 0, x, y), FREE, FREE)
add("function_where_nan", lambda x, y: F.where(x > 0, x, y), values([1, -1, 2, -3]), values([np.nan, 5, np.inf, 7]))
add("function_where_int", lambda x, y: F.where(x > y, x, y), i32(4, 6), i32(4, 6))
add("function_isnan", F.isnan, values([[1, np.nan, np.inf, -np.inf, 0]]))
add("function_isinf", F.isinf, values([[1, np.nan, np.inf, -np.inf, 0]]))
for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"):
    function = getattr(F, name)
    add(f"function_{name}", function, f32(4, 5, low=-0.02, high=0.02), f32(4, 5, low=-0.02, high=0.02))
    add(f"function_{name}_as_float", lambda x, y, f=function: f(x, y).astype("float32"), i32(4, 6), i32(4, 6))
for name in ("logical_and", "logical_or", "logical_xor"):
    function = getattr(F, name)
    add(f"function_{name}", lambda x, y, f=function: f(x > 0, y > 0).astype("float32"), FREE, FREE)
add("function_logical_not", lambda x: F.logical_not(x > 0).astype("int32"), FREE)

# Special numbers. What is no number itself is left out where MegEngine's own kernels, or the engines, differ on it.
SPECIAL = values([[-np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan]])
for mode in words("ABS SIGMOID TANH LOG ROUND FLOOR H_SWISH SOFTPLUS NEGATE SQRT"):
    add(f"special_{mode.lower()}", elemwise(mode), SPECIAL, **RAW)
for mode in words("RELU EXP SIGN RELU6"):
    add(f"special_{mode.lower()}", elemwise(mode), SPECIAL[:, :-1], **RAW)
for mode in words("ADD MUL TRUE_DIV SWITCH_GT0 PRELU LEQ EQ POW"):
    add(f"special_{mode.lower()}", elemwise(mode), SPECIAL, values([np.nan, 1, 0, -0.0, np.inf, -np.inf, 2]), **RAW)
for mode in words("MAX MIN FUSE_ADD_RELU"):
    add(f"special_{mode.lower()}", elemwise(mode), SPECIAL[:, :-1], values([-np.inf, 1, 0, -0.0, np.inf, 3]), **RAW)
add("special_mod", elemwise("MOD"), SPECIAL, values([np.nan, 1, 0, -0.0, 3, -np.inf, 2]), **RAW)
add("special_clip", elemwise("CLIP"), SPECIAL[:, :-1], values([-1]), values([1]), **RAW)
add("special_round_halves", F.round, values([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 0.49999997, 8388609.0]))
add("special_mod_signs", lambda x, y: x % y, values([7, -7, 7, -7, 5.5, -5.5]), values([3, 3, -3, -3, 2, 2]))
add("special_floor_div_signs", lambda x, y: x // y, values([7, -7, 7, -7, 5.5, -5.5]), values([3, 3, -3, -3, 2, 2]))

# Broadcasting.
add("broadcast_both", lambda x, y: x * y, f32(3, 1, 5), f32(1, 4, 1))
add("broadcast_scalar_input", lambda x, y: x + y, f32(2, 3), f32(1))
add("broadcast_ranks", lambda x, y: F.maximum(x, y), f32(2, 3, 4, 5), f32(4, 1))
add("broadcast_three", elemwise("FUSE_MUL_ADD3"), f32(2, 3, 4), f32(1, 3, 1), f32(1), **RAW)
add("broadcast_clip", elemwise("CLIP"), f32(2, 3, 4), f32(3, 1, low=-1, high=0), f32(4, low=0, high=1), **RAW)
add("broadcast_resized", lambda x, y: x + y, f32(2, 3, 4), f32(3, 1), resized=[f32(3, 5, 6), f32(1, 6)])

# Casts.
for source, drawn in {
    "float32": f32(4, 6, low=-100, high=100),
    "float16": f16(4, 6),
    "bool": boolean(4, 6),
    **INTEGERS,
}.items():
    for target in ("float32", "float16", "int32", "int16", "int8", "uint8", "bool"):
        if target != source and (source, target) != ("float32", "uint8"):
            add(f"cast_{source}_{target}", lambda x, target=target: x.astype(target), drawn, **RAW)
add("cast_float32_uint8", lambda x: x.astype("uint8"), f32(4, 6, low=0, high=255))
add("cast_float32_uint16", lambda x: x.astype("uint16"), f32(4, 6, low=0, high=300))
add("cast_truncates", lambda x: x.astype("int32"), values([-2.7, -0.5, 0.5, 2.7, 1e9, -1e9]))
add("cast_chain", lambda x: x.astype("int32").astype("float32") * 2, f32(4, 6))

add(
    "cast_keeps_lowest_bits",
    lambda x: [x.astype(dtype) for dtype in ("int8", "uint8", "int16", "uint16")],
    values([-70000.5, -300.5, -129, -128.9, -2.7, -0.9, 127.9, 128, 255.9, 256, 300.5, 70000.5]),
    **RAW,
)
add(
    "cast_integers_keep_lowest_bits",
    lambda x: [x.astype(dtype) for dtype in ("int8", "uint8", "int16", "uint16")],
    values([-(2**31), -70000, -300, -129, -1, 127, 128, 255, 256, 300, 70000, 2**31 - 1], "int32"),
    **RAW,
)
add("cast_to_bool", lambda x: x.astype("bool"), values([-0.0, 0, 0.5, -0.3, 1e-30, 2, np.inf]), **RAW)

# Fake quantisation.
add(
    "fake_quant",
    lambda x: run_op(builtin.FakeQuant(qmin=-8, qmax=7), x, weight(1, low=0.3), weight(1, low=0, scale=0)),
    FREE,
    **RAW,
)
add("fake_quant_zero_point", applied(builtin.FakeQuant(qmin=0, qmax=255)), FREE, values([0.02]), values([120]), **RAW)
add(
    "fake_quant_halves",
    applied(builtin.FakeQuant(qmin=-4, qmax=3)),
    values([-9, -2.5, -1.5, -0.5, 0.5, 1.5, 9]),
    values([1]),
    values([0]),
    **RAW,
)
add("tqt", applied(builtin.TQT(qmin=-8, qmax=7)), FREE, values([-1.0]), **RAW)
add("tqt_fraction", applied(builtin.TQT(qmin=-8, qmax=7)), FREE, values([-1.3]), **RAW)
add("lsq", applied(builtin.LSQ(qmin=-8, qmax=7)), FREE, values([0.3]), values([0.0]), values([0.5]), **RAW)
add("lsq_zero_point", applied(builtin.LSQ(qmin=0, qmax=15)), FREE, values([0.3]), values([7.0]), values([0.5]), **RAW)
