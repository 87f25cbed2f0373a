"""Make the fixtures under `tests/fixtures/mge_packed`: encrypted, packed and compressed MegEngine models.

Runs in a Python with the packages for Litehouse's tests, and wants another one with `megengine==1.13.0` (Python 3.10)::

    python tools/make_mge_packed_fixtures.py --megengine PYTHON

MegEngine dumps the networks. They are encrypted, packed and compressed here, since its Python package has no tools for
that; then the real MegEngine Lite loads each file, and its outputs are kept (`cases.json`, `values.npz`).
"""

import argparse
import json
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from litehouse.formats.flat import FlatBuffer, Table
from litehouse.formats.source import Source

TOOLS = Path(__file__).resolve().parent
TARGET = TOOLS.parent / "tests" / "fixtures" / "mge_packed"
PEER = TOOLS / "mge_packed_fixtures" / "peer.py"
SHORT = {"AES_default": "aes", "RC4_default": "rc4", "SIMPLE_FAST_RC4_default": "simple_fast_rc4"}
FLOAT32 = 0
OTHER_KEY = bytes(range(200, 232))
INFO = {
    "name": "net",
    "valid": True,
    "version": "1.13.0",
    "has_compression": False,
    "backend": "MGE",
    "device": {"type": "CPU", "device_id": 0, "number_threads": 2, "enable_inplace_model": False},
    "options": {"graph_opt_level": 2, "weight_preprocess": False},
    "IO": {
        "inputs": [{"name": "x", "is_host": True, "dtype": "float32", "shape": {"dim0": 2, "dim1": 6}}],
        "outputs": [{"name": "s", "is_host": True, "io_type": "value"}, {"name": "y"}],
    },
    "extra_info": {"labels": ["b", "a"], "author": "né"},
}


# Compression ---------------------------------------------------------------------------------------------------------


def squeezed(raw: bytes, kind: int) -> bytes:
    """The values of a float32 tensor in steps of 8 (kind 1) or 16 bits (kind 2); kind 0 leaves them as they are."""
    if not kind:
        return b"\0" + raw
    values = np.frombuffer(raw, np.float32)
    top = 255 if kind == 1 else 65535
    step = np.float32((values.max() - values.min()) / top)
    steps = np.round((values - values.min()) / step).clip(0, top).astype("u1" if kind == 1 else "<u2")
    return bytes([kind]) + struct.pack("<ff", step, values.min()) + steps.tobytes()


def tensors(root: Table, operators: int, slot: int) -> Iterator[tuple[Table, int]]:
    """The tensors of all operators, each with a kind of compression that fits its dtype."""
    count = 0
    for operator in root.tables(operators):
        for tensor in operator.tables(slot):
            dtype = tensor.table(3)
            count += 1
            yield tensor, count % 3 if dtype is None or dtype.number(0, "B") == FLOAT32 else 0


def compressed_v2(content: bytes) -> bytes:
    """The same container, the values of its tensors compressed and moved behind all else."""
    out = bytearray(content)
    for tensor, kind in tensors(FlatBuffer(Source.over(content), 4).root(), 2, 11):
        if not tensor.bytes(6):
            continue
        out += bytes(-len(out) % 4)
        field = 4 + tensor.at + tensor._field(6, 4)
        struct.pack_into("<I", out, field, len(out) - field)
        data = squeezed(tensor.bytes(6), kind)
        out += struct.pack("<I", len(data)) + data
    struct.pack_into("<I", out, 0, len(out) - 4)
    return bytes(out)


def compressed_v1(content: bytes) -> bytes:
    """The same container with the values of its tensors compressed."""
    start = 24
    (size,) = struct.unpack_from("<Q", content, start - 8)
    graph = bytearray(content[start + size :])
    at = start
    area = b""
    for tensor, kind in tensors(FlatBuffer(Source.over(bytes(graph)), 4).root(), 3, 7):
        length = tensor.number(4, "I")
        if length:
            data = squeezed(content[at : at + length], kind)
            struct.pack_into("<I", graph, 4 + tensor.at + tensor._field(4, 4), len(data))
            area += data
            at += length
    return content[: start - 8] + struct.pack("<Q", len(area)) + area + bytes(graph)


# Files ---------------------------------------------------------------------------------------------------------------


def write_files() -> dict[str, dict[str, str]]:
    sys.path.insert(0, str(TOOLS.parent / "tests"))
    from formats.mge.packed_builder import SEALERS, packed

    net, net_v1, sums, sums_v1 = (
        (TARGET / f"{name}.mge").read_bytes() for name in ("net", "net_v1", "sums", "sums_v1")
    )
    cases: dict[str, dict[str, str]] = {}

    def keep(name: str, content: bytes, network: str = "net", cipher: str = "", key: bytes = b"") -> None:
        (TARGET / name).write_bytes(content)
        cases[name] = {"network": network, "cipher": cipher, "key": key.hex()}

    keep("net.mge", net)
    keep("net_v1.mge", net_v1)
    for method, short in SHORT.items():
        keep(f"bare_{short}.mge", SEALERS[method](net), cipher=method)
        key = OTHER_KEY[: 32 if short == "aes" else 16]
        keep(f"bare_{short}_other_key.mge", SEALERS[method](net, key), cipher=method, key=key)
        keep(f"packed_{short}.lite", packed(net, INFO, method, method))
    keep("packed_plain.lite", packed(net, INFO))
    keep("packed_mixed.lite", packed(net_v1, INFO, "AES_default", "SIMPLE_FAST_RC4_default"))
    keep("packed_no_info.lite", packed(net, None))
    keep("packed_not_valid.lite", packed(net, {**INFO, "valid": False}))
    squeezing = {"name": "net", "valid": True, "version": "1.13.0", "has_compression": True}
    keep("compressed.lite", packed(compressed_v2(sums), squeezing), "sums")
    keep("compressed_v1.lite", packed(compressed_v1(sums_v1), squeezing), "sums")
    keep("compressed_rc4.lite", packed(compressed_v2(sums), squeezing, "RC4_default", "AES_default"), "sums")
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megengine", required=True, metavar="PYTHON")
    arguments = parser.parse_args()
    TARGET.mkdir(exist_ok=True)
    subprocess.run([arguments.megengine, str(PEER), "dump", str(TARGET)], check=True)
    (TARGET / "cases.json").write_text(json.dumps(write_files()))
    subprocess.run([arguments.megengine, str(PEER), "run", str(TARGET)], check=True)
    for path in TARGET.glob("*.npy"):
        path.unlink()


if __name__ == "__main__":
    main()
