"""Ops that torch lacks, which ONNX Runtime computes: what they take and give."""

import itertools
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch
from engines.torch.against_runtime import agrees, whole
from onnx import TensorProto as T
from onnx import helper
from onnx.defs import onnx_opset_version

import litehouse
from litehouse import EngineError, Options
from litehouse.engines.shell import prepared
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.fallback import Fallback
from litehouse.engines.torch.frame import Frame
from litehouse.engines.torch.lower import lower
from litehouse.engines.torch.segments import with_segments
from litehouse.engines.torch.values import as_tensor

X = torch.tensor([1.0, -2.0, 3.0])
EUCLIDEAN = {"domain": "com.microsoft", "metric": "euclidean"}


def distances(*names: str) -> list[Any]:
    """Nodes that torch lacks, one behind another."""
    return [helper.make_node("CDist", [x, x], [y], name=f"from {x}", **EUCLIDEAN) for x, y in itertools.pairwise(names)]


def fallback(op: str, inputs: str, outputs: str = "y", version: int = 21, **attributes: Any) -> Fallback:
    proto = helper.make_node(op, inputs.split(), [name.strip("_") for name in outputs.split()], **attributes)
    takes = [helper.make_tensor_value_info(name, T.FLOAT, None) for name in proto.input]
    gives = [helper.make_tensor_value_info(name, T.FLOAT, None) for name in proto.output if name]
    graph = helper.make_graph([proto], "graph", takes, gives)
    model = ir.serde.deserialize_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)]))
    only = model.graph[0]
    return Fallback([only], only.inputs, only.outputs, {"": version})


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.uint16, torch.uint64, torch.float16, torch.float64, torch.bfloat16),
        *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    ],
)
def test_dtype_comes_back(dtype: torch.dtype) -> None:
    given = X.abs().to(dtype)
    (found,) = fallback("Identity", "x")([given])
    assert found.dtype == dtype
    assert found.to(torch.float32).tolist() == given.to(torch.float32).tolist()


@pytest.mark.parametrize(("number", "dtype"), [(T.BFLOAT16, torch.bfloat16), (T.FLOAT8E5M2, torch.float8_e5m2)])
def test_infinity_and_nan_come_back(number: int, dtype: torch.dtype) -> None:
    given = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.5])
    more = {} if dtype == torch.bfloat16 else {"saturate": 0}
    (found,) = fallback("Cast", "x", to=number, **more)([given])
    assert found.dtype == dtype
    (back,) = fallback("Cast", "x", to=T.FLOAT)([found])
    np.testing.assert_array_equal(back.numpy(), given.numpy())


def test_four_bits() -> None:
    given = as_tensor(np.array([1, -8, 7], ml_dtypes.int4))
    (found,) = fallback("Cast", "x", to=T.FLOAT)([given])
    assert found.tolist() == [1, -8, 7]
    (back,) = fallback("Cast", "x", to=T.INT4)([found])
    assert back.dtype == ml_dtypes.int4
    assert back.tolist() == [1, -8, 7]


def test_input_and_output_left_out() -> None:
    (found,) = fallback("Clip", "x low high")([X, None, torch.tensor(2.0)])
    assert found.tolist() == [1, -2, 2]
    found = fallback("Dropout", "x", "y _")([X])
    assert found[0].tolist() == X.tolist()
    assert found[1] is None


def test_inputs_of_another_dtype_get_a_model_of_their_own() -> None:
    op = fallback("Abs", "x")
    assert op([X])[0].tolist() == [1, 2, 3]
    assert op([X.to(torch.int64)])[0].dtype == torch.int64


@pytest.mark.parametrize("content", [X, X.to(torch.int64)])
def test_sequences(content: torch.Tensor) -> None:
    op = fallback("SequenceInsert", "s x")
    assert [each.tolist() for each in op([[], content])[0]] == [content.tolist()]
    assert len(op([[content, content], content])[0]) == 3


