"""Whole networks that ONNX Runtime's tools have made quantised, and what its optimiser makes of them."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from engines.torch import against_runtime
from engines.torch.quantised_networks import (
    IMAGE,
    STEPS,
    TOKENS,
    WORDS,
    Arrays,
    dynamic,
    few_bits,
    images,
    layer,
    optimised,
    recurrent,
    static,
    words,
)
from formats.onnx_runs import direct

LEVELS = ("", "BASIC", "EXTENDED", "ALL")


def near(content: bytes, inputs: Arrays, tolerance: float, ops: str = "") -> None:
    """Torch alone computes what ONNX Runtime does, within a part of the range; the network has these ops."""
    found = {each.op_type for each in onnx.load_from_string(content).graph.node}
    assert set(ops.split()) <= found
    (actual,), (expected,) = against_runtime.run(content, inputs), direct(content, inputs)
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * float(np.abs(expected).max()))


def leveled(content: bytes, folder: Path, level: str) -> bytes:
    return optimised(content, folder, level) if level else content


OPERATORS = "QLinearConv QLinearLeakyRelu QLinearSigmoid QLinearMul QLinearAdd QLinearAveragePool QLinearWhere QGemm "
OPERATORS += "QLinearConcat QLinearGlobalAveragePool QLinearMatMul QLinearSoftmax"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
def test_images(form: str, kind: str, level: str, tmp_path: Path) -> None:
    content = leveled(static(images(), IMAGE, tmp_path, form, kind, is_wide=True), tmp_path, level)
    ops = OPERATORS if form == "QOperator" or level in ("EXTENDED", "ALL") else ""
    # A number may round to the next step where sums of floats are in another order, which QDQ has between all ops.
    near(content, IMAGE, 0.0 if ops else 0.02, ops + (" NhwcMaxPool" if level == "ALL" else ""))


@pytest.mark.parametrize("kind", ["QUInt16", "QInt16"])
def test_images_in_16_bits(kind: str, tmp_path: Path) -> None:
    near(static(images(), IMAGE, tmp_path, "QDQ", kind, is_wide=False), IMAGE, 1e-3)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["QUInt8", "QInt8"])
def test_layer(kind: str, level: str, tmp_path: Path) -> None:
    content = leveled(dynamic(layer(), tmp_path, kind, is_wide=False), tmp_path, level)
    near(content, TOKENS, 1e-5, "QAttention QEmbedLayerNormalization")


@pytest.mark.parametrize("is_wide", [False, True])
def test_recurrent(is_wide: bool, tmp_path: Path) -> None:
    near(dynamic(recurrent(), tmp_path, "QInt8", is_wide=is_wide), STEPS, 1e-5, "DynamicQuantizeLSTM")


@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_few_bits(bits: int, is_symmetric: bool) -> None:
    ops = "MatMulNBits GatherBlockQuantized" if bits == 4 else "MatMulNBits"
    near(few_bits(words(), bits, is_symmetric=is_symmetric), WORDS, 1e-5, ops)


@pytest.mark.parametrize("is_symmetric", [False, True])
def test_few_bits_before_a_product(is_symmetric: bool, tmp_path: Path) -> None:
    content = few_bits(words(), 4, is_symmetric=is_symmetric, form="QDQ")
    near(content, WORDS, 1e-5, "DequantizeLinear MatMul")
    # There ONNX Runtime rounds what it multiplies to 8 bits, as it asks for the least accuracy.
    near(optimised(content, tmp_path, "EXTENDED"), WORDS, 0.01, "MatMulNBits")
