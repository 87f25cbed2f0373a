"""The JSON of packed models: what counts as such, whatever stands behind it, and attacks on its parser."""

import json
import random

import pytest
from formats.builders import refused
from formats.mge.packed_builder import info, packed

from litehouse import Limits
from litehouse.formats.mge.model_info import MAX_NESTING, Device
from litehouse.formats.mge.pack import Info, open_packed
from litehouse.formats.source import Source

VALID = json.dumps(info()).encode()


def parsed(content: bytes) -> Info:
    return open_packed(Source.over(packed(b"model", content)), Limits()).info


@pytest.mark.parametrize(
    "content",
    [
        VALID + b"\0",
        VALID + b"\0" * 7 + random.Random(1).randbytes(8),
        VALID + b"\0junk",
        VALID + b" junk",
        VALID + b"\xff\xfe" + b"[" * 1000,
        VALID + b"}",
        b"\xef\xbb\xbf" + VALID,
        b" \r\n\t" + VALID + b"\n",
        VALID.replace(b'"net"', b'"\\u006eet"'),
        VALID[:-1] + b', "valid": true}',
        VALID[:-1] + b', "x": "\\"[[[[[[\\\\"}',
        VALID[:-1] + b', "x": ' + b"[" * (MAX_NESTING - 1) + b"]" * (MAX_NESTING - 1) + b"}",
    ],
)
def test_json_is_taken(content: bytes) -> None:
    assert parsed(content).name == "net"


def test_empty_info_is_none() -> None:
    assert parsed(b"") == Info()


@pytest.mark.parametrize(
    "content",
    [
        b"\0" + VALID,
        b" ",
        b"{",
        VALID[:-1],
        b'{"valid": true "name": "net"}',
        b"{'valid': true}",
        b'{"valid": True}',
        VALID[:-1] + b', "x": NaN}',
        VALID[:-1] + b', "x": -Infinity}',
        VALID[:-1] + b', "x": "\xff"}',
        VALID[:-1] + b', "x": "\\ud800"}',
        VALID[:-1] + b', "\\udc00": 1}',
        VALID[:-1] + b', "x": "\n"}',
        VALID[:-1] + b', "x": ' + b"9" * 5000 + b"}",
        VALID[:-1] + b', "x": ' + b"[" * MAX_NESTING + b"]" * MAX_NESTING + b"}",
        VALID[:-1] + b', "x": ' + b"[" * 500_000,
        VALID[:-1] + b', "x": ' + b'{"":' * 200_000,
        VALID[:-1] + b', "x": ' + b'["",' * 200_000,
        b"[" * 1_000_000,
        b'"' * 1_000_000,
        b"\\" * 1_000_000,
        b"\xff" * 1_000_000,
    ],
    ids=lambda content: ascii(content[-20:]),
)
def test_json_is_refused(content: bytes) -> None:
    with refused():
        parsed(content)


@pytest.mark.parametrize("number", ["-0.5", "1e400", "-1e400", "2147483648", "1e308", str(2**64), "null"])
def test_odd_numbers(number: str) -> None:
    content = VALID[:-1] + b', "device": {"type": "CPU", "number_threads": ' + number.encode() + b"}}"
    if number == "null":
        assert parsed(content).device == Device("CPU")
        return
    with refused(text="as 'number_threads', not a whole number"):
        parsed(content)
