"""Operators that MindSpore exports but has no CPU kernel for (``mint`` on Ascend, attention, some GPU operators).

The outputs come from a network that says the same with other operators, given as ``reference``.
"""

import numpy as np

from mindir_fixtures.table import Case, boolean, case, f32, i32, u8, values

X = f32(3, 5)
POSITIVE = f32(3, 5, low=0.1, high=3)
UNIT = f32(3, 5, low=-0.95, high=0.95)
IMAGE = f32(2, 3, 9, 7)


def cases() -> list[Case]:
    return [*elementwise(), *reduction(), *shape(), *resize(), *inplace()]


def elementwise() -> list[Case]:
    f = "mint.nn.functional"
    unary = {
        "elu": (f"{f}.elu(x, 1.3)", "ops.where(x > 0, x, 1.3 * ops.expm1(x))", X),
        "gelu": (f"{f}.gelu(x)", "ops.gelu(x, 'none')", X),
        "gelu_tanh": (f"{f}.gelu(x, approximate='tanh')", "ops.gelu(x, 'tanh')", X),
        "leaky_relu": (f"{f}.leaky_relu(x, 0.2)", "ops.leaky_relu(x, 0.2)", X),
        "hardtanh": (f"{f}.hardtanh(x, -0.5, 0.75)", "ops.clamp(x, -0.5, 0.75)", X),
        "relu6": (f"{f}.relu6(x)", "ops.relu6(x)", f32(3, 5, low=-8, high=8)),
        "log_sigmoid": (f"{f}.logsigmoid(x)", "ops.logsigmoid(x)", X),
        "mish": (f"{f}.mish(x)", "ops.mish(x)", X),
        "selu": (f"{f}.selu(x)", "ops.selu(x)", X),
        "threshold": (f"{f}.threshold(x, 0.1, -3.0)", "ops.where(x > 0.1, x, -3.0)", X),
        "swiglu": ("ops.swiglu(x, 1)", "ops.silu(x[:, :3]) * x[:, 3:]", f32(4, 6)),
        "acos": ("mint.acos(x)", "ops.acos(x)", UNIT),
        "acosh": ("mint.acosh(x)", "ops.acosh(x)", f32(3, 5, low=1.1, high=3)),
        "asin": ("mint.asin(x)", "ops.asin(x)", UNIT),
        "asinh": ("mint.asinh(x)", "ops.asinh(x)", X),
        "atan": ("mint.atan(x)", "ops.atan(x)", X),
        "frac": ("mint.frac(x)", "x - ops.trunc(x)", X),
        "exp2": ("mint.exp2(x)", "ops.exp(x * 0.6931471805599453)", X),
        "log2": ("mint.log2(x)", "ops.log(x) / 0.6931471805599453", POSITIVE),
        "log10": ("mint.log10(x)", "ops.log(x) / 2.302585092994046", POSITIVE),
        "fmod_scalar": ("mint.fmod(x, 2)", "x - 2 * ops.trunc(x / 2)", f32(3, 5, low=-7, high=7)),
        "floor_divide_scalar": ("mint.floor_divide(x, 2)", "ops.floor(x / 2)", f32(3, 5, low=-7, high=7)),
        "bitwise_and_scalar": ("mint.bitwise_and(x, 6)", "ops.bitwise_and(x, ops.full_like(x, 6))", i32(3, 5)),
        "bitwise_or_scalar": ("mint.bitwise_or(x, 6)", "ops.bitwise_or(x, ops.full_like(x, 6))", i32(3, 5)),
        "bitwise_not": ("mint.bitwise_not(x)", "-x - 1", i32(3, 5)),
        "bitwise_not_bool": ("mint.bitwise_not(x)", "ops.logical_not(x)", boolean(3, 5)),
        "is_neg_inf": ("mint.isneginf(x)", "x == -float('inf')", values([1.0, -np.inf, np.inf, np.nan])),
    }
    binary = {
        "fmod": ("mint.fmod(x, y)", "x - y * ops.trunc(x / y)", f32(3, 5), POSITIVE),
        "atan2": ("mint.atan2(x, y)", "ops.atan2(x, y)", X, X),
        "logaddexp": ("mint.logaddexp(x, y)", "ops.log(ops.exp(x) + ops.exp(y))", X, X),
        "bitwise_or": ("mint.bitwise_or(x, y)", "ops.bitwise_or(x, y)", i32(3, 5), i32(5)),
        "bitwise_xor": ("mint.bitwise_xor(x, y)", "ops.bitwise_xor(x, y)", u8(3, 5), u8(5)),
        "fmin": ("ops.fmin(x, y)", "ops.minimum(x, y)", X, X),
        "accumulate_n": ("ops.accumulate_n([x, y])", "x + y", X, X),
    }
    return [
        *[case(f"device_{n}", text, draw, reference=same) for n, (text, same, draw) in unary.items()],
        *[case(f"device_{n}", text, a, b, reference=same) for n, (text, same, a, b) in binary.items()],
        case("device_addcmul", "mint.addcmul(x, y, z, value=0.5)", X, X, X, reference="x + 0.5 * y * z"),
        case("device_addcdiv", "mint.addcdiv(x, y, z, value=0.5)", X, X, POSITIVE, reference="x + 0.5 * y / z"),
    ]


