"""Layers: convolution, pooling, normalisation, activation, products, recurrence, attention."""

import numpy as np
from mindir_fixtures.table import Case, case, f16, f32, i32, values
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P

X = f32(2, 3, 7, 5)
Y = f32(2, 6, 3, 4)
SHORT = f32(3, 5, low=-4, high=4)


def cases() -> list[Case]:
    return [*convolution(), *pooling(), *normalisation(), *activation(), *products(), *recurrent()]


def convolution() -> list[Case]:
    t = nn.Conv2dTranspose
    x3 = f32(1, 2, 4, 5, 6)
    return [
        case("conv2d_valid", nn.Conv2d(3, 5, 3, pad_mode="valid"), X),
        case("conv2d_same_stride", nn.Conv2d(3, 5, 3, 2, "same", has_bias=True), X),
        case("conv2d_pad_uneven", nn.Conv2d(3, 5, 3, 2, "pad", padding=(1, 2, 0, 3), has_bias=True), X),
        case("conv2d_dilation", nn.Conv2d(3, 5, (3, 2), 1, "pad", padding=(2, 2, 1, 1), dilation=(2, 3)), X),
        case("conv2d_group", nn.Conv2d(6, 9, 3, 1, "pad", padding=1, group=3), f32(2, 6, 5, 7)),
        case("conv2d_depthwise", nn.Conv2d(5, 5, 3, 2, "pad", padding=1, group=5), f32(2, 5, 9, 7)),
        case("conv1d_same", nn.Conv1d(3, 5, 3, 2, "same", has_bias=True), f32(2, 3, 11)),
        case("conv3d_same", nn.Conv3d(2, 3, (2, 3, 3), (1, 2, 1), "same", has_bias=True), x3),
        case("conv3d_pad", nn.Conv3d(2, 3, 3, 2, "pad", padding=(1, 2, 0, 1, 2, 0)), x3),
        case("conv2d_transpose_same", t(3, 5, 3, 2, "same", has_bias=True), X),
        case("conv2d_transpose_pad", t(3, 5, 4, 2, "pad", padding=1), X),
        case("conv2d_transpose_output_padding", t(3, 5, 3, 2, "pad", padding=1, output_padding=1), X),
        case("conv3d_transpose_valid", nn.Conv3dTranspose(2, 3, (2, 3, 2), (1, 2, 2), "valid"), f32(1, 2, 2, 3, 4)),
        case("bias_add_rank3", "P.BiasAdd()(x, y)", f32(2, 5, 3), f32(5)),
        case("conv2d_dynamic_same", nn.Conv2d(3, 5, 3, 2, "same", has_bias=True), X, shapes=[(None, 3, None, None)]),
    ]


def pooling() -> list[Case]:
    x, x3 = f32(2, 3, 9, 7), f32(1, 2, 5, 6, 7)
    return [
        case("max_pool2d_valid", nn.MaxPool2d(3, 2), x),
        case("max_pool2d_same", nn.MaxPool2d(3, 2, "same"), x),
        case("max_pool2d_pad_ceil", nn.MaxPool2d(3, 2, "pad", padding=1, ceil_mode=True), x),
        case("max_pool1d", nn.MaxPool1d(3, 2), f32(2, 3, 11)),
        case("max_pool3d_pad", nn.MaxPool3d(3, 2, "pad", padding=1), x3),
        case("max_pool3d_same", "self.op(x)", x3, op=P.MaxPool3D(3, 2, "same")),
        case("max_pool_with_argmax", "self.op(x)", x, op=P.MaxPoolWithArgmax((3, 2), (2, 3), "valid")),
        case("avg_pool2d_valid", nn.AvgPool2d(3, 2), x),
        case("avg_pool2d_same", nn.AvgPool2d(3, 2, "same"), x),
        case("avg_pool2d_pad_exclude", nn.AvgPool2d(3, 2, "pad", padding=1, count_include_pad=False), x),
        case("avg_pool3d_pad", nn.AvgPool3d(3, 2, "pad", padding=1), x3),
        case("adaptive_avg_pool2d", nn.AdaptiveAvgPool2d((4, 3)), x),
        case("adaptive_max_pool2d", nn.AdaptiveMaxPool2d((4, 3)), x),
        case("adaptive_avg_pool3d", "self.op(x)", x3, op=P.AdaptiveAvgPool3D((2, 3, 4))),
    ]


def normalisation() -> list[Case]:
    return [
        case("batch_norm2d", nn.BatchNorm2d(6, eps=1e-3), Y),
        case("batch_norm1d", nn.BatchNorm1d(6), f32(5, 6)),
        case("batch_norm3d", nn.BatchNorm3d(6), f32(2, 6, 2, 2, 3)),
        case("batch_norm_not_affine", nn.BatchNorm2d(6, affine=False), Y),
        case("layer_norm", nn.LayerNorm((7,)), f32(2, 5, 7)),
        case("layer_norm_two_axes", nn.LayerNorm((5, 7), 2, 2, epsilon=1e-3), f32(2, 3, 5, 7)),
        case("group_norm", nn.GroupNorm(3, 6), Y),
        case("l2_normalize", "self.op(x)", Y, op=P.L2Normalize(axis=1)),
        case("lp_norm", "self.op(x)", Y, op=P.LpNorm(axis=[0, 2], p=1, keep_dims=True)),
        case("lrn", "self.op(x)", Y, op=P.LRN(2, 1.5, 0.3, 0.6)),
    ]


