"""The package itself: its names, its enums, and what an import costs."""

import subprocess
import sys

import pytest

import mindspore_lite as mslite


def test_all_names_what_exists():
    namespace = {}
    exec("from mindspore_lite import *", namespace)
    classes = {"Context", "DataType", "Format", "Model", "ModelGroup", "ModelGroupFlag", "ModelParallelRunner"}
    classes |= {"ModelType", "Tensor", "TensorMeta"}
    assert classes <= namespace.keys()
    assert set(mslite.__all__) == classes


def test_submodules_are_attributes():
    assert mslite.context.Context is mslite.Context
    assert mslite.model.Model is mslite.Model
    assert mslite.model.ModelType is mslite.ModelType
    assert mslite.tensor.Tensor is mslite.Tensor
    assert mslite.tensor.DataType is mslite.DataType
    assert mslite.tensor.Format is mslite.Format
    assert mslite.version.__version__ == mslite.__version__


def test_version_is_one_that_programs_accept():
    assert mslite.__version__ >= "2.0"  # callers compare the texts like this


@pytest.mark.parametrize("name", ["Converter", "LiteInfer"])
def test_what_is_not_there_yet_is_no_stub(name):
    assert not hasattr(mslite, name)


def test_data_type_numbers():  # as seen on 2.0.0
    assert {kind.name: kind.value for kind in mslite.DataType} == {
        "UNKNOWN": 0,
        "BOOL": 30,
        "INT8": 32,
        "INT16": 33,
        "INT32": 34,
        "INT64": 35,
        "UINT8": 37,
        "UINT16": 38,
        "UINT32": 39,
        "UINT64": 40,
        "FLOAT16": 42,
        "FLOAT32": 43,
        "FLOAT64": 44,
        "INVALID": 2147483647,
    }


def test_format_numbers():  # as seen on 2.0.0
    assert [kind.name for kind in mslite.Format if kind.value < 8] == [
        "DEFAULT", "NCHW", "NHWC", "NHWC4", "HWKC", "HWCK", "KCHW", "CKHW", "KHWC",
    ]  # fmt: skip
    assert [kind.name for kind in mslite.Format if kind.value >= 8] == [
        "CHWK", "HW", "HW4", "NC", "NC4", "NC4HW4", "NCDHW", "NWC", "NCW", "NDHWC", "NC8HW8",
    ]  # fmt: skip
    assert [kind.value for kind in mslite.Format] == [-1, *range(14), *range(15, 20)]


def test_model_type_numbers():  # as seen on 2.0.0
    assert {kind.name: kind.value for kind in mslite.ModelType} == {"MINDIR": 0, "MINDIR_LITE": 4}


@pytest.mark.parametrize(
    ("member", "text"),
    [
        (mslite.DataType.FLOAT32, "DataType.FLOAT32"),
        (mslite.Format.NHWC, "Format.NHWC"),
        (mslite.ModelType.MINDIR, "ModelType.MINDIR"),
    ],
)
def test_text_of_an_enum(member, text):
    assert str(member) == text


def test_import_loads_no_engine():
    program = (
        "import sys, mindspore_lite\n"
        "heavy = {'onnxruntime', 'openvino', 'onnx', 'onnx_ir', 'google.protobuf', 'cryptography', 'torch', 'rich'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
