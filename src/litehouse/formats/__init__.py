"""Readers of model files. The kind of a file is told by its content, not by its name."""

import os

from litehouse.errors import ModelFormatError
from litehouse.formats.detect import detect
from litehouse.formats.source import open_source
from litehouse.model import Model
from litehouse.options import Limits

__all__ = ["read"]


def read(
    source: str | os.PathLike[str] | bytes,
    *,
    key: bytes | None = None,
    mode: str = "AES-GCM",
    limits: Limits | None = None,
) -> Model:
    """Read a model file.

    Args:
        source: A path, or the bytes of a file.
        key: The key of an encrypted file.
        mode: How it is encrypted: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`. The file itself tells; this must agree.
        limits: What the file may ask for.

    Raises:
        ModelFormatError: The file is broken, of an unknown kind, or does not open with the key.
        UnsupportedOpError: It uses ops that Litehouse does not run.
    """
    limits = limits or Limits()
    with open_source(source, limits) as opened:
        kind = detect(opened)
        if key is not None and kind != "mindir-encrypted":
            raise ModelFormatError(
                "a key was given, but the file is not encrypted; leave the key out", path=opened.path
            )
        if kind == "onnx":
            from litehouse.formats.onnx import read_onnx

            return read_onnx(opened, limits)
        from litehouse.formats.mindir.reader import read_mindir

        return read_mindir(opened, limits, key=key, mode=mode)
