"""Networks on a GPU: numbers as on the CPU, and nothing copied in vain."""

import json
import threading
from pathlib import Path

import numpy as np
import pytest
from facades.megenginelite.support import (
    ROW,
    address,
    arrays,
    counted,
    feed,
    is_on_device,
    load,
    on_device,
    path,
    run,
    score,
)

from conftest import assert_close
from megenginelite import (
    LiteConfig,
    LiteDataType,
    LiteDeviceType,
    LiteExtraConfig,
    LiteIO,
    LiteLayout,
    LiteNetwork,
    LiteNetworkIO,
    LiteOptions,
    LiteTensor,
    TensorBatchCollector,
    get_model_io_info,
)

pytestmark = pytest.mark.usefixtures("gpu")

CPU, CUDA = LiteDeviceType.LITE_CPU, LiteDeviceType.LITE_CUDA
FLOAT = LiteDataType.LITE_FLOAT


def ios(inputs=(), outputs=()):
    """Declares these to be on the device."""
    return LiteNetworkIO([[name, False] for name in inputs], [[name, False] for name in outputs])


def load_on_gpu(name="tiny", inputs=(), outputs=(), option=None):
    return load(name, LiteConfig(CUDA, option), ios(inputs, outputs))


TYPES = ("bool", "float16", "int8", "int16", "int32", "uint8", "uint16")
PLACES = pytest.mark.parametrize(
    ("inputs", "outputs"), [((), ()), (("data",), ()), ((), ("score",)), (("data",), ("score",))]
)


class TestWhere:
    @PLACES
    def test_tensors(self, inputs, outputs):
        network = load_on_gpu(inputs=inputs, outputs=outputs)
        for name, declared in (("data", inputs), ("score", outputs)):
            made = network.get_io_tensor(name)
            assert is_on_device(made) == (name in declared)
            assert made.device_type == (CUDA if name in declared else CPU)
            assert made.is_pinned_host == (name not in declared)
            assert made.device_id == 0
        assert network._loaded.session.engine == "torch"

    def test_on_the_cpu_all_is_on_the_host(self):
        network = load("tiny", LiteConfig(), ios(["data"], ["score"]))
        for name in ("data", "score"):
            made = network.get_io_tensor(name)
            assert (is_on_device(made), made.device_type, made.is_pinned_host) == (False, CPU, False)

    def test_no_such_gpu(self):
        config = LiteConfig(CUDA)
        config.device_id = 1
        with pytest.raises(RuntimeError, match=r"request gpu1 out of valid range \[0, 1\)"):
            load("tiny", config)
        network = LiteNetwork(LiteConfig(CUDA))
        network.device_id = 1
        with pytest.raises(RuntimeError, match=r"request gpu1 out of valid range \[0, 1\)"):
            network.load(path("tiny"))

    def test_layout_of_a_declared_input(self):
        io = LiteNetworkIO([LiteIO("data", is_host=False, layout=LiteLayout([3, 4]))])
        made = load("tiny", LiteConfig(CUDA), io).get_io_tensor("data")
        assert (made.layout.shapes, is_on_device(made)) == ([3, 4], True)

    def test_default_of_an_input(self):
        host, device = load("many"), load_on_gpu("many", inputs=load("many").get_all_input_name())
        for name in host.get_all_input_name():
            np.testing.assert_array_equal(device.get_io_tensor(name).to_numpy(), host.get_io_tensor(name).to_numpy())

    def test_io_info(self):
        found = get_model_io_info(path("tiny"), LiteConfig(CUDA))
        assert [item.name for item in found.inputs] == ["data"]


