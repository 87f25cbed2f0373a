"""LiteNetwork: settings, declared inputs and outputs, what networks share. What is expected was seen on 1.13.0."""

from concurrent.futures import ThreadPoolExecutor
from ctypes import ArgumentError
from pathlib import Path

import numpy as np
import pytest
from facades.megenginelite.support import ROW, arrays, counted, feed, load, path, run, score

from conftest import assert_close
from megenginelite import (
    LiteAlgoSelectStrategy,
    LiteConfig,
    LiteDeviceType,
    LiteExtraConfig,
    LiteIO,
    LiteIOType,
    LiteLayout,
    LiteNetwork,
    LiteNetworkIO,
    get_model_io_info,
)


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda network: setattr(network, "device_id", 1), "set_device_id should be used before model loaded."),
        (lambda network: setattr(network, "stream_id", 1), "set_stream_id should be used before model loaded."),
        (
            lambda network: setattr(network, "threads_number", 1),
            "set_cpu_threads_number should be used before model loaded.",
        ),
        (
            lambda network: network.enable_cpu_inplace_mode(),
            "set_cpu_inplace_mode should be used before model loaded.",
        ),
        (lambda network: network.use_tensorrt(), "use_tensorrt should be used before model loaded."),
        (
            lambda network: network.enable_global_layout_transform(),
            "enable_global_layout_transform should be used before model loaded.",
        ),
        (
            lambda network: network.extra_configure(LiteExtraConfig()),
            "disable_configure_by_model_info should be configured before model loaded.",
        ),
        (
            lambda network: network.share_runtime_memroy(LiteNetwork()),
            "share_runtime_memory_with should be used before model loaded.",
        ),
        (
            lambda network: network.dump_layout_transform_model("x.mge"),
            "dump layout transform model should call enable_global_layout_transform before",
        ),
    ],
)
def test_what_must_come_before_a_model(use, text):
    with pytest.raises(RuntimeError) as caught:
        use(load())
    assert str(caught.value) == f"Error: {text}, Error Code: 1"


def test_settings():
    network = LiteNetwork()
    assert (network.device_id, network.stream_id, network.threads_number) == (0, 0, 1)
    assert network.is_cpu_inplace_mode() is False
    network.device_id, network.stream_id, network.threads_number = 1, 2, 2
    network.enable_cpu_inplace_mode()
    network.use_tensorrt()
    network.load(path("tiny"))
    assert (network.device_id, network.stream_id, network.threads_number) == (1, 2, 2)
    assert network.is_cpu_inplace_mode() is True
    assert network._loaded.session.options.threads == 2
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)


def test_settings_of_wrong_types():
    network = LiteNetwork()
    for name in ("device_id", "stream_id", "threads_number"):
        for value in ("a", 1.5):
            with pytest.raises(ArgumentError, match="argument 2: TypeError: wrong type"):
                setattr(network, name, value)
    network.threads_number = 0
    assert network.threads_number == 1
    with pytest.raises(RuntimeError, match="threads_number must not be negative"):
        network.threads_number = -1
    with pytest.raises(ArgumentError, match="expected LiteConfig instance instead of int"):
        LiteNetwork(3)
    with pytest.raises(ArgumentError, match="expected LiteExtraConfig instance instead of int"):
        network.extra_configure(3)
    with pytest.raises(AssertionError):
        network.share_weights_with(3)
    with pytest.raises(AssertionError):
        network.share_runtime_memroy(3)


def test_config_and_io_are_kept_and_copied():
    config, ios = LiteConfig(), LiteNetworkIO()
    network = LiteNetwork(config, ios)
    assert network.config is config
    assert network.network_io is ios
    assert repr(network) == repr({"config": config, "IOs": ios})
    config.options.const_shape = 1
    ios.add_output("picked")
    network.load(path("many"))
    assert network.get_all_output_name() == ["total", "difference", "picked"]
    network = LiteNetwork(config)
    network.load(path("tiny"))
    feed(network, {"data": counted(2, 4)})
    with pytest.raises(RuntimeError, match=r"disallowed shape change: \{1,4\} vs \{2,4\}"):
        network.forward()


