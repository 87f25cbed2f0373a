"""Encrypted MindIR: every mode and key size, several blocks, and all that can be wrong with a key or a file."""

import json
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from formats.builders import EXPECTED, X, data_file, field, mindir, onnx_graph, outcome, refused, split

import litehouse
from conftest import FIXTURES, ZOO
from litehouse.formats.mindir.crypto import KEY_SIZES, decrypt
from litehouse.formats.source import Source

MAGIC = {"AES-GCM": 0x7F3A5ED8, "AES-CBC": 0x7F3A5ED9, "SM4-CBC": 0x7F3A5EDA}
CASES = [(mode, size) for mode, sizes in KEY_SIZES.items() for size in sizes]
KEY = bytes(range(32))
IV = bytes(range(100, 116))


def encrypt(plain: bytes, key: bytes, mode: str, block: int = 1 << 26, iv: bytes = IV) -> bytes:
    """What MindSpore writes: blocks of magic, tag (GCM alone), sizes, IV and ciphertext."""
    return b"".join(_block(plain[at : at + block], key, mode, iv) for at in range(0, max(1, len(plain)), block))


def _block(plain: bytes, key: bytes, mode: str, iv: bytes) -> bytes:
    tag = b""
    if mode == "AES-GCM":
        sealer = Cipher(algorithms.AES(key), modes.GCM(iv[:12])).encryptor()
        text = sealer.update(plain) + sealer.finalize()
        tag = sealer.tag
    else:
        padder = PKCS7(128).padder()
        algorithm = algorithms.AES(key) if mode == "AES-CBC" else algorithms.SM4(key)
        sealer = Cipher(algorithm, modes.CBC(iv)).encryptor()
        text = sealer.update(padder.update(plain) + padder.finalize()) + sealer.finalize()
    sizes = struct.pack("<ii", 4 + 16 + 4 + len(text), 16)
    return struct.pack("<I", MAGIC[mode]) + tag + sizes + iv + struct.pack("<i", len(text)) + text


def opened(content: bytes, key: bytes | None, mode: str) -> bytes:
    plain = decrypt(Source.over(content), key, mode)
    return plain.read(0, plain.size)


@pytest.mark.parametrize(("mode", "size"), CASES)
@pytest.mark.parametrize("block", [1, 16, 100, 1 << 26])
def test_round_trip(mode: str, size: int, block: int) -> None:
    plain = bytes(range(256)) * 2
    assert opened(encrypt(plain, KEY[:size], mode, block), KEY[:size], mode) == plain


@pytest.mark.parametrize(("mode", "size"), CASES)
def test_model(mode: str, size: int) -> None:
    content = encrypt(mindir(), KEY[:size], mode, 100)
    session = litehouse.load(content, key=KEY[:size], mode=mode, engine="onnxruntime")
    np.testing.assert_array_equal(session.run([X])[0], EXPECTED)


def test_large_blocks() -> None:
    plain = np.random.default_rng(1).bytes(5_000_000)
    assert opened(encrypt(plain, KEY, "AES-GCM", 1 << 20), KEY, "AES-GCM") == plain


@pytest.mark.parametrize("mode", ["AES-GCM", "AES-CBC", "SM4-CBC"])
def test_split_files_are_decrypted_too(tmp_path: Path, mode: str) -> None:
    data_file(tmp_path / "m_variables" / "data_0")
    data = (tmp_path / "m_variables" / "data_0").read_bytes()
    (tmp_path / "m_variables" / "data_0").write_bytes(encrypt(data, KEY[:16], mode, 64))
    (tmp_path / "m_graph.mindir").write_bytes(encrypt(split(), KEY[:16], mode))
    session = litehouse.load(tmp_path / "m_graph.mindir", key=KEY[:16], mode=mode, engine="onnxruntime")
    np.testing.assert_array_equal(session.run([X])[0], EXPECTED)


def test_split_file_that_is_not_encrypted_although_the_graph_is(tmp_path: Path) -> None:
    data_file(tmp_path / "m_variables" / "data_0")
    (tmp_path / "m_graph.mindir").write_bytes(encrypt(split(), KEY[:16], "AES-GCM"))
    with refused(text="data_0: this is not an encrypted"):
        litehouse.read(tmp_path / "m_graph.mindir", key=KEY[:16])


# Wrong keys, wrong modes ---------------------------------------------------------------------------------------------


def test_missing_key() -> None:
    with refused(text="is encrypted (AES-CBC); give its key"):
        litehouse.read(encrypt(mindir(), KEY[:16], "AES-CBC"))


@pytest.mark.parametrize(("mode", "size"), CASES)
def test_wrong_key(mode: str, size: int) -> None:
    """CBC has no checksum, so garbage may come through its padding: that is found out as well."""
    content = encrypt(mindir(), KEY[:size], mode)
    for seed in range(300 if size == 16 else 20):
        with refused(text="key"):
            litehouse.read(content, key=random.Random(seed).randbytes(size), mode=mode)


@pytest.mark.parametrize("size", [0, 1, 15, 17, 31, 33, 1000])
@pytest.mark.parametrize("mode", KEY_SIZES)
def test_wrong_key_size(mode: str, size: int) -> None:
    with refused(text=f"the key has {size} bytes"):
        litehouse.read(encrypt(mindir(), KEY[:16], mode), key=bytes(size), mode=mode)


@pytest.mark.parametrize("size", [24, 32])
def test_sm4_takes_one_size(size: int) -> None:
    with refused(text="SM4-CBC takes 16"):
        litehouse.read(encrypt(mindir(), KEY[:16], "SM4-CBC"), key=KEY[:size], mode="SM4-CBC")


