"""LiteLayout, LiteOptions, LiteConfig, LiteIO, LiteNetworkIO. What is expected was seen on 1.13.0."""

import ctypes

import numpy as np
import pytest

from megenginelite import (
    MAX_DIM,
    LiteConfig,
    LiteDataType,
    LiteDeviceType,
    LiteExtraConfig,
    LiteIO,
    LiteIOType,
    LiteLayout,
    LiteNetworkIO,
    LiteOptions,
    ctype_to_lite_dtypes,
    lite_dtype_2_numpy,
)

OPTIONS = (
    "{'weight_preprocess': False, 'fuse_preprocess': False, 'fake_next_exec': False, "
    "'var_sanity_check_first_run': True, 'const_shape': False, 'force_dynamic_alloc': False, "
    "'force_output_dynamic_alloc': False, 'force_output_use_user_specified_memory': False, "
    "'no_profiling_on_shape_change': False, 'jit_level': 0, 'comp_node_seq_record_level': 0, 'graph_opt_level': 2, "
    "'async_exec_level': 1}"
)
EMPTY = "{'shapes': [], 'ndim': 0, 'data_type': <class 'numpy.float32'>}"


def test_sizes_are_those_of_the_c_structures():
    structures = (LiteLayout, LiteOptions, LiteConfig, LiteExtraConfig, LiteIO)
    assert [ctypes.sizeof(structure) for structure in structures] == [72, 80, 120, 4, 88]
    assert MAX_DIM == 7


def test_layout():
    assert repr(LiteLayout()) == EMPTY
    layout = LiteLayout((1, 2, 3), "int8")
    assert repr(layout) == "{'shapes': [1, 2, 3], 'ndim': 3, 'data_type': <class 'numpy.int8'>}"
    layout.shapes = [4, 5]
    assert (layout.shapes, layout.ndim, layout.data_type, layout.dtype) == ([4, 5], 2, 4, np.int8)
    layout.data_type = LiteDataType.LITE_INT16
    assert layout.dtype is np.int16
    assert LiteLayout([2]) != LiteLayout([2])


@pytest.mark.parametrize(
    ("dtype", "number"),
    [
        (None, 0),
        ("float32", 0),
        ("half", 1),
        ("float16", 1),
        (np.int32, 2),
        (np.dtype("int16"), 3),
        ("int8", 4),
        (np.uint8, 5),
        (np.dtype("uint16"), 6),
        (LiteDataType.LITE_HALF, 1),
        (LiteDataType.LITE_UINT16, 6),
        (np.dtype("float16"), 1),  # NotImplementedError in the original
        ("bool", 5),  # KeyError in the original
        (np.bool_, 5),
        (np.dtype("bool"), 5),
    ],
)
def test_layout_dtypes(dtype, number):
    assert LiteLayout([2], dtype).data_type == number


@pytest.mark.parametrize(
    ("dtype", "key"),
    [
        ("float64", np.dtype("float64")),
        (np.int64, np.int64),
        (np.dtype("float64"), ctypes.c_double),
        (int, int),
    ],
)
def test_layout_without_a_type(dtype, key):
    with pytest.raises(KeyError) as caught:
        LiteLayout([2], dtype)
    assert caught.value.args == (key,)


@pytest.mark.parametrize("dtype", [2, 1.5, LiteDeviceType.LITE_CUDA])
def test_layout_of_no_dtype(dtype):
    with pytest.raises(RuntimeError, match=r"^unkonw data type$"):
        LiteLayout([2], dtype)


def test_layout_has_at_most_seven_sizes():
    with pytest.raises(AssertionError, match=r"Layout max dim is 7\."):
        LiteLayout([1] * 8)
    with pytest.raises(AssertionError, match=r"Layout max dim is 7\."):
        LiteLayout().shapes = [1] * 8


def test_lite_dtype_2_numpy():
    kinds = [np.float32, np.float16, np.int32, np.int16, np.int8, np.uint8, np.uint16]
    assert [lite_dtype_2_numpy(number) for number in LiteDataType] == kinds
    with pytest.raises(AssertionError, match="input must be LiteDataType when using lite_dtype_2_numpy"):
        lite_dtype_2_numpy(0)


def test_ctype_to_lite_dtypes():
    assert {kind.__name__: number.name for kind, number in ctype_to_lite_dtypes.items()} == {
        "c_int": "LITE_INT",
        "c_uint": "LITE_INT",
        "c_float": "LITE_FLOAT",
        "c_ubyte": "LITE_UINT8",
        "c_byte": "LITE_INT8",
        "c_short": "LITE_INT16",
        "c_ushort": "LITE_UINT16",
    }


