"""Packed models: what MegEngine Lite computed with real files, what it takes and refuses, and hostile containers."""

import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.builders import outcome, refused
from formats.mge.packed_builder import SEALERS, TAG, container, info, packed
from formats.ms.ms_builder import flat

import litehouse
from conftest import FIXTURES, ZOO, assert_close
from litehouse import LimitError, Limits, ModelFormatError, ciphers
from litehouse.formats.mge.model_info import MAX_BYTES, Declared, Device
from litehouse.formats.mge.pack import Info, Packed, open_packed
from litehouse.formats.source import Source, open_source

FOLDER = FIXTURES / "mge_packed"
CASES = json.loads((FOLDER / "cases.json").read_text())
NET = (FOLDER / "net.mge").read_bytes()
HEADER = {0: "net", 1: "NONE", 2: "LITE_default", 3: "NONE"}
OUTCOMES = {"Model", "ModelFormatError", "LimitError", "UnsupportedOpError", "WeightError"}


def opened(content: bytes, limits: Limits | None = None) -> Packed:
    return open_packed(Source.over(content), limits or Limits())


def info_of(**entries: Any) -> Info:
    return opened(packed(NET, info(**entries))).info


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {"mode": case["cipher"]} if case["cipher"] else {}
    return given | ({"key": bytes.fromhex(case["key"])} if case["key"] else {})


# Files that MegEngine Lite loaded ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_what_megengine_lite_computed(name: str, engine: str) -> None:
    case = CASES[name]
    values = np.load(FOLDER / "values.npz")
    session = litehouse.load(FOLDER / name, engine=engine, threads=1, **arguments(case))
    results = session.run([values[case["network"] + "_x"]])
    assert [output.name for output in session.model.outputs] == case["outputs"]
    for output, result in zip(case["outputs"], results, strict=True):
        assert_close(result, values[f"{name} {output}"], output)


@pytest.mark.parametrize("name", [name for name in CASES if name.endswith(".lite")])
def test_container(name: str) -> None:
    found = opened((FOLDER / name).read_bytes())
    if name.startswith("packed"):
        plain = (FOLDER / ("net_v1.mge" if name == "packed_mixed.lite" else "net.mge")).read_bytes()
        assert found.model.read(0, len(plain)) == plain
    silent = name in ("packed_no_info.lite", "packed_not_valid.lite")
    threads = found.info.device.number_threads if found.info.device else 1
    assert threads == CASES[name]["threads"]
    assert found.info.valid is not silent
    assert found.info.has_compression == name.startswith("compressed")
    if silent:
        assert found.info == Info()


def test_info() -> None:
    found = opened((FOLDER / "packed_rc4.lite").read_bytes())
    assert found.name == found.info.name == "net"
    assert found.method == "RC4_default"
    assert found.info.version == "1.13.0"
    assert found.info.backend == "MGE"
    assert found.info.device == Device("CPU", device_id=0, number_threads=2, enable_inplace_model=False)
    assert found.info.options == {"graph_opt_level": 2, "weight_preprocess": False}
    assert found.info.inputs == (Declared("x", is_host=True, dtype="float32", shape=(2, 6)),)
    assert found.info.outputs == (Declared("s", is_host=True, io_type="value"), Declared("y"))
    assert found.info.extra == '{"author":"né","labels":["b","a"]}'
    assert json.loads(found.info.text)["extra_info"] == {"labels": ["b", "a"], "author": "né"}


@pytest.mark.zoo
def test_zoo() -> None:
    folder = ZOO / "mge" / "packed_rc4_lstm_text"
    if not folder.is_dir():
        pytest.skip("there is no model zoo beside the checkout")
    found = opened((folder / "model.lite").read_bytes())
    meta = json.loads((folder / "meta.json").read_text())
    assert json.loads(found.info.text) == meta["info_json"]
    assert [item.name for item in found.info.outputs] == meta["outputs"]
    assert found.model.read(8, 4) == b"mgv2"


