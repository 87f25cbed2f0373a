"""Ops whose numbers are known can be traced, which is how kernels are made for them: no number is asked of a result."""

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from litehouse.engines.torch.registry import find_op

X = torch.arange(12.0).reshape(3, 4)


def ints(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


@pytest.mark.parametrize(
    ("op", "known", "attributes"),
    [
        ("Gather", [torch.tensor(-1)], {"axis": 1}),
        ("Gather", [ints(2)], {"axis": 0}),
        ("Slice", [ints(-1), ints(-9), ints(1), ints(-2)], {}),
        ("Pad", [ints(0, 1, 0, 2), torch.tensor(3.0)], {}),
        ("Pad", [ints(0, 1, 0, 2)], {"mode": "reflect"}),
        ("Pad", [ints(1, 1, 1, 1)], {"mode": "edge"}),
        ("Pad", [ints(1, 1, 1, 1)], {"mode": "wrap"}),
        ("Trilu", [torch.tensor(1)], {}),
        ("TopK", [ints(2)], {"largest": 0}),
        ("Reshape", [ints(2, -1)], {}),
        ("Expand", [ints(2, 1, 1)], {}),
        ("Tile", [ints(2, 1)], {}),
        ("Unsqueeze", [ints(0, -1)], {}),
        ("Split", [ints(1, 3)], {"axis": 1, "outputs": 2}),
    ],
)
def test_traced(op: str, known: list[torch.Tensor], attributes: dict[str, Any]) -> None:
    found = find_op("", op, 20)
    assert found is not None

    def function(x: torch.Tensor) -> list[torch.Tensor]:
        result = found.function(x, *known, **attributes)
        return list(result) if isinstance(result, tuple) else [result]

    with torch.inference_mode():
        traced = make_fx(function)(X)
        for x in (X, X.flip(0, 1) - 5):
            for actual, expected in zip(traced(x), function(x), strict=True):
                assert torch.equal(actual, expected)


def test_one_hot_is_traced() -> None:
    found = find_op("", "OneHot", 11)
    assert found is not None

    def function(indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = found.function(indices, torch.tensor([4]), values)
        return result

    with torch.inference_mode():
        traced = make_fx(function)(ints(0, 1), ints(0, 1))
        assert torch.equal(traced(ints(-1, 2), ints(3, 7)), function(ints(-1, 2), ints(3, 7)))
