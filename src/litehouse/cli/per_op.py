"""Finds the first op of a model where an engine parts from ONNX Runtime with all optimisation off.

Every value inside the model is made an output, some at a time, and both engines compute it. An engine that goes wrong
only where it fuses ops is not caught this way, since an output cannot be fused away. So when all values agree and the
model's outputs still part, the model is cut behind one op after the other, and the engine is free to fuse up to there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.cli.compare import Difference, Tolerance, difference
from litehouse.cli.console import silent
from litehouse.cores.budget import thread_budget
from litehouse.engines.shell import make_shell
from litehouse.errors import EngineError
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.session import Session

CHUNK = 32  # values that are outputs at once, to bound memory
NO_TENSORS = ("Sequence", "SplitToSequence", "Optional")  # ops of these families give no tensors
ERRORS_ONLY = 3

Step = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Parting:
    """The first op where two engines part.

    Attributes:
        op: The ONNX op.
        node: Its name, which starts with its place in the source model.
        value: The output of the op.
        difference: How far the engines are apart there.
        inputs: The op's inputs with how far the engines are apart there; None for inputs and weights of the model.
        fused: Whether the engines part only when the engine may fuse the op with others.
    """

    op: str
    node: str
    value: str
    difference: Difference
    inputs: tuple[tuple[str, Difference | None], ...]
    fused: bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the search found: the parting, if any; how many values were compared; which an engine could not give."""

    parting: Parting | None
    compared: int
    skipped: tuple[str, ...]


def find_parting(
    model: Model,
    options: Options,
    arrays: Sequence[np.ndarray],
    tolerance: Tolerance,
    step: Step = silent,
) -> Outcome:
    """Compare the engine of the options with ONNX Runtime without optimisation, op by op in the model's order.

    Raises:
        EngineError: An engine cannot build or run the whole model.
    """
    return _Search(model, options, arrays, tolerance).run(step)


def with_shapes(model: Model, arrays: Sequence[np.ndarray]) -> Model:
    """The model for inputs of these arrays' shapes, which its session took, and with state as in the file.

    Its graph is changed in place.
    """
    graph = model.graph.graph
    del graph.inputs[len(model.inputs) :], graph.outputs[len(model.outputs) :]
    model = replace(model, states=())
    if all(info.shape == array.shape for info, array in zip(model.inputs, arrays, strict=True)):
        return model
    if model.translate is not None:
        return model.translate([array.shape for array in arrays])
    infos = tuple(replace(info, shape=array.shape) for info, array in zip(model.inputs, arrays, strict=True))
    for value, info in zip(graph.inputs, infos, strict=True):
        value.shape = ir.Shape(info.shape)
    for value in graph.outputs:
        value.shape = None
    return replace(model, inputs=infos)


class _Search:
    def __init__(self, model: Model, options: Options, arrays: Sequence[np.ndarray], tolerance: Tolerance) -> None:
        self.model = model
        self.options = options
        self.arrays = arrays
        self.tolerance = tolerance
        self.values = _inner_values(model)
        self.known: dict[str, Difference] = {}
        self.skipped: list[str] = []

    def run(self, step: Step) -> Outcome:
        for start in range(0, len(self.values), CHUNK):
            step(start, len(self.values))
            chunk = self.values[start : start + CHUNK]
            self._compare(chunk)
            for value in chunk:
                if value.name in self.known and not self.known[value.name].ok:
                    return self._outcome(value, fused=False)
        parted = self._parted_output()
        return self._outcome(self._first_fused(parted), fused=True) if parted is not None else self._outcome(None)

    def _compare(self, values: list[ir.Value]) -> None:
        """Compare these values; where an engine refuses them together, each half alone. A single one is skipped."""
        try:
            found = self._differences(values)
        except EngineError:
            if len(values) == 1:
                self.skipped.append(_name(values[0]))
                return
            middle = len(values) // 2
            self._compare(values[:middle])
            self._compare(values[middle:])
            return
        self.known |= {_name(value): item for value, item in zip(values, found, strict=True)}

    def _differences(self, values: Sequence[ir.Value]) -> list[Difference]:
        part = _cut(self.model, [_name(value) for value in values])
        with Session(part, self.options) as session:
            actual = session.run(self.arrays)
        expected = _run_plain(part, self.arrays, self.options.threads)
        return [difference(a, e, self.tolerance) for a, e in zip(actual, expected, strict=True)]

    # Fused ops --------------------------------------------------------------------------------------------------------

    def _parted_output(self) -> ir.Value | None:
        """The first output of the model where the engines part when nothing inside the model is an output."""
        with Session(self.model, self.options) as session:
            actual = session.run(self.arrays)
        expected = _run_plain(self.model, self.arrays, self.options.threads)
        for value, a, e in zip(self.model.graph.graph.outputs, actual, expected, strict=True):
            if not difference(a, e, self.tolerance).ok:
                return value
        return None

    def _first_fused(self, output: ir.Value) -> ir.Value:
        """The first value, among those that the output needs, behind which the cut model parts."""
        needed = _ancestors(output)
        path = [value for value in self.values if value in needed]
        low, high = -1, len(path) - 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._parts_alone(path[middle]) else (middle, high)
        found = path[high]
        # A value of another branch may have agreed before: walk on to where no input parts.
        while (earlier := next((v for v in _computed_inputs(found) if self._parts_alone(v)), None)) is not None:
            found = earlier
        return found

    def _parts_alone(self, value: ir.Value) -> bool:
        try:
            (found,) = self._differences([value])
        except EngineError:
            return False
        self.known[_name(value)] = found
        return not found.ok

    # The answer -------------------------------------------------------------------------------------------------------

    def _outcome(self, value: ir.Value | None, *, fused: bool = False) -> Outcome:
        parting = None
        if value is not None:
            node = value.producer()
            assert node is not None
            name = _name(value)
            inputs = tuple((_name(item), self.known.get(_name(item))) for item in node.inputs if item is not None)
            if fused and self.known[name].ok:  # a model output that parts only beside the others
                self._parts_alone(value)
            op = node.op_type if not node.domain else f"{node.domain}::{node.op_type}"
            parting = Parting(op, node.name or name, name, self.known[name], inputs, fused)
        return Outcome(parting, len(self.known), tuple(self.skipped))


