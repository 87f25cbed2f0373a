"""LiteNetwork: loading, running, names, shapes and types. What is expected was seen on 1.13.0."""

import io
import json
from ctypes import ArgumentError
from pathlib import Path

import numpy as np
import pytest
from facades.megenginelite.support import MODELS, ROW, arrays, counted, feed, load, path, run, score

import litehouse
from conftest import assert_close
from megenginelite import (
    LiteDataType,
    LiteLayout,
    LiteNetwork,
    LiteTensorPhase,
    get_model_io_info,
)

MODEL_NAMES = sorted(file.stem for file in MODELS.glob("*.npz"))


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_results_are_the_originals(name):
    network = load(name)
    inputs, outputs = arrays(name)
    feed(network, inputs or {"data": np.ones((1, 3, 224, 224), np.float32)})
    results = run(network)
    assert list(results) == list(outputs)
    for key, expected in outputs.items():
        # The API has no type for truth values.
        assert_close(results[key], expected.view(np.uint8) if expected.dtype == bool else expected, f"{name} {key}")


@pytest.mark.parametrize("name", ["order_2", "order_5", "order_14", "order_30"])
def test_inputs_come_in_the_originals_order(name):
    expected = json.loads((MODELS / "order.json").read_text())[name]
    network = load(name)
    assert network.get_all_input_name() == expected
    assert [network.get_input_name(index) for index in range(len(expected))] == expected
    assert [item.name for item in get_model_io_info(path(name)).inputs] == expected


def test_load_from_an_open_file():
    network = LiteNetwork()
    with open(path("tiny"), "rb") as file:
        network.load(file)
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)


def test_load_from_a_path_object():
    network = LiteNetwork()
    network.load(Path(path("tiny")))
    assert network.get_all_input_name() == ["data"]


@pytest.mark.parametrize("file", [io.BytesIO(b"x"), b"tiny.mge", None])
def test_load_of_something_else(file):
    with pytest.raises(AssertionError, match="file must be BufferedReader when open!!"):
        LiteNetwork().load(file)


def test_load_of_files_that_are_none(tmp_path):
    with pytest.raises(FileNotFoundError):
        LiteNetwork().load("nope.mge")
    with pytest.raises(IsADirectoryError):
        LiteNetwork().load(str(tmp_path))
    whole = Path(path("tiny")).read_bytes()
    for content in (b"", b"abc", b"x" * 100, whole[:300], b"packed_model"):
        (tmp_path / "broken.mge").write_bytes(content)
        network = LiteNetwork()
        with pytest.raises(RuntimeError, match=r"^Error: invalid model format(.|\n)*, Error Code: 1$") as caught:
            network.load(str(tmp_path / "broken.mge"))
        assert isinstance(caught.value.__cause__, litehouse.ModelFormatError)
        assert network.get_all_input_name() is None


def test_load_of_another_kind_of_model():
    model = MODELS.parent / "mindir" / "ops" / "act_relu.mindir"
    with pytest.raises(RuntimeError, match=r"invalid model format: .* is a file of kind mindir; litehouse\.load opens"):
        LiteNetwork().load(str(model))


def test_second_load_replaces_the_first():  # it changes nothing in the original
    network = load("tiny")
    network.load(path("many"))
    assert network.get_all_output_name() == ["total", "difference", "picked"]
    with pytest.raises(RuntimeError, match="tensor name must be data"):
        network.get_io_tensor("data")


def test_failed_load_leaves_the_first(tmp_path):
    network = load("tiny")
    (tmp_path / "broken.mge").write_bytes(b"x" * 100)
    with pytest.raises(RuntimeError):
        network.load(str(tmp_path / "broken.mge"))
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda network: network.forward(), "forward should be used after model loaded."),
        (lambda network: network.wait(), "wait should be used after model loaded."),
        (lambda network: network.get_io_tensor("data"), "get_io_tensor should be used after model loaded."),
        (lambda network: network.get_discrete_tensor("data", 0), "get_io_tensor should be used after model loaded."),
        (lambda network: network.get_input_name(0), "The input tensor index is large than the total inputs number."),
        (lambda network: network.get_output_name(0), "The output tensor index is large than the total outputs number."),
        (
            lambda network: network.set_network_algo_workspace_limit(1),
            "set_network_algo_policy should be used after model loaded.",
        ),
        (
            lambda network: network.dump_layout_transform_model("x.mge"),
            "dump_layout_transform_model should be used after model loaded.",
        ),
        (
            lambda network: network.share_weights_with(LiteNetwork()),
            "shared_weight_with_network should be used after the src network loaded.",
        ),
        (
            lambda network: network.get_static_memory_alloc_info(),
            "Doesn't support get_static_memory_alloc_info().Please check macro.",
        ),
    ],
)
def test_what_needs_a_model(use, text):
    with pytest.raises(RuntimeError) as caught:
        use(LiteNetwork())
    assert str(caught.value) == f"Error: {text}, Error Code: 1"