@pytest.mark.parametrize("given", [torch.arange(6.0).reshape(2, 3).t(), torch.ones(1).expand(3), torch.tensor(3)])
def test_memory_that_is_not_in_order(given: torch.Tensor) -> None:
    (found,) = fallback("Identity", "x")([given])
    assert found.tolist() == given.tolist()


def test_text() -> None:
    texts = np.array(["b", "a", "b"], object)
    nodes = [helper.make_node("Unique", ["s"], ["u", "i"]), helper.make_node("Gather", ["u", "k"], ["g"])]
    model = whole(nodes, {"s": texts}, ["u", "i", "g"], {"k": np.array([1, 0])})
    agrees(model, {"s": texts}, may_lack={"Unique", "Gather"})


def test_what_onnx_runtime_lacks_too_says_so() -> None:
    with pytest.raises(EngineError, match="torch has no such op, and ONNX Runtime cannot build it"):
        fallback("Identity", "x")([X.to(torch.complex64)])


def test_what_fails_says_so() -> None:
    with pytest.raises(EngineError, match="ONNX Runtime failed while running"):
        fallback("Reshape", "x s")([X, torch.tensor([7])])


def test_version_that_onnx_runtime_does_not_know_yet() -> None:
    newest = onnx_opset_version()
    for version in (newest, newest + 1):
        assert fallback("Abs", "x", version=version)([X])[0].tolist() == [1, 2, 3]


def test_nothing_goes_to_the_device_between_two_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [*distances("x", "a", "b", "c"), helper.make_node("Relu", ["c"], ["y"])]
    lowered = lower(prepared(litehouse.read(whole(nodes, {"x": np.ones((4, 3), np.float32)}, ["y"])), None, 1), "file")
    elsewhere = torch.device("meta")  # from which nothing can be copied back
    frame = Frame(lowered.constants, [None] * len(lowered.constants), elsewhere)
    frame.fed[lowered.block.inputs[0]] = torch.ones(4, 3)
    copied: list[Any] = []
    move = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda own, *given: copied.append(given) or move(own, *given))
    frame.run(lowered.block.steps)
    assert copied == [(elsewhere,)]  # what Relu takes
    assert frame.on_device(lowered.block.outputs[0]).shape == (4, 4)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_as_many_as_were_asked_for(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    taken: list[Any] = []
    make = onnxruntime.InferenceSession
    monkeypatch.setattr(
        onnxruntime, "InferenceSession", lambda model, settings, **more: taken.append(settings) or make(model, settings)
    )
    nodes = [*distances("x", "a"), helper.make_node("Relu", ["a"], ["r"]), *distances("r", "y")]
    model = litehouse.read(whole(nodes, {"x": np.ones((4, 3), np.float32)}, ["y"]))
    program = TorchEngine().compile(model, Options(engine="torch", threads=threads, cache=False))
    program.bind().run([np.ones((4, 3), np.float32)])
    assert [each.intra_op_num_threads for each in taken] == [threads] * 2
    assert {each.get_session_config_entry("session.intra_op.allow_spinning") for each in taken} == {"0"}


# Several, one behind another ------------------------------------------------------------------------------------------

Sessions = list[list[str]]


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Sessions:
    """The ops of each session that is opened for what torch lacks."""
    opened: Sessions = []
    make = Fallback._session

    def noted(self: Fallback, model: bytes) -> Any:
        opened.append([node.op_type for node in onnx.load_from_string(model).graph.node])
        return make(self, model)

    monkeypatch.setattr(Fallback, "_session", noted)
    return opened


def test_they_are_one_session(sessions: Sessions) -> None:
    """What they give each other stays there; what others use comes out, once."""
    a, b, c = distances("x", "a", "b", "c")
    nodes = [a, b, c, helper.make_node("Add", ["a", "c"], ["y"])]
    agrees(whole(nodes, {"x": np.eye(3, dtype="f")}, ["y", "b"]), {"x": np.eye(3, dtype="f")}, may_lack={"CDist"})
    assert sessions == [["CDist"] * 3]


def test_others_between_them_part_them(sessions: Sessions) -> None:
    a, b, c, d = distances("x", "a", "b", "c", "d")
    nodes = [a, b, helper.make_node("Relu", ["b"], ["r"]), *distances("r", "s"), c, d]
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("f")
    agrees(whole(nodes, {"x": x}, ["s", "d"]), {"x": x}, may_lack={"CDist"})
    assert sessions == [["CDist"] * 2, ["CDist"] * 3]


def test_an_output_that_nobody_uses(sessions: Sessions) -> None:
    texts = np.array(["b a", "a", "b"], object)
    join, split = (
        helper.make_node("StringConcat", ["s", "s"], ["n"]),
        helper.make_node("StringSplit", ["n"], ["p", "k"]),
    )
    agrees(whole([join, split], {"s": texts}, ["k"]), {"s": texts}, may_lack={"StringConcat", "StringSplit"})
    assert sessions == [["StringConcat", "StringSplit"]]


def test_in_loops(sessions: Sessions) -> None:
    """With what is outside, and again for each turn."""
    body = helper.make_graph(
        [
            *distances("v", "p"),
            helper.make_node("CDist", ["p", "x"], ["w"], domain="com.microsoft", metric="euclidean"),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", T.INT64, []),
            helper.make_tensor_value_info("go", T.BOOL, []),
            helper.make_tensor_value_info("v", T.FLOAT, [3, 3]),
        ],
        [helper.make_tensor_value_info("go", T.BOOL, []), helper.make_tensor_value_info("w", T.FLOAT, [3, 3])],
    )
    x = np.random.default_rng(0).normal(size=(3, 3)).astype("f")
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)]
    agrees(whole(nodes, {"x": x}, ["y"], {"n": np.array(3)}), {"x": x}, may_lack={"CDist"})
    assert sessions == [["CDist"] * 2]


