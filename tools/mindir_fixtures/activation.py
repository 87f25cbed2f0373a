"""Activation cases."""

from mindspore import nn

from mindir_fixtures.table import Case, case, f16, f32, i32, values

X = f32(2, 3, 2, 5)
SHORT = f32(3, 5, low=-4, high=4)

LAYERS = {
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "sigmoid": nn.Sigmoid(),
    "tanh": nn.Tanh(),
    "gelu_tanh": nn.GELU(),
    "gelu_exact": nn.GELU(approximate=False),
    "fast_gelu": nn.FastGelu(),
    "hswish": nn.HSwish(),
    "hsigmoid": nn.HSigmoid(),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "selu": nn.SeLU(),
    "elu": nn.ELU(),
    "elu_alpha": nn.ELU(1.0),
    "celu": nn.CELU(0.7),
    "softsign": nn.Softsign(),
    "leaky_relu": nn.LeakyReLU(0.1),
    "leaky_relu_large": nn.LeakyReLU(1.5),
    "log_sigmoid": nn.LogSigmoid(),
    "softmax": nn.Softmax(),
    "softmax_axis1": nn.Softmax(axis=1),
    "softmax2d": nn.Softmax2d(),
    "log_softmax": nn.LogSoftmax(),
    "log_softmax_axis1": nn.LogSoftmax(axis=1),
    "softmin": nn.Softmin(),
    "softplus": nn.Softplus() if hasattr(nn, "Softplus") else nn.ReLU(),
    "hshrink": nn.HShrink(0.8),
    "softshrink": nn.SoftShrink(0.6),
    "tanhshrink": nn.Tanhshrink(),
    "threshold": nn.Threshold(0.3, -7.0),
    "hardtanh": nn.Hardtanh(-0.5, 1.25),
    "glu": nn.GLU(axis=1),
    "prelu": nn.PReLU(3),
    "prelu_shared": nn.PReLU(1),
    "softmax_three": nn.Softmax(axis=0),
    "dropout_inference": nn.Dropout(p=0.4),
}

FUNCTIONS = {
    "relu": "ops.relu(x)",
    "elu": "ops.elu(x, 1.0)",
    "celu": "ops.celu(x, 1.7)",
    "gelu_none": "ops.gelu(x, 'none')",
    "gelu_tanh": "ops.gelu(x, 'tanh')",
    "fast_gelu": "ops.fast_gelu(x)",
    "hardswish": "ops.hardswish(x)",
    "hardsigmoid": "ops.hardsigmoid(x)",
    "hardshrink": "ops.hardshrink(x, 0.4)",
    "hardtanh": "ops.hardtanh(x, -1.0, 0.5)",
    "leaky_relu": "ops.leaky_relu(x, 0.3)",
    "logsigmoid": "ops.logsigmoid(x)",
    "mish": "ops.mish(x)",
    "selu": "ops.selu(x)",
    "silu": "ops.silu(x)",
    "softplus": "ops.softplus(x)",
    "softplus_beta": "ops.softplus(x, 2.0, 3.0)",
    "softsign": "ops.softsign(x)",
    "softshrink": "ops.softshrink(x, 0.4)",
    "tanhshrink": "ops.tanhshrink(x)",
    "threshold": "ops.threshold(x, 0.2, 3.0)",
    "relu6": "ops.relu6(x)",
    "softmax_axis0": "ops.softmax(x, 0)",
    "softmax_float": "ops.softmax(x, -1, dtype=mstype.float32)",
    "softmax_two_axes": "ops.Softmax((0, 1))(x)",
    "log_softmax": "ops.log_softmax(x, 0)",
    "softmin": "ops.softmin(x, 0)",
    "sigmoid": "ops.sigmoid(x)",
    "clamp": "ops.clamp(x, -0.5, 1.5)",
    "clamp_min": "ops.clamp(x, min=-0.5)",
    "clamp_max": "ops.clamp(x, max=0.5)",
    "clip_ints": "ops.clamp(x, -1, 1)",
    "clip_by_value": "ops.clip_by_value(x, -0.25, 0.75)",
    "x_sigmoid_x": "x * ops.sigmoid(x)",
    "swish_leaky": "ops.maximum(x * 0.2, x)",
    "mint_softplus": "mint.nn.functional.softplus(x, 2, 5)",
    "mint_hardswish": "mint.nn.functional.hardswish(x)",
    "mint_hardsigmoid": "mint.nn.functional.hardsigmoid(x)",
    "mint_hardshrink": "mint.nn.functional.hardshrink(x, 0.4)",
    "mint_softshrink": "mint.nn.functional.softshrink(x, 0.4)",
    "mint_log_softmax": "mint.nn.functional.log_softmax(x, dim=0)",
    "mint_softmax": "mint.nn.functional.softmax(x, dim=0)",
    "mint_relu": "mint.nn.functional.relu(x)",
    "mint_sigmoid": "mint.nn.functional.sigmoid(x)",
    "mint_silu": "mint.nn.functional.silu(x)",
    "mint_tanh": "mint.nn.functional.tanh(x)",
    "mint_clamp": "mint.clamp(x, -0.5, 1.5)",
    "mint_glu": "mint.nn.functional.glu(mint.cat((x, x * 2), 1), 1)",
    "mint_softmax_none": "mint.nn.functional.softmax(x, dim=-1, dtype=mstype.float32)",
}


def cases() -> list[Case]:
    special = {"glu": f32(2, 6, 5), "softplus": SHORT, "threshold": SHORT}
    layers = [case(f"nn_{name}", cell, special.get(name, X)) for name, cell in LAYERS.items()]
    functions = [case(f"act_{name}", text, SHORT) for name, text in FUNCTIONS.items()]
    half = ("relu", "sigmoid", "tanh", "gelu_tanh", "hswish", "silu", "softmax", "relu6", "hsigmoid", "mish", "elu")
    halves = [case(f"nn_{name}_float16", LAYERS[name], f16(3, 5, 7)) for name in half]
    return [
        *layers,
        *functions,
        *halves,
        case("act_relu_int32", "ops.relu(x)", i32(3, 5)),
        case("act_relu_special", "ops.relu(x)", values([-0.0, 0.0, -1e30, 1e30, 5e-39])),
        case("act_softmax_masked", "ops.softmax(x + y, -1)", f32(2, 3, 5), values([[0, -1e9, 0, -1e9, 0]])),
        case("act_clamp_tensors", "ops.clamp(x, y, z)", f32(3, 5), f32(3, 5, low=-1, high=0), f32(3, 5, low=0, high=1)),
        case("act_clamp_int32", "ops.clamp(x, -3, 4)", i32(3, 5)),
        case("act_prelu_function", "ops.prelu(x, y)", f32(2, 3, 5), f32(3)),
        case("act_prelu_rank2", "ops.prelu(x, y)", f32(5, 3), f32(3)),
        case("act_glu", "ops.glu(x, 0)", f32(4, 5)),
        case("act_softmax_rank1", "ops.softmax(x)", f32(7)),
        case("act_softmax_dynamic", "ops.softmax(x, 1)", f32(2, 3, 5), shapes=[(None, None, 5)]),
    ]
