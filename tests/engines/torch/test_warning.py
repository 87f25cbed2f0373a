"""Ops that torch lacks: one warning for each session, which names them, and numbers that are right all the same."""

import logging

import numpy as np
import onnx
import pytest
from engines.torch.against_runtime import Arrays, whole
from formats.onnx_runs import direct
from onnx import TensorProto as T
from onnx import helper

import litehouse
from litehouse import Options

torch = pytest.importorskip("torch")

X = np.arange(6, dtype=np.float32).reshape(2, 3)
node = helper.make_node
value = helper.make_tensor_value_info


def distances(name: str, x: str, y: str) -> onnx.NodeProto:
    """An op of ONNX Runtime's own, which torch lacks from the start."""
    return node("CDist", [x, x], [y], name=name, domain="com.microsoft", metric="euclidean")


def check(data: bytes, runs: list[Arrays], caplog: pytest.LogCaptureFixture, sessions: int = 1) -> list[str]:
    """Run a model several times; returns the warnings."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(sessions):
            session = litehouse.load(data, engine="torch", cache=False)
            for inputs in runs:
                for actual, expected in zip(session.run(inputs), direct(data, inputs), strict=True):
                    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    return [record.getMessage() for record in caplog.records if "torch lacks" in record.getMessage()]


def test_one_warning_names_all(caplog: pytest.LogCaptureFixture) -> None:
    nodes = [node("Relu", ["x"], ["r"]), distances("net/first", "r", "d"), node("Neg", ["d"], ["n"])]
    data = whole([*nodes, distances("net/second", "n", "y")], {"x": X}, ["y"])
    (found,) = check(data, [{"x": X}, {"x": X + 1}, {"x": X}], caplog)
    text = "torch lacks CDist (node net/first), CDist (node net/second); ONNX Runtime computes that on the CPU"
    assert found.endswith(text)


def test_each_session_warns(caplog: pytest.LogCaptureFixture) -> None:
    data = whole([distances("d", "x", "y")], {"x": X}, ["y"])
    assert len(check(data, [{"x": X}, {"x": X}], caplog, sessions=3)) == 3


def test_all_programs_of_a_session_warn_once(rehearsed_gpu: None, caplog: pytest.LogCaptureFixture) -> None:
    data = whole([distances("d", "x", "y")], {"x": X}, ["y"])
    with caplog.at_level(logging.WARNING):
        session = litehouse.load(data, device="gpu", precision="fp16", cache=False)
        for count in (2, 4):
            session.resize([(count, 3)])
            session.run([np.ones((count, 3), np.float32)])
    assert caplog.text.count("torch lacks") == 1


def test_several_runners_of_one_program_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    from litehouse.engines.torch.engine import TorchEngine

    data = whole([distances("d", "x", "y")], {"x": X}, ["y"])
    with caplog.at_level(logging.WARNING):
        program = TorchEngine().compile(litehouse.read(data), Options(engine="torch", cache=False))
        for _ in range(3):
            np.testing.assert_allclose(program.bind().run([X])[0], direct(data, {"x": X})[0], rtol=1e-5)
    assert caplog.text.count("torch lacks") == 1
    assert program.lacking == ["CDist (node d)"]


def test_a_node_without_a_name(caplog: pytest.LogCaptureFixture) -> None:
    (found,) = check(whole([distances("", "x", "y")], {"x": X}, ["y"]), [{"x": X}], caplog)
    assert "torch lacks CDist" in found


def test_what_torch_has_warns_of_nothing(caplog: pytest.LogCaptureFixture) -> None:
    data = whole([node("Relu", ["x"], ["r"]), node("Softmax", ["r"], ["y"])], {"x": X}, ["y"])
    assert check(data, [{"x": X}, {"x": -X}], caplog) == []


def test_an_attribute_that_is_not_known(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer version of an op may have one."""
    from litehouse.engines.torch.registry import Op

    refusal = Op.refusal
    monkeypatch.setattr(Op, "refusal", lambda self, a, n: "new" if "alpha" in a else refusal(self, a, n))
    data = whole([node("LeakyRelu", ["x"], ["y"], name="leak", alpha=0.5)], {"x": X}, ["y"])
    (found,) = check(data, [{"x": X - 3}, {"x": X}], caplog)
    assert "torch lacks LeakyRelu (node leak)" in found


