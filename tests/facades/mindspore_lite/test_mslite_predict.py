"""`Model.predict`, `get_inputs`, `get_outputs` and `get_model_info`.

What is marked "safer" goes wrong in 2.0.0: outputs that turn to garbage, threads that get each other's results.
"""

import threading

import numpy as np
import pytest
from facades.mindspore_lite.support import ADD, ADD_INT64, DYNAMIC, RELU, TWO_OUTPUTS

from conftest import FIXTURES
from mindspore_lite import DataType, Format, Model, ModelType, Tensor

INT = "<class 'int'>"
ENGINES = ("onnxruntime", "openvino")


def filled(model, arrays):
    inputs = model.get_inputs()
    for tensor, array in zip(inputs, arrays, strict=True):
        tensor.set_data_from_numpy(array)
    return inputs


class TestSignature:
    def test_inputs(self):  # names, shapes and the format NCHW as 2.0.0 reports them for a native file
        inputs = ADD.build().get_inputs()
        assert [tensor.name for tensor in inputs] == ["x", "y"]
        assert [tensor.shape for tensor in inputs] == [[2, 3, 5], [3, 1]]
        assert {tensor.dtype for tensor in inputs} == {DataType.FLOAT32}
        assert {tensor.format for tensor in inputs} == {Format.NCHW}
        assert [tensor.data_size for tensor in inputs] == [120, 12]

    def test_handles_are_new_each_time(self):
        model = ADD.build()
        first, second = model.get_inputs(), model.get_inputs()
        assert first[0] is not second[0]
        first[0].set_data_from_numpy(np.ones((2, 3, 5), np.float32))
        assert not second[0].get_data_to_numpy().any()

    def test_handle_does_not_change_the_model(self):
        model = ADD.build()
        handle = model.get_inputs()[0]
        handle.name = "other"
        handle.shape = [1]
        handle.dtype = DataType.INT8
        again = model.get_inputs()[0]
        assert (again.name, again.shape, again.dtype) == ("x", [2, 3, 5], DataType.FLOAT32)

    def test_int64_stays(self):
        model = ADD_INT64.build()
        assert {tensor.dtype for tensor in model.get_inputs()} == {DataType.INT64}
        ADD_INT64.check(model.predict(ADD_INT64.inputs))

    def test_dynamic_dimensions_are_minus_one(self):
        model = DYNAMIC.build()
        (tensor,) = model.get_inputs()
        assert tensor.shape == [-1, -1, 5]
        assert (tensor.element_num, tensor.data_size) == (0, 0)
        (meta,) = model.get_outputs()
        assert (meta.shape[-1], meta.element_num, meta.data_size) == (5, 0, 0)

    def test_outputs(self):
        first, second = TWO_OUTPUTS.build().get_outputs()
        assert (first.dtype, second.dtype) == (DataType.FLOAT32, DataType.INT32)
        assert first.shape == list(TWO_OUTPUTS.outputs[0].shape)
        assert first.format is Format.DEFAULT
        assert (second.element_num, second.data_size) == (TWO_OUTPUTS.outputs[1].size, TWO_OUTPUTS.outputs[1].nbytes)

    def test_output_name_is_the_full_name_of_its_node(self):  # rule seen on 2.0.0
        assert [meta.name for meta in RELU.build().get_outputs()] == ["Default/ReLU-op0"]
        names = [meta.name for meta in TWO_OUTPUTS.build().get_outputs()]
        assert names == ["Default/TopK-op0_0", "Default/TopK-op0_1"]

    def test_before_the_build(self):
        model = Model()
        assert model.get_inputs() == []
        assert model.get_outputs() == ()