def test_an_error_names_the_node(sessions: Sessions) -> None:
    nodes = distances("x", "a", "y")
    nodes[1].input[1] = "z"
    given = {"x": np.ones((4, 3), np.float32), "z": np.ones((2, 5), np.float32)}
    program = TorchEngine().compile(litehouse.read(whole(nodes, given, ["y"])), Options(engine="torch", cache=False))
    with pytest.raises(EngineError, match=r"ONNX Runtime failed while running.*Name:'from a'"):
        program.bind().run(list(given.values()))
    assert len(sessions) == 1
    assert program.lacking == ["CDist (node from x)", "CDist (node from a)"]


def test_a_value_with_a_second_name_between_them() -> None:
    """As one that goes through an op between ranks, which gives what it takes."""
    lowered = lower(
        prepared(litehouse.read(whole(distances("x", "a", "y"), {"x": X[None].numpy()}, ["y"])), None, 1), ""
    )
    (step,) = lowered.block.steps
    first, second = step.parts
    assert second.fallback is not None
    renamed = replace(second, fallback=replace(second.fallback, inputs=[ir.Value(name="b")] * 2))
    assert with_segments([first, second], second.outputs)[0].parts == (first, second)
    assert with_segments([first, renamed], second.outputs) == [first, renamed]


def test_a_value_with_a_second_name_outside_of_them() -> None:
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("f")
    nodes = [*distances("x", "a"), helper.make_node("CDist", ["x", "x"], ["y"], **EUCLIDEAN)]
    lowered = lower(prepared(litehouse.read(whole(nodes, {"x": x}, ["a", "y"])), None, 1), "")
    (step,) = lowered.block.steps
    first, second = step.parts
    assert second.fallback is not None
    renamed = replace(second, fallback=replace(second.fallback, inputs=[ir.Value(name="b")] * 2))
    (joined,) = with_segments([first, renamed], lowered.block.outputs)
    frame = Frame(lowered.constants, [None] * len(lowered.constants), torch.device("cpu"))
    frame.fed[lowered.block.inputs[0]] = torch.from_numpy(x)
    frame.run([joined])
    a, y = (frame.on_device(slot) for slot in lowered.block.outputs)
    assert torch.equal(a, y)