@pytest.mark.parametrize(
    ("device", "text"),
    [
        (LiteDeviceType.LITE_CUDA, "request gpu0 out of valid range [0, 0)"),
        (LiteDeviceType.LITE_NPU, "lite unsupported compnode type: enum value: 4."),
        (LiteDeviceType.LITE_CAMBRICON, "cambricon disabled at compile time"),
    ],
)
def test_other_devices_are_refused_at_load(device, text):
    network = LiteNetwork(LiteConfig(device))
    with pytest.raises(RuntimeError) as caught:
        network.load(path("tiny"))
    assert str(caught.value) == f"Error: {text}, Error Code: 1"


def test_default_device_is_the_cpu():
    network = load("tiny", LiteConfig(LiteDeviceType.LITE_DEVICE_DEFAULT))
    assert network.get_io_tensor("data").device_type == LiteDeviceType.LITE_CPU


def test_declared_outputs_come_first():
    ios = LiteNetworkIO([["nope"]], [["picked", True, LiteIOType.LITE_IO_SHAPE], ["zilch"], ["picked"]])
    network = load("many", None, ios)
    assert network.get_all_output_name() == ["picked", "total", "difference"]
    inputs, outputs = arrays("many")
    feed(network, inputs)
    results = run(network)
    for name, expected in outputs.items():
        assert_close(results[name], expected, name)


def test_declared_layouts_of_inputs():
    ios = LiteNetworkIO([LiteIO("data", layout=LiteLayout([5, 4]))])
    network = load("tiny", None, ios)
    assert network.get_io_tensor("data").layout.shapes == [5, 4]
    assert run(network)["score"].tolist() == [[1, 2, 3]] * 5
    network = load("tiny", None, LiteNetworkIO([LiteIO("data", layout=LiteLayout([1, 4], "int8"))]))
    with pytest.raises(RuntimeError, match="dtype mismatch: get=Int8 expect=Float32"):
        network.forward()


def test_discrete_input():
    config = LiteConfig()
    config.discrete_input_name = b"left"
    for batch in (2, 3):  # the original crashes with another batch than the file's
        network = load("many", config, LiteNetworkIO([LiteIO("left", layout=LiteLayout([batch, 4]))]))
        pieces = [network.get_discrete_tensor("left", index) for index in range(batch)]
        assert [piece.layout.shapes for piece in pieces] == [[1, 4]] * batch
        for index, piece in enumerate(pieces):
            piece.set_data_by_copy(ROW + 10 * index)
        feed(network, {"right": counted(batch, 4), "index": np.zeros(batch, np.int32)})
        left = np.concatenate([ROW + 10 * index for index in range(batch)])
        np.testing.assert_array_equal(run(network)["total"], left + counted(batch, 4))
        array = ROW + 100
        pieces[0].set_data_by_share(array)
        array += 1
        np.testing.assert_array_equal(run(network)["total"][0], ROW[0] + 101 + ROW[0])
        with pytest.raises(RuntimeError, match=f"n_idx should be less than {batch}"):
            network.get_discrete_tensor("left", batch)
        pieces[1].set_data_by_copy(counted(1, 3))
        with pytest.raises(RuntimeError, match="the pieces of 'left' do not fit together"):
            network.forward()


def test_input_that_is_not_discrete():
    for network in (load("many"), load("tiny")):
        with pytest.raises(RuntimeError, match=r"tensor name must be left input tensor name\."):
            network.get_discrete_tensor("left", 0)


def test_weights_are_shared():
    first, second = load(), LiteNetwork()
    second.enable_cpu_inplace_mode()
    second.share_weights_with(first)
    assert second._loaded.model.weights is first._loaded.model.weights
    feed(second, {"data": counted(2, 4)})
    np.testing.assert_allclose(run(second)["score"], score(counted(2, 4)), rtol=1e-6)
    assert first.get_io_tensor("data").layout.shapes == [1, 4]
    del first
    np.testing.assert_allclose(run(second)["score"], score(counted(2, 4)), rtol=1e-6)
    other = load("many")
    other.share_weights_with(second)
    assert other.get_all_input_name() == ["data"]


def test_runtime_memory_is_accepted():
    network = LiteNetwork()
    network.share_runtime_memroy(load())
    network.share_runtime_memory_with(load())
    network.load(path("tiny"))
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)


