"""The package itself: its names, its enums, and what an import costs. What is expected was seen on 1.13.0."""

import doctest
import importlib
import inspect
import logging
import pkgutil
import subprocess
import sys
from ctypes import ArgumentError
from pathlib import Path

import pytest

import megenginelite
from megenginelite import get_log_level, set_log_level

OWN = {
    "LiteAlgoSelectStrategy", "LiteAsyncCallback", "LiteBackend", "LiteConfig", "LiteDataType", "LiteDecryptionFunc",
    "LiteDeviceType", "LiteExtraConfig", "LiteFinishCallback", "LiteGlobal", "LiteIO", "LiteIOType", "LiteLayout",
    "LiteLogLevel", "LiteNetwork", "LiteNetworkIO", "LiteOptions", "LiteStartCallback", "LiteTensor",
    "LiteTensorConcat", "LiteTensorPhase", "MAX_DIM", "TensorBatchCollector", "check_misc", "config_env",
    "ctype_to_lite_dtypes", "decryption_func", "get_log_level", "get_model_io_info", "lite_dtype_2_numpy",
    "set_log_level", "start_finish_callback", "version", "wrap_async_callback",
}  # fmt: skip
MODULES = {"base", "global_setting", "network", "struct", "tensor", "utils"}
STANDARD = {"Enum", "IntEnum", "ctypes", "glob", "io", "logging", "np", "os", "sys", "threading", "warnings"}
CTYPES = {
    "ARRAY", "ArgumentError", "Array", "BigEndianStructure", "CDLL", "CFUNCTYPE", "DEFAULT_MODE", "LibraryLoader",
    "LittleEndianStructure", "POINTER", "PYFUNCTYPE", "PyDLL", "RTLD_GLOBAL", "RTLD_LOCAL", "SetPointerType",
    "Structure", "Union", "addressof", "alignment", "byref", "c_bool", "c_buffer", "c_byte", "c_char", "c_char_p",
    "c_double", "c_float", "c_int", "c_int16", "c_int32", "c_int64", "c_int8", "c_long", "c_longdouble", "c_longlong",
    "c_short", "c_size_t", "c_ssize_t", "c_ubyte", "c_uint", "c_uint16", "c_uint32", "c_uint64", "c_uint8", "c_ulong",
    "c_ulonglong", "c_ushort", "c_void_p", "c_voidp", "c_wchar", "c_wchar_p", "cast", "cdll", "create_string_buffer",
    "create_unicode_buffer", "get_errno", "memmove", "memset", "pointer", "py_object", "pydll", "pythonapi", "resize",
    "set_errno", "sizeof", "string_at", "wstring_at",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _level():
    """Put the log level back."""
    before, number = logging.getLogger("megenginelite").level, get_log_level()
    yield
    set_log_level(number)
    logging.getLogger("megenginelite").setLevel(before)


def test_star_import_gives_what_the_original_gives():
    namespace = {}
    exec("from megenginelite import *", namespace)
    assert namespace.keys() >= OWN | MODULES | STANDARD | CTYPES


def test_submodules_have_their_names():
    assert megenginelite.tensor.LiteTensor is megenginelite.LiteTensor
    assert megenginelite.network.LiteNetwork is megenginelite.LiteNetwork
    assert megenginelite.network.LiteConfig is megenginelite.LiteConfig
    assert megenginelite.global_setting.LiteGlobal is megenginelite.LiteGlobal
    assert megenginelite.utils.TensorBatchCollector is megenginelite.TensorBatchCollector
    assert megenginelite.struct.LiteDataType is megenginelite.LiteDataType
    assert megenginelite.base.version == megenginelite.version


def test_version():
    assert megenginelite.version == megenginelite.__version__ == "1.13.0"


@pytest.mark.parametrize(
    ("enum", "numbers"),
    [
        ("LiteBackend", {"LITE_DEFAULT": 0}),
        (
            "LiteDeviceType",
            {
                "LITE_CPU": 0,
                "LITE_CUDA": 1,
                "LITE_ATLAS": 3,
                "LITE_NPU": 4,
                "LITE_CAMBRICON": 5,
                "LITE_DEVICE_DEFAULT": 7,
            },
        ),
        (
            "LiteDataType",
            {
                "LITE_FLOAT": 0,
                "LITE_HALF": 1,
                "LITE_INT": 2,
                "LITE_INT16": 3,
                "LITE_INT8": 4,
                "LITE_UINT8": 5,
                "LITE_UINT16": 6,
            },
        ),
        ("LiteTensorPhase", {"LITE_IO": 0, "LITE_INPUT": 1, "LITE_OUTPUT": 2}),
        ("LiteIOType", {"LITE_IO_VALUE": 0, "LITE_IO_SHAPE": 1}),
        (
            "LiteAlgoSelectStrategy",
            {
                "LITE_ALGO_HEURISTIC": 1,
                "LITE_ALGO_PROFILE": 2,
                "LITE_ALGO_REPRODUCIBLE": 4,
                "LITE_ALGO_OPTIMIZED": 8,
            },
        ),
        ("LiteLogLevel", {"DEBUG": 0, "INFO": 1, "WARN": 2, "ERROR": 3}),
    ],
)
def test_enum_numbers(enum, numbers):
    assert {member.name: member.value for member in getattr(megenginelite, enum)} == numbers


def test_text_of_an_enum():
    member = megenginelite.LiteDataType.LITE_INT
    assert (str(member), f"{member}", repr(member)) == ("LiteDataType.LITE_INT", "2", "<LiteDataType.LITE_INT: 2>")
    strategies = megenginelite.LiteAlgoSelectStrategy
    assert strategies.LITE_ALGO_HEURISTIC | strategies.LITE_ALGO_PROFILE == 3


@pytest.mark.parametrize("level", [0, 1, 2, 3, megenginelite.LiteLogLevel.ERROR])
def test_log_level(level):  # in the original, 3 crashes
    set_log_level(level)
    assert get_log_level() == level


def test_log_level_is_that_of_the_logger():
    set_log_level(megenginelite.LiteLogLevel.WARN)
    assert logging.getLogger("megenginelite").level == logging.WARNING


def test_wrong_log_levels():
    with pytest.raises(RuntimeError, match="unkonw loglevel"):
        set_log_level(-1)
    with pytest.raises(ArgumentError, match="wrong type"):
        set_log_level("a")


def test_functions_for_native_libraries_do_nothing():
    assert megenginelite.check_misc() is None
    assert megenginelite.config_env() is None


def test_import_loads_no_engine():
    program = (
        "import sys, megenginelite\n"
        "heavy = {'onnxruntime', 'openvino', 'onnx', 'onnx_ir', 'google.protobuf', 'cryptography', 'torch', 'rich'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", sorted(OWN))
def test_public_things_have_docstrings(name):
    thing = getattr(megenginelite, name)
    assert inspect.getdoc(thing)
    if inspect.isclass(thing) and thing.__module__.startswith("megenginelite"):
        for member, value in vars(thing).items():
            if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                assert inspect.getdoc(value), f"{name}.{member}"


def test_typed():
    assert (Path(megenginelite.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("name", ["", *(f".{module.name}" for module in pkgutil.iter_modules(megenginelite.__path__))])
def test_docstring_examples(name):
    assert doctest.testmod(importlib.import_module(f"megenginelite{name}")).failed == 0
