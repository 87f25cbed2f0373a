"""Tells the kind of a model file by its content."""

from litehouse.errors import ModelFormatError
from litehouse.formats.source import Source
from litehouse.formats.wire import BYTES, VARINT, fields

ENCRYPTED = (b"\xd8\x5e\x3a\x7f", b"\xd9\x5e\x3a\x7f", b"\xda\x5e\x3a\x7f")

EXPORT = "export the network as .mindir, .mge or .onnx"
UNOPENED = "a Python pickle, which is never opened, since it can run code"
DUMP = "dump the network in MegEngine: `megengine.jit.trace(...)` of a call of it, then its `dump(path)`"
# What the first bytes of a pickle contain, and what it is then.
PICKLES: tuple[tuple[bytes, str], ...] = (
    (b"megengine.traced_module", f"a MegEngine traced module, {UNOPENED}; {DUMP}"),
    (b"megengine", f"a MegEngine checkpoint, {UNOPENED}; {DUMP}"),
    (b"torch", f"a PyTorch checkpoint, {UNOPENED}; {EXPORT}"),
    (b"numpy", f"a checkpoint of NumPy arrays, as MegEngine saves them: {UNOPENED}, and has no network; {DUMP}"),
    (b"", f"{UNOPENED}; {EXPORT}"),
)
PACKED = "compressed data; unpack it first"

STRANGERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", f"a zip archive (a PyTorch checkpoint perhaps); {EXPORT}"),
    (0, b"\x1f\x8b", f"gzip, {PACKED}"),
    (0, b"BZh", f"bzip2, {PACKED}"),
    (0, b"\xfd7zXZ", f"xz, {PACKED}"),
    (0, b"\x28\xb5\x2f\xfd", f"zstd, {PACKED}"),
    (257, b"ustar", "a tar archive; unpack it first"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (0, b"<", "a web page or XML, not a model; the download probably failed"),
    (0, b"{", "JSON text, not a model; the download probably failed"),
    (4, b'\0\0\0\0{"', f"a safetensors file, which has weights but no network; {EXPORT}"),
    (0, b"\x93NUMPY", "a NumPy array, not a model; it belongs behind --input"),
    (0, b"\x89HDF", f"an HDF5 file; {EXPORT}"),
    (0, b"\x7fELF", "a program, not a model; check the path"),
)

MS_TAG = b"MSL"
MGE_MAGICS = (b"MGBC", b"MGBS", b"mgbtest0", b"packed_model")
MGE_TAGS = (b"mgv2", b"mge2")  # behind the size of the flatbuffer and the offset of its root
# A flatbuffer's tag stands behind a small offset. Its two zero bytes tell it from ONNX with the same text there.
TAGGED: tuple[tuple[bytes, str], ...] = ((b"TFL", f"a TensorFlow Lite file; {EXPORT}"),)

HEAD = 1024
CHECKPOINT = f"a MindSpore checkpoint, which has weights but no network; {EXPORT}"


def detect(source: Source) -> str:
    """The kind of file: `"onnx"`, `"mge"`, `"mindir"`, `"ms"`, or `"encrypted"` for either of the latter two.

    Raises:
        ModelFormatError: It is none of these; the text says what the bytes look like.
    """
    head = source.read(0, HEAD)
    if head[:4] in ENCRYPTED:
        return "encrypted"
    if head.startswith(b"\0\0" + MS_TAG, 2):
        return "ms"
    if head.startswith(MGE_MAGICS) or (head[6:8] == b"\0\0" and head[8:12] in MGE_TAGS):
        return "mge"
    found = [what for offset, magic, what in STRANGERS if head.startswith(magic, offset)]
    found += [what for tag, what in TAGGED if head.startswith(b"\0\0" + tag, 2)]
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        found += [what for word, what in PICKLES if word in head]
    if found:
        raise ModelFormatError(f"this is {found[0]}", path=source.path)
    kind = protobuf_kind(source)
    if kind == "checkpoint":
        raise ModelFormatError(f"this is {CHECKPOINT}", path=source.path)
    if kind is None:
        raise ModelFormatError(
            f"this is neither MindIR, .ms, MegEngine nor ONNX (it starts with {head[:8].hex(' ')}); "
            "it may be cut off, another kind of file, or an encrypted MegEngine model, which opens with the name of "
            "its method: mode='RC4_default' or the like, --mode, or LiteConfig.bare_model_cryption_name",
            path=source.path,
        )
    return kind


def protobuf_kind(source: Source) -> str | None:
    """The kind of a file that is one plain protobuf message; None for an unknown one.

    ONNX and MindIR have the graph in field 7. They part in fields 1 and 5: numbers in ONNX, text in MindIR. A
    checkpoint has messages in field 1, which start with a tag.
    """
    try:
        for field in fields(source, 0, source.size):
            if field.number in (1, 5) and field.kind in (VARINT, BYTES):
                if field.kind == VARINT:
                    return "onnx"
                return "checkpoint" if source.read(field.content, 1) == b"\x0a" else "mindir"
            if field.number > 32:
                return None
    except ModelFormatError:
        return _first_field(source)
    return None


def _first_field(source: Source) -> str | None:
    """The kind of a file that is cut off: its first field still shows it."""
    head = source.read(0, 2)
    return {0x08: "onnx", 0x0A: "mindir"}.get(head[0]) if len(head) == 2 and head[1] < 0x20 else None
