"""Decryption of MindIR files: AES-GCM, AES-CBC and SM4-CBC, in blocks."""

from __future__ import annotations

import struct

from litehouse.errors import ModelFormatError

MODES = {0x7F3A5ED8: "AES-GCM", 0x7F3A5ED9: "AES-CBC", 0x7F3A5EDA: "SM4-CBC"}
KEY_SIZES = {"AES-GCM": (16, 24, 32), "AES-CBC": (16, 24, 32), "SM4-CBC": (16,)}
IV_SIZE, TAG_SIZE, GCM_NONCE_SIZE, CIPHER_BLOCK = 16, 16, 12, 16


def decrypt(data: bytes, key: bytes | None, mode: str, path: str) -> bytes:
    """The plain bytes of an encrypted file.

    Args:
        data: The encrypted file.
        key: Its key: 16, 24 or 32 bytes for AES, 16 for SM4.
        mode: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`.
        path: The file, for messages.

    Raises:
        ModelFormatError: The key or mode is wrong, or the file is damaged.
    """
    actual = MODES.get(struct.unpack_from("<I", data)[0]) if len(data) >= 4 else None
    if actual is None:
        raise ModelFormatError("this is not an encrypted MindIR file", path=path)
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
    while offset < len(data):
        piece, offset = _block(data, offset, key, actual, path)
        plain += piece
    return bytes(plain)


def _block(data: bytes, offset: int, key: bytes, mode: str, path: str) -> tuple[bytes, int]:
    tag_size = TAG_SIZE if mode == "AES-GCM" else 0
    head = 4 + tag_size + 8 + IV_SIZE + 4
    if offset + head > len(data) or MODES.get(struct.unpack_from("<I", data, offset)[0]) != mode:
        raise ModelFormatError(f"broken encrypted block at byte {offset}; the file is cut off or damaged", path=path)
    tag = data[offset + 4 : offset + 4 + tag_size]
    _, iv_size = struct.unpack_from("<ii", data, offset + 4 + tag_size)
    iv = data[offset + 12 + tag_size : offset + 12 + tag_size + IV_SIZE]
    (size,) = struct.unpack_from("<i", data, offset + head - 4)
    start = offset + head
    if iv_size != IV_SIZE or size < 0 or start + size > len(data):
        raise ModelFormatError(f"broken encrypted block at byte {offset}; the file is cut off or damaged", path=path)
    return _open(data[start : start + size], key, mode, iv, tag, path), start + size


def _open(cipher: bytes, key: bytes, mode: str, iv: bytes, tag: bytes, path: str) -> bytes:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
    from cryptography.hazmat.primitives.padding import PKCS7

    wrong = ModelFormatError("the key does not open the file; check the key, or the file is damaged", path=path)
    if mode == "AES-GCM":
        # The writer stores 16 bytes but its library uses the first 12 as nonce.
        checker = Cipher(algorithms.AES(key), modes.GCM(iv[:GCM_NONCE_SIZE], tag)).decryptor()
        try:
            return checker.update(cipher) + checker.finalize()
        except InvalidTag:
            raise wrong from None
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
