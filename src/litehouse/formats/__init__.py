"""Readers of model files. The kind of a file is told by its content, not by its name."""

import os
from collections.abc import Callable, Sequence

from litehouse import ciphers
from litehouse.errors import LimitError, LitehouseError, ModelFormatError
from litehouse.formats.detect import ENCRYPTED, detect
from litehouse.formats.source import Source, open_source
from litehouse.identity import find
from litehouse.model import Model
from litehouse.options import Limits

__all__ = ["read"]

MINDIR_MODES = ("AES-GCM", "AES-CBC", "SM4-CBC")
PACKED = b"packed_model"  # such a file names its own methods


def read(
    source: str | os.PathLike[str] | bytes,
    *,
    key: bytes | None = None,
    mode: str = "AES-GCM",
    limits: Limits | None = None,
    updatable: Sequence[str] = (),
) -> Model:
    """Read a model file.

    Args:
        source: A path, or the bytes of a file.
        key: The key of an encrypted file.
        mode: How it is encrypted: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`; the file itself tells, and this must agree.
            A MegEngine file tells nothing: the name of a cipher of `litehouse.ciphers`, as `"RC4_default"`, opens it.
        limits: What the file may ask for.
        updatable: Names, or patterns for names, of weights that nothing may be computed from.

    Raises:
        ModelFormatError: The file is broken, of an unknown kind, or does not open with the key.
        UnsupportedOpError: It uses ops that Litehouse does not run.
        WeightError: There is not enough memory for its weights, or it cannot be built without the value of one that
            is updatable.
    """
    limits = limits or Limits()
    with open_source(find(source), limits) as opened:
        try:
            model = _read(opened, key, mode, limits, tuple(updatable))
            model.files, model.is_secret = dict(sorted(opened.beside.items())), opened.is_secret
            return model
        except (LitehouseError, ImportError, NameError):
            raise  # the latter two are never the file's fault
        except (MemoryError, RecursionError) as error:
            raise LimitError(
                f"the file asks for more memory or nesting than there is ({type(error).__name__}); it is damaged",
                path=opened.path,
            ) from error
        except Exception as error:
            # The last net: a check is missing in a reader. The cause is chained, and the text says so.
            raise ModelFormatError(
                f"the file is damaged in a way that no check foresaw ({type(error).__name__}: {error}); "
                "please report it if the file is sound",
                path=opened.path,
            ) from error


def _read(opened: Source, key: bytes | None, mode: str, limits: Limits, updatable: tuple[str, ...]) -> Model:
    if mode.upper() not in MINDIR_MODES and not opened.read(0, len(PACKED)).startswith((PACKED, *ENCRYPTED)):
        return _read_ciphered(opened, key, mode, limits, updatable)
    kind = detect(opened)
    if key is not None and kind != "encrypted":
        raise ModelFormatError("a key was given, but the file is not encrypted; leave the key out", path=opened.path)
    if kind == "encrypted":
        return _read_encrypted(opened, key, mode, limits, updatable)
    if kind == "onnx":
        from litehouse.formats.onnx import read_onnx

        return read_onnx(opened, limits, updatable)
    return _reader(kind)(opened, limits, updatable)


def _read_encrypted(opened: Source, key: bytes | None, mode: str, limits: Limits, updatable: tuple[str, ...]) -> Model:
    from litehouse.formats.mindir.crypto import decrypt

    plain = decrypt(opened, key, mode)
    opened.is_secret = True
    kind = _kind(plain)
    if kind not in ("mindir", "ms"):
        # CBC has no checksum: a wrong key may go unnoticed until here.
        raise ModelFormatError("what the key opens is neither MindIR nor .ms; check the key", path=opened.path)
    return _reader(kind)(plain, limits, updatable, unlock=lambda data: decrypt(data, key, mode))


def _read_ciphered(opened: Source, key: bytes | None, mode: str, limits: Limits, updatable: tuple[str, ...]) -> Model:
    try:
        opened_bytes = ciphers.decrypt(mode, opened.read(0, opened.size), path=opened.path, key=key)
    except ModelFormatError as error:
        if _kind(opened):
            text = f"{mode} was given, but the file is not encrypted; leave the mode out"
            raise ModelFormatError(text, path=opened.path) from error
        raise
    plain = Source.over(opened_bytes, opened.path)
    opened.is_secret = True
    kind = _kind(plain)
    if kind != "mge":
        raise ModelFormatError(
            f"invalid model format: what {mode} opens is no MegEngine model; check the method and its key",
            path=opened.path,
        )
    return _reader(kind)(plain, limits, updatable)


def _kind(source: Source) -> str:
    """The kind of a file; empty for an unknown one."""
    try:
        return detect(source)
    except ModelFormatError:
        return ""


def _reader(kind: str) -> Callable[..., Model]:
    if kind == "ms":
        from litehouse.formats.ms.reader import read_ms

        return read_ms
    if kind == "mge":
        from litehouse.formats.mge.reader import read_mge

        return read_mge
    from litehouse.formats.mindir.reader import read_mindir

    return read_mindir
