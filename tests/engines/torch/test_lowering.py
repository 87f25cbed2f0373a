"""From graphs to steps: what is computed beforehand, what is kept for how long, and what graphs may look like."""

import numpy as np
import onnx
import pytest
import torch
from engines.torch.against_runtime import Arrays, agrees, run, whole
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from litehouse import Options, read
from litehouse.engines.shell import prepared
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.frame import Frame
from litehouse.engines.torch.lower import MAX_FOLDED, Lowered, lower

X = np.arange(6, dtype=np.float32).reshape(2, 3)
node = helper.make_node
value = helper.make_tensor_value_info


def lowered(model: bytes) -> Lowered:
    return lower(prepared(read(model), None, 1), "file")


def ops(model: bytes) -> list[str]:
    return [step.op for step in lowered(model).block.steps]


# What is computed beforehand ------------------------------------------------------------------------------------------


def test_what_follows_from_constants_is_computed_once() -> None:
    nodes = [
        *(
            node("Shape", ["w"], ["n"]),
            node("Gather", ["n", "zero"], ["rows"]),
            node("Unsqueeze", ["rows", "z"], ["u"]),
        ),
        *(node("Concat", ["u", "minus"], ["sizes"], axis=0), node("Reshape", ["x", "sizes"], ["y"])),
    ]
    constants = {"w": np.zeros((3, 9), np.float32), "zero": np.array(0), "z": np.array([0]), "minus": np.array([-1])}
    model = whole(nodes, {"x": X}, ["y"], constants)
    assert ops(model) == ["Reshape"]
    agrees(model, {"x": X})


def test_large_results_are_not_kept() -> None:
    side = int(MAX_FOLDED**0.5)
    for size, expected in ((side, ["Add"]), (side + 1, ["Expand", "Add"])):
        nodes = [node("Expand", ["w", "n"], ["e"]), node("Add", ["e", "x"], ["y"])]
        constants = {"w": np.ones((1, 1), np.float32), "n": np.array([size, size])}
        assert ops(whole(nodes, {"x": np.ones((1, 1), np.float32)}, ["y"], constants)) == expected


def test_operands_that_are_only_large_together_are_not_expanded() -> None:
    nodes = [node("Expand", ["w", "n"], ["e"]), node("Mul", ["e", "e"], ["s"]), node("Add", ["s", "x"], ["y"])]
    constants = {"w": np.ones((MAX_FOLDED, 1), np.float32), "n": np.array([1, MAX_FOLDED])}
    assert ops(whole(nodes, {"x": np.ones((1, 1), np.float32)}, ["y"], constants)) == ["Expand", "Mul", "Add"]


def test_what_draws_is_not_computed_beforehand() -> None:
    nodes = [node("RandomNormal", [], ["r"], shape=[64]), node("Add", ["r", "x"], ["y"])]
    inputs = {"x": np.zeros(64, np.float32)}
    program = TorchEngine().compile(read(whole(nodes, inputs, ["y"])), Options(engine="torch", cache=False))
    one, two = (program.bind().run(list(inputs.values()))[0] for _ in range(2))
    assert not np.array_equal(one, two)


def test_constants_that_cannot_be_computed_are_an_error_only_where_they_are_used() -> None:
    wrong = helper.make_graph([node("Reshape", ["w", "n"], ["b"])], "else", [], [value("b", T.FLOAT, None)])
    right = helper.make_graph([node("Relu", ["x"], ["a"])], "then", [], [value("a", T.FLOAT, None)])
    inputs = {"x": X, "c": np.array(True)}
    nodes = [node("If", ["c"], ["y"], then_branch=right, else_branch=wrong)]
    (found,) = run(whole(nodes, inputs, ["y"], {"w": X, "n": np.array([5])}), inputs)
    np.testing.assert_array_equal(found, X)


# What graphs may look like --------------------------------------------------------------------------------------------


def test_outputs_that_are_inputs_and_constants() -> None:
    nodes = [
        *(node("Identity", ["x"], ["y"]), node("Relu", ["x"], ["r"]), node("Reshape", ["x", "n"], ["v"])),
        node("Constant", [], ["k"], value=numpy_helper.from_array(X * 3)),
    ]
    model = whole(nodes, {"x": X}, ["x", "y", "r", "v", "w", "k"], {"w": X * 2, "n": np.array([-1])})
    agrees(model, {"x": X})


def test_outputs_own_their_memory() -> None:
    nodes = [
        *(node("Reshape", ["x", "n"], ["v"]), node("Expand", ["w", "n2"], ["e"]), node("Identity", ["w"], ["w2"])),
        *(node("Split", ["x"], ["p", "q"], axis=0, num_outputs=2), node("Expand", ["x", "n3"], ["f"])),
    ]
    constants = {"w": np.ones((1, 3), np.float32), "n": np.array([-1]), "n2": np.array([4, 3])}
    constants["n3"] = np.array([5, 2, 3])
    model = whole(nodes, {"x": X}, ["x", "v", "e", "w2", "p", "q", "f"], constants)
    program = TorchEngine().compile(read(model), Options(engine="torch", cache=False))
    runner, given = program.bind(), X.copy()
    first = runner.run([given])
    expected = [array.copy() for array in first]
    for array in first:
        array[...] = 99
    np.testing.assert_array_equal(given, X)
    for again, before in zip(runner.run([given]), expected, strict=True):
        np.testing.assert_array_equal(again, before)


def test_outputs_that_are_left_out() -> None:
    """ONNX Runtime crashes on this Split, so the truth is by hand."""
    nodes = [
        node("Split", ["x"], ["", "b", ""], axis=1, num_outputs=3),
        node("TopK", ["x", "k"], ["", "i"]),
    ]
    b, i = run(whole(nodes, {"x": X}, ["b", "i"], {"k": np.array([2])}), {"x": X})
    assert b.tolist() == [[1], [4]]
    assert i.tolist() == [[2, 1], [2, 1]]


