"""OpenVINO gives stale values where a loop makes no round: the defect, and that users are safe from it."""

import numpy as np
import onnx
import openvino
import pytest
from onnx import parser

import litehouse
from conftest import ENGINES

HEAD = '<ir_version: 10, opset_import: ["" : 20]>\n'
BODY = """<body = b (int64 turn, bool on, int32 i, float y) => (bool goes_on, int32 next, float new) {
    next = Add(i, one)
    goes_on = Less(next, n)
    number = Cast<to = 1>(next)
    new = Add(number, x)
}>"""
CONSTANTS = "<int32 zero = {0}, int32 one = {1}, float ten = {10}>"
BY_CONDITION = f"""agraph (float x, int32 n) => (float out) {CONSTANTS} {{
    begins = Less(zero, n)
    first = Mul(x, ten)
    last, out = Loop("", begins, zero, first) {BODY}
}}"""
BY_COUNT = f"""agraph (float x, int32 n) => (float out) {CONSTANTS} {{
    count = Cast<to = 7>(n)
    first = Mul(x, ten)
    last, out = Loop(count, "", zero, first) {BODY}
}}"""
BOTH = BY_COUNT.replace('(count, ""', "(count, begins").replace("first =", "begins = Less(zero, n)\n    first =")
X = np.array(2, np.float32)


def _model(text: str) -> bytes:
    model: onnx.ModelProto = parser.parse_model(HEAD + text)
    return model.SerializeToString()


def _expected(rounds: int) -> float:
    return float(X * 10 if rounds == 0 else rounds + X)


@pytest.mark.openvino
def test_the_defect_is_there() -> None:
    """If this fails, OpenVINO has mended it, and the guard can go."""
    core = openvino.Core()
    request = core.compile_model(core.read_model(_model(BY_CONDITION)), "CPU").create_infer_request()
    results = [float(request.infer({"x": X, "n": np.int32(rounds)})[0]) for rounds in (3, 0)]
    assert results[0] == _expected(3)
    assert results[1] != _expected(0)


@pytest.mark.parametrize("text", [BY_CONDITION, BY_COUNT, BOTH], ids=["by condition", "by count", "by both"])
@pytest.mark.parametrize("name", ENGINES)
def test_users_are_safe_from_it(name: str, text: str) -> None:
    session = litehouse.load(_model(text), engine=name, threads=1)
    for rounds in (3, 0, 2, 0):
        assert float(session.run([X, np.array(rounds, np.int32)])[0]) == _expected(rounds)
