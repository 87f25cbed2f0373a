"""Files that are no models, or models that were damaged on the way. Each gives a documented error, at once."""

import gzip
import os
import pickle
import random
import socket
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from formats.builders import EXPECTED, X, descriptors, field, mindir, onnx_graph, outcome, refused, varint

import litehouse
from conftest import REPOSITORY
from litehouse import LimitError, ModelFormatError
from litehouse.formats.source import Source

MODELS: dict[str, Callable[[], bytes]] = {"mindir": mindir, "onnx": onnx_graph}


@pytest.fixture(params=MODELS)
def content(request: pytest.FixtureRequest) -> bytes:
    """A small valid file of each format."""
    return MODELS[request.param]()


# Not a file, or not a model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["mindir", "onnx", "bin", ""])
def test_the_name_says_nothing(tmp_path: Path, content: bytes, suffix: str) -> None:
    path = tmp_path / f"model.{suffix}"
    path.write_bytes(content)
    np.testing.assert_array_equal(litehouse.load(path, engine="onnxruntime").run([X])[0], EXPECTED)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("byte", [b"\0", b"\x08", b"\x0a", b"\xff"])
def test_next_to_nothing(tmp_path: Path, size: int, byte: bytes) -> None:
    path = tmp_path / "m.mindir"
    path.write_bytes(byte * size)
    for source in (path, byte * size):
        with refused():
            litehouse.read(source)


def test_directory(tmp_path: Path) -> None:
    with refused(text="a directory"):
        litehouse.read(tmp_path)


def test_missing(tmp_path: Path) -> None:
    with refused(text="No such file"):
        litehouse.read(tmp_path / "m.mindir")


def test_name_too_long(tmp_path: Path) -> None:
    with refused(text="too long"):
        litehouse.read(tmp_path / ("m" * 5000))


def test_fifo_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "m.mindir")
    with refused(text="not a regular file"):
        litehouse.read(tmp_path / "m.mindir")


