"""Detection by content; `test_hostile_files.py` has the files that are no models."""

import pytest
from formats.builders import field, mindir, onnx_graph, refused, schema

from litehouse.formats.detect import detect
from litehouse.formats.source import Source


def kind(content: bytes) -> str:
    return detect(Source.over(content))


def test_formats() -> None:
    assert kind(mindir()) == "mindir"
    assert kind(onnx_graph()) == "onnx"


@pytest.mark.parametrize("last", range(0xD8, 0xDB))
def test_encrypted(last: int) -> None:
    assert kind(bytes([last]) + b"\x5e\x3a\x7f" + bytes(50)) == "encrypted"


def test_versions_as_mindspore_writes_them() -> None:
    for version in ("0.1.0", "0.1.1", "1.1"):
        assert kind(mindir(lambda m, text=version: setattr(m, "ir_version", text))) == "mindir"


def test_order_of_fields_does_not_matter() -> None:
    graph = field(7, schema.Graph(name="G").SerializeToString())
    assert kind(graph + field(5, b"2.10.0")) == "mindir"
    assert kind(graph + b"\x08\x08") == "onnx"
    assert kind(graph + b"\x28\x01") == "onnx"


def test_cut_files_still_show_their_kind() -> None:
    """So that the error speaks of a damaged file of that kind, not of an unknown one."""
    assert kind(b"\x0a\x05" + b"0.1") == "mindir"
    assert kind(b"\x08\x0a" + b"\x12\x07pytor") == "onnx"


def test_a_graph_alone_is_unknown() -> None:
    with refused(text="neither MindIR, .ms, MegEngine nor ONNX"):
        kind(field(7, b""))