class TestInputs:
    def test_tensors(self):
        model = ADD.build()
        ADD.check(model.predict(filled(model, ADD.inputs)))

    def test_arrays(self):  # master
        ADD.check(ADD.build().predict(ADD.inputs))

    def test_mixed_tuple(self):  # master
        ADD.check(ADD.build().predict((Tensor(ADD.inputs[0]), ADD.inputs[1])))

    @pytest.mark.parametrize("as_array", [True, False])
    def test_flat_data(self, as_array):
        model = ADD.build()
        flat = [array.reshape(-1) for array in ADD.inputs]
        ADD.check(model.predict(flat if as_array else filled(model, flat)))

    @pytest.mark.parametrize("as_array", [True, False])
    def test_fortran_order(self, as_array):  # safer
        model = ADD.build()
        arrays = [np.asfortranarray(array) for array in ADD.inputs]
        ADD.check(model.predict(arrays if as_array else filled(model, arrays)))

    @pytest.mark.parametrize("as_array", [True, False])
    def test_strided(self, as_array):
        model = RELU.build()
        arrays = [np.repeat(RELU.inputs[0], 2, axis=1)[:, ::2]]
        assert not arrays[0].flags.c_contiguous
        RELU.check(model.predict(arrays if as_array else filled(model, arrays)))

    def test_names_of_tensors_do_not_matter_and_order_does(self):
        model = ADD.build()
        inputs = filled(model, ADD.inputs)
        inputs[0].name, inputs[1].name = "y", "x"
        ADD.check(model.predict(inputs))
        with pytest.raises(RuntimeError, match=r"^predict failed!"):
            model.predict(inputs[::-1])

    def test_later_changes_of_the_array_are_seen(self):
        model = RELU.build()
        array = np.full((3, 5), -1, np.float32)
        inputs = filled(model, [array])
        assert not model.predict(inputs)[0].get_data_to_numpy().any()
        array[1, 2] = 6
        assert model.predict(inputs)[0].get_data_to_numpy()[1, 2] == 6

    def test_data_written_through_the_view(self):
        model = RELU.build()
        inputs = model.get_inputs()
        inputs[0].get_data_to_numpy()[:] = 4
        assert (model.predict(inputs)[0].get_data_to_numpy() == 4).all()

    def test_inputs_are_left_alone(self):
        before = [array.copy() for array in ADD.inputs]
        ADD.build().predict(ADD.inputs)
        for array, copy in zip(ADD.inputs, before, strict=True):
            np.testing.assert_array_equal(array, copy)

    def test_tensor_of_the_caller(self):
        tensor = Tensor()
        tensor.dtype = DataType.FLOAT32
        tensor.shape = [3, 5]
        tensor.set_data_from_numpy(RELU.inputs[0])
        RELU.check(RELU.build().predict([tensor]))

    def test_output_feeds_the_next_call(self):
        model = RELU.build()
        RELU.check(model.predict(model.predict(RELU.inputs)))

    def test_tensor_with_a_shape_and_dtype_has_zeros(self):
        (output,) = RELU.build().predict([Tensor(shape=[3, 5], dtype=DataType.FLOAT32)])
        assert not output.get_data_to_numpy().any()


class TestRefused:
    @pytest.mark.parametrize(
        ("inputs", "error", "text"),
        [
            (None, TypeError, "inputs must be list or tuple, but got <class 'NoneType'>."),
            ("ab", TypeError, "inputs must be list or tuple, but got <class 'str'>."),
            (np.zeros((3, 5), np.float32), TypeError, "inputs must be list or tuple, but got <class 'numpy.ndarray'>."),
            ([], RuntimeError, "model input len:1 not equal input len:0!"),
            ([1, 2], RuntimeError, "model input len:1 not equal input len:2!"),
            ([1], TypeError, "inputs element must be Tensor, of numpy."),
            ([[1.0]], TypeError, "inputs element must be Tensor, of numpy."),
            (
                [np.zeros((3, 5))],
                RuntimeError,
                "data type not equal! Numpy type: <class 'numpy.float64'>, Tensor type: DataType.FLOAT32",
            ),
            ([np.zeros((3, 4), np.float32)], RuntimeError, "data size not equal! Numpy size: 48, Tensor size: 60"),
            ([np.zeros((3, 5), np.complex64)], TypeError, "Unsupported numpy dtype value complex64"),
        ],
    )
    def test_messages_of_master(self, inputs, error, text):
        model = RELU.build()
        with pytest.raises(error) as caught:
            model.predict(inputs)
        assert str(caught.value) == text
        RELU.check(model.predict(RELU.inputs))

    @pytest.mark.parametrize(
        "tensor",
        [
            Tensor(np.zeros((3, 5), np.int32)),
            Tensor(np.zeros((3, 5), np.float64)),
            Tensor(np.zeros((3, 4), np.float32)),
            Tensor(np.zeros((5, 3), np.float32)),
            Tensor(np.zeros(15, np.float32)),
            Tensor(np.zeros((0, 5), np.float32)),
        ],
    )
    def test_tensor_of_another_type_or_shape(self, tensor):  # seen on 2.0.0, there without a reason
        model = RELU.build()
        with pytest.raises(RuntimeError, match=r"^predict failed! .+") as caught:
            model.predict([tensor])
        assert caught.value.__cause__ is not None
        RELU.check(model.predict(RELU.inputs))

    def test_no_data(self):  # as master means it; 2.0.0 runs with zeros
        model = RELU.build()
        with pytest.raises(RuntimeError, match=r"^predict failed! Input 'x' has no data"):
            model.predict(model.get_inputs())
        RELU.check(model.predict(RELU.inputs))

    @pytest.mark.parametrize("as_array", [True, False])
    def test_dynamic_and_not_resized(self, as_array):
        model = DYNAMIC.build()
        with pytest.raises(RuntimeError, match=r"^predict failed! Input 'x' has a dynamic shape; call resize first"):
            model.predict(DYNAMIC.inputs if as_array else model.get_inputs())

    def test_not_built(self):
        model = Model()
        with pytest.raises(RuntimeError, match=r"^model input len:0 not equal input len:1!$"):
            model.predict([Tensor()])
        with pytest.raises(RuntimeError, match=r"^predict failed! The model is not built"):
            model.predict([])