class TestRuns:
    @PLACES
    def test_numbers(self, inputs, outputs):
        network = load_on_gpu(inputs=inputs, outputs=outputs)
        data = network.get_io_tensor("data")
        for rows in (1, 1, 3, 2, 1):
            batch = counted(rows, 4) + rows
            data.set_data_by_copy(batch)
            np.testing.assert_allclose(run(network)["score"], score(batch), rtol=1e-6)

    @PLACES
    def test_copies(self, inputs, outputs, copies):
        network = load_on_gpu(inputs=inputs, outputs=outputs)
        network.get_io_tensor("data").set_data_by_copy(ROW)
        network.forward()
        for _ in range(2):
            copies.taken()
            network.forward()
            network.wait()
            # Without tensors on the device the engine itself copies; an output on the host comes by one copy.
            assert copies.taken() == (0, int(bool(inputs) and not outputs))

    @pytest.mark.parametrize("name", [f"type_{kind}" for kind in TYPES])
    @pytest.mark.parametrize("places", ["inputs", "outputs", "both"])
    def test_types(self, name, places):
        given, expected = arrays(name)
        declared = {"inputs": tuple(given) if places != "outputs" else ()}
        declared["outputs"] = tuple(expected) if places != "inputs" else ()
        network, on_cpu = load_on_gpu(name, **declared), load(name)
        for each in (network, on_cpu):
            feed(each, {key: array.view(np.uint8) if array.dtype == bool else array for key, array in given.items()})
        found, wanted = run(network), run(on_cpu)
        assert found.keys() == wanted.keys()
        for key in found:
            assert_close(found[key], wanted[key], key)

    @pytest.mark.parametrize("name", ["many", "image", "shrink"])
    def test_networks(self, name):
        given, expected = arrays(name)
        given = given or {"data": np.ones((1, 3, 224, 224), np.float32)}
        network = load_on_gpu(name, inputs=list(given)[::2], outputs=list(expected)[::2])
        feed(network, given)
        for _ in range(2):
            found = run(network)
            for key in expected:
                assert_close(found[key], expected[key], key)

    def test_output_whose_size_depends_on_the_data(self):
        given, expected = arrays("shrink")
        network = load_on_gpu("shrink", inputs=given, outputs=expected)
        feed(network, given)
        found = run(network)
        for key in expected:
            assert is_on_device(network.get_io_tensor(key))
            assert_close(found[key], expected[key], key)

    def test_inputs_are_shared_without_a_copy(self, copies):
        network, source = load_on_gpu(inputs=["data"], outputs=["score"]), on_device(3, 4)
        data = network.get_io_tensor("data")
        data.share_memory_with(source)
        assert address(data) == address(source)
        network.forward()
        copies.taken()
        for step in range(3):
            source.copy_from(LiteTensor(LiteLayout([3, 4]), CUDA))
            source.set_data_by_copy(counted(3, 4) + step)
            assert copies.taken() == (1, 0)
            network.forward()
            network.wait()
            assert copies.taken() == (0, 0)
            np.testing.assert_allclose(
                network.get_io_tensor("score").to_numpy(), score(counted(3, 4) + step), rtol=1e-6
            )
            assert copies.taken() == (0, 1)

    @pytest.mark.parametrize("rows", [1, 2])  # without and with gaps
    def test_input_is_a_part(self, rows):
        network, source = load_on_gpu(inputs=["data"]), on_device(4, 8)
        network.get_io_tensor("data").share_memory_with(source.slice([1, 2], [1 + rows, 6]))
        for step in range(2):
            source.set_data_by_copy(counted(4, 8) + step)
            expected = score((counted(4, 8) + step)[1 : 1 + rows, 2:6])
            np.testing.assert_allclose(run(network)["score"], expected, rtol=1e-6)

    def test_a_host_input_is_not_shared_with_the_device(self):
        with pytest.raises(RuntimeError, match="share memory must happen in same device"):
            load_on_gpu().get_io_tensor("data").share_memory_with(on_device(1, 4))
        with pytest.raises(RuntimeError, match="share memory must happen in same device"):
            load("tiny").get_io_tensor("data").share_memory_with(on_device(1, 4))

    def test_host_input_may_be_shared_with_the_caller(self):
        network, array = load_on_gpu(), ROW.copy()
        network.get_io_tensor("data").set_data_by_share(array)
        for _ in range(2):
            np.testing.assert_allclose(run(network)["score"], score(array), rtol=1e-6)
            array += 1

    def test_host_input_that_cannot_be_written(self):
        network, array = load_on_gpu(outputs=["score"]), ROW.copy()
        array.flags.writeable = False
        network.get_io_tensor("data").set_data_by_share(array)
        np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)

    def test_outputs_stay_where_they_are(self):
        network = load_on_gpu(inputs=["data"], outputs=["score"])
        result = network.get_io_tensor("score")
        before = address(result)
        for step in range(3):
            network.get_io_tensor("data").set_data_by_copy(ROW + step)
            run(network)
            assert address(result) == before

    @pytest.mark.parametrize("forced", [0, 1])
    def test_outputs_go_to_memory_of_the_caller(self, forced):
        option = LiteOptions()
        option.force_output_use_user_specified_memory = forced
        network = load_on_gpu(inputs=["data"], outputs=["score"], option=option)
        target = LiteTensor(LiteLayout([1, 3]), CUDA)
        network.get_io_tensor("score").share_memory_with(target)
        network.get_io_tensor("data").set_data_by_copy(ROW)
        network.forward()
        network.wait()
        np.testing.assert_allclose(target.to_numpy(), score(ROW), rtol=1e-6)
        network.get_io_tensor("data").set_data_by_copy(counted(2, 4))
        if forced:
            with pytest.raises(RuntimeError, match=r"disallowed shape change: \{1,3\} vs \{2,3\}"):
                network.forward()
        else:
            np.testing.assert_allclose(run(network)["score"], score(counted(2, 4)), rtol=1e-6)

    def test_host_output_over_an_array(self):
        network, array = load_on_gpu(inputs=["data"]), np.zeros((1, 3), np.float32)
        network.get_io_tensor("score").set_data_by_share(array)
        network.get_io_tensor("data").set_data_by_copy(ROW)
        network.forward()
        np.testing.assert_allclose(array, score(ROW), rtol=1e-6)
        fixed = np.zeros((1, 3), np.float32)
        fixed.flags.writeable = False
        network.get_io_tensor("score").set_data_by_share(fixed)
        with pytest.raises(RuntimeError, match="cannot be written"):
            network.forward()

    def test_networks_one_after_another(self, copies):
        networks = [load_on_gpu(inputs=["data"], outputs=["score"]) for _ in range(2)]
        source = on_device(1, 4)
        for network in networks:
            network.get_io_tensor("data").share_memory_with(source)
            network.forward()
        copies.taken()
        results = [network.get_io_tensor("score").to_numpy() for network in networks]
        np.testing.assert_allclose(results[0], score(ROW), rtol=1e-6)
        np.testing.assert_array_equal(results[0], results[1])

    def test_copies_and_runs_are_in_order(self):
        """Nothing waits between them: each run must see its own input, and each copy its own output."""
        network = load_on_gpu("image", ["data"], ["prob"])
        data, prob = network.get_io_tensor("data"), network.get_io_tensor("prob")
        rng, kept = np.random.default_rng(0), []
        images = rng.random((12, 1, 3, 224, 224), np.float32)
        for image in images:
            staged = image.copy()
            data.set_data_by_copy(staged)
            staged[...] = 0
            network.forward()
            kept.append(LiteTensor(LiteLayout([1, 10]), CUDA))
            kept[-1].copy_from(prob)
        on_cpu = load("image")
        for image, found in zip(images, kept, strict=True):
            on_cpu.get_io_tensor("data").set_data_by_copy(image)
            assert_close(found.to_numpy(), run(on_cpu)["prob"])

    def test_wrong_inputs(self):
        network = load_on_gpu(inputs=["data"])
        data = network.get_io_tensor("data")
        data.set_data_by_copy(counted(1, 4, dtype="int32"))
        with pytest.raises(RuntimeError, match="dtype mismatch: get=Int32 expect=Float32"):
            network.forward()
        data.set_data_by_copy(counted(1, 5))
        with pytest.raises(RuntimeError):
            network.forward()
        data.layout = LiteLayout()
        with pytest.raises(RuntimeError, match="the tensor data has no layout"):
            network.forward()
        data.set_data_by_copy(ROW)
        np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)

    def test_const_shape(self):
        option = LiteOptions()
        option.const_shape = 1
        network = load_on_gpu(inputs=["data"], option=option)
        network.get_io_tensor("data").set_data_by_copy(counted(2, 4))
        with pytest.raises(RuntimeError, match=r"disallowed shape change: \{1,4\} vs \{2,4\}"):
            network.forward()

    def test_where_the_engine_takes_no_tensors(self, monkeypatch):
        network = load_on_gpu(inputs=["data"], outputs=["score"])
        monkeypatch.setattr("litehouse.Session.takes_tensors", False)
        network.get_io_tensor("data").set_data_by_copy(ROW)
        np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)


