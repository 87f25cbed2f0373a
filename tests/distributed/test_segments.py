"""How a graph is cut at its exchanges."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from distributed.jobs import part, ranks_op
from litehouse.distributed.segments import Begin, Segment, Step, cut, part_of
from litehouse.errors import EngineError
from onnx_models import node

SHAPE = [2, 2]
EYE = np.eye(2, dtype="f")


def told(steps: list[Step]) -> list[str]:
    """The steps in words: the ops of a segment, `>` for an exchange that begins and `<` for one that is waited for."""
    return [
        " ".join(each.op_type for each in step.nodes)
        if isinstance(step, Segment)
        else f"{'>' if isinstance(step, Begin) else '<'}{step.node.op_type}"
        for step in steps
    ]


def steps_of(
    nodes: list[onnx.NodeProto], outputs: str = "y", weights: dict[str, np.ndarray] | None = None
) -> list[Step]:
    names = {name: SHAPE for each in nodes for name in each.output}
    model = part(nodes, {"x": SHAPE}, dict.fromkeys(outputs.split(), SHAPE), weights or {"w": EYE}, names)
    return cut(model.graph.graph, model.path)


def test_computing_before_between_and_behind() -> None:
    steps = steps_of([node("MatMul", "x w", "a"), ranks_op("AllReduce", "a", "b"), node("Relu", "b", "y")])
    assert told(steps) == ["MatMul", ">AllReduce", "<AllReduce", "Relu"]
    first, last = steps[0], steps[-1]
    assert isinstance(first, Segment)
    assert isinstance(last, Segment)
    assert [value.name for value in (*first.inputs, *first.outputs)] == ["x", "a"]
    assert [value.name for value in (*last.inputs, *last.outputs)] == ["b", "y"]


def test_what_needs_no_exchange_is_computed_while_it_is_under_way() -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        ranks_op("AllReduce", "a", "b"),
        node("MatMul", "x w", "c"),
        node("Relu", "c", "d"),
        node("Add", "b d", "y"),
    ]
    assert told(steps_of(nodes)) == ["MatMul", ">AllReduce", "MatMul Relu", "<AllReduce", "Add"]


def test_a_trifle_is_not_worth_a_call_of_its_own() -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        ranks_op("AllReduce", "a", "b"),
        node("Relu", "x", "c"),
        node("Add", "b c", "y"),
    ]
    assert told(steps_of(nodes)) == ["MatMul", ">AllReduce", "<AllReduce", "Relu Add"]


def test_exchanges_that_do_not_need_each_other_are_under_way_together() -> None:
    nodes = [
        node("MatMul", "x w", "a"),
        ranks_op("AllReduce", "a", "b"),
        node("Relu", "x", "c"),
        ranks_op("AllReduce", "c", "d"),
        node("Add", "b d", "y"),
    ]
    expected = ["MatMul", ">AllReduce", "Relu", ">AllReduce", "<AllReduce", "<AllReduce", "Add"]
    assert told(steps_of(nodes)) == expected


def test_exchanges_right_behind_each_other() -> None:
    nodes = [ranks_op("AllReduce", "x", "a"), ranks_op("AllGather", "a", "y")]
    assert told(steps_of(nodes)) == [">AllReduce", "<AllReduce", ">AllGather", "<AllGather"]


def test_what_follows_from_weights_is_part_of_each_segment_that_needs_it() -> None:
    nodes = [
        node("Transpose", "w", "t"),
        node("MatMul", "x t", "a"),
        ranks_op("AllReduce", "a", "b"),
        node("MatMul", "b t", "y"),
    ]
    steps = steps_of(nodes)
    assert told(steps) == ["Transpose MatMul", ">AllReduce", "<AllReduce", "Transpose MatMul"]
    assert isinstance(steps[-1], Segment)
    assert [value.name for value in steps[-1].inputs] == ["b"]


def test_constants_that_are_sent_have_a_segment() -> None:
    nodes = [node("Neg", "w", "n"), ranks_op("AllReduce", "n", "y")]
    assert told(steps_of(nodes)) == ["Neg", ">AllReduce", "<AllReduce"]


def test_what_nobody_needs_is_left_out_but_no_exchange_is() -> None:
    nodes = [ranks_op("Send", "x", "s", dest_rank=1), node("Neg", "x", "unused"), node("Relu", "x", "y")]
    assert told(steps_of(nodes)) == [">Send", "Relu", "<Send"]


def test_what_is_received_is_waited_for_when_it_is_needed() -> None:
    """Else two stages that hand something back and forth would wait for each other."""
    nodes = [
        ranks_op("Receive", "x", "a", src_rank=1),
        node("MatMul", "a w", "b"),
        ranks_op("Send", "b", "s", dest_rank=1),
        ranks_op("Receive", "x", "c", src_rank=1),
        node("MatMul", "c w", "y"),
    ]
    expected = [">Receive", "<Receive", "MatMul", ">Send", ">Receive", "<Receive", "MatMul", "<Send"]
    assert told(steps_of(nodes)) == expected


def test_exchanges_inside_a_branch_are_refused() -> None:
    body = onnx.helper.make_graph(
        [ranks_op("AllReduce", "x", "inner")],
        "body",
        [],
        [onnx.helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, SHAPE)],
    )
    nodes = [onnx.helper.make_node("If", ["c"], ["y"], "branch", then_branch=body, else_branch=body)]
    with pytest.raises(EngineError, match=r"AllReduce \(node AllReduce inner\).*inside an If or a Loop"):
        steps_of(nodes, weights={"c": np.array(True)})


def test_values_that_a_branch_uses_from_outside_reach_its_segment() -> None:
    info = onnx.helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, SHAPE)
    body = onnx.helper.make_graph([node("Add", "b x", "inner")], "body", [], [info])
    other = onnx.helper.make_graph([node("Sub", "b x", "inner")], "other", [], [info])
    nodes = [
        ranks_op("AllReduce", "x", "b"),
        node("ReduceSum", "b", "sum", keepdims=0),
        node("Cast", "sum", "c", to=onnx.TensorProto.BOOL),
        onnx.helper.make_node("If", ["c"], ["y"], "branch", then_branch=body, else_branch=other),
    ]
    steps = steps_of(nodes)
    assert told(steps) == [">AllReduce", "<AllReduce", "ReduceSum Cast If"]
    assert isinstance(steps[-1], Segment)
    assert {value.name for value in steps[-1].inputs} == {"b", "x"}


def test_the_model_of_a_segment_has_its_weights_alone() -> None:
    nodes = [node("MatMul", "x w", "a"), ranks_op("AllReduce", "a", "b"), node("MatMul", "b v", "y")]
    model = part(nodes, {"x": SHAPE}, {"y": SHAPE}, {"w": EYE, "v": EYE}, {"a": SHAPE, "b": SHAPE})
    first, _, _, last = cut(model.graph.graph, model.path)
    assert isinstance(first, Segment)
    assert isinstance(last, Segment)
    assert list(part_of(model, first).weights) == ["w"]
    assert list(part_of(model, last).weights) == ["v"]
    assert part_of(model, last).weights["v"] is model.weights["v"]  # no copy


def test_a_value_of_unknown_type_is_refused() -> None:
    nodes = [node("MatMul", "x w", "a"), ranks_op("AllReduce", "a", "b"), node("Relu", "b", "y")]
    model = part(nodes, {"x": SHAPE}, {"y": SHAPE}, {"w": EYE})
    first = cut(model.graph.graph, model.path)[0]
    assert isinstance(first, Segment)
    with pytest.raises(EngineError, match="the type of 'a', which goes to or comes from other ranks, is not recorded"):
        part_of(model, first)
