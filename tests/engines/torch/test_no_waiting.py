"""Ops ask for no numbers that a device computes, and leave their results there: on a device that has no numbers."""

import math
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from engines.torch.far import Apart
from engines.torch.onnx_cases import all_cases, array_of
from engines.torch.quantised_cases import CASES as QUANTISED

from litehouse.engines.torch.frame import WIDER
from litehouse.engines.torch.ops.pooling import max_roi_pool
from litehouse.engines.torch.ops.sampling import roi_align
from litehouse.engines.torch.registry import MICROSOFT, LackingError, Op, find_op, table
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
    extra = {"outputs": len(node.output)} if found.takes_outputs else {}
    try:
        check(found, _inputs(case), **_attributes(node), **extra)
    except (LackingError, NotImplementedError) as error:
        pytest.skip(f"torch lacks it: {error}")


def check(found: Op, inputs: list[Any], **options: Any) -> None:
    """Compute an op with numbers, and on the device that has none."""
    far = [value if value is None or found.knows(place) else value.to("meta") for place, value in enumerate(inputs)]
    near = found.function(*inputs, **options)
    with Apart():
        results = found.function(*far, **options)
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


def floats(*sizes: int) -> torch.Tensor:
    return torch.linspace(0.1, 1, math.prod(sizes)).reshape(sizes)