class TestBesides:
    @pytest.mark.parametrize("place", [(), ("data",)])
    def test_share_weights(self, place):
        source = load_on_gpu(inputs=place)
        same = LiteNetwork(LiteConfig(CUDA), ios(["data"], ["score"]))
        on_cpu = LiteNetwork()
        for network in (same, on_cpu):
            network.share_weights_with(source)
            network.get_io_tensor("data").set_data_by_copy(ROW)
            np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)
        assert same._loaded.session.loaded is source._loaded.session.loaded
        assert (is_on_device(same.get_io_tensor("data")), is_on_device(on_cpu.get_io_tensor("data"))) == (True, False)

    def test_callbacks(self):
        network, seen = load_on_gpu(inputs=["data"], outputs=["score"]), []

        def note(tensors):
            ((io, made),) = tensors.items()
            seen.append((io.name, bool(io.is_host), made.device_type, made.to_numpy()))
            return 0

        network.set_start_callback(note)
        network.set_finish_callback(note)
        network.get_io_tensor("data").set_data_by_copy(ROW)
        run(network)
        assert [each[:3] for each in seen] == [("data", False, CUDA), ("score", False, CUDA)]
        np.testing.assert_array_equal(seen[0][3], ROW)
        np.testing.assert_allclose(seen[1][3], score(ROW), rtol=1e-6)

    def test_beside_the_caller(self):
        network, done = load_on_gpu(inputs=["data"], outputs=["score"]), threading.Event()
        network.async_with_callback(lambda: done.set() or 0)
        network.get_io_tensor("data").set_data_by_copy(ROW)
        network.forward()
        assert done.wait(60)
        network.wait()
        np.testing.assert_allclose(network.get_io_tensor("score").to_numpy(), score(ROW), rtol=1e-6)

    def test_wait_waits_for_the_device(self, monkeypatch):
        calls = []
        monkeypatch.setattr("megenginelite._device_loaded.synchronize", calls.append)
        for places in ({"inputs": ["data"]}, {"outputs": ["score"]}):
            load_on_gpu(**places).forward()
            assert calls == ["gpu:0"]  # what is on the host is there, or was read, when `forward` returns
            calls.clear()
        network = load_on_gpu(inputs=["data"], outputs=["score"])
        network.forward()
        assert calls == []
        network.wait()
        assert calls == ["gpu:0"]
        load("tiny").wait()
        assert calls == ["gpu:0"]

    def test_profile(self, tmp_path):
        network, file = load_on_gpu(inputs=["data"], outputs=["score"]), tmp_path / "profile.json"
        network.enable_profile_performance(file)
        run(network)
        footprint = json.loads(file.read_text())["profiler"]["opr_footprint"]["0"]
        assert (footprint["in_shapes"], footprint["out_shapes"]) == ([[1, 4]], [[1, 3]])

    def test_dump(self, tmp_path):
        texts = []
        for network in (load_on_gpu(inputs=["data"], outputs=["score"]), load("tiny")):
            file = tmp_path / f"{len(texts)}.txt"
            network.io_txt_dump(file)
            network.get_io_tensor("data").set_data_by_copy(ROW)
            run(network)
            texts.append(file.read_text())
        assert texts[0] == texts[1]
        assert "name=data" in texts[0]

    def test_pieces_of_a_batch(self, copies):
        config = LiteConfig(CUDA)
        config.discrete_input_name = b"data"
        io = LiteNetworkIO([LiteIO("data", is_host=False, layout=LiteLayout([3, 4]))], [["score", False]])
        network = load("tiny", config, io)
        for place in range(3):
            piece = network.get_discrete_tensor("data", place)
            assert is_on_device(piece)
            piece.set_data_by_copy(ROW + place)
        network.forward()
        copies.taken()
        network.forward()
        network.wait()
        assert copies.taken() == (0, 0)
        expected = score(np.concatenate([ROW + place for place in range(3)]))
        np.testing.assert_allclose(network.get_io_tensor("score").to_numpy(), expected, rtol=1e-6)
        network.get_discrete_tensor("data", 1).set_data_by_copy(counted(1, 5))
        with pytest.raises(RuntimeError, match="the shape of tensors is not same!"):
            network.forward()

    @pytest.mark.parametrize("is_disabled", [False, True])
    def test_packed_model_says_where(self, tmp_path, is_disabled):
        pytest.importorskip("cryptography")
        from formats.mge.packed_builder import info, packed

        entries = {
            "device": {"type": "CUDA"},
            "IO": {"inputs": [{"name": "data", "is_host": False}], "outputs": [{"name": "score", "is_host": True}]},
        }
        file = tmp_path / "model.lite"
        file.write_bytes(packed(Path(path("tiny")).read_bytes(), info(**entries)))
        network = LiteNetwork()
        network.extra_configure(LiteExtraConfig(is_disabled))
        network.load(file)
        assert is_on_device(network.get_io_tensor("data")) == (not is_disabled)
        assert not is_on_device(network.get_io_tensor("score"))
        network.get_io_tensor("data").set_data_by_copy(ROW)
        np.testing.assert_allclose(run(network)["score"], score(ROW), rtol=1e-6)
        declared = LiteNetwork(io=LiteNetworkIO([["data", True]]))
        declared.load(file)
        assert not is_on_device(declared.get_io_tensor("data"))


