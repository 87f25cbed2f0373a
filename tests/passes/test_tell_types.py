"""Dtypes of what ONNX Runtime's own ops give, and half precision in weights of few bits that follows from them."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from engines.torch.quantised_cases import CASES, Case
from onnx import helper

import litehouse
from litehouse.passes import halve
from litehouse.passes.tell_types import OPERANDS, TellTypesPass
from onnx_models import node
from pass_checks import ops, run

HALF, FULL = ir.DataType.FLOAT16, ir.DataType.FLOAT


def graph_of(nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], weights: dict[str, np.ndarray]) -> ir.Model:
    """A graph whose file tells no types but those of inputs and weights."""
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    kept = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    wanted = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(helper.make_graph(nodes, "g", given, wanted, kept), opset_imports=imports, ir_version=10)
    return litehouse.read(made.SerializeToString()).graph


def first_of(op: str) -> Case | None:
    return next((case for case in CASES.values() if case.op == op), None)


@pytest.mark.parametrize("op", [op for op in OPERANDS if first_of(op)])
def test_dtypes(op: str) -> None:
    case = first_of(op)
    assert case is not None
    named = {f"x{place}": array for place, array in enumerate(case.inputs) if array is not None}
    names = ["" if array is None else f"x{place}" for place, array in enumerate(case.inputs)]
    results = [f"r{place}" for place in range(len(case.dtypes))]
    single = helper.make_node(op, names, results, domain="com.microsoft", **case.attributes)
    graph = graph_of([single, helper.make_node("Cast", ["r0"], ["y"], to=1)], named, {})
    TellTypesPass()(graph)
    assert [value.dtype.numpy() for value in graph.graph[0].outputs if value.dtype] == [*map(np.dtype, case.dtypes)]


def layers() -> ir.Model:
    """A table and two layers, with weights of 4 bits."""
    random = np.random.default_rng(0)

    def bits(*shape: int) -> np.ndarray:
        return random.integers(0, 256, shape).astype(np.uint8)

    def scale(*shape: int) -> np.ndarray:
        return random.uniform(0.01, 0.03, shape).astype(np.float32)

    own = {"domain": "com.microsoft", "block_size": 16}
    nodes = [
        node("GatherBlockQuantized", "table ids factors", "g", **own),
        helper.make_node("MatMulNBits", ["g", "w1", "s1", "", "", "b1"], ["m"], K=64, N=32, **own),
        node("Relu", "m", "r"),
        node("MatMulNBits", "r w2 s2", "y", K=32, N=24, **own),
    ]
    weights = {"table": bits(9, 32), "factors": scale(9, 4), "w1": bits(32, 4, 8), "s1": scale(32, 4)}
    weights |= {"b1": np.full(32, 1e-9, np.float32), "w2": bits(24, 2, 8), "s2": scale(24, 2)}
    return graph_of(nodes, {"ids": np.array([[0, 3, 8]])}, weights)


def test_weights_of_few_bits_take_16_bits() -> None:
    graph, feed = layers(), {"ids": np.array([[0, 3, 8]])}
    (expected,) = run(graph, feed)
    halve(graph)
    assert ops(graph) == ["GatherBlockQuantized", "MatMulNBits", "Relu", "MatMulNBits", "Cast"]
    for each in list(graph.graph)[:-1]:
        floats = {value.dtype for value in (*each.inputs, *each.outputs) if value is not None} & {HALF, FULL}
        assert floats == {HALF}
    assert graph.graph.outputs[0].dtype == FULL
    (actual,) = run(graph, feed)
    np.testing.assert_allclose(actual, expected, rtol=0, atol=4e-3 * float(np.abs(expected).max()))


def test_on_torch_in_16_bits() -> None:
    from litehouse import Options
    from litehouse.engines.torch.engine import TorchEngine

    pytest.importorskip("torch")
    graph = layers()
    (expected,) = run(graph, {"ids": np.array([[0, 3, 8]])})
    content = ir.to_proto(graph).SerializeToString()
    program = TorchEngine().compile(litehouse.read(content), Options(engine="torch", cache=False), precision="fp16")
    (actual,) = program.bind().run([np.array([[0, 3, 8]])])
    assert not program.lacking
    error = np.abs(actual - expected).max() / np.abs(expected).max()
    assert 0 < error < 4e-3  # it is rounded to 16 bits
