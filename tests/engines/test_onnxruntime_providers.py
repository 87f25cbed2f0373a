"""Which provider of ONNX Runtime a session gets, and what is said where it is missing: no such device is needed."""

import types
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from engines.provider_support import CANN, CPU, CUDA, TENSORRT, Build

import litehouse
from litehouse.engines.onnxruntime import OnnxRuntimeEngine
from litehouse.engines.onnxruntime_providers import load_libraries, make_providers, tensorrt_library, tensorrt_release
from litehouse.options import Options
from onnx_models import mlp, mlp_result

X = np.ones((2, 4), "f")


def _load(**fields: Any) -> litehouse.Session:
    return litehouse.load(mlp(), **{"cache": False, **fields})


def _refusal(**fields: Any) -> str | None:
    return OnnxRuntimeEngine().available(Options(**fields))


CUDA_SETTINGS = {
    "arena_extend_strategy": "kSameAsRequested",
    "use_tf32": "0",
    "cudnn_conv_algo_search": "HEURISTIC",
}


@pytest.mark.parametrize(
    ("fields", "providers"),
    [
        ({}, [CPU]),
        ({"device": "gpu"}, [(CUDA, {"device_id": "0", **CUDA_SETTINGS}), CPU]),
        ({"device": "gpu:1"}, [(CUDA, {"device_id": "1", **CUDA_SETTINGS}), CPU]),
        ({"device": "gpu", "precision": "tf32"}, [(CUDA, {"device_id": "0", **CUDA_SETTINGS, "use_tf32": "1"}), CPU]),
        (
            {"device": "gpu", "provider": "cuda", "precision": "fp16"},
            [(CUDA, {"device_id": "0", **CUDA_SETTINGS}), CPU],
        ),
        (
            {"device": "gpu:2", "provider": "tensorrt"},
            [(TENSORRT, {"device_id": "2"}), (CUDA, {"device_id": "2", **CUDA_SETTINGS}), CPU],
        ),
        (
            {"device": "gpu", "provider": "tensorrt", "precision": "fp16"},
            [
                (TENSORRT, {"device_id": "0", "trt_fp16_enable": "1"}),
                (CUDA, {"device_id": "0", **CUDA_SETTINGS}),
                CPU,
            ],
        ),
        (
            {"device": "ascend:3"},
            [
                (
                    CANN,
                    {
                        "device_id": "3",
                        "arena_extend_strategy": "kSameAsRequested",
                        "precision_mode": "must_keep_origin_dtype",
                    },
                ),
                CPU,
            ],
        ),
        (
            {"device": "ascend", "precision": "fp16"},
            [
                (
                    CANN,
                    {
                        "device_id": "0",
                        "arena_extend_strategy": "kSameAsRequested",
                        "precision_mode": "allow_mix_precision",
                    },
                ),
                CPU,
            ],
        ),
    ],
)
def test_the_providers_of_a_session(build: Build, fields: dict[str, Any], providers: list[Any]) -> None:
    build.there = [TENSORRT, CUDA, CANN, CPU]
    session = _load(**{"engine": "onnxruntime", **fields})
    assert build.given == [providers]
    assert [more["enable_fallback"] for more in build.settings] == [0]  # else it would go on with the CPU
    np.testing.assert_allclose(session.run([X])[0], mlp_result(X), rtol=1e-4)


def test_a_folder_for_engines(build: Build, tmp_path: Path) -> None:
    options = Options(device="gpu", provider="tensorrt")
    (_, settings), *_ = make_providers(onnxruntime, options, tmp_path)
    assert settings == {
        "device_id": "0",
        "trt_engine_cache_enable": "1",
        "trt_engine_cache_path": str(tmp_path),
        "trt_timing_cache_enable": "1",
        "trt_timing_cache_path": str(tmp_path),
    }


