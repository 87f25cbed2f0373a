"""Make the fixtures under `tests/fixtures/mge_written`: operators that MegEngine knows, but never dumps itself.

Runs in a Python with the packages for Litehouse's tests, and wants another one with `megengine==1.13.0` (Python 3.10)::

    python tools/make_mge_written_fixtures.py --megengine PYTHON

The files are written here, field by field; the real MegEngine Lite loads each and computes the outputs, which are kept
beside it with the inputs. What it refuses is not kept.
"""

import argparse
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np

from litehouse.formats.mge.operators import number_of

TOOLS = Path(__file__).resolve().parent
TARGET = TOOLS.parent / "tests" / "fixtures" / "mge_written"
PEER = TOOLS / "mge_written_fixtures" / "peer.py"
MEGENGINE, CONTAINER = 101300, 2
DTYPES = {"float32": 0, "uint8": 1, "int32": 4}
QUANTIZED_S8 = 13
NUMBERS = {"I": "Uint32", "i": "Int32", "Q": "Uint64", "B": "Uint8", "?": "Bool", "f": "Float32", "d": "Float64"}
Slots = dict[int, Any]


@dataclass
class Numbers:
    """A vector of unsigned numbers."""

    values: Sequence[int]


@dataclass
class Case:
    """One operator.

    Attributes:
        kind: Its name in the file.
        param: The number of its parameter table.
        params: The fields of that table.
        inputs: What is drawn for the network's inputs; they are the first operands.
        held: The other operands, which the file holds.
        holder: The operator that holds them.
        outputs: How many variables the operator makes.
        returned: Which of them the network returns.
        output_dtype: The dtype that the operator is told to give.
    """

    kind: str
    param: int
    params: Slots
    inputs: Sequence[np.ndarray]
    held: Sequence[np.ndarray] = ()
    holder: str = "ImmutableTensor"
    outputs: int = 1
    returned: Sequence[int] = (0,)
    output_dtype: Slots | None = None


# Writing --------------------------------------------------------------------------------------------------------------


def write(builder: flatbuffers.Builder, content: Any) -> int:
    """Write a text, bytes, numbers, a list of tables, or a table: a dict from slots to such, or to kind and number."""
    if isinstance(content, str):
        return int(builder.CreateString(content))
    if isinstance(content, bytes):
        return int(builder.CreateByteVector(content))
    if isinstance(content, Numbers):
        builder.StartVector(4, len(content.values), 4)
        for number in reversed(content.values):
            builder.PrependUint32(int(number))
        return int(builder.EndVector())
    if isinstance(content, list):
        places = [write(builder, item) for item in content]
        builder.StartVector(4, len(places), 4)
        for place in reversed(places):
            builder.PrependUOffsetTRelative(place)
        return int(builder.EndVector())
    places_of = {slot: write(builder, value) for slot, value in content.items() if not isinstance(value, tuple)}
    builder.StartObject(max(content, default=-1) + 1)
    for slot, value in content.items():
        if slot in places_of:
            builder.PrependUOffsetTRelative(places_of[slot])
        else:
            getattr(builder, f"Prepend{NUMBERS[value[0]]}")(value[1])
        builder.Slot(slot)
    return int(builder.EndObject())


def tensor(array: np.ndarray, name: str = "") -> Slots:
    """A tensor of an operator; those with a name are inputs, which have no data."""
    slots: Slots = {1: Numbers(array.shape), 2: {0: "cpux:0"}, 3: {0: ("B", DTYPES[array.dtype.name])}}
    return slots | ({0: name} if name else {6: array.tobytes()})


def operator(kind: str, version: int, outputs: Sequence[int], **slots: Any) -> Slots:
    """An operator. Its number is the hash of its name; of the first versions without a version and the final zero."""
    text = kind.encode() + b"\0" if version == 2 else re.sub(r"V\d$", "", kind).encode()
    made = {0: kind, 1: ("Q", number_of(text)), 8: Numbers(outputs), 9: [{0: "cpux:0"}], 12: ("I", version)}
    return made | {int(slot[1:]): value for slot, value in slots.items()}


def written(case: Case) -> bytes:
    """The file."""
    operators = []
    for place, array in enumerate(case.inputs):
        named = [tensor(array, f"x{place}")]
        operators.append(operator("Host2DeviceCopy", 2, [place], _3=("B", 63), _4={}, _11=named))
    for array in case.held:
        version = 1 if case.holder == "SharedDeviceTensor" else 2
        operators.append(operator(case.holder, version, [len(operators)], _11=[tensor(array)]))
    count = len(operators)
    made = range(count, count + case.outputs)
    given = {} if case.output_dtype is None else {"_10": case.output_dtype}
    params = {"_3": ("B", case.param), "_4": case.params}
    operators.append(operator(case.kind, 1, made, **params, _7=Numbers(range(count)), **given))
    names = [*(f"x{place}" for place in range(count)), *(f"y{place}" for place in range(case.outputs))]
    returned = [{0: ("I", made[place]), 1: ("I", made[place])} for place in case.returned]
    builder = flatbuffers.Builder(1024)
    root = {0: ("I", MEGENGINE), 1: ("I", CONTAINER), 2: operators, 3: [{0: name} for name in names], 4: returned}
    builder.FinishSizePrefixed(write(builder, root), file_identifier=b"mgv2")
    content = bytes(builder.Output())
    assert struct.unpack_from("<I", content)[0] == len(content) - 4
    return content


# Cases ----------------------------------------------------------------------------------------------------------------