def reduction() -> list[Case]:
    x = f32(2, 3, 5)
    texts = {
        "logsumexp": ("mint.logsumexp(x, 1)", "ops.logsumexp(x, 1)"),
        "count_nonzero": ("mint.count_nonzero(ops.relu(x), 1)", "(x > 0).astype(mstype.int64).sum(1)"),
        "std": ("mint.std(x, 1)", "x.std(axis=1, ddof=1)"),
        "std_keep": ("mint.std(x, (0, 2), correction=0, keepdim=True)", "x.std(axis=(0, 2), ddof=0, keepdims=True)"),
        "var": ("mint.var(x, 1)", "x.var(axis=1, ddof=1)"),
        "var_all": ("mint.var(x)", "x.var(ddof=1)"),
        "var_mean": ("mint.var_mean(x, 1)", "x.var(axis=1, ddof=1), x.mean(1)"),
        "std_mean": ("mint.std_mean(x, 1)", "x.std(axis=1, ddof=1), x.mean(1)"),
        "argmin": ("mint.argmin(x, 1, True)", "ops.argmin(x, 1, True).astype(mstype.int64)"),
        "cumsum": ("mint.cumsum(x, 1)", "ops.cumsum(x, 1)"),
        "median": ("mint.median(x)", "ops.sort(x.reshape(-1))[0][14]"),
    }
    two = {
        "topk": ("mint.topk(x, 2, 1)", "ops.topk(x, 2, 1)"),
        "topk_smallest": ("mint.topk(x, 2, 1, False)", "ops.topk(x, 2, 1, False)"),
        "sort": ("mint.sort(x, dim=1)", "ops.sort(x, 1)"),
        "sort_descending": ("mint.sort(x, dim=-1, descending=True)", "ops.sort(x, -1, True)"),
        "kthvalue": ("mint.kthvalue(x, 2, 1)", "ops.sort(x, 1)"),
    }
    take = {"kthvalue": "return a[:, 1], b[:, 1].astype(mstype.int64)"}
    default = "return a, b.astype(mstype.int64)"
    return [
        *[case(f"device_{n}", text, x, reference=same) for n, (text, same) in texts.items()],
        *[
            case(f"device_{n}", t, x, reference=f"a, b = {same}\n{take.get(n, default)}")
            for n, (t, same) in two.items()
        ],
        case(
            "device_argsort", "mint.argsort(x, 1)", x, reference="a, b = ops.sort(x, 1)\nreturn b.astype(mstype.int64)"
        ),
    ]


def shape() -> list[Case]:
    x = f32(2, 3, 5, 7)
    index = values([3, 0, 2], "int64")
    texts = {
        "t": ("mint.t(x)", "ops.t(x)", X),
        "repeat_interleave": ("mint.repeat_interleave(x, 2, 1)", "ops.repeat_interleave(x, 2, 1)", X),
        "repeat": ("x.repeat(2, 3)", "ops.tile(x, (2, 3))", X),
        "linspace": ("mint.linspace(-1, 2, 5) + x", "ops.linspace(-1.0, 2.0, 5) + x", X),
        "full_like": ("mint.full_like(x, 2.5)", "ops.full_like(x, 2.5)", X),
        "roll": ("ops.roll(x, 2, 3)", "mnp.roll(x, 2, 3)", x),
        "roll_two": ("ops.roll(x, (1, -2), (1, 2))", "mnp.roll(x, (1, -2), (1, 2))", x),
        "roll_all": ("ops.roll(x, 3)", "mnp.roll(x, 3)", X),
        "tril": ("mint.tril(x, -1)", "ops.tril(x, -1)", x),
        "slice_ext": ("G.SliceExt()(x, 1, 1, 5, 2)", "x[:, 1:5:2]", f32(3, 5, 7)),
        "glu": ("mint.nn.functional.glu(x, 1)", "ops.glu(x, 1)", f32(3, 4)),
    }
    patches = "P.ExtractImagePatches((1, 1, 3, 2), (1, 1, 2, 1), (1, 1, 1, 2), 'valid')(x)"
    unfolded = "b = P.Im2Col((3, 2), (2, 1), (1, 2), 0)(x)\nreturn b.transpose(0, 2, 1, 3).reshape(2, 18, 4, 5)"
    return [
        *[case(f"device_{n}", text, draw, reference=same) for n, (text, same, draw) in texts.items()],
        case("device_stack", "mint.stack((x, y), 1)", X, X, reference="ops.stack((x, y), 1)"),
        case("device_stack_last", "mint.stack((x, y), -1)", X, X, reference="ops.stack((x, y), -1)"),
        case("device_extract_image_patches", patches, IMAGE, reference=unfolded),
        case("device_index_select", "mint.index_select(x, 1, y)", X, index, reference="ops.gather(x, y, 1)"),
        case("device_take", "mint.take(x, y)", X, values([3, 0, 14], "int64"), reference="x.reshape(-1)[y]"),
        case(
            "device_scatter_add",
            "mint.scatter_add(x, 1, y, z)",
            f32(2, 5),
            values([[4, 0, 1], [2, 2, 3]], "int64"),
            f32(2, 3),
            reference="ops.tensor_scatter_elements(x, y, z, 1, 'add')",
        ),
        case(
            "device_index_add",
            "mint.index_add(x, 1, y, z)",
            X,
            values([3, 0], "int64"),
            f32(3, 2),
            reference="ops.tensor_scatter_elements(x, ops.broadcast_to(y, (3, 2)), z, 1, 'add')",
        ),
    ]


