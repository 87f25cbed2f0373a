"""Ops ask for no numbers that a device computes, and leave their results there: on a device that has no numbers."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from engines.torch.far import Apart
from engines.torch.onnx_cases import all_cases, array_of

from litehouse.engines.torch.frame import WIDER
from litehouse.engines.torch.ops.pooling import max_roi_pool
from litehouse.engines.torch.ops.sampling import roi_align
from litehouse.engines.torch.registry import LackingError, find_op
from litehouse.engines.torch.values import as_tensor

# Ops that give what is known on the CPU.
SIZES = {"OptionalHasElement", "Shape", "Size"}


def single_cases() -> list[str]:
    """The cases of one op that torch has, and whose inputs are tensors."""
    return [name for name, case in all_cases().items() if len(case.model.graph.node) == 1 and _is_here(case)]


def _is_here(case: object) -> bool:
    node, version = _node(case)
    found = find_op(node.domain, node.op_type, version)
    if found is None or node.op_type in SIZES or found.refusal(_attributes(node), len(node.input)):
        return False
    if all(found.knows(place) for place in range(len(node.input))) or _has_sequences(case):
        return False
    return not any(
        isinstance(value, np.ndarray) or value.dtype in WIDER for value in _inputs(case) if value is not None
    )


def _node(case: object) -> tuple[onnx.NodeProto, int]:
    model = case.model  # type: ignore[attr-defined]
    node = model.graph.node[0]
    return node, next(each.version for each in model.opset_import if each.domain == node.domain)


def _has_sequences(case: object) -> bool:
    return any(isinstance(value, list) or value is None for value in case.data_sets[0][0])  # type: ignore[attr-defined]


def _inputs(case: object) -> list[Any]:
    given = iter(case.data_sets[0][0])  # type: ignore[attr-defined]
    return [as_tensor(array_of(next(given))) if each else None for each in _node(case)[0].input]


def _attributes(node: onnx.NodeProto) -> dict[str, object]:
    values = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values.items()}


@pytest.mark.parametrize("name", single_cases())
def test_case(name: str) -> None:
    case = all_cases()[name]
    node, version = _node(case)
    found = find_op(node.domain, node.op_type, version)
    assert found is not None
    inputs = _inputs(case)
    extra = {"outputs": len(node.output)} if found.takes_outputs else {}
    far = [value if value is None or found.knows(place) else value.to("meta") for place, value in enumerate(inputs)]
    try:
        near = found.function(*inputs, **_attributes(node), **extra)
    except (LackingError, NotImplementedError) as error:
        pytest.skip(f"torch lacks it: {error}")
    with Apart():
        results = found.function(*far, **_attributes(node), **extra)
    for expected, actual in zip(_tensors(near), _tensors(results), strict=True):
        assert actual.device.type == "meta"
        assert (actual.shape, actual.dtype) == (expected.shape, expected.dtype)


def _tensors(results: Any) -> list[Any]:
    """The tensors of what an op gives: one, several, or sequences of them."""
    if isinstance(results, (tuple, list)):
        return [each for result in results for each in _tensors(result)]
    return [] if results is None else [results]


def test_regions_with_any_number_of_samples() -> None:
    x, rois, images = (torch.empty(shape, device="meta") for shape in ((2, 3, 9, 8), (5, 4), (5,)))
    assert roi_align(x, rois, images, output_height=2, output_width=3).shape == (5, 3, 2, 3)
    assert max_roi_pool(x, torch.empty(5, 5, device="meta"), pooled_shape=[2, 3]).shape == (5, 3, 2, 3)
