"""The OpenVINO engine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse.cores.budget import thread_budget
from litehouse.engines.base import GivenWeights, Names, OneForm, Stoppable
from litehouse.errors import EngineError
from litehouse.options import Options

if TYPE_CHECKING:
    import onnx_ir as ir

    from litehouse.engines.shell import Shell
    from litehouse.model import Model

INT32 = np.iinfo(np.int32)
MAX_NESTING = 12
# OpenVINO's own default is the lowest precision that the CPU announces. Litehouse's default is what the file says.
HINTS = {"fp32": "f32", "fp16": "f16", "bf16": "bf16"}
BLOB = "compiled.blob"


class OpenVinoEngine(GivenWeights, OneForm):
    """Runs models with OpenVINO on the CPU."""

    name = "openvino"
    capabilities = frozenset({"keeps"})

    def lower_precisions(self) -> tuple[str, ...]:
        """The 16-bit precisions that it has on some CPUs; whether this is one shows in a trial.

        To ask OpenVINO here would load the library, and safe settings would come too late.
        """
        return ("bf16", "fp16")

    def available(self, options: Options) -> str | None:
        """Why this engine cannot serve the options; None when it can."""
        if options.device_kind != "cpu":
            return f"the OpenVINO engine runs on the CPU alone, not on {options.device_kind!r}"
        try:
            import openvino  # noqa: F401
        except ImportError as error:
            return f"openvino does not import ({error}); reinstall litehouse"
        return None

    def compile(
        self,
        model: Model,
        options: Options,
        shapes: Sequence[Sequence[int]] | None = None,
        precision: str = "fp32",
        *,
        is_plain: bool = False,
        parts: int = 1,
        form: str = "",  # noqa: ARG002  (it has no other)
    ) -> OpenVinoProgram:
        """Compile a model; `shapes` replaces the shapes of its inputs."""
        import openvino

        from litehouse.engines.shell import make_shell

        if _nesting(model.graph.graph) > MAX_NESTING:
            raise EngineError(
                f"{model.path}: ifs and loops are nested more than {MAX_NESTING} deep, and the time that OpenVINO "
                "takes to build them doubles with each level; use engine='onnxruntime'"
            )
        shell = make_shell(model, "" if is_plain else self.name, shapes, options.op_precision, parts)
        # The constants refer to this memory. OpenVINO takes writable arrays alone, although it only reads them.
        arrays = {name: np.require(array, requirements="W") for name, array in shell.weights.items()}
        names = Names.of(model)
        try:
            compiled = _compile(openvino, shell, arrays, _settings(options, precision))
            return OpenVinoProgram(compiled, names, precision, arrays, is_rewritten=shell.is_rewritten)
        except Exception as error:
            raise EngineError(f"{model.path}: OpenVINO cannot build the model: {error}") from error

    def restore(self, folder: Path, names: Names, options: Options, precision: str) -> OpenVinoProgram:
        """The compiled model that `save` wrote, over the mapped file."""
        import openvino

        _check_folder(names.path)
        try:
            blob = np.memmap(folder / BLOB, np.uint8, "c")
            tensor = openvino.Tensor(blob, shared_memory=True)
            compiled = openvino.Core().import_model(tensor, "CPU", _settings(options, precision))
            return OpenVinoProgram(compiled, names, precision, blob)
        except Exception as error:
            raise EngineError(f"{names.path}: OpenVINO cannot open the model that it compiled: {error}") from error


def _check_folder(path: str) -> None:
    """Refuse where OpenVINO would end the process: it looks for this file where the process is, and must not fail."""
    try:
        os.stat(".bin")
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise EngineError(f"{path}: OpenVINO cannot open a compiled model in a folder it cannot search") from error


def _compile(openvino: Any, shell: Shell, arrays: dict[str, np.ndarray], settings: dict[str, Any]) -> Any:
    """Read the graph with its weights as inputs, put constants over the weights' memory there, and compile."""
    from litehouse.engines.openvino_deformable import extend

    core = openvino.Core()
    extend(core, shell.proto.graph)
    network = core.read_model(_with_weight_inputs(shell))
    _bind_weights(openvino, network, arrays)
    _keep_order(network)
    return core.compile_model(network, "CPU", settings)


class OpenVinoProgram:
    """A model that OpenVINO compiled."""

    def __init__(
        self, compiled: Any, names: Names, precision: str, memory: object, *, is_rewritten: bool = False
    ) -> None:
        """Wrap a compiled model, which refers to that memory."""
        self.is_rewritten = is_rewritten
        self.compiled = compiled
        self.precision = precision
        self._memory = memory
        self._path = names.path
        present = {name: index for index, port in enumerate(compiled.inputs) for name in port.names}
        self._outputs = [compiled.output(name) for name in names.given]
        # OpenVINO drops inputs that nothing uses.
        self._slots = [present.get(name, -1) for name in names.fed]

    def bind(self) -> OpenVinoRunner:
        """A runner for one thread at a time."""
        return OpenVinoRunner(
            self.compiled.create_infer_request(), self._slots, self._outputs, self._path, lambda: self._is_dynamic
        )

    @cached_property
    def _is_dynamic(self) -> bool:
        """Whether a size anywhere in it is known only when it runs."""
        ops = self.compiled.get_runtime_model().get_ops()
        return any(port.get_partial_shape().is_dynamic for op in ops for port in op.outputs())

    def save(self, folder: Path) -> None:
        """Write the compiled model."""
        with open(folder / BLOB, "wb") as file:
            file.write(self.compiled.export_model().getbuffer())


