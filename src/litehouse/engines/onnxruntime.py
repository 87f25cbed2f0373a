"""The ONNX Runtime engine."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse.cores import neighbours
from litehouse.cores.affinity import cores_for, pinned
from litehouse.cores.budget import thread_budget
from litehouse.engines.base import GivenWeights, Names, OneForm, Runner, Stoppable
from litehouse.engines.onnxruntime_bound import BoundPairRunner, BoundRunner, Buffers, small_buffers, stopping
from litehouse.engines.onnxruntime_providers import (
    TENSORRT,
    check_in_use,
    load_libraries,
    make_providers,
    precision_of,
    refusal,
    tensorrt_release,
    wanted,
)
from litehouse.errors import EngineError
from litehouse.options import Options

if TYPE_CHECKING:
    import onnx_ir as ir

    from litehouse.engines.shell import Shell
    from litehouse.model import Model

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


# Fusions that take a number for a constant, and their own default where it is an input (seen in 1.31.1).
TAKE_CONSTANTS = ["LayerNormFusionL1", "LayerNormFusionL2", "SimplifiedLayerNormFusion"]
NO_ENTRIES: Mapping[str, str] = MappingProxyType({})


class OnnxRuntimeEngine(GivenWeights, OneForm):
    """Runs models with ONNX Runtime."""

    name = "onnxruntime"
    capabilities = frozenset({"affinity", "inter_op", "keeps"})

    def lower_precisions(self) -> tuple[str, ...]:
        """None: its CPU kernels for 16-bit types only convert to 32 bits and back."""
        return ()

    def available(self, options: Options) -> str | None:
        """Why this engine cannot serve the options; None when it can."""
        try:
            import onnxruntime
        except ImportError as error:
            return f"onnxruntime does not import ({error}); reinstall litehouse"
        return refusal(onnxruntime, options)

    def compile(
        self,
        model: Model,
        options: Options,
        shapes: Sequence[Sequence[int]] | None = None,
        precision: str = "fp32",  # noqa: ARG002  (a provider has one alone for these options)
        *,
        is_plain: bool = False,
        parts: int = 1,
        form: str = "",  # noqa: ARG002  (it has no other)
    ) -> OnnxRuntimeProgram:
        """Compile a model; `shapes` replaces the shapes of its inputs."""
        source, names = source_of(model, options, shapes, is_plain=is_plain, parts=parts), Names.of(model)
        return OnnxRuntimeProgram(source.open(options, names), names, options, source)

    def hold(self, array: np.ndarray) -> Any:
        """The array as ONNX Runtime has it, which spares each run a look at it."""
        import onnxruntime

        return by_memory(onnxruntime, array)

    def restore(self, folder: Path, names: Names, options: Options, precision: str) -> OnnxRuntimeProgram:  # noqa: ARG002
        """The compiled model that `save` wrote; its weights are mapped, so that processes share them."""
        import onnxruntime

        settings = make_settings(onnxruntime, options)
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        return OnnxRuntimeProgram(open_session(str(folder / GRAPH), settings, options, names), names, options)


def source_of(
    model: Model,
    options: Options,
    shapes: Sequence[Sequence[int]] | None = None,
    *,
    is_plain: bool,
    parts: int = 1,
) -> Source:
    """A model, made ready for ONNX Runtime; the arguments are those of `OnnxRuntimeEngine.compile`."""
    from litehouse.engines.shell import make_shell

    # The passes are for its CPU kernels.
    faster = OnnxRuntimeEngine.name if options.device_kind == "cpu" and not is_plain else ""
    disabled = ["ConstantFolding"] if _has_known_condition(model) else []
    if any(math.prod(model.weight_shapes[name][1]) == 1 for name in model.live):
        disabled += TAKE_CONSTANTS
    shell = make_shell(model, faster, shapes, options.op_precision, parts)
    return Source(shell, disabled, is_secret=model.is_secret)


class Source:
    """A model as ONNX Runtime reads it: the graph in bytes, the weights by memory."""

    def __init__(self, shell: Shell, disabled: Sequence[str], *, is_secret: bool = False) -> None:
        """Name the weights as external data, to hand them over as memory under the same names: no copy is made."""
        for name, array in shell.weights.items():
            _declare_external(shell.proto, name, array)
        self.is_rewritten = shell.is_rewritten
        self._graph: bytes = shell.proto.SerializeToString()
        self._weights = shell.weights
        # The kernel of a joined sum and normalisation takes five times as long as those of both (seen in 1.31.1).
        slow = ["SkipLayerNormFusion"] if shell.is_rewritten else []
        self._disabled = [*slow, *disabled]
        self._is_secret = is_secret

    def open(self, options: Options, names: Names, path: str = "", entries: Mapping[str, str] = NO_ENTRIES) -> Any:
        """A session; with a path, the optimised graph is written there."""
        if wanted(options) != TENSORRT or self._is_secret or path:
            return self._open(options, names, path, entries)
        import onnxruntime

        from litehouse.engines.tensorrt_kept import digest, open_kept

        precision, release = precision_of(onnxruntime, options), tensorrt_release(onnxruntime)
        return open_kept(
            lambda folder: self._open(options, names, path, entries, folder),
            lambda: digest(self._graph, self._weights, precision),
            release,
            options,
            names,
        )

    def _open(
        self, options: Options, names: Names, path: str, entries: Mapping[str, str], engines: Path | None = None
    ) -> Any:
        import onnxruntime

        settings = make_settings(onnxruntime, options)
        values = [by_memory(onnxruntime, array) for array in self._weights.values()]
        if values:
            settings.add_external_initializers(list(self._weights), values)
        if path:
            settings.optimized_model_filepath = path
        for key, value in entries.items():
            settings.add_session_config_entry(key, value)
        return open_session(self._graph, settings, options, names, self._disabled, engines)


class OnnxRuntimeProgram:
    """A model in an ONNX Runtime session."""

    def __init__(
        self, session: Any, names: Names, options: Options, source: Source | None = None, memory: object = None
    ) -> None:
        """Wrap a session, which may refer to that memory."""
        import onnxruntime

        check_in_use(session, options, names.path)
        self.precision = precision_of(onnxruntime, options)
        self.session = session
        self._names = names
        self._options = options
        self._source, self._memory = source, memory
        self.is_rewritten = source is not None and source.is_rewritten
        self._cores = cores_for(options.affinity)
        self._buffers: Buffers | None = None
        if options.device_kind == "cpu" and not names.live:
            self._buffers = small_buffers(session, names)

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
        self._source.open(self._options, self._names, str(folder / GRAPH), SAVED_APART)
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
        return self._run_with(inputs, None)

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The outputs for these inputs, unless the run is stopped."""
        with stopping(stoppable) as settings:
            return self._run_with(inputs, settings)

    def _run_with(self, inputs: Sequence[np.ndarray], settings: Any) -> list[np.ndarray]:
        feed = dict(zip(self._inputs, inputs))  # noqa: B905  (the session has checked the count)
        try:
            if not self._cores:
                return self._run(self._outputs, feed, settings)  # type: ignore[no-any-return]
            with pinned(self._cores):  # the calling thread does a share of the work
                return self._run(self._outputs, feed, settings)  # type: ignore[no-any-return]
        except Exception as error:
            raise EngineError(f"{self._path}: ONNX Runtime failed while running: {error}") from error


