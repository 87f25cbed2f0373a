"""Ops of old files and of dynamic-shape exports that no stored case holds, against a calculation by hand."""

from typing import Any

import numpy as np
import pytest
from formats.mindir.single_op import run_op

from conftest import assert_close
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.tape import MindirTape
from litehouse.formats.tape import RefusedError

RANDOM = np.random.default_rng(11)
IMAGE = RANDOM.uniform(-3, 3, (2, 3, 4, 6)).astype(np.float32)
M = RANDOM.uniform(-3, 3, (2, 3)).astype(np.float32)


def host(name: str, *operands: Any) -> Any:
    """What an op gives for Python values: no node may be written."""
    tape = MindirTape()
    result = CONVERTERS[name](tape, operands, {})
    assert tape.nodes == []
    return result


def test_dropout_gives_its_input(engine: str) -> None:
    assert_close(run_op("DropoutExt", [M, 0.5, 0, 0], ["float32", None], engine, [2, 2])[0], M)


@pytest.mark.parametrize("shape", [(3, 2), (6,), (1, 2, 3)])
def test_view_as(engine: str, shape: tuple[int, ...]) -> None:
    other = np.zeros(shape, np.float32)
    assert_close(run_op("ViewAs", [M, other], ["float32"], engine, [len(shape)])[0], M.reshape(shape))


@pytest.mark.parametrize("offset", [0, 1, -2])
def test_matrix_diag(engine: str, offset: int) -> None:
    expected = np.stack([np.diag(row, offset) for row in M])
    assert_close(run_op("MatrixDiagV3", [M, offset, -1, -1, 0.0], ["float32"], engine, [3])[0], expected)


def test_old_fill(engine: str) -> None:
    # The operands are a dtype, a shape and a value. An array gives the shape, since a network needs an input.
    shape = np.array([2, 3], np.int64)
    made = run_op("Fill", [43, shape, 2.5], ["float32"], engine, [2], static=True)
    assert_close(made[0], np.full((2, 3), 2.5, np.float32))


@pytest.mark.parametrize("offset", [0, 1, -1])
def test_triu_indices(offset: int) -> None:
    tape = MindirTape()
    from litehouse.formats.mindir.literals import TYPE_IDS, TensorType

    tape.expected = TensorType(TYPE_IDS[34], (2, None))
    value = CONVERTERS["TriuIndices"](tape, [], {"row": 3, "col": 4, "offset": offset})
    np.testing.assert_array_equal(value.const_value.numpy(), np.array(np.triu_indices(3, offset, 4), np.int32))


def test_tuple_to_tensor(engine: str) -> None:
    count = np.array(7, np.int64)
    for name in ("TupleToTensor", "ListToTensor", "TupleToArray"):
        assert_close(run_op(name, [(3, count)], ["int32"], engine, [1])[0], np.array([3, 7], np.int32))


def test_space_to_batch_and_back(engine: str) -> None:
    blocks = np.concatenate([IMAGE[:, :, row::2, column::2] for row in (0, 1) for column in (0, 1)])
    sizes: dict[str, Any] = {"block_size": 2, "paddings": ((0, 0), (0, 0)), "crops": ((0, 0), (0, 0))}
    for name, before, after in (("SpaceToBatch", IMAGE, blocks), ("BatchToSpace", blocks, IMAGE)):
        made = run_op(name, [before], ["float32"], engine, attributes=sizes, static=True, shapes=[after.shape])
        assert_close(made[0], after)


def test_size_and_rank(engine: str) -> None:
    assert run_op("Size", [IMAGE], ["int64"], engine, [0])[0] == IMAGE.size
    tape = MindirTape()
    value = tape.constant(IMAGE)
    assert CONVERTERS["Rank"](tape, [value], {}) == 4


def test_tensor_to_tuple(engine: str) -> None:
    vector = np.array([4, 5, 6], np.int64)
    assert run_op("TensorToTuple", [vector], ["int64"] * 3, engine, [0, 0, 0]) == [4, 5, 6]
    assert host("TensorToList", (4, 5)) == (4, 5)


def test_questions_about_python_values() -> None:
    assert host("InSequence", 2, (1, 2)) is True
    assert host("InSequence", -2, (1, 2)) is False
    assert host("not_in", 3, (1, 2)) is True
    assert host("tuple_equal", (1, 2), (1, 2)) is True
    assert host("tuple_equal", (1, 2), (1, 3)) is False
    assert host("tuple_equal", (1, 2), (1,)) is False
    assert host("is_", None, None) is True
    assert host("is_", True, False) is False
    assert host("is_not", None, 3) is True
    with pytest.raises(RefusedError, match="identity"):
        host("is_", 1, 2)


@pytest.mark.parametrize(("wanted", "inside"), [(4, True), (9, False)])
def test_questions_about_run_time_sizes(engine: str, wanted: int, inside: bool) -> None:
    size = np.array(4, np.int64)
    assert run_op("InSequence", [wanted, (1, size)], ["bool"], engine, [0])[0] == inside
    assert run_op("not_in", [wanted, (1, size)], ["bool"], engine, [0])[0] != inside
    assert run_op("tuple_equal", [(1, wanted), (1, size)], ["bool"], engine, [0])[0] == inside


@pytest.mark.parametrize("truth", [True, False])
def test_identity_of_a_run_time_truth_value(engine: str, truth: bool) -> None:
    value = np.array(truth)
    assert run_op("is_", [True, value], ["bool"], engine, [0])[0] == truth
    assert run_op("is_not", [value, True], ["bool"], engine, [0])[0] != truth


def test_sequences_of_sizes() -> None:
    assert host("SequenceAdd", (1, 2), (3,)) == (1, 2, 3)
    assert host("SequenceMul", (1, 2), 2) == (1, 2, 1, 2)
    assert host("SequenceSlice", (1, 2, 3, 4), 1, 4, 2) == (2, 4)
    assert host("sequence_len", (1, 2, 3)) == 3