def test_weight_that_is_also_an_input() -> None:
    """As old files have it: all weights are among the inputs, and need not be given."""
    graph = helper.make_graph(
        [node("Add", ["x", "w"], ["y"])],
        "graph",
        [value("x", T.FLOAT, [2, 3]), value("w", T.FLOAT, [3])],
        [value("y", T.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.float32([1, 2, 3]), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 9)], ir_version=3).SerializeToString()
    agrees(model, {"x": X})


def test_inner_value_with_the_name_of_an_outer_one_of_another_branch() -> None:
    def branch(op: str) -> onnx.GraphProto:
        return helper.make_graph(
            [node(op, ["x"], ["h"]), node("Add", ["h", "x"], ["out"])], "branch", [], [value("out", T.FLOAT, None)]
        )

    nodes = [node("If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))]
    for choice in (True, False):
        inputs = {"x": X, "c": np.array(choice)}
        agrees(whole(nodes, inputs, ["y"]), inputs)


# How long values are kept ---------------------------------------------------------------------------------------------


def kept(model: bytes, inputs: Arrays) -> set[int]:
    """The slots that have a value behind a run, without constants and without outputs."""
    made = lowered(model)
    frame = Frame(made.constants, [None] * len(made.constants), torch.device("cpu"))
    for slot, array in zip(made.block.inputs, inputs.values(), strict=True):
        frame.device[slot] = torch.from_numpy(array.copy())
    with torch.inference_mode():
        frame.run(made.block.steps)
    assert all(frame.device[slot] is not None or frame.host[slot] is not None for slot in made.block.outputs)
    left = {
        slot for slot in range(len(made.constants)) if frame.device[slot] is not None or frame.host[slot] is not None
    }
    constants = {slot for slot, array in enumerate(made.constants) if array is not None}
    return left - constants - set(made.block.outputs)


def test_nothing_stays_that_is_not_needed() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "x"], ["b"]), node("Add", ["b", "a"], ["c"])]
    nodes += [node("Split", ["c"], ["d", "e"], axis=0, num_outputs=2), node("Relu", ["d"], ["y"])]
    assert kept(whole(nodes, {"x": X}, ["y"]), {"x": X}) == set()


def test_nothing_stays_behind_loops_and_branches() -> None:
    def branch(op: str) -> onnx.GraphProto:
        nodes = [node(op, ["s"], ["t"]), node("Add", ["t", "outer"], ["out"])]
        return helper.make_graph(nodes, "branch", [], [value("out", T.FLOAT, None)])

    body = helper.make_graph(
        [
            *(node("Add", ["s", "x"], ["h"]), node("Less", ["i", "one"], ["g"])),
            node("If", ["g"], ["r"], then_branch=branch("Relu"), else_branch=branch("Neg")),
            *(node("Add", ["h", "r"], ["s2"]), node("Identity", ["h"], ["o"])),
        ],
        "body",
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("s", T.FLOAT, None)],
        [value("c", T.BOOL, []), value("s2", T.FLOAT, None), value("o", T.FLOAT, None)],
    )
    nodes = [node("Relu", ["x"], ["outer"]), node("Loop", ["M", "", "x"], ["l", "os"], body=body)]
    nodes += [node("Relu", ["l"], ["y"])]
    inputs = {"x": X, "M": np.array(3)}
    model = whole(nodes, inputs, ["y", "os"], {"one": np.array(1)})
    agrees(model, inputs)
    assert kept(model, inputs) == set()


@pytest.mark.parametrize("axis", [0, 1])
def test_views_of_what_is_freed_stay_right(axis: int) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Split", ["a"], ["p", "q"], axis=axis, split=[1, 1])]
    nodes += [node("Add", ["q", "q"], ["z"]), node("Transpose", ["p"], ["t"])]
    x = X[:, :2].copy()
    agrees(whole(nodes, {"x": x}, ["t", "z"], opset=11), {"x": x})


def test_one_known_index_gives_a_view() -> None:
    nodes = [node("Gather", ["x", "one"], ["y"], axis=1), node("Gather", ["x", "both"], ["z"], axis=1)]
    inputs = {"x": X, "both": np.array([1, -1])}
    model = whole(nodes, inputs, ["y", "z"], {"one": np.array([[-1]])})
    assert [step.known for step in lowered(model).block.steps] == [(False, True), (False, False)]
    agrees(model, inputs)
    gather = lowered(model).block.steps[0].function
    assert gather is not None
    x = torch.from_numpy(X)
    assert gather(x, torch.tensor([[-1]])).data_ptr() == x[0, 2:].data_ptr()


def test_text_that_is_repeated_beforehand() -> None:
    texts = np.array(["a", "b"], object)
    nodes = [node("Tile", ["k", "n"], ["t"]), node("Concat", ["s", "t"], ["y"], axis=0)]
    agrees(whole(nodes, {"s": texts}, ["y"], {"k": texts, "n": np.array([2])}), {"s": texts}, may_lack={"Concat"})


def test_many_constants_are_folded_fast() -> None:
    """Each step costs the same, however many there are."""
    nodes = [node("Add", [f"v{place}", "one"], [f"v{place + 1}"]) for place in range(3000)]
    nodes += [node("Add", ["x", "v3000"], ["y"])]
    model = whole(nodes, {"x": X}, ["y"], {"v0": np.float32([1]), "one": np.float32([1])})
    assert ops(model) == ["Add"]
    (found,) = run(model, {"x": X})
    np.testing.assert_array_equal(found, X + 3001)