def test_algorithms_are_chosen_before_the_first_run():
    network = LiteNetwork()
    network.set_network_algo_policy(LiteAlgoSelectStrategy.LITE_ALGO_HEURISTIC)
    network.load(path("tiny"))
    policy = LiteAlgoSelectStrategy.LITE_ALGO_PROFILE | LiteAlgoSelectStrategy.LITE_ALGO_REPRODUCIBLE
    network.set_network_algo_policy(policy, shared_batch_size=2, binary_equal_between_batch=True)
    network.set_network_algo_workspace_limit(1000)
    run(network)
    for use in (lambda: network.set_network_algo_policy(1), lambda: network.set_network_algo_workspace_limit(1)):
        with pytest.raises(RuntimeError, match="attempt to modify ExecutionPolicy after it has been accessed"):
            use()
    with pytest.raises(ArgumentError, match="wrong type"):
        network.set_network_algo_policy("a")


@pytest.mark.parametrize("option", ["weight_preprocess", "fake_next_exec", "enable_nchw88", "jit_level"])
def test_options_of_the_optimiser_change_no_result(option):
    config = LiteConfig()
    setattr(config.options, option, 1)
    network = load("image", config)
    feed(network, {"data": np.ones((1, 3, 224, 224), np.float32)})
    assert_close(run(network)["prob"], arrays("image")[1]["prob"])


def test_model_io_info():
    found = get_model_io_info(path("many"))
    layouts = [(item.name, item.config_layout.shapes, item.config_layout.dtype) for item in found.inputs]
    assert layouts == [("index", [2], np.int32), ("right", [2, 4], np.float32), ("left", [2, 4], np.float32)]
    assert [(item.name, item.config_layout.shapes) for item in found.outputs] == [
        ("total", [2, 4]),
        ("difference", [2, 4]),
        ("picked", [2]),
    ]
    assert [item.config_layout.ndim for item in get_model_io_info(Path(path("shrink"))).outputs] == [0, 1]
    assert get_model_io_info(path("type_bool"), LiteConfig()).inputs[0].config_layout.dtype is np.uint8


def test_model_io_info_of_none(tmp_path):
    with pytest.raises(RuntimeError, match=r"failed to open nope\.mge: No such file or directory"):
        get_model_io_info("nope.mge")
    (tmp_path / "junk.mge").write_bytes(b"x" * 100)
    with pytest.raises(RuntimeError, match="invalid model format"):
        get_model_io_info(str(tmp_path / "junk.mge"))
    with pytest.raises(ArgumentError, match="expected LiteConfig instance instead of int"):
        get_model_io_info(path("tiny"), 3)
    with pytest.raises(RuntimeError, match="request gpu0 out of valid range"):
        get_model_io_info(path("tiny"), LiteConfig(LiteDeviceType.LITE_CUDA))


def test_layout_transform(tmp_path):
    network = LiteNetwork()
    network.enable_global_layout_transform()
    network.load(path("image"))
    target = tmp_path / "transformed.mge"
    network.dump_layout_transform_model(str(target))
    again = LiteNetwork()
    with target.open("rb") as file:
        again.load(file)
    for each in (network, again):
        feed(each, {"data": np.ones((1, 3, 224, 224), np.float32)})
        assert_close(run(each)["prob"], arrays("image")[1]["prob"])
    with pytest.raises(RuntimeError, match=r"failed to open .*nowhere.*: No such file or directory"):
        network.dump_layout_transform_model(tmp_path / "nowhere" / "x.mge")


def test_networks_that_share_weights_run_side_by_side():
    """One compiled model; each thread has a network with tensors of its own."""
    first = load()

    def client(number):
        network = LiteNetwork()
        network.share_weights_with(first)
        assert network._loaded.session.loaded is first._loaded.session.loaded
        for step in range(50):
            row = counted(1, 4) + 100 * number + step
            feed(network, {"data": row})
            np.testing.assert_allclose(run(network)["score"], score(row), rtol=1e-5)
        return number

    with ThreadPoolExecutor(8) as clients:
        assert list(clients.map(client, range(8))) == list(range(8))


def test_networks_with_callbacks_run_side_by_side():
    first, done = load(), []

    def begin(number):
        network = LiteNetwork()
        network.share_weights_with(first)
        network.async_with_callback(lambda: done.append(number))
        feed(network, {"data": counted(1, 4) + number})
        network.forward()
        return network

    networks = [begin(number) for number in range(16)]
    for number, network in enumerate(networks):
        network.wait()
        found = network.get_io_tensor("score").to_numpy()
        np.testing.assert_allclose(found, score(counted(1, 4) + number), rtol=1e-5)
    assert sorted(done) == list(range(16))