def drawn(name: str, shape: Sequence[int], dtype: str = "float32") -> np.ndarray:
    """Values for a case; bytes of any size, or floats with short fractions, which compress better."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if dtype == "uint8":
        return rng.integers(0, 256, shape).astype("uint8")
    return (np.round(rng.standard_normal(shape) * 256) / 256).astype("float32")


def cases() -> dict[str, Case]:
    """All cases by name."""
    return {**rotations(), **colours(), **blurs(), **transforms(), **batch_norms()}


def rotations() -> dict[str, Case]:
    found = {}
    for clockwise in (True, False):
        for dtype in ("uint8", "float32"):
            name = f"rotate_{'clockwise' if clockwise else 'back'}_{dtype}"
            found[name] = Case("Rotate", 35, {0: ("?", clockwise)}, [drawn(name, (2, 4, 5, 3), dtype)])
    return found


def colours() -> dict[str, Case]:
    modes = {"ycrcb2rgb": 22, "ycrcb2bgr": 23}
    return {
        f"color_{name}": Case("CvtColor", 37, {0: ("I", mode)}, [drawn(name, (2, 12, 10, 1), "uint8")])
        for name, mode in modes.items()
    }


BORDERS = {"replicate": 0, "reflect": 1, "reflect_101": 2, "constant": 4}


def blurs() -> dict[str, Case]:
    found = {}

    def add(name: str, shape: Sequence[int], dtype: str, border: int, *numbers: float) -> None:
        kinds = ("I", "I", "I", "f", "f")
        params = dict(enumerate(zip(kinds, (border, *numbers), strict=True)))
        found[f"blur_{name}"] = Case("GaussianBlur", 39, params, [drawn(name, shape, dtype)])

    for dtype in ("uint8", "float32"):
        for word, border in BORDERS.items():
            add(f"{word}_{dtype}", (2, 9, 8, 3), dtype, border, 5, 3, 0, 0)
        for size in (1, 3, 5, 7, 9):
            add(f"{size}_{dtype}", (1, 12, 16, 1), dtype, 2, size, size, 0, 0)
            add(f"{size}_sigma_{dtype}", (1, 12, 16, 1), dtype, 2, size, size, 1.3, 0.7)
        add(f"no_size_{dtype}", (1, 12, 16, 1), dtype, 0, 0, 0, 0.8, 1.1)
        add(f"one_sigma_{dtype}", (1, 12, 16, 1), dtype, 0, 0, 0, 0.6, 0)
        add(f"larger_than_image_{dtype}", (1, 3, 4, 1), dtype, 1, 9, 9, 2.0, 2.0)
        for height, width in ((1, 3), (3, 1), (3, 5), (5, 3)):
            add(f"odd_width_{height}x{width}_{dtype}", (1, 24, 5, 3), dtype, 2, height, width, 0, 0)
    return found


def transforms() -> dict[str, Case]:
    found = {}

    def add(name: str, masks: Sequence[Sequence[int]] = (), block: int = 8, scale: float = 0) -> None:
        params: Slots = {0: ("I", 3 if scale else 0), 2: ("i", block)}
        image = drawn(name, (2, len(masks) or 3, 2 * block, 3 * block), "uint8")
        ends = np.cumsum([0, *map(len, masks)])
        held = [np.array(ends, "int32"), np.array([item for mask in masks for item in mask], "int32")] if masks else []
        dtype = {0: ("B", QUANTIZED_S8), 1: ("B", 1), 2: {0: ("f", scale)}} if scale else None
        found[f"dct_{name}"] = Case("DctChannelSelectV1", 72, params, [image], held, output_dtype=dtype)

    add("all")
    add("block_4", block=4)
    add("masks", ((0, 1, 8, 16), (0, 5), (63, 62, 0)))
    add("masks_block_4", ((0, 1, 15), (3,)), block=4)
    add("quantised", ((0, 1, 8, 16), (0, 5, 6, 7)), scale=6.5)
    return found


DIMS = {"11hw": (1, 1, 5, 6), "1chw": (1, 4, 5, 6), "1c11": (1, 4, 1, 1), "111c": (1, 1, 1, 6)}


def batch_norms() -> dict[str, Case]:
    """In training mode; with stored statistics these must be in an operator whose tensors may be written to."""
    found = {}
    for number, (dim, shape) in enumerate(DIMS.items()):
        params = {0: ("I", number), 1: ("I", 0), 2: ("d", 0.01), 3: ("d", 0.25)}
        image = drawn(dim, (2, 1 if dim == "11hw" else 4, 5, 6))
        held = [drawn(f"{dim}{place}", shape) for place in range(2)]
        found[f"batch_norm_{dim}"] = Case("BatchNormV1", 11, params, [image], held, outputs=4, returned=(0, 1, 3))
        found[f"batch_norm_{dim}_stored"] = Case(
            "BatchNormV1", 11, params, [image], [*held, *held], "SharedDeviceTensor", 6, (2, 3, 5)
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--megengine", required=True, metavar="PYTHON")
    arguments = parser.parse_args()
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir(parents=True)
    for name, case in cases().items():
        (TARGET / f"{name}.mge").write_bytes(written(case))
        np.savez_compressed(TARGET / f"{name}.npz", **{f"in_x{place}": x for place, x in enumerate(case.inputs)})
        if subprocess.run([arguments.megengine, PEER, TARGET / name], check=False).returncode:
            print(f"MegEngine refuses {name}")
            for suffix in (".mge", ".npz"):
                (TARGET / f"{name}{suffix}").unlink()


if __name__ == "__main__":
    main()