def test_extra_is_written_as_megengine_lite_does() -> None:
    """The text that LITE_get_model_extra_info of 1.13.0 gave for this content."""
    extra = {"z": [1, 2.5, 1e10, 1e-7, 1e16], "a": 'né中"', "f": 1.0, "n": None, "t": True}
    expected = '{"a":"né中\\"","f":1.0,"n":null,"t":true,"z":[1,2.5,10000000000.0,1e-07,1e+16]}'
    assert info_of(extra_info=extra).extra == expected


# What MegEngine Lite 1.13.0 takes and refuses: each was tried --------------------------------------------------------


def test_taken() -> None:
    assert info_of(backend="XXX").backend == "XXX"
    assert info_of(options={"what": 1}).options == {}
    assert info_of(options={"graph_opt_level": True, "jit_level": 2.0}).options == {
        "graph_opt_level": 1,
        "jit_level": 2,
    }
    assert info_of(device={"type": "CPU", "number_threads": 0}).device == Device("CPU", number_threads=0)
    assert info_of(device={"type": "CPU", "number_threads": 2.0}).device == Device("CPU", number_threads=2)
    assert info_of(IO=None).inputs == ()
    assert info_of(IO={"inputs": [{"name": "nope"}]}).inputs == (Declared("nope"),)
    shape = {"dim0": 4.0, "dim1": 6, "dim3": 7}
    assert info_of(IO={"inputs": [{"name": "x", "shape": shape}]}).inputs == (Declared("x", shape=(4, 6)),)
    twice = [{"name": "s", "dtype": "int8"}, {"name": "y"}, {"name": "s", "io_type": "shape"}]
    assert info_of(IO={"outputs": twice}).outputs == (Declared("s", io_type="shape", dtype="int8"), Declared("y"))
    assert opened(packed(NET, {"valid": False, "name": "other", "device": 5})).info == Info()
    assert opened(packed(NET, {"valid": True, "name": "net", "version": "99.0.0"})).info.version == "99.0.0"


