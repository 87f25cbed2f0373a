"""OpenVINO drops the Abs of a computed constant: the defect, and that users are safe from it."""

import numpy as np
import openvino
import pytest

import litehouse
from conftest import ENGINES
from onnx_models import model, node

SHIFTED = [node("Sub", "k three", "s"), node("Abs", "s", "a"), node("Mul", "a x", "y")]
BY_SHAPE = [node("Shape", "x", "n"), node("Cast", "n", "f", to=1), node("Sub", "f nine", "s"), node("Abs", "s", "a")]
WEIGHTS = {"k": np.arange(7, dtype="f"), "three": np.float32(3), "nine": np.array([9], "f")}
ONES = np.ones(7, "f")


def _model(nodes: list, names: str) -> bytes:
    return model(nodes, {"x": [7]}, {"y": [7]}, {name: WEIGHTS[name] for name in names.split()})


@pytest.mark.openvino
def test_the_defect_is_there() -> None:
    """If this fails, OpenVINO has mended it, and the pass can go."""
    compiled = openvino.Core().compile_model(openvino.Core().read_model(_model(SHIFTED, "k three"), b""), "CPU")
    np.testing.assert_array_equal(compiled([ONES])[0], np.arange(7) - 3)


@pytest.mark.parametrize("name", ENGINES)
def test_users_are_safe_from_it(name: str) -> None:
    session = litehouse.load(_model(SHIFTED, "k three"), engine=name)
    np.testing.assert_array_equal(session.run([ONES])[0], np.abs(np.arange(7) - 3))


@pytest.mark.parametrize("name", ENGINES)
def test_numbers_from_shapes_are_safe(name: str) -> None:
    session = litehouse.load(_model([*BY_SHAPE, node("Mul", "a x", "y")], "nine"), engine=name)
    np.testing.assert_array_equal(session.run([ONES])[0], 2 * ONES)


def test_what_depends_on_inputs_is_left_alone() -> None:
    read = litehouse.read(_model([node("Abs", "x", "a"), node("Mul", "a k", "y")], "k"))
    assert [each.op_type for each in read.graph.graph] == ["Abs", "Mul"]


@pytest.mark.openvino
def test_an_output_keeps_its_name() -> None:
    read = litehouse.read(
        _model([node("Mul", "x k", "y"), node("Sub", "k three", "s"), node("Abs", "s", "z")], "k three")
    )
    assert [value.name for value in read.graph.graph.outputs] == ["y"]
    both = model(
        [node("Sub", "k three", "s"), node("Abs", "s", "z"), node("Mul", "x k", "y")],
        {"x": [7]},
        {"y": [7], "z": [7]},
        {name: WEIGHTS[name] for name in ("k", "three")},
    )
    session = litehouse.load(both, engine="openvino")
    np.testing.assert_array_equal(session.run([ONES])[1], np.abs(np.arange(7) - 3))
    assert [info.name for info in session.outputs] == ["y", "z"]
