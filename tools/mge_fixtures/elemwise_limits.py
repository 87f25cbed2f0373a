"""More element-wise cases: many modes in one file, all dtypes, and numbers at the limits of theirs."""

import megengine.functional as F
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures.table import RAW, Draw, add, applied, f16, f32, i8, i16, i32, run_op, u8, values, weight, words

FREE = f32(2, 3, 5)
POSITIVE = f32(2, 3, 5, low=0.1, high=4)


def elemwise(mode):
    return applied(builtin.Elemwise(mode=mode))


def multi_type(mode, dtype):
    return applied(builtin.ElemwiseMultiType(mode=mode, dtype=dtype))


def each(modes):
    """The results of all these modes."""
    return lambda *inputs: [elemwise(mode)(*inputs) for mode in words(modes)]


FLOATS = "ABS_GRAD SIGMOID_GRAD TANH_GRAD FAST_TANH_GRAD H_SWISH_GRAD SILU_GRAD GELU_GRAD ASINH_GRAD SOFTPLUS_GRAD"
FLOATS += " RELU6_GRAD HSIGMOID_GRAD LOG_SUM_EXP ATAN2 SWITCH_GT0 PRELU LEQ EQ FUSE_ADD_RELU FUSE_ADD_SIGMOID"
FLOATS += " FUSE_ADD_TANH FUSE_ADD_H_SWISH"
add(
    "float16_unary",
    each("CEIL COS EXPM1 SIN FAST_TANH ERFC SINH COSH ASINH SOFTPLUS RELU6 HSIGMOID LOGSIGMOID SQUARE SIGN NEGATE"),
    f16(4, 9),
    **RAW,
)
add("float16_unit", each("ACOS ASIN ERFINV ATANH TAN"), f16(4, 9, low=-0.9, high=0.9), **RAW)
add("float16_positive", each("LOG LOG1P SQRT ERFCINV"), f16(4, 9, low=0.1, high=1.9), **RAW)
add("float16_binary", each(FLOATS), f16(4, 9), f16(4, 9), **RAW)
add("float16_ternary", each("COND_LEQ_MOV COND_LT_MOV CLIP PRELU_GRAD"), f16(4, 9), f16(4, 9), f16(4, 9), **RAW)
add("float16_fast_tanh_large", elemwise("FAST_TANH"), values([-200, -90, 90, 3000], "float16"), **RAW)
WHOLE = {
    "int16": i16(5, 67, low=-(2**15), high=2**15),
    "int8": i8(5, 67, low=-127, high=128),
    "uint8": u8(5, 67, high=256),
}
for dtype, drawn in {**WHOLE, "int32": i32(5, 67, low=-200, high=200)}.items():
    # MegEngine multiplies int32 in float32: its products are exact up to 2**24.
    add(f"{dtype}_unary", each("ABS NEGATE RELU RELU6 SIGN SQUARE"), drawn, **RAW)
    modes = "ADD SUB MUL MAX MIN PRELU ABS_GRAD SIGMOID_GRAD TANH_GRAD LT LEQ EQ SWITCH_GT0"
    add(f"{dtype}_binary", each(modes), drawn, drawn, **RAW)
    add(f"{dtype}_ternary", each("COND_LEQ_MOV COND_LT_MOV CLIP FUSE_MUL_ADD3"), drawn, drawn, drawn, **RAW)
