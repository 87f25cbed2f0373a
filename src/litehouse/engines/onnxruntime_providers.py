"""Which of ONNX Runtime's providers a session gets, with which settings, and why one cannot be had."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import re
import sys
from pathlib import Path
from typing import Any

from litehouse.errors import EngineError
from litehouse.options import Options

CPU, CUDA, TENSORRT, CANN = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt", "CANN"))
# By `Options.provider`, else by the kind of device.
PROVIDERS = {"cpu": CPU, "gpu": CUDA, "ascend": CANN, "cuda": CUDA, "tensorrt": TENSORRT}
WHEELS = {CUDA: "onnxruntime-gpu", TENSORRT: "onnxruntime-gpu", CANN: "onnxruntime-cann"}
WORDS = {CUDA: "CUDA", TENSORRT: "TensorRT", CANN: "CANN"}
OTHERWISE = "or use provider='cuda', or no provider, with torch"
# From this version on, TensorRT takes the types of the graph, and its provider drops the flag for 16 bits.
STRONGLY_TYPED = 11

ARENA = {"arena_extend_strategy": "kSameAsRequested"}  # the other one doubles what it takes from the device each time
CUDA_SETTINGS = {
    # An exhaustive search times all algorithms in the first run of each shape, and may choose another one each time.
    "cudnn_conv_algo_search": "HEURISTIC",
    # No "enable_cuda_graph": it takes fixed shapes, all ops on the GPU, and the same bound memory in every run, while
    # runs here are handed arrays.
}


def wanted(options: Options) -> str:
    """The provider that these options are for: where it is not in use, something else does its work."""
    return PROVIDERS[options.provider or options.device_kind]


def refusal(onnxruntime: Any, options: Options) -> str | None:
    """Why the installed ONNX Runtime has no such provider; None when it has."""
    name, there = wanted(options), onnxruntime.get_available_providers()
    if name not in there:
        lack = "is the one for the CPU" if not {CUDA, CANN} & set(there) else f"has no {WORDS[name]} provider"
        if name == TENSORRT and CUDA in there:
            return f"the installed onnxruntime {lack}; install a build that has one, {OTHERWISE}"
        beside = ", and TensorRT beside it" if name == TENSORRT else ""
        return f"the installed onnxruntime {lack}; install {WHEELS[name]} in its place{beside}"
    library = tensorrt_library(onnxruntime) if name == TENSORRT else ""
    if library:
        load_libraries(name)
        try:
            ctypes.CDLL(library)
        except OSError as error:
            version = library.rpartition(".")[2]
            return f"TensorRT cannot be loaded ({error}); install its version {version}, {OTHERWISE}"
    return None


def check_in_use(session: Any, options: Options, path: str) -> None:
    """Raise where a session lacks its provider: one whose libraries are missing is left out without an error.

    Raises:
        EngineError: Another provider, as the CPU's, would do the work unnoticed.
    """
    name, active = wanted(options), session.get_providers()
    if name in active:
        return
    if name == TENSORRT:
        raise EngineError(
            f"{path}: ONNX Runtime cannot use TensorRT on this machine, only {', '.join(active)}; "
            f"check that TensorRT is installed in the version that this onnxruntime is built for, {OTHERWISE}"
        )
    raise EngineError(
        f"{path}: ONNX Runtime cannot use {options.device!r} on this machine; "
        "check that the device is there and that its driver and libraries are installed"
    )


def precision_of(onnxruntime: Any, options: Options) -> str:
    """What a session computes in. Only TensorRT and CANN go below the graph's own types, where that is allowed."""
    name = wanted(options)
    if options.precision == "tf32" and name in (CUDA, TENSORRT):
        return "tf32"
    if options.precision != "fp16" or "float32" in options.op_precision.values():
        return "fp32"
    is_lower = name == CANN or (name == TENSORRT and 0 < tensorrt_version(onnxruntime) < STRONGLY_TYPED)
    return "fp16" if is_lower else "fp32"


def make_providers(onnxruntime: Any, options: Options, engines: Path | None = None) -> list[Any]:
    """The providers for a session, the wanted one first; each gets the ops that those before it lack.

    Args:
        onnxruntime: The module.
        options: What the caller wants.
        engines: A folder from which TensorRT takes the engines that it has built, and where it leaves new ones.
    """
    name, index = wanted(options), {"device_id": options.device.partition(":")[2] or "0"}
    if name == CPU:
        return [CPU]
    is_lower = precision_of(onnxruntime, options) == "fp16"
    if name == CANN:
        # What it calls "force_fp32" multiplies matrices of 16 bits; its own choice is 16 bits throughout.
        mode = "allow_mix_precision" if is_lower else "must_keep_origin_dtype"
        return [(CANN, {**index, **ARENA, "precision_mode": mode}), CPU]
    # TensorRT's provider has no setting for TF32.
    cuda = (CUDA, {**index, **ARENA, "use_tf32": str(int(options.precision == "tf32")), **CUDA_SETTINGS})
    if name == CUDA:
        return [cuda, CPU]
    settings = {**index, **({"trt_fp16_enable": "1"} if is_lower else {})}
    if engines is not None:
        for kind in ("engine", "timing"):
            settings |= {f"trt_{kind}_cache_enable": "1", f"trt_{kind}_cache_path": str(engines)}
    return [(TENSORRT, settings), cuda, CPU]


@functools.cache
def load_libraries(name: str) -> None:
    """Load, once, the libraries of a provider that come as Python packages: it does not look for them there itself."""
    import onnxruntime

    with contextlib.suppress(Exception), contextlib.redirect_stdout(sys.stderr):  # it prints what it does not find
        if name in (CUDA, TENSORRT):
            onnxruntime.preload_dlls()
    with contextlib.suppress(Exception):
        if name == TENSORRT:
            importlib.import_module("tensorrt")


def tensorrt_version(onnxruntime: Any) -> int:
    """The major version of TensorRT that the provider is built for; 0 where it cannot be told."""
    return int(tensorrt_library(onnxruntime).rpartition(".")[2] or 0)


def tensorrt_release(onnxruntime: Any) -> int:
    """The whole version of TensorRT, as a number that its library tells; 0 where it cannot."""
    try:
        return int(ctypes.CDLL(tensorrt_library(onnxruntime)).getInferLibVersion())
    except (OSError, AttributeError):
        return 0


def tensorrt_library(onnxruntime: Any) -> str:
    """The library that TensorRT's provider asks the loader for; its name tells the version. "" where it is unknown."""
    provider = Path(onnxruntime.__file__).parent / "capi" / "libonnxruntime_providers_tensorrt.so"
    try:
        found = re.search(rb"libnvinfer\.so\.[0-9]+", provider.read_bytes())
    except OSError:
        return ""
    return found[0].decode() if found else ""
