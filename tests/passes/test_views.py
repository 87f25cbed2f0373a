"""Where the elements of a value are in what it rearranges, against the values that ONNX Runtime computes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from litehouse.passes.views import view_of
from onnx_models import model, node
from pass_checks import read, run

Step = tuple[str, tuple[int, ...]]


def written(shape: tuple[int, ...], steps: list[Step]) -> bytes:
    """A model that rearranges its input step by step."""
    nodes, weights = [], {}
    for index, (kind, numbers) in enumerate(steps):
        x, y = (f"v{index}" if index else "x"), f"v{index + 1}"
        weights |= {f"n{index}{place}": np.array([number]) for place, number in enumerate(numbers)}
        if kind == "Transpose":
            nodes.append(node(kind, x, y, perm=numbers))
        elif kind == "Reshape":
            weights[f"s{index}"] = np.array(numbers)
            nodes.append(node(kind, f"{x} s{index}", y))
        elif kind == "Gather":
            weights[f"i{index}"] = np.array(numbers[1])
            nodes.append(node(kind, f"{x} i{index}", y, axis=numbers[0]))
        elif kind == "Split":
            nodes.append(node(kind, x, f"{y}a {y}", axis=numbers[0], num_outputs=2))
        else:
            nodes.append(node(kind, f"{x} n{index}1 n{index}2 n{index}0", y))
    nodes.append(node("Relu", f"v{len(steps)}", "y"))
    taken = {name for each in nodes for name in each.input}
    used = {name: each for name, each in weights.items() if name in taken}
    return model(nodes, {"x": list(shape)}, {"y": None}, used)


@st.composite
def rearrangements(draw: st.DrawFn) -> tuple[tuple[int, ...], list[Step]]:
    """A shape, and steps that fit it."""
    first = shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=2, max_size=4)))
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.sampled_from(["Transpose", "Reshape", "Gather", "Split", "Slice"]))
        axis = draw(st.integers(0, len(shape) - 1))
        size = shape[axis]
        if kind == "Transpose":
            order = tuple(draw(st.permutations(range(len(shape)))))
            shape, numbers = tuple(shape[each] for each in order), order
        elif kind == "Reshape":
            count = math.prod(shape)
            head = draw(st.sampled_from([each for each in range(1, count + 1) if count % each == 0]))
            rest = count // head
            second = draw(st.sampled_from([each for each in range(1, rest + 1) if rest % each == 0]))
            shape = numbers = (head, second, rest // second)
        elif kind == "Gather" and len(shape) > 1:
            numbers = (axis, draw(st.integers(-size, size - 1)))
            shape = shape[:axis] + shape[axis + 1 :]
        elif kind == "Split" and size % 2 == 0:
            numbers = (axis,)
            shape = (*shape[:axis], size // 2, *shape[axis + 1 :])
        elif kind == "Slice":
            start = draw(st.integers(0, size - 1))
            stop = draw(st.integers(start + 1, size))
            numbers = (axis, start if draw(st.booleans()) else start - size, stop)
            shape = (*shape[:axis], stop - start, *shape[axis + 1 :])
        else:
            continue
        steps.append((kind, numbers))
    return first, steps


@settings(max_examples=150, deadline=None)
@given(rearrangements())
def test_elements_are_where_the_view_says(case: tuple[tuple[int, ...], list[Step]]) -> None:
    shape, steps = case
    if not steps:
        return
    graph = read(written(shape, steps))
    x = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    last = graph.graph[-1].inputs[0]
    assert last is not None
    view = view_of(last)
    assert view is not None
    source = x if view.source.name == "x" else None
    if source is None:
        assert "Reshape" in {kind for kind, _ in steps}  # the one step that may have to copy
        return
    (expected,) = run(graph, {"x": x})
    places = view.start + sum(
        np.arange(size).reshape((-1,) + (1,) * (len(view.axes) - 1 - axis)) * step
        for axis, (size, step) in enumerate(view.axes)
    )
    np.testing.assert_array_equal(source.reshape(-1)[np.broadcast_to(places, expected.shape)], expected)


@pytest.mark.parametrize(
    ("steps", "is_view"),
    [
        ([("Transpose", (0, 2, 1)), ("Reshape", (2, 3, 2, 2))], True),
        ([("Transpose", (0, 2, 1)), ("Reshape", (2, 12))], False),
        ([("Slice", (2, 1, 3)), ("Reshape", (2, 4, 2, 1))], True),
        ([("Slice", (1, 1, 3)), ("Reshape", (2, 6))], True),
        ([("Slice", (1, 1, 3)), ("Reshape", (4, 3))], False),
    ],
)
def test_which_reshapes_copy(steps: list[Step], is_view: bool) -> None:
    view = view_of(read(written((2, 4, 3), steps)).graph[-1].inputs[0])
    assert view is not None
    assert (view.source.name == "x") == is_view


def test_an_unknown_shape_has_no_view() -> None:
    graph = read(written((2, 4, 3), [("Transpose", (0, 2, 1))]))
    value = graph.graph[-1].inputs[0]
    assert value is not None
    value.shape = None
    assert view_of(value) is None