ANY = i32(5, 67, low=-(2**31), high=2**31)
add("int32_add_large", each("ADD SUB MAX MIN LT LEQ EQ"), ANY, ANY, **RAW)
add("int32_floor_div_any", each("FLOOR_DIV MOD"), ANY, i32(5, 67, low=1, high=2**30), **RAW)
add(
    "int32_floor_div_small",
    each("FLOOR_DIV MOD"),
    ANY,
    values([-7, -3, -2, 2, 3, 5, 1] * 9 + [-1, 10, 100, 1000], "int32"),
    **RAW,
)
for dtype, drawn in {**WHOLE, "int32": ANY}.items():
    add(f"{dtype}_rmulh", elemwise("RMULH"), drawn, drawn, **RAW)
    least = values([np.iinfo(dtype).min, np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
    add(f"{dtype}_rmulh_limits", elemwise("RMULH"), least, least[[0, 2, 2]], **RAW)
    bits = values([0, 1, 3, 7, 15, 16, 29, 30, 31, 32, 33, 40][:: 2 if dtype != "int32" else 1], dtype)
    add(f"{dtype}_shifts", each("SHL SHR"), Draw(dtype, (5, len(bits)), drawn.low, drawn.high), bits, **RAW)
add("erfc_far", elemwise("ERFC"), values([2, 3, 4, 5, 7, 9]), **RAW)
add("erfc_far_negative", elemwise("ERFC"), values([-9, -5, -3, -1, -1e-3, 0, 1e-3]), **RAW)
add(
    "erfinv_ends",
    elemwise("ERFINV"),
    values([-1, -0.9999999, -0.999, -1e-6, 0, 1e-10, 0.5, 0.999999, 1, 1.5, -2]),
    **RAW,
)
add(
    "erfcinv_ends",
    elemwise("ERFCINV"),
    values([0, 1e-38, 1e-20, 1e-6, 0.01, 0.9999999, 1, 1.5, 1.9999999, 2, 3, -1]),
    **RAW,
)
add("atan2_quadrants", elemwise("ATAN2"), values([[0, 0, -0.0, -0.0, 1, -1, 1, -1, 2, -2, 3]]),
    values([[1, -1, 1, -1, 0, 0, -0.0, 1, -3, -3, np.inf]]), **RAW)  # fmt: skip
add("atan2_constant", lambda x: [F.atan2(x, weight(1, low=2)), F.atan(x)], FREE, **RAW)
add(
    "log_sum_exp_large",
    elemwise("LOG_SUM_EXP"),
    values([100, -100, 1000, 0, 3]),
    values([100, -90, 0, -1000, 3]),
    **RAW,
)
add(
    "pow_of_negative",
    elemwise("POW"),
    values([-2, -2, -3, -0.5, -2, 0, 2]),
    values([2, 3, -1, -2, 0.5, 0, -0.5]),
    **RAW,
)
add("pow_constant", lambda x: [x**e for e in (0.5, -0.5, 2, 3, 4, -2, 1.7)], POSITIVE, **RAW)
POWERS = (1.7, 0.2, 1 / 3, -1 / 3, 0.3333, 5 / 3, -0.25, 3, -1, 2.5)
add("pow_constant_negative", lambda x: [x**e for e in POWERS], FREE, **RAW)
add("pow_constant_negative_optimised", lambda x: [x**e for e in POWERS], FREE)
add("pow_c", lambda x: [run_op(builtin.Elemwise(mode="POW"), x, F.full((1,), e)) for e in (0.5, -0.5, 2, 3)], POSITIVE)
for name, shape in {"scalar": (1,), "channels": (3, 1), "full": (2, 3, 5), "larger": (4, 2, 3, 5)}.items():
    add(f"prelu_{name}", elemwise("PRELU"), FREE, f32(*shape), **RAW)
add("clip_crossed", lambda x: elemwise("CLIP")(x, F.full((1,), 1.0), F.full((1,), -1.0)), FREE, **RAW)
add("clip_constant", lambda x: elemwise("CLIP")(x, F.full((1,), -1.0), F.full((1,), 0.5)), FREE, **RAW)
add("clip_constant_int32", lambda x: elemwise("CLIP")(x, F.full((1,), -2), F.full((1,), 3)), i32(4, 6), **RAW)


def selected(x):
    """Element-wise operators on as many numbers as the data says."""
    y, _ = F.cond_take(x > 0, x)
    count = y.shape[0]
    return [F.exp(y) * 2 + y, F.relu(y - 1), F.maximum(y, 0.5), count // 2, count % 3, (y > 1).astype("int32")]


add("selected_numbers", selected, FREE)

# Results of another dtype.
for dtype in ("int8", "int16"):
    for bits in (0, 1, 6):
        add(
            f"multi_type_round_shift_{dtype}_{bits}",
            multi_type("ROUND_SHR_SATURATE_IXxI8xI8", "int8"),
            WHOLE[dtype],
            values([bits], "int8"),
            **RAW,
        )
for bits in (0, 8, 24, 30):
    add(
        f"multi_type_round_shift_int32_{bits}",
        multi_type("ROUND_SHR_SATURATE_IXxI8xI16", "int16"),
        ANY,
        values([bits], "int8"),
        **RAW,
    )
add(
    "multi_type_mul_add3_to_int8_halves",
    multi_type("FUSE_MUL_ADD3_IXxF32xF32xI8", "int8"),
    i16(5, 12, low=-400, high=400),
    values([0.5] * 12),
    values([0, 0.5, 1, 0.25] * 3),
    **RAW,
)
for dtype, count in (("int16", 16), ("int32", 32)):
    limits = {"int16": i16(2, 3, 4, 5, low=-(2**14), high=2**14), "int32": i32(2, 3, 4, 5, low=-(2**30), high=2**30)}
    add(
        f"multi_type_add_rmulh_{dtype}",
        multi_type(f"FUSE_ADD_RMULH_ROUND_SHR_SATURATE_INT{count}x{count}x{count}x8", "int8"),
        limits[dtype],
        Draw(dtype, (1, 3, 1, 1), -100, 100),
        values([2 ** (count - 2) + 1234], dtype),
        values([count - 10], "int8"),
        values([-100], "int8"),
        values([90], "int8"),
        **RAW,
    )
