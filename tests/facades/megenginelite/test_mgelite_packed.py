"""Packed and encrypted models: what they say about themselves, and what the caller says. Expected as seen on 1.13.0."""

from pathlib import Path

import numpy as np
import pytest
from facades.megenginelite.support import ROW, arrays, counted, feed, path, run, score
from formats.mge.packed_builder import SEALERS, info, packed

from conftest import ZOO, assert_close
from megenginelite import (
    LiteConfig,
    LiteDeviceType,
    LiteExtraConfig,
    LiteIO,
    LiteLayout,
    LiteNetwork,
    LiteNetworkIO,
    get_model_io_info,
)

CIPHERS = sorted(SEALERS.keys() - {"NONE"})
PACKED = ZOO / "mge" / "packed_rc4_lstm_text"


@pytest.fixture
def pack(tmp_path):
    """A function that packs a model of the fixtures with an info, and loads it."""

    def make(name, *, config=None, io=None, disabled=None, threads=None, **entries):
        target = tmp_path / "model.lite"
        target.write_bytes(packed(Path(path(name)).read_bytes(), info(**entries)))
        network = LiteNetwork(config, io)
        if disabled is not None:
            network.extra_configure(LiteExtraConfig(disabled))
        if threads is not None:
            network.threads_number = threads
        network.load(str(target))
        return network

    return make


@pytest.mark.parametrize("cipher", sorted(SEALERS))
def test_packed_model_runs(cipher, tmp_path):
    target = tmp_path / "model.lite"
    target.write_bytes(packed(Path(path("tiny")).read_bytes(), info(), cipher, cipher))
    network = LiteNetwork()
    network.load(target)
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)
    found = get_model_io_info(target)  # refused in the original
    assert [item.name for item in (*found.inputs, *found.outputs)] == ["data", "score"]


@pytest.mark.parametrize("cipher", CIPHERS)
def test_encrypted_model_runs(cipher, tmp_path):
    target = tmp_path / "model.mge"
    target.write_bytes(SEALERS[cipher](Path(path("tiny")).read_bytes()))
    config = LiteConfig()
    config.bare_model_cryption_name = cipher
    network = LiteNetwork(config)
    network.enable_global_layout_transform()
    network.load(target)
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)
    assert get_model_io_info(target, config).inputs[0].name == "data"
    network.dump_layout_transform_model(tmp_path / "plain.mge")
    LiteNetwork().load(tmp_path / "plain.mge")
    with pytest.raises(RuntimeError, match="invalid model format"):
        LiteNetwork().load(target)


def test_wrong_decryption_methods(tmp_path):
    config = LiteConfig()
    config.bare_model_cryption_name = "zilch"
    with pytest.raises(RuntimeError) as caught:
        LiteNetwork(config).load(path("tiny"))
    assert str(caught.value) == "Error: The decryption method zilch is not registed yet., Error Code: 1"
    for cipher in CIPHERS:
        config.bare_model_cryption_name = cipher
        with pytest.raises(RuntimeError, match="invalid model format"):
            LiteNetwork(config).load(path("tiny"))
    config.bare_model_cryption_name = "NONE"
    LiteNetwork(config).load(path("tiny"))
    config.bare_model_cryption_name = "zilch"
    target = tmp_path / "model.lite"
    target.write_bytes(packed(Path(path("tiny")).read_bytes(), info()))
    LiteNetwork(config).load(target)  # a packed model names its methods itself


def test_threads_of_the_model_win(pack):
    device = {"type": "CPU", "number_threads": 3, "device_id": 2, "enable_inplace_model": True}
    network = pack("tiny", device=device, threads=2)
    assert (network.threads_number, network.device_id, network.is_cpu_inplace_mode()) == (3, 2, True)
    assert network._loaded.session.options.threads == 3
    network = pack("tiny", device=device, threads=2, disabled=True)
    assert (network.threads_number, network.device_id, network.is_cpu_inplace_mode()) == (3, 0, True)


def test_device_of_the_model_wins(pack):
    assert pack("tiny", config=LiteConfig(LiteDeviceType.LITE_CUDA), device={"type": "CPU"}).get_input_name(0) == "data"
    with pytest.raises(RuntimeError, match=r"request gpu0 out of valid range \[0, 0\)"):
        pack("tiny", device={"type": "CUDA"})
    with pytest.raises(RuntimeError, match="lite unsupported compnode type: enum value: 4"):
        pack("tiny", device={"type": "NPU"})
    assert pack("tiny", device={"type": "CUDA"}, disabled=True).get_input_name(0) == "data"


def test_options_of_the_model(pack):
    network = pack("tiny", options={"const_shape": True})
    feed(network, {"data": counted(2, 4)})
    with pytest.raises(RuntimeError, match=r"disallowed shape change: \{1,4\} vs \{2,4\}"):
        network.forward()
    network = pack("tiny", options={"const_shape": True}, disabled=True)
    feed(network, {"data": counted(2, 4)})
    assert run(network)["score"].shape == (2, 3)


IO = {
    "inputs": [{"name": "left", "dtype": "float32", "shape": {"dim0": 5, "dim1": 4}}, {"name": "zilch"}],
    "outputs": [{"name": "picked", "io_type": "shape"}, {"name": "nope"}],
}


def test_inputs_and_outputs_of_the_model(pack):
    network = pack("many", IO=IO)
    assert network.get_all_output_name() == ["picked", "total", "difference"]
    assert network.get_io_tensor("left").layout.shapes == [5, 4]
    assert repr(network.network_io) == "{'inputs': [], 'outputs': []}"
    inputs, outputs = arrays("many")
    feed(network, inputs)
    results = run(network)
    for name, expected in outputs.items():
        assert_close(results[name], expected, name)


def test_inputs_and_outputs_of_the_model_set_aside(pack):
    network = pack("many", IO=IO, disabled=True)
    assert network.get_all_output_name() == ["total", "difference", "picked"]
    assert network.get_io_tensor("left").layout.shapes == [2, 4]
    inputs, outputs = arrays("many")
    feed(network, inputs)
    results = run(network)
    for name, expected in outputs.items():
        assert_close(results[name], expected, name)


def test_the_callers_word_comes_first(pack):
    ios = LiteNetworkIO([LiteIO("left", layout=LiteLayout([7, 4]))], [["difference"]])
    network = pack("many", IO=IO, io=ios)
    assert network.get_all_output_name() == ["difference", "picked", "total"]  # listed twice in the original
    assert network.get_io_tensor("left").layout.shapes == [7, 4]


def test_nothing_and_null_in_an_info(pack):
    assert pack("tiny", valid=False, device={"type": "CUDA"}).threads_number == 1
    network = pack(
        "many", device=None, options=None, IO={"inputs": [{"name": "left", "dtype": "int8"}], "outputs": None}
    )
    assert network.get_io_tensor("left").layout.dtype is np.float32


@pytest.mark.zoo
@pytest.mark.skipif(not PACKED.exists(), reason="the model zoo is not there")
def test_packed_model_of_the_zoo():
    network = LiteNetwork()
    network.load(PACKED / "model.lite")
    assert network.get_all_output_name() == ["hidden", "logits", "mean"]
    assert network.threads_number == 2
    feed(network, {"ids": np.load(PACKED / "ids.npy")})
    for index, result in enumerate(run(network).values()):
        assert_close(result, np.load(PACKED / f"out_{index}.npy"), f"output {index}")
