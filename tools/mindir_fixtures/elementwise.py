"""Elementwise arithmetic on one, two and three tensors."""

import numpy as np

from mindir_fixtures.table import Case, Draw, boolean, case, f16, f32, f64, i8, i16, i32, i64, u8, values

POSITIVE = f32(3, 5, low=0.1, high=3)
UNIT = f32(3, 5, low=-0.95, high=0.95)
X = f32(3, 5)
SPECIAL = values([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.5])

UNARY = {
    "abs neg exp sign floor ceil round trunc erf erfc sin cos atan sinh cosh tanh asinh square expm1 exp2 frac": X,
    "isnan sinc rad2deg deg2rad positive ones_like zeros_like i0 bessel_i0e bessel_i1 nan_to_num": X,
    "bessel_j0 bessel_j1 stop_gradient deepcopy": X,
    "log sqrt rsqrt reciprocal log1p log2 log10 lgamma digamma": POSITIVE,
    "erfinv tan asin acos atanh": UNIT,
    "acosh": f32(3, 5, low=1.05, high=4),
    "logit": f32(3, 5, low=0.05, high=0.95),
}

ARITHMETIC = {
    "add": "ops.add(x, y)",
    "sub": "ops.sub(x, y)",
    "mul": "ops.mul(x, y)",
    "div": "ops.div(x, y)",
    "maximum": "ops.maximum(x, y)",
    "minimum": "ops.minimum(x, y)",
    "floor_div": "ops.floor_div(x, y)",
    "floor_mod": "ops.floor_mod(x, y)",
    "operator_floor_div": "x // y",
    "operator_mod": "x % y",
    "operator_true_div": "x / y",
    "real_div": "P.RealDiv()(x, y)",
    "truncate_div": "ops.truncate_div(x, y)",
    "truncate_mod": "ops.truncate_mod(x, y)",
    "fmod": "ops.fmod(x, y)",
    "remainder": "ops.remainder(x, y)",
    "mod_primitive": "P.Mod()(x, y)",
    "squared_difference": "P.SquaredDifference()(x, y)",
    "div_trunc": "ops.div(x, y, rounding_mode='trunc')",
    "div_floor": "ops.div(x, y, rounding_mode='floor')",
    "div_no_nan": "P.DivNoNan()(x, y)",
    "mul_no_nan": "P.MulNoNan()(x, y)",
}

COMPARISON = {
    "greater": "x > y",
    "greater_equal": "x >= y",
    "less": "x < y",
    "less_equal": "x <= y",
    "equal": "x == y",
    "not_equal": "x != y",
}

FLOAT_BINARY = {
    "pow": ("ops.pow(x, y)", POSITIVE),
    "operator_pow": ("x ** y", POSITIVE),
    "atan2": ("ops.atan2(x, y)", X),
    "hypot": ("ops.hypot(x, y)", X),
    "xlogy": ("ops.xlogy(x, y)", POSITIVE),
    "xdivy": ("P.Xdivy()(x, y)", POSITIVE),
    "logaddexp": ("ops.logaddexp(x, y)", X),
    "logaddexp2": ("ops.logaddexp2(x, y)", X),
    "fmax": ("ops.fmax(x, y)", X),
    "isclose": ("ops.isclose(x, y, rtol=0.5, atol=0.1)", X),
    "approximate_equal": ("P.ApproximateEqual(0.5)(x, y)", X),
    "heaviside": ("ops.heaviside(x, y)", X),
    "copysign": ("ops.copysign(x, y)", X),
    "nextafter": ("ops.nextafter(x, y)", X),
    "mint_add_alpha": ("mint.add(x, y, alpha=2.5)", X),
    "mint_sub_alpha": ("mint.sub(x, y, alpha=2.5)", X),
    "mint_div": ("mint.div(x, y)", POSITIVE),
    "mint_div_trunc": ("mint.div(x, y, rounding_mode='trunc')", POSITIVE),
    "mint_div_floor": ("mint.div(x, y, rounding_mode='floor')", POSITIVE),
    "mint_mul": ("mint.mul(x, y)", X),
    "mint_pow": ("mint.pow(x, y)", POSITIVE),
    "mint_remainder": ("mint.remainder(x, y)", POSITIVE),
    "mint_floor_divide": ("mint.floor_divide(x, y)", POSITIVE),
    "mint_maximum": ("mint.maximum(x, y)", X),
    "mint_xlogy": ("mint.xlogy(x, y)", POSITIVE),
}


