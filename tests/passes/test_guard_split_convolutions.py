"""OpenVINO joins convolutions of parts of an image without a look at the parts: the defect, and that users are safe."""

import numpy as np
import onnx
import onnx.reference
import openvino
import pytest

import litehouse
from conftest import assert_close
from onnx_models import model, node
from pass_checks import drawn, ops, read

X = [1, 10, 4, 4]
WEIGHTS = {
    **{name: drawn(4, 5, 1, 1) for name in "uvw"},
    **{name: np.array([number]) for name, number in {"zero": 0, "five": 5, "ten": 10, "one": 1}.items()},
    "bias": drawn(4),
    "sizes": np.array([5, 5]),
}
SPLIT = node("Split", "x sizes", "a b", axis=1)
SLICES = [node("Slice", "x zero five one", "a"), node("Slice", "x five ten one", "b")]


def joined(first: str, second: str, axis: int = 1) -> list[onnx.NodeProto]:
    """A convolution of two parts each, and the results side by side."""
    return [node("Conv", f"{first} u", "c"), node("Conv", f"{second} v", "d"), node("Concat", "c d", "y", axis=axis)]


CASES = {
    "one part twice": [SPLIT, *joined("b", "b")],
    "the other order": [SPLIT, *joined("b", "a")],
    "another axis": [SPLIT, *joined("a", "b", 2)],
    "slices": [*SLICES, *joined("b", "b"), node("Relu", "a", "unused")],
    "passed on": [SPLIT, node("Identity", "b", "i"), *joined("b", "i")],
    "more than there are": [
        SPLIT,
        *joined("a", "a")[:2],
        node("Conv", "b w", "e"),
        node("Concat", "c d e", "y", axis=1),
    ],
    "in order": [SPLIT, *joined("a", "b")],
    "the whole image": [node("Slice", "x zero five one", "a"), *joined("a", "a")],
}


def written(case: str) -> bytes:
    taken = {name for each in CASES[case] for name in each.input}
    return model(CASES[case], {"x": X}, {"y": None}, {name: each for name, each in WEIGHTS.items() if name in taken})


def by_hand(case: str, x: np.ndarray) -> np.ndarray:
    result: np.ndarray = onnx.reference.ReferenceEvaluator(written(case)).run(None, {"x": x})[0]  # type: ignore[index]
    return result


@pytest.mark.openvino
def test_the_defect_is_there() -> None:
    """If this fails, OpenVINO has mended it, and the pass can go."""
    core, x = openvino.Core(), drawn(*X)
    actual = core.compile_model(core.read_model(written("one part twice")), "CPU")([x])[0]
    assert not np.allclose(actual, by_hand("one part twice", x), atol=1e-2)


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_are_right(engine: str, case: str) -> None:
    x = drawn(*X)
    assert_close(litehouse.load(written(case), engine=engine).run([x])[0], by_hand(case, x))


def test_convolutions_in_order_are_left_alone() -> None:
    assert "Max" not in ops(read(written("in order")))
    assert ops(read(written("the other order"))).count("Max") == 1
