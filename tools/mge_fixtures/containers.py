"""Containers and options of the dump: v1, old versions, names, half precision, several inputs and outputs."""

import megengine as mge
import megengine.functional as F
import megengine.module as M
from megengine.core._imperative_rt.core2 import apply
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, case, f32, i8, i16, i32, u8, values, weight

X = f32(2, 3, 6, 6)
OTHER = [f32(1, 3, 9, 7)]


@case(X, resized=OTHER)
class plain(M.Module):
    """A little of everything that every network has."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = M.ConvBnRelu2d(3, 4, 3, padding=1), M.Linear(4, 5)

    def forward(self, x):
        x = F.max_pool2d(self.conv(x), 2)
        return F.softmax(self.fc(F.flatten(F.adaptive_avg_pool2d(x, 1), 1)), axis=1)


V1 = {"dump_format": "FBS"}
add("v1", plain, X, **V1, resized=OTHER)
add("v1_raw", plain, X, **V1, **RAW)
add("v1_keep", plain, X, **V1, **KEEP)
for level in (0, 1, 2):
    add(f"keep_var_name_{level}", plain, X, keep_var_name=level)
    add(f"v1_keep_var_name_{level}", plain, X, keep_var_name=level, **V1)
add("keep_opr_name", plain, X, keep_opr_name=True, keep_param_name=True, keep_opr_priority=True)
add("v1_keep_opr_name", plain, X, keep_opr_name=True, keep_param_name=True, keep_opr_priority=True, **V1)
add("model_version_1", M.Sequential(M.Linear(5, 3), M.ReLU()), f32(4, 5), model_version=1)
add(
    "model_version_1_shapes",
    lambda x: F.softmax(F.reshape(F.transpose(x[:, 1:], (1, 0, 2)), (-1, 5)) ** 2, axis=1),
    f32(2, 3, 5),
    model_version=1,
)
add("model_version_1_conv", plain, X, model_version=1, reference={})
add("no_optimisation", plain, X, optimize_for_inference=False)
add("no_change_graph", plain, X, no_change_graph=True)
add("no_metadata", plain, X, enable_metadata=False)
add("v1_no_metadata", plain, X, enable_metadata=False, **V1)
add("user_info", plain, X, user_info={"labels": ["a", "b"]})
add("v1_user_info", plain, X, user_info={"labels": ["a", "b"]}, **V1)
add("fused", plain, X, enable_fuse_conv_bias_nonlinearity=True)
# On x86, lite's maximum pooling is wrong in half precision.
HALF = {"reference": {}, "relative": 5e-3}
add("ioc16", plain, X, enable_ioc16=True, **HALF)
add("io16xc32", plain, X, enable_io16xc32=True, **HALF)
add("ioc16_v1", plain, X, enable_ioc16=True, **HALF, **V1)
add("ioc16_linear", M.Sequential(M.Linear(5, 3), M.ReLU(), M.Linear(3, 2)), f32(4, 5), enable_ioc16=True, relative=5e-3)
add("test_case", plain, X, input_data=["#rand(-1,1)"], reference={})
add("test_case_no_assert", plain, X, input_data=["#rand(-1,1)"], no_assert=True, reference={})
add(
    "fuse_preprocess",
    lambda x: F.conv2d((x.astype("float32") - 128) / 64, weight(4, 3, 3, 3)),
    u8(1, 3, 6, 6),
    enable_fuse_preprocess=True,
)


# Inputs and outputs.
@case(f32(2, 3), f32(3), i32(2, low=0, high=3), u8(2, 3), i8(3), i16(2, 1))
def many_inputs(x, y, z, w, v, u):
    return (
        x * y + w.astype("float32") + v.astype("float32") * u.astype("float32") + F.expand_dims(z.astype("float32"), 1)
    )


@case(f32(2, 4), resized=[f32(3, 6)])
def many_outputs(x):
    return x + 1, F.sum(x, axis=1), F.argmax(x, axis=1), F.topk(x, 2, descending=True), x[0]


@case(f32(2, 4), f32(2, 4))
def unused_input(x, y):  # noqa: ARG001
    return F.exp(y)


@case(f32(2, 4))
def same_output_twice(x):
    y = F.exp(x)
    return y, y + 1, y


@case(f32(2, 4))
def input_as_output(x):
    return x, x * 2


@case(f32(2, 4))
def constant_output(x):
    return weight(3), x + 1


NAMES = ["data", "info", "scale"]
for form in ({}, V1):
    end = "_v1" if form else ""
    add(
        f"names{end}",
        lambda x, y, z: [x * z, y - 1],
        f32(2, 3),
        f32(2, 2),
        f32(1),
        arg_names=NAMES,
        output_names=["prob", "rest"],
        **form,
    )
    add(f"default_names{end}", lambda x, y, z: [x * z, y - 1], f32(2, 3), f32(2, 2), f32(1), arg_names=None, **form)
    add(
        f"names_with_signs{end}", lambda x: x + 1, f32(2), arg_names=["in/put:0[x]"], output_names=["out.put é"], **form
    )
add("scalar_constant", lambda x: x * 2.5 + 1, f32(1))
add("rank_7", lambda x: F.transpose(x, (6, 5, 4, 3, 2, 1, 0)) + 1, f32(2, 1, 2, 1, 2, 1, 3))
add("shared_weights", lambda x: F.matmul(F.matmul(x, SHARED), SHARED), f32(2, 4))
SHARED = weight(4, 4)

# The tracer: shapes as numbers, the network run while it is traced, or not run at all.
TRACED = {"symbolic_shape": False}, {"symbolic": False}, {"record_only": True}
for option in TRACED:
    (name,) = option
    add(f"traced_{name}", plain, X, **option)
    add(f"traced_{name}_reshape", lambda x: F.reshape(x, (x.shape[0], -1)) / x.shape[1], f32(2, 3, 4), **option)


# In v1 a variable has no number of its own: the reader must know how many outputs each operator has. Each of these is
# used by a later operator, next to others of its outputs.
def numbered(op, *constants, used=(0,)):
    """The named outputs of an operator, each with one added behind it."""

    def function(*inputs):
        outputs = apply(op, *inputs, *constants)
        return [outputs[k] + 1 for k in used] + [F.exp(inputs[0] * 0.1)]

    return function


ROWS, IMAGE = f32(3, 7), f32(2, 4, 6, 5)
SIZE = mge.Tensor([2, 3], dtype="int32")
ROIS = values([[0, 1, 1, 4, 5], [1, 0.3, 0.7, 3.1, 4.9]])
BOXES = values([[[0, 0, 4, 4], [1, 1, 5, 5], [0, 0, 4, 3], [6, 6, 9, 9]]])
STATES = [weight(1, 2, 4), weight(1, 2, 4)]
CELL = [weight(16, 3), weight(16), weight(2, 4), weight(16, 4), weight(16)]
RNN_CELL = [weight(4, 3), weight(4), weight(2, 4), weight(4, 4), weight(4)]
COUNTS = {
    "topk": (numbered(builtin.TopK(mode="VALUE_IDX_SORTED"), mge.Tensor([-3], dtype="int32"), used=(0, 1)), ROWS),
    "topk_kth": (numbered(builtin.TopK(mode="KTH_ONLY"), mge.Tensor([3], dtype="int32")), ROWS),
    "argsort": (numbered(builtin.Argsort(), used=(0, 1)), ROWS),
    "cond_take": (lambda x, y: [z + 1 for z in F.cond_take(y > 0, x)] + [x * 2], f32(3, 4), f32(3, 4)),
    "split": (lambda x: [z + 1 for z in F.split(x, 3, axis=1)] + [x * 2], f32(2, 6)),
    "layer_norm": (numbered(builtin.LayerNorm(affine=False, eps=1e-5, normalized_dim=1, normalized_size=5)), IMAGE),
    "group_norm": (numbered(builtin.GroupNorm(affine=False, eps=1e-5, group=2)), IMAGE),
    "instance_norm": (numbered(builtin.InstanceNorm(affine=False, eps=1e-5)), IMAGE),
    "general_norm": (numbered(builtin.GeneralNorm(affine=False, eps=1e-5, axis_start=1, axis_end=3)), IMAGE),
    "roi_align": (numbered(builtin.ROIAlign(mode="AVERAGE", pooled_height=2, pooled_width=2)), IMAGE, ROIS),
    "roi_pooling": (numbered(builtin.ROIPooling(mode="MAX", scale=1.0), SIZE), IMAGE, ROIS),
    "adaptive_pooling": (numbered(builtin.AdaptivePooling(mode="AVERAGE", shape=[2, 3])), IMAGE),
    "pooling": (numbered(builtin.Pooling(mode="MAX")), IMAGE),
    "convolution": (numbered(builtin.Convolution(), weight(3, 4, 2, 2)), IMAGE),
    "matmul": (numbered(builtin.MatrixMul(dimA=2, dimB=2), weight(7, 2)), ROWS),
    "lrn": (numbered(builtin.LRN(n=3, k=1.0, alpha=0.1, beta=0.75)), IMAGE),
    "softmax": (numbered(builtin.Softmax(axis=1)), IMAGE),
    "cumsum": (numbered(builtin.Cumsum(axis=1, exclusive=False, reverse=False)), ROWS),
    "reduce": (numbered(builtin.Reduce(mode="SUM", axis=1)), ROWS),
    "argmax": (lambda x: [F.argmax(x, axis=1) + 1, x * 2], ROWS),
    "nms_keep": (numbered(builtin.NMSKeep(iou_thresh=0.4, max_output=3), used=(0, 1)), BOXES),
    "lstm_cell": (numbered(builtin.LSTMCell(), *CELL, weight(2, 4), used=(0, 1)), f32(2, 3)),
    "rnn_cell": (numbered(builtin.RNNCell(nonlineMode="TANH"), *RNN_CELL), f32(2, 3)),
    "lstm": (
        numbered(builtin.LSTM(hidden_size=4, fwd_mode="INFERENCE"), *STATES, weight(144), used=(0, 1, 2)),
        f32(5, 2, 3),
    ),
    "rnn": (
        numbered(
            builtin.RNN(hidden_size=4, nonlineMode="TANH", fwd_mode="INFERENCE"), STATES[0], weight(36), used=(0, 1)
        ),
        f32(5, 2, 3),
    ),
    "svd": (numbered(builtin.SVD(), used=(1,)), f32(3, 2)),
    "deformable_conv": (
        numbered(builtin.DeformableConv(), weight(3, 4, 2, 2), weight(2, 8, 5, 4, scale=0.3), weight(2, 4, 5, 4)),
        IMAGE,
    ),
    "resize": (numbered(builtin.Resize(imode="LINEAR", format="NCHW"), SIZE), IMAGE),
    "elemwise_multi_type": (lambda x, y: [(x < y).astype("float32") + 1, x * 2], ROWS, ROWS),
    "dimshuffle": (numbered(builtin.Dimshuffle(pattern=[1, 0])), ROWS),
}
for name, (function, *inputs) in COUNTS.items():
    add(f"v1_count_{name}", function, *inputs, **V1, **RAW)
