"""Verdicts on engines: settings that make them safe, and what a model needs of them."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from engines.support import ENDLESS, ILLEGAL, PASS, Trials, verdict
from onnx import TensorProto, helper, numpy_helper

import litehouse
from conftest import FIXTURES
from litehouse import formats
from litehouse.engines import safety
from litehouse.engines.openvino import OpenVinoEngine
from litehouse.engines.safety import CAP, Verdict
from litehouse.engines.trials import __main__ as trial

pytestmark = pytest.mark.usefixtures("unknown")
AMX = frozenset({"avx", "avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile"})


# Safe settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "own", "expected"),
    [
        (AMX, {}, ["AVX512_CORE_FP16", "AVX512_CORE", "AVX2", "AVX", "SSE41"]),
        (AMX - {"amx_tile"}, {}, ["AVX512_CORE", "AVX2", "AVX", "SSE41"]),
        ({"avx", "avx2", "avx512f"}, {}, ["AVX2", "AVX", "SSE41"]),
        ({"avx", "avx2", "avx_vnni"}, {}, ["AVX2", "AVX", "SSE41"]),
        ({"avx", "avx2"}, {}, ["AVX", "SSE41"]),
        ({"avx"}, {}, ["SSE41"]),
        ({"sse4_1"}, {}, []),
        (set(), {}, []),
        (AMX, {CAP: "avx512_core"}, ["AVX2", "AVX", "SSE41"]),
        (AMX, {"DNNL_MAX_CPU_ISA": "AVX2"}, ["AVX", "SSE41"]),
        (AMX, {CAP: "AVX512_CORE_VNNI"}, ["SSE41"]),
        (AMX, {CAP: "SSE41"}, []),
    ],
)
def test_settings_are_lower_than_what_there_is(
    monkeypatch: pytest.MonkeyPatch, flags: set[str], own: Mapping[str, str], expected: list[str]
) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: frozenset(flags))
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    assert [setting[CAP] for setting in safety._safe_settings("openvino")] == expected
    assert safety._safe_settings("onnxruntime") == []


def test_the_first_setting_that_passes_is_taken(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: AMX)
    trials.program(f"if os.environ.get({CAP!r}) not in ('AVX512_CORE', 'AVX2'): {ILLEGAL}\n{PASS}")
    found = verdict("openvino", "int8")
    assert found == Verdict(
        "openvino", "int8", True, "it dies of an illegal instruction (SIGILL)", {CAP: "AVX512_CORE"}
    )
    assert trials.caps == ["-", "AVX512_CORE_FP16", "AVX512_CORE"]
    safety._known.clear()
    assert verdict("openvino", "int8") == found
    assert len(trials.caps) == 3


def test_no_setting_passes(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: frozenset({"avx", "avx2"}))
    trials.program(f"print('broken it is off by ' + os.environ.get({CAP!r}, 'much'))")
    assert verdict("openvino", "fp32") == Verdict("openvino", "fp32", False, "it is off by much")
    assert trials.caps == ["-", "AVX", "SSE41"]


@pytest.mark.parametrize("code", ["print('absent none')", ENDLESS, "import nothing"])
def test_no_setting_helps_against(trials: Trials, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(safety, "cpu_flags", lambda: AMX)
    trials.program(code)
    assert not verdict("openvino", "bf16").safe
    assert trials.caps == ["-"]


CAPPED = Verdict("openvino", "int8", True, "it dies", {CAP: "AVX2"})


def test_settings_are_put_in_force(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "_is_loaded", lambda _: False)
    monkeypatch.setenv(CAP, "")
    assert safety.apply(CAPPED) == CAPPED
    assert os.environ[CAP] == "AVX2"
    lower = Verdict("openvino", "fp32", True, "it dies", {CAP: "SSE41"})
    assert safety.apply(lower) == lower
    assert os.environ[CAP] == "SSE41"
    monkeypatch.setattr(safety, "_is_loaded", lambda _: True)
    assert safety.apply(CAPPED) == CAPPED  # what is in force is lower still


@pytest.mark.parametrize("own", ["", "AVX512_CORE"])
def test_a_trial_is_for_any_process(trials: Trials, monkeypatch: pytest.MonkeyPatch, own: str) -> None:
    """What this process has put in force for another precision is not there in the trial."""
    monkeypatch.setattr(safety, "_is_loaded", lambda _: False)
    monkeypatch.setenv(CAP, own)
    safety.apply(CAPPED)
    trials.program(PASS)
    verdict("openvino", "fp32")
    assert os.environ[CAP] == "AVX2"
    assert trials.caps == [own or "none"]


def test_a_library_that_was_loaded_without_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "_is_loaded", lambda _: True)
    held = safety.apply(CAPPED)
    assert not held.safe
    assert held.reason.startswith(
        f"it dies; with {CAP}=AVX2 it is safe, but it was loaded in this process without that"
    )
    assert CAP not in os.environ
    plain = Verdict("openvino", "fp32", True)
    assert safety.apply(plain) == plain


def test_refusal(trials: Trials, monkeypatch: pytest.MonkeyPatch) -> None:
    trials.program(f"if sys.argv[2] == 'int8': {ILLEGAL}\n{PASS}")
    assert safety.refusal("openvino", {"fp32"}) is None
    text = safety.refusal("openvino", {"fp32", "int8"})
    assert text is not None
    assert text.startswith("it is not safe here in int8: it dies of an illegal instruction (SIGILL); ")


# What a model needs ---------------------------------------------------------------------------------------------------


def _needs(*nodes: onnx.NodeProto) -> set[str]:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    constants = [
        helper.make_tensor("step", TensorProto.FLOAT, [], [0.5]),
        helper.make_tensor("true", TensorProto.BOOL, [], [True]),
    ]
    graph = helper.make_graph(list(nodes), "g", [x], [y], constants)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return safety.needs(formats.read(made.SerializeToString()))


QUANTISED = (
    helper.make_node("QuantizeLinear", ["x", "step"], ["q"]),
    helper.make_node("DequantizeLinear", ["q", "step"], ["y"]),
)


def test_needs_of_floats() -> None:
    assert _needs(helper.make_node("Neg", ["x"], ["y"])) == {"fp32"}


def test_needs_of_quantised_numbers() -> None:
    assert _needs(*QUANTISED) == {"fp32", "int8"}
    dynamic = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    assert _needs(dynamic, helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])) == {"fp32", "int8"}


def test_needs_of_a_branch() -> None:
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    plain = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "else", [], [out])
    inner = helper.make_graph(list(QUANTISED), "then", [], [out])
    assert _needs(helper.make_node("If", ["true"], ["y"], then_branch=inner, else_branch=plain)) == {"fp32", "int8"}


def _weighted(dtype: int, shape: list[int], *, as_node: bool = False) -> litehouse.Model:
    """A network that makes floats of a weight, as `.ms` files are translated."""
    weight = helper.make_tensor("weight", dtype, shape, np.ones(shape, int).ravel())
    nodes = [
        helper.make_node("Cast", ["weight"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["float", "x"], ["y"]),
    ]
    if as_node:
        nodes.insert(0, helper.make_node("Constant", [], ["weight"], value=weight))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(nodes, "g", [x], [y], [] if as_node else [weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return formats.read(made.SerializeToString())


@pytest.mark.parametrize("as_node", [False, True])
@pytest.mark.parametrize("dtype", ["INT8", "UINT8", "INT4", "UINT4"])
def test_small_weights_need_int8(dtype: str, as_node: bool) -> None:
    assert safety.needs(_weighted(TensorProto.DataType.Value(dtype), [4, 4], as_node=as_node)) == {"fp32", "int8"}


@pytest.mark.parametrize(("dtype", "shape"), [("INT8", [4]), ("BOOL", [4, 4]), ("INT16", [4, 4]), ("FLOAT", [4, 4])])
def test_other_weights_do_not(dtype: str, shape: list[int]) -> None:
    assert safety.needs(_weighted(TensorProto.DataType.Value(dtype), shape)) == {"fp32"}


def test_small_weights_of_a_branch() -> None:
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])
    weight = numpy_helper.from_array(np.ones((2, 2), np.int8), "weight")
    cast = helper.make_node("Cast", ["weight"], ["y"], to=TensorProto.FLOAT)
    inner = helper.make_graph([cast], "branch", [], [out], [weight])
    assert _needs(helper.make_node("If", ["true"], ["y"], then_branch=inner, else_branch=inner)) == {"fp32", "int8"}


def test_a_ms_file_with_small_weights() -> None:
    assert safety.needs(litehouse.read(FIXTURES / "converted" / "net_cnn_weight_quant.ms")) == {"fp32", "int8"}


# What OpenVINO is told ------------------------------------------------------------------------------------------------


@pytest.mark.openvino
@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_trials_tell_openvino_what_the_engine_does(monkeypatch: pytest.MonkeyPatch, precision: str) -> None:
    import openvino

    told: list[dict[str, object]] = []

    def compile_model(_core: object, _model: object, _device: str, settings: dict[str, object]) -> None:
        told.append(settings)
        raise RuntimeError("enough")

    monkeypatch.setattr(openvino.Core, "compile_model", compile_model)
    case = next(trial.float_cases())
    with pytest.raises(RuntimeError, match="enough"):
        trial.RUNNERS["openvino"](precision)(case, 2)
    with pytest.raises(litehouse.EngineError, match="enough"):
        OpenVinoEngine().compile(formats.read(case.model), litehouse.Options(threads=2))
    assert told[0] == told[1]


@pytest.mark.openvino
def test_floats_are_not_rounded_where_weights_are_small() -> None:
    """On CPUs with VNNI or AMX OpenVINO does that unless it is told not to."""
    model = _weighted(TensorProto.INT8, [4, 4])
    compiled = OpenVinoEngine().compile(model, litehouse.Options(threads=1)).compiled
    assert int(compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE")) == 0
    assert str(compiled.get_property("INFERENCE_PRECISION_HINT")) == "<Type: 'float32'>"


# Whether it is too late -----------------------------------------------------------------------------------------------


def test_whether_the_library_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    monkeypatch.setattr(safety, "MAPS", maps)
    maps.write_text("7f00-7f01 r-xp 00000000 00:01 1 /usr/lib/libc.so.6\n")
    assert not safety._is_loaded("openvino")
    maps.write_text("7f00-7f01 r-xp 00000000 00:01 1 /x/openvino/libs/libopenvino_intel_cpu_plugin.so\n")
    assert safety._is_loaded("openvino")
    maps.unlink()
    monkeypatch.setitem(sys.modules, "openvino", sys)
    assert safety._is_loaded("openvino")  # nothing tells that it is not
    monkeypatch.delitem(sys.modules, "openvino")
    assert not safety._is_loaded("openvino")
