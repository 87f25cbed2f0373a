"""Translates a `.ms` file to an ONNX graph: its inputs, weights and outputs, and what is evaluated between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import onnx_ir as ir

from litehouse.errors import ModelFormatError, UnsupportedOpError
from litehouse.formats.mindir.tape import OPSET, MindirTape
from litehouse.formats.ms.flow import CONTROL_FLOW, FlowEvaluator
from litehouse.formats.ms.meta import MetaGraph, dtype_of
from litehouse.formats.ms.nodes import is_supported
from litehouse.formats.ms.quantised import dequantised, quantised
from litehouse.formats.names import unique
from litehouse.options import Limits
from litehouse.weights import Weights


class Translator:
    """Translates one file."""

    def __init__(self, meta: MetaGraph, limits: Limits, path: str) -> None:
        """Take in what the file declares."""
        self.tape = MindirTape()
        self.source_ops: Counter[str] = Counter(node.op for node in meta.nodes)
        self._meta = meta
        self._limits = limits
        self._path = path

    def refuse_unsupported(self) -> None:
        """Refuse all ops that are unsupported at once."""
        known = {op for op in self.source_ops if op in CONTROL_FLOW or is_supported(op)}
        unsupported = [(node.op, node.name) for node in self._meta.nodes if node.op not in known]
        if unsupported:
            raise UnsupportedOpError(unsupported, format="ms", path=self._path)

    def run(self, weights: Weights, names: dict[int, str], changing: Collection[str] = ()) -> ir.Graph:
        """The ONNX graph of the file's main graph.

        Args:
            weights: The weights of the file.
            names: Their names by the number of their tensor.
            changing: Weights that may change, so that nothing may be computed from what they hold in the file.
        """
        main = self._meta.graphs[0]
        if not main.outputs:
            raise ModelFormatError("the network returns nothing; the file is damaged", path=self._path)
        if not main.nodes:
            raise ModelFormatError(
                "the network computes nothing: MindSpore Lite's converter leaves out ops that .ms has no number for, "
                "as Asin, Atan and Tan; convert the source model to .mindir",
                path=self._path,
            )
        inputs = self._inputs()
        initializers = {index: _weight(weights, name) for index, name in names.items()}
        known = {value: value.const_value for value in initializers.values() if value.name in changing}
        self.tape.open_weights.update(known)
        for value in known:
            value.const_value = None
        evaluator = FlowEvaluator(self._meta, self.tape, self._limits, self._path)
        results = evaluator.run(self._real_inputs(inputs), initializers)
        for value, tensor in known.items():
            value.const_value = tensor
        return ir.Graph(
            inputs,
            self._outputs(results, {*names.values(), *(str(value.name) for value in inputs)}),
            nodes=self.tape.nodes,
            initializers=[*initializers.values(), *self.tape.constants],
            opset_imports={"": OPSET, **{node.domain: 1 for node in self.tape.nodes if node.domain}},
            name=main.name or self._meta.name or "main",
        )

    def _inputs(self) -> list[ir.Value]:
        tensors = [self._meta.tensors[index] for index in self._meta.graphs[0].inputs]
        names = unique([tensor.name or f"input_{place}" for place, tensor in enumerate(tensors)], set())
        inputs = []
        for tensor, name in zip(tensors, names, strict=True):
            shape = tensor.shape or ()
            value = ir.Value(name=name, type=ir.TensorType(dtype_of(tensor, self._path)))
            value.shape = ir.Shape([size if size >= 0 else f"{name}_{axis}" for axis, size in enumerate(shape)])
            inputs.append(value)
        return inputs

    def _real_inputs(self, inputs: list[ir.Value]) -> list[ir.Value]:
        self.tape.label = "input"
        indices = self._meta.graphs[0].inputs
        return [
            dequantised(self.tape, value, self._meta.tensors[index])
            for index, value in zip(indices, inputs, strict=True)
        ]

    def _outputs(self, results: list[ir.Value], taken: set[str]) -> list[ir.Value]:
        tensors = [self._meta.tensors[index] for index in self._meta.graphs[0].outputs]
        names = unique([tensor.name for tensor in tensors], taken)
        self.tape.label = "output"
        outputs = []
        for result, tensor, name in zip(results, tensors, names, strict=True):
            value = quantised(self.tape, result, tensor)
            # An output must be a value of its own: not an input, a weight or another output.
            outputs.append(self.tape.op("Identity", [value], like=value))
            outputs[-1].name = name
        return outputs


def _weight(weights: Weights, name: str) -> ir.Value:
    tensor = ir.Tensor(weights[name], name=name)
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