class TestOutputs:
    def test_new_tensors_in_a_new_list(self):
        model = TWO_OUTPUTS.build()
        first, second = model.predict(TWO_OUTPUTS.inputs), model.predict(TWO_OUTPUTS.inputs)
        assert type(first) is list
        assert first is not second
        assert first[0] is not second[0]
        TWO_OUTPUTS.check(first)

    def test_description(self):
        values, indices = TWO_OUTPUTS.build().predict(TWO_OUTPUTS.inputs)
        assert (values.dtype, indices.dtype) == (DataType.FLOAT32, DataType.INT32)
        assert values.format is indices.format is Format.DEFAULT  # as 2.0.0
        expected = TWO_OUTPUTS.outputs[0]
        assert str(values) == (
            f"name: Default/TopK-op0_0,\ndtype: DataType.FLOAT32,\nshape: {list(expected.shape)},\n"
            f"format: Format.DEFAULT,\nelement_num: {expected.size},\ndata_size: {expected.nbytes}.\ndevice: None:-1."
        )

    def test_output_may_be_changed(self):
        (output,) = RELU.build().predict(RELU.inputs)
        output.get_data_to_numpy()[:] = 5
        output.name = "mine"
        output.shape = [15]
        assert output.get_data_to_numpy().tolist() == [5] * 15

    @pytest.mark.parametrize("engine", ENGINES)
    def test_earlier_outputs_stay(self, engine):  # safer
        model = RELU.build(config_dict={"litehouse": {"engine": engine}})
        tensors = [model.predict([np.full((3, 5), value, np.float32)])[0] for value in range(20)]
        arrays = [tensor.get_data_to_numpy() for tensor in tensors]
        for value, array in enumerate(arrays):
            assert (array == value).all()
        arrays[0][:] = -1
        assert (arrays[1] == 1).all()

    def test_outputs_outlive_the_model(self):
        model = RELU.build()
        outputs = model.predict(RELU.inputs)
        data = outputs[0].get_data_to_numpy()
        del model, outputs
        np.testing.assert_allclose(data, RELU.outputs[0])

    @pytest.mark.parametrize("engine", ENGINES)
    def test_output_does_not_share_memory_with_the_input(self, engine):
        array = np.ones((3, 5), np.float32)
        (output,) = RELU.build(config_dict={"litehouse": {"engine": engine}}).predict([array])
        assert not np.shares_memory(array, output.get_data_to_numpy())


