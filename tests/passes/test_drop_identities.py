"""Nodes that give what they take are taken out; the outputs of graphs keep their names."""

import numpy as np
import onnx
from onnx import helper

from litehouse.passes.drop_identities import DropIdentitiesPass
from onnx_models import model, node
from pass_checks import apply, drawn, ops, read, run, stays

FLOAT = onnx.TensorProto.FLOAT


def test_a_chain_of_them() -> None:
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b"), node("Identity", "b", "c"), node("Add", "c b", "y")]
    graph = read(model(nodes, {"x": [2, 3]}, {"y": None}))
    assert apply(DropIdentitiesPass(), graph)
    assert ops(graph) == ["Relu", "Add"]


def test_what_an_input_or_a_weight_is_given_as() -> None:
    nodes = [node("Identity", "x", "a"), node("Identity", "w", "b"), node("MatMul", "a b", "y")]
    graph = read(model(nodes, {"x": [2, 3]}, {"y": None}, {"w": drawn(3, 4)}))
    assert apply(DropIdentitiesPass(), graph)
    assert ops(graph) == ["MatMul"]


def test_outputs_keep_their_names() -> None:
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "y"), node("Identity", "a", "z"), node("Identity", "x", "w")]
    data = model(nodes, {"x": [2, 3]}, {"a": None, "y": None, "z": None, "w": None})
    assert stays(DropIdentitiesPass(), data)


def test_sizes_that_a_file_has_wrong() -> None:
    """As where it was edited by hand: nothing is to fail."""
    nodes = [node("Relu", "x", "a"), node("Identity", "a", "b"), node("Neg", "b", "y")]
    proto = onnx.ModelProto.FromString(model(nodes, {"x": [2, 3]}, {"y": None}))
    proto.graph.value_info.extend(
        helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in (("a", [2, 3]), ("b", [7]))
    )
    import onnx_ir as ir

    graph = ir.serde.deserialize_model(proto)
    x = drawn(2, 3)
    assert DropIdentitiesPass()(graph).modified
    np.testing.assert_array_equal(run(graph, {"x": x})[0], -np.maximum(x, 0))


def test_graphs_that_give_a_value_of_the_graph_around_them() -> None:
    """A branch may give what is outside of it only through a node of its own."""

    def branch(name: str, *inner: onnx.NodeProto, gives: str) -> onnx.GraphProto:
        return helper.make_graph(list(inner), name, [], [helper.make_tensor_value_info(gives, FLOAT, None)])

    deep = [
        branch("c", node("Identity", "h", "i"), node("Identity", "i", "p"), gives="p"),
        branch("d", node("Identity", "h", "j"), node("Neg", "j", "q"), gives="q"),
    ]
    wide = [
        branch("a", node("If", "no", "k", then_branch=deep[0], else_branch=deep[1]), gives="k"),
        branch("b", node("Identity", "h", "m"), gives="m"),
    ]
    nodes = [node("Relu", "x", "g"), node("Identity", "g", "h")]
    nodes += [node("If", "yes", "y", then_branch=wide[0], else_branch=wide[1])]
    data = model(nodes, {"x": [2, 3]}, {"y": None, "h": None}, {"yes": np.array(True), "no": np.array(False)})
    graph = read(data)
    assert apply(DropIdentitiesPass(), graph)
    left = [each.op_type for each in graph.graph.all_nodes()]
    assert left.count("Identity") == 3  # those that give `p`, `m` and `h`
