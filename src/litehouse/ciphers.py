"""The decryption methods of MegEngine models, by name: those that MegEngine Lite has built in, and the caller's own.

The table is one for the process, and may be used by several threads.

`RC4_default` and `SIMPLE_FAST_RC4_default` hide a file behind the bytes of a generator that has to be stepped one byte
at a time, here in Python: about 2.5 and 5 MB per second on one core of the x86-64 machine where it was measured, and
the bytes take about four times their size in memory meanwhile. `AES_default` opens some hundred MB per second.
None of the three keeps a secret from somebody who reads this: their keys are in every copy of MegEngine Lite.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from litehouse.errors import LitehouseError, ModelFormatError

Cipher = Callable[[bytes, bytes], bytes]

AES_IV, AES_BLOCK, AES_LENGTH, AES_KEY = 16, 16, 8, 32
SPARE = 64 << 10
WORD = 8
HASH_MULTIPLIERS = (0x2127599BF4325C37, 0x880355F21E6D1965)
HASH_BLOCK = 1 << 15
DROPPED = 768  # bytes that every stream begins with, and nobody uses
ROUND = 256  # bytes after which the generator is at the same place of its table
BATCH = 2048  # rounds that are computed side by side

CHECKSUM = (
    "The checksum of the file cannot be verified. The file may be encrypted in the wrong algorithm or different keys."
)


def register(name: str, cipher: Cipher, key: bytes) -> None:
    """Add a decryption method.

    Args:
        name: What models, or their users, call it.
        cipher: Takes the encrypted bytes and the key, and returns the plain bytes. Padding behind them does no harm.
            A result larger than twice the encrypted bytes and 64 KiB is refused.
        key: What the cipher gets as its key.

    Raises:
        ValueError: There is one of that name.

    Example:
        >>> register("mirror", lambda data, key: data[::-1], b"")
        >>> decrypt("mirror", b"olleh")
        b'hello'
    """
    with _lock:
        if name in _methods:
            raise ValueError(f"The decryption method {name} is already registered.")
        _methods[name] = (cipher, bytes(key))


def update_key(name: str, key: bytes) -> None:
    """Give a decryption method another key, also a built-in one. An empty key changes nothing.

    Raises:
        LitehouseError: There is none of that name.
    """
    with _lock:
        if name not in _methods:
            raise LitehouseError(f"The decryption method {name} is not registered. Register it first.")
        if key:
            _methods[name] = (_methods[name][0], bytes(key))


def is_registered(name: str) -> bool:
    """Whether there is a decryption method of that name."""
    with _lock:
        return name in _methods


def decrypt(name: str, data: bytes, *, path: str = "", key: bytes | None = None) -> bytes:
    """The plain bytes, maybe with padding behind them.

    Args:
        name: The decryption method.
        data: The encrypted bytes.
        path: The file that they are from, for error texts.
        key: The key; None for the one that the method was registered with.

    Raises:
        ModelFormatError: There is no such method, or the data does not open with it.
    """
    with _lock:
        cipher, registered = _methods.get(name, (None, b""))
        known = sorted(_methods)
    if cipher is None:
        raise ModelFormatError(
            f"The decryption method {_short(name)} is not registed yet. There are: {', '.join(known)}. Register "
            "another with litehouse.ciphers.register, or LiteGlobal.register_decryption_and_key of megenginelite",
            path=path,
        )
    try:
        plain = memoryview(cipher(data, registered if key is None else key))
        if plain.nbytes > 2 * len(data) + SPARE:
            raise ValueError(f"it makes {plain.nbytes} bytes of {len(data)}, which is more than twice")
        return plain.tobytes()
    except MemoryError:
        raise
    except Exception as error:
        raise ModelFormatError(f"{_short(name)} does not open it: {error}", path=path) from error


def _short(name: str) -> str:
    return name if len(name) <= 100 else name[:100] + "…"


# The built-in methods -------------------------------------------------------------------------------------------------


def _open_aes(data: bytes, key: bytes) -> bytes:
    """AES-256-CBC: the IV, the encrypted blocks, then the count of plain bytes, big end first."""
    from cryptography.hazmat.primitives.ciphers import Cipher as Opener
    from cryptography.hazmat.primitives.ciphers import algorithms, modes

    _check_key(key, AES_KEY)
    room = len(data) - AES_IV - AES_LENGTH
    length = int.from_bytes(data[-AES_LENGTH:], "big")
    if room < AES_BLOCK or room % AES_BLOCK or length > room:
        raise ValueError(f"its {len(data)} bytes are not AES blocks and their length. {CHECKSUM}")
    opener = Opener(algorithms.AES(key[:AES_KEY]), modes.CBC(data[:AES_IV])).decryptor()
    return (opener.update(data[AES_IV:-AES_LENGTH]) + opener.finalize())[:length]


def _open_rc4(data: bytes, key: bytes) -> bytes:
    """Two streams: the inner one has the hash of the plain words as key, which the last word tells."""
    body, trailer = _words(data)
    hash_key, stream_key = _rc4_keys(key)
    outer = _stream(stream_key, len(data)).view("<u8")
    body = body ^ outer[:-1]
    plain_hash = trailer ^ _hash(body, hash_key) ^ int(outer[-1])
    body ^= _stream(plain_hash, body.nbytes).view("<u8")
    if _hash(body, hash_key) != plain_hash:
        raise ValueError(CHECKSUM)
    return bytes(body.tobytes())


def _open_simple_rc4(data: bytes, key: bytes) -> bytes:
    """One stream; the last word is the hash of the encrypted words."""
    body, trailer = _words(data)
    hash_key, stream_key = _rc4_keys(key)
    if _hash(body, hash_key) != trailer:
        raise ValueError(CHECKSUM)
    return bytes((body ^ _stream(stream_key, body.nbytes).view("<u8")).tobytes())


def _check_key(key: bytes, size: int) -> None:
    if len(key) < size:
        raise ValueError(f"the key has {len(key)} bytes, where {size} are needed")


def _rc4_keys(key: bytes) -> tuple[int, int]:
    """The key of the hash, and that of the stream."""
    _check_key(key, 2 * WORD)
    return int.from_bytes(key[:WORD], "little"), int.from_bytes(key[WORD : 2 * WORD], "little")


def _words(data: bytes) -> tuple[np.ndarray, int]:
    """The encrypted words, and the last one."""
    if len(data) < 2 * WORD or len(data) % WORD:
        raise ValueError(f"its {len(data)} bytes are not words and their hash. {CHECKSUM}")
    words = np.frombuffer(data, "<u8")
    return words[:-1], int(words[-1])


def _hash(words: np.ndarray, seed: int) -> int:
    first, second = HASH_MULTIPLIERS
    found = seed
    for start in range(0, len(words), HASH_BLOCK):
        mixed = words[start : start + HASH_BLOCK]
        mixed = (mixed ^ (mixed >> 23)) * np.uint64(first)
        mixed ^= mixed >> 47
        for word in mixed.tolist():
            found = (found ^ word) * second & 0xFFFFFFFFFFFFFFFF
    return found


def _stream(key: int, length: int) -> np.ndarray:
    """The bytes of a stream, behind those that are dropped: a fixed count, then as many as the next byte says."""
    made = _generate(key, DROPPED + 256 + length)
    start = DROPPED + 1 + int(made[DROPPED])
    return made[start : start + length]


def _generate(key: int, length: int) -> np.ndarray:
    """A stream from its beginning.

    What a step gives is costly, but only the swap of each step is needed for the next one. So a short loop makes the
    swaps and keeps the table before each round, then numpy makes all rounds side by side.
    """
    table = _schedule(key.to_bytes(WORD, "little"))
    rounds = -(-length // ROUND)
    made = np.empty(rounds * ROUND, np.uint8)
    at = 0
    for start in range(0, rounds, BATCH):
        count = min(BATCH, rounds - start)
        tables, places, at = _swap(table, at, count)
        made[start * ROUND : (start + count) * ROUND] = _outputs(tables, places)
    return made[:length]


def _schedule(key: bytes) -> list[int]:
    """The table of 256 bytes that a key leads to."""
    table = list(range(256))
    at = 0
    for index in range(256):
        at = (at + table[index] + key[index % WORD]) & 255
        table[index], table[at] = table[at], table[index]
    return table


STEPS = (*range(1, 256), 0)


def _swap(table: list[int], at: int, count: int) -> tuple[bytes, list[int], int]:
    """Step through rounds, which changes the table. Gives the tables and places before each, and the last place."""
    tables = []
    places = []
    for _ in range(count):
        tables.append(bytes(table))
        places.append(at)
        for index in STEPS:
            value = table[index]
            at = at + value & 255
            table[index] = table[at]
            table[at] = value
    return b"".join(tables), places, at


def _outputs(tables: bytes, places: list[int]) -> np.ndarray:
    """What the rounds give that begin with these tables and places."""
    table = np.frombuffer(tables, np.uint8).copy()
    at = np.array(places, np.uint8)
    base = np.arange(len(places)) * 256
    made = np.empty((len(places), ROUND), np.uint8)
    for step, index in enumerate(STEPS):
        first = table[base + index]
        at = at + first
        second = table[base + at]
        table[base + index] = second
        table[base + at] = first
        mixed = table[base + (at >> 3 ^ (index << 5 & 255))] + table[base + (at << 5 ^ index >> 3)]
        total = table[base + (first + second)] + table[base + (mixed ^ 0xAA)]
        made[:, step] = total ^ table[base + (at + second)]
    return made.reshape(-1)


_RC4_KEY = bytes.fromhex("6c69656a67666b68 7c7f7e79787d7b7a")
_lock = threading.Lock()
_methods: dict[str, tuple[Cipher, bytes]] = {
    "AES_default": (_open_aes, bytes(range(AES_KEY))),
    "RC4_default": (_open_rc4, _RC4_KEY),
    "SIMPLE_FAST_RC4_default": (_open_simple_rc4, _RC4_KEY),
}