def resize() -> list[Case]:
    x = f32(2, 3, 5, 7)
    texts = {
        "bilinear": "size=(8, 9), mode='bilinear', align_corners=False",
        "bilinear_align": "size=(8, 9), mode='bilinear', align_corners=True",
    }
    return [
        *[
            case(
                f"device_upsample_{n}",
                f"mint.nn.functional.interpolate(x, {a})",
                x,
                reference=f"ops.interpolate(x, {a})",
            )
            for n, a in texts.items()
        ],
        case(
            "device_upsample_linear",
            "mint.nn.functional.interpolate(x, size=9, mode='linear')",
            f32(2, 3, 5),
            reference="ops.interpolate(x, size=9, mode='linear', align_corners=False)",
        ),
    ]


def inplace() -> list[Case]:
    methods = {
        "fill": ("z.fill_(2.5)", "ops.full_like(x, 2.5)"),
        "zero": ("z.zero_()", "ops.zeros_like(x)"),
        "clamp": ("z.clamp_(-0.5, 0.5)", "ops.clamp(x, -0.5, 0.5)"),
        "exp": ("z.exp_()", "ops.exp(x)"),
        "sigmoid": ("z.sigmoid_()", "ops.sigmoid(x)"),
        "tanh": ("z.tanh_()", "ops.tanh(x)"),
        "masked_fill": ("z.masked_fill_(x > 0, -1.0)", "ops.masked_fill(x, x > 0, -1.0)"),
        "relu": ("mint.nn.functional.relu(z, inplace=True)", "ops.relu(x)"),
    }
    views = {
        "transpose": ("b = mint.transpose(a, 0, 1)\nb += 1", "a = x * 2 + 1\nreturn a, a.T"),
        "narrow": (
            "b = mint.narrow(a, 1, 1, 3)\nb *= 3",
            "a = x * 2\nb = a[:, 1:4] * 3\nreturn ops.concat((a[:, :1], b, a[:, 4:]), 1), b",
        ),
        "select": (
            "b = mint.select(a, 1, 2)\nb += 10",
            "a = x * 2\nb = a[:, 2] + 10\nreturn ops.concat((a[:, :2], b.expand_dims(1), a[:, 3:]), 1), b",
        ),
        "chunk": (
            "c = mint.chunk(a, 2, 1)\nb = c[0]\nb += 10",
            "a = x * 2\nb = a[:, :3] + 10\nreturn ops.concat((b, a[:, 3:]), 1), b",
        ),
        "split": (
            "c = mint.split(a, 2, 1)\nb = c[1]\nb += 10",
            "a = x * 2\nb = a[:, 2:4] + 10\nreturn ops.concat((a[:, :2], b, a[:, 4:]), 1), b",
        ),
        "view_of_view": (
            "c = mint.transpose(a, 0, 1)\nb = mint.narrow(c, 0, 1, 2)\nb += 10",
            "a = x * 2\nb = a[:, 1:3] + 10\nreturn ops.concat((a[:, :1], b, a[:, 3:]), 1), b.T",
        ),
    }
    return [
        *[
            case(
                f"device_inplace_{n}",
                f"z = x * 1\n{text}\nreturn z * 2, z",
                X,
                reference=f"z = {same}\nreturn z * 2, z",
            )
            for n, (text, same) in methods.items()
        ],
        *[
            case(f"device_view_{n}_written", f"a = x * 2\n{text}\nreturn a, b", X, reference=same)
            for n, (text, same) in views.items()
        ],
    ]
