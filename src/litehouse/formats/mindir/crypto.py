"""Decryption of MindIR files: AES-GCM, AES-CBC and SM4-CBC, in blocks."""

from __future__ import annotations

import struct

from litehouse.errors import ModelFormatError
from litehouse.formats.source import Source

MODES = {0x7F3A5ED8: "AES-GCM", 0x7F3A5ED9: "AES-CBC", 0x7F3A5EDA: "SM4-CBC"}
KEY_SIZES = {"AES-GCM": (16, 24, 32), "AES-CBC": (16, 24, 32), "SM4-CBC": (16,)}
IV_SIZE, TAG_SIZE, GCM_NONCE_SIZE, CIPHER_BLOCK = 16, 16, 12, 16


def decrypt(source: Source, key: bytes | None, mode: str) -> Source:
    """The plain content of an encrypted file, in memory.

    Args:
        source: The encrypted file.
        key: Its key: 16, 24 or 32 bytes for AES, 16 for SM4.
        mode: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`.

    Raises:
        ModelFormatError: The key or mode is wrong, or the file is damaged.
    """
    path = source.path
    actual = _mode(source, 0)
    mode = mode.upper()
    if actual is None:
        raise ModelFormatError("this is not an encrypted MindIR file; leave the key out", path=path)
    if key is None:
        raise ModelFormatError(f"the file is encrypted ({actual}); give its key", path=path)
    if mode != actual:
        raise ModelFormatError(
            f"the file is encrypted with {actual}, not {mode or 'an empty mode'}; give that mode", path=path
        )
    if len(key) not in KEY_SIZES[actual]:
        allowed = ", ".join(map(str, KEY_SIZES[actual]))
        raise ModelFormatError(f"the key has {len(key)} bytes; {actual} takes {allowed}", path=path)
    plain = bytearray()
    offset = 0
    while offset < source.size:
        piece, offset = _block(source, offset, key, actual)
        plain += piece
    return Source.over(plain, path)


def _mode(source: Source, offset: int) -> str | None:
    magic = source.read(offset, 4)
    return MODES.get(struct.unpack("<I", magic)[0]) if len(magic) == 4 else None


def _block(source: Source, offset: int, key: bytes, mode: str) -> tuple[bytes, int]:
    """The plain content of the block at `offset`, and the offset behind it."""
    tag_size = TAG_SIZE if mode == "AES-GCM" else 0
    head = source.read(offset + 4, tag_size + 8 + IV_SIZE + 4)
    start = offset + 4 + tag_size + 8 + IV_SIZE + 4
    if start <= source.size and _mode(source, offset) == mode:
        tag, _, iv_size, iv, size = struct.unpack(f"<{tag_size}sii{IV_SIZE}si", head)
        if iv_size == IV_SIZE and 0 <= size <= source.size - start:
            return _open(source.read(start, size), key, mode, iv, tag, source.path), start + size
    raise ModelFormatError(f"broken encrypted block at byte {offset}; the file is cut off or damaged", path=source.path)


def _open(cipher: bytes, key: bytes, mode: str, iv: bytes, tag: bytes, path: str) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    wrong = ModelFormatError("the key does not open the file; check the key, or the file is damaged", path=path)
    if mode == "AES-GCM":
        # Writers store 16 bytes; most use the first 12 as nonce, some all of them. The tag tells which.
        for nonce in (iv[:GCM_NONCE_SIZE], iv):
            checker = Cipher(algorithms.AES(key), modes.GCM(nonce, tag)).decryptor()
            try:
                return checker.update(cipher) + checker.finalize()
            except InvalidTag:
                continue
        raise wrong
    if len(cipher) % CIPHER_BLOCK:
        raise wrong
    algorithm = algorithms.AES(key) if mode == "AES-CBC" else algorithms.SM4(key)
    opener = Cipher(algorithm, modes.CBC(iv)).decryptor()
    padded = opener.update(cipher) + opener.finalize()
    remover = PKCS7(CIPHER_BLOCK * 8).unpadder()
    try:
        return remover.update(padded) + remover.finalize()
    except ValueError:
        raise wrong from None
