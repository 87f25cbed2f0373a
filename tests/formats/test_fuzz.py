"""Mutated files: whatever the bytes are, reading gives a model or a documented error. Seeds are fixed."""

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import onnx
from formats.builders import (
    branch,
    constant,
    field,
    function,
    info,
    local_function,
    mindir,
    node,
    onnx_graph,
    op,
    outcome,
    schema,
    tensor,
    varint,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

import litehouse
from conftest import FIXTURES

PROFILE = settings(derandomize=True, max_examples=400, deadline=None, database=None)
OUTCOMES = {"Model", "ModelFormatError", "LimitError", "UnsupportedOpError", "WeightError"}


def rich_mindir(model: schema.Model) -> None:
    """More kinds of content: constants, tuples, old literals, a function, dynamic sizes."""
    model.primitives.add(name="MakeTuple:3", op_type="MakeTuple")
    model.primitives.add(name="TupleGetItem:4", op_type="TupleGetItem")
    model.primitives[0].attribute.add(name="old", ref_attr_name="scalar:Tuple[value0,Tuple[value1,],],", ints=[1, 2])
    model.graph.node.extend(
        [
            constant("c", tensor("", (3,), 1, struct.pack("<3f", 1, 2, 3))),
            constant("zero", 0),
            constant("pair", (1, (2, "text"))),
            node("REF::Add:1", "G:r:2 c", "G:b:3"),
            node("REF::MakeTuple:3", "G:b:3 G:a:1", "G:t:4", None),
            node("REF::TupleGetItem:4", "G:t:4 zero", "G:g:5"),
            node("REF::f", "G:g:5", "G:f:6"),
        ]
    )
    model.functions.append(function("f", [node("REF::ReLU:2", "f:p", "f:q")], "f:q", "f:p"))
    model.graph.input[0].tensor[0].dims[0] = -1
    model.graph.output[0].name = "G:f:6"


def rich_onnx(model: onnx.ModelProto) -> None:
    """More kinds of content: constants, a branch, a local function, typed weights."""
    model.graph.initializer.append(helper.make_tensor("h", onnx.TensorProto.FLOAT16, [3], [1.0, 2.0, 3.0]))
    model.graph.initializer.append(helper.make_tensor("n", onnx.TensorProto.INT4, [3], [1, 2, 3]))
    model.graph.input.append(info("flag", [], onnx.TensorProto.BOOL))
    then = branch([op("Neg", "r", "t")], "t")
    model.graph.node.append(op("If", "flag", "i", then_branch=then, else_branch=branch([op("Abs", "r", "e")], "e")))
    model.functions.append(local_function("F", [op("Constant", "", "k", value_float=2.0), op("Mul", "p k", "q")]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(op("F", "i", "z", domain="own"))
    model.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="z"))


SEEDS = {
    "mindir": [mindir(), mindir(rich_mindir), (FIXTURES / "mindir" / "ops" / "act_relu.mindir").read_bytes()],
    "onnx": [onnx_graph(), onnx_graph(rich_onnx)],
}


def test_seeds_are_valid() -> None:
    assert {outcome(seed) for seeds in SEEDS.values() for seed in seeds} == {"Model"}


# Mutations: what a damaged disk does, and what somebody does who knows the format.

positions = st.integers(0, 2**16)
edits = st.one_of(
    st.tuples(st.just("set"), positions, st.binary(min_size=1, max_size=4)),
    st.tuples(st.just("insert"), positions, st.binary(min_size=1, max_size=12)),
    st.tuples(st.just("delete"), positions, st.integers(1, 20)),
    st.tuples(st.just("repeat"), positions, st.integers(1, 40)),
    st.tuples(st.just("number"), positions, st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**64 - 1])),
    st.tuples(st.just("swap"), positions, positions),
)


def mutated(seed: bytes, changes: list[tuple[str, int, Any]]) -> bytes:
    content = bytearray(seed)
    for what, place, detail in changes:
        at = place % max(1, len(content))
        if what == "set":
            content[at : at + len(detail)] = detail
        elif what == "insert":
            content[at:at] = detail
        elif what == "delete":
            del content[at : at + detail]
        elif what == "repeat":
            content[at:at] = content[at : at + detail]
        elif what == "number":
            content[at : at + 1] = varint(detail)
        else:
            other = detail % max(1, len(content))
            content[at : at + 4], content[other : other + 4] = content[other : other + 4], content[at : at + 4]
    return bytes(content)