def divisors(dtype: str) -> np.ndarray:
    """Divisors of both signs (unsigned types: positive), none zero."""
    items = np.array([[3, -2, 1, 7, -5]])
    return np.abs(items).astype(dtype) if dtype.startswith("u") else items.astype(dtype)


def together(texts: dict[str, str], names: str) -> str:
    """One network that returns several expressions, to keep the number of files down."""
    return ", ".join(texts[name] for name in names.split())


def cases() -> list[Case]:
    return [*unary(), *binary(), *mixed_types(), *ternary()]


def unary() -> list[Case]:
    result = [case(f"unary_{name}", f"ops.{name}(x)", draw) for names, draw in UNARY.items() for name in names.split()]
    special = ("isnan", "isinf", "isfinite", "sign", "isneginf")
    result += [case(f"unary_{name}_special", f"ops.{name}(x)", SPECIAL) for name in special]
    mint = {"atanh": UNIT, "trunc": X, "sinc": X, "erfinv": UNIT}
    result += [case(f"unary_mint_{name}", f"mint.{name}(x)", draw) for name, draw in mint.items()]
    functions = {name: f"ops.{name}(x)" for names in UNARY for name in names.split()}
    whole = "abs neg sign square ones_like zeros_like round reciprocal"
    half = "abs neg exp log sqrt rsqrt reciprocal floor ceil round erf sin square"
    integers = values([[3, -2, 1], [7, -5, 4]], "int32")
    return [
        *result,
        case("unary_int32", together(functions, whole), integers),
        case("unary_float16", together(functions, half), f16(3, 5, low=0.1, high=3)),
        case("unary_float64", "ops.exp(x) + ops.sqrt(ops.abs(x))", f64(3, 5)),
        case("unary_round_half", "ops.round(x)", values([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.49, 3.51])),
        case("unary_rint_half", "P.Rint()(x)", values([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])),
        case("unary_sign_int64", "ops.sign(x)", i64(3, 5)),
        case("unary_abs_int8", "ops.abs(x)", i8(3, 5)),
        case("unary_inv", "P.Inv()(x)", POSITIVE),
        case("unary_invert_int16", "P.Invert()(x)", i16(3, 5)),
        case("unary_nan_to_num_values", "ops.nan_to_num(x, 2.0, 3.0, -4.0)", SPECIAL),
        case("unary_polygamma", "ops.polygamma(ms.Tensor(1), x)", POSITIVE),
        case("unary_rank0", "ops.exp(x)", values(0.7)),
    ]


