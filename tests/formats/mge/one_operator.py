"""Runs one MegEngine operator that stands in no file: for those that MegEngine on CPU cannot dump, and for refusals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

import litehouse
from litehouse.formats.mge.records import NUMPY_DTYPES, DType, GraphRecord, Operator, TensorRecord
from litehouse.formats.mge.translate import Translator
from litehouse.formats.mge.weights import INPUT, Tensors

DTYPES = {"float32": "Float32", "float16": "Float16", "uint8": "Uint8", "int8": "Int8", "int16": "Int16"}
DTYPES |= {"int32": "Int32", "bool": "Bool", "uint16": "Uint16"}


def translated(
    kind: str,
    operands: Sequence[np.ndarray],
    params: Mapping[str, Any],
    results: Sequence[int] = (0,),
    constants: Sequence[np.ndarray] = (),
) -> ir.Model:
    """The operator as an ONNX model, whose inputs are the operands and whose outputs are some of the results.

    The constants are further operands, whose values the file would hold.
    """
    assert set(DTYPES.values()) <= set(NUMPY_DTYPES)
    operators = []
    for place, array in enumerate([*operands, *constants]):
        tensor = TensorRecord(f"x{place}", array.shape, DType(DTYPES[array.dtype.name]), None)
        holder = INPUT if place < len(operands) else "ImmutableTensor"
        operators.append(Operator(holder, tensor.name, {}, (), (place,), None, (tensor,)))
    count = len(operators)
    outputs = tuple(range(count, count + max(results) + 1))
    operators.append(Operator(kind, kind, params, tuple(range(count)), outputs, None, ()))
    wanted = [outputs[place] for place in results]
    graph = GraphRecord(operators, {variable: f"y{variable}" for variable in wanted}, wanted)
    tensors = Tensors({}, {}, dict(enumerate(constants, len(operands))), {})  # type: ignore[arg-type]
    made = Translator(graph, tensors, "no file").run(None, every=False)
    return ir.Model(made, ir_version=10)


def run_operator(
    engine: str,
    kind: str,
    operands: Sequence[np.ndarray],
    params: Mapping[str, Any],
    results: Sequence[int] = (0,),
) -> list[np.ndarray]:
    """What an engine computes for the operator."""
    model = ir.to_proto(translated(kind, operands, params, results)).SerializeToString()
    session = litehouse.load(model, engine=engine, threads=1)
    return session.run({f"x{place}": array for place, array in enumerate(operands)})
