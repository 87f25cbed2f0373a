"""A writer of flatbuffers, and of small `.ms` files with it: valid ones, and attacks that are one change each."""

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from formats.builders import W

FLOAT32, FLOAT16, INT32, INT8 = 43, 42, 34, 32
ACTIVATION, ADD, CONCAT, GATHER, MATMUL, QUANT_CAST, RESHAPE = 2, 5, 31, 69, 89, 113, 119
RELU = {0: ("b", 1)}
NAME, INPUTS, OUTPUTS, NODES, TENSORS, GRAPHS, OBFUSCATED = 0, 3, 4, 6, 7, 8, 9  # slots of the root
DTYPE, DIMS, FORMAT, DATA, QUANTISATION, CLUSTERS, TITLE, HUFFMAN, COMPRESSION, EXTERNAL = (
    1,
    2,
    3,
    6,
    7,
    8,
    9,
    10,
    11,
    12,
)


@dataclass(frozen=True, eq=False)
class Numbers:
    """A vector of numbers; `kind` is their letter in `struct`."""

    kind: str
    values: Sequence[Any]


def flat(root: dict[int, Any], tag: bytes = b"MSL2") -> bytes:
    """A flatbuffer from its root table.

    A table is a dict from slots to values: a pair of letter and number, a text, bytes, `Numbers`, a table, or a list of
    tables or texts. An object that is used twice is written once where both places can reach it.
    """
    out = bytearray(4) + tag
    written: dict[int, int] = {}
    layouts: dict[bytes, int] = {}
    todo: deque[tuple[int, Any]] = deque([(0, root)])
    while todo:
        at, content = todo.popleft()
        target = written.get(id(content), 0)
        if target <= at:
            target = written[id(content)] = _write(out, content, layouts, todo)
        struct.pack_into("<I", out, at, target - at)
    return bytes(out)


def _write(out: bytearray, content: Any, layouts: dict[bytes, int], todo: deque[tuple[int, Any]]) -> int:
    out.extend(bytes(-len(out) % 4))
    if isinstance(content, dict):
        return _write_table(out, content, layouts, todo)
    at = len(out)
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes):
        out.extend(struct.pack("<I", len(content)) + content + b"\0")
    elif isinstance(content, Numbers):
        out.extend(struct.pack(f"<I{len(content.values)}{content.kind}", len(content.values), *content.values))
    else:
        out.extend(struct.pack("<I", len(content)) + bytes(4 * len(content)))
        todo.extend((at + 4 + 4 * index, item) for index, item in enumerate(content))
    return at


def _write_table(
    out: bytearray, content: dict[int, Any], layouts: dict[bytes, int], todo: deque[tuple[int, Any]]
) -> int:
    places = [0] * (max(content, default=-1) + 1)
    body = bytearray(4)
    references = []
    for slot, value in content.items():
        places[slot] = len(body)
        if isinstance(value, tuple):
            body += struct.pack("<" + value[0], value[1])
        else:
            references.append((len(body), value))
            body += bytes(4)
    layout = struct.pack(f"<{2 + len(places)}H", 4 + 2 * len(places), len(body), *places)
    if layout not in layouts:  # tables of the same form share it
        layouts[layout] = len(out)
        out.extend(layout + bytes(-len(layout) % 4))
    at = len(out)
    struct.pack_into("<i", body, 0, at - layouts[layout])
    out.extend(body + bytes(-len(body) % 4))
    todo.extend((at + offset, value) for offset, value in references)
    return at


# `.ms` ---------------------------------------------------------------------------------------------------------------


def tensor(
    name: str, shape: Sequence[int] | None, data: bytes | None = None, dtype: int = FLOAT32, **slots: Any
) -> dict[int, Any]:
    made: dict[int, Any] = {0: ("i", 0 if data is not None else 2), DTYPE: ("i", dtype), TITLE: name}
    if shape is not None:
        made[DIMS] = Numbers("i", shape)
    if data is not None:
        made[DATA] = data
    return made | _numbered(slots)


def _numbered(slots: dict[str, Any]) -> dict[int, Any]:
    """Fields that are given as `_3=value`."""
    return {int(slot[1:]): value for slot, value in slots.items()}


def scale(number: float, zero_point: int = 0, **slots: Any) -> dict[int, Any]:
    """How one channel is quantised."""
    return {0: ("d", number), 1: ("i", zero_point), **_numbered(slots)}


def node(
    op: int, inputs: Sequence[int], outputs: Sequence[int], fields: dict[int, Any] | None = None, quant_type: int = 0
) -> dict[int, Any]:
    return {
        0: f"node{outputs[0] if outputs else ''}",
        2: {0: ("B", op), 1: {} if fields is None else fields},
        3: Numbers("I", inputs),
        4: Numbers("I", outputs),
        5: ("i", quant_type),
    }


def model(tensors: list[Any], nodes: list[Any], inputs: Sequence[int], outputs: Sequence[int]) -> dict[int, Any]:
    return {
        2: ("i", 2),
        INPUTS: Numbers("I", inputs),
        OUTPUTS: Numbers("I", outputs),
        NODES: nodes,
        TENSORS: tensors,
    }


def ms(change: Callable[[dict[int, Any]], Any] | None = None) -> bytes:
    """`relu(x + w)` as a `.ms` file, after a change to its root: tensors x, w, the sum and the result."""
    tensors = [tensor("x", (2, 3)), tensor("w", (3,), W.tobytes()), tensor("a", (2, 3)), tensor("r", (2, 3))]
    root = model(tensors, [node(ADD, (0, 1), (2,)), node(ACTIVATION, (2,), (3,), dict(RELU))], (0,), (3,))
    if change is not None:
        change(root)
    return flat(root)
