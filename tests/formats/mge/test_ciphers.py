"""Decryption methods: against a plain version, against files that MegEngine Lite opens, and with hostile data."""

import json
import random
import struct
import threading
from typing import Any

import numpy as np
import pytest
from formats.builders import refused
from formats.mge.packed_builder import AES_KEY, RC4_KEY, SEALERS, Stream, aes, hashed, rc4, simple_rc4

from conftest import FIXTURES
from litehouse import LitehouseError, ModelFormatError, ciphers

PACKED = FIXTURES / "mge_packed"
CASES = json.loads((PACKED / "cases.json").read_text())
METHODS = ("AES_default", "RC4_default", "SIMPLE_FAST_RC4_default")
CHECKED = METHODS[1:]  # these notice every change
PLAIN = random.Random(5).randbytes(1000)
KEYS = {"AES_default": AES_KEY, "RC4_default": RC4_KEY, "SIMPLE_FAST_RC4_default": RC4_KEY}
CHECKSUM = (
    "The checksum of the file cannot be verified. The file may be encrypted in the wrong algorithm or different keys."
)


@pytest.fixture(autouse=True)
def _own_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is gone after it."""
    monkeypatch.setattr(ciphers, "_methods", dict(ciphers._methods))


def opened(method: str, data: bytes, **arguments: Any) -> bytes:
    return ciphers.decrypt(method, data, path="m.mge", **arguments)


# Right numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [0, 1, 7, 255, 256, 257, 3000])
@pytest.mark.parametrize("key", [0, 1, 0x7A7B7D78797E7F7C, 2**64 - 1, 0x0123456789ABCDEF])
def test_stream(key: int, length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the plain version makes it, also where the rounds take several batches."""
    stream = Stream(key)
    expected = bytes(stream.next() for _ in range(length))
    assert ciphers._stream(key, length).tobytes() == expected
    for batch in (1, 3):
        monkeypatch.setattr(ciphers, "BATCH", batch)
        assert ciphers._stream(key, length).tobytes() == expected