def test_tensors_before_the_first_run():
    network = load("shrink")
    layout = network.get_io_tensor("data").layout
    assert (layout.shapes, layout.ndim, layout.data_type) == ([6], 1, LiteDataType.LITE_FLOAT)
    assert network.get_io_tensor("double").layout.shapes == [6]
    assert network.get_io_tensor("kept").layout.ndim == 0  # its size depends on the data
    assert network.get_io_tensor("kept").to_numpy().size == 0
    assert run(network)["double"].tolist() == [0] * 6


def test_outputs_whose_size_depends_on_the_data():
    network = load("shrink")
    kept = network.get_io_tensor("kept")
    for data, expected in (
        ([1, -1, 2, -3, 4, 5], [1, 2, 4, 5]),
        ([-1, -1, -2, -3, -4, 5], [5]),
        ([-1, -1, -2, -3, -4, -5], []),
        ([1, 1, 2, 3, 4, 5], [1, 1, 2, 3, 4, 5]),
    ):
        feed(network, {"data": np.array(data, np.float32)})
        run(network)
        assert (kept.to_numpy().tolist(), kept.layout.shapes) == (expected, [len(expected)])


def test_shapes_can_change():
    network = load()
    for rows in (3, 1, 0, 2, 3):
        feed(network, {"data": counted(rows, 4)})
        np.testing.assert_allclose(run(network)["score"], score(counted(rows, 4)), rtol=1e-6)


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (counted(3, 5), "cannot take the shapes [[3, 5]]"),
        (counted(3, 4, 1), "cannot take the shapes [[3, 4, 1]]"),
        (counted(1, 4, dtype="int32"), "dtype mismatch: get=Int32 expect=Float32"),
    ],
)
def test_wrong_inputs_leave_the_network_usable(array, text):
    network = load()
    feed(network, {"data": array})
    with pytest.raises(RuntimeError) as caught:
        network.forward()
    assert text in str(caught.value)
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)


def test_input_without_layout():
    network = load()
    network.get_io_tensor("data").layout = LiteLayout()
    with pytest.raises(RuntimeError, match="the tensor data has no layout"):
        network.forward()


def test_default_values_of_the_file(monkeypatch):
    model = litehouse.read(path("tiny"))
    model.defaults["data"] = ROW + 3
    monkeypatch.setattr(litehouse, "read", lambda *_, **__: model)
    np.testing.assert_allclose(run(load())["score"], score(ROW + 3), rtol=1e-6)


def test_names():
    network = load("many")
    assert network.get_all_input_name() == ["index", "right", "left"]
    assert network.get_all_output_name() == ["total", "difference", "picked"]
    assert (network.get_input_name(0), network.get_output_name(2)) == ("index", "picked")
    for index in (3, -1):
        with pytest.raises(RuntimeError, match="The input tensor index is large than the total inputs number"):
            network.get_input_name(index)
        with pytest.raises(RuntimeError, match="The output tensor index is large than the total outputs number"):
            network.get_output_name(index)
    with pytest.raises(ArgumentError, match="wrong type"):
        network.get_input_name("a")


def test_phases():
    network = load("many")
    assert network.get_io_tensor("left", LiteTensorPhase.LITE_INPUT) is network.get_io_tensor(b"left")
    assert network.get_io_tensor("total", LiteTensorPhase.LITE_OUTPUT) is network.get_io_tensor("total")
    for name, phase in (("left", 2), ("total", 1), ("nope", 0), ("left", 9), ("", 0)):
        with pytest.raises(RuntimeError, match=f"tensor name must be {name} input tensor name or the registered"):
            network.get_io_tensor(name, phase)
