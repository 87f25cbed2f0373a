"""Special functions (gamma, zeta, Bessel), and functions of the bits of integers and floats."""

import numpy as np

from mindir_fixtures.table import Case, case, f32, i64, values

NEAR = [0.01, 0.3, 0.5, 0.99, 1.0, 1.01, 1.5, 2.0, 2.5, 3.75, 6.0, 9.25, 17.5, 40.0]
NEGATIVE = [-150.25, -31.5, -9.5, -2.01, -1.9, -0.5, -0.1]
FAR = [1e-30, 1e-6, 300.0, 1e4, 1e9]
POLES = [-31.0, -2.0, -1.0, -0.0, 0.0, np.inf, -np.inf, np.nan, 1.5]
BESSEL = [-300.0, -60.5, -20.25, -7.9, -3.0, -0.4, 0.0, 1e-5, 0.2, 1.0, 1.9, 2.1, 4.9, 5.1, 7.6, 8.4, 12.75, 25.0, 77.0]
ORDERS = [0.01, 0.5, 1.0, 2.0, 3.3, 8.0, 20.0, 40.0, 200.0]
LIMITS = [0.001, 0.3, 1.0, 2.5, 7.0, 19.0, 45.0, 190.0, 260.0]


def cases() -> list[Case]:
    return [*gamma(), *incomplete(), *bessel(), *bits()]


def gamma() -> list[Case]:
    result: list[Case] = []
    for name in ("lgamma", "digamma"):
        text = f"ops.{name}(x)"
        result += [
            case(f"special_{name}", text, values(NEGATIVE + NEAR)),
            case(f"special_{name}_far", text, values(FAR)),
            case(f"special_{name}_poles", text, values(POLES)),
            case(f"special_{name}_float16", text, values(NEAR, "float16")),
            case(f"special_{name}_float64", text, values(NEGATIVE + NEAR, "float64")),
        ]
    result += [
        case(f"special_polygamma_{order}", f"ops.polygamma(ms.Tensor({order}), x)", values([-2.5, -0.25, *NEAR[1:]]))
        for order in (1, 2, 3)
    ]
    s, q = [1.5, 2.0, 3.0, 4.0, 9.5, 30.0, 2.0], [0.5, 1.0, 2.5, 10.0, 40.0, 3.0, 0.2]
    return [
        *result,
        case("special_zeta", "ops.zeta(x, y)", values(s), values(q)),
        case("special_zeta_float64", "ops.zeta(x, y)", values(s, "float64"), values(q, "float64")),
        case(
            "special_zeta_poles",
            "ops.zeta(x, y)",
            values([1.0, 0.5, 2.0, 2.0, 2.5]),
            values([1.0, 2.0, 0.0, -3.0, -0.5]),
        ),
        case("special_zeta_negative", "ops.zeta(x, y)", values([2.0, 3.0, 4.0]), values([-0.5, -1.25, -0.75])),
        case("special_mvlgamma", "ops.mvlgamma(x, 3)", f32(3, 4, low=1.5, high=9)),
    ]


def incomplete() -> list[Case]:
    """Incomplete gamma and beta functions, on both sides of where other formulas take over."""
    a, x = (grid.ravel() for grid in np.meshgrid(ORDERS, LIMITS))
    p, q, part = (
        grid.ravel()
        for grid in np.meshgrid([0.1, 0.5, 1.0, 2.5, 30.0], [0.2, 1.0, 4.0, 25.0], [0.0, 0.01, 0.3, 0.7, 0.99, 1.0])
    )
    return [
        case("special_igamma", "ops.igamma(x, y)", values(a), values(x)),
        case(
            "special_igamma_limits",
            "ops.igamma(x, y)",
            values([1.0, 1.0, -1.0, 0.0, 2.0]),
            values([0.0, -1.0, 1.0, 1.0, np.inf]),
        ),
        case("special_igammac", "ops.igammac(x, y)", values(a), values(x)),
        case("special_igamma_float64", "ops.igamma(x, y)", values(a, "float64"), values(x, "float64")),
        case("special_igamma_broadcast", "ops.igamma(x, y)", f32(3, 1, low=0.5, high=5), f32(4, low=0, high=6)),
        case("special_betainc", "P.Betainc()(x, y, z)", values(p), values(q), values(part)),
    ]


def bessel() -> list[Case]:
    result: list[Case] = []
    for name in ("i0", "i0e", "i1", "i1e", "j0", "j1", "k0", "k0e", "k1", "k1e", "y0", "y1"):
        numbers = BESSEL if name[0] in "ij" else [number for number in BESSEL if number >= 0.2]
        numbers = [number for number in numbers if abs(number) < 30] if name in ("i0", "i1") else numbers
        result.append(case(f"special_bessel_{name}", f"ops.bessel_{name}(x)", values(numbers)))
        result.append(case(f"special_bessel_{name}_float64", f"ops.bessel_{name}(x)", values(numbers, "float64")))
    return result


def bits() -> list[Case]:
    large = np.iinfo(np.int64)
    left = [12, -18, 0, 0, 7, large.max, 7540113804746346429, 2**40 * 45, -(2**62), large.max - 1, 1836311903]
    right = [18, 12, 5, 0, -7, large.max - 1, 4660046610375530309, 2**38 * 33, 2**60 * 3, 6, 1134903170]
    floats, towards = [1.0, 1.0, -1.0, 2.0, 0.5, 1e-3], [2.0, 0.0, -2.0, np.nan, 0.5, -np.inf]
    result = [
        case(f"bits_population_count_{dtype}", "ops.population_count(x)", values(items, dtype))
        for dtype, items in {
            "int8": [-128, -1, 0, 1, 127, 90],
            "uint8": [0, 1, 255, 170],
            "int16": [-32768, -1, 0, 257, 32767],
            "uint16": [0, 65535, 4660],
            "int32": [-(2**31), -1, 0, 2**31 - 1, 305419896],
            "int64": [large.min, -1, 0, large.max, 81985529216486895],
            "uint32": [0, 2**32 - 1, 2**31],
            "uint64": [0, 2**64 - 1, 2**63],
        }.items()
    ]
    return [
        *result,
        case("bits_gcd_int64", "ops.gcd(x, y)", values(left, "int64"), values(right, "int64")),
        case("bits_gcd_broadcast", "ops.gcd(x, y)", i64(3, 1, low=-90, high=90), i64(4, low=1, high=60)),
        case(
            "bits_gcd_primitive_int32",
            "G.Gcd()(x, y)",
            values([48, -36, 1836311903], "int32"),
            values([36, 48, 1134903170], "int32"),
        ),
        case("bits_lcm_int64", "ops.lcm(x, y)", values([4, -6, 0, 21, 0], "int64"), values([6, 8, 5, 6, 0], "int64")),
        case("bits_next_after_float64", "ops.nextafter(x, y)", values(floats, "float64"), values(towards, "float64")),
    ]