@pytest.mark.parametrize(
    ("fields", "library", "precision"),
    [
        ({"provider": "tensorrt"}, "libnvinfer.so.10", "fp32"),
        ({"provider": "tensorrt", "precision": "fp16"}, "libnvinfer.so.10", "fp16"),
        ({"provider": "tensorrt", "precision": "fp16"}, "libnvinfer.so.11", "fp32"),
        ({"provider": "tensorrt", "precision": "fp16"}, "", "fp32"),  # nobody knows what the flag would do
        ({"provider": "tensorrt", "precision": "fp16", "op_precision": {"a": "float32"}}, "libnvinfer.so.10", "fp32"),
        ({"provider": "cuda", "precision": "fp16"}, "libnvinfer.so.10", "fp32"),
        ({"provider": "cuda", "precision": "tf32"}, "", "tf32"),
        ({"provider": "tensorrt", "precision": "tf32"}, "libnvinfer.so.10", "tf32"),
        ({"device": "ascend", "precision": "tf32"}, "", "fp32"),
        ({"device": "ascend", "precision": "fp16"}, "", "fp16"),
        ({"device": "ascend"}, "", "fp32"),
    ],
)
def test_what_is_computed_in(build: Build, fields: dict[str, Any], library: str, precision: str) -> None:
    build.there, build.library = [TENSORRT, CUDA, CANN, CPU], library
    session = _load(**{"device": "gpu", **fields})
    assert session.precision == precision
    _, settings = build.given[0][0]
    assert settings.get("trt_fp16_enable", "0") == str(int(precision == "fp16" and "provider" in fields))


def test_without_torch_cuda_serves_the_gpu(build: Build) -> None:
    session = _load(device="gpu", tune="off")
    assert session.engine == "onnxruntime"
    assert [provider[0] for provider in build.given[0][:1]] == [CUDA]


