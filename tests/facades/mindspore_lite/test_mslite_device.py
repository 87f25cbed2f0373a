"""Tensors on a GPU: numbers as on the CPU, and nothing copied in vain."""

import contextlib
import os

import numpy as np
import pytest
from facades.mindspore_lite.support import ADD, ADD_INT64, DYNAMIC, NETWORK, RELU, TWO_OUTPUTS

import litehouse
from conftest import FIXTURES, REAL_GPU, assert_close
from litehouse.device import DeviceArray
from mindspore_lite import (
    Context,
    DataType,
    Format,
    Model,
    ModelGroup,
    ModelGroupFlag,
    ModelParallelRunner,
    ModelType,
    Tensor,
)
from mindspore_lite._device_tensor import DeviceRun
from onnx_models import model as onnx_model
from onnx_models import node

pytestmark = pytest.mark.usefixtures("gpu")

TYPES = [kind for kind in DataType if kind not in (DataType.UNKNOWN, DataType.INVALID)]


def context(device_id=0):
    made = Context()
    made.target = ["gpu"]
    made.gpu.device_id = device_id
    return made


def placed(arrays):
    return [Tensor(array, device="gpu:0") for array in arrays]


def address(tensor):
    assert isinstance(tensor._array, DeviceArray)
    return tensor._array.address


