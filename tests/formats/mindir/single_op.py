"""Runs one MindIR op without a file: for ops that MindSpore has no CPU kernel for, and so no fixture."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse import passes
from litehouse.formats.mindir.literals import TensorType
from litehouse.formats.mindir.ops import CONVERTERS
from litehouse.formats.mindir.tape import MindirTape
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.session import Session
from litehouse.weights import Weights


def run_op(
    name: str,
    operands: Sequence[Any],
    dtypes: Sequence[Any],
    engine: str,
    ranks: Sequence[int] | None = None,
    attributes: Mapping[str, Any] | None = None,
    *,
    static: bool = False,
    shapes: Sequence[tuple[int, ...]] | None = None,
) -> list[np.ndarray]:
    """The results of an op. Arrays among the operands, also in tuples, become inputs of any size; the rest is literal.

    Args:
        name: The op's MindIR name.
        operands: Its operands.
        dtypes: The dtypes that the file would record for its results; None for a result that is not asked for.
        engine: What to run it with.
        ranks: The ranks of the results; those of the first array when not given.
        attributes: The op's attributes.
        static: Whether the inputs have the sizes of the arrays, and no others.
        shapes: The shapes that the file would record for the results; of any size when not given.
    """
    inputs: list[ir.Value] = []
    arrays: list[np.ndarray] = []

    def lift(operand: Any) -> Any:
        if isinstance(operand, tuple):
            return tuple(lift(item) for item in operand)
        if not isinstance(operand, np.ndarray):
            return operand
        dtype = ir.DataType.from_numpy(operand.dtype)
        value = ir.Value(name=f"x{len(inputs)}", type=ir.TensorType(dtype))
        names = [f"x{len(inputs)}_{axis}" for axis in range(operand.ndim)]
        value.shape = ir.Shape(operand.shape if static else names)
        inputs.append(value)
        arrays.append(operand)
        return value

    lifted = [lift(operand) for operand in operands]
    tape = MindirTape()
    kinds = [ir.DataType.FLOAT if dtype is None else ir.DataType.from_numpy(np.dtype(dtype)) for dtype in dtypes]
    sizes = [arrays[0].ndim] * len(kinds) if ranks is None else ranks
    recorded = [(None,) * rank for rank in sizes] if shapes is None else shapes
    types = tuple(TensorType(kind, shape) for kind, shape in zip(kinds, recorded, strict=True))
    tape.expected = types[0] if len(types) == 1 else types
    result = CONVERTERS[name](tape, lifted, attributes or {})
    results = list(result) if isinstance(result, tuple) else [result]
    outputs = [
        tape.op("Identity", [value], dtype=kind)
        for value, kind, dtype in zip(results, kinds, dtypes, strict=True)
        if dtype is not None
    ]
    graph = ir.Graph(
        inputs, outputs, nodes=tape.nodes, initializers=tape.constants, opset_imports={"": 20}, name="single_op"
    )
    infos = [tuple(_info(value) for value in values) for values in (inputs, outputs)]
    model = Model(ir.Model(graph, ir_version=10), Weights(None, {}), infos[0], infos[1], "mindir", name)
    with Session(passes.prepare(model), Options(engine=engine, threads=1)) as session:
        return session.run(arrays)


def _info(value: ir.Value) -> TensorInfo:
    assert value.dtype is not None
    assert value.name is not None
    sizes = () if value.shape is None else tuple(getattr(size, "value", size) for size in value.shape)
    return TensorInfo(value.name, np.dtype(value.dtype.numpy()), sizes)