def test_options():
    options = LiteOptions()
    values = {name: getattr(options, name) for name, _ in LiteOptions._fields_}
    assert list(values)[13:] == [
        "enable_nchw44", "enable_nchw44_dot", "enable_nchw88", "enable_nhwcd4", "enable_nchw4", "enable_nchw32",
        "enable_nchw64",
    ]  # fmt: skip
    assert {name: value for name, value in values.items() if value} == {
        "var_sanity_check_first_run": 1,
        "graph_opt_level": 2,
        "async_exec_level": 1,
    }
    assert repr(options) == OPTIONS


def test_config():
    assert repr(LiteConfig()) == (
        "{'has_compression': False, 'device_id': <LiteDeviceType.LITE_CPU: 0>, "
        "'device_type': <LiteDeviceType.LITE_CPU: 0>, 'backend': <LiteBackend.LITE_DEFAULT: 0>, "
        f"'bare_model_cryption_name': '', 'options': {OPTIONS}, 'auto_optimize_inference': 0, "
        "'discrete_input_name': b''}"
    )
    assert LiteConfig(LiteDeviceType.LITE_CUDA).device_type == 1


def test_config_copies_its_options():
    options = LiteOptions()
    options.jit_level = 3
    config = LiteConfig(option=options)
    options.jit_level = 5
    assert config.options.jit_level == 3
    with pytest.raises(TypeError, match="expected LiteOptions instance, got int"):
        LiteConfig(option=3)


def test_config_shows_a_device_that_is_none():  # ValueError in the original
    config = LiteConfig()
    config.device_id = 2
    assert "'device_id': 2" in repr(config)


def test_cryption_name():
    config = LiteConfig()
    for name in ("abc", b"abc"):
        config.bare_model_cryption_name = name
        assert config.bare_model_cryption_name == "abc"
        assert config._bare_model_cryption_name == b"abc"
    with pytest.raises(AssertionError, match=r"name should be str or bytes type\."):
        config.bare_model_cryption_name = 3


def test_extra_config():
    assert repr(LiteExtraConfig()) == "{'disable_configure_by_model_info': False}"
    assert LiteExtraConfig(True).disable_configure_by_model_info == 1


def test_io():
    io = LiteIO("data", False, LiteIOType.LITE_IO_SHAPE, LiteLayout([1, 2], "int8"))
    assert repr(io) == (
        "{'name': 'data', 'is_host': False, 'io_type': <LiteIOType.LITE_IO_SHAPE: 1>, "
        "'config_layout': {'shapes': [1, 2], 'ndim': 2, 'data_type': <class 'numpy.int8'>}}"
    )
    assert hash(io) == hash("data")
    assert io != LiteIO("data", False, LiteIOType.LITE_IO_SHAPE, LiteLayout([1, 2], "int8"))
    io.name = b"other"
    assert (io.name, io._name) == ("other", b"other")
    with pytest.raises(TypeError, match="expected LiteLayout instance, got list"):
        LiteIO("data", layout=[1, 2])
    with pytest.raises(TypeError):  # a crash in the original
        LiteIO(3)


def test_network_io():
    io = LiteNetworkIO([["data", False]], [LiteIO("out"), ["shape", True, LiteIOType.LITE_IO_SHAPE]])
    assert [(item.name, item.is_host, item.io_type) for item in io.inputs] == [("data", 0, 0)]
    assert [(item.name, item.is_host, item.io_type) for item in io.outputs] == [("out", 1, 0), ("shape", 1, 1)]
    assert repr(LiteNetworkIO()) == "{'inputs': [], 'outputs': []}"


def test_network_io_grows():
    io = LiteNetworkIO()
    given = LiteIO("a")
    io.add_input(given)
    io.add_input("b", False)
    io.add_output("c", True, LiteIOType.LITE_IO_SHAPE, LiteLayout([3]))
    assert io.inputs[0] is given
    assert [item.name for item in io.inputs] == ["a", "b"]
    assert io.outputs[0].config_layout.shapes == [3]
    structure = io._create_network_io()
    assert (structure.input_size, structure.output_size) == (2, 1)
    assert (structure.inputs[1].name, structure.outputs[0].name) == ("b", "c")


@pytest.mark.parametrize("inputs", [["data"], [("data",)], "data"])
def test_network_io_of_something_else(inputs):
    with pytest.raises(AssertionError, match="the param to construct LiteNetworkIO must be list of the LiteIO member"):
        LiteNetworkIO(inputs)
