"""Steps that run as one: which are captured, when, for which sizes, and that no run sees anything of another.

On the CPU the same code decides what would be captured on a GPU: steps run again, over memory that stays.
"""

import gc
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from engines.torch.against_runtime import Arrays, whole
from formats.onnx_runs import direct
from onnx import TensorProto as T
from onnx import helper

from litehouse import EngineError, Options, read
from litehouse.engines.torch import pieces
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.graphs import CaptureError
from onnx_models import model

torch = pytest.importorskip("torch")

node = helper.make_node
value = helper.make_tensor_value_info


def rows(count: int, more: float = 0.0) -> np.ndarray:
    """Numbers of both signs, and other ones for each count."""
    return np.arange(count * 3, dtype=np.float32).reshape(count, 3) - count + np.float32(more)


def bound(data: bytes) -> Any:
    """A runner of a model, as the file has it."""
    return TorchEngine().compile(read(data), Options(engine="torch", cache=False), is_plain=True).bind()


CHAIN = [node("Relu", ["x"], ["a"]), node("Add", ["a", "x"], ["y"])]


def chain() -> Any:
    """relu(x) + x, for any count of rows."""
    return bound(whole(CHAIN, {"x": rows(1)}, ["y"]))


def check_chain(runner: Any, count: int) -> None:
    x = rows(count)
    np.testing.assert_array_equal(runner.run([x])[0], np.maximum(x, 0) + x)


# When -----------------------------------------------------------------------------------------------------------------


def test_sizes_are_captured_when_they_come_again(captured: list[str]) -> None:
    runner, counts = chain(), []
    for count in (2, 2, 2, 3, 2, 3, 3):
        check_chain(runner, count)
        counts.append(len(captured))
    assert counts == [0, 1, 1, 1, 1, 2, 2]
    assert captured == ["Relu Add"] * 2


def test_sizes_that_are_fixed_are_captured_at_once(captured: list[str]) -> None:
    runner = bound(model(CHAIN, {"x": [2, 3]}, {"y": None}))
    for _ in range(3):
        check_chain(runner, 2)
        assert captured == ["Relu Add"]


def test_sizes_that_a_session_was_resized_to_are_captured_at_once(captured: list[str]) -> None:
    options = Options(engine="torch", cache=False)
    read_model = read(whole(CHAIN, {"x": rows(1)}, ["y"]))
    check_chain(TorchEngine().compile(read_model, options, [[5, 3]]).bind(), 5)
    assert captured == ["Relu Add"]


def test_the_piece_that_was_not_used_for_the_longest_time_makes_room(
    captured: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "MIN_SEEN_FULL", 1)
    runner, most = chain(), pieces.MAX_CAPTURES
    for count in range(1, most + 1):
        check_chain(runner, count)
        check_chain(runner, count)
    assert len(captured) == most
    check_chain(runner, 1)  # from now on, 2 is the oldest
    check_chain(runner, most + 1)
    check_chain(runner, most + 1)
    assert len(captured) == most + 1
    for count in (1, *range(3, most + 2)):
        check_chain(runner, count)
    assert len(captured) == most + 1  # they are all still there
    check_chain(runner, 2)
    assert len(captured) == most + 1
    check_chain(runner, 2)
    assert len(captured) == most + 2
    assert len(runner._parts[0]._captures) == most


def test_more_sizes_in_turn_than_there_is_room_for_run_step_by_step(captured: list[str]) -> None:
    runner, most = chain(), pieces.MAX_CAPTURES
    for _ in range(10):
        for count in range(1, most + 4):
            check_chain(runner, count)
    assert len(captured) == most
    for _ in range(pieces.MIN_SEEN_FULL):  # what comes often is captured all the same
        check_chain(runner, most + 1)
    assert len(captured) == most + 1


def test_sizes_that_were_seen_long_ago_are_new_again(captured: list[str]) -> None:
    runner = chain()
    for count in range(1, pieces.MAX_SEEN + 2):
        check_chain(runner, count)
    check_chain(runner, 2)
    assert len(captured) == 1  # it was remembered
    check_chain(runner, 1)
    assert len(captured) == 1  # it was not
    check_chain(runner, 1)
    assert len(captured) == 2


