"""The containers of MegEngine files, and what is wrong with broken ones."""

import re
import struct
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from litehouse.formats.flat import FlatBuffer
from litehouse.formats.mge.operators import NAMES, number_of
from litehouse.formats.mge.pack import open_packed
from litehouse.formats.mge.reader import read_graph
from litehouse.formats.source import Source, open_source
from litehouse.options import Limits

CONTAINERS = FIXTURES / "mge" / "containers"
PLAIN, PLAIN_V1 = CONTAINERS / "names.mge", CONTAINERS / "names_v1.mge"


def outputs_of(content: bytes | Path, case: Path, **options: object) -> None:
    """The file computes what the real MegEngine computed for the case."""
    session = litehouse.load(content, engine="onnxruntime", threads=1, **options)
    with np.load(case.with_suffix(".npz")) as stored:
        results = session.run({info.name: stored[f"in_{info.name}"] for info in session.inputs})
        for place, result in enumerate(results):
            assert_close(result, stored[f"out_{place}"])


def oldest(content: bytes) -> bytes:
    """A version 1 file as MegBrain wrote it before: without feature bytes, operators by names without versions."""
    assert content.startswith(b"MGBC")
    for name in NAMES:
        old = number_of(re.sub(r"V\d$", "", name).encode())
        content = content.replace(struct.pack("<Q", number_of(name.encode() + b"\0")), struct.pack("<Q", old))
    return b"MGBS" + content[12:]


def test_version_1() -> None:
    graph = read_graph(Source.over(PLAIN_V1.read_bytes()), Limits())
    assert graph.metadata == {"container": "v1", "mge_version": "1.13.0"}
    outputs_of(PLAIN_V1, PLAIN_V1)


def test_the_oldest_version() -> None:
    content = oldest(PLAIN_V1.read_bytes())
    assert content.startswith(b"MGBS")
    outputs_of(content, PLAIN_V1)


def test_version_2() -> None:
    content = PLAIN.read_bytes()
    graph = read_graph(Source.over(content), Limits())
    assert graph.metadata == {"container": "v2", "mge_version": "1.13.0"}
    assert graph.size == len(content)
    outputs_of(content, PLAIN)


def test_the_tag_before_the_first_release() -> None:
    content = PLAIN.read_bytes()
    outputs_of(content[:8] + b"mge2" + content[12:], PLAIN)


@pytest.mark.parametrize("path", [PLAIN, PLAIN_V1], ids=lambda path: path.name)
def test_only_the_first_of_several_counts(path: Path) -> None:
    """`dump(..., append=True)` puts another one behind."""
    outputs_of(path.read_bytes() + (CONTAINERS / "plain.mge").read_bytes(), path)


@pytest.mark.parametrize("path", [PLAIN, PLAIN_V1], ids=lambda path: path.name)
def test_cut_off_anywhere(path: Path) -> None:
    content = path.read_bytes()
    for length in range(12, len(content), 7):
        with pytest.raises(litehouse.ModelFormatError) as caught:
            litehouse.read(content[:length])
        assert "no check foresaw" not in str(caught.value)


def test_operator_count_is_limited() -> None:
    with pytest.raises(litehouse.LimitError, match="max_nodes=2"):
        litehouse.read(PLAIN, limits=Limits(max_nodes=2))


def test_unknown_operator_is_named(tmp_path: Path) -> None:
    content = PLAIN.read_bytes()
    assert b"Elemwise" in content
    path = tmp_path / "strange.mge"
    path.write_bytes(content.replace(b"Elemwise", b"Elegance"))
    with pytest.raises(litehouse.UnsupportedOpError, match=r"strange\.mge(.|\n)*Elegance \(node Elegance\[\d+\]"):
        litehouse.read(path)


def test_variables_must_be_made_before_they_are_used() -> None:
    content = bytearray(PLAIN.read_bytes())
    buffer = FlatBuffer(Source.over(bytes(content)), 4)
    last = buffer.root().tables(2)[-1]
    at = 4 + last._target(7) + 4  # behind the count of its inputs
    content[at : at + 4] = struct.pack("<I", 9999)
    with pytest.raises(litehouse.ModelFormatError, match="takes variable 9999, which nothing before it makes"):
        litehouse.read(bytes(content))


def test_a_key_for_a_plain_file_is_refused() -> None:
    with pytest.raises(litehouse.ModelFormatError, match="not encrypted"):
        litehouse.read(PLAIN, key=b"0123456789abcdef")


def test_resize_translates_anew() -> None:
    """The sizes in the file are those of its trace; a session takes others, over the same weights."""
    session = litehouse.load(FIXTURES / "mge" / "elemwise" / "broadcast_both.mge", engine="onnxruntime")
    first = [info.shape for info in session.inputs]
    assert first == [(3, 1, 5), (1, 4, 1)]
    with pytest.raises(litehouse.ShapeError, match="cannot take the shapes"):
        session.resize([(3, 2, 5), (1, 4, 1)])
    assert [info.shape for info in session.inputs] == first
    session.resize([(1, 4, 6), (2, 1, 6)])
    assert [info.shape for info in session.outputs] == [(2, 4, 6)]
    a, b = np.arange(24, dtype=np.float32).reshape(1, 4, 6), np.arange(12, dtype=np.float32).reshape(2, 1, 6)
    np.testing.assert_array_equal(session.run([a, b])[0], a * b)
    session.resize(first)
    assert [info.shape for info in session.outputs] == [(3, 4, 5)]
    session.resize([(4,), (1, 5, 1)])  # MegEngine takes another rank, too, where the network does
    assert [info.shape for info in session.outputs] == [(1, 5, 4)]


def test_every_variable_can_be_an_output() -> None:
    model = litehouse.read(FIXTURES / "mge" / "containers" / "plain.mge")
    assert model.translate is not None
    everything = model.translate([info.shape for info in model.inputs], every=True)
    names = [info.name for info in everything.outputs]
    assert {info.name for info in model.outputs} < set(names)
    assert len(names) > len(model.outputs)


@pytest.mark.parametrize("name", ["compressed.lite", "compressed_v1.lite"])
def test_a_bare_compressed_file_shows_by_its_sizes(name: str) -> None:
    """A packed model says that its values are compressed; the network taken out of it says nothing."""
    packed = FIXTURES / "mge_packed" / name
    with open_source(packed, Limits()) as source:
        opened = open_packed(source, Limits())
        content = opened.model.read(0, opened.model.size)
    expected, bare = litehouse.load(packed), litehouse.load(content)
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(expected.inputs[0].shape)
    names = [info.name for info in expected.outputs]
    results = dict(zip([info.name for info in bare.outputs], bare.run([x]), strict=True))
    for wanted, output in zip(expected.run([x]), names, strict=True):
        np.testing.assert_array_equal(results[output], wanted)


@pytest.mark.parametrize(
    ("case", "shapes", "text"),
    [
        ("convolution/conv2d_stride", [(1, 5, 8, 8)], r"operands of shapes \[1, 5, 8, 8\] and .* do not fit, at Conv"),
        ("containers/plain", [(2, 3, 8, 9, 1)], "cannot take the shapes"),
    ],
)
def test_a_resize_that_does_not_fit_is_refused_at_once(case: str, shapes: list[tuple[int, ...]], text: str) -> None:
    session = litehouse.load(FIXTURES / "mge" / f"{case}.mge", engine="onnxruntime")
    before = session.inputs
    with pytest.raises(litehouse.ShapeError, match=text):
        session.resize(shapes)
    assert session.inputs == before