@pytest.mark.parametrize("actual", MAGIC)
@pytest.mark.parametrize("given", [*MAGIC, "", "AES"])
def test_wrong_mode(actual: str, given: str) -> None:
    if actual == given:
        return
    with refused(text=f"encrypted with {actual}, not"):
        litehouse.read(encrypt(mindir(), KEY[:16], actual), key=KEY[:16], mode=given)


@pytest.mark.parametrize("content", [mindir(), onnx_graph()])
def test_key_for_a_plain_file(content: bytes) -> None:
    with refused(text="is not encrypted; leave the key out"):
        litehouse.read(content, key=KEY[:16])


def test_something_else_was_encrypted() -> None:
    for plain in (onnx_graph(), b"", b"text", field(1, field(1, b"w"))):
        with refused(text="neither MindIR nor .ms"):
            litehouse.read(encrypt(plain, KEY, "AES-GCM"), key=KEY)


# Damaged ciphertext --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MAGIC)
def test_truncated(mode: str) -> None:
    content = encrypt(mindir(), KEY[:16], mode, 128)
    for length in range(4, len(content), 3):
        with refused():
            litehouse.read(content[:length], key=KEY[:16], mode=mode)


@pytest.mark.parametrize("mode", MAGIC)
def test_flipped_bits(mode: str) -> None:
    """GCM notices every flip but those in the two sizes that are not needed; CBC gives a model or an error."""
    content = encrypt(mindir(), KEY[:16], mode, 128)
    generator = random.Random(7)
    for _ in range(200):
        damaged = bytearray(content)
        damaged[generator.randrange(4, len(damaged))] ^= 1 << generator.randrange(8)
        outcome(bytes(damaged), key=KEY[:16], mode=mode)


def test_gcm_notices_a_changed_weight() -> None:
    content = bytearray(encrypt(mindir(), KEY[:16], "AES-GCM"))
    for offset in range(48, len(content), 7):
        damaged = bytearray(content)
        damaged[offset] ^= 1
        with refused(text="does not open"):
            litehouse.read(bytes(damaged), key=KEY[:16])


@pytest.mark.parametrize(("offset", "number"), [(4, -1), (8, 15), (8, 2**31 - 1), (28, -1), (28, 2**31 - 1), (28, 17)])
def test_absurd_sizes(offset: int, number: int) -> None:
    """The total size of a block (at 4) is not needed, so it is not looked at."""
    content = bytearray(encrypt(mindir(), KEY[:16], "AES-CBC"))
    content[offset : offset + 4] = struct.pack("<i", number)
    if offset == 4:
        assert outcome(bytes(content), key=KEY[:16], mode="AES-CBC") == "Model"
        return
    with refused():
        litehouse.read(bytes(content), key=KEY[:16], mode="AES-CBC")


def test_modes_cannot_be_mixed() -> None:
    content = encrypt(mindir()[:100], KEY[:16], "AES-GCM") + encrypt(mindir()[100:], KEY[:16], "AES-CBC")
    with refused(text="broken encrypted block"):
        litehouse.read(content, key=KEY[:16])


def test_errors_do_not_show_the_key() -> None:
    with pytest.raises(litehouse.ModelFormatError) as caught:
        litehouse.read(encrypt(mindir(), KEY, "AES-GCM"), key=b"my secret key 16")
    assert "secret" not in str(caught.value)


# What MindSpore itself encrypted -------------------------------------------------------------------------------------

CONTAINERS = FIXTURES / "mindir" / "containers"
KEYS = json.loads((CONTAINERS / "keys.json").read_text())
ZOO_KEYS = {
    "aes_gcm_128": ("AES-GCM", b"0123456789ABCDEF"),
    "aes_gcm_256": ("AES-GCM", b"0123456789ABCDEF0123456789abcdef"),
    "aes_cbc_192": ("AES-CBC", b"0123456789ABCDEF01234567"),
    "sm4_cbc": ("SM4-CBC", b"0123456789ABCDEF"),
    "split_gcm_graph": ("AES-GCM", b"0123456789ABCDEF"),
}


@pytest.mark.parametrize("name", KEYS)
def test_mindspore_files(name: str) -> None:
    key, mode = KEYS[name]["key"].encode(), KEYS[name]["mode"]
    plain = litehouse.read(CONTAINERS / "plain.mindir")
    model = litehouse.read(CONTAINERS / name, key=key, mode=mode)
    assert set(model.weights) == set(plain.weights)
    for weight, array in plain.weights.items():
        np.testing.assert_array_equal(model.weights[weight], array)
    with refused(text="key"):
        litehouse.read(CONTAINERS / name, key=key[::-1], mode=mode)
    with refused(text="give its key"):
        litehouse.read(CONTAINERS / name)


@pytest.mark.parametrize("name", KEYS)
def test_what_we_encrypt_is_what_mindspore_encrypts(name: str) -> None:
    """The same layout: a file of MindSpore, opened and sealed again with its own IV, is the same file."""
    key, mode = KEYS[name]["key"].encode(), KEYS[name]["mode"]
    content = (CONTAINERS / name).read_bytes()
    start = 12 + (16 if mode == "AES-GCM" else 0)
    assert encrypt(opened(content, key, mode), key, mode, iv=content[start : start + 16]) == content


@pytest.mark.zoo
@pytest.mark.parametrize("name", ZOO_KEYS)
def test_zoo(name: str) -> None:
    folder = ZOO / "mindir_formats"
    if not folder.is_dir():
        pytest.skip("there is no model zoo beside the checkout")
    mode, key = ZOO_KEYS[name]
    session = litehouse.load(folder / f"{name}.mindir", key=key, mode=mode, engine="onnxruntime")
    (result,) = session.run([np.load(folder / "input_0.npy")])
    np.testing.assert_allclose(result, np.load(folder / "output_0.npy"), rtol=1e-5, atol=1e-6)