@pytest.mark.parametrize("count", [0, 1, 2, 1000])
def test_hash(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    words = np.random.default_rng(count).integers(0, 2**64, count, np.uint64)
    expected = hashed(words.tolist(), 0x68)
    assert ciphers._hash(words, 0x68) == expected
    monkeypatch.setattr(ciphers, "HASH_BLOCK", 7)
    assert ciphers._hash(words, 0x68) == expected


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case["cipher"]])
def test_files_that_megengine_lite_opens(name: str) -> None:
    """The real MegEngine Lite loaded these, with their keys, and computed what the plain network computes."""
    case = CASES[name]
    plain = (PACKED / "net.mge").read_bytes()
    found = opened(case["cipher"], (PACKED / name).read_bytes(), key=bytes.fromhex(case["key"]) or None)
    assert found[: len(plain)] == plain
    assert found[len(plain) :] == bytes(-len(plain) % 8 if case["cipher"] in CHECKED else 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("length", [1, 7, 8, 9, 15, 16, 17, 1000])
def test_round_trip(method: str, length: int) -> None:
    found = opened(method, SEALERS[method](PLAIN[:length]))
    assert found[:length] == PLAIN[:length]
    assert len(found) - length < 8
    assert not any(found[length:])


@pytest.mark.parametrize("method", METHODS)
def test_other_keys(method: str) -> None:
    key = random.Random(1).randbytes(32)
    sealed = SEALERS[method](PLAIN, key)
    assert opened(method, sealed, key=key) == PLAIN
    assert opened(method, sealed, key=key + b"more") == PLAIN, "what is behind the key that is used does not count"
    ciphers.update_key(method, key)
    assert opened(method, sealed) == PLAIN
    ciphers.update_key(method, b"")
    assert opened(method, sealed) == PLAIN, "an empty key changes nothing"
    assert opened(method, SEALERS[method](PLAIN), key=KEYS[method]) == PLAIN


# Wrong data -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", CHECKED)
def test_wrong_key(method: str) -> None:
    sealed = SEALERS[method](PLAIN)
    for seed in range(10):
        with refused(text=f"m.mge: {method} does not open it: {CHECKSUM}"):
            opened(method, sealed, key=random.Random(seed).randbytes(128))


def test_wrong_aes_key() -> None:
    """AES has no checksum. What comes out is no model, which the reader finds."""
    assert opened("AES_default", aes(PLAIN), key=bytes(32))[:16] != PLAIN[:16]


@pytest.mark.parametrize("given", METHODS)
@pytest.mark.parametrize("actual", METHODS)
def test_wrong_method(actual: str, given: str) -> None:
    if actual != given:
        with refused(text=CHECKSUM):
            opened(given, SEALERS[actual](PLAIN))


@pytest.mark.parametrize("method", METHODS)
def test_plain_data(method: str) -> None:
    for content in ((PACKED / "net.mge").read_bytes(), (PACKED / "net_v1.mge").read_bytes(), bytes(1000)):
        if method == "AES_default" and content == bytes(1000):
            continue  # a length of 0, which is possible
        with refused(text=CHECKSUM):
            opened(method, content)


@pytest.mark.parametrize("method", METHODS)
def test_cut_everywhere(method: str) -> None:
    sealed = SEALERS[method](PLAIN[:100])
    for length in range(len(sealed)):
        with refused(text=CHECKSUM):
            opened(method, sealed[:length])


@pytest.mark.parametrize("method", CHECKED)
def test_every_changed_byte_is_noticed(method: str) -> None:
    sealed = SEALERS[method](PLAIN[:50])
    for offset in range(len(sealed)):
        damaged = bytearray(sealed)
        damaged[offset] ^= 1 << offset % 8
        with refused(text=CHECKSUM):
            opened(method, bytes(damaged))


@pytest.mark.parametrize("length", [1009, 2**31, 2**32, 2**63, 2**64 - 1])
def test_aes_length_beyond_the_data(length: int) -> None:
    sealed = aes(PLAIN)
    assert len(sealed) == 16 + 1008 + 8
    with refused(text="not AES blocks and their length"):
        opened("AES_default", sealed[:-8] + struct.pack(">Q", length))


def test_aes_without_padding() -> None:
    """MegEngine Lite does not look at the padding, but at the length."""
    sealed = aes(PLAIN[:992])
    assert opened("AES_default", sealed[:-24] + sealed[-8:]) == PLAIN[:992]
    assert opened("AES_default", sealed[:-8] + bytes(8)) == b""


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("size", [0, 1, 15])
def test_short_keys(method: str, size: int) -> None:
    with refused(text=f"the key has {size} bytes, where "):
        opened(method, SEALERS[method](PLAIN), key=bytes(size))


def test_errors_do_not_show_the_key() -> None:
    for method in METHODS:
        with pytest.raises(ModelFormatError) as caught:
            opened(method, b"short", key=b"my secret key is" * 2)
        assert "secret" not in str(caught.value)


# The table ------------------------------------------------------------------------------------------------------------


def xor(data: bytes, key: bytes) -> bytes:
    return bytes(byte ^ key[0] for byte in data)


def test_own_method() -> None:
    ciphers.register("xor", xor, b"\x05")
    assert ciphers.is_registered("xor")
    assert opened("xor", xor(PLAIN, b"\x05")) == PLAIN
    assert opened("xor", xor(PLAIN, b"\x07"), key=b"\x07") == PLAIN
    ciphers.update_key("xor", b"\x09")
    assert opened("xor", xor(PLAIN, b"\x09")) == PLAIN


@pytest.mark.parametrize("name", [*METHODS, "xor"])
def test_registered_twice(name: str) -> None:
    ciphers.register("xor", xor, b"\x05")
    with pytest.raises(ValueError, match=f"The decryption method {name} is already registered"):
        ciphers.register(name, xor, b"")
    assert opened("xor", xor(PLAIN, b"\x05")) == PLAIN


def test_unknown_method() -> None:
    assert not ciphers.is_registered("XOR")
    with refused(text="m.mge: The decryption method XOR is not registed yet. There are: AES_default, "):
        opened("XOR", PLAIN)
    with pytest.raises(LitehouseError, match="The decryption method XOR is not registered"):
        ciphers.update_key("XOR", b"key")
    with refused(text=f"method {'N' * 100}… is not"):
        opened("N" * 100_000, PLAIN)


def test_a_key_that_changes_later() -> None:
    key = bytearray(b"\x05")
    ciphers.register("xor", xor, key)
    key[0] = 9
    assert opened("xor", xor(PLAIN, b"\x05")) == PLAIN


def test_own_method_that_raises() -> None:
    def broken(data: bytes, key: bytes) -> bytes:
        raise KeyError("my own words")

    ciphers.register("broken", broken, b"")
    with refused(text="m.mge: broken does not open it: 'my own words'"):
        opened("broken", PLAIN)


@pytest.mark.parametrize("result", [bytearray(PLAIN), memoryview(PLAIN), np.frombuffer(PLAIN, np.uint8)])
def test_own_method_that_returns_other_bytes(result: Any) -> None:
    ciphers.register("other", lambda data, key: result, b"")
    found = opened("other", b"x")
    assert type(found) is bytes
    assert found == PLAIN


@pytest.mark.parametrize("result", [10**12, None, "text", [1, 2]], ids=str)
def test_own_method_that_returns_no_bytes(result: Any) -> None:
    """A number is not taken for a count of zero bytes."""
    ciphers.register("wrong", lambda data, key: result, b"")
    with refused(text="wrong does not open it: "):
        opened("wrong", PLAIN)


def test_own_method_that_returns_a_number_in_an_array() -> None:
    """It is its eight bytes, and no count of them."""
    ciphers.register("number", lambda data, key: np.array(10**12), b"")
    assert opened("number", PLAIN) == (10**12).to_bytes(8, "little")


def test_own_method_that_returns_too_much() -> None:
    ciphers.register("grow", lambda data, key: bytes(key[0] * len(data) + (64 << 10)), b"\x02")
    assert len(opened("grow", PLAIN)) == 2 * len(PLAIN) + (64 << 10)
    with refused(text="more than twice"):
        opened("grow", PLAIN, key=b"\x03")


def test_memory_that_is_short_is_no_fault_of_the_cipher() -> None:
    def hungry(data: bytes, key: bytes) -> bytes:
        raise MemoryError

    ciphers.register("hungry", hungry, b"")
    with pytest.raises(MemoryError):
        opened("hungry", PLAIN)


def test_own_method_may_use_another() -> None:
    """A cipher runs without the table's lock."""
    ciphers.register("twice", lambda data, key: opened("RC4_default", opened("AES_default", data)), b"")
    assert opened("twice", aes(rc4(PLAIN))) == PLAIN


def test_threads() -> None:
    sealed = simple_rc4(PLAIN[:16])
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(20):
                name = f"{number} {turn}"
                ciphers.register(name, xor, bytes([number]))
                ciphers.update_key(name, bytes([turn]))
                assert opened(name, xor(PLAIN, bytes([turn]))) == PLAIN
                assert opened("SIMPLE_FAST_RC4_default", sealed) == PLAIN[:16]
        except BaseException as error:  # noqa: BLE001  (whatever it is, the test fails with it)
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert all(ciphers.is_registered(f"{number} 19") for number in range(4))