def test_sizes_that_are_too_large_to_be_captured_run_step_by_step(
    monkeypatch: pytest.MonkeyPatch, captured: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    record, tries = pieces.Capture.record, []

    def short(self: Any, *rest: Any, **options: Any) -> Any:
        if self.inputs[0].shape[0] > 2:
            tries.append(self)
            raise EngineError("Add: no room") from torch.OutOfMemoryError("CUDA out of memory")
        return record(self, *rest, **options)

    monkeypatch.setattr(pieces.Capture, "record", short)
    runner = chain()
    for count in (2, 2, 3, 3, 3, 2, 3):
        check_chain(runner, count)
    assert captured == ["Relu Add"]
    assert len(tries) == 1
    assert caplog.messages == ["sizes are not captured, and their steps run one by one: Add: no room"]


@pytest.mark.parametrize("failures", [1, pieces.MAX_TRIES, pieces.MAX_TRIES + 1])
def test_captures_that_fail(failures: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """What somebody else does may be why, so that it is tried again, but not for ever."""
    record, tries = pieces.Capture.record, []

    def fail(self: Any, *rest: Any, **options: Any) -> Any:
        tries.append(self)
        if len(tries) <= failures:
            raise CaptureError("an op waits for the GPU")
        return record(self, *rest, **options)

    monkeypatch.setattr(pieces.Capture, "record", fail)
    runner = chain()
    monkeypatch.setattr(runner, "_find_shortcut", lambda _: None)
    for _ in range(2 * pieces.MAX_TRIES + 4):
        check_chain(runner, 2)
    (piece,) = runner._parts
    assert len(tries) == min(failures + 1, pieces.MAX_TRIES)
    assert (piece.latest is not None) == (failures < pieces.MAX_TRIES)
    told = "sizes are not captured, and their steps run one by one: an op waits for the GPU"
    assert caplog.messages == [told] * min(failures, pieces.MAX_TRIES)
    assert all(type(kept) is str for record in caplog.records for kept in record.args)  # errors have tensors


def test_one_step_is_no_piece(captured: list[str]) -> None:
    runner = bound(model(CHAIN[:1], {"x": [2, 3]}, {"a": None}))
    for more in range(3):
        np.testing.assert_array_equal(runner.run([rows(2, more)])[0], np.maximum(rows(2, more), 0))
    assert captured == []


def test_memory_in_another_order_is_captured_by_itself(captured: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    runner = chain()
    monkeypatch.setattr(runner, "_find_shortcut", lambda _: None)  # which copies it into its own order
    plain = torch.from_numpy(rows(3))
    for given in (plain, plain.t(), plain, plain.t(), plain.t(), plain[:, :1].expand(3, 3), plain):
        (found,) = runner.run_tensors([given])
        assert torch.equal(found, given.relu() + given)
    assert len(captured) == 2


def test_each_runner_has_captures_of_its_own(captured: list[str]) -> None:
    program = TorchEngine().compile(
        read(model(CHAIN, {"x": [2, 3]}, {"y": None})), Options(engine="torch", cache=False)
    )
    one, two = program.bind(), program.bind()
    first = one.run_tensors([torch.from_numpy(rows(2))])[0]
    check_chain(two, 2)
    assert torch.equal(first, torch.from_numpy(np.maximum(rows(2), 0) + rows(2)))
    assert len(captured) == 2


# Around steps that wait -----------------------------------------------------------------------------------------------


def branch(op: str) -> onnx.GraphProto:
    return helper.make_graph([node(op, ["r"], ["out"])], "branch", [], [value("out", T.FLOAT, None)])


BEFORE = [node("Add", ["x", "one"], ["m"]), node("Relu", ["m"], ["r"])]
BEHIND = [node("Neg", ["w"], ["n"]), node("Mul", ["n", "n"], ["y"])]
BOXES = np.float32([[[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]]])
WAITING: dict[str, tuple[list[onnx.NodeProto], Arrays]] = {
    "NonZero": ([node("NonZero", ["r"], ["z"]), node("Cast", ["z"], ["w"], to=T.FLOAT)], {}),
    "NonMaxSuppression": (
        [
            *(
                node("Unsqueeze", ["r", "zero"], ["s"]),
                node("NonMaxSuppression", ["boxes", "s", "many", "half"], ["z"]),
            ),
            node("Cast", ["z"], ["w"], to=T.FLOAT),
        ],
        {"zero": np.array([0]), "boxes": BOXES, "many": np.array([2]), "half": np.float32([0.5])},
    ),
    "If": (
        [
            *(node("ReduceSum", ["x"], ["s"], keepdims=0), node("Greater", ["s", "one"], ["c"])),
            node("If", ["c"], ["w"], then_branch=branch("Neg"), else_branch=branch("Sigmoid")),
        ],
        {},
    ),
    "CDist": ([node("CDist", ["r", "r"], ["w"], domain="com.microsoft")], {}),
    "Tile": (
        [
            *(node("ReduceMax", ["r"], ["s"], keepdims=0), node("Cast", ["s"], ["k"], to=T.INT64)),
            *(node("Reshape", ["k", "minus"], ["k1"]), node("Concat", ["k1", "minus2"], ["k2"], axis=0)),
            node("Tile", ["r", "k2"], ["w"]),
        ],
        {"minus": np.array([-1]), "minus2": np.array([1])},
    ),
}


@pytest.mark.parametrize("is_fixed", [True, False])
@pytest.mark.parametrize("op", WAITING)
def test_pieces_around_what_waits(op: str, is_fixed: bool, captured: list[str]) -> None:
    """The truth is ONNX Runtime's."""
    middle, constants = WAITING[op]
    nodes, constants = [*BEFORE, *middle, *BEHIND], {"one": np.float32(1)} | constants
    data = whole(nodes, {"x": rows(2)}, ["y", "r"], constants)
    if is_fixed:
        proto = onnx.ModelProto.FromString(data)
        for axis, size in zip(proto.graph.input[0].type.tensor_type.shape.dim, (2, 3), strict=True):
            axis.dim_value = size
        data = proto.SerializeToString()
    runner = bound(data)
    for more in (0, 0, 1, 4, 1, -3, 1, 0):
        x = rows(2, more)
        for actual, expected in zip(runner.run([x]), direct(data, {"x": x}), strict=True):
            np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert any(each.startswith("Add Relu") for each in captured)
    assert any(each.endswith("Neg Mul") for each in captured)
    assert not any(op in each.split() for each in captured)


def test_a_piece_depends_on_what_it_takes_itself(captured: list[str]) -> None:
    """Not on the sizes of the network's inputs, where a step between them decides on others."""
    nodes = [node("Compress", ["x", "c"], ["k"], axis=0), node("Relu", ["k"], ["a"]), node("Add", ["a", "k"], ["y"])]
    runner = bound(whole(nodes, {"x": rows(1), "c": np.array([True])}, ["y"]))
    for count in (2, 3, 4, 5, 6):
        x, chosen = rows(count), np.arange(count) < 2
        np.testing.assert_array_equal(runner.run([x, chosen])[0], (np.maximum(x, 0) + x)[chosen])
    assert captured == ["Relu Add"]
    for count in (2, 3, 4):
        x = rows(count)
        np.testing.assert_array_equal(runner.run([x, np.ones(count, bool)])[0], np.maximum(x, 0) + x)
    assert captured == ["Relu Add"]  # each of them has come once; two rows, before


def test_numbers_that_a_piece_knows_beforehand_are_part_of_what_it_depends_on(captured: list[str]) -> None:
    """What an op that torch lacks has computed is on the CPU; an equal size is not enough."""
    nodes = [
        *(node("TfIdfVectorizer", ["t"], ["f"], **COUNTS), node("Cast", ["f"], ["n"], to=T.INT64)),
        *(node("Reshape", ["x", "n"], ["v"]), node("Neg", ["v"], ["y"])),
    ]
    x = np.arange(6, dtype=np.float32)
    runner = bound(whole(nodes, {"t": np.array([7]), "x": x}, ["y"]))
    for rows_, columns in ((2, 3), (2, 3), (2, 3), (3, 2), (3, 2), (6, 1), (2, 3), (3, 2)):
        (found,) = runner.run([np.array([7] * rows_ + [8] * columns), x])
        np.testing.assert_array_equal(found, -x.reshape(rows_, columns))
    assert not any("TfIdf" in each for each in captured)


def test_numbers_that_two_steps_wait_for_are_read_in_each_run() -> None:
    """The second one finds them on the CPU already, but must not be captured with them. The truth is numpy's."""
    nodes = [
        *(node("Slice", ["y", "zero", "k"], ["a"]), node("Relu", ["y"], ["p"]), node("Neg", ["p"], ["q"])),
        *(node("Slice", ["q", "zero", "k"], ["s"]), node("Add", ["s", "s"], ["b"])),
    ]
    taken = [node("ReduceSum", ["x"], ["n"], keepdims=1), node("Cast", ["n"], ["k"], to=T.INT64)]
    y = np.arange(10, dtype=np.float32)
    for before, name in (([], "k"), (taken, "x")):
        example = np.array([1]) if name == "k" else np.float32([1])
        runner = bound(whole([*before, *nodes], {name: example, "y": y}, ["a", "b"], {"zero": np.array([0])}))
        for count in (2, 2, 2, 1, 6, 0, 2):
            a, b = runner.run([np.full_like(example, count), y - count])
            np.testing.assert_array_equal(a, (y - count)[:count])
            np.testing.assert_array_equal(b, -2 * np.maximum(y - count, 0)[:count])


def test_known_numbers_that_are_on_the_device_too_are_not_taken_for_those_of_another_run() -> None:
    """The loop waits, and takes the count of rows to the device; the steps behind it see no other size."""
    body = helper.make_graph(
        [
            *(node("Add", ["s", "n"], ["s2"]), node("Less", ["s2", "most"], ["c2"])),
            node("Squeeze", ["c2"], ["c3"]),
        ],
        "body",
        [value("i", T.INT64, []), value("c", T.BOOL, []), value("s", T.INT64, [1])],
        [value("c3", T.BOOL, []), value("s2", T.INT64, [1])],
    )
    nodes = [
        *(node("Shape", ["x"], ["n"], end=1), node("Loop", ["", "", "start"], ["total"], body=body)),
        *(node("Expand", ["v", "n"], ["e"]), node("Neg", ["e"], ["y"])),
    ]
    inputs = {"x": rows(2), "start": np.array([0]), "most": np.array([5]), "v": np.float32([1])}
    runner = bound(whole(nodes, inputs, ["y", "total"]))
    for count in (2, 2, 2, 3, 3, 1):
        found, total = runner.run([rows(count), np.array([0]), np.array([5]), np.float32([count])])
        np.testing.assert_array_equal(found, np.full(count, -count, np.float32))
        assert total.tolist() == [-(-5 // count) * count]


def test_what_is_computed_elsewhere_is_no_part_of_what_a_piece_depends_on(captured: list[str]) -> None:
    """Else each run of other numbers would be captured anew."""
    nodes = [
        *(node("CDist", ["x", "x"], ["d"], domain="com.microsoft"), node("Neg", ["d"], ["n"])),
        node("Mul", ["n", "n"], ["y"]),
    ]
    data = whole(nodes, {"x": rows(2)}, ["y"])
    runner = bound(data)
    for more in range(4):
        x = rows(2) * (more + 1)
        np.testing.assert_allclose(runner.run([x])[0], direct(data, {"x": x})[0], rtol=1e-6)
    assert captured == ["Neg Mul"]


COUNTS: dict[str, Any] = {
    "mode": "TF",
    "min_gram_length": 1,
    "max_gram_length": 1,
    "max_skip_count": 0,
    "ngram_counts": [0],
    "ngram_indexes": [0, 1],
    "pool_int64s": [7, 8],
}


def test_known_numbers_that_a_piece_uses_itself_stay_known(captured: list[str]) -> None:
    """The steps behind the one that waits need not wait for the count of rows, which the first ones compute with."""
    nodes = [
        *(node("Shape", ["x"], ["n"], end=1), node("Add", ["n", "k"], ["m"]), node("Neg", ["m"], ["o"])),
        *(node("NonZero", ["x"], ["z"]), node("Expand", ["v", "n"], ["e"]), node("Neg", ["e"], ["y"])),
    ]
    runner = bound(whole(nodes, {"x": rows(2), "k": np.array([1]), "v": np.float32([1])}, ["y", "o", "z"]))
    for count in (2, 2, 2, 3, 3, 3):
        found, more, _ = runner.run([rows(count), np.array([5]), np.float32([count])])
        assert found.tolist() == [-count] * count
        assert more.tolist() == [-5 - count]
    assert set(captured) == {"Shape Add Neg", "Expand Neg"}


@pytest.mark.parametrize("kind", [T.BFLOAT16, T.FLOAT16, T.BOOL, T.UINT64])
def test_known_numbers_of_any_type(kind: int, captured: list[str]) -> None:
    """They follow from the sizes, and are used behind a step that waits."""
    numpy_kind = np.dtype(ml_dtypes.bfloat16) if kind == T.BFLOAT16 else helper.tensor_dtype_to_np_dtype(kind)
    nodes = [
        *(node("Shape", ["x"], ["n"]), node("Cast", ["n"], ["g"], to=kind), node("NonZero", ["x"], ["z"])),
        *(node("Cast", ["g"], ["i"], to=T.FLOAT), node("Add", ["i", "x"], ["a"]), node("Neg", ["a"], ["y"])),
        node("Shape", ["z"], ["m"]),
    ]
    runner = bound(whole(nodes, {"x": rows(1)}, ["y", "m"]))
    for count in (2, 2, 2, 5, 5):
        x = rows(count)[:, :2]
        found, _ = runner.run([x.copy()])
        sizes = np.array([count, 2]).astype(numpy_kind).astype(np.float32)
        np.testing.assert_array_equal(found, -(sizes + x))
    assert any("Add" in each for each in captured)


def test_sequences_between_pieces(captured: list[str]) -> None:
    nodes = [
        *(node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"]), node("SequenceConstruct", ["a", "b"], ["s"])),
        *(node("NonZero", ["a"], ["z"]), node("SequenceInsert", ["s", "x"], ["t"])),
        *(node("ConcatFromSequence", ["t"], ["c"], axis=0), node("Abs", ["c"], ["y"]), node("Shape", ["z"], ["n"])),
    ]
    for is_fixed in (True, False):
        data = model(nodes, {"x": [2, 3]}, {"y": None}) if is_fixed else whole(nodes, {"x": rows(2)}, ["y", "n"])
        runner = bound(data)
        for more in (0, 3, 0, -1, 5):
            x = rows(2, more)
            found = runner.run([x])
            np.testing.assert_array_equal(found[0], np.abs(np.concatenate([np.maximum(x, 0), -x, x])))
            assert is_fixed or found[1].tolist() == [2, np.count_nonzero(x > 0)]
    assert not any("NonZero" in each for each in captured)


# What is left of a run ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("takes_tensors", [True, False])
def test_later_runs_do_not_touch_what_was_given(takes_tensors: bool) -> None:
    """Not the outputs of earlier ones, and not their inputs; views and constants are among them."""
    nodes = [
        *(node("Relu", ["x"], ["a"]), node("Add", ["a", "w"], ["y"]), node("Reshape", ["x", "flat"], ["v"])),
        *(node("Transpose", ["y"], ["t"]), node("Identity", ["w"], ["k"]), node("Split", ["y"], ["p", "q"], axis=0)),
    ]
    w = np.float32([10, 20, 30])
    shapes = dict.fromkeys(("y", "v", "t", "k", "p", "q")) | {"x": [2, 3]}
    runner = bound(model(nodes, {"x": [2, 3]}, shapes, {"w": w, "flat": np.array([-1])}, opset=13))
    given = [rows(2, more) for more in range(4)]
    inputs = [x.copy() for x in given]
    if takes_tensors:
        results = [runner.run_tensors([torch.from_numpy(x)]) for x in inputs]
    else:
        results = [runner.run([x]) for x in inputs]
    for x, unchanged, found in zip(inputs, given, results, strict=True):
        np.testing.assert_array_equal(x, unchanged)
        y = np.maximum(x, 0) + w
        expected = [y, x.reshape(-1), y.T, w, y[:1], y[1:], x]
        for actual, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(np.asarray(actual), wanted)


def test_what_is_written_into_a_result_is_not_seen_by_later_runs() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "w"], ["y"]), node("Identity", ["w"], ["k"])]
    w = np.float32([10, 20, 30])
    runner = bound(model(nodes, {"x": [2, 3]}, {"y": None, "k": None}, {"w": w}))
    for more in range(4):
        tensors = runner.run_tensors([torch.from_numpy(rows(2, more))])
        for tensor, expected in zip(tensors, (np.maximum(rows(2, more), 0) + w, w), strict=True):
            np.testing.assert_array_equal(tensor.numpy(), expected)
            tensor.fill_(99)


def test_what_follows_from_sizes_is_computed_once_for_each(captured: list[str]) -> None:
    nodes = [
        *(
            node("Shape", ["x"], ["n"]),
            node("Gather", ["n", "zero"], ["m"]),
            node("Concat", ["m", "six"], ["k"], axis=0),
        ),
        *(node("Relu", ["x"], ["a"]), node("Expand", ["a", "k"], ["e"]), node("Neg", ["e"], ["y"])),
    ]
    data = whole(nodes, {"x": np.ones((2, 1), np.float32)}, ["y"], {"zero": np.array([0]), "six": np.array([6])})
    program = TorchEngine().compile(read(data), Options(engine="torch", cache=False), is_plain=True)
    calls = dict.fromkeys(("Gather", "Concat", "Relu"), 0)

    def counting(op: str, function: Any) -> Any:
        def counted(*arguments: Any) -> Any:
            calls[op] += 1
            return function(*arguments)

        return counted

    for step in program.lowered.block.steps:
        if step.op in calls:
            step.function = counting(step.op, step.function)
    runner, seen = program.bind(), []
    for count in (2, 2, 2, 2, 3, 3, 3, 2):
        x = np.arange(count, dtype=np.float32).reshape(count, 1)
        np.testing.assert_array_equal(runner.run([x])[0], -np.broadcast_to(x, (count, 6)))
        seen.append(calls["Concat"])
    # One run step by step, one to note them; then never again.
    assert seen == [1, 2, 2, 2, 3, 4, 4, 4]
    assert calls["Gather"] == calls["Concat"]
    assert calls["Relu"] > 8  # which depends on data
    assert len(captured) == 2


def test_an_error_leaves_the_runner_usable() -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("MatMul", ["a", "w"], ["y"]), node("Neg", ["y"], ["z"])]
    runner = bound(whole(nodes, {"x": rows(1)}, ["z"], {"w": np.eye(3, dtype=np.float32)}))
    for _ in range(3):
        np.testing.assert_array_equal(runner.run([rows(2)])[0], -np.maximum(rows(2), 0))
        with pytest.raises(EngineError, match="MatMul"):
            runner.run([np.ones((2, 4), np.float32)])


def test_what_a_piece_does_not_use_is_not_kept_for_it(captured: list[str]) -> None:
    """Else what was captured would keep a caller's tensors."""
    nodes = [node("Expand", ["x", "c"], ["k"]), node("Neg", ["k"], ["n"]), node("Add", ["n", "n"], ["s"])]
    shape = np.array([2, 3, 3])
    data = whole([*nodes, node("Expand", ["x", "c"], ["y"])], {"x": rows(3), "c": shape}, ["s", "y"])
    runner, x = bound(data), torch.from_numpy(rows(3).copy())
    held = weakref.ref(x)
    for _ in range(3):
        found, _ = runner.run_tensors([x, torch.from_numpy(shape)])
        np.testing.assert_array_equal(found.numpy(), np.broadcast_to(-2 * rows(3), shape))
    assert captured == ["Neg Add"]
    del x
    gc.collect()
    assert held() is None