@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_a_provider_that_is_asked_for_leaves_torch_out(
    build: Build, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    from litehouse.engines.torch.engine import TorchEngine

    monkeypatch.setattr(TorchEngine, "available", lambda *_: pytest.fail("torch was looked at"))
    session = _load(device="gpu", provider=provider, tune="fast")
    assert session.engine == "onnxruntime"
    assert session.engine.reason == f"the provider '{provider}' was asked for"
    assert len(build.given) == 1  # it was built once, and nothing was timed


@pytest.mark.parametrize(
    ("there", "fields", "reason"),
    [
        (
            [CPU],
            {"device": "gpu"},
            "the installed onnxruntime is the one for the CPU; install onnxruntime-gpu in its place",
        ),
        (
            ["AzureExecutionProvider", CPU],
            {"device": "gpu", "provider": "tensorrt"},
            "the installed onnxruntime is the one for the CPU; install onnxruntime-gpu in its place, and TensorRT "
            "beside it",
        ),
        (
            [CPU],
            {"device": "ascend"},
            "the installed onnxruntime is the one for the CPU; install onnxruntime-cann in its place",
        ),
        (
            [CUDA, CPU],
            {"device": "ascend"},
            "the installed onnxruntime has no CANN provider; install onnxruntime-cann in its place",
        ),
        (
            [CANN, CPU],
            {"device": "gpu"},
            "the installed onnxruntime has no CUDA provider; install onnxruntime-gpu in its place",
        ),
        (
            [CUDA, CPU],
            {"device": "gpu", "provider": "tensorrt"},
            "the installed onnxruntime has no TensorRT provider; install a build that has one, or use "
            "provider='cuda', or no provider, with torch",
        ),
        ([CUDA, CPU], {"device": "gpu"}, None),
        ([CUDA, CPU], {"device": "gpu", "provider": "cuda"}, None),
        ([TENSORRT, CUDA, CPU], {"device": "gpu", "provider": "tensorrt"}, None),
        ([CANN, CPU], {"device": "ascend"}, None),
        ([CPU], {}, None),
    ],
)
def test_what_the_installed_build_lacks(
    build: Build, there: list[str], fields: dict[str, Any], reason: str | None
) -> None:
    build.there = there
    assert _refusal(**fields) == reason


def test_tensorrt_itself_is_missing(build: Build) -> None:
    build.missing = ["libnvinfer.so.10"]
    assert _refusal(device="gpu", provider="tensorrt") == (
        "TensorRT cannot be loaded (libnvinfer.so.10: cannot open shared object file); install its version 10, or use "
        "provider='cuda', or no provider, with torch"
    )
    assert _refusal(device="gpu") is None
    build.library = ""  # then only a session can tell
    assert _refusal(device="gpu", provider="tensorrt") is None


def test_nothing_serves_the_gpu(build: Build) -> None:
    build.there = [CPU]
    with pytest.raises(litehouse.EngineError) as caught:
        _load(device="gpu")
    text = str(caught.value)
    assert text.startswith("no engine can run on 'gpu'. torch: torch does not import (")
    assert text.endswith(
        "; install it with: pip install torch. onnxruntime: the installed onnxruntime is the one for the CPU; install "
        "onnxruntime-gpu in its place"
    )


def test_nothing_serves_a_provider_or_the_npu(build: Build) -> None:
    build.there = [CPU]
    with pytest.raises(litehouse.EngineError) as caught:
        _load(device="gpu", provider="cuda")
    assert str(caught.value) == (
        "no engine can run on 'gpu'. onnxruntime: the installed onnxruntime is the one for the CPU; install "
        "onnxruntime-gpu in its place"
    )
    with pytest.raises(litehouse.EngineError, match=r"on 'ascend:1'\. onnxruntime: .* install onnxruntime-cann in its"):
        _load(device="ascend:1")


def test_only_cuda_is_in_use_where_tensorrt_was_asked_for(build: Build) -> None:
    build.failing = [TENSORRT]
    with pytest.raises(litehouse.EngineError) as caught:
        _load(device="gpu", provider="tensorrt")
    assert str(caught.value) == (
        "<bytes>: ONNX Runtime cannot use TensorRT on this machine, only CUDAExecutionProvider, CPUExecutionProvider; "
        "check that TensorRT is installed in the version that this onnxruntime is built for, or use provider='cuda', "
        "or no provider, with torch"
    )
    assert _load(device="gpu", provider="cuda").engine == "onnxruntime"


@pytest.mark.parametrize(("device", "name"), [("gpu:1", CUDA), ("ascend:0", CANN)])
def test_only_the_cpu_is_in_use(build: Build, device: str, name: str) -> None:
    build.there, build.failing = [CUDA, CANN, CPU], [name]
    with pytest.raises(litehouse.EngineError, match=f"ONNX Runtime cannot use '{device}' on this machine; check that"):
        _load(device=device)


def test_an_error_of_a_provider_is_told(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Invalid device ID: 7")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with pytest.raises(litehouse.EngineError, match="ONNX Runtime cannot build the model: Invalid device ID: 7"):
        _load(device="gpu:7")


def test_libraries_are_loaded_once_and_only_for_a_gpu(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _load(engine="onnxruntime")
    build.there = [CANN, CPU]
    _load(device="ascend")
    assert build.preloaded == 0
    build.there = [TENSORRT, CUDA, CPU]
    _load(device="gpu")
    _load(device="gpu:1")
    assert build.preloaded == 1
    assert capsys.readouterr().out == ""  # a program may write its results there
    _load(device="gpu", provider="tensorrt")
    assert build.preloaded == 2
    load_libraries.cache_clear()
    monkeypatch.delattr(onnxruntime, "preload_dlls")  # as in builds for the CPU
    assert _load(device="gpu").engine == "onnxruntime"


def test_the_library_that_tensorrts_provider_asks_for(tmp_path: Path) -> None:
    module = types.SimpleNamespace(__file__=str(tmp_path / "__init__.py"))
    assert tensorrt_library(module) == ""
    provider = tmp_path / "capi" / "libonnxruntime_providers_tensorrt.so"
    provider.parent.mkdir()
    provider.write_bytes(b"\x7fELF libcudart.so.13\0")
    assert tensorrt_library(module) == ""
    assert tensorrt_release(module) == 0
    provider.write_bytes(b"\x7fELF\0libcudart.so.13\0libnvinfer.so.10\0libnvinfer_plugin.so.10\0")
    assert tensorrt_library(module) == "libnvinfer.so.10"
    assert tensorrt_release(module) == 0  # there is no such library here
