"""Pooling, sliding windows."""

import megengine.functional as F
import megengine.module as M
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, applied, f16, f32, i8, u8, values

X = f32(1, 2, 9, 8)
OTHER = [f32(2, 2, 7, 10)]

for name, function in {"max": F.max_pool2d, "avg": F.avg_pool2d}.items():
    add(f"{name}_pool2d", lambda x, f=function: f(x, 2), X, resized=OTHER)
    add(f"{name}_pool2d_stride", lambda x, f=function: f(x, 3, 1), X, resized=OTHER)
    add(f"{name}_pool2d_padding", lambda x, f=function: f(x, 3, 2, 1), X, resized=OTHER)
    add(f"{name}_pool2d_uneven", lambda x, f=function: f(x, (2, 3), (1, 2), (0, 1)), X)
    add(f"{name}_pool2d_whole", lambda x, f=function: f(x, (9, 8)), X)
    add(f"{name}_pool2d_float16", lambda x, f=function: f(x, 2), f16(1, 2, 6, 6))
    add(f"{name}_pool2d_v1", lambda x, f=function: f(x, 2), X, dump_format="FBS")
add("max_pool2d_negative_values", lambda x: F.max_pool2d(x - 10, 3, 2, 1), X)
add("max_pool2d_int8", lambda x: F.max_pool2d(x, 2), i8(1, 4, 6, 6))
add("max_pool2d_uint8", lambda x: F.max_pool2d(x, 2), u8(1, 4, 6, 6))
for mode in ("average", "average_count_exclude_padding"):
    add(f"avg_pool2d_{mode}", lambda x, mode=mode: F.avg_pool2d(x, 3, 2, 1, mode=mode), X)
    add(f"avg_pool2d_{mode}_wide", lambda x, mode=mode: F.avg_pool2d(x, (3, 5), (2, 3), (1, 2), mode=mode), X)
for mode in ("MAX", "AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING"):
    op = builtin.Pooling(mode=mode, window_h=3, window_w=2, stride_h=2, stride_w=1, pad_h=1, pad_w=0, format="NHWC")
    add(f"pooling_{mode.lower()}_nhwc", applied(op), f32(1, 9, 8, 2), **RAW)
    default = builtin.Pooling(mode=mode)
    add(f"pooling_{mode.lower()}_defaults", applied(default), X, **RAW)

for name, function in {"max": F.adaptive_max_pool2d, "avg": F.adaptive_avg_pool2d}.items():
    add(f"adaptive_{name}_pool2d_divides", lambda x, f=function: f(x, (3, 4)), X)
    add(f"adaptive_{name}_pool2d_overlaps", lambda x, f=function: f(x, (4, 3)), X, resized=OTHER)
    add(f"adaptive_{name}_pool2d_one", lambda x, f=function: f(x, (1, 1)), X, resized=OTHER)
    add(f"adaptive_{name}_pool2d_same", lambda x, f=function: f(x, (9, 8)), X)
    add(f"adaptive_{name}_pool2d_5x7", lambda x, f=function: f(x, (5, 7)), X)
    add(f"adaptive_{name}_pool2d_by_input", lambda x, y, f=function: f(x, y), X, values([2, 5], "int32"), **KEEP)
add(
    "adaptive_pooling_exclude_padding",
    applied(builtin.AdaptivePooling(mode="AVERAGE_COUNT_EXCLUDE_PADDING", shape=[4, 3])),
    X,
    **RAW,
)

add("sliding_window", lambda x: F.nn.sliding_window(x, (3, 2)), X, resized=OTHER)
add("sliding_window_stride", lambda x: F.nn.sliding_window(x, (3, 3), padding=(1, 1), stride=(2, 3)), X)
add("sliding_window_dilated", lambda x: F.nn.sliding_window(x, (3, 2), dilation=(2, 3)), X)
WINDOWS = f32(1, 2, 7, 7, 3, 2)
add("sliding_window_transpose", lambda x: F.nn.sliding_window_transpose(x, (9, 8), (3, 2)), WINDOWS)
add(
    "sliding_window_transpose_stride",
    lambda x: F.nn.sliding_window_transpose(x, (9, 8), (3, 3), padding=(1, 1), stride=(2, 3)),
    f32(1, 2, 5, 3, 3, 3),
)
add(
    "sliding_window_transpose_dilated",
    lambda x: F.nn.sliding_window_transpose(x, (9, 8), (3, 2), dilation=(2, 3)),
    f32(1, 2, 5, 5, 3, 2),
)
add("modules", M.Sequential(M.MaxPool2d(2), M.AvgPool2d(2, 1), M.AdaptiveAvgPool2d(2)), f32(1, 3, 12, 10))

# Means of integers: cut off where padding counts, rounded where it does not.
for mode in ("AVERAGE", "AVERAGE_COUNT_EXCLUDE_PADDING"):
    whole = builtin.Pooling(mode=mode, window_h=2, window_w=3, stride_h=1, stride_w=1, pad_h=1, pad_w=1)
    add(f"pooling_{mode.lower()}_int8", applied(whole), i8(1, 2, 7, 6), **RAW)
add("max_pool2d_of_chosen", lambda x, y: F.max_pool2d(x[y > 0], 2), f32(5, 2, 6, 6), values([1, -1, 2, 3, 0]), **KEEP)
add("sliding_window_of_float16", lambda x: F.nn.sliding_window(x, (3, 2), padding=1), f16(1, 2, 5, 6))
