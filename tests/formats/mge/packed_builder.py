"""Encrypts as MegEngine Lite's tools do, byte by byte, and writes packed models: valid ones, and attacks."""

import json
import struct
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from formats.ms.ms_builder import flat

TAG = b"packed_model"
AES_KEY = bytes(range(32))
RC4_KEY = bytes([0x6C, 0x69, 0x65, 0x6A, 0x67, 0x66, 0x6B, 0x68, 0x7C, 0x7F, 0x7E, 0x79, 0x78, 0x7D, 0x7B, 0x7A])
MULTIPLIERS = (0x2127599BF4325C37, 0x880355F21E6D1965)


class Stream:
    """The generator of both RC4 methods, as plain as can be."""

    def __init__(self, key: int) -> None:
        self.table = list(range(256))
        self.first = self.second = 0
        at = 0
        for index in range(256):
            at = (at + self.table[index] + (key >> index % 8 * 8)) & 255
            self.table[index], self.table[at] = self.table[at], self.table[index]
        for _ in range(768):
            self.next()
        for _ in range(self.next()):
            self.next()

    def next(self) -> int:
        table = self.table
        i = self.first = (self.first + 1) & 255
        a = table[i]
        j = self.second = (self.second + a) & 255
        b = table[j]
        table[i], table[j] = b, a
        c = table[(i << 5 ^ j >> 3) & 255] + table[(j << 5 ^ i >> 3) & 255]
        return (table[(a + b) & 255] + table[(c & 255) ^ 0xAA]) & 255 ^ table[(j + b) & 255]

    def word(self) -> int:
        return int.from_bytes(bytes(self.next() for _ in range(8)), "little")


def hashed(words: list[int], seed: int) -> int:
    found = seed
    for word in words:
        mixed = (word ^ word >> 23) * MULTIPLIERS[0] % 2**64
        found = (found ^ mixed ^ mixed >> 47) * MULTIPLIERS[1] % 2**64
    return found


def rc4(plain: bytes, key: bytes = RC4_KEY) -> bytes:
    hash_key, stream_key = struct.unpack("<2Q", key[:16])
    words = _words(plain)
    plain_hash = hashed(words, hash_key)
    inner, outer = Stream(plain_hash), Stream(stream_key)
    words = [word ^ inner.word() for word in words]
    after = hashed(words, hash_key)
    words = [word ^ outer.word() for word in words]
    return struct.pack(f"<{len(words) + 1}Q", *words, plain_hash ^ after ^ outer.word())


def simple_rc4(plain: bytes, key: bytes = RC4_KEY) -> bytes:
    hash_key, stream_key = struct.unpack("<2Q", key[:16])
    stream = Stream(stream_key)
    words = [word ^ stream.word() for word in _words(plain)]
    return struct.pack(f"<{len(words) + 1}Q", *words, hashed(words, hash_key))


def _words(plain: bytes) -> list[int]:
    plain += bytes(-len(plain) % 8)
    return list(struct.unpack(f"<{len(plain) // 8}Q", plain))


def aes(plain: bytes, key: bytes = AES_KEY, iv: bytes = bytes(range(100, 116))) -> bytes:
    padder = PKCS7(128).padder()
    sealer = Cipher(algorithms.AES(key), modes.CBC(iv)).encryptor()
    blocks = sealer.update(padder.update(plain) + padder.finalize()) + sealer.finalize()
    return iv + blocks + struct.pack(">Q", len(plain))


SEALERS = {"NONE": bytes, "AES_default": aes, "RC4_default": rc4, "SIMPLE_FAST_RC4_default": simple_rc4}


# The container --------------------------------------------------------------------------------------------------------


def info(name: str = "net", **entries: Any) -> dict[str, Any]:
    return {"name": name, "valid": True, "version": "1.13.0", **entries}


def packed(
    model: bytes, content: dict[str, Any] | bytes | None, method: str = "NONE", info_method: str = "NONE", **slots: Any
) -> bytes:
    """A packed model; `content` is the info, and each slot of the header may be another: `_2="OTHER"`."""
    if isinstance(content, dict):
        content = json.dumps(content).encode()
    sealed = None if content is None else SEALERS.get(info_method, bytes)(content)
    header = {0: "net", 1: info_method, 2: "LITE_default", 3: method}
    header |= {int(slot[1:]): value for slot, value in slots.items()}
    return container(header, sealed, SEALERS.get(method, bytes)(model))


def container(header: dict[int, Any], content: bytes | None, model: bytes | None) -> bytes:
    """The container around bytes that are taken as they are."""
    entry: dict[int, Any] = {0: header}
    if content is not None:
        entry[1] = {0: content}
    if model is not None:
        entry[2] = {0: model}
    return TAG + flat({0: [entry]}, b"")
