"""Reductions, arg-reductions, running sums, norms, softmax."""

import megengine as mge
import megengine.functional as F
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, applied, f16, f32, i8, i16, i32, run_op, u8, values

X = f32(2, 3, 5, 4)
OTHER = [f32(3, 2, 4, 6)]


def reduce(mode, axis, **kwargs):
    return lambda *inputs: run_op(builtin.Reduce(mode=mode, axis=axis, **kwargs), *inputs)


def reduce_to(mode, *shape):
    op = builtin.Reduce(mode=mode, axis=2147483647)
    return lambda x: run_op(op, x, mge.Tensor(np.array(shape, np.int32)))


for name in ("sum", "mean", "max", "min", "prod", "var", "std"):
    function = getattr(F, name)
    add(f"{name}_axis", lambda x, f=function: f(x, axis=1), X, resized=OTHER)
    add(f"{name}_keepdims", lambda x, f=function: f(x, axis=-1, keepdims=True), X)
    add(f"{name}_all", lambda x, f=function: f(x), f32(3, 4), resized=[f32(2, 5)])
    add(f"{name}_two_axes", lambda x, f=function: f(x, axis=(2, 3)), X)
for name in ("sum", "mean", "max", "min", "prod"):
    function = getattr(F, name)
    add(f"{name}_int32", lambda x, f=function: f(x, axis=1), i32(3, 5))
for name in ("sum", "mean", "max", "min"):
    function = getattr(F, name)
    add(f"{name}_int8", lambda x, f=function: f(x, axis=1), i8(3, 5, low=-20, high=20))
    add(f"{name}_uint8", lambda x, f=function: f(x, axis=0), u8(3, 5, high=60))
    add(f"{name}_float16", lambda x, f=function: f(x, axis=1), f16(3, 5))
for mode in ("SUM", "SUM_SQR", "PRODUCT", "MIN", "MAX", "MEAN"):
    add(f"reduce_{mode.lower()}", reduce(mode, 1), X, **RAW)
    add(f"reduce_{mode.lower()}_negative_axis", reduce(mode, -2), X, **RAW)
    add(f"reduce_{mode.lower()}_to_shape", reduce_to(mode, 1, 3, 1), f32(2, 3, 4), **RAW)
    add(f"reduce_{mode.lower()}_to_one", reduce_to(mode, 1), f32(2, 3, 4), resized=[f32(3, 2, 2)], **RAW)
    add(f"reduce_{mode.lower()}_to_same", reduce_to(mode, 2, 3), f32(2, 3), **RAW)
    add(f"reduce_{mode.lower()}_of_one", reduce_to(mode, 1), f32(1), **RAW)
    add(f"reduce_{mode.lower()}_size_one", reduce(mode, 1), f32(2, 1, 3), **RAW)
    add(f"reduce_{mode.lower()}_to_lower_rank", reduce_to(mode, 3, 1), f32(2, 3, 4), **RAW)
    add(f"reduce_{mode.lower()}_to_last_axis", reduce_to(mode, 4), f32(2, 3, 4), **RAW)
    add(f"reduce_{mode.lower()}_op_int8", reduce(mode, 1), i8(2, 9), **RAW)
    add(f"reduce_{mode.lower()}_op_int16", reduce(mode, 1), i16(2, 4, low=-40, high=40), **RAW)
    add(f"reduce_{mode.lower()}_int8_as_float", reduce(mode, 0, data_type="FLOAT_O32xC32"), i8(3, 5), **RAW)
add("reduce_mean_many_int8", reduce("MEAN", 1), i8(2, 300), **RAW)
add("reduce_sum_overflow", reduce("SUM", 1), i32(2, 5, low=900_000_000, high=1_000_000_000), **RAW)
add("reduce_to_data_shape", reduce("SUM", 2147483647), f32(2, 3, 4), values([1, 3, 1], "int32"), **RAW)
add("reduce_sum_keepdim_false", reduce("SUM", 1, keepdim=False), X, **RAW)
add("reduce_max_infinite", reduce("MAX", 1), values([[-np.inf, 2, np.inf], [-np.inf] * 3]), **RAW)
add("reduce_min_infinite", reduce("MIN", 1), values([[-np.inf, 2, np.inf], [np.inf] * 3]), **RAW)
for data_type in ("FLOAT_IO16xC32", "FLOAT_O32xC32", "FLOAT_O16xC32"):
    add(f"reduce_sum_{data_type.lower()}", reduce("SUM", 1, data_type=data_type), f16(3, 5), **RAW)
