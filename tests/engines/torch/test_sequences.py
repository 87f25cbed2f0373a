"""Sequences and optionals on torch, against ONNX Runtime. No model takes or gives one: they live inside."""

import numpy as np
import onnx
import pytest
from engines.torch.against_runtime import agrees, run, whole
from onnx import TensorProto as T
from onnx import helper

from litehouse import EngineError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
node = helper.make_node
value = helper.make_tensor_value_info


def number(content: int) -> np.ndarray:
    return np.array(content, np.int64)


@pytest.mark.parametrize("place", [0, 1, 2, -1, -2])
def test_sequence(place: int) -> None:
    nodes = [
        node("SequenceConstruct", ["x", "z"], ["s"]),
        node("SequenceInsert", ["s", "x"], ["s1"]),
        node("SequenceInsert", ["s1", "z", "p"], ["s2"]),
        node("SequenceErase", ["s2", "p"], ["s3"]),
        node("SequenceErase", ["s3"], ["s4"]),
        node("SequenceAt", ["s2", "p"], ["at"]),
        node("ConcatFromSequence", ["s3"], ["c"], axis=1),
        node("ConcatFromSequence", ["s2"], ["d"], axis=-1, new_axis=1),
        node("SequenceLength", ["s4"], ["l"]),
    ]
    inputs = {"x": X, "z": X * 9}
    agrees(whole(nodes, inputs, ["at", "c", "d", "l"], {"p": number(place)}), inputs)
    inputs["p"] = number(place)
    agrees(whole(nodes, inputs, ["at", "c", "d", "l"]), inputs)


@pytest.mark.parametrize("op", ["SequenceAt", "SequenceErase", "SequenceInsert"])
@pytest.mark.parametrize("place", [3, -3])
def test_place_outside(op: str, place: int) -> None:
    more = ["x"] if op == "SequenceInsert" else []
    nodes = [node("SequenceConstruct", ["x", "x"], ["s"]), node(op, ["s", *more, "p"], ["t"])]
    nodes += [] if op == "SequenceAt" else [node("SequenceLength", ["t"], ["l"])]
    inputs = {"x": X, "p": number(place)}
    with pytest.raises(EngineError, match=f"position {place} of a sequence of 2"):
        run(whole(nodes, inputs, ["t" if op == "SequenceAt" else "l"]), inputs)


@pytest.mark.parametrize("trips", [1, 3])
def test_sequence_that_a_loop_fills(trips: int) -> None:
    sequence = helper.make_tensor_sequence_value_info
    body = helper.make_graph(
        [node("SequenceInsert", ["s", "x"], ["s2"])],
        "body",
        [value("i", T.INT64, []), value("c", T.BOOL, []), sequence("s", T.FLOAT, None)],
        [value("c", T.BOOL, []), sequence("s2", T.FLOAT, None)],
    )
    nodes = [
        node("SequenceEmpty", [], ["e"]),
        node("Loop", ["M", "", "e"], ["s"], body=body),
        node("ConcatFromSequence", ["s"], ["y"], axis=0),
        node("SequenceLength", ["s"], ["l"]),
        node("SequenceLength", ["e"], ["none"]),
    ]
    inputs = {"x": X, "M": number(trips)}
    agrees(whole(nodes, inputs, ["y", "l", "none"]), inputs)


@pytest.mark.parametrize(
    ("split", "keeps"), [(None, 0), (None, 1), (number(2), 1), (np.array([1, 2]), 0), (np.array([0, 3]), 1)]
)
def test_split_to_sequence(split: np.ndarray | None, keeps: int) -> None:
    parts, names = ({}, []) if split is None else ({"n": split}, ["n"])
    nodes = [
        node("SplitToSequence", ["x", *names], ["s"], axis=-1, keepdims=keeps),
        node("SequenceAt", ["s", "one"], ["y"]),
        node("SequenceLength", ["s"], ["l"]),
    ]
    agrees(whole(nodes, {"x": X}, ["y", "l"], {"one": number(1), **parts}), {"x": X})


def test_sequence_map() -> None:
    body = helper.make_graph(
        [node("Add", ["e", "k"], ["o"]), node("Shape", ["e"], ["h"])],
        "body",
        [value("e", T.FLOAT, None), value("k", T.FLOAT, None)],
        [value("o", T.FLOAT, None), value("h", T.INT64, None)],
    )
    nodes = [
        node("SplitToSequence", ["x", "n"], ["s"], axis=1),
        node("SequenceMap", ["s", "k"], ["m", "hs"], body=body),
        node("ConcatFromSequence", ["m"], ["y"], axis=1),
        node("ConcatFromSequence", ["hs"], ["z"], axis=0),
    ]
    inputs = {"x": X, "k": np.array(2, np.float32)}
    agrees(whole(nodes, inputs, ["y", "z"], {"n": number(2)}), inputs)


def test_optional_with_an_element() -> None:
    nodes = [
        node("Optional", ["x"], ["o"]),
        node("OptionalHasElement", ["o"], ["h"]),
        node("OptionalGetElement", ["o"], ["g"]),
    ]
    agrees(whole(nodes, {"x": X}, ["h", "g"]), {"x": X})


def empty() -> list[onnx.NodeProto]:
    kind = helper.make_tensor_type_proto(T.FLOAT, None)
    return [node("Optional", [], ["o"], type=kind), node("Identity", ["o"], ["o2"])]


def test_optional_without_an_element() -> None:
    nodes = [*empty(), node("OptionalHasElement", ["o2"], ["h"]), node("Relu", ["x"], ["r"])]
    found = agrees(whole(nodes, {"x": X}, ["h", "r"]), {"x": X})
    assert not found[0]


def test_element_that_is_not_there() -> None:
    nodes = [*empty(), node("OptionalGetElement", ["o2"], ["g"])]
    with pytest.raises(EngineError, match="there is no element"):
        run(whole(nodes, {"x": X}, ["g"]), {"x": X})


def test_sequences_of_text_are_left_to_onnx_runtime() -> None:
    texts = np.array(["b", "a", "c"], object)
    nodes = [
        node("SequenceConstruct", ["s", "s"], ["q"]),
        node("SequenceInsert", ["q", "s"], ["q2"]),
        node("Identity", ["q2"], ["q3"]),
        node("ConcatFromSequence", ["q2"], ["c"], axis=0),
        node("SequenceLength", ["q2"], ["l"]),
        node("SequenceAt", ["q3", "one"], ["at"]),
    ]
    inputs = {"s": texts}
    agrees(whole(nodes, inputs, ["c", "l", "at"], {"one": number(1)}), inputs, may_lack={n.op_type for n in nodes})
