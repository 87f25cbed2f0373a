import numpy as np
import onnx
import pytest
from engines.torch.against import agrees, numbers, on_torch

from onnx_models import model

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OUTPUTS = {"LSTM": 3, "GRU": 2, "RNN": 2}
TIMES, BATCH, WIDTH, SIZE = 6, 3, 5, 4
LENGTHS = np.array([6, 1, 4], np.int32)


def inputs_of(op, directions, *, biased=True, lengths=None, started=False, peeps=False):
    gates = GATES[op] * SIZE
    inputs = [numbers(TIMES, BATCH, WIDTH), numbers(directions, gates, WIDTH, seed=1)]
    inputs += [numbers(directions, gates, SIZE, seed=2), numbers(directions, 2 * gates, seed=3) if biased else None]
    inputs += [lengths, numbers(directions, BATCH, SIZE, seed=4) if started else None]
    if op == "LSTM":
        inputs += [numbers(directions, BATCH, SIZE, seed=5) if started else None]
        inputs += [numbers(directions, 3 * SIZE, seed=6) if peeps else None]
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def check(op, direction="forward", opset=14, attributes=None, **inputs):
    made = inputs_of(op, 2 if direction == "bidirectional" else 1, **inputs)
    settings = {"hidden_size": SIZE, "direction": direction, **(attributes or {})}
    agrees(op, made, opset=opset, outputs=OUTPUTS[op], **settings)


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_directions(op, direction, opset):
    check(op, direction, opset)
    check(op, direction, opset, biased=False)
    check(op, direction, opset, started=True)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_lengths(op, direction):
    check(op, direction, lengths=LENGTHS)
    check(op, direction, lengths=LENGTHS, started=True)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_lengths_of_nothing(op, direction):
    check(op, direction, lengths=np.array([6, 0, 4], np.int32), started=True)


@pytest.mark.parametrize("op", GATES)
def test_clip(op):
    check(op, attributes={"clip": 0.3})


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("linear", [0, 1])
def test_reset(linear, direction):
    check("GRU", direction, attributes={"linear_before_reset": linear}, started=True)
    check("GRU", direction, attributes={"linear_before_reset": linear, "clip": 0.5}, lengths=LENGTHS)
    check("GRU", direction, attributes={"linear_before_reset": linear}, biased=False)


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_peepholes(direction):
    check("LSTM", direction, peeps=True)
    check("LSTM", direction, peeps=True, started=True, lengths=LENGTHS, attributes={"clip": 0.5})


def test_coupled_gates():
    check("LSTM", attributes={"input_forget": 1})
    check("LSTM", attributes={"input_forget": 1}, peeps=True)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("Relu", {}),
        ("Tanh", {}),
        ("Sigmoid", {}),
        ("Softsign", {}),
        ("Softplus", {}),
        ("Elu", {}),
        ("Elu", {"activation_alpha": [0.7]}),
        ("LeakyRelu", {}),
        ("LeakyRelu", {"activation_alpha": [0.3]}),
        ("ThresholdedRelu", {"activation_alpha": [0.3]}),
        ("HardSigmoid", {}),
        ("HardSigmoid", {"activation_alpha": [0.3], "activation_beta": [0.4]}),
        ("ScaledTanh", {"activation_alpha": [0.7], "activation_beta": [1.4]}),
        ("Affine", {"activation_alpha": [0.2], "activation_beta": [0.1]}),
    ],
)
def test_activations(name, numbers):
    check("RNN", attributes={"activations": [name], **numbers})


@pytest.mark.parametrize("name", ["ThresholdedRelu", "ScaledTanh", "Affine"])
def test_activations_without_numbers(name):
    made = inputs_of("RNN", 1)
    agrees("RNN", made, outputs=2, lacks=True, hidden_size=SIZE, activations=[name])


def test_numbers_of_several_activations():
    """Only those that have an alpha take one."""
    names = ["Sigmoid", "LeakyRelu", "ScaledTanh", "HardSigmoid", "Tanh", "Elu"]
    attributes = {"activations": names, "activation_alpha": [0.2, 0.7, 0.3, 0.6], "activation_beta": [1.2, 0.4]}
    check("LSTM", "bidirectional", attributes=attributes)
    attributes = {"activations": ["Sigmoid", "Relu", "HardSigmoid", "Tanh"], "activation_alpha": [0.3]}
    check("GRU", "bidirectional", attributes=attributes)


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("op", GATES)
def test_layout(op, direction):
    """ONNX Runtime has none but the first; the other is the same with its axes exchanged."""
    made = inputs_of(op, 2 if direction == "bidirectional" else 1, lengths=LENGTHS, started=True)
    settings = {"hidden_size": SIZE, "direction": direction}
    y, *ends = agrees(op, made, outputs=OUTPUTS[op], **settings)
    names = ["x", "w", "r", "b", "lengths", "h", "c"][: len(made)]
    swapped = [array.swapaxes(0, 1).copy() if name in "xhc" else array for name, array in zip(names, made, strict=True)]
    results = ["y", "y_h", "y_c"][: OUTPUTS[op]]
    node = onnx.helper.make_node(op, names, results, layout=1, **settings)
    weights = dict(zip(names, swapped, strict=True))
    source = model([node], {"x": weights.pop("x").shape}, dict.fromkeys(results), weights)
    found = on_torch(source, [swapped[0]])
    for actual, wanted in zip(found, [y.transpose(2, 0, 1, 3), *(end.swapaxes(0, 1) for end in ends)], strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_some_outputs():
    made = inputs_of("LSTM", 1)
    agrees("LSTM", made, outputs=1, hidden_size=SIZE)
    agrees("GRU", inputs_of("GRU", 1), outputs=1, hidden_size=SIZE)


def test_no_steps():
    made = inputs_of("GRU", 1, started=True)
    node = onnx.helper.make_node("GRU", ["x", "w", "r", "b", "", "h"], ["y", "y_h"], hidden_size=SIZE)
    weights = dict(zip("wrb", made[1:4], strict=True)) | {"h": made[5]}
    source = model([node], {"x": [0, BATCH, WIDTH]}, {"y": None, "y_h": None}, weights)
    y, h = on_torch(source, [made[0][:0]])
    assert y.shape == (0, 1, BATCH, SIZE)
    np.testing.assert_array_equal(h, made[5])


def test_no_sequences():
    """ONNX Runtime ends the process."""
    node = onnx.helper.make_node("LSTM", ["x", "w", "r"], ["y", "y_h", "y_c"], hidden_size=SIZE)
    weights = dict(zip("wr", inputs_of("LSTM", 1)[1:3], strict=True))
    source = model([node], {"x": [TIMES, "n", WIDTH]}, {"y": None, "y_h": None, "y_c": None}, weights)
    shapes = [found.shape for found in on_torch(source, [numbers(TIMES, 0, WIDTH)])]
    assert shapes == [(TIMES, 1, 0, SIZE), (1, 0, SIZE), (1, 0, SIZE)]
