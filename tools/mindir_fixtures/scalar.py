"""Arithmetic with Python numbers, logical and bitwise operators, casts."""

from mindir_fixtures.table import Case, Draw, boolean, case, f16, f32, i16, i32, i64, u8, values

SCALAR = {
    "add_float": "x + 1.5",
    "add_int": "x + 2",
    "radd": "2 + x",
    "sub_float": "x - 1.5",
    "rsub": "3 - x",
    "rsub_float": "1.0 - x",
    "mul_float": "x * 1.5",
    "mul_int": "x * 3",
    "rmul": "-2 * x",
    "div_float": "x / 2.5",
    "div_int": "x / 3",
    "rdiv": "1 / x",
    "rdiv_float": "2.5 / x",
    "pow_2": "x ** 2",
    "pow_3": "x ** 3",
    "rpow": "2 ** x",
    "floor_div": "x // 2",
    "rfloor_div": "7 // x",
    "mod": "x % 3",
    "rmod": "7 % x",
    "neg": "-x",
    "greater": "x > 1",
    "greater_equal": "x >= 1",
    "less": "x < 1",
    "less_equal": "x <= 1",
    "equal": "x == 1",
    "not_equal": "x != 1",
    "maximum": "ops.maximum(x, 1)",
    "minimum": "ops.minimum(1, x)",
    "add_bool": "x + True",
    "where": "ops.where(x > 0, x, 0)",
    "where_two": "ops.where(x > 0, 1.0, -2.0)",
    "mint_add": "mint.add(x, 2, alpha=3)",
    "mint_sub": "mint.sub(x, 2, alpha=3)",
    "mint_mul": "mint.mul(x, 3)",
    "mint_div": "mint.div(x, 3)",
    "mint_pow": "mint.pow(x, 2)",
    "mint_pow_base": "mint.pow(2.0, x)",
    "mint_remainder": "mint.remainder(x, 3)",
    "mint_remainder_base": "mint.remainder(7, x)",
    "mint_eq": "mint.eq(x, 1)",
    "mint_gt": "mint.gt(x, 1)",
    "mint_ge": "mint.ge(x, 1)",
    "mint_lt": "mint.lt(x, 1)",
    "mint_le": "mint.le(x, 1)",
    "mint_ne": "mint.ne(x, 1)",
}

LOGICAL = {
    "logical_and": "ops.logical_and(x, y)",
    "logical_or": "ops.logical_or(x, y)",
    "logical_xor": "ops.logical_xor(x, y)",
    "logical_not": "ops.logical_and(ops.logical_not(x), y)",
    "bool_and_operator": "x & y",
    "bool_or_operator": "x | y",
    "bool_xor_operator": "x ^ y",
    "bool_equal": "x == y",
    "bool_not_equal": "ops.not_equal(x, y)",
}

BITWISE = {
    "bitwise_and": "ops.bitwise_and(x, y)",
    "bitwise_or": "ops.bitwise_or(x, y)",
    "bitwise_xor": "ops.bitwise_xor(x, y)",
    "bitwise_and_operator": "x & y",
    "bitwise_mint_and": "mint.bitwise_and(x, y)",
}


def cases() -> list[Case]:
    return [*numbers(), *logical_and_bitwise(), *casts()]


def numbers() -> list[Case]:
    """Each form on floats alone; on other types several forms share a file."""
    floats = values([[0.5, 1.0, 2.25, -1.5, 3.0], [-0.75, 1.0, 0.3, -2.0, 7.5]])
    # A number modulo an int32 tensor is declared int64 in the file, and MindSpore computes int32.
    wrong = ["rmod", "mint_remainder_base"]
    names = [name for name in SCALAR if name not in wrong]
    result = [case(f"scalar_{name}", text, floats) for name, text in SCALAR.items()]
    integers = values([[3, -2, 1, 7, -5]], "int32")
    result += [case(f"scalar_{name}_int32", SCALAR[name], integers) for name in wrong]
    for k in range(0, len(names), 6):
        chosen = [SCALAR[name] for name in names[k : k + 6]]
        result.append(case(f"scalar_int32_{k // 6}", ", ".join(chosen), integers))
    text = "x + 1.5, x + 2, x * 1.5, x * 3, x / 3, x < 1"
    return [
        *result,
        case("scalar_float16", f"{text}, 3 - x, x ** 2", f16(3, 5)),
        case("scalar_int64", f"{text}, 3 - x, x // 2, x % 3", i64(3, 5)),
        case("scalar_uint8", f"{text}, x // 2, x % 3", u8(3, 5)),
        case("scalar_bool", f"{text}, 3 - x", boolean(3, 5)),
    ]


def logical_and_bitwise() -> list[Case]:
    result = [case(name, text, boolean(3, 5), boolean(5)) for name, text in LOGICAL.items()]
    result += [case(f"{name}_int32", text, i32(3, 5), i32(5)) for name, text in BITWISE.items()]
    several = ", ".join(list(BITWISE.values())[:3])
    result += [
        case(f"bitwise_{name}", several, make(3, 5), make(3, 5))
        for name, make in {"int16": i16, "int64": i64, "uint8": u8}.items()
    ]
    shifts = "ops.bitwise_left_shift(x, y), ops.bitwise_right_shift(x, y)"
    result += [
        case(f"bitwise_shift_{dtype}", shifts, Draw(dtype, (3, 5), 0, 9), Draw(dtype, (3, 5), 0, 4))
        for dtype in ("int32", "uint8", "int64")
    ]
    return [
        *result,
        case("logical_and_float", LOGICAL["logical_and"], values([0.0, 1.5, -2.0, 0.0]), values([0.0, 0.0, 3.0, 4.0])),
        case("logical_not_int", "ops.logical_not(x)", values([0, 1, -3], "int32")),
    ]


def casts() -> list[Case]:
    signed = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "bool_"]
    everything = [*signed, "uint8", "uint16", "uint32"]
    sources = {
        "f32": (values([[-30.7, -1.5, 0.0, 0.5], [1.0, 2.7, 29.25, -0.0]]), signed),
        "i32": (i32(3, 5, low=-3, high=3), everything),
        "bool": (boolean(3, 5), everything),
        "u8": (u8(3, 5), everything),
        "i64": (i64(3, 5, low=-3, high=3), everything),
        "f16": (values([[-30.7, -1.5, 0.0, 0.5]], "float16"), signed),
    }
    result = [
        case(f"cast_{source}", ", ".join(f"ops.cast(x, mstype.{target})" for target in targets), draw)
        for source, (draw, targets) in sources.items()
    ]
    return [
        *result,
        case("cast_f16_f32", "x.astype(mstype.float32)", f16(3, 5)),
        case("cast_f32_bfloat16_f32", "x.astype(mstype.bfloat16).astype(mstype.float32)", f32(3, 5)),
        case("cast_f32_truncates", "x.astype(mstype.int32)", values([-2.7, -0.5, 0.5, 2.7, 1e6])),
        case("cast_f32_positive_uint8", "x.astype(mstype.uint8)", f32(3, 5, low=0, high=250)),
        case("cast_type_as", "x.type_as(y)", f32(3, 5), i32(2)),
        case("cast_to_own_type", "x.astype(mstype.float32) + 1", f32(3, 5)),
    ]
