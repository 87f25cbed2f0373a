"""Encrypted models on the command line."""

import json
import os
import struct

import pytest
from cli.support import CONTAINERS, OPS, call, failure, write
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

KEY = b"0123456789ABCDEF"
MAGIC = {"AES-GCM": 0x7F3A5ED8, "AES-CBC": 0x7F3A5ED9}
KEYS = json.loads((CONTAINERS / "keys.json").read_text())


@pytest.mark.parametrize("name", sorted(path.name for path in CONTAINERS.glob("*.mindir")))
def test_containers_of_mindspore(tmp_path, name):
    """Plain, encrypted and split files that MindSpore wrote."""
    known = KEYS.get(name)
    key = ["--key", known["key"].encode().hex(), "--mode", known["mode"]] if known else []
    result = call("verify", CONTAINERS / name, "--reference", CONTAINERS / "io.npz", *key)
    assert result.exit_code == 0, result.output
    assert call("convert", CONTAINERS / name, tmp_path / "out.onnx", *key).exit_code == 0
    assert call("verify", tmp_path / "out.onnx", "--reference", CONTAINERS / "io.npz").exit_code == 0


def encrypt(data, key, mode):
    """One block, as MindSpore writes it."""
    vector = os.urandom(16)
    if mode == "AES-GCM":
        cipher = Cipher(algorithms.AES(key), modes.GCM(vector[:12])).encryptor()
        body = cipher.update(data) + cipher.finalize()
        tag = cipher.tag
    else:
        pad = PKCS7(128).padder()
        cipher = Cipher(algorithms.AES(key), modes.CBC(vector)).encryptor()
        body = cipher.update(pad.update(data) + pad.finalize()) + cipher.finalize()
        tag = b""
    head = struct.pack("<I", MAGIC[mode]) + tag + struct.pack("<ii", len(body) + 24, 16)
    return head + vector + struct.pack("<i", len(body)) + body


@pytest.fixture
def locked(tmp_path):
    return write(tmp_path / "locked.mindir", encrypt((OPS / "act_relu.mindir").read_bytes(), KEY, "AES-GCM"))


def test_key_as_hex_file_and_environment(tmp_path, locked, monkeypatch):
    raw = write(tmp_path / "key.bin", KEY)
    ended = write(tmp_path / "ended.txt", KEY + b"\n")
    ended_elsewhere = write(tmp_path / "ended_elsewhere.txt", KEY + b"\r\n")
    for key in (KEY.hex(), f"text:{KEY.decode()}", f"@{raw}", f"@{ended}", f"@{ended_elsewhere}"):
        result = call("verify", locked, "--reference", OPS / "act_relu.npz", "--key", key)
        assert result.exit_code == 0, result.stderr
    monkeypatch.setenv("LITEHOUSE_KEY", KEY.hex())
    assert call("inspect", locked).exit_code == 0


@pytest.mark.parametrize("size", [24, 32])
@pytest.mark.parametrize("end", [b"", b"\n"])
def test_key_file_of_hex_digits(tmp_path, size, end):
    key = (KEY * 2)[:size]
    locked = write(tmp_path / "locked.mindir", encrypt((OPS / "act_relu.mindir").read_bytes(), key, "AES-GCM"))
    file = write(tmp_path / "key.txt", key.hex().encode() + end)
    assert call("inspect", locked, "--key", f"@{file}").exit_code == 0


def test_key_file_of_32_digits_is_the_key_itself(tmp_path, locked):
    digits = KEY.hex().encode()
    file = write(tmp_path / "key.txt", digits + b"\n")
    model = write(tmp_path / "wide.mindir", encrypt((OPS / "act_relu.mindir").read_bytes(), digits, "AES-GCM"))
    assert call("inspect", model, "--key", f"@{file}").exit_code == 0
    assert "hint: hex digits are read as hex, but a key file" in failure(call("inspect", locked, "--key", f"@{file}"))


def test_every_command_takes_the_key(tmp_path, locked):
    key = ["--key", KEY.hex()]
    assert call("run", locked, "--zeros", *key).exit_code == 0
    assert "ReLU" in call("inspect", locked, *key).stdout
    assert call("convert", locked, tmp_path / "out.onnx", *key).exit_code == 0
    assert call("verify", tmp_path / "out.onnx", "--reference", OPS / "act_relu.npz").exit_code == 0


def test_mode(tmp_path):
    locked = write(tmp_path / "cbc.mindir", encrypt((OPS / "act_relu.mindir").read_bytes(), KEY, "AES-CBC"))
    assert call("run", locked, "--zeros", "--key", KEY.hex(), "--mode", "AES-CBC").exit_code == 0
    message = failure(call("run", locked, "--zeros", "--key", KEY.hex()))
    assert "encrypted with AES-CBC" in message
    assert message.endswith("hint: give the mode with --mode\n")


def test_unsupported_ops_of_an_encrypted_model(tmp_path):
    strange = (OPS / "act_relu.mindir").read_bytes().replace(b"ReLU", b"ReLX")
    locked = write(tmp_path / "strange.mindir", encrypt(strange, KEY, "AES-GCM"))
    result = call("inspect", locked, "--key", KEY.hex())
    assert result.exit_code == 1
    assert "ReLX" in result.stdout
    assert "[3, 5]" in result.stdout


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (None, "the file is encrypted (AES-GCM); give its key\nhint: give the key with --key HEX, --key"),
        ("00" * 16, "the key does not open the file"),
        (
            "00",
            "--key, read as hex digits, has 1 bytes, but a key has 16, 24 or 32; a key that is text is given as --key",
        ),
        ("text:secret", "the text after text: has 6 bytes, but a key has 16, 24 or 32"),
        ("@short.key", "short.key: the key file, read as hex digits, has 2 bytes"),
        ("secret!", "--key must be hex digits"),
        ("@absent.key", "absent.key: cannot read the key file (No such file or directory)"),
        ("@broken.key", "the key file has 17 bytes and does not hold hex digits"),
    ],
)
def test_bad_keys(tmp_path, monkeypatch, locked, key, message):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "short.key", b"0123\n")
    write(tmp_path / "broken.key", b"secret-secret-sec")
    told = failure(call("inspect", locked, *([] if key is None else ["--key", key])))
    assert message in told
    assert "secret" not in told


def test_a_key_for_a_plain_model():
    assert "not encrypted" in failure(call("inspect", OPS / "act_relu.mindir", "--key", KEY.hex()))