class OpenVinoRunner:
    """Runs one request of a compiled model."""

    def __init__(
        self, request: Any, slots: list[int], outputs: list[Any], path: str, is_dynamic: Callable[[], bool]
    ) -> None:
        """Wrap a request; where sizes are known only when it runs, no run is stopped."""
        from openvino import Tensor

        self._tensor = Tensor
        self._request = request
        self._slots = slots
        self._outputs = outputs
        self._path = path
        self._is_dynamic = is_dynamic

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        return self._run_by(inputs, self._request.infer)

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The outputs for these inputs, unless the run is stopped."""
        request = self._request
        if self._is_dynamic():  # runs after one that was stopped would give arrays of its sizes
            return self.run(inputs)

        def infer() -> None:
            request.start_async()  # nothing stops `infer`
            stoppable(request.cancel)
            try:
                request.wait()
            finally:
                stoppable(None)

        return self._run_by(inputs, infer)

    def _run_by(self, inputs: Sequence[np.ndarray], infer: Callable[[], Any]) -> list[np.ndarray]:
        request, tensor = self._request, self._tensor
        try:
            kept = [_fit(array) for array in inputs]  # the tensors do not keep their arrays alive
            for slot, array in zip(self._slots, kept, strict=True):
                if slot >= 0:
                    request.set_input_tensor(slot, tensor(array, shared_memory=True))
            infer()
            return [request.get_tensor(port).data.copy() for port in self._outputs]
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(f"{self._path}: OpenVINO failed while running: {error}") from error


def _nesting(graph: ir.Graph) -> int:
    """How deep subgraphs are nested."""
    import onnx_ir as ir

    inner = (
        attribute.as_graph()
        for node in graph
        for attribute in node.attributes.values()
        if attribute.type == ir.AttributeType.GRAPH
    )
    return max((1 + _nesting(subgraph) for subgraph in inner), default=0)


def _fit(array: np.ndarray) -> np.ndarray:
    """The array as OpenVINO takes it: writable, and with 64-bit integers that its 32-bit kernels can hold."""
    if array.dtype in (np.int64, np.uint64) and array.size and (array.max() > INT32.max or array.min() < INT32.min):
        raise EngineError(
            "OpenVINO computes 64-bit integers in 32 bits, and an input has values beyond; use engine='onnxruntime'"
        )
    return array if array.flags.writeable else array.copy()


def _settings(options: Options, precision: str) -> dict[str, Any]:
    return settings(options.threads or thread_budget(), precision, options.workers)


def settings(threads: int, precision: str, workers: int = 1) -> dict[str, Any]:
    """What OpenVINO is told whenever it compiles: in trials the same as for models."""
    return {
        **({"NUM_STREAMS": workers} if workers > 1 else {"PERFORMANCE_HINT": "LATENCY"}),
        "INFERENCE_NUM_THREADS": threads * workers,
        "INFERENCE_PRECISION_HINT": HINTS[precision],
        # Where the weights are of 8 bits or less, it would round the floats to 8 bits too, in groups of this size.
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        # Pinning puts every process's threads on the same first cores.
        "ENABLE_CPU_PINNING": False,
    }


def _with_weight_inputs(shell: Shell) -> bytes:
    import onnx

    from litehouse.engines.openvino_loops import skip_idle_loops

    for name, array in shell.weights.items():
        dtype = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
        shell.proto.graph.input.append(onnx.helper.make_tensor_value_info(name, dtype, array.shape))
    skip_idle_loops(shell.proto.graph)
    data: bytes = shell.proto.SerializeToString()
    return data


def _keep_order(network: Any) -> None:
    """Let equal numbers come out of TopK in the order in which they lie, as ONNX demands."""
    for node in network.get_ops():
        if node.get_type_name() == "TopK":
            if node.get_attributes()["sort"] == "none":  # then there is no stable order
                node.set_attribute("sort", "value")
            node.set_attribute("stable", True)


def _bind_weights(openvino: Any, network: Any, weights: dict[str, np.ndarray]) -> None:
    """Replace the inputs that stand for weights by constants over the weights' memory."""
    for parameter in list(network.get_parameters()):
        array = weights.get(parameter.get_friendly_name())
        if array is not None:
            constant = _constant(openvino, array)
            constant.set_friendly_name(parameter.get_friendly_name())
            parameter.output(0).replace(constant.output(0))
            network.remove_parameter(parameter)


def _constant(openvino: Any, array: np.ndarray) -> Any:
    """A constant over an array's memory."""
    if array.dtype.name == "bfloat16":  # not one of numpy's own types: handed over as its bits
        return openvino.op.Constant(openvino.Tensor(array.view(np.uint16), array.shape, openvino.Type.bf16))
    return openvino.op.Constant(array, shared_memory=True)
