"""LiteGlobal: decryption methods, devices, caches. What is expected was seen on 1.13.0."""

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
from facades.megenginelite.support import ROW, feed, path, run, score
from formats.mge.packed_builder import SEALERS, info, packed

from litehouse import ciphers
from megenginelite import LiteConfig, LiteDeviceType, LiteGlobal, LiteNetwork, decryption_func

KEY = [7, 9]


@pytest.fixture(autouse=True)
def _methods(monkeypatch):
    """Leave the table of decryption methods as it was."""
    monkeypatch.setattr(ciphers, "_methods", dict(ciphers._methods))


@decryption_func
def turned(in_arr, key_arr, out_arr):
    if not out_arr:
        return in_arr.size
    else:
        for index in range(in_arr.size):
            out_arr[index] = in_arr[index] ^ key_arr[index % 2]
        return out_arr.size


def locked(key=KEY):
    plain = np.frombuffer(Path(path("tiny")).read_bytes(), np.uint8)
    return (plain ^ np.resize(np.array(key, np.uint8), plain.size)).tobytes()


def opened(source, name):
    config = LiteConfig()
    config.bare_model_cryption_name = name
    network = LiteNetwork(config)
    network.load(source)
    return network


def test_own_decryption_method(tmp_path):  # broken in the original
    target = tmp_path / "locked.mge"
    target.write_bytes(locked())
    LiteGlobal.register_decryption_and_key("turned", turned, KEY)
    network = opened(target, "turned")
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)
    with target.open("rb") as file:
        assert opened(file, b"turned").get_input_name(0) == "data"


def test_own_decryption_method_in_a_packed_model(tmp_path, monkeypatch):
    target = tmp_path / "locked.lite"
    monkeypatch.setitem(SEALERS, "turned", lambda _: locked())
    target.write_bytes(packed(Path(path("tiny")).read_bytes(), info(), "turned"))
    with pytest.raises(RuntimeError, match="The decryption method turned is not registed yet"):
        LiteNetwork().load(target)
    LiteGlobal.register_decryption_and_key("turned", turned, bytes(KEY))
    LiteNetwork().load(target)


def test_key_can_change(tmp_path):
    target = tmp_path / "locked.mge"
    target.write_bytes(locked([1, 2]))
    LiteGlobal.register_decryption_and_key("turned", turned, np.array(KEY))
    with pytest.raises(RuntimeError, match="invalid model format"):
        opened(target, "turned")
    LiteGlobal.update_decryption_key("turned", [257, -254])  # the lowest 8 bits count
    assert opened(target, "turned").get_input_name(0) == "data"


def test_key_of_a_method_that_is_built_in(tmp_path):
    target = tmp_path / "locked.mge"
    key = bytes(range(32))
    target.write_bytes(SEALERS["AES_default"](Path(path("tiny")).read_bytes(), key))
    LiteGlobal.update_decryption_key("AES_default", [0] * 32)
    with pytest.raises(RuntimeError, match="invalid model format"):
        opened(target, "AES_default")
    LiteGlobal.update_decryption_key("AES_default", list(key))
    assert opened(target, "AES_default").get_input_name(0) == "data"


def test_methods_that_are_refused():
    LiteGlobal.register_decryption_and_key("turned", turned, KEY)
    for name in ("turned", "AES_default"):
        with pytest.raises(RuntimeError) as caught:
            LiteGlobal.register_decryption_and_key(name, turned, KEY)
        assert str(caught.value) == f"Error: The decryption method {name} is already registered., Error Code: 1"
    with pytest.raises(RuntimeError) as caught:
        LiteGlobal.update_decryption_key("zilch", KEY)
    assert str(caught.value) == "Error: The decryption method zilch is not registered., Error Code: 1"
    with pytest.raises(ctypes.ArgumentError, match="expected CFunctionType instance instead of int"):
        LiteGlobal.register_decryption_and_key("other", 3, KEY)
    for key in ("abc", None):
        with pytest.raises(TypeError):
            LiteGlobal.register_decryption_and_key("other", turned, key)
    for use in (lambda: LiteGlobal.update_decryption_key(b"turned", KEY),):
        with pytest.raises(AttributeError, match="'bytes' object has no attribute 'encode'"):
            use()


def test_error_in_a_method(tmp_path):
    def broken(in_arr, key_arr, out_arr):
        raise ValueError("no good")

    target = tmp_path / "locked.mge"
    target.write_bytes(locked())
    LiteGlobal.register_decryption_and_key("broken", broken, KEY)
    with pytest.raises(RuntimeError, match="no good"):
        opened(target, "broken")


def test_device_count():
    assert LiteGlobal.get_device_count(LiteDeviceType.LITE_CPU) == os.cpu_count()
    assert LiteGlobal.get_device_count(LiteDeviceType.LITE_DEVICE_DEFAULT) == os.cpu_count()
    for kind in (LiteDeviceType.LITE_CUDA, LiteDeviceType.LITE_ATLAS, LiteDeviceType.LITE_CAMBRICON):
        assert LiteGlobal.get_device_count(kind) == 0
    with pytest.raises(RuntimeError, match=r"lite unsupported compnode type: enum value: 4\."):
        LiteGlobal.get_device_count(LiteDeviceType.LITE_NPU)
    with pytest.raises(ctypes.ArgumentError):
        LiteGlobal.get_device_count("a")


def test_caches(tmp_path):
    target = tmp_path / "cache"
    LiteGlobal.dump_persistent_cache(str(target))
    assert target.read_bytes() == bytes(4)
    LiteGlobal.set_persistent_cache(str(target))
    LiteGlobal.set_persistent_cache(path=str(target), always_sync=True)
    with pytest.raises(RuntimeError, match=r"failed to open .*: No such file or directory"):
        LiteGlobal.dump_persistent_cache(str(tmp_path / "nowhere" / "cache"))
    LiteGlobal.try_coalesce_all_free_memory()


def test_what_is_for_other_devices_is_refused(tmp_path):
    for name in ("nope.so", str(tmp_path)):
        with pytest.raises(RuntimeError, match="failed to open c opr lib"):
            LiteGlobal.set_loader_lib_path(name)
    with pytest.raises(AttributeError):
        LiteGlobal.set_tensorrt_cache("x")
    with pytest.raises(AttributeError):
        LiteGlobal.dump_tensorrt_cache()
    pointer, cpu = ctypes.c_void_p(1), LiteDeviceType.LITE_CPU
    for use, name in (
        (lambda at: LiteGlobal.register_memory_pair(at, at, 3, cpu), "register_memory_pair"),
        (lambda at: LiteGlobal.clear_memory_pair(at, at, cpu), "clear_memory_pair"),
        (lambda at: LiteGlobal.lookup_physic_ptr(at, cpu), "lookup_physic_ptr"),
    ):
        with pytest.raises(RuntimeError) as caught:
            use(pointer)
        assert str(caught.value) == f"Error: {name} is not implement yet!, Error Code: 1"
        with pytest.raises(AssertionError, match=r"only accept c_void_p type\."):
            use(1)
