"""If, Loop and Scan on torch. ONNX Runtime is the truth, but where it fails on a body that gives what it takes."""

import numpy as np
import onnx
import pytest
from engines.torch.against_runtime import Arrays, agrees, run, whole
from engines.torch.onnx_cases import run_case
from onnx import TensorProto as T
from onnx import helper, numpy_helper

from litehouse import EngineError

X = np.arange(6, dtype=np.float32).reshape(2, 3)
TEXTS = np.array(["b", "a", "c", "a"], object)
node = helper.make_node
value = helper.make_tensor_value_info


def count(number: int) -> np.ndarray:
    return np.array(number, np.int64)


def constant(name: str, array: np.ndarray) -> onnx.NodeProto:
    return node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(array)))


def loop_body(nodes: list[onnx.NodeProto], takes: str, gives: str, condition: str = "c") -> onnx.GraphProto:
    """A body of a Loop with counter `i` and condition `c`; names of values of floats are separated by spaces."""
    inputs = [value("i", T.INT64, []), value("c", T.BOOL, []), *(value(name, T.FLOAT, None) for name in takes.split())]
    outputs = [value(condition, T.BOOL, []), *(value(name, T.FLOAT, None) for name in gives.split())]
    return helper.make_graph(nodes, "body", inputs, outputs)


def branch(nodes: list[onnx.NodeProto], gives: str, kind: int = T.FLOAT) -> onnx.GraphProto:
    return helper.make_graph(nodes, "branch", [], [value(name, kind, None) for name in gives.split()])


@pytest.mark.parametrize(
    "name", ["test_if", "test_loop11", "test_scan9_sum", "test_scan9_multi_state", "test_scan9_scalar"]
)
def test_onnx_case(name: str) -> None:
    run_case(name)


# Loops ----------------------------------------------------------------------------------------------------------------

UNTIL = loop_body(
    [
        node("Add", ["s", "x"], ["s2"]),
        node("ReduceMax", ["s2"], ["most"], keepdims=0),
        node("Less", ["most", "limit"], ["c2"]),
        node("Identity", ["s2"], ["o"]),
    ],
    "s",
    "s2 o",
    "c2",
)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("trips", [None, 0, 1, 2, 9])
def test_loop_until_data_says_so(trips: int | None, *, first: bool) -> None:
    inputs: Arrays = {"x": X, "f": np.array(first)} | ({} if trips is None else {"M": count(trips)})
    nodes = [node("Loop", ["" if trips is None else "M", "f", "x"], ["y", "ys"], body=UNTIL)]
    found = agrees(whole(nodes, inputs, ["y", "ys"], {"limit": np.array(23, np.float32)}), inputs)
    assert len(found[1]) == (min(4, 9 if trips is None else trips) if first else 0)


@pytest.mark.parametrize("trips", [1, 2, 3])
def test_body_that_gives_what_it_takes(trips: int) -> None:
    """ONNX Runtime gives garbage for the counter here, so the truth is by hand."""
    body = helper.make_graph(
        [constant("k", np.float32(7)), node("Identity", ["x"], ["outer"])],
        "body",
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("a", T.FLOAT, None), value("b", T.FLOAT, None)],
        [
            *(value("c", T.BOOL, []), value("b", T.FLOAT, None), value("a", T.FLOAT, None)),
            *(value("k", T.FLOAT, None), value("i", T.INT64, []), value("outer", T.FLOAT, None)),
        ],
    )
    inputs = {"x": X, "z": X * 2, "M": count(trips)}
    nodes = [node("Loop", ["M", "", "x", "z"], ["p", "q", "ks", "is", "xs"], body=body)]
    p, q, ks, counts, xs = run(whole(nodes, inputs, ["p", "q", "ks", "is", "xs"]), inputs)
    first, second = (X, X * 2) if trips % 2 == 0 else (X * 2, X)
    np.testing.assert_array_equal(p, first)
    np.testing.assert_array_equal(q, second)
    assert ks.tolist() == [7] * trips
    assert counts.tolist() == list(range(trips))
    np.testing.assert_array_equal(xs, np.stack([X] * trips))


