"""ONNX files with ops between ranks: those that the slicer writes are read, and every fault is refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import litehouse
from litehouse import ModelFormatError, UnsupportedOpError
from litehouse.model import EXCHANGE_DOMAIN

FLOAT = onnx.TensorProto.FLOAT
GROUP = {"group": "litehouse_world_group"}
SOUND: dict[str, dict[str, Any]] = {
    "AllReduce": {**GROUP, "op": "sum", "rank_size": 2},
    "AllGather": {**GROUP, "rank_size": 2},
    "ReduceScatter": {**GROUP, "op": "max", "rank_size": 2},
    "Broadcast": {**GROUP, "root_rank": 1},
    "Send": {**GROUP, "dest_rank": 1, "sr_tag": 0},
    "Receive": {**GROUP, "src_rank": 1, "sr_tag": 7},
    "Depend": {},
}


def _node(
    kind: str, inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ("h",), /, **attributes: Any
) -> onnx.NodeProto:
    node = helper.make_node(kind, inputs, outputs, domain=EXCHANGE_DOMAIN)
    node.attribute.extend(helper.make_attribute(name, content) for name, content in attributes.items())
    return node


def _model(*nodes: onnx.NodeProto, version: int = 1, typed: bool = True) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*nodes, helper.make_node("Relu", ["h"], ["y"])],
        "part",
        [value("x", FLOAT, [2, 4])],
        [value("y", FLOAT, [2, 4])],
        value_info=[value("h", FLOAT, [2, 4])] if typed else [],
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(EXCHANGE_DOMAIN, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _read(model: onnx.ModelProto) -> litehouse.Model:
    return litehouse.read(model.SerializeToString())


@pytest.mark.parametrize("op", SOUND)
def test_sound_files_are_read(op: str) -> None:
    model = _read(_model(_node(op, **SOUND[op])))
    assert [name for name, _ in model.exchanges] == [op]
    value = next(node for node in model.graph.graph if node.domain == EXCHANGE_DOMAIN).outputs[0]
    assert value.shape is not None
    assert tuple(value.shape) == (2, 4)


@pytest.mark.parametrize("op", SOUND)
def test_attributes_that_are_missing_or_strange(op: str) -> None:
    for name in SOUND[op]:
        rest = {key: item for key, item in SOUND[op].items() if key != name}
        for attributes in (rest, {**rest, name: 1.5}, {**rest, name: [1]}):
            with pytest.raises(ModelFormatError, match="attribute"):
                _read(_model(_node(op, **attributes)))
    with pytest.raises(ModelFormatError, match="attributes"):
        _read(_model(_node(op, **SOUND[op], more=1)))


@pytest.mark.parametrize(
    ("op", "change"),
    [
        ("AllReduce", {"op": "median"}),
        ("AllReduce", {"rank_size": 0}),
        ("AllReduce", {"rank_size": 2**62}),
        ("AllReduce", {"group": ""}),
        ("AllGather", {"group": "g" * 5000}),
        ("AllGather", {"rank_size": -1}),
        ("Broadcast", {"root_rank": -1}),
        ("Send", {"dest_rank": 2**40}),
        ("Send", {"sr_tag": -1}),
        ("Receive", {"src_rank": -3}),
        ("Receive", {"sr_tag": 2**40}),
    ],
)
def test_attributes_out_of_range(op: str, change: dict[str, Any]) -> None:
    with pytest.raises(ModelFormatError, match="makes no sense"):
        _read(_model(_node(op, **{**SOUND[op], **change})))


def test_operands_and_results() -> None:
    with pytest.raises(ModelFormatError, match="operands"):
        _read(_model(_node("AllReduce", ("x", "x"), **SOUND["AllReduce"])))
    with pytest.raises(ModelFormatError, match="operands"):
        _read(_model(_node("AllReduce", (), **SOUND["AllReduce"])))
    with pytest.raises(ModelFormatError, match="without a name"):
        _read(_model(_node("Depend", ("x", ""), **SOUND["Depend"])))
    with pytest.raises(ModelFormatError, match="results"):
        _read(_model(_node("AllGather", ("x",), ("h", "g"), **SOUND["AllGather"])))
    with pytest.raises(ModelFormatError, match="as much as it takes"):
        _read(_model(_node("Broadcast", ("x", "x"), ("h",), **SOUND["Broadcast"])))


def test_what_comes_must_have_a_type() -> None:
    with pytest.raises(ModelFormatError, match="type of what comes"):
        _read(_model(_node("Receive", **SOUND["Receive"]), typed=False))


@pytest.mark.parametrize("op", ["AlltoAll", "Barrier", "Erase", ""])
def test_other_ops_of_the_domain(op: str) -> None:
    with pytest.raises((UnsupportedOpError, ModelFormatError)):
        _read(_model(_node(op)))


@pytest.mark.parametrize("version", [0, 2, -1, 2**40])
def test_other_versions(version: int) -> None:
    with pytest.raises(UnsupportedOpError):
        _read(_model(_node("AllReduce", **SOUND["AllReduce"]), version=version))


def _branch() -> onnx.ModelProto:
    out = [helper.make_tensor_value_info("inside", FLOAT, [2, 4])]
    inner = _node("AllReduce", ("x",), ("inside",), **SOUND["AllReduce"])
    then = helper.make_graph([inner], "then", [], out)
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["inside"])], "other", [], out)
    flag = helper.make_node("Constant", [], ["flag"], value=onnx.numpy_helper.from_array(np.array(True)))
    return _model(flag, helper.make_node("If", ["flag"], ["h"], then_branch=then, else_branch=other))


def _function(*, name: str = "F", domain: str = "own") -> onnx.ModelProto:
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid(EXCHANGE_DOMAIN, 1)]
    inner = _node("AllReduce", ("a",), ("b",), **SOUND["AllReduce"])
    if domain == EXCHANGE_DOMAIN:
        inner = helper.make_node("Relu", ["a"], ["b"])
    function = helper.make_function(domain, name, ["a"], ["b"], [inner], opsets)
    model = _model(helper.make_node(name, ["x"], ["h"], domain=domain))
    if domain != EXCHANGE_DOMAIN:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    model.functions.append(function)
    return model


@pytest.mark.parametrize(
    "make",
    [_branch, _function, lambda: _function(name="AllReduce", domain=EXCHANGE_DOMAIN)],
    ids=["branch", "function", "name"],
)
def test_only_at_the_top(make: Callable[[], onnx.ModelProto]) -> None:
    """All ranks must come to an exchange, and no function may pretend to be one."""
    with pytest.raises(ModelFormatError, match=r"branch, a loop or a function|name of an exchange"):
        _read(make())
