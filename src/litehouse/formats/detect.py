"""Tells the kind of a model file by its content."""

from litehouse.errors import ModelFormatError
from litehouse.formats.source import Source
from litehouse.formats.wire import BYTES, VARINT, fields

ENCRYPTED_MINDIR = (b"\xd8\x5e\x3a\x7f", b"\xd9\x5e\x3a\x7f", b"\xda\x5e\x3a\x7f")

STRANGERS: tuple[tuple[int, bytes, str], ...] = (
    (4, b"MSL", "a MindSpore Lite .ms file, which this version does not read yet; use the .mindir file"),
    (4, b"mge2", "a MegEngine file, which this version does not read yet"),
    (0, b"mgb", "a MegEngine file, which this version does not read yet"),
    (0, b"MGB", "a MegEngine file, which this version does not read yet"),
    (0, b"packed_model", "a packed MegEngine file, which this version does not read yet"),
    (
        0,
        b"PK\x03\x04",
        "a zip archive (a PyTorch or MindSpore checkpoint perhaps); export the network as .mindir or .onnx",
    ),
    (
        0,
        b"\x80\x02",
        "a Python pickle, which is never opened, since it can run code; export the network as .mindir or .onnx",
    ),
    (
        0,
        b"\x80\x03",
        "a Python pickle, which is never opened, since it can run code; export the network as .mindir or .onnx",
    ),
    (
        0,
        b"\x80\x04",
        "a Python pickle, which is never opened, since it can run code; export the network as .mindir or .onnx",
    ),
    (
        0,
        b"\x80\x05",
        "a Python pickle, which is never opened, since it can run code; export the network as .mindir or .onnx",
    ),
    (0, b"\x1f\x8b", "gzip data; unpack it first"),
    (0, b"version https://git-lfs", "a Git LFS pointer, not the file itself; run `git lfs pull`"),
    (0, b"<", "a web page or XML, not a model; the download probably failed"),
    (0, b"\x93NUMPY", "a NumPy array, not a model; it belongs behind --input"),
    (0, b"\x89HDF", "an HDF5 file; export the network as .mindir or .onnx"),
)


def detect(source: Source) -> str:
    """The kind of file: `"onnx"`, `"mindir"` or `"mindir-encrypted"`.

    Raises:
        ModelFormatError: It is none of these; the text says what the bytes look like.
    """
    head = source.read(0, 64)
    if head[:4] in ENCRYPTED_MINDIR:
        return "mindir-encrypted"
    for offset, magic, what in STRANGERS:
        if head[offset : offset + len(magic)] == magic:
            raise ModelFormatError(f"this is {what}", path=source.path)
    kind = _protobuf_kind(source)
    if kind is None:
        raise ModelFormatError(
            f"this is neither MindIR nor ONNX (it starts with {head[:8].hex(' ')}); it may be encrypted, cut off or another kind of file",
            path=source.path,
        )
    return kind


def _protobuf_kind(source: Source) -> str | None:
    # Both formats are one protobuf message with the graph in field 7. They part in the types of fields 1 and 5 (a number in
    # ONNX, text in MindIR), and in field 2 of the graph... which need not be looked at: writers of both always set field 1.
    try:
        for field in fields(source, 0, source.size):
            if field.number in (1, 5):
                return {VARINT: "onnx", BYTES: "mindir"}.get(field.kind)
            if field.number > 32:
                return None
    except ModelFormatError:
        # A file that is cut off still shows its kind when its first field does.
        head = source.read(0, 2)
        return {0x08: "onnx", 0x0A: "mindir"}.get(head[0]) if len(head) == 2 and head[1] < 0x20 else None
    return None