def test_what_only_a_run_shows(caplog: pytest.LogCaptureFixture) -> None:
    """Torch has the op, but not for these numbers: those of 64 bits without a sign are not compared."""
    given = {"a": np.array([1, 2**63 + 5, 3], np.uint64), "b": np.array([2, 1, 3], np.uint64)}
    data = whole([node("Greater", ["a", "b"], ["g"], name="compare"), node("Not", ["g"], ["y"])], given, ["y", "g"])
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        session = litehouse.load(data, engine="torch", cache=False)
        assert "torch lacks" not in caplog.text
        for _ in range(3):
            found, greater = session.run(given)
            assert greater.tolist() == [False, True, False]
            assert found.tolist() == [True, False, True]
    assert caplog.text.count("torch lacks Greater (node compare)") == 1


def test_what_a_run_shows_beside_what_was_known(caplog: pytest.LogCaptureFixture) -> None:
    given = {"x": X, "a": np.array([2**63 + 5], np.uint64), "b": np.array([1], np.uint64)}
    data = whole([distances("far", "x", "y"), node("Greater", ["a", "b"], ["g"], name="compare")], given, ["y", "g"])
    known, shown = check(data, [given] * 3, caplog)
    assert "torch lacks CDist (node far);" in known
    assert "torch lacks Greater (node compare);" in shown


def branch(nodes: list[onnx.NodeProto], gives: str) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [value(gives, T.FLOAT, None)])


def test_inside_a_branch(caplog: pytest.LogCaptureFixture) -> None:
    chosen = branch([distances("deep/inside", "r", "a")], "a")
    other = branch([node("MatMul", ["r", "t"], ["b"])], "b")
    nodes = [
        *(node("Relu", ["x"], ["r"]), node("Transpose", ["r"], ["t"])),
        *(node("If", ["c"], ["i"], then_branch=chosen, else_branch=other), node("Neg", ["i"], ["y"])),
    ]
    runs = [{"x": X + turn, "c": np.array(turn % 3 == 0)} for turn in range(5)]
    (found,) = check(whole(nodes, runs[0], ["y"]), runs, caplog)
    assert "CDist (node deep/inside)" in found


def test_inside_a_loop(caplog: pytest.LogCaptureFixture) -> None:
    body = helper.make_graph(
        [distances("deep/turn", "s", "d"), node("MatMul", ["d", "s"], ["s2"]), node("Neg", ["d"], ["o"])],
        "body",
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("s", T.FLOAT, None)],
        [value("c", T.BOOL, []), value("s2", T.FLOAT, None), value("o", T.FLOAT, None)],
    )
    nodes = [node("Relu", ["x"], ["r"]), node("Loop", ["M", "", "r"], ["y", "os"], body=body)]
    runs = [{"x": X / 5 + turn, "M": np.array(trips)} for turn, trips in enumerate((2, 1, 3))]
    (found,) = check(whole(nodes, runs[0], ["y", "os"]), runs, caplog)
    assert "CDist (node deep/turn)" in found


def test_a_constant_is_computed_beforehand(caplog: pytest.LogCaptureFixture) -> None:
    """Nothing waits for that in a run, so there is nothing to warn of."""
    nodes = [distances("d", "w", "k"), node("MatMul", ["k", "x"], ["y"])]
    assert check(whole(nodes, {"x": X}, ["y"], {"w": X * 2}), [{"x": X}, {"x": -X}], caplog) == []
