"""The ONNX Runtime engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse.engines.base import Names, Runner
from litehouse.engines.onnxruntime_bound import BoundPairRunner, BoundRunner, small_buffers
from litehouse.errors import EngineError
from litehouse.options import Options
from litehouse.parallel.affinity import cores_for, pinned
from litehouse.parallel.budget import thread_budget

if TYPE_CHECKING:
    import onnx_ir as ir

    from litehouse.engines.shell import Shell
    from litehouse.model import Model

PROVIDERS = {"cpu": "CPUExecutionProvider", "gpu": "CUDAExecutionProvider", "ascend": "CANNExecutionProvider"}
WHEELS = {"gpu": "onnxruntime-gpu", "ascend": "onnxruntime-cann"}
FATAL_ONLY = 4  # what is an error comes as an exception
# How long an idle thread waits with its core kept busy. By default that is tens of milliseconds, in which it takes the
# core from whatever else runs; a thousandth of a second bridges the gaps between ops, and between calls in a loop.
SPIN_MICROSECONDS = 1000

GRAPH, WEIGHTS = "graph.onnx", "weights.bin"
# The optimised graph beside its weights, which are packed already: a session maps them instead of packing its own.
SAVED_APART = {
    "session.optimized_model_external_initializers_file_name": WEIGHTS,
    "session.optimized_model_external_initializers_min_size_in_bytes": "1024",
    "session.save_external_prepacked_constant_initializers": "1",
}


class OnnxRuntimeEngine:
    """Runs models with ONNX Runtime."""

    name = "onnxruntime"
    capabilities = frozenset({"affinity", "inter_op"})

    def lower_precisions(self) -> tuple[str, ...]:
        """None: its CPU kernels for 16-bit types only convert to 32 bits and back."""
        return ()

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
        self,
        model: Model,
        options: Options,
        shapes: Sequence[Sequence[int]] | None = None,
        precision: str = "fp32",  # noqa: ARG002  (it has no other)
        *,
        is_plain: bool = False,
        parts: int = 1,
    ) -> OnnxRuntimeProgram:
        """Compile a model; `shapes` replaces the shapes of its inputs."""
        from litehouse.engines.shell import make_shell

        # The passes are for its CPU kernels.
        faster = self.name if options.device_kind == "cpu" and not is_plain else ""
        source = _Source(make_shell(model, faster, shapes, options.op_precision, parts), _has_known_condition(model))
        names = Names.of(model)
        return OnnxRuntimeProgram(source.open(options, names), names, options, source)

    def restore(self, folder: Path, names: Names, options: Options, precision: str) -> OnnxRuntimeProgram:  # noqa: ARG002
        """The compiled model that `save` wrote; its weights are mapped, so that processes share them."""
        import onnxruntime

        settings = _settings(onnxruntime, options)
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return OnnxRuntimeProgram(_open(str(folder / GRAPH), settings, options, names), names, options)


class _Source:
    """A model as ONNX Runtime reads it: the graph in bytes, the weights by memory."""

    def __init__(self, shell: Shell, has_known_condition: bool) -> None:
        """Name the weights as external data, to hand them over as memory under the same names: no copy is made."""
        for name, array in shell.weights.items():
            _declare_external(shell.proto, name, array)
        self.is_rewritten = shell.is_rewritten
        self._graph: bytes = shell.proto.SerializeToString()
        self._weights = shell.weights
        # The kernel of a joined sum and normalisation takes five times as long as those of both (seen in 1.31.1).
        slow = ["SkipLayerNormFusion"] if shell.is_rewritten else []
        self._disabled = [*slow, *(["ConstantFolding"] if has_known_condition else [])]

    def open(self, options: Options, names: Names, folder: Path | None = None) -> Any:
        """A session; with a folder, the optimised model is written there."""
        import onnxruntime

        settings = _settings(onnxruntime, options)
        values = [_by_memory(onnxruntime, array) for array in self._weights.values()]
        if values:
            settings.add_external_initializers(list(self._weights), values)
        if folder is not None:
            settings.optimized_model_filepath = str(folder / GRAPH)
            for key, value in SAVED_APART.items():
                settings.add_session_config_entry(key, value)
        return _open(self._graph, settings, options, names, self._disabled)


class OnnxRuntimeProgram:
    """A model in an ONNX Runtime session."""

    precision = "fp32"

    def __init__(self, session: Any, names: Names, options: Options, source: _Source | None = None) -> None:
        """Wrap a session."""
        # A provider whose libraries are missing is left out without an error: the CPU would do its work unnoticed.
        if PROVIDERS[options.device_kind] not in session.get_providers():
            raise EngineError(
                f"{names.path}: ONNX Runtime cannot use {options.device!r} on this machine; "
                "check that the device is there and that its driver and libraries are installed"
            )
        self.session = session
        self._names = names
        self._options = options
        self._source = source
        self.is_rewritten = source is not None and source.is_rewritten
        self._cores = cores_for(options.affinity)
        self._buffers = small_buffers(session, names) if options.device_kind == "cpu" else None

    def bind(self) -> Runner:
        """A runner; any number of them may run at once."""
        plain = OnnxRuntimeRunner(self.session, self._names, self._cores)
        if self._buffers is None or self._cores:
            return plain
        bound = BoundPairRunner if len(self._buffers) == 2 == len(self._names.fed) * 2 else BoundRunner
        return bound(self.session, self._names, self._buffers, plain)

    def save(self, folder: Path) -> None:
        """Write the optimised graph and its packed weights, which takes a second session for a moment."""
        from litehouse.engines.onnxruntime_saved import align

        if self._source is None:
            raise EngineError(f"{self._names.path}: this program came from a file itself")
        self._source.open(self._options, self._names, folder)
        align(folder, GRAPH, WEIGHTS)


class OnnxRuntimeRunner:
    """Runs an ONNX Runtime session."""

    def __init__(self, session: Any, names: Names, cores: frozenset[int]) -> None:
        """Wrap a session."""
        # The public method checks names again and looks for fallbacks: a third of the time of a tiny network.
        native = getattr(session, "_sess", None)
        self._run = session.run if native is None else native.run
        self._inputs = names.fed
        self._outputs = names.given
        self._cores = cores
        self._path = names.path

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


def _open(graph: str | bytes, settings: Any, options: Options, names: Names, disabled: Sequence[str] = ()) -> Any:
    """A session whose threads are bound to the cores that the options ask for."""
    import onnxruntime

    with pinned(cores_for(options.affinity)):
        try:
            return onnxruntime.InferenceSession(
                graph, settings, providers=[_provider(options)], disabled_optimizers=list(disabled) or None
            )
        except Exception as error:
            raise EngineError(f"{names.path}: ONNX Runtime cannot build the model: {error}") from error


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
    settings.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_MICROSECONDS))
    return settings


def _provider(options: Options) -> Any:
    provider = PROVIDERS[options.device_kind]
    if options.device_kind == "cpu":
        return provider
    return (provider, {"device_id": options.device.partition(":")[2] or "0"})


def _by_memory(onnxruntime: Any, array: np.ndarray) -> Any:
    """An ONNX Runtime value over an array's memory."""
    if array.dtype.name == "bfloat16":  # not one of numpy's own types: handed over as its bits
        import onnx

        bits = array.view(np.uint16)
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, onnx.TensorProto.BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _declare_external(proto: Any, name: str, array: np.ndarray) -> None:
    import onnx

    tensor = proto.graph.initializer.add(
        name=name, dims=array.shape, data_type=onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
    )
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", "weights"), ("offset", "0"), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=value)