def binary() -> list[Case]:
    everything = ARITHMETIC | COMPARISON
    result: list[Case] = []
    for name, text in ARITHMETIC.items():
        result.append(case(f"binary_{name}", text, f32(2, 3, 5), f32(3, 1, low=0.5, high=2)))
    ties = values([[1, 2.5, -3, 0.5], [0.5, 2, 3, -1]]), values([1, 2.5, 3, -1])
    result += [case(f"binary_{name}", text, *ties) for name, text in COMPARISON.items()]
    for name, text in ARITHMETIC.items():
        if name != "div_no_nan":
            result.append(case(f"binary_{name}_int32", text, i32(3, 5), divisors("int32")))
    signs = values([[-7.5, -7.0, 7.0, 7.5]]), values([[2.0], [-2.0]])
    division = "floor_div operator_mod truncate_div truncate_mod fmod floor_mod div_trunc div_floor"
    result += [case(f"binary_{name}_signs", ARITHMETIC[name], *signs) for name in division.split()]
    some, few = "add sub mul maximum floor_div operator_mod less equal div", "add sub mul less equal"
    result += [
        case(
            "binary_comparisons_int32",
            together(COMPARISON, " ".join(COMPARISON)),
            i32(3, 5, low=-3, high=8),
            divisors("int32"),
        ),
        case("binary_int64", together(everything, some), i64(3, 5, low=-5, high=8), divisors("int64")),
        case("binary_float16", together(everything, some), *[array.astype("float16") for array in ties]),
        case("binary_uint8", together(everything, some), u8(3, 5, high=8), divisors("uint8")),
        case("binary_int8", together(everything, few), i8(3, 5, low=-6, high=8), divisors("int8")),
        case("binary_int16", together(everything, few), i16(3, 5, low=-6, high=8), divisors("int16")),
        case("binary_float64", together(everything, few), *[array.astype("float64") for array in ties]),
    ]
    result += [case(f"binary_{name}", text, draw, draw) for name, (text, draw) in FLOAT_BINARY.items()]
    return [
        *result,
        case("binary_broadcast_both", "x * y", f32(2, 1, 5), f32(3, 1)),
        case("binary_broadcast_rank0", "x - y", f32(3, 5), values(0.5)),
        case("binary_equal_special", "x == x", SPECIAL),
        case("binary_maximum_special", "ops.maximum(x, y)", SPECIAL[1:], values([1.0, 2, 3, 4, 5])),
        case("binary_xlogy_zero", "ops.xlogy(x, y)", values([0.0, 2.0]), values([3.0, 3.0])),
        case("binary_mint_isclose", "mint.isclose(x, y)", values([1.0, 2.0, 3.0]), values([1.0, 2.1, 3.0])),
        case("binary_add_n", "ops.addn([x, y, x])", X, X),
        case("binary_gcd", "ops.gcd(x, y)", i32(3, 5), i32(3, 5)),
        case("binary_lcm", "ops.lcm(x, y)", i32(3, 5), i32(3, 5)),
    ]


def mixed_types() -> list[Case]:
    """All of + * / < max, and - where booleans allow it, for each pair of types."""
    pairs: dict[str, tuple[Draw, Draw]] = {
        "f32_i32": (f32(3, 5), i32(5)),
        "i32_f32": (i32(3, 5), f32(5)),
        "f16_f32": (f16(3, 5), f32(5)),
        "i32_i64": (i32(3, 5), i64(5)),
        "u8_i32": (u8(3, 5, high=9), i32(5)),
        "u8_i8": (u8(3, 5, high=90), i8(5)),
        "bool_f32": (boolean(3, 5), f32(5)),
        "bool_i32": (boolean(3, 5), i32(5)),
        "f16_i64": (f16(3, 5), i64(5)),
        "f32_f64": (f32(3, 5), f64(5)),
    }
    text = "x + y, x * y, x / y, x < y, ops.maximum(x, y)"
    return [
        case(f"mixed_{name}", text if name.startswith("bool") else f"{text}, x - y", *pair)
        for name, pair in pairs.items()
    ]


def ternary() -> list[Case]:
    return [
        case("select", "ops.select(x, y, z)", boolean(3, 5), f32(3, 5), f32(3, 5)),
        case("select_broadcast", "ops.where(x, y, z)", boolean(3, 1), f32(5), f32(2, 3, 1)),
        case("select_int32", "ops.where(x, y, z)", boolean(3, 5), i32(3, 5), i32(3, 5)),
        case("masked_fill", "ops.masked_fill(x, y, -1e9)", f32(2, 3, 5), boolean(3, 5)),
        case("masked_fill_tensor", "ops.masked_fill(x, y, z)", f32(2, 3, 5), boolean(3, 1), values(2.5)),
        case("masked_fill_int", "x.masked_fill(y, 7)", i32(3, 5), boolean(3, 5)),
        case("masked_select", "ops.masked_select(x, y)", f32(3, 5), boolean(3, 5)),
        case("lerp", "ops.lerp(x, y, z)", X, X, f32(3, 5, low=0, high=1)),
        case("lerp_scalar", "ops.lerp(x, y, 0.3)", X, X),
        case("addcmul", "ops.addcmul(x, y, z, 0.5)", X, X, X),
        case("addcdiv", "ops.addcdiv(x, y, z, 0.5)", X, X, POSITIVE),
        case("fma_chain", "x * y + z", X, X, X),
        case("where_mint", "mint.where(x, y, z)", boolean(3, 5), X, X),
        case("where_condition_float", "ops.where(x > y, x, y)", X, X),
    ]