class TestGivenOutputs:
    """All of master."""

    def test_results_are_written_into_them(self):
        array = np.zeros((3, 5), np.float32)
        outputs = [Tensor(array)]
        returned = RELU.build().predict(RELU.inputs, outputs)
        assert returned is outputs
        RELU.check(outputs)
        np.testing.assert_allclose(array, RELU.outputs[0])

    def test_shape_and_dtype_are_updated(self):
        outputs = [Tensor(), Tensor(np.zeros(3, np.int8))]
        TWO_OUTPUTS.check(TWO_OUTPUTS.build().predict(TWO_OUTPUTS.inputs, outputs=outputs))
        assert outputs[0].shape == list(TWO_OUTPUTS.outputs[0].shape)
        assert outputs[1].dtype is DataType.INT32

    def test_flat_memory_is_kept(self):
        array = np.zeros(15, np.float32)
        outputs = [Tensor(array)]
        RELU.build().predict(RELU.inputs, outputs)
        assert outputs[0].shape == [3, 5]
        np.testing.assert_allclose(array, RELU.outputs[0].reshape(-1))

    def test_read_only_memory_is_left_alone(self):
        array = np.zeros((3, 5), np.float32)
        array.flags.writeable = False
        outputs = [Tensor(array)]
        RELU.check(RELU.build().predict(RELU.inputs, outputs))
        assert not array.any()

    def test_used_again_and_again(self):
        model = RELU.build()
        outputs = model.predict(RELU.inputs)
        memory = outputs[0].get_data_to_numpy()
        for value in (1, 2):
            model.predict([np.full((3, 5), value, np.float32)], outputs)
            assert (memory == value).all()

    @pytest.mark.parametrize("outputs", [None, []])
    def test_none_given(self, outputs):
        RELU.check(RELU.build().predict(RELU.inputs, outputs))

    @pytest.mark.parametrize(
        ("outputs", "error", "text"),
        [
            ((), TypeError, "outputs must be list, but got <class 'tuple'>."),
            (1, TypeError, f"outputs must be list, but got {INT}."),
            ([1], TypeError, f"outputs element must be Tensor, but got {INT} at index 0."),
            ([Tensor(), Tensor()], RuntimeError, "predict failed! The model has 1 outputs, not 2."),
        ],
    )
    def test_refused(self, outputs, error, text):
        with pytest.raises(error) as caught:
            RELU.build().predict(RELU.inputs, outputs)
        assert str(caught.value) == text


class TestThreads:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_one_model_shared_by_eight(self, engine):  # safer: 2.0.0 gave 175 wrong results out of 200
        model = ADD.build(config_dict={"litehouse": {"engine": engine}})
        random = np.random.default_rng(0)
        feeds = [[random.standard_normal(array.shape, np.float32) for array in ADD.inputs] for _ in range(8)]
        serial = [model.predict(feed)[0].get_data_to_numpy().copy() for feed in feeds]
        wrong, barrier = [], threading.Barrier(8)

        def work(index):
            inputs = filled(model, feeds[index])
            barrier.wait()
            results = [model.predict(inputs)[0].get_data_to_numpy() for _ in range(50)]
            wrong.extend(index for result in results if not np.array_equal(result, serial[index]))

        threads = [threading.Thread(target=work, args=(index,)) for index in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_predict_while_another_thread_resizes(self):
        model = DYNAMIC.build()
        model.resize(model.get_inputs(), [[2, 3, 5]])
        done = threading.Event()

        def resize():
            while not done.is_set():
                model.resize(model.get_inputs(), [[2, 3, 5]])

        thread = threading.Thread(target=resize)
        thread.start()
        try:
            for _ in range(100):
                DYNAMIC.check(model.predict(DYNAMIC.inputs))
        finally:
            done.set()
            thread.join()


class TestModelInfo:
    """All of master."""

    @pytest.mark.parametrize("arguments", [(), (None,), (1,)])
    def test_key_must_be_a_text(self, arguments):
        kind = type(arguments[0] if arguments else None)
        with pytest.raises(TypeError) as caught:
            RELU.build().get_model_info(*arguments)
        assert str(caught.value) == f"key must be str, but got {kind}."

    @pytest.mark.parametrize("key", ["", "nonsense", "dynamic_dims", "user_info", "shareable_weight_mem_handle"])
    def test_unknown_key(self, key):
        assert RELU.build().get_model_info(key) == ""
        assert Model().get_model_info(key) == ""

    def test_input_shape(self):
        assert ADD.build().get_model_info("input_shape") == "x:[2,3,5];y:[3,1]"
        assert DYNAMIC.build().get_model_info("input_shape") == "x:[-1,-1,5]"

    def test_user_info(self, tmp_path):
        path = tmp_path / "model.mindir"
        with open(RELU.path, "rb") as file:  # field 14 is a map; what follows a protobuf message is merged into it
            path.write_bytes(file.read() + b"\x72\x0c\x0a\x06author\x12\x02me")
        model = Model()
        model.build_from_file(str(path), ModelType.MINDIR)
        assert model.get_model_info("user_info") == '{"author": "me"}'
        assert model.get_model_info("author") == ""


def test_state_lasts_from_one_predict_to_the_next():
    counter, other = Model(), Model()
    for model in (counter, other):
        model.build_from_file(str(FIXTURES / "flow" / "state_counter.mindir"), ModelType.MINDIR)
    x = np.zeros((3, 5), np.float32)
    counts = [
        int(model.predict(filled(model, [x]))[1].get_data_to_numpy()) for model in (counter, counter, other, counter)
    ]
    assert counts == [8, 9, 8, 10]