@PROFILE
@given(st.sampled_from(SEEDS["mindir"]), st.lists(edits, min_size=1, max_size=4))
def test_mutated_mindir(seed: bytes, changes: list[tuple[str, int, Any]]) -> None:
    assert outcome(mutated(seed, changes)) in OUTCOMES


@PROFILE
@given(st.sampled_from(SEEDS["onnx"]), st.lists(edits, min_size=1, max_size=4))
def test_mutated_onnx(seed: bytes, changes: list[tuple[str, int, Any]]) -> None:
    assert outcome(mutated(seed, changes)) in OUTCOMES


@PROFILE
@given(
    st.binary(max_size=300),
    st.sampled_from([b"", b"\x0a\x031.1", b"\x08\x0a", b"\xd8\x5e\x3a\x7f", b"\xd9\x5e\x3a\x7f"]),
)
def test_noise(content: bytes, head: bytes) -> None:
    assert outcome(head + content) in OUTCOMES
    assert outcome(head + field(7, content)) in OUTCOMES
    assert outcome(head + content, key=bytes(16)) in OUTCOMES


# Changes of the message itself, which stay well-formed protobuf: these reach the code behind the parser.


def leaves(message: Any) -> list[tuple[Any, Any, int]]:
    """Every place of a message that holds a number, text or bytes: (message, field, index in a repeated one)."""
    found = []
    for kind, content in message.ListFields():
        repeated = not isinstance(content, str | bytes | int | float | bool) and hasattr(content, "__len__")
        items = list(content) if repeated else [content]
        if kind.message_type is not None:
            found += [leaf for item in items if hasattr(item, "ListFields") for leaf in leaves(item)]
        else:
            found += [(message, kind, index if repeated else -1) for index in range(len(items))]
    return found


INTEGERS = st.sampled_from([-(2**63), -2, -1, 0, 1, 2, 3, 7, 8, 64, 65, 1000, 2**31 - 1, 2**31, 2**62, 2**63 - 1])
TEXTS = st.sampled_from(
    ["", "x", "w", "G:x", "G:w", "G", "a", "q", "#1", "shape", "value", "REF::", "REF::f", "REF::Add:1", "Add", "../x"]
)


def changed(message: Any, data: st.DataObject) -> bytes:
    for _ in range(data.draw(st.integers(1, 3))):
        places = leaves(message)
        if not places:
            break
        holder, kind, index = places[data.draw(st.integers(0, len(places) - 1))]
        new = _new_value(kind, data)
        try:
            if index < 0:
                setattr(holder, kind.name, new)
            elif data.draw(st.booleans()):
                getattr(holder, kind.name)[index] = new
            else:
                del getattr(holder, kind.name)[index]
        except ValueError:  # out of the range of the field
            continue
    return message.SerializeToString()


def _new_value(kind: Any, data: st.DataObject) -> Any:
    if kind.cpp_type == kind.CPPTYPE_STRING:
        return data.draw(TEXTS) if kind.type == kind.TYPE_STRING else data.draw(st.binary(max_size=16))
    if kind.cpp_type in (kind.CPPTYPE_FLOAT, kind.CPPTYPE_DOUBLE):
        return data.draw(st.floats(width=32))
    if kind.cpp_type == kind.CPPTYPE_BOOL:
        return data.draw(st.booleans())
    return data.draw(INTEGERS)


def _changes(seeds: list[bytes], parse: Callable[[bytes], Any], data: st.DataObject) -> None:
    message = parse(data.draw(st.sampled_from(seeds)))
    assert outcome(changed(message, data)) in OUTCOMES


@PROFILE
@given(st.data())
def test_changed_mindir(data: st.DataObject) -> None:
    _changes(SEEDS["mindir"], schema.Model.FromString, data)


@PROFILE
@given(st.data())
def test_changed_onnx(data: st.DataObject) -> None:
    _changes(SEEDS["onnx"], onnx.ModelProto.FromString, data)


# Through the engine as well: what the reader lets pass must be a session or a documented error.


@settings(PROFILE, max_examples=60)
@given(st.data())
def test_loaded(data: st.DataObject) -> None:
    name, parse = data.draw(st.sampled_from([("mindir", schema.Model), ("onnx", onnx.ModelProto)]))
    content = changed(parse.FromString(data.draw(st.sampled_from(SEEDS[name]))), data)
    with contextlib.suppress(litehouse.LitehouseError):
        litehouse.load(content, engine="onnxruntime", threads=1)
