"""Encrypted and split files through `dec_key` and `dec_mode`, which are master's."""

import json

import numpy as np
import pytest
from facades.mindspore_lite.support import CONTAINERS

import litehouse
from mindspore_lite import Model, ModelType

KEYS = json.loads((CONTAINERS / "keys.json").read_text())
FILES = sorted(path.name for path in CONTAINERS.glob("*.mindir"))
ENCRYPTED = [name for name in FILES if name in KEYS]


def key_of(name):
    entry = KEYS.get(name)
    return {} if entry is None else {"dec_key": entry["key"].encode(), "dec_mode": entry["mode"]}


def build(name, **arguments):
    model = Model()
    model.build_from_file(str(CONTAINERS / name), ModelType.MINDIR, **arguments)
    return model


@pytest.mark.parametrize("name", FILES)
def test_opens_with_its_key(name):
    with np.load(CONTAINERS / "io.npz") as arrays:
        (output,) = build(name, **key_of(name)).predict([arrays["input_0"]])
        np.testing.assert_allclose(output.get_data_to_numpy(), arrays["output_0"], rtol=1e-4, atol=1e-5)


def test_count_of_threads_does_not_matter():
    build("aes_gcm_128.mindir", **key_of("aes_gcm_128.mindir"), dec_num_parallel=4)


@pytest.mark.parametrize("name", ENCRYPTED)
@pytest.mark.parametrize("spoil", ["no key", "wrong key", "short key", "wrong mode"])
def test_does_not_open_otherwise(name, spoil):
    arguments = key_of(name)
    if spoil == "no key":
        arguments = {}
    elif spoil == "wrong key":
        arguments["dec_key"] = arguments["dec_key"][::-1]
    elif spoil == "short key":
        arguments["dec_key"] = arguments["dec_key"][:5]
    else:
        arguments["dec_mode"] = "ROT13"
    with pytest.raises(RuntimeError, match=r"^build_from_file failed! Error is .*(key|mode)") as caught:
        build(name, **arguments)
    assert isinstance(caught.value.__cause__, litehouse.ModelFormatError)


def test_key_for_a_plain_file():
    with pytest.raises(RuntimeError, match=r"^build_from_file failed! Error is .*not encrypted"):
        build("plain.mindir", dec_key=b"0123456789ABCDEF")