REFUSED: dict[str, tuple[bytes, str]] = {
    "no valid": (packed(NET, {"name": "net", "version": "1.1.1"}), "no 'valid'"),
    "valid number": (packed(NET, info(valid=1)), "1 as 'valid', not true or false"),
    "no name": (packed(NET, {"valid": True}), "no 'name'"),
    "other name": (
        packed(NET, info("other")),
        "infomation of model name is not match, packed model is net, but json info get other.",
    ),
    "version number": (packed(NET, info(version=1)), "1 as 'version', not text"),
    "parser": (packed(NET, info(), _2="OTHER"), "can't find model info parse function OTHER."),
    "method": (packed(NET, info(), _3="OTHER"), "The decryption method OTHER is not registed yet."),
    "method of the info": (packed(NET, info(), _1="OTHER"), "The decryption method OTHER is not registed yet."),
    "compression number": (packed(NET, info(has_compression=1)), "as 'has_compression'"),
    "device": (packed(NET, info(device={"type": "GPU"})), "LITE not support device type of GPU."),
    "no device type": (packed(NET, info(device={"device_id": 0})), "no 'type'"),
    "threads text": (packed(NET, info(device={"type": "CPU", "number_threads": "2"})), "\"2\" as 'number_threads'"),
    "threads negative": (packed(NET, info(device={"type": "CPU", "number_threads": -1})), "-1 as 'number_threads'"),
    "inplace": (packed(NET, info(device={"type": "CPU", "enable_inplace_model": 0})), "as 'enable_inplace_model'"),
    "option": (packed(NET, info(options={"weight_preprocess": 1})), "1 as 'weight_preprocess'"),
    "io dtype": (packed(NET, info(IO={"inputs": [{"name": "x", "dtype": "float64"}]})), "data type of float64."),
    "io type": (packed(NET, info(IO={"inputs": [{"name": "x", "io_type": "what"}]})), "IO type of what."),
    "io without name": (packed(NET, info(IO={"inputs": [{"dtype": "int8"}]})), "no 'name'"),
    "io object": (packed(NET, info(IO={"inputs": {"a": {"name": "x"}}})), "as 'inputs', not a list"),
    "no json": (packed(NET, b"hello"), "no valid JSON"),
    "json list": (packed(NET, b"[]"), "[] as 'the info', not an object"),
    "json text": (packed(NET, b'"text"'), "as 'the info', not an object"),
    "nested": (packed(packed(NET, info()), info()), "holds another packed model"),
    "nested and encrypted": (packed(packed(NET, info()), info(), "AES_default"), "holds another packed model"),
    "empty model": (packed(b"", info()), "The loaded model is of zero length."),
    "no model": (container(HEADER, None, None), "packed model parse error!"),
    "no data": (TAG + flat({0: [{0: HEADER, 2: {}}]}, b""), "packed model parse error!"),
    "no header": (TAG + flat({0: [{2: {0: NET}}]}, b""), "no header"),
    "no models": (TAG + flat({}, b""), "Now only support one model, and this packed file has 0"),
    "empty models": (TAG + flat({0: []}, b""), "this packed file has 0"),
    "two models": (TAG + flat({0: [{0: HEADER, 2: {0: NET}}] * 2}, b""), "this packed file has 2"),
    "no methods": (container({0: "net"}, None, NET), "The decryption method  is not registed yet."),
    # MegEngine Lite passes over these, and goes on without the setting.
    "options list": (packed(NET, info(options=[])), "[] as 'options', not an object"),
    "shape list": (packed(NET, info(IO={"inputs": [{"name": "x", "shape": [1, 2]}]})), "[1,2] as 'shape'"),
    "backend number": (packed(NET, info(backend=3)), "3 as 'backend', not text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    content, text = REFUSED[name]
    with refused(text=text):
        opened(content)
    with refused(text=text):
        litehouse.read(content)


@pytest.mark.parametrize("method", [method for method in SEALERS if method != "NONE"])
def test_not_encrypted_although_it_says_so(method: str) -> None:
    with refused(text="The checksum of the file cannot be verified."):
        opened(packed(NET, info(), _3=method))
    with refused(text="The checksum of the file cannot be verified."):
        opened(packed(NET, info(), _1=method))


@pytest.mark.parametrize("method", [method for method in SEALERS if method != "NONE"])
def test_other_keys(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key that counts is the one in the table when the file is opened."""
    monkeypatch.setattr(ciphers, "_methods", dict(ciphers._methods))
    key = bytes(range(50, 82))
    content = json.dumps(info()).encode()
    header = {**HEADER, 1: method, 3: method}
    made = container(header, SEALERS[method](content, key), SEALERS[method](NET, key))
    with refused(text="encrypted"):
        opened(made)
    ciphers.update_key(method, key)
    assert opened(made).info.valid
    assert opened(made).model.read(0, len(NET)) == NET


def test_own_method(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ciphers, "_methods", dict(ciphers._methods))
    # What this cipher leaves behind the JSON is as wild as what MegEngine Lite's own leave there.
    ciphers.register("backwards", lambda data, key: data[::-1] + key, b'\0\xff[[{"')
    content = json.dumps(info(extra_info="ends")).encode()
    made = container({**HEADER, 1: "backwards", 3: "backwards"}, content[::-1], NET[::-1])
    found = opened(made)
    assert found.info.extra == '"ends"'
    assert found.info.text == content.decode()
    assert found.model.read(0, len(NET)) == NET
    assert [output.name for output in litehouse.read(made).outputs] == ["y", "s"]
    ciphers.register("huge", lambda data, key: bytes(3 * len(data)), b"")
    with refused(text="more than twice"):
        opened(container({**HEADER, 3: "huge"}, None, NET * 50))


# Containers that ask for much ----------------------------------------------------------------------------------------


def peak(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_plain_model_is_not_copied(tmp_path: Path) -> None:
    """Neither from a file nor from memory."""
    content = packed(NET + bytes(20 << 20), info())
    (tmp_path / "m.lite").write_bytes(content)
    with open_source(tmp_path / "m.lite", Limits()) as source:
        assert peak(lambda: open_packed(source, Limits())) < 1 << 20
        assert open_packed(source, Limits()).model.size == len(NET) + (20 << 20)
    assert peak(lambda: opened(content)) < 1 << 20


def huge(content: bytes, marker: bytes, number: int = 2**32 - 1) -> bytes:
    """The container with another length in front of some bytes."""
    at = content.index(marker)
    return content[: at - 4] + number.to_bytes(4, "little") + content[at:]


BOMBS: dict[str, Callable[[], bytes]] = {
    "long name": lambda: huge(packed(NET, info()), b"net\0"),
    "long method": lambda: huge(packed(NET, info(), _3="METHOD"), b"METHOD"),
    "long info": lambda: huge(packed(NET, info()), b'{"name'),
    "long model": lambda: huge(packed(NET, info()), NET),
    "long model, encrypted": lambda: huge(packed(NET, info(), "RC4_default"), SEALERS["RC4_default"](NET)),
    "many models": lambda: TAG + (4).to_bytes(4, "little") + bytes(4) + flat({0: [{0: HEADER}]}, b"")[8:],
    "much info": lambda: packed(NET, json.dumps(info()).encode() + b" " * MAX_BYTES),
    "much info, encrypted": lambda: container({**HEADER, 1: "RC4_default"}, bytes(MAX_BYTES + 8), NET),
    "only a tag": lambda: TAG,
    "tag and zeros": lambda: TAG + bytes(1000),
    "tag and ones": lambda: TAG + b"\xff" * 1000,
    "root in a circle": lambda: TAG + (4).to_bytes(4, "little") * 1000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    content = BOMBS[name]()

    def work() -> None:
        with refused():
            opened(content)

    assert peak(work) < 4 * len(content) + (1 << 20)


def test_limit() -> None:
    content = packed(NET, info(), "AES_default")
    with refused(LimitError, f"{len(NET)} bytes, more than max_model_bytes=100"):
        opened(content, Limits(max_model_bytes=100))
    assert opened(content, Limits(max_model_bytes=len(NET))).model.size == len(NET)


# Damage --------------------------------------------------------------------------------------------------------------

DAMAGED = ("packed_plain.lite", "packed_mixed.lite", "packed_rc4.lite", "compressed.lite", "compressed_v1.lite")


@pytest.mark.parametrize("name", DAMAGED)
def test_cut_everywhere(name: str) -> None:
    content = (FOLDER / name).read_bytes()
    for length in range(12, len(content)):
        try:
            opened(content[:length])
        except ModelFormatError as error:
            assert str(error)  # noqa: PT017
        else:
            assert len(content) - length < 8, "only the padding at the end may be missing"


def mutated(content: bytes, dice: random.Random) -> bytes:
    made = bytearray(content)
    for _ in range(dice.randint(1, 3)):
        at = dice.randrange(12, len(made))
        kind = dice.randrange(5)
        if kind == 0:
            made[at] ^= 1 << dice.randrange(8)
        elif kind == 1:
            made[at : at + 4] = dice.choice((0, 1, 4, 2**16 - 1, 2**31, 2**32 - 1, at)).to_bytes(4, "little")
        elif kind == 2:
            del made[at : at + dice.randint(1, 16)]
        elif kind == 3:
            made[at:at] = made[at : at + dice.randint(1, 16)]
        else:
            made[at : at + 8] = dice.randbytes(8)
    return bytes(made)


@pytest.mark.parametrize("name", DAMAGED)
def test_mutated(name: str) -> None:
    """Three hundred of each are opened; those that open are also read as models. RC4 notices every change."""
    content = (FOLDER / name).read_bytes()
    dice = random.Random(name)
    count, all_of_them = 0, 300 if "rc4" not in name else 60
    for _ in range(all_of_them):
        made = mutated(content, dice)
        try:
            opened(made)
        except ModelFormatError as error:
            assert str(error)  # noqa: PT017
            continue
        count += 1
        assert outcome(made) in OUTCOMES
    assert count < all_of_them
    assert count > 0 or "rc4" in name, "the mutations change all in one way"


def test_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "m.lite").write_bytes(packed(NET, info("other")))
    with refused(text="m.lite: infomation of model name"):
        litehouse.read(tmp_path / "m.lite")
    with refused(text="m.lite: invalid model format"):
        (tmp_path / "m.lite").write_bytes(packed(b"no MegEngine model", info()))
        litehouse.read(tmp_path / "m.lite")
