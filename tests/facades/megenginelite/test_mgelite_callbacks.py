"""Callbacks before and after a run, and runs in another thread."""

import threading

import numpy as np
import pytest
from facades.megenginelite.support import ROW, arrays, counted, feed, load, path, run, score

import litehouse
from megenginelite import LiteIO, LiteLayout, LiteNetwork, LiteNetworkIO, start_finish_callback, wrap_async_callback

TIMEOUT = 60


def test_start_callback_gets_all_inputs():
    network, calls = load("many"), []

    def start(ios):
        calls.append({io.name: tensor.to_numpy() for io, tensor in ios.items()})
        return 0

    network.set_start_callback(start)
    inputs, outputs = arrays("many")
    feed(network, inputs)
    network.forward()
    assert len(calls) == 1
    assert list(calls[0]) == ["index", "right", "left"]
    for name, array in inputs.items():
        np.testing.assert_array_equal(calls[0][name], array)
    network.wait()
    np.testing.assert_array_equal(network.get_io_tensor("total").to_numpy(), outputs["total"])


def test_finish_callback_gets_all_outputs_in_wait():
    network, calls = load("many"), []
    network.set_finish_callback(lambda ios: calls.append({io.name: made.to_numpy() for io, made in ios.items()}))
    inputs, outputs = arrays("many")
    feed(network, inputs)
    network.forward()
    assert calls == []
    network.wait()
    network.wait()
    assert len(calls) == 1
    assert list(calls[0]) == list(outputs)
    for name, array in outputs.items():
        np.testing.assert_array_equal(calls[0][name], array)


def test_callback_gets_the_declared_io():
    io = LiteIO("data", layout=LiteLayout([2, 4]))
    network, keys = load("tiny", None, LiteNetworkIO([io])), []
    network.set_start_callback(lambda ios: keys.extend(ios) or 0)
    run(network)
    assert keys[0] is io


def test_start_callback_may_write():
    network = load()

    @start_finish_callback  # has no effect in the original but to break the callback
    def start(ios):
        for tensor in ios.values():
            tensor.set_data_by_copy(counted(3, 4))
        return 0

    network.set_start_callback(start)
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(counted(3, 4)), rtol=1e-6)


def test_error_in_a_callback_is_raised():  # lost in the original
    network = load()

    def fail(_):
        raise ValueError("no good")

    network.set_start_callback(fail)
    with pytest.raises(ValueError, match="no good"):
        network.forward()
    network.set_start_callback(lambda _: 0)
    network.set_finish_callback(fail)
    network.forward()
    with pytest.raises(ValueError, match="no good"):
        network.wait()
    for use in (network.set_start_callback, network.set_finish_callback, network.async_with_callback):
        with pytest.raises(TypeError, match="a callback must be a function, not NoneType"):
            use(None)


def test_forward_beside_the_caller():
    network, go, done, threads = load(), threading.Event(), threading.Event(), []

    @wrap_async_callback
    def finished():
        assert go.wait(TIMEOUT)
        threads.append(threading.current_thread())
        done.set()
        return 0

    network.async_with_callback(finished)
    data, result = network.get_io_tensor("data"), network.get_io_tensor("score")
    for step in range(3):
        go.clear()
        done.clear()
        data.set_data_by_copy(ROW + step)
        network.forward()  # returns, although the callback waits for this thread
        assert not done.is_set()
        go.set()
        assert done.wait(TIMEOUT)
        np.testing.assert_allclose(result.to_numpy(), score(ROW + step), rtol=1e-6)
    network.wait()
    assert len(threads) == 3  # the original calls it once more in wait
    assert threading.main_thread() not in threads


def test_wait_waits_for_the_callback():
    network, calls = LiteNetwork(), []
    network.async_with_callback(lambda: calls.append(1) or 0)
    network.load(path("image"))
    feed(network, {"data": np.ones((1, 3, 224, 224), np.float32)})
    for count in range(1, 4):
        network.forward()
        network.wait()
        assert len(calls) == count
    network.forward()
    network.forward()  # one run after the other
    network.wait()
    assert len(calls) == 5
    network.wait()
    assert len(calls) == 5


def test_order_of_callbacks_beside_the_caller():
    network, calls = load(), []
    network.set_start_callback(lambda _: calls.append(("start", threading.current_thread())))
    network.set_finish_callback(lambda _: calls.append(("finish", threading.current_thread())))
    network.async_with_callback(lambda: calls.append(("async", threading.current_thread())))
    network.forward()
    network.wait()
    assert [name for name, _ in calls] == ["start", "finish", "async"]
    assert [thread is threading.current_thread() for _, thread in calls] == [True, False, False]


def test_callback_may_start_the_next_run():
    network, done, results = load(), threading.Event(), []

    def finished():
        results.append(network.get_io_tensor("score").to_numpy())
        network.wait()  # would wait for itself
        if len(results) < 3:
            feed(network, {"data": ROW + len(results)})
            network.forward()
        else:
            done.set()

    network.async_with_callback(finished)
    feed(network, {"data": ROW})
    network.forward()
    assert done.wait(TIMEOUT)
    np.testing.assert_allclose(results, [score(ROW + step) for step in range(3)], rtol=1e-6)


@pytest.mark.parametrize("use", [LiteNetwork.wait, LiteNetwork.forward])
def test_error_beside_the_caller_is_raised_later(use, caplog):
    network = load()

    def finished():
        raise ValueError("no good")

    network.async_with_callback(finished)
    network.forward()
    with pytest.raises(ValueError, match="no good"):
        use(network)
    assert "an asynchronous forward failed" in caplog.text
    network.async_with_callback(lambda: 0)
    feed(network, {"data": ROW})
    np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)


def test_error_of_the_engine_beside_the_caller(monkeypatch):
    network, calls = load(), []
    network.async_with_callback(lambda: calls.append(1))

    def fail(_):
        raise litehouse.EngineError("the engine failed")

    monkeypatch.setattr(network._loaded, "_run", fail)
    network.forward()
    with pytest.raises(RuntimeError, match="Error: the engine failed, Error Code: 1"):
        network.wait()
    assert calls == []


def test_wrong_inputs_are_refused_in_the_callers_thread():
    network = load()
    network.async_with_callback(lambda: 0)
    feed(network, {"data": counted(1, 4, dtype="int8")})
    with pytest.raises(RuntimeError, match="dtype mismatch: get=Int8 expect=Float32"):
        network.forward()
    feed(network, {"data": counted(3, 4)})
    np.testing.assert_allclose(run(network)["score"], score(counted(3, 4)), rtol=1e-6)


def test_inplace_mode_has_no_other_thread():
    network = LiteNetwork()
    network.enable_cpu_inplace_mode()
    with pytest.raises(RuntimeError, match="cpu inplace mode not support async mode"):
        network.async_with_callback(lambda: 0)
