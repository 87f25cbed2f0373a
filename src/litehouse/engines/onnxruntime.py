"""The ONNX Runtime engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from litehouse.engines.shell import Shell, make_shell
from litehouse.errors import EngineError
from litehouse.model import Model
from litehouse.options import Options
from litehouse.parallel.affinity import cores_for, pinned
from litehouse.parallel.budget import thread_budget

PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider", "ascend": "CANNExecutionProvider"}
WHEELS = {"gpu": "onnxruntime-gpu", "ascend": "onnxruntime-cann"}
FATAL_ONLY = 4  # what is an error comes as an exception


class OnnxRuntimeEngine:
    """Runs models with ONNX Runtime."""

    name = "onnxruntime"
    capabilities = frozenset({"affinity", "inter_op"})

    def lower_precision(self) -> str | None:
        """None: its CPU kernels for 16-bit types only convert to 32 bits and back."""
        return None

    def available(self, options: Options) -> str | None:
        """Why this engine cannot serve the options; None when it can."""
        try:
            import onnxruntime
        except ImportError as error:
            return f"onnxruntime does not import ({error}); reinstall litehouse"
        kind = options.device_kind
        if PROVIDERS[kind] not in onnxruntime.get_available_providers():
            return f"the installed onnxruntime cannot use {kind!r}; install {WHEELS[kind]} in its place"
        return None

    def compile(
        self, model: Model, options: Options, shapes: Sequence[Sequence[int]] | None = None
    ) -> OnnxRuntimeProgram:
        """Compile a model; `shapes` replaces the shapes of its inputs."""
        return OnnxRuntimeProgram(model, options, make_shell(model, self.name, shapes))


class OnnxRuntimeProgram:
    """A model in an ONNX Runtime session."""

    precision = "fp32"

    def __init__(self, model: Model, options: Options, shell: Shell) -> None:
        """Create the session; its threads are bound to the cores that the options ask for."""
        import onnxruntime

        # Weights are named as external data, and handed over as memory under the same names: no copy through protobuf.
        for name, array in shell.weights.items():
            _declare_external(shell.proto, name, array)
        settings = _settings(onnxruntime, options)
        values = [_by_memory(onnxruntime, array) for array in shell.weights.values()]
        if values:
            settings.add_external_initializers(list(shell.weights), values)
        self._cores = cores_for(options.affinity)
        with pinned(self._cores):
            try:
                self.session = onnxruntime.InferenceSession(
                    shell.proto.SerializeToString(),
                    settings,
                    providers=[_provider(options)],
                    disabled_optimizers=["ConstantFolding"] if _has_known_condition(model) else None,
                )
            except Exception as error:
                raise EngineError(f"{model.path}: ONNX Runtime cannot build the model: {error}") from error
        # A provider whose libraries are missing is left out without an error: the CPU would do its work unnoticed.
        if PROVIDERS[options.device_kind] not in self.session.get_providers():
            raise EngineError(
                f"{model.path}: ONNX Runtime cannot use {options.device!r} on this machine; "
                "check that the device is there and that its driver and libraries are installed"
            )
        self._path = model.path
        self._inputs = model.fed_names
        self._outputs = model.given_names

    def bind(self) -> OnnxRuntimeRunner:
        """A runner; any number of them may run at once."""
        return OnnxRuntimeRunner(self.session, self._inputs, self._outputs, self._cores, self._path)


class OnnxRuntimeRunner:
    """Runs an ONNX Runtime session."""

    def __init__(self, session: Any, inputs: list[str], outputs: list[str], cores: frozenset[int], path: str) -> None:
        """Wrap a session."""
        # The public method checks names again and looks for fallbacks: a third of the time of a tiny network.
        native = getattr(session, "_sess", None)
        self._run = session.run if native is None else native.run
        self._inputs = inputs
        self._outputs = outputs
        self._cores = cores
        self._path = path

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        feed = dict(zip(self._inputs, inputs))  # noqa: B905  (the session has checked the count)
        try:
            if not self._cores:
                return self._run(self._outputs, feed, None)  # type: ignore[no-any-return]
            with pinned(self._cores):  # the calling thread does a share of the work
                return self._run(self._outputs, feed, None)  # type: ignore[no-any-return]
        except Exception as error:
            raise EngineError(f"{self._path}: ONNX Runtime failed while running: {error}") from error


def _has_known_condition(model: Model) -> bool:
    """Whether an If follows from constants and shapes alone: ONNX Runtime 1.31.1 may die of folding those."""
    known: set[ir.Value] = set()
    for node in model.graph.graph.all_nodes():
        inputs = [value for value in node.inputs if value is not None]
        follows = bool(inputs) and all(value in known or _is_constant(value) for value in inputs)
        if node.op_type == "If" and follows:
            return True
        if follows or node.op_type in ("Constant", "Shape", "Size"):
            known.update(node.outputs)
    return False


def _is_constant(value: ir.Value) -> bool:
    return value.const_value is not None and not value.is_graph_input()


def _settings(onnxruntime: Any, options: Options) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads or thread_budget()
    settings.inter_op_num_threads = max(1, options.inter_op)
    if options.inter_op > 1:
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.log_severity_level = FATAL_ONLY
    return settings


def _provider(options: Options) -> Any:
    provider = PROVIDERS[options.device_kind]
    if options.device_kind == "cpu":
        return provider
    return (provider, {"device_id": options.device.partition(":")[2] or "0"})


def _by_memory(onnxruntime: Any, array: np.ndarray) -> Any:
    """An ONNX Runtime value over an array's memory."""
    if array.dtype.name == "bfloat16":  # not one of numpy's own types: handed over as its bits
        bits = array.view(np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _declare_external(proto: Any, name: str, array: np.ndarray) -> None:
    tensor = proto.graph.initializer.add(
        name=name, dims=array.shape, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    )
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights"), ("offset", "0"), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=value)
