"""Translates a MegEngine graph to an ONNX graph, for given sizes of its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

import onnx_ir as ir

from litehouse.errors import ModelFormatError, UnsupportedOpError
from litehouse.formats.mge.ops import CONVERTERS
from litehouse.formats.mge.quantised import from_integers, to_integers
from litehouse.formats.mge.records import DType, GraphRecord, Operator, TensorRecord
from litehouse.formats.mge.tape import OPSET, MgeTape
from litehouse.formats.mge.weights import INPUT, Tensors
from litehouse.formats.names import unique
from litehouse.formats.tape import RefusedError

HOLDERS = {
    "ImmutableTensor",
    "SharedDeviceTensor",
    "VolatileSharedDeviceTensor",
    "SharedDeviceTensorWithFormat",
    "MultipleDeviceTensorHolder",
    "MultipleDeviceTensorWithFormatHolder",
}
FORMAT = "mge"


def kind_of(operator: Operator) -> str:
    """The kind of an operator, with its mode where it has many: `Elemwise:ADD`."""
    mode = operator.params.get("mode") if operator.type in ("Elemwise", "ElemwiseMultiType", "Reduce") else None
    return f"{operator.type}:{mode}" if mode else operator.type


def count_kinds(graph: GraphRecord) -> Counter[str]:
    """How often each kind of operator occurs, inputs and weights left out."""
    return Counter(kind_of(item) for item in graph.operators if item.type not in HOLDERS and item.type != INPUT)


def refuse_unsupported(graph: GraphRecord, path: str) -> None:
    """Refuse all operators that are not known, at once."""
    unsupported = [
        (kind_of(item), item.name)
        for item in graph.operators
        if item.type not in CONVERTERS and item.type not in HOLDERS and item.type != INPUT
    ]
    if unsupported:
        raise UnsupportedOpError(unsupported, format=FORMAT, path=path)


class Translator:
    """Translates one graph once.

    Attributes:
        output_names: What the file calls the outputs. In the ONNX graph one may need another name: that of an input is
            taken there.
    """

    def __init__(self, graph: GraphRecord, tensors: Tensors, path: str, changing: Collection[str] = ()) -> None:
        """Take in what the file holds; nothing is computed from the values of weights that may change."""
        self._graph = graph
        self._tensors = tensors
        self._path = path
        self._changing = changing
        self._tape = MgeTape()
        self._values: dict[int, ir.Value | None] = {}
        self._inputs: list[ir.Value] = []
        self._initializers: list[ir.Value] = []
        self.output_names: list[str] = []

    def run(self, shapes: Sequence[Sequence[int]] | None, *, every: bool) -> ir.Graph:
        """The ONNX graph.

        Args:
            shapes: The shapes of the inputs, in order; None for those of the file.
            every: Whether all variables are outputs, not only those that the network returns.
        """
        given = iter(shapes) if shapes is not None else None
        for operator in self._graph.operators:
            self._tape.label = operator.name
            try:
                if operator.type == INPUT:
                    self._input(operator, next(given) if given is not None else None)
                elif operator.type in HOLDERS:
                    self._constants(operator)
                else:
                    self._convert(operator)
            except RefusedError as refused:
                raise UnsupportedOpError(
                    [(kind_of(operator), operator.name)], format=FORMAT, path=self._path, reason=str(refused)
                ) from None
        variables = [variable for variable, value in self._values.items() if value is not None]
        outputs = self._outputs(variables if every else self._graph.outputs)
        for value in self._initializers:
            value.const_value = ir.Tensor(self._tensors.weights[str(value.name)], name=value.name)
        return ir.Graph(
            self._inputs,
            outputs,
            nodes=self._tape.nodes,
            initializers=[*self._initializers, *self._tape.constants],
            opset_imports={"": OPSET},
            name="main",
        )

    def _input(self, operator: Operator, shape: Sequence[int] | None) -> None:
        tensor = self._own_tensor(operator)
        dtype = self._stored_dtype(tensor)
        value = ir.Value(name=tensor.name, type=ir.TensorType(dtype))
        value.shape = ir.Shape(tensor.shape if shape is None else shape)
        self._inputs.append(value)
        self._values[operator.outputs[0]] = from_integers(self._tape, value, tensor.dtype)

    def _constants(self, operator: Operator) -> None:
        if len(operator.tensors) != len(operator.outputs):
            self._tape.refuse(f"{len(operator.tensors)} tensors for {len(operator.outputs)} variables")
        for variable, tensor in zip(operator.outputs, operator.tensors, strict=True):
            if variable in self._tensors.constants:
                value = self._tape.constant(self._tensors.constants[variable])
            else:
                value = self._weight(self._tensors.names[variable])
            self._values[variable] = from_integers(self._tape, value, tensor.dtype)

    def _weight(self, name: str) -> ir.Value:
        tensor = ir.Tensor(self._tensors.weights[name], name=name)
        value = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape)
        value.const_value = None if name in self._changing else tensor
        self._initializers.append(value)
        return self._tape.weight(value)

    def _convert(self, operator: Operator) -> None:
        operands = []
        for variable in operator.inputs:
            value = self._values[variable]
            if value is None:
                self._tape.refuse(f"it takes variable {variable}, a result that inference does not have")
            operands.append(value)
        self._tape.output_dtype = operator.output_dtype
        results = CONVERTERS[operator.type](self._tape, operands, operator.params)
        if len(results) < len(operator.outputs):
            self._tape.refuse(f"{len(operator.outputs)} results where {len(results)} are known")
        self._values.update(zip(operator.outputs, results, strict=False))

    def _outputs(self, variables: Sequence[int]) -> list[ir.Value]:
        taken = {str(value.name) for value in (*self._inputs, *self._initializers)}
        self.output_names = unique([self._name(variable, place) for place, variable in enumerate(variables)], set())
        names = unique(self.output_names, taken)
        outputs = []
        for variable, name in zip(variables, names, strict=True):
            self._tape.label = f"output {name}"
            value = self._values.get(variable)
            if value is None:
                raise ModelFormatError(f"output {name!r} is computed by nothing; the file is damaged", path=self._path)
            value = to_integers(self._tape, value)
            # An output must be a value of its own: not an input, a weight or another output.
            made = ir.Value(name=name, type=value.type, shape=value.shape)
            self._tape.node("Identity", [value], [made])
            outputs.append(made)
        return outputs

    def _name(self, variable: int, place: int) -> str:
        return self._graph.aliases.get(variable) or self._graph.names.get(variable) or f"unnamed{place}"

    def _own_tensor(self, operator: Operator) -> TensorRecord:
        if len(operator.tensors) != 1 or len(operator.outputs) != 1 or not operator.tensors[0].name:
            raise ModelFormatError(
                f"input {operator.name} declares {len(operator.tensors)} tensors, or has no name; the file is damaged",
                path=self._path,
            )
        return operator.tensors[0]

    def _stored_dtype(self, tensor: TensorRecord) -> ir.DataType:
        dtype: DType = tensor.dtype
        if dtype.numpy is None:
            self._tape.refuse(f"inputs of dtype {dtype.name} are not supported")
        return ir.DataType.from_numpy(dtype.numpy)
