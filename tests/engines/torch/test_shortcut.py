"""The shortest ways through a model that was captured whole: arrays by memory that stays, tensors where they are.

Truth is numpy's.
"""

from typing import Any

import numpy as np
import pytest
from engines.torch.test_forms import needs_compiler
from onnx import TensorProto as T
from onnx import helper

import litehouse
from litehouse import EngineError, Options, read
from litehouse.engines.torch import pieces, shortcut
from litehouse.engines.torch.captures import Capture
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.graphs import CaptureError
from onnx_models import model, node

torch = pytest.importorskip("torch")

SQUARE = model([node("Relu", "x", "a"), node("Sub", "a x", "y")], {"x": [4, 4]}, {"y": [4, 4]})


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What each recording was made for: the capture itself, arrays, or the places of tensors."""
    made, record = list[str](), Capture.record

    def noted(self: Capture, tensors: Any = None, **rest: Any) -> Any:
        made.append("places" if tensors else "arrays" if rest else "own")
        return record(self, tensors or {}, **rest)

    monkeypatch.setattr(Capture, "record", noted)
    return made


def runner_of(data: bytes, form: str = "") -> Any:
    made = read(data)
    return TorchEngine().compile(made, Options(engine="torch", cache=False), is_plain=True, form=form).bind()


def numbers(seed: int, shape: tuple[int, ...] = (4, 4)) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype("f")


def truth(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0) - x


def aligned(array: np.ndarray) -> Any:
    """A tensor whose memory is where kernels like it, with room behind it."""
    room = torch.zeros(array.size + 32)
    start = -(room.data_ptr() // 4) % 16
    tensor = room[start : start + array.size].view(array.shape)
    return tensor.copy_(torch.from_numpy(array))


def test_what_comes_again_is_read_where_it_is(recorded: list[str]) -> None:
    runner, given = runner_of(SQUARE), aligned(numbers(0))
    for seed in range(6):
        given.copy_(torch.from_numpy(numbers(seed)))
        (found,) = runner.run_tensors([given])
        np.testing.assert_array_equal(found.numpy(), truth(numbers(seed)))
    assert recorded == ["own", "places"]
    other = aligned(numbers(9))  # somewhere else
    np.testing.assert_array_equal(runner.run_tensors([other])[0].numpy(), truth(numbers(9)))
    np.testing.assert_array_equal(runner.run_tensors([given])[0].numpy(), truth(numbers(5)))


def test_outputs_are_the_callers(recorded: list[str]) -> None:
    runner, given = runner_of(SQUARE), aligned(numbers(0))
    held = []
    for seed in range(6):
        given.copy_(torch.from_numpy(numbers(seed)))
        held += runner.run_tensors([given])
        given.zero_()
    for seed, found in enumerate(held):
        np.testing.assert_array_equal(found.numpy(), truth(numbers(seed)))
    assert recorded[-1] == "places"


OTHERS = {
    "turned": lambda base: base.t(),
    "one row for all": lambda base: base[:1].expand(4, 4),
    "with another sign": lambda base: torch.complex(torch.zeros(4, 4), base).conj().imag,
}


@pytest.mark.parametrize("case", OTHERS)
def test_the_same_place_in_another_order(case: str, recorded: list[str]) -> None:
    runner, base = runner_of(SQUARE), aligned(numbers(1))
    for _ in range(5):
        for given in (base, OTHERS[case](base)):
            (found,) = runner.run_tensors([given])
            np.testing.assert_array_equal(found.numpy(), truth(given.resolve_neg().numpy()))
    assert recorded.count("places") == 1


def test_negated_memory_is_not_taken_for_itself() -> None:
    """Torch may remember that numbers have another sign, without changing them."""
    session = litehouse.load(SQUARE, engine="torch", cache=False)
    pair = torch.complex(torch.zeros(4, 4), torch.from_numpy(numbers(2)))
    for _ in range(5):
        for given in (pair.imag, pair.conj().imag):
            (found,) = session.run([given])
            np.testing.assert_array_equal(np.asarray(found), truth(given.resolve_neg().numpy()))


MOVES = {
    "other data": lambda tensor: setattr(tensor, "data", torch.zeros(4, 4)),
    "other memory": lambda tensor: tensor.set_(torch.zeros(4, 4)),
    "another order": lambda tensor: tensor.t_(),
    "another size": lambda tensor: tensor.resize_(2, 2),
}


@pytest.mark.parametrize("case", MOVES)
def test_a_tensor_that_was_read_where_it_is_moves_on(case: str) -> None:
    nodes = [node("Relu", "x", "a"), node("Sub", "a x", "y"), node("Identity", "x", "same")]
    runner = runner_of(model(nodes, {"x": [4, 4]}, {"y": [4, 4], "same": [4, 4]}))
    given, x = aligned(numbers(1)), numbers(1)
    there = given.view(4, 4)
    for _ in range(5):
        runner.run_tensors([given])
    MOVES[case](given)
    for found, expected in zip(runner.run_tensors([there]), (truth(x), x), strict=True):
        np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("place", [1, 4])
def test_memory_between_the_places_that_kernels_like_is_copied(recorded: list[str], place: int) -> None:
    runner, room = runner_of(SQUARE), aligned(numbers(0, (2, 16)))
    given = room.view(-1)[place : place + 16].view(4, 4)
    for _ in range(5):
        (found,) = runner.run_tensors([given])
        np.testing.assert_array_equal(found.numpy(), truth(given.numpy()))
    assert recorded == ["own"]


def test_only_so_many_places_are_kept(recorded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "MAX_BOUND", 2)
    monkeypatch.setattr(shortcut, "MAX_PLACES", 8)
    runner, held = runner_of(SQUARE), [aligned(numbers(seed)) for seed in range(4)]
    for _ in range(4):
        for seed, given in enumerate(held):
            np.testing.assert_array_equal(runner.run_tensors([given])[0].numpy(), truth(numbers(seed)))
    assert recorded == ["own", "places", "places"]


def test_places_that_never_come_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "MAX_PLACES", 4)
    runner, held = runner_of(SQUARE), [aligned(numbers(seed)) for seed in range(12)]
    for given in held:
        runner.run_tensors([given])
        (way,) = runner._shortcuts.values()
        assert len(way._times) <= 4


@pytest.mark.parametrize("form", ["", pytest.param("compiled", marks=needs_compiler)])
def test_arrays_and_tensors_in_turn(form: str, recorded: list[str]) -> None:
    nodes = [node("MatMul", "x w", "m"), node("Add", "m b", "n"), node("Relu", "n", "y"), node("Neg", "n", "z")]
    w = numbers(7, (4, 3))
    data = model(nodes, {"x": [2, 4], "b": [3]}, {"y": [2, 3], "z": [2, 3]}, {"w": w})
    runner = runner_of(data, form)
    places = [aligned(numbers(0, (2, 4))), aligned(numbers(0, (3,)))]
    for seed in range(8):
        x, b = numbers(seed, (2, 4)), numbers(100 + seed, (3,))
        expected = [np.maximum(x @ w + b, 0), -(x @ w + b)]
        for place, array in zip(places, (x, b), strict=True):
            place.copy_(torch.from_numpy(array))
        for found in (runner.run([x, b]), [each.numpy() for each in runner.run_tensors(places)]):
            for actual, wanted in zip(found, expected, strict=True):
                np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6)
    assert sorted(recorded) == ["arrays", "own", "places"]


def test_arrays_that_were_given_stay_as_they_are() -> None:
    runner = runner_of(SQUARE)
    held = [runner.run([numbers(seed)])[0] for seed in range(4)]
    for seed, found in enumerate(held):
        np.testing.assert_array_equal(found, truth(numbers(seed)))


def test_large_arrays_go_another_way(recorded: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortcut, "MAX_STAGED", 8)
    runner = runner_of(SQUARE)
    for seed in range(4):
        np.testing.assert_array_equal(runner.run([numbers(seed)])[0], truth(numbers(seed)))
    assert recorded == ["own"]


def gather() -> bytes:
    takes = [helper.make_tensor_value_info("i", T.INT64, [2]), helper.make_tensor_value_info("x", T.FLOAT, [4, 4])]
    nodes = [node("Gather", "x i", "g"), node("Neg", "g", "y")]
    graph = helper.make_graph(nodes, "test", takes, [helper.make_tensor_value_info("y", T.FLOAT, [2, 4])])
    data: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]).SerializeToString()
    return data


def test_a_wrong_index_is_told_on_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")
    session = litehouse.load(gather(), engine="torch", device="gpu", cache=False)
    x, right, wrong = numbers(3), np.int64([1, 3]), np.int64([1, 4])
    for _ in range(3):
        np.testing.assert_array_equal(session.run([right, x])[0], -x[[1, 3]])
        with pytest.raises(EngineError, match=r"Gather.*4"):
            session.run([wrong, x])
    place = torch.zeros(8, dtype=torch.int64)
    place = place[(-(place.data_ptr() // 8)) % 2 :][:2]
    held = aligned(x)
    for _ in range(5):
        place.copy_(torch.from_numpy(right))
        np.testing.assert_array_equal(session.run([place, held])[0].numpy(), -x[[1, 3]])
        place.copy_(torch.from_numpy(wrong))
        assert torch.isnan(session.run([place, held])[0]).all()


def test_a_way_for_arrays_is_made_with_the_arrays_that_come() -> None:
    """On the CPU, steps run when they are captured: what memory holds before is no index."""
    runner, x = runner_of(gather()), numbers(3)
    torch.use_deterministic_algorithms(True)  # new memory holds the greatest numbers
    try:
        for index in ([1, 3], [0, 2], [1, 4], [2, 2], [3, 0]):
            if max(index) == 4:
                with pytest.raises(EngineError, match=r"Gather.*4"):
                    runner.run([np.int64(index), x])
            else:
                np.testing.assert_array_equal(runner.run([np.int64(index), x])[0], -x[index])
    finally:
        torch.use_deterministic_algorithms(False)


def test_live_weights_change_on_every_way() -> None:
    w = numbers(8)
    data = model([node("MatMul", "x w", "m"), node("Relu", "m", "y")], {"x": [4, 4]}, {"y": [4, 4]}, {"w": w})
    session = litehouse.load(data, engine="torch", updatable=["w"], updatable_mode="in_place", cache=False)
    place = aligned(numbers(0))
    for turn in range(6):
        w = numbers(20 + turn)
        session.update_weights({"w": w})
        x = place.numpy().copy()
        for found in (session.run([x])[0], session.run([place])[0].numpy()):
            np.testing.assert_allclose(found, np.maximum(x @ w, 0), rtol=1e-5, atol=1e-6)


def test_sizes_that_come_in_turn_keep_their_ways(recorded: list[str]) -> None:
    runner = runner_of(model([node("Relu", "x", "a"), node("Sub", "a x", "y")], {"x": ["n", 4]}, {"y": ["n", 4]}))
    for seed in range(12):
        for count in (1, 2, 3):
            x = numbers(seed, (count, 4))
            np.testing.assert_array_equal(runner.run([x])[0], truth(x))
    assert sorted(recorded) == ["arrays"] * 3 + ["own"] * 3


def test_ways_go_with_what_was_captured_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "MAX_CAPTURES", 2)
    runner = runner_of(model([node("Relu", "x", "a"), node("Sub", "a x", "y")], {"x": ["n", 4]}, {"y": ["n", 4]}))
    for count in (1, 2, 1, 3, 1, 4, 1):
        for seed in range(4):
            x = numbers(seed, (count, 4))
            np.testing.assert_array_equal(runner.run([x])[0], truth(x))
        assert len(runner._shortcuts) <= 2
        assert ((1, 4),) in runner._shortcuts  # the one that is used most is not the one that makes room


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int16", "int32", "int64"])
def test_nobody_takes_the_result_of_a_wrong_run_for_right(dtype: str) -> None:
    result = torch.arange(3).to(getattr(torch, dtype))
    right, wrong = (torch.tensor([False]), ["a"]), (torch.tensor([False, True]), ["b", "c"])
    for flags in ([], [right], [right, right]):
        found = shortcut.unless_wrong(result, flags)
        assert found.equal(result)
        assert found.data_ptr() != result.data_ptr()
    for flags in ([wrong], [right, wrong]):
        found = shortcut.unless_wrong(result, flags)
        assert found.dtype == result.dtype
        spoilt = torch.isnan(found) if found.is_floating_point() else found == torch.iinfo(found.dtype).min
        assert spoilt.all()


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("no"), CaptureError("no")])
def test_without_the_short_ways(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no memory for them, or they cannot be captured."""
    runner, given, record, tries = runner_of(SQUARE), aligned(numbers(1)), Capture.record, []

    def short(self: Capture, tensors: Any = None, **rest: Any) -> Any:
        if tensors or rest:
            tries.append(self)
            raise error
        return record(self)

    monkeypatch.setattr(Capture, "record", short)
    for _ in range(5):
        np.testing.assert_array_equal(runner.run_tensors([given])[0].numpy(), truth(numbers(1)))
        np.testing.assert_array_equal(runner.run([numbers(2)])[0], truth(numbers(2)))
    assert len(tries) == 1