def activation() -> list[Case]:
    layers = {
        "relu": nn.ReLU(),
        "relu6": nn.ReLU6(),
        "sigmoid": nn.Sigmoid(),
        "tanh": nn.Tanh(),
        "gelu": nn.GELU(),
        "gelu_exact": nn.GELU(approximate=False),
        "fast_gelu": nn.FastGelu(),
        "hswish": nn.HSwish(),
        "hsigmoid": nn.HSigmoid(),
        "silu": nn.SiLU(),
        "mish": nn.Mish(),
        "selu": nn.SeLU(),
        "elu": nn.ELU(1.0),
        "celu": nn.CELU(0.7),
        "softsign": nn.Softsign(),
        "leaky_relu": nn.LeakyReLU(0.1),
        "log_sigmoid": nn.LogSigmoid(),
        "softmax": nn.Softmax(axis=1),
        "log_softmax": nn.LogSoftmax(axis=1),
        "hshrink": nn.HShrink(0.8),
        "softshrink": nn.SoftShrink(0.6),
        "hardtanh": nn.Hardtanh(-0.5, 1.25),
        "prelu": nn.PReLU(3),
        "glu": nn.GLU(axis=-1),
    }
    functions = {
        "softplus": "P.Softplus()(x)",
        "softmax_two_axes": "P.Softmax((0, 1))(x)",
        "clamp": "ops.clamp(x, -0.5, 1.5)",
        "clip_by_value": "ops.clip_by_value(x, -0.25, 0.75)",
        "relu_v2": "P.ReLUV2()(ops.reshape(x, (1, 1, 3, 5)))[0]",
        "dropout_inference": "ops.dropout(x, 0.5, training=False)",
    }
    inputs = {"glu": f32(2, 3, 4)}
    return [
        *[case(f"act_{name}", cell, inputs.get(name, f32(2, 3, 2, 5))) for name, cell in layers.items()],
        *[case(f"act_{name}", text, SHORT) for name, text in functions.items()],
        case("act_relu_float16", nn.ReLU(), f16(3, 5)),
        case("act_relu_int32", "P.ReLU()(x)", i32(3, 5)),
    ]


def products() -> list[Case]:
    weight = Parameter(Tensor(np.zeros((5, 7), np.float32)), name="w")
    return [
        case("matmul_ta_tb", "self.op(x, y)", f32(5, 3), f32(7, 5), op=P.MatMul(True, True)),
        case("matmul_function", "ops.matmul(x, y)", f32(2, 3, 5), f32(5, 7)),
        case("matmul_vectors", "ops.matmul(x, y)", f32(5), f32(5)),
        case("matmul_dynamic", "ops.matmul(x, self.w)", f32(2, 3, 5), shapes=[(None, None, 5)], w=weight),
        case("batch_matmul_tb", "self.op(x, y)", f32(2, 3, 5), f32(2, 7, 5), op=P.BatchMatMul(transpose_b=True)),
        case("dense", nn.Dense(5, 7), f32(3, 5)),
        case("dense_rank3_activation", nn.Dense(5, 7, activation="relu"), f32(2, 3, 5)),
        case("dense_float16", nn.Dense(5, 7), f16(3, 5), dtype="float16"),
        case("embedding", nn.Embedding(11, 5), i32(2, 3, low=0, high=11)),
        case("tensor_dot", "ops.tensor_dot(x, y, ((0, 1), (1, 0)))", f32(3, 5, 2), f32(5, 3, 4)),
        case("addmm", "ops.addmm(x, y, z, beta=0.5, alpha=2)", f32(3, 7), f32(3, 5), f32(5, 7)),
        case("cdist", "ops.cdist(x, y)", f32(2, 3, 5), f32(2, 4, 5)),
        case("trace", "ops.trace(x)", f32(5, 5)),
        case("matrix_inverse", "ops.inverse(x)", values([[4, 1, 0], [1, 3, 1], [0, 1, 2]])),
    ]


def recurrent() -> list[Case]:
    return [
        case("lstm", "self.net(x, (y, z))", f32(4, 2, 3), f32(1, 2, 5), f32(1, 2, 5), net=nn.LSTM(3, 5)),
        case("lstm_bidirectional", "self.net(x)", f32(3, 2, 3), net=nn.LSTM(3, 4, bidirectional=True)),
        case("gru", "self.net(x)", f32(2, 2, 3), net=nn.GRU(3, 5)),
        case("rnn", "self.net(x)", f32(2, 2, 3), net=nn.RNN(3, 5)),
        case("lstm_cell", "self.net(x, (y, z))", f32(2, 3), f32(2, 5), f32(2, 5), net=nn.LSTMCell(3, 5)),
        case("multihead_attention", "self.net(x, x, x)", f32(2, 5, 6), net=nn.MultiheadAttention(6, 3)),
    ]