def open_session(
    graph: str | bytes,
    settings: Any,
    options: Options,
    names: Names,
    disabled: Sequence[str] = (),
    engines: Path | None = None,
) -> Any:
    """A session whose threads are bound to the cores that the options ask for; `engines` is for TensorRT."""
    import onnxruntime

    load_libraries(wanted(options))
    providers = make_providers(onnxruntime, options, engines)
    with pinned(cores_for(options.affinity)):
        try:
            # With its fallback it would print the error of a provider, and use the CPU.
            return onnxruntime.InferenceSession(
                graph, settings, providers=providers, disabled_optimizers=list(disabled) or None, enable_fallback=0
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


def make_settings(onnxruntime: Any, options: Options) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = options.threads or thread_budget()
    settings.inter_op_num_threads = max(1, options.inter_op)
    if options.inter_op > 1:
        settings.execution_mode = onnxruntime.ExecutionMode.ORT_PARALLEL
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.log_severity_level = FATAL_ONLY
    settings.add_session_config_entry("session.intra_op.spin_duration_us", str(SPIN_MICROSECONDS))
    if neighbours.are_there():  # a lone session waits for its next run; one of several leaves the cores to the others
        settings.add_session_config_entry("session.force_spinning_stop", "1")
    if options.workspace == "shared" and options.device_kind == "cpu":
        _register_workspace()
        settings.add_session_config_entry("session.use_env_allocators", "1")
    return settings


@functools.cache
def _register_workspace() -> None:
    """Make the memory that sessions of this process share between ops, once."""
    import onnxruntime

    kind = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    info = onnxruntime.OrtMemoryInfo("Cpu", kind, 0, onnxruntime.OrtMemType.DEFAULT)
    onnxruntime.create_and_register_allocator(info, None)


def by_memory(onnxruntime: Any, array: np.ndarray) -> Any:
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
