"""What torch computes from a model, compared with ONNX Runtime's own answer without any optimisation."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from engines.torch.onnx_cases import DEVICE, check, runs
from formats.onnx_runs import direct
from onnx import TensorProto, helper

Arrays = dict[str, np.ndarray]


def one_op(
    op: str,
    inputs: Arrays,
    *,
    outputs: int = 1,
    opset: int = 20,
    constants: Arrays | None = None,
    order: str = "",
    **attributes: Any,
) -> bytes:
    """A model of one op; `order` names its inputs where they are not those that are given, `_` for one left out."""
    constants = constants or {}
    names = order.split() or [*inputs, *constants]
    node = helper.make_node(
        op, ["" if name == "_" else name for name in names], [f"y{place}" for place in range(outputs)], **attributes
    )
    return whole([node], inputs, [f"y{place}" for place in range(outputs)], constants, opset)


def whole(
    nodes: list[onnx.NodeProto],
    inputs: Arrays,
    outputs: list[str],
    constants: Arrays | None = None,
    opset: int = 20,
    version: int = 10,
) -> bytes:
    """A model of nodes; dtypes of outputs are inferred, sizes of inputs are left open."""
    taken = {
        name: helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), [None] * array.ndim)
        for name, array in inputs.items()
    }
    graph = helper.make_graph(
        nodes,
        "test",
        list(taken.values()),
        [taken.get(name, onnx.ValueInfoProto(name=name)) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=imports, ir_version=version))
    for output in model.graph.output:
        if output.name not in inputs:
            output.type.tensor_type.ClearField("shape")
        if not output.type.tensor_type.elem_type:
            output.type.tensor_type.elem_type = TensorProto.FLOAT
    return model.SerializeToString()


def run(model: bytes, inputs: Arrays, *, may_lack: Iterable[str] = ()) -> list[np.ndarray]:
    """What torch computes; only these ops may be computed elsewhere."""
    from litehouse import Options, read
    from litehouse.engines.torch.engine import TorchEngine

    program = TorchEngine().compile(read(model), Options(engine="torch", cache=False, device=DEVICE))
    first, _, found = runs(program, list(inputs.values()))
    for one, two in zip(first, found, strict=True) if DEVICE == "cpu" else ():
        assert one.tolist() == two.tolist() if one.dtype.kind == "O" else one.tobytes() == two.tobytes()
    lacking = {name.partition(" ")[0] for name in program.lacking}
    assert lacking <= set(may_lack), f"torch lacks {lacking}"
    return found


def agrees(model: bytes, inputs: Arrays, *, may_lack: Iterable[str] = (), tolerance: float = 0.0) -> list[np.ndarray]:
    """Torch and ONNX Runtime give the same."""
    actual, expected = run(model, inputs, may_lack=may_lack), direct(model, inputs)
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        check(ours, np.asarray(theirs), tolerance, tolerance)
    return actual