def test_no_trip_gives_an_empty_result_of_the_shape_that_is_known() -> None:
    body = helper.make_graph(
        [node("Add", ["s", "x"], ["s2"]), node("Identity", ["s2"], ["o"])],
        "body",
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("s", T.FLOAT, [2, 3])],
        [value("c", T.BOOL, []), value("s2", T.FLOAT, [2, 3]), value("o", T.FLOAT, [2, "n"])],
    )
    inputs = {"x": X, "M": count(0)}
    agrees(whole([node("Loop", ["M", "", "x"], ["y", "ys"], body=body)], inputs, ["y", "ys"]), inputs)


def test_state_that_grows_with_a_counter_of_rank_one() -> None:
    body = helper.make_graph(
        [node("Concat", ["a", "i"], ["a2"], axis=0)],
        "body",
        [value("i", T.INT64, [1]), value("c", T.BOOL, []), value("a", T.INT64, None)],
        [value("c", T.BOOL, []), value("a2", T.INT64, None)],
    )
    inputs = {"v": np.array([5]), "M": count(4)}
    (found,) = agrees(whole([node("Loop", ["M", "", "v"], ["w"], body=body)], inputs, ["w"]), inputs)
    assert found.tolist() == [5, 0, 1, 2, 3]


def test_loops_in_branches_in_loops() -> None:
    inner = loop_body(
        [
            *(constant("w", np.float32([1, 2, 3])), node("Add", ["u", "x"], ["u1"]), node("Add", ["u1", "w"], ["u2"])),
            node("Identity", ["s"], ["kept"]),
        ],
        "u",
        "u2 kept",
    )
    inner.input[0].name, inner.input[1].name, inner.output[0].name = "j", "d", "d"
    chosen = branch([node("Loop", ["i", "", "s"], ["t", "ts"], body=inner)], "t")
    other = branch([node("Identity", ["s"], ["e"])], "e")
    body = loop_body(
        [
            node("Greater", ["i", "one"], ["g"]),
            node("If", ["g"], ["r"], then_branch=chosen, else_branch=other),
            node("Add", ["r", "s"], ["s3"]),
        ],
        "s",
        "s3 r",
    )
    inputs = {"x": X, "M": count(4)}
    nodes = [node("Loop", ["M", "", "x"], ["y", "ys"], body=body), node("Add", ["y", "x"], ["z"])]
    agrees(whole(nodes, inputs, ["z", "ys", "x"], {"one": count(1)}), inputs)


def test_loop_within_a_loop_begins_anew_each_time() -> None:
    inner = loop_body([node("Add", ["u", "s"], ["u2"])], "u", "u2")
    inner.input[0].name, inner.input[1].name, inner.output[0].name = "j", "d", "d"
    body = loop_body([node("Loop", ["N", "", "x"], ["v"], body=inner), node("Add", ["v", "s"], ["s2"])], "s", "s2")
    inputs = {"x": X, "M": count(3), "N": count(2)}
    agrees(whole([node("Loop", ["M", "", "x"], ["y"], body=body)], inputs, ["y"]), inputs)


@pytest.mark.parametrize("depth", [1, 5, 12])
def test_branches_within_branches(depth: int) -> None:
    inside = branch([node("Add", ["x", "x"], ["r0"])], "r0")
    for level in range(1, depth + 1):
        other = branch([node("Identity", ["x"], [f"o{level}"])], f"o{level}")
        chosen = node("If", ["c"], [f"q{level}"], then_branch=inside, else_branch=other)
        inside = branch([chosen, node("Add", [f"q{level}", "x"], [f"r{level}"])], f"r{level}")
    other = branch([node("Identity", ["x"], ["o"])], "o")
    for choice in (True, False):
        inputs = {"x": X, "c": np.array(choice)}
        nodes = [node("If", ["c"], ["y"], then_branch=inside, else_branch=other)]
        agrees(whole(nodes, inputs, ["y"]), inputs)


@pytest.mark.parametrize("choice", [True, False])
def test_branches_that_give_constants_and_outer_values(choice: bool) -> None:
    chosen = branch([node("Identity", ["x"], ["a"]), node("Identity", ["w"], ["b"])], "a b")
    other = branch([constant("q", X * 3)], "q own")
    other.initializer.append(numpy_helper.from_array(X * 5, "own"))
    inputs = {"c": np.array(choice), "x": X}
    nodes = [node("If", ["c"], ["y", "z"], then_branch=chosen, else_branch=other)]
    agrees(whole(nodes, inputs, ["y", "z"], {"w": X * 7}), inputs)


