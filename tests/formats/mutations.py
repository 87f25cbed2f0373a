"""Loads mutated files and tells what came of it; run in a child process by `test_mutations.py`.

The first argument is the seed, the second the count of mutations, the rest are valid files.
"""

import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import litehouse
from litehouse.formats.mindir import schema_pb2 as schema

NUMBERS = (-(2**63), -2, -1, 0, 1, 2, 3, 7, 64, 1000, 2**31 - 1, 2**31, 2**62, 2**63 - 1)


def damaged(content: bytes, dice: random.Random) -> bytes:
    """What a damaged disk does: bytes changed, left out, repeated, cut off."""
    made = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(made)) if made else 0
        size = dice.randint(1, 16)
        what = dice.randrange(5)
        if what == 0:
            made[at : at + 1] = bytes([dice.randrange(256)])
        elif what == 1:
            made[at : at + size] = dice.randbytes(size)
        elif what == 2:
            del made[at : at + size]
        elif what == 3:
            made[at:at] = made[at : at + size]
        else:
            del made[at + dice.randrange(len(made) or 1) :]
    return bytes(made)


def renumbered(content: bytes, dice: random.Random) -> bytes:
    """What somebody does to a flatbuffer who knows that its numbers lie at multiples of four bytes."""
    made = bytearray(content)
    for _ in range(dice.randint(1, 4)):
        at = 4 * dice.randrange(len(made) // 4)
        made[at : at + 4] = (dice.choice(NUMBERS) % 2**32).to_bytes(4, "little")
    return bytes(made)


def changed(content: bytes, dice: random.Random) -> bytes:
    """What somebody does who knows the format: the message stays well-formed, its content does not."""
    message = schema.Model.FromString(content)
    texts = [text for text in _texts(message) if text]
    for _ in range(dice.randint(1, 4)):
        places = list(_places(message))
        holder, kind, index = places[dice.randrange(len(places))]
        new: Any = dice.choice(NUMBERS)
        if kind.cpp_type == kind.CPPTYPE_STRING:
            text = dice.choice(texts)
            new = text if kind.type == kind.TYPE_STRING else text.encode()
        elif kind.cpp_type in (kind.CPPTYPE_FLOAT, kind.CPPTYPE_DOUBLE):
            new = dice.uniform(-1e9, 1e9)
        try:
            if index < 0:
                setattr(holder, kind.name, new)
            elif dice.random() < 0.7:
                getattr(holder, kind.name)[index] = new
            else:
                del getattr(holder, kind.name)[index]
        except (ValueError, TypeError):  # out of the range of the field
            continue
    _shuffle(message, dice)
    return bytes(message.SerializeToString())


def _shuffle(message: schema.Model, dice: random.Random) -> None:
    """Now and then, nodes or functions of the file change their places, or occur twice."""
    for graph in (message.graph, *message.functions):
        if len(graph.node) > 1 and dice.random() < 0.1:
            first, second = dice.sample(range(len(graph.node)), 2)
            kept = schema.Node.FromString(graph.node[first].SerializeToString())
            graph.node[first].CopyFrom(graph.node[second])
            if dice.random() < 0.5:
                graph.node[second].CopyFrom(kept)


def _places(message: Any) -> Any:
    """Every place that holds a number or text: the message, the field, the index in a repeated one."""
    for kind, content in message.ListFields():
        repeated = not isinstance(content, str | bytes | int | float | bool) and hasattr(content, "__len__")
        items = list(content) if repeated else [content]
        for index, item in enumerate(items):
            if kind.message_type is None:
                yield message, kind, index if repeated else -1
            elif hasattr(item, "ListFields"):
                yield from _places(item)


def _texts(message: Any) -> list[str]:
    found = []
    for holder, kind, index in _places(message):
        if kind.type == kind.TYPE_STRING:
            value = getattr(holder, kind.name)
            found.append(value if index < 0 else value[index])
    return found


def outcome(content: bytes) -> str:
    """Load the file and run nothing: a session, or the name of a documented error."""
    try:
        litehouse.load(content, engine="onnxruntime", threads=1).close()
    except litehouse.LitehouseError as error:
        if "no check foresaw" in str(error):
            return f"unforeseen: {error}"
        return type(error).__name__
    return "Session"


def main() -> None:
    seed, count, *paths = sys.argv[1:]
    found: Counter[str] = Counter()
    for number in range(int(count)):
        dice = random.Random(f"{seed} {number}")
        path = Path(dice.choice(paths))
        content = path.read_bytes()
        print(f"{number} {path.name}", file=sys.stderr, flush=True)  # the last line tells which one crashed
        plain = path.suffix == ".mindir" and content.startswith(b"\x0a")  # a MindIR file that is not encrypted
        knowing = changed if plain else renumbered
        found[outcome((knowing if dice.random() < 0.6 else damaged)(content, dice))] += 1
    # Not getrusage's: that begins with what the parent process had.
    status = Path("/proc/self/status").read_text().splitlines()
    peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
    print(json.dumps({"outcomes": found, "peak": peak}))


if __name__ == "__main__":
    main()
