"""The protobuf wire format: fields, cutting, strict parsing."""

import onnx
import pytest
from formats.builders import W, field, mindir, nested, onnx_graph, refused, schema, varint
from hypothesis import given, settings
from hypothesis import strategies as st

from litehouse.errors import LimitError
from litehouse.formats import wire
from litehouse.formats.source import Source
from litehouse.formats.wire import BYTES, FIXED32, FIXED64, VARINT, Blob, cut, fields, parse

GRAPH, PARAMETER, RAW_DATA = 7, 3, 9
PROFILE = settings(derandomize=True, max_examples=80, deadline=None, database=None)


def all_fields(content: bytes) -> list[wire.Field]:
    return list(fields(Source.over(content), 0, len(content)))


def test_fields_of_every_kind() -> None:
    content = b"\x08\x96\x01" + b"\x11" + bytes(8) + field(3, b"abc") + b"\x25" + bytes(4)
    assert [(item.number, item.kind) for item in all_fields(content)] == [
        (1, VARINT),
        (2, FIXED64),
        (3, BYTES),
        (4, FIXED32),
    ]
    third = all_fields(content)[2]
    assert content[third.content : third.end] == b"abc"


@pytest.mark.parametrize(
    "content",
    [
        b"\x00\x01",  # field 0
        b"\x0b",  # a group
        b"\x0e",  # no such kind
        b"\x80",  # a tag that is cut off
        b"\x08",  # a number that is missing
        b"\x08\x80",  # and one that is cut off
        b"\x08" + b"\x80" * 10 + b"\x01",  # and one that is too long
        b"\x0a\x05abcd",  # bytes that are cut off
        b"\x09" + bytes(7),
        b"\x0d" + bytes(3),
        varint(1 << 32 | 2) + b"\x00",  # a field number that is too large
    ],
)
def test_broken_fields(content: bytes) -> None:
    with refused():
        all_fields(content)


def test_a_number_of_ten_bytes() -> None:
    assert all_fields(b"\x08" + b"\xff" * 9 + b"\x01")[0].end == 11


def test_values_across_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    content = mindir()
    expected = cut(Source.over(content), GRAPH, PARAMETER, RAW_DATA)
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(wire, "WINDOW", size)
        assert cut(Source.over(content), GRAPH, PARAMETER, RAW_DATA) == expected


def test_cut_takes_out_the_weights_alone() -> None:
    content = mindir()
    rest, blobs = cut(Source.over(content), GRAPH, PARAMETER, RAW_DATA)
    (blob,) = blobs
    assert blob is not None
    assert content[blob.offset : blob.offset + blob.length] == W.tobytes()
    model = schema.Model.FromString(rest)
    assert not model.graph.parameter[0].HasField("raw_data")
    model.graph.parameter[0].raw_data = W.tobytes()
    assert model == schema.Model.FromString(content)


def test_cut_without_a_graph_or_weights() -> None:
    assert cut(Source.over(field(1, b"1.1")), GRAPH, PARAMETER, RAW_DATA) == (field(1, b"1.1"), [])
    content = mindir(lambda m: m.graph.ClearField("parameter"))
    assert cut(Source.over(content), GRAPH, PARAMETER, RAW_DATA) == (content, [])


def test_weights_without_bytes_keep_their_place() -> None:
    def change(model: schema.Model) -> None:
        model.graph.parameter.insert(0, schema.Tensor(name="first"))
        model.graph.parameter.append(schema.Tensor(name="last"))

    _, blobs = cut(Source.over(mindir(change)), GRAPH, PARAMETER, RAW_DATA)
    assert [blob is None for blob in blobs] == [True, False, True]


def test_the_last_of_two_bytes_fields_counts_as_in_protobuf() -> None:
    tensor = field(RAW_DATA, b"first") + field(RAW_DATA, b"second")
    content = field(GRAPH, field(PARAMETER, tensor))
    _, blobs = cut(Source.over(content), GRAPH, PARAMETER, RAW_DATA)
    assert isinstance(blobs[0], Blob)
    assert content[blobs[0].offset :][: blobs[0].length] == b"second"
    assert schema.Tensor.FromString(tensor).raw_data == b"second"


def test_a_structure_too_large_for_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_STRUCTURE", 100)
    with refused(LimitError, "over 2 GB"):
        cut(Source.over(mindir()), GRAPH, PARAMETER, RAW_DATA)


def test_parse_checks_text() -> None:
    assert parse(schema.Model, field(1, "1.1 ✓".encode()), "m").ir_version == "1.1 ✓"
    for message in (schema.Model, onnx.ModelProto):
        with refused(text="UTF-8"):
            parse(message, field(2, b"\xff\xfe"), "m")


def test_parse_of_nonsense() -> None:
    with refused(text="m: broken protobuf data"):
        parse(schema.Model, b"\xff", "m")
    with refused():
        parse(schema.Model, nested([GRAPH] + [8] * 200), "m")


# Properties ----------------------------------------------------------------------------------------------------------

texts = st.text(max_size=8)
tensors = st.builds(
    lambda name, dims, data, numbers: (
        schema.Tensor(name=name, dims=dims, float_data=numbers)
        if data is None
        else schema.Tensor(name=name, dims=dims, float_data=numbers, raw_data=data)
    ),
    texts,
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4),
    st.none() | st.binary(max_size=300),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3),
)
nodes = st.builds(
    lambda inputs, op, tensor: schema.Node(
        input=inputs, op_type=op, attribute=[schema.Attribute(name="value", tensors=[tensor])]
    ),
    st.lists(texts, max_size=3),
    texts,
    tensors,
)
graphs = st.builds(
    lambda name, nodes, parameters: schema.Graph(name=name, node=nodes, parameter=parameters),
    texts,
    st.lists(nodes, max_size=3),
    st.lists(tensors, max_size=4),
)
models = st.builds(
    lambda version, graph, functions, number: schema.Model(
        ir_version=version, graph=graph, functions=functions, mind_ir_version=number
    ),
    texts,
    graphs,
    st.lists(graphs, max_size=2),
    st.integers(-(2**63), 2**63 - 1),
)


@PROFILE
@given(models)
def test_cut_and_blobs_make_the_whole_again(model: schema.Model) -> None:
    content = model.SerializeToString()
    rest, blobs = cut(Source.over(content), GRAPH, PARAMETER, RAW_DATA)
    again = parse(schema.Model, rest, "m")
    assert len(blobs) == len(again.graph.parameter)
    for tensor, blob in zip(again.graph.parameter, blobs, strict=True):
        assert not tensor.HasField("raw_data")
        if blob is not None:
            tensor.raw_data = content[blob.offset : blob.offset + blob.length]
    assert again == model


@PROFILE
@given(st.binary(max_size=200))
def test_fields_of_anything_cover_it_or_fail(content: bytes) -> None:
    try:
        found = all_fields(content)
    except wire.ModelFormatError:
        return
    assert [item.start for item in found] + [len(content)] == [0] + [item.end for item in found]


@PROFILE
@given(st.integers(0, 2**64 - 1))
def test_varints(number: int) -> None:
    assert wire._varint(number) == varint(number)
    window = wire._Window(Source.over(varint(number)))
    assert window.varint(0, 10) == (number, len(varint(number)))


def test_onnx_is_cut_the_same_way() -> None:
    content = onnx_graph()
    rest, blobs = cut(Source.over(content), 7, 5, 9)
    model = parse(onnx.ModelProto, rest, "m")
    assert blobs[0] is not None
    model.graph.initializer[0].raw_data = content[blobs[0].offset :][: blobs[0].length]
    assert model == onnx.ModelProto.FromString(content)