class TestCollector:
    def test_default_device(self, copies):
        batch = TensorBatchCollector([2, 3], FLOAT)
        assert (batch.dev_type, batch.dev_id, batch.is_pinned_host) == (CUDA, 0, False)
        assert is_on_device(batch.get())
        assert (batch.collect(counted(3)), batch.collect(counted(3) + 1)) == (0, 1)
        assert copies.taken() == (2, 0)
        assert batch.to_numpy().tolist() == [[0, 1, 2], [1, 2, 3]]
        with pytest.warns(UserWarning, match="all batch has been collected"):
            assert batch.collect(counted(3)) == -1
        batch.free([0])
        assert batch.collect(on_device(3)) == 0

    def test_tensors_of_the_device_are_not_copied_through_the_host(self, copies):
        batch, piece = TensorBatchCollector([2, 3], FLOAT), on_device(3)
        copies.taken()
        assert batch.collect(piece) == 0
        batch.collect_id(piece, 1)
        assert copies.taken() == (0, 0)
        assert batch.to_numpy().tolist() == [[0, 1, 2]] * 2

    def test_host_tensors_and_ctypes(self):
        batch = TensorBatchCollector([2, 3], FLOAT)
        host = LiteTensor(LiteLayout([3]))
        host.set_data_by_copy(counted(3) + 4)
        assert batch.collect(host) == 0
        assert batch.collect_by_ctypes(counted(3).ctypes.data, 12) == 1
        assert batch.to_numpy().tolist() == [[4, 5, 6], [0, 1, 2]]

    def test_wrong_pieces_take_no_place(self):
        batch = TensorBatchCollector([2, 3], FLOAT)
        for piece in (counted(4), counted(3, dtype="int8"), on_device(3, 1)):
            with pytest.raises(AssertionError):
                batch.collect(piece)
        with pytest.raises(RuntimeError, match="attempt to access dtype Float32 as Int8"):
            batch.collect(on_device(3, dtype="int8"))
        assert batch.collect(counted(3)) == 0

    def test_pinned(self):
        batch = TensorBatchCollector([2, 3], FLOAT, is_pinned_host=True)
        assert (batch.dev_type, batch.is_pinned_host, is_on_device(batch.get())) == (CPU, True, False)
        assert batch.collect(counted(3)) == 0

    def test_given_tensor(self):
        whole = on_device(2, 3)
        batch = TensorBatchCollector([2, 3], tensor=whole)
        assert batch.get() is whole
        assert address(batch.get_tensor_at(1)) == address(whole) + 12
        batch.collect_id(counted(3) + 9, 1)
        assert whole.to_numpy().tolist() == [[0, 1, 2], [9, 10, 11]]

    def test_feeds_a_network(self, copies):
        network, batch = load_on_gpu(inputs=["data"], outputs=["score"]), TensorBatchCollector([2, 4], FLOAT)
        network.get_io_tensor("data").share_memory_with(batch.get())
        for step in range(3):
            batch.free(range(2))
            for place in range(2):
                batch.collect(counted(4) + step + place)
            copies.taken()
            network.forward()
            network.wait()
            assert copies.taken() == (0, 0)
            expected = score(np.stack([counted(4) + step, counted(4) + step + 1]))
            np.testing.assert_allclose(network.get_io_tensor("score").to_numpy(), expected, rtol=1e-6)