def counted(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


class TestTensor:
    @pytest.mark.parametrize("device", ["gpu", "gpu:0"])
    @pytest.mark.parametrize("kind", TYPES)
    def test_zeros(self, device, kind):
        tensor = Tensor(shape=[2, 3], dtype=kind, device=device)
        assert isinstance(tensor, Tensor)
        assert (tensor.device, tensor.shape, tensor.dtype, tensor.element_num) == ("gpu:0", [2, 3], kind, 6)
        assert isinstance(tensor._array, DeviceArray)
        data = tensor.get_data_to_numpy()
        assert (data.shape, data.dtype.name, data.any()) == ((2, 3), kind.name.lower(), False)
        assert tensor.data_size == data.nbytes

    def test_text(self):
        tensor = Tensor(counted(2, 3), device="gpu")
        tensor.name = "x"
        assert str(tensor) == (
            "name: x,\ndtype: DataType.FLOAT32,\nshape: [2, 3],\nformat: Format.NCHW,\nelement_num: 6,\n"
            "data_size: 24.\ndevice: gpu:0."
        )

    def test_array_is_copied_there(self, copies):
        array = counted(2, 3)
        tensor = Tensor(array, device="gpu:0")
        assert copies.taken() == (1, 0)
        array[...] = 0
        data = tensor.get_data_to_numpy()
        assert copies.taken() == (0, 1)
        np.testing.assert_array_equal(data, counted(2, 3))
        data[...] = 5  # a copy
        np.testing.assert_array_equal(tensor.get_data_to_numpy(), counted(2, 3))

    def test_there_and_back(self):  # the original's own test, which has "ascend:0"
        device_tensor = Tensor(counted(3), dtype=DataType.FLOAT32, device="gpu:0")
        host_tensor = Tensor(device_tensor)
        assert (device_tensor.device, host_tensor.device) == ("gpu:0", "None:-1")
        np.testing.assert_array_equal(host_tensor.get_data_to_numpy(), counted(3))
        again = Tensor(host_tensor, device="gpu:0")
        assert again.device == "gpu:0"
        np.testing.assert_array_equal(again.get_data_to_numpy(), counted(3))

    def test_tensor_of_the_device_is_copied_there(self, copies):
        source = Tensor(counted(2, 3), device="gpu:0")
        source.name, source.format = "x", Format.NHWC
        copies.taken()
        other = Tensor(source, device="gpu")
        assert copies.taken() == (0, 0)
        assert (other.name, other.format, other.shape) == ("x", Format.NHWC, [2, 3])
        assert address(other) != address(source)
        source.set_data_from_numpy(np.zeros((2, 3), np.float32))
        np.testing.assert_array_equal(other.get_data_to_numpy(), counted(2, 3))

    def test_set_data(self):
        tensor = Tensor(shape=[2, 3], dtype=DataType.FLOAT32, device="gpu:0")
        before, array = address(tensor), counted(2, 3)
        for given in (array, array.ravel(), np.asfortranarray(array)):
            tensor.set_data_from_numpy(np.zeros((2, 3), np.float32))
            tensor.set_data_from_numpy(given)
            np.testing.assert_array_equal(tensor.get_data_to_numpy(), array)
        array[...] = 9
        assert tensor.get_data_to_numpy()[0, 1] == 1
        assert address(tensor) == before

    def test_described_later(self):
        tensor = Tensor(device="gpu:0")
        assert (tensor.shape, tensor.dtype, tensor.device) == ([], DataType.FLOAT32, "gpu:0")
        tensor.shape, tensor.dtype = [2, 2], DataType.INT32
        tensor.set_data_from_numpy(counted(2, 2, dtype="int32"))
        assert isinstance(tensor._array, DeviceArray)
        np.testing.assert_array_equal(tensor.get_data_to_numpy(), counted(2, 2, dtype="int32"))

    def test_described_anew(self):
        tensor = Tensor(counted(2, 3), device="gpu:0")
        before = address(tensor)
        tensor.shape = [3, 2]
        assert (tensor.shape, address(tensor)) == ([3, 2], before)
        np.testing.assert_array_equal(tensor.get_data_to_numpy(), counted(3, 2))
        tensor.dtype = DataType.INT32
        assert tensor.get_data_to_numpy().tobytes() == counted(3, 2).tobytes()
        tensor.shape = [50]
        assert not tensor.get_data_to_numpy().any()
        tensor.format = Format.NHWC
        assert tensor.format is Format.NHWC
        tensor.shape = [-1, 3]
        assert (tensor.data_size, tensor.get_data_to_numpy().shape) == (0, (0,))

    def test_scalar(self):
        tensor = Tensor(np.array(5, np.int64), device="gpu")
        assert (tensor.shape, tensor.get_data_to_numpy().tolist()) == ([], 5)

    @pytest.mark.parametrize(
        ("data", "error", "text"),
        [
            ([1], TypeError, "numpy_obj must be numpy.ndarray, but got <class 'list'>."),
            (np.zeros((2, 3), np.complex64), TypeError, "Unsupported numpy dtype value complex64"),
            (
                np.zeros((2, 3)),
                RuntimeError,
                "data type not equal! Numpy type: <class 'numpy.float64'>, Tensor type: DataType.FLOAT32",
            ),
            (np.zeros(5, np.float32), RuntimeError, "data size not equal! Numpy size: 20, Tensor size: 24"),
        ],
    )
    def test_refused_data(self, data, error, text):
        tensor = Tensor(counted(2, 3), device="gpu:0")
        with pytest.raises(error) as caught:
            tensor.set_data_from_numpy(data)
        assert str(caught.value) == text
        np.testing.assert_array_equal(tensor.get_data_to_numpy(), counted(2, 3))

    @pytest.mark.parametrize(
        ("device", "error", "text"),
        [
            ("gpu:x", TypeError, "device must be 'gpu:index', eg: 'gpu:0'"),
            ("gpu:-1", TypeError, "device id should >= 0."),
            (
                "cuda:0",
                TypeError,
                "now only support ascend device. Here, 'gpu' and 'gpu:0' are devices, too; "
                "leave `device` out for the host.",
            ),
            (
                "gpu:1",
                RuntimeError,
                "no tensor can be made on gpu:1: there is no GPU 1: torch finds 1, from 0 on. "
                "Leave `device` out for one on the host.",
            ),
        ],
    )
    def test_refused_device(self, device, error, text):
        with pytest.raises(error) as caught:
            Tensor(device=device)
        assert str(caught.value) == text

    def test_disagreeing_description(self):
        with pytest.raises(TypeError, match="user set shape is not equal numpy shape"):
            Tensor(counted(2, 3), [3, 2], device="gpu:0")
        with pytest.raises(TypeError, match="user set dtype is not equal tensor dtype"):
            Tensor(Tensor(counted(2, 3), device="gpu"), None, DataType.INT8, device="gpu:0")

    def test_without_a_gpu(self, monkeypatch):
        monkeypatch.delenv("LITEHOUSE_REHEARSE_GPU", raising=False)
        monkeypatch.setattr("torch.cuda.is_available", lambda: False)
        monkeypatch.setattr("torch.version.cuda", "13.0")
        with pytest.raises(RuntimeError, match=r"no tensor can be made on gpu:0: torch finds no GPU; .* on the host\."):
            Tensor(shape=[1], dtype=DataType.INT8, device="gpu:0")


class TestDlpack:
    def test_to_torch(self):
        import torch

        tensor = Tensor(counted(2, 3), device="gpu:0")
        taken = torch.from_dlpack(tensor)
        assert taken.data_ptr() == address(tensor)
        taken.fill_(4)
        assert (tensor.get_data_to_numpy() == 4).all()

    @pytest.mark.parametrize("kind", TYPES)
    def test_host(self, kind):
        import torch

        array = np.ones((2, 3), kind.name.lower())
        tensor = Tensor(array)
        assert tensor.__dlpack_device__() == (1, 0)
        assert np.from_dlpack(tensor).ctypes.data == array.ctypes.data
        assert torch.from_dlpack(tensor).data_ptr() == array.ctypes.data

    def test_without_data(self):
        assert np.from_dlpack(Tensor(shape=[2], dtype=DataType.INT8)).tolist() == [0, 0]
        tensor = Tensor(shape=[-1], dtype=DataType.INT8)
        with pytest.raises(BufferError, match=r"tensor '' of shape \[-1\] has no memory"):
            np.from_dlpack(tensor)

    def test_session_takes_it(self):
        import litehouse

        with litehouse.load(RELU.path, device="gpu:0", cache=False) as session:
            (found,) = session.run([Tensor(RELU.inputs[0], device="gpu:0")])
        np.testing.assert_allclose(found.cpu().numpy(), RELU.outputs[0])


class TestPredict:
    @pytest.mark.parametrize("sample", [RELU, ADD, ADD_INT64, TWO_OUTPUTS, NETWORK])
    def test_inputs_on_the_device(self, sample, copies):
        model = sample.build(context())
        inputs = placed(sample.inputs)
        sample.check(model.predict(inputs))
        copies.taken()
        outputs = model.predict(inputs)
        assert copies.taken() == (0, len(sample.outputs))
        assert {tensor.device for tensor in outputs} == {"None:-1"}
        sample.check(outputs)

    @pytest.mark.parametrize("sample", [ADD, TWO_OUTPUTS])
    def test_all_on_the_device(self, sample, copies):
        model = sample.build(context())
        inputs = placed(sample.inputs)
        outputs = [Tensor(np.zeros_like(array), device="gpu:0") for array in sample.outputs]
        before = [address(tensor) for tensor in outputs]
        model.predict(inputs, outputs)
        copies.taken()
        assert model.predict(inputs, outputs) is outputs
        assert copies.taken() == (0, 0)
        assert [address(tensor) for tensor in outputs] == before
        sample.check(outputs)

    def test_outputs_on_the_device_alone(self, copies):
        model = ADD.build(context())
        outputs = [Tensor(np.zeros_like(ADD.outputs[0]), device="gpu:0")]
        model.predict(ADD.inputs, outputs)
        copies.taken()
        model.predict(ADD.inputs, outputs)  # the engine copies the inputs
        assert copies.taken() == (0, 0)
        ADD.check(outputs)

    def test_arrays_may_change_when_it_returns(self, monkeypatch):
        model, calls = ADD.build(context()), []
        monkeypatch.setattr("mindspore_lite._device_tensor.synchronize", calls.append)
        outputs = [Tensor(np.zeros_like(ADD.outputs[0]), device="gpu:0")]
        model.predict(placed(ADD.inputs), outputs)
        assert calls == []
        model.predict([Tensor(ADD.inputs[0], device="gpu:0"), ADD.inputs[1]], outputs)
        assert calls == ["gpu:0"]

    def test_some_here_some_there(self):
        model = TWO_OUTPUTS.build(context())
        outputs = [Tensor(), Tensor(device="gpu:0")]
        TWO_OUTPUTS.check(model.predict(placed(TWO_OUTPUTS.inputs), outputs))
        assert [tensor.device for tensor in outputs] == ["None:-1", "gpu:0"]
        assert outputs[1].dtype is DataType.INT32
        both = ADD.build(context())
        ADD.check(both.predict([Tensor(ADD.inputs[0], device="gpu"), ADD.inputs[1]]))
        ADD.check(both.predict([ADD.inputs[0], Tensor(ADD.inputs[1], device="gpu")]))

    def test_host_outputs_keep_their_memory(self):
        array = np.zeros((3, 5), np.float32)
        RELU.build(context()).predict(placed(RELU.inputs), [Tensor(array)])
        np.testing.assert_allclose(array, RELU.outputs[0])

    def test_output_of_another_size(self):
        outputs = [Tensor(shape=[1], dtype=DataType.INT8, device="gpu:0")]
        RELU.check(RELU.build(context()).predict(placed(RELU.inputs), outputs))
        assert (outputs[0].shape, outputs[0].dtype, outputs[0].device) == ([3, 5], DataType.FLOAT32, "gpu:0")

    @pytest.mark.parametrize("is_other", [False, True])
    def test_runs_are_in_order(self, is_other):
        """Each run must see its own input and leave its own output, on the stream that the caller is on."""
        import torch

        model, arrays = NETWORK.build(context()), []
        other = torch.cuda.stream(torch.cuda.Stream()) if is_other and REAL_GPU else contextlib.nullcontext()
        outputs = [[Tensor(np.zeros_like(NETWORK.outputs[0]), device="gpu:0")] for _ in range(50)]
        with other:
            tensor = Tensor(NETWORK.inputs[0], device="gpu:0")
            for step, output in enumerate(outputs):
                arrays.append(NETWORK.inputs[0] * (step + 1))
                tensor.set_data_from_numpy(arrays[-1])
                model.predict([tensor], output)
            found = [output[0].get_data_to_numpy() for output in outputs]
        on_cpu = NETWORK.build()
        for array, data in zip(arrays, found, strict=True):
            assert_close(data, on_cpu.predict([array])[0].get_data_to_numpy())

    def test_models_one_after_another(self, copies):
        model = RELU.build(context())
        inputs, between = placed(RELU.inputs), [Tensor(shape=[3, 5], dtype=DataType.FLOAT32, device="gpu:0")]
        outputs = [Tensor(shape=[3, 5], dtype=DataType.FLOAT32, device="gpu:0")]
        for _ in range(2):
            copies.taken()
            model.predict(inputs, between)
            model.predict(between, outputs)
            assert copies.taken() == (0, 0)
        RELU.check(outputs)

    def test_host_tensors(self):
        model = ADD.build(context())
        ADD.check(model.predict(ADD.inputs))
        ADD.check(model.predict([Tensor(array) for array in ADD.inputs], [Tensor()]))
        assert [tensor.device for tensor in model.get_inputs()] == ["None:-1", "None:-1"]

    def test_resize(self):
        model = DYNAMIC.build(context())
        (tensor,) = placed(DYNAMIC.inputs)
        with pytest.raises(RuntimeError, match="has a dynamic shape; call resize first"):
            model.predict([tensor])
        model.resize([tensor], [list(DYNAMIC.inputs[0].shape)])
        DYNAMIC.check(model.predict([tensor]))
        model.resize([tensor], [[1, 1, 5]])
        assert tensor.shape == [1, 1, 5]
        with pytest.raises(RuntimeError, match=r"^predict failed! Input 'x' has no data"):
            model.predict([tensor])
        tensor.set_data_from_numpy(DYNAMIC.inputs[0][:1, :1])
        on_cpu = DYNAMIC.build()
        on_cpu.resize(on_cpu.get_inputs(), [[1, 1, 5]])
        (expected,) = on_cpu.predict([DYNAMIC.inputs[0][:1, :1]])
        (found,) = model.predict([tensor])
        np.testing.assert_allclose(found.get_data_to_numpy(), expected.get_data_to_numpy(), rtol=1e-6)

    def test_wrong_shape_or_type(self):
        model = RELU.build(context())
        for array in (np.zeros((3, 4), np.float32), np.zeros((3, 5), np.int32)):
            with pytest.raises(RuntimeError, match=r"^predict failed! input 'x' must "):
                model.predict(placed([array]))
        RELU.check(model.predict(placed(RELU.inputs)))

    def test_inputs_are_left_alone(self):
        inputs = placed(ADD.inputs)
        ADD.build(context()).predict(inputs)
        for tensor, array in zip(inputs, ADD.inputs, strict=True):
            np.testing.assert_array_equal(tensor.get_data_to_numpy(), array)

    def test_where_the_engine_takes_no_tensors(self, monkeypatch):
        model = ADD.build(context())
        monkeypatch.setattr("litehouse.Session.takes_tensors", False)
        ADD.check(model.predict(placed(ADD.inputs), [Tensor(device="gpu:0")]))

    def test_state_lasts_wherever_the_inputs_are(self, monkeypatch):
        import torch

        from litehouse.engines.torch.program import TorchRunner

        def spied(name, kind):
            run = getattr(TorchRunner, name)

            def call(runner, inputs):
                assert {isinstance(value, kind) for value in inputs} == {True}  # the state, too
                return run(runner, inputs)

            monkeypatch.setattr(TorchRunner, name, call)

        spied("run", np.ndarray)
        spied("run_tensors", torch.Tensor)
        model, x = Model(), np.zeros((3, 5), np.float32)
        model.build_from_file(str(FIXTURES / "flow" / "state_counter.mindir"), ModelType.MINDIR, context())
        there = Tensor(x, device="gpu:0")
        counts = [int(model.predict([data])[1].get_data_to_numpy()) for data in (x, there, there, x, there)]
        assert counts == [8, 9, 10, 11, 12]
        (state,) = model._session.state.values()
        assert (type(state), int(state)) == (np.ndarray, 12)
        model._session.reset()
        assert int(model.predict([there])[1].get_data_to_numpy()) == 8

    def test_update_weights(self, tmp_path):
        import litehouse

        with litehouse.load(NETWORK.path, cache=False) as session:
            name, info = next((name, info) for name, info in session.weights.items() if info.dtype == np.float32)
        names = tmp_path / "names.txt"
        names.write_text(name)
        model = NETWORK.build(context(), config_dict={"ascend_context": {"variable_weights_file": str(names)}})
        weight = Tensor(np.zeros(info.shape, np.float32), device="gpu:0")
        weight.name = name
        before = model.predict(NETWORK.inputs)[0].get_data_to_numpy()
        model.update_weights([[weight]])
        assert not np.array_equal(model.predict(NETWORK.inputs)[0].get_data_to_numpy(), before)


class TestRefused:
    def test_model_on_the_cpu(self):
        model = ADD.build()
        with pytest.raises(RuntimeError) as caught:
            model.predict([ADD.inputs[0], Tensor(ADD.inputs[1], device="gpu:0")])
        assert str(caught.value) == (
            "predict failed! Input 'y' is on gpu:0, and the model runs on cpu; make a tensor there: Tensor(tensor)"
        )
        with pytest.raises(RuntimeError, match=r"^predict failed! Output .* is on gpu:0, and the model runs on cpu; "):
            model.predict(ADD.inputs, [Tensor(device="gpu:0")])
        ADD.check(model.predict(ADD.inputs))

    @pytest.mark.skipif(REAL_GPU, reason="the second GPU is a rehearsed one")
    def test_model_on_another_gpu(self, monkeypatch):
        monkeypatch.setattr("litehouse.device.device_count", lambda kind: 2)
        model = RELU.build(context(1))
        for inputs, outputs, what in (
            (placed(RELU.inputs), None, "Input 'x'"),
            (RELU.inputs, [Tensor(device="gpu:0")], "Output 'Default/ReLU-op0'"),
        ):
            with pytest.raises(RuntimeError) as caught:
                model.predict(inputs, outputs)
            assert str(caught.value) == (
                f"predict failed! {what} is on gpu:0, and the model runs on gpu:1; "
                "make a tensor there: Tensor(tensor, device='gpu:1')"
            )
        RELU.check(model.predict([Tensor(placed(RELU.inputs)[0], device="gpu:1")]))

    def test_devices_of_a_runner(self, monkeypatch):
        if not REAL_GPU:
            monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "2")
        runner, made = ModelParallelRunner(), context()
        made.gpu.device_id, made.parallel.workers_num = 1, 1
        made.parallel.device_ids = [0, 0]
        runner.build_from_file(RELU.path, made)
        assert runner._pool._first._session.options.device == "gpu:0"
        RELU.check(runner.predict([Tensor(RELU.inputs[0])]))
        made.parallel.device_ids = [0, 1]
        with pytest.raises(
            RuntimeError, match=r"parallel\.device_ids names several devices, \[0, 1\].*a runner for each"
        ):
            runner.build_from_file(RELU.path, made)

    def test_group(self):
        group, model = ModelGroup(ModelGroupFlag.SHARE_WEIGHT), Model()
        group.add_model([model])
        model.build_from_file(RELU.path, ModelType.MINDIR, context())
        RELU.check(model.predict(placed(RELU.inputs)))

    def test_a_model_without_inputs(self):
        network = onnx_model([node("Add", "a a", "y")], {}, {"y": [2]}, {"a": np.array([1, 2], "f")})
        run, output = DeviceRun(litehouse.load(network, device="gpu", cache=False)), Tensor(device="gpu:0")
        output._receive(*run([], [output]))
        assert output.get_data_to_numpy().tolist() == [2, 4]

    @pytest.mark.parametrize("target", ["cpu", "gpu"])
    def test_parallel_runner(self, target):
        runner, made = ModelParallelRunner(), Context()
        made.target = [target]
        made.parallel.workers_num = 1
        runner.build_from_file(RELU.path, made)
        with pytest.raises(RuntimeError, match=r"^predict failed! Input 'x' is on a GPU; a ModelParallelRunner takes"):
            runner.predict(placed(RELU.inputs))
        with pytest.raises(RuntimeError, match=r"^predict failed! outputs\[0\] is on a GPU"):
            runner.predict([Tensor(RELU.inputs[0])], [Tensor(device="gpu:0")])
        RELU.check(runner.predict([Tensor(RELU.inputs[0])]))


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core leaves nothing to choose")
@pytest.mark.parametrize("setting", ["thread_affinity_mode", "thread_affinity_core_list", "inter_op_parallel_num"])
def test_what_is_set_for_cores_does_not_keep_a_model_from_the_gpu(gpu, setting, monkeypatch):
    """The published context for a GPU sets an affinity, which some machines have cores for and some do not."""
    cores = sorted(os.sched_getaffinity(0))
    monkeypatch.setattr("litehouse.cores.affinity._speed", lambda cpu: int(cpu.name == f"cpu{cores[0]}"))
    own = context()
    own.cpu.thread_num = 2
    setattr(own.cpu, setting, cores[:1] if setting.endswith("list") else 2)
    model = RELU.build(own)
    RELU.check(model.predict(placed(RELU.inputs)))
