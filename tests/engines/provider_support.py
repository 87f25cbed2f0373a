"""A build of ONNX Runtime with providers that this machine has no device for."""

import ctypes
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from litehouse.engines import onnxruntime_providers

CPU, CUDA, TENSORRT, CANN = (f"{name}ExecutionProvider" for name in ("CPU", "CUDA", "Tensorrt", "CANN"))


class Build:
    """A build of ONNX Runtime with other providers, whose sessions compute on the CPU and tell what they were given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.there: list[str] = [TENSORRT, CUDA, CPU]
        self.failing: list[str] = []  # providers whose libraries do not load
        self.missing: list[str] = []  # libraries that the loader does not find
        self.library = "libnvinfer.so.10"
        self.given: list[list[Any]] = []
        self.settings: list[dict[str, Any]] = []
        self.preloaded = 0
        self.release = 101300
        self.at_work: Callable[[Path], None] = lambda folder: None  # what TensorRT does with its folder
        session, load = onnxruntime.InferenceSession, ctypes.CDLL

        def opened(graph: Any, settings: Any, providers: list[Any], **more: Any) -> Any:
            self.given.append(providers)
            self.settings.append(more)
            if isinstance(providers[0], tuple) and "trt_engine_cache_path" in providers[0][1]:
                self.at_work(Path(providers[0][1]["trt_engine_cache_path"]))
            made = session(graph, settings, providers=[CPU])
            names = [provider if isinstance(provider, str) else provider[0] for provider in providers]
            made.get_providers = lambda: [name for name in names if name not in self.failing]
            return made

        def loaded(name: str, *arguments: Any) -> Any:
            if not name.startswith("libnvinfer"):
                return load(name, *arguments)
            if name in self.missing:
                raise OSError(f"{name}: cannot open shared object file")
            return types.SimpleNamespace(getInferLibVersion=lambda: self.release)

        def preload() -> None:
            self.preloaded += 1
            print("Failed to load libcudart.so")
            raise RuntimeError("no directory")

        monkeypatch.setattr(onnxruntime, "InferenceSession", opened)
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: self.there)
        monkeypatch.setattr(onnxruntime, "preload_dlls", preload)
        monkeypatch.setattr(onnxruntime_providers, "tensorrt_library", lambda _: self.library)
        monkeypatch.setattr(onnxruntime_providers.ctypes, "CDLL", loaded)
        monkeypatch.setitem(sys.modules, "torch", None)  # not installed
        monkeypatch.setitem(sys.modules, "tensorrt", None)
        onnxruntime_providers.load_libraries.cache_clear()