add("reduce_sum_half_float32_input", reduce("SUM", 1, data_type="FLOAT_O16xC32"), f32(3, 5), **RAW)

for name in ("argmax", "argmin"):
    function = getattr(F, name)
    add(name, lambda x, f=function: f(x, axis=1), X, resized=OTHER)
    add(f"{name}_keepdims", lambda x, f=function: f(x, axis=2, keepdims=True), X)
    add(f"{name}_all", lambda x, f=function: f(x), f32(3, 4))
    add(f"{name}_ties", lambda x, f=function: f(x, axis=1), i32(4, 9, low=0, high=3))
    add(f"{name}_op", applied(getattr(builtin, name.capitalize())(axis=1)), X, **RAW)
    add(f"{name}_int8", lambda x, f=function: f(x, axis=0), i8(4, 5))
    add(f"{name}_int16", lambda x, f=function: f(x, axis=0), i16(4, 5))
    # Compared as float32, in which some of these are equal.
    large = values([[16777217, 16777216, 16777218, 3], [16777216, 16777217, 16777215, 2]], "int32")
    add(f"{name}_large_int32", lambda x, f=function: f(x, axis=1), large)
    add(f"{name}_infinite", lambda x, f=function: f(x, axis=1), values([[-np.inf] * 3, [np.inf] * 3, [1, np.inf, 2]]))

add("cumsum", lambda x: F.cumsum(x, 1), f32(3, 5), resized=[f32(2, 7)])
add("cumsum_axis0", lambda x: F.cumsum(x, 0), f32(3, 5))
add("cumsum_negative_axis", lambda x: F.cumsum(x, -1), X)
add("cumsum_int32", lambda x: F.cumsum(x, 1), i32(3, 5))
add("cumsum_int8", lambda x: F.cumsum(x, 1), i8(3, 5))
add("cumsum_float16", lambda x: F.cumsum(x, 1), f16(3, 5))
for exclusive in (False, True):
    for reverse in (False, True):
        name = f"cumsum_op{'_exclusive' if exclusive else ''}{'_reverse' if reverse else ''}"
        op = builtin.Cumsum(axis=1, exclusive=exclusive, reverse=reverse)
        add(name, applied(op), f32(3, 5), **RAW)

add("norm_2", lambda x: F.norm(x, 2), f32(7))
add("norm_1", lambda x: F.norm(x, 1, axis=1), f32(3, 5))
add("norm_inf", lambda x: F.norm(x, float("inf"), axis=1), f32(3, 5))
add("norm_3", lambda x: F.norm(x, 3, axis=0), f32(3, 5))
add("normalize", lambda x: F.normalize(x, axis=1), f32(3, 5))
add("softmax", lambda x: F.softmax(x, axis=1), X, resized=OTHER)
add("softmax_last", lambda x: F.softmax(x, axis=-1), f32(3, 5))
add("softmax_axis0", lambda x: F.softmax(x, axis=0), f32(3, 5))
add("softmax_middle", lambda x: F.softmax(x, axis=2), X)
add("softmax_large", lambda x: F.softmax(x, axis=1), f32(3, 5, low=-90, high=90))
add("softmax_float16", applied(builtin.Softmax(axis=-1)), f16(3, 5), **RAW)
add("softmax_rank5", applied(builtin.Softmax(axis=-3)), f32(2, 3, 4, 2, 3), **RAW)
add("softmax_masked", applied(builtin.Softmax(axis=1)), values([[1, -np.inf, 2], [-np.inf, -np.inf, 0]]), **RAW)
add("softmax_keep", lambda x: F.softmax(x, axis=1), X, **KEEP)
add("softmax_v1", lambda x: F.softmax(x, axis=-1), f32(3, 5), dump_format="FBS")
add("logsoftmax", lambda x: F.logsoftmax(x, axis=1), f32(3, 5))
add("logsumexp", lambda x: F.logsumexp(x, axis=1), f32(3, 5))
add("logsumexp_keepdims", lambda x: F.logsumexp(x, axis=1, keepdims=True), f32(3, 5))
