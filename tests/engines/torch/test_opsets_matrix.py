"""Products of matrices: shapes, dtypes and attributes."""

import numpy as np
import pytest
import torch
from engines.torch.against import agrees, numbers

from litehouse.engines.torch.ops.matrix import in_parts, product_by_parts

SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((2, 3, 4), (4,)),
    ((3, 0), (0, 2)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_matmul(left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    agrees("MatMul", [numbers(*left, dtype=dtype), numbers(*right, dtype=dtype, seed=1)], opset=9)


@pytest.mark.parametrize(("left", "right"), [*SHAPES, ((2, 3000), (3000, 2))])
@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_by_their_parts(left: tuple[int, ...], right: tuple[int, ...], dtype: str) -> None:
    """As a GPU multiplies them: any numbers, also where sums are beyond the dtype."""
    draw = np.random.default_rng(0).integers
    limits = np.iinfo(dtype)
    a, b = (draw(limits.min, limits.max, shape, dtype, endpoint=True) for shape in (left, right))
    found = product_by_parts(torch.from_numpy(a), torch.from_numpy(b)).numpy()
    np.testing.assert_array_equal(found, a @ b, strict=True)


@pytest.mark.parametrize("shape", [None, (), (1,), (5,), (3, 1), (1, 5), (3, 5)])
@pytest.mark.parametrize("factors", [(1.0, 1.0), (0.5, 2.0), (2.0, 0.0)])
@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm(shape: tuple[int, ...] | None, factors: tuple[float, float], turned: tuple[int, int]) -> None:
    a = numbers(4, 3) if turned[0] else numbers(3, 4)
    b = numbers(5, 4, seed=1) if turned[1] else numbers(4, 5, seed=1)
    attributes = {"alpha": factors[0], "beta": factors[1], "transA": turned[0], "transB": turned[1]}
    for opset in (11, 13) if shape is None else (7, 9, 11, 13):
        agrees("Gemm", [a, b, *([] if shape is None else [numbers(*shape, seed=2)])], opset=opset, **attributes)


def test_gemm_of_float64() -> None:
    values = [numbers(*shape, dtype="float64") for shape in ((3, 4), (4, 5), (5,))]
    agrees("Gemm", values, alpha=0.3, tolerance=1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("bij,bkj->bik", [(2, 3, 4), (2, 5, 4)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (1, 4, 5)]),
        ("ii->i", [(4, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        (" bhid , bhjd -> bhij ", [(1, 2, 3, 4), (1, 2, 5, 4)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ],
)
def test_einsum(equation: str, shapes: list[tuple[int, ...]]) -> None:
    values = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    agrees("Einsum", values, equation=equation, opset=12)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 4), (2, 3, 2, 2)])
def test_det(shape: tuple[int, ...]) -> None:
    agrees("Det", [numbers(*shape)], opset=11, tolerance=1e-4)


@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        ((40, 16, 16), [40]),
        ((5, 7, 17, 17), [16, 16, 3]),
        ((3, 129, 129), [1, 1, 1]),
        ((129, 129), [1]),
        ((0, 20, 20), [0]),
    ],
)
def test_matrices_that_torch_decomposes_without_waiting(shape: tuple[int, ...], counts: list[int]) -> None:
    """On a GPU; it would take another library for more of them at a time."""
    x = torch.from_numpy(numbers(*shape, dtype="float64")) / shape[-1] ** 0.5 + 3 * torch.eye(shape[-1])
    seen: list[int] = []

    def noted(part: torch.Tensor) -> torch.Tensor:
        seen.append(part.shape[0] if part.ndim > 2 else 1)
        return torch.linalg.inv(part)

    np.testing.assert_allclose(in_parts(noted, x), np.linalg.inv(x.numpy()))
    assert seen == counts
    np.testing.assert_allclose(in_parts(torch.linalg.det, x), np.linalg.det(x.numpy()))


def test_products_of_float16_are_rounded_once() -> None:
    a, b = numbers(8, 64, dtype="float16"), numbers(64, 8, dtype="float16", seed=1)
    agrees("MatMul", [a, b], tolerance=2e-3)


@pytest.mark.parametrize("equation", ["ii", "ij->i"])
def test_einsum_of_integers(equation: str) -> None:
    agrees("Einsum", [numbers(3, 3, dtype="int32")], equation=equation)
