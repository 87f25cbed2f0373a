"""Sorting and selecting cases."""

import megengine as mge
import megengine.functional as F
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures.table import RAW, add, applied, f16, f32, i8, i16, i32, run_op, u8, values

X = f32(3, 7)
TIES = values([[1, 3, 1, 3, 2, 3, 1], [0, 0, 0, 0, 0, 0, 0]])

add("sort", lambda x: F.sort(x), X, resized=[f32(2, 9)])
add("sort_descending", lambda x: F.sort(x, descending=True), X)
add("argsort", lambda x: F.argsort(x), X)
add("argsort_descending", lambda x: F.argsort(x, descending=True), X)
add("sort_rank1", lambda x: F.sort(x), f32(9))
add("argsort_rank1", lambda x: F.argsort(x), f32(9))
add("sort_int32", lambda x: F.sort(x), i32(3, 7, low=-99, high=99))
add("sort_float16", lambda x: F.sort(x), f16(3, 7))
add("sort_ties", lambda x: F.sort(x), TIES)
add("sort_ties_descending", lambda x: F.sort(x, descending=True), TIES)
add("argsort_op", applied(builtin.Argsort(order="ASCENDING")), X, **RAW)
add("argsort_op_descending", applied(builtin.Argsort(order="DESCENDING")), X, **RAW)
add("sort_infinities", lambda x: F.sort(x), values([[np.inf, 1, -np.inf, 0, 2]]))

for descending in (False, True):
    end = "_descending" if descending else ""
    add(f"topk{end}", lambda x, d=descending: F.topk(x, 3, descending=d), X, resized=[f32(2, 9)])
    add(f"topk_all{end}", lambda x, d=descending: F.topk(x, 7, descending=d), X)
    add(f"topk_kth{end}", lambda x, d=descending: F.topk(x, 3, descending=d, kth_only=True), X)
    add(f"topk_ties{end}", lambda x, d=descending: F.topk(x, 4, descending=d), TIES)
    add(f"topk_no_sort{end}", lambda x, d=descending: F.topk(x, 3, descending=d, no_sort=True), X, unordered=True)
    add(f"topk_int32{end}", lambda x, d=descending: F.topk(x, 3, descending=d), i32(3, 7, low=-99, high=99))
add("topk_rank1", lambda x: F.topk(x, 3), f32(9))
add("topk_one", lambda x: F.topk(x, 1, descending=True), X)
add("topk_by_input", applied(builtin.TopK(mode="VALUE_IDX_SORTED")), X, values([-4], "int32"), **RAW)
add("topk_kth_by_input", applied(builtin.TopK(mode="KTH_ONLY")), X, values([2], "int32"), **RAW)
add("median", lambda x: F.sort(x)[0][:, x.shape[1] // 2], X, resized=[f32(2, 9)])

# Of equal numbers the last comes first where the largest do.
EQUAL = i32(3, 40, low=0, high=5)


def top(mode, k):
    return lambda x: run_op(builtin.TopK(mode=mode), x, mge.Tensor([k], dtype="int32"))


for k in (-40, -7, -1, 1, 7, 40):
    end = f"{'largest' if k < 0 else 'smallest'}_{abs(k)}_of_40"
    add(f"topk_sorted_{end}", top("VALUE_IDX_SORTED", k), EQUAL, **RAW)
    add(f"topk_unsorted_{end}", top("VALUE_IDX_NOSORT", k), EQUAL, unordered=True, **RAW)
    add(f"topk_kth_{end}", top("KTH_ONLY", k), EQUAL, **RAW)
    add(f"topk_given_{end}", applied(builtin.TopK(mode="VALUE_IDX_SORTED")), EQUAL, values([k], "int32"), **RAW)
add("argsort_many_equal", applied(builtin.Argsort(order="DESCENDING")), i32(2, 300, low=0, high=9), **RAW)
add("argsort_zeros", applied(builtin.Argsort(order="DESCENDING")), values([[0.0, -0.0, 0.0, -0.0, 1.0]]), **RAW)
for name, draw in (("int8", i8), ("uint8", u8), ("int16", i16), ("float16", f16)):
    add(f"argsort_{name}", applied(builtin.Argsort(order="DESCENDING")), draw(3, 7), **RAW)
    add(f"topk_{name}", top("VALUE_IDX_SORTED", -3), draw(3, 7), **RAW)
    add(f"topk_kth_{name}", top("KTH_ONLY", 2), draw(3, 7), **RAW)