def _inner_values(model: Model) -> list[ir.Value]:
    """The values that the main graph computes and uses, in order."""
    return [
        value
        for node in model.graph.graph
        for value in node.outputs
        if value.name and (value.uses() or value.is_graph_output()) and not node.op_type.startswith(NO_TENSORS)
    ]


def _computed_inputs(value: ir.Value) -> list[ir.Value]:
    node = value.producer()
    inputs = [] if node is None else node.inputs
    return [item for item in inputs if item is not None and item.producer() is not None]


def _ancestors(value: ir.Value) -> set[ir.Value]:
    """The value and all values that it is computed from."""
    found = {value}
    waiting = [value]
    while waiting:
        node = waiting.pop().producer()
        if node is None:
            continue
        captured = [v for graph in _inner_graphs(node) for inner in graph.all_nodes() for v in inner.inputs]
        for item in (*node.inputs, *captured):
            if item is not None and item not in found:
                found.add(item)
                waiting.append(item)
    return found


def _inner_graphs(node: ir.Node) -> list[ir.Graph]:
    graphs: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            graphs.append(attribute.as_graph())
        elif attribute.type == ir.AttributeType.GRAPHS:
            graphs.extend(attribute.as_graphs())
    return graphs


def _name(value: ir.Value) -> str:
    assert value.name is not None
    return value.name


def _cut(model: Model, names: list[str]) -> Model:
    """The part of a model that computes these values, with them as its outputs. Weights are shared, not copied."""
    graph = model.graph.graph
    part = ir.convenience.extract(graph, inputs=list(graph.inputs), outputs=names)
    for value in part.outputs:  # the engines know better
        value.type = value.shape = None
    infos = tuple(TensorInfo(name, np.dtype(np.float32), ()) for name in names)
    return replace(model, graph=ir.Model(part, ir_version=model.graph.ir_version), outputs=infos)


def _run_plain(model: Model, arrays: Sequence[np.ndarray], threads: int) -> list[np.ndarray]:
    """Run a model with ONNX Runtime, all optimisation off, and its weights as inputs, so that nothing is folded."""
    import onnxruntime
    from onnx import helper

    shell = make_shell(model)
    for name, weight in shell.weights.items():
        dtype = helper.np_dtype_to_tensor_dtype(weight.dtype)
        shell.proto.graph.input.append(helper.make_tensor_value_info(name, dtype, weight.shape))
    settings: Any = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.intra_op_num_threads = threads or thread_budget()
    settings.log_severity_level = ERRORS_ONLY
    fed = dict(zip((info.name for info in model.inputs), arrays, strict=True)) | shell.weights
    try:
        session = onnxruntime.InferenceSession(
            shell.proto.SerializeToString(), settings, providers=["CPUExecutionProvider"]
        )
        results: list[np.ndarray] = session.run([info.name for info in model.outputs], fed)
    except Exception as error:
        raise EngineError(f"{model.path}: ONNX Runtime without optimisation failed: {error}") from error
    return results