def ints(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def test_one_element_by_its_places() -> None:
    found = find_op("", "GatherND", 13)
    assert found is not None
    check(found, [floats(2, 3, 4), torch.tensor([1, 2, 3])])
    check(found, [floats(2, 3, 4), torch.tensor([1])])


PARTS = [floats(2, 3, 64), floats(2, 3, 32), floats(2, 3, 32)]
TOKENS = [each[:, :1] for each in PARTS]
TURNS = [floats(9, 8), floats(9, 8)]
OLD = [floats(2, 2, 6, 16), floats(2, 2, 6, 16)]
SHARED = {"num_heads": 4, "kv_num_heads": 2, "do_rotary": 1}
X, WEIGHT, BYTES = floats(2, 3, 8), floats(8, 24), torch.arange(24, dtype=torch.uint8).reshape(3, 8)
SINGLE = [None, None, None]
GATES = {"activation": 1, "groups": 2}
CLIP = {"activation": "Clip", "activation_params": [0.0, 1.0]}
RUNTIME: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Attention", [X, WEIGHT, floats(24), ints(3, 2), floats(2, 2, 2, 4, 4)], {"num_heads": 2, "unidirectional": 1}),
    ("Attention", [X, WEIGHT, None, ints(3, 2, 0, 1)], {"num_heads": 2}),
    ("BiasAdd", [X, floats(8), X], {}),
    ("BiasGelu", [X, floats(8)], {}),
    ("BiasSoftmax", [X, floats(3, 8)], {"axis": 2, "is_inner_broadcast": 0}),
    ("BiasSplitGelu", [X, floats(8)], {}),
    ("BranchwiseRMSNorm", [X, floats(8)], {"num_branches": 2}),
    ("ComplexMul", [floats(3, 2), floats(2, 3, 2)], {}),
    ("ComplexMulConj", [floats(3, 2), floats(2, 3, 2)], {}),
    ("ConvTransposeWithDynamicPads", [floats(2, 4, 5, 6), floats(4, 3, 3, 3), ints(1, 0, 1, 2)], {"strides": [2, 1]}),
    ("CropAndResize", [floats(2, 3, 4, 5), floats(3, 4), ints(0, 1, 1), ints(2, 3)], {}),
    ("CropAndResize", [floats(2, 3, 4, 5), floats(3, 4), ints(0, 1, 1), ints(1, 3)], {"mode": "nearest"}),
    ("DecoderMaskedMultiHeadAttention", [X[:, :1]] * 3 + SINGLE[:2] + [floats(2, 2, 5, 4)] * 2 + [ints(3)], {}),
    ("DynamicQuantizeMatMul", [X, BYTES.t(), floats(3), ints(3).byte(), floats(3)], {}),
    ("EmbedLayerNormalization", [ints(1, 2).reshape(1, 2), None, X[0], X[1], None, X[0, 0], X[0, 0]], {}),
    ("ExpandDims", [X, ints(1)], {}),
    ("FastGelu", [X, floats(8)], {}),
    ("FusedConv", [floats(2, 4, 5, 5), floats(3, 4, 3, 3), floats(3), floats(2, 3, 3, 3)], CLIP),
    ("FusedGemm", [X[0], floats(8, 3), floats(3)], {"activation": "LeakyRelu", "activation_alpha": 0.1}),
    ("FusedMatMul", [X, X], {"transB": 1, "alpha": 0.5}),
    ("FusedMatMulActivation", [X, floats(8, 3)], {"activation": "Tanh"}),
    ("GatedAdd", [X, X, X[..., :1]], {}),
    ("GatedRMSNorm", [X, floats(4), X], {}),
    ("GatedRelativePositionBias", [X, floats(8), floats(1, 2, 3, 3), floats(4, 8), floats(8), X[:1, :2, :1, None]], {}),
    ("Gelu", [X], {}),
    ("GemmFastGelu", [X, floats(8, 3), floats(3)], {}),
    ("GroupNorm", [floats(2, 3, 4, 8), floats(8), floats(8)], GATES),
    ("GroupQueryAttention", [*PARTS, None, None, ints(2, 1), ints(3), *TURNS], SHARED),
    ("GroupQueryAttention", [*TOKENS, *OLD, ints(6, 3), ints(7), *TURNS], SHARED),
    ("GroupQueryAttention", [*TOKENS, *OLD, ints(6, 3), ints(7), *TURNS, None, None, floats(4)], SHARED),
    ("GroupQueryAttention", [*PARTS, *OLD, ints(6, 7), ints(8), *TURNS], SHARED | {"softcap": 2.0}),
    ("GroupQueryAttention", [TOKENS[0], PARTS[1][:, :0], PARTS[2][:, :0], *OLD, ints(5, 3), ints(6), *TURNS], SHARED),
    ("Irfft", [floats(3, 5, 2)], {"signal_ndim": 1}),
    ("Inverse", [torch.eye(3)], {}),
    ("LinearAttention", [X, X, X, None, X[..., :2], X[..., :2]], {"q_num_heads": 2, "kv_num_heads": 2}),
    ("LinearAttention", [X, X, X, None, X], {"q_num_heads": 2, "kv_num_heads": 2, "update_rule": "gated"}),
    ("MRotaryEmbedding", [floats(2, 2, 3, 16), torch.ones(3, 2, 3).long(), *TURNS], {"mrope_section": [4, 2, 2]}),
    ("MatMulIntegerToFloat", [BYTES, BYTES.t(), floats(1), floats(3), ints(9).byte(), None, floats(3)], {}),
    ("MoE", [X, floats(6, 4), floats(4, 5, 8), floats(4, 5), floats(4, 8, 5)], {"k": 2}),
    ("MoE", [X[0, :1], floats(1, 4), floats(4, 5, 8), floats(4, 5), floats(4, 8, 5)], {"k": 2}),
    ("MultiHeadAttention", [floats(2, 3, 2, 3, 4), None, None, None, ints(3, 2)], {"num_heads": 2}),
    ("NhwcConv", [floats(2, 5, 5, 4), floats(3, 3, 3, 4)], {}),
    ("NhwcFusedConv", [floats(2, 5, 5, 4), floats(3, 4, 3, 3)], CLIP),
    ("QuickGelu", [X], {}),
    ("RelativePositionBias", [floats(8, 2), torch.tensor([5]), torch.tensor([5])], {"max_distance": 9}),
    ("Rfft", [X], {}),
    ("RotaryEmbedding", [floats(2, 3, 32), torch.ones(2, 3).long(), *TURNS], {"interleaved": 1}),
    ("RotaryEmbedding", [floats(2, 2, 3, 16), torch.ones(1).long(), *TURNS], {}),
    ("ScaledSiLU", [X, torch.tensor(2.0)], {}),
    ("SkipGroupNorm", [floats(2, 3, 4, 8), floats(8), floats(8), floats(2, 8), floats(8)], GATES),
    ("SkipLayerNormalization", [X, X[0], floats(8), floats(8), floats(8)], {"outputs": 4}),
    ("SkipSimplifiedLayerNormalization", [X, X, floats(8), floats(8)], {"outputs": 4}),
    ("UnfoldTensor", [X], {"size": 2}),
]


@pytest.mark.parametrize("place", range(len(RUNTIME)), ids=[f"{place} {row[0]}" for place, row in enumerate(RUNTIME)])
def test_op_of_onnx_runtime(place: int) -> None:
    op, inputs, attributes = RUNTIME[place]
    found = find_op("com.microsoft", op, 1)
    assert found is not None
    needed = {"num_heads": 2, "past_present_share_buffer": 1} if "Decoder" in op or "Gated" in op else {}
    check(found, inputs, **{name: value for name, value in needed.items() if name in found.attributes}, **attributes)


def test_every_op_of_onnx_runtime_is_here() -> None:
    """Or is among the quantised ones, or is one of ONNX's, too."""
    here = {*(op for op, _, _ in RUNTIME), *(case.op for case in QUANTISED.values()), "Unique"}  # that is known
    rows = [(domain, name, each.function) for (domain, name), found in table().items() for each in found]
    functions = {function for domain, name, function in rows if not domain or name in here}
    assert not {name for domain, name, function in rows if domain == MICROSOFT and function not in functions}