@pytest.mark.parametrize("is_given", [True, False])
def test_condition_that_is_constant(is_given: bool) -> None:
    """The branch that is not taken may be one that cannot be computed."""
    wrong = branch([node("Reshape", ["w", "n"], ["b"])], "b")
    right = branch([node("Relu", ["x"], ["a"])], "a")
    nodes = [node("If", ["c"], ["y"], then_branch=right, else_branch=wrong)]
    inputs = {"x": X} | ({"c": np.array(True)} if is_given else {})
    constants = {"w": X, "n": np.array([5])} | ({} if is_given else {"c": np.array(True)})
    (found,) = run(whole(nodes, inputs, ["y"], constants), inputs)
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize("choice", [True, False])
def test_text_in_branches(choice: bool) -> None:
    chosen = branch([node("Identity", ["s"], ["a"])], "a", T.STRING)
    other = branch([node("Concat", ["s", "s"], ["b"], axis=0)], "b", T.STRING)
    inputs = {"c": np.array(choice), "s": TEXTS}
    model = whole([node("If", ["c"], ["y"], then_branch=chosen, else_branch=other)], inputs, ["y"])
    agrees(model, inputs, may_lack={"Identity", "Concat"})


# Scans ----------------------------------------------------------------------------------------------------------------


def scan_body(shape: list[int]) -> onnx.GraphProto:
    return helper.make_graph(
        [
            *(node("Add", ["s", "e"], ["s2"]), node("Add", ["e", "f"], ["o"])),
            *(node("Identity", ["s2"], ["t"]), node("Relu", ["e"], ["e2"])),
        ],
        "body",
        [value(name, T.FLOAT, shape) for name in ("s", "e", "f")],
        [value(name, T.FLOAT, shape) for name in ("s2", "o", "t", "e2")],
    )


@pytest.mark.parametrize(
    ("axes", "ways", "out_axes", "out_ways"),
    [
        ([1, -1], [0, 0], [0, 0, 0], [0, 0, 0]),
        ([1, 2], [1, 0], [1, -1, 2], [1, 0, 1]),
        ([-2, -1], [1, 1], [-1, -2, -3], [0, 1, 0]),
    ],
)
def test_scan(axes: list[int], ways: list[int], out_axes: list[int], out_ways: list[int]) -> None:
    random = np.random.default_rng(0)
    y, z = (random.normal(size=shape).astype(np.float32) for shape in ((2, 3, 4), (2, 4, 3)))
    inputs = {"s": y[:, 0], "y": y, "z": z}
    scan = node(
        "Scan",
        ["s", "y", "z"],
        ["a", "b", "c", "d"],
        body=scan_body([2, 4]),
        num_scan_inputs=2,
        scan_input_axes=axes,
        scan_input_directions=ways,
        scan_output_axes=out_axes,
        scan_output_directions=out_ways,
    )
    agrees(whole([scan], inputs, ["a", "b", "c", "d"]), inputs)


def test_scan_of_no_parts() -> None:
    """ONNX Runtime fails here: the state stays, and what is gathered is empty."""
    y = np.zeros((0, 2, 4), np.float32)
    inputs = {"s": np.ones((2, 4), np.float32), "y": y, "z": y}
    scan = node("Scan", ["s", "y", "z"], ["a", "b"], body=scan_body([2, 4]), num_scan_inputs=2)
    state, gathered = run(whole([scan], inputs, ["a", "b"]), inputs)
    assert state.tolist() == inputs["s"].tolist()
    assert gathered.shape == (0, 2, 4)


def test_scan_of_different_counts() -> None:
    inputs = {"s": X, "y": np.zeros((3, 2, 3), np.float32), "z": np.zeros((4, 2, 3), np.float32)}
    scan = node("Scan", ["s", "y", "z"], ["a", "b"], body=scan_body([2, 3]), num_scan_inputs=2)
    with pytest.raises(EngineError, match=r"inputs of \[3, 4\] parts"):
        run(whole([scan], inputs, ["a", "b"]), inputs)


def test_scan_of_opset_8_is_refused() -> None:
    with pytest.raises(EngineError, match="opset 8"):
        run_case("test_scan_sum")
