"""`Model.resize`: checks in the order of the original, shapes that change, and failures that change nothing."""

import numpy as np
import pytest
from facades.mindspore_lite.support import ADD, DYNAMIC, RELU

from mindspore_lite import Model, Tensor

INT = "<class 'int'>"
NONE = "<class 'NoneType'>"


def tensor():
    return Tensor()


REFUSED = [  # the order was seen on 2.0.0; lists or tuples, and these words for them, are master's
    (None, None, TypeError, f"inputs must be list or tuple of Lite Tensor, but got {NONE}."),
    ([1], None, TypeError, f"dims must be list or tuple of shape, but got {NONE}."),
    ([1], [1], TypeError, f"inputs element must be Tensor, but got {INT} at index 0."),
    ([tensor(), 1], [], TypeError, f"inputs element must be Tensor, but got {INT} at index 1."),
    ([tensor()], [1], TypeError, f"dims element must be list or tuple of int, but got {INT} at index 0."),
    ([tensor()], ["ab"], TypeError, "dims element must be list or tuple of int, but got <class 'str'> at index 0."),
    (
        [tensor(), tensor()],
        [[2, 1.0]],
        TypeError,
        "dims element's element must be int, but got <class 'float'> at 0th dims element's 1th element.",
    ),
    (
        [tensor()],
        [[np.int64(2)]],
        TypeError,
        "dims element's element must be int, but got <class 'numpy.int64'> at 0th dims element's 0th element.",
    ),
    ([tensor()], [], ValueError, "inputs' size does not match dims' size, but got inputs: 1 and dims: 0."),
]


@pytest.mark.parametrize(("inputs", "dims", "error", "text"), REFUSED)
def test_refused_arguments(inputs, dims, error, text):
    with pytest.raises(error) as caught:
        Model().resize(inputs, dims)
    assert str(caught.value) == text


def test_not_built():  # seen on 2.0.0
    with pytest.raises(RuntimeError, match=r"^resize failed! Error is Common error code"):
        Model().resize([Tensor()], [[1]])


def run(model, shape):
    array = np.linspace(-1, 1, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    (output,) = model.predict([array])
    np.testing.assert_allclose(output.get_data_to_numpy(), np.maximum(array, 0))


@pytest.mark.parametrize("kind", [list, tuple])
def test_new_shape(kind):
    model = RELU.build()
    inputs = model.get_inputs()
    assert model.resize(kind(inputs), kind([kind([4, 5])])) is None
    assert inputs[0].shape == [4, 5]
    assert model.get_inputs()[0].shape == [4, 5]
    assert model.get_outputs()[0].shape == [4, 5]
    assert model.get_model_info("input_shape") == "x:[4,5]"
    run(model, (4, 5))
    with pytest.raises(RuntimeError, match="data size not equal"):
        model.predict([np.zeros((3, 5), np.float32)])


def test_there_and_back():
    model = RELU.build()
    for rows in (3, 7, 1, 7, 3):
        model.resize(model.get_inputs(), [[rows, 5]])
        run(model, (rows, 5))


def test_true_is_one():  # seen on 2.0.0
    model = RELU.build()
    model.resize(model.get_inputs(), [[True, 5]])
    assert model.get_inputs()[0].shape == [1, 5]


def test_dynamic_model():
    model = DYNAMIC.build()
    inputs = model.get_inputs()
    model.resize(inputs, [[2, 3, 5]])
    inputs[0].set_data_from_numpy(DYNAMIC.inputs[0])
    DYNAMIC.check(model.predict(inputs))


def test_handle_with_data_keeps_its_shape():  # seen on 2.0.0
    model = RELU.build()
    inputs = model.get_inputs()
    inputs[0].set_data_from_numpy(RELU.inputs[0])
    model.resize(inputs, [[4, 5]])
    assert inputs[0].shape == [3, 5]
    with pytest.raises(RuntimeError, match=r"^predict failed!"):
        model.predict(inputs)
    assert model.get_inputs()[0].shape == [4, 5]


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ([[3, -1]], "Invalid input param by user."),  # seen on 2.0.0
        ([[0, 5]], "Invalid input param by user."),  # seen on 2.0.0
        ([[3, 5, 1]], ""),
    ],
)
def test_failure_keeps_the_shape(dims, text):
    model = RELU.build()
    inputs = model.get_inputs()
    model.resize(inputs, [[4, 5]])
    with pytest.raises(RuntimeError, match=f"^resize failed! Error is {text}"):
        model.resize(inputs, dims)
    assert inputs[0].shape == model.get_inputs()[0].shape == [4, 5]
    run(model, (4, 5))


def test_impossible_shape():
    model = ADD.build()
    inputs = model.get_inputs()
    with pytest.raises(RuntimeError, match=r"^resize failed! Error is ") as caught:
        model.resize(inputs, [[2, 4, 5], [3, 1]])
    assert caught.value.__cause__ is not None
    assert [tensor.shape for tensor in inputs] == [[2, 3, 5], [3, 1]]
    ADD.check(model.predict(ADD.inputs))


def test_wrong_count():  # seen on 2.0.0
    model = RELU.build()
    with pytest.raises(RuntimeError, match=r"^resize failed! Error is Invalid input param by user\."):
        model.resize([], [])