def test_socket_and_devices(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with refused():
            litehouse.read(tmp_path / "s")
    for device in ("/dev/zero", "/dev/null"):
        with refused(text="not a regular file"):
            litehouse.read(device)


def test_link_loop(tmp_path: Path) -> None:
    (tmp_path / "m.mindir").symlink_to("m.mindir")
    with refused(text="cannot open"):
        litehouse.read(tmp_path / "m.mindir")


def test_unreadable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.mindir"
    path.write_bytes(content)
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    with refused(text="Permission denied"):
        litehouse.read(path)


def test_path_with_a_nul() -> None:
    with refused(text="NUL"):
        litehouse.read("model\0.mindir")


def test_path_that_cannot_be_encoded() -> None:
    with refused(text="cannot be encoded"):
        litehouse.read("model\ud800.mindir")


@pytest.mark.parametrize("source", [5, None, 1.5, ["m.mindir"]])
def test_wrong_type_is_the_callers_fault(source: object) -> None:
    with pytest.raises(TypeError):
        litehouse.read(source)  # type: ignore[arg-type]


def test_memory_views_are_bytes(content: bytes) -> None:
    for source in (bytearray(content), memoryview(content)):
        assert outcome(source) == "Model"


def zipped(tmp_path: Path) -> bytes:
    with zipfile.ZipFile(tmp_path / "z", "w") as archive:
        archive.writestr("data.pkl", b"")
    return (tmp_path / "z").read_bytes()


class Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os._exit, (3,)  # type: ignore[return-value]


STRANGERS: dict[str, tuple[Callable[[Path], bytes], str]] = {
    "gzip": (lambda _: gzip.compress(mindir()), "gzip"),
    "web page": (lambda _: b"<!DOCTYPE html><html>404</html>", "web page"),
    "JSON": (lambda _: b'{"error": "not found"}', "JSON"),
    "LFS pointer": (lambda _: b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git lfs pull"),
    "zip": (zipped, "zip archive"),
    "MindSpore Lite 1": (lambda _: b"\x1c\0\0\0MSL1" + bytes(64), "the schema MSL1"),
    "a MegEngine head alone": (lambda _: bytes(4) + b"\x1c\0\0\0mgv2" + bytes(64), "cut off"),
    "an old MegEngine head alone": (lambda _: b"mgbtest0" + bytes(64), "no MegEngine graph"),
    "the oldest MegEngine head alone": (lambda _: b"MGBS" + bytes(64), "cut off"),
    "a packed MegEngine head alone": (lambda _: b"packed_model" + bytes(64), "cut off"),
    "checkpoint": (lambda _: field(1, field(1, b"conv.weight") + field(2, bytes(8))), "MindSpore checkpoint"),
    "safetensors": (lambda _: (64).to_bytes(8, "little") + b'{"w":{"dtype":"F32"}}'.ljust(64), "safetensors"),
    "TensorFlow Lite": (lambda _: b"\x1c\0\0\0TFL3" + bytes(64), "TensorFlow Lite"),
    "NumPy array": (lambda _: b"\x93NUMPY\1\0" + bytes(64), "NumPy array"),
    "program": (lambda _: b"\x7fELF" + bytes(64), "program"),
    "tar": (lambda _: b"m.mindir".ljust(257, b"\0") + b"ustar\0" + bytes(600), "tar archive"),
    "noise": (lambda _: bytes(range(200, 256)), "neither MindIR, .ms, MegEngine nor ONNX"),
    "text": (lambda _: b"hello world\n" * 10, ""),
    "MegEngine checkpoint": (lambda _: pickle.dumps(OrderedDict(w=np.zeros(3)), 4), "as MegEngine saves them"),
    "MegEngine module": (lambda _: b"\x80\x04\x95" + bytes(8) + b"\x8c\x10megengine.tensor", "never opened"),
    "MegEngine traced module": (
        lambda _: b"\x80\x04\x95" + bytes(8) + b"\x8c\x25megengine.traced_module.traced_module",
        "a MegEngine traced module",
    ),
    **{f"pickle {n}": (lambda _, n=n: pickle.dumps(Evil(), n), "never opened") for n in (2, 3, 4, 5)},
}


@pytest.mark.parametrize("name", STRANGERS)
def test_strangers_are_named(tmp_path: Path, name: str) -> None:
    make, text = STRANGERS[name]
    path = tmp_path / "model.mindir"
    path.write_bytes(make(tmp_path))
    with refused(text=text):
        litehouse.read(path)


def test_a_producer_that_looks_like_a_tag() -> None:
    """The tag of a .ms file stands where this ONNX file has its producer's name."""
    content = onnx_graph(lambda m: setattr(m, "producer_name", "MSL2"))
    assert content[4:8] == b"MSL2"
    assert outcome(content) == "Model"
    content = onnx_graph(lambda m: setattr(m, "producer_name", "xxxxmgv2"))
    assert content[8:12] == b"mgv2"
    assert outcome(content) == "Model"


# Damaged on the way --------------------------------------------------------------------------------------------------


def test_truncated_at_200_places(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.mindir"
    for index in range(200):
        length = index * len(content) // 200
        path.write_bytes(content[:length])
        with refused():
            litehouse.read(path)


def test_bit_flips(content: bytes) -> None:
    generator = random.Random(5)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[generator.randrange(len(damaged))] ^= 1 << generator.randrange(8)
        outcome(bytes(damaged))


def test_byte_flips(content: bytes) -> None:
    generator = random.Random(6)
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(generator.randrange(1, 5)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        outcome(bytes(damaged))


@pytest.mark.parametrize("junk", [b"\0", b"\0" * 100, b"\xff" * 20, b"junk", b"\x0a"])
def test_trailing_junk(content: bytes, junk: bytes) -> None:
    with refused():
        litehouse.read(content + junk)


def test_trailing_fields_that_nobody_knows_are_ignored(content: bytes) -> None:
    assert outcome(content + field(1000, b"from a later version")) == "Model"


def test_length_beyond_the_file(content: bytes) -> None:
    graph = 7
    for length in (2**31, 2**40, 2**63, 2**64 - 1):
        with refused(text="ends behind the data"):
            litehouse.read(content + varint(graph << 3 | 2) + varint(length))


def test_overlong_varints(content: bytes) -> None:
    for tail in (b"\x80" * 10 + b"\1", b"\xff" * 11, b"\x3a" + b"\xff" * 12, b"\xb8\x3e" + b"\x80" * 10 + b"\0"):
        with refused(text="protobuf"):
            litehouse.read(content + tail)


# Changed while it is read --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 20])
def test_shrunk_while_it_is_read(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    path = tmp_path / "m.mindir"
    path.write_bytes(content)
    read_into = Source.read_into

    def shrink(self: Source, offset: int, array: np.ndarray) -> None:
        os.truncate(path, left)
        read_into(self, offset, array)

    monkeypatch.setattr(Source, "read_into", shrink)
    with refused(text="shrank"):
        litehouse.read(path)


def test_replaced_while_it_is_read(tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was opened is the one that is read."""
    path = tmp_path / "m.mindir"
    path.write_bytes(content)
    read_into = Source.read_into

    def replace(self: Source, offset: int, array: np.ndarray) -> None:
        (tmp_path / "other").write_bytes(b"\xff" * len(content))
        (tmp_path / "other").replace(path)
        read_into(self, offset, array)

    monkeypatch.setattr(Source, "read_into", replace)
    np.testing.assert_array_equal(litehouse.load(path, engine="onnxruntime").run([X])[0], EXPECTED)


# After an error ------------------------------------------------------------------------------------------------------


def test_no_descriptor_leaks_in_500_failures(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.mindir"
    path.write_bytes(content[:-5])
    before = descriptors()
    for _ in range(500):
        assert outcome(path) == "ModelFormatError"
    assert descriptors() == before


def test_other_threads_are_not_disturbed(content: bytes) -> None:
    session = litehouse.load(content, engine="onnxruntime", threads=1)
    results: list[np.ndarray] = []
    worker = threading.Thread(target=lambda: results.extend(session.run([X])[0] for _ in range(200)))
    worker.start()
    for length in range(0, len(content) - 1, 3):
        assert outcome(content[:length]) != "Model"
    worker.join()
    assert len(results) == 200
    assert all(np.array_equal(result, EXPECTED) for result in results)


def test_the_last_net_chains_the_cause(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    for cause, error in (
        (KeyError("k"), ModelFormatError),
        (RecursionError(), LimitError),
        (MemoryError(), LimitError),
    ):
        monkeypatch.setattr("litehouse.formats.detect", _raiser(cause))
        with pytest.raises(error) as caught:
            litehouse.read(content)
        assert caught.value.__cause__ is cause


def test_the_last_net_lets_our_own_slips_through(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("litehouse.formats.detect", _raiser(NameError("slip")))
    with pytest.raises(NameError):
        litehouse.read(content)


def _raiser(error: Exception) -> Callable[..., str]:
    def fail(*_: object) -> str:
        raise error

    return fail


def test_security_page_states_the_limits() -> None:
    page = (REPOSITORY / "SECURITY.md").read_text()
    for name in litehouse.Limits.__slots__:
        assert f"| `{name}` | {getattr(litehouse.Limits(), name)} |" in page
