"""`.ms` files that are wrong in one place each, cut, or damaged: every one is refused, with an error that names it."""

import random
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.builders import HUGE, W, outcome, refused
from formats.ms.ms_builder import (
    ACTIVATION,
    ADD,
    COMPRESSION,
    CONCAT,
    DATA,
    DIMS,
    DTYPE,
    EXTERNAL,
    GRAPHS,
    INPUTS,
    INT8,
    MATMUL,
    NODES,
    OUTPUTS,
    QUANTISATION,
    RELU,
    RESHAPE,
    TENSORS,
    Numbers,
    flat,
    model,
    ms,
    node,
    scale,
    tensor,
)

import litehouse
from conftest import FIXTURES, ZOO
from litehouse import LimitError, Limits, ModelFormatError, UnsupportedOpError

Change = Callable[[dict[int, Any]], Any]
OUTCOMES = {"Model", "ModelFormatError", "LimitError", "UnsupportedOpError", "WeightError"}


def weight(**slots: Any) -> Change:
    return lambda root: root[TENSORS][1].update({int(slot[1:]): value for slot, value in slots.items()})


def packed(count: int, bits: int) -> Change:
    slots = {DTYPE: ("i", INT8), DATA: bytes(count), QUANTISATION: [scale(1.0, 0, _5=("i", bits))]}
    return lambda root: root[TENSORS][1].update({**slots, COMPRESSION: ("i", 4)})


def graphs(**slots: Any) -> Change:
    made = {0: "main", 1: Numbers("I", (0,)), 2: Numbers("I", (3,)), 3: Numbers("I", (0, 1))}
    made.update({int(slot[1:]): value for slot, value in slots.items()})
    return lambda root: root.update({GRAPHS: [made]})


ATTACKS: dict[str, tuple[Change, type[Exception], str]] = {
    # Weights: what they declare against the bytes that are there.
    "dims are huge": (weight(_2=Numbers("i", (2**20, 2**20))), LimitError, "max_tensor_bytes"),
    "dims overflow": (weight(_2=Numbers("i", (2**31 - 1,) * 4)), ModelFormatError, "impossible shape"),
    "dims hide behind a zero": (weight(_2=Numbers("i", (0, *(2**31 - 1,) * 4))), ModelFormatError, "impossible"),
    "dim is negative": (weight(_2=Numbers("i", (-3,))), ModelFormatError, "impossible shape"),
    "rank 10000": (weight(_2=Numbers("i", (1,) * 10_000)), ModelFormatError, "impossible rank"),
    "too few bytes": (weight(_6=bytes(11)), ModelFormatError, "has 11 bytes, not 12"),
    "too many bytes": (weight(_6=bytes(13)), ModelFormatError, "has 13 bytes, not 12"),
    "no bytes": (weight(_6=b""), ModelFormatError, "it has no data"),
    "dtype unknown": (weight(_1=("i", 99)), ModelFormatError, "data type number 99"),
    "dtype text": (weight(_1=("i", 12)), ModelFormatError, "data type number 12"),
    "packed bits are too few": (packed(1, 4), ModelFormatError, "not 2"),
    "packed in no bits": (packed(0, 0), ModelFormatError, "no data"),
    "packed in 8 bits": (packed(3, 8), ModelFormatError, "in 8 bits"),
    "packed in -1 bits": (packed(3, -1), ModelFormatError, "in -1 bits"),
    "packed in 2 billion bits": (packed(3, 2**31 - 1), ModelFormatError, "bits"),
    "data file of huge length": (
        weight(**{f"_{EXTERNAL}": [{1: "w.bin", 2: ("q", 0), 3: ("q", HUGE)}]}),
        ModelFormatError,
        "bytes",
    ),
    "data file at a huge offset": (
        weight(**{f"_{EXTERNAL}": [{1: "w.bin", 2: ("q", HUGE)}]}),
        ModelFormatError,
        "by its path",
    ),
    # Indices.
    "input of no tensor": (lambda r: r.update({INPUTS: Numbers("I", (9,))}), ModelFormatError, "tensor 9 of 4"),
    "output of no tensor": (lambda r: r.update({OUTPUTS: Numbers("I", (2**32 - 1,))}), ModelFormatError, "of 4"),
    "no output": (lambda r: r.update({OUTPUTS: Numbers("I", ())}), ModelFormatError, "returns nothing"),
    "node reads no tensor": (lambda r: r[NODES].append(node(ADD, (0, 4), (3,))), ModelFormatError, "tensor 4 of 4"),
    "node writes no tensor": (lambda r: r[NODES].append(node(ADD, (0, 1), (4,))), ModelFormatError, "tensor 4 of 4"),
    "graph of no node": (graphs(_3=Numbers("I", (0, 2))), ModelFormatError, "nodes that the file lacks"),
    "graph without nodes": (graphs(_3=Numbers("I", ())), ModelFormatError, "computes nothing"),
    "nodes in wrong order": (graphs(_3=Numbers("I", (1, 0))), ModelFormatError, "no node computes it"),
    "no tensors": (lambda r: r.update({TENSORS: []}), ModelFormatError, "tensor"),
    "nothing at all": (lambda r: r.clear(), ModelFormatError, "returns nothing"),
    # Nodes.
    "node without an op": (lambda r: r[NODES][0].pop(2), ModelFormatError, "has no op"),
    "op of number 0": (lambda r: r[NODES][0].update({2: {}}), UnsupportedOpError, "op number 0"),
    "node without operands": (lambda r: r[NODES].append(node(ADD, (), (3,))), UnsupportedOpError, "missing"),
    "node with many results": (
        lambda r: r[NODES].append(node(ACTIVATION, (0,), (3, 2, 1), dict(RELU))),
        UnsupportedOpError,
        "3 results where 1",
    ),
    "node without results": (lambda r: r[NODES].append(node(ADD, (0, 1), ())), ModelFormatError, "no result"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks(name: str) -> None:
    change, error, text = ATTACKS[name]
    with refused(error, text):
        litehouse.read(ms(change))


def test_limits() -> None:
    with refused(LimitError, "max_nodes=1"):
        litehouse.read(ms(), limits=Limits(max_nodes=1))
    with refused(LimitError, "max_tensor_bytes=11"):
        litehouse.read(ms(), limits=Limits(max_tensor_bytes=11))
    with refused(LimitError, "max_model_bytes"):
        litehouse.read(ms(), limits=Limits(max_model_bytes=100))


# Small files that ask for much: in a process with little memory -------------------------------------------------------


def shared_weights() -> bytes:
    """A thousand weights of a megabyte each, all in the same place."""
    data = bytes(1 << 20)
    tensors = [tensor("x", (1,)), *(tensor(f"w{index}", (1 << 18,), data) for index in range(1000)), tensor("y", (1,))]
    return flat(model(tensors, [node(ACTIVATION, (0,), (1001,), dict(RELU))], (0,), (1001,)))


def shared_operands() -> bytes:
    """Ten thousand nodes with the same ten thousand operands."""
    operands = Numbers("I", (0,) * 10_000)
    nodes = [node(CONCAT, (), (1,)) for _ in range(10_000)]
    for item in nodes:
        item[3] = operands
    return flat(model([tensor("x", (1,)), tensor("y", (10_000,))], nodes, (0,), (1,)))


def shared_tensor() -> bytes:
    """Two hundred thousand times the same tensor, which has a long name."""
    return flat(model([tensor("x" * 1000, (1,))] * 200_000, [], (0,), (0,)))


def shared_nodes() -> bytes:
    tensors = [tensor("x", (1,)), tensor("y", (1,))]
    return flat(model(tensors, [node(ACTIVATION, (0,), (1,), dict(RELU))] * 200_000, (0,), (1,)))


def graph_of_one_node() -> bytes:
    """A graph that lists its node two hundred thousand times."""
    root = model([tensor("x", (1,)), tensor("y", (1,))], [node(ACTIVATION, (0,), (1,), dict(RELU))], (0,), (1,))
    root[GRAPHS] = [{0: "main", 1: Numbers("I", (0,)), 2: Numbers("I", (1,)), 3: Numbers("I", (0,) * 200_000)}]
    return flat(root)


def wide_quantisation() -> bytes:
    """A hundred thousand channels that share one scale."""
    stored = tensor("w", (1, 100_000), bytes(100_000), INT8)
    stored[QUANTISATION] = [scale(0.5)] * 100_000
    tensors = [tensor("x", (1, 1)), stored, tensor("y", (1, 100_000))]
    return flat(model(tensors, [node(MATMUL, (0, 1), (2,), {}, 4)], (0,), (2,)))


BOMBS: dict[str, Callable[[], bytes]] = {
    "shared weights": shared_weights,
    "shared operands": shared_operands,
    "shared tensor": shared_tensor,
    "shared nodes": shared_nodes,
    "graph of one node": graph_of_one_node,
    "wide quantisation": wide_quantisation,
    "gigabytes": lambda: ms(weight(_2=Numbers("i", (2**30, 8)))),
    "gigabytes behind a zero": lambda: ms(weight(_2=Numbers("i", (0, 2**30, 8)))),
    "gigabytes of few bits": lambda: ms(
        lambda root: root[TENSORS][1].update(
            {
                DTYPE: ("i", INT8),
                DIMS: Numbers("i", (2**31 - 1,)),
                QUANTISATION: [scale(1.0, 0, _5=("i", 1))],
                COMPRESSION: ("i", 4),
            }
        )
    ),
    "split into a billion": lambda: ms(
        lambda root: root[NODES].append(node(145, (3,), (3,), {0: ("q", 10**9), 2: ("q", 0)}))
    ),
}

CHILD = """
import pathlib, resource, sys
import litehouse
folder = pathlib.Path(sys.argv[1])
litehouse.read(folder / "good.ms")
resource.setrlimit(resource.RLIMIT_AS, (1 << 30,) * 2)
for path in sorted(folder.glob("case*.ms")):
    try:
        litehouse.read(path)
        what = "Model"
    except litehouse.LitehouseError as error:
        unforeseen = "no check foresaw" in str(error) or error.__cause__ is not None and "Memory" in str(error)
        what = "unforeseen" if unforeseen else type(error).__name__
    print(path.stem, what)
"""


def in_one_gigabyte(folder: Path, contents: list[bytes]) -> list[str]:
    """What becomes of each of these files in a process that may have 1 GB: "Model", or the error's name."""
    (folder / "good.ms").write_bytes(ms())
    for index, content in enumerate(contents):
        (folder / f"case{index}.ms").write_bytes(content)
    command = [sys.executable, "-c", CHILD, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split() for line in done.stdout.splitlines())
    return [rows[f"case{index}"] for index in range(len(contents))]


def test_bombs(tmp_path: Path) -> None:
    results = in_one_gigabyte(tmp_path, [make() for make in BOMBS.values()])
    expected = {"ModelFormatError", "LimitError", "UnsupportedOpError"}
    assert {name: what for name, what in zip(BOMBS, results, strict=True) if what not in expected} == {}


# Damage ---------------------------------------------------------------------------------------------------------------


def seeds() -> dict[str, bytes]:
    """Valid files: one of each kind of content."""
    stored = tensor("w", (3, 2), bytes([0x12, 0x34, 0x56]), INT8)
    stored[QUANTISATION] = [scale(0.5, 1, _5=("i", 4)), scale(0.25, -1, _5=("i", 4))]
    shape = tensor("s", (1,), np.array([-1], np.int32).tobytes(), 34)
    tensors = [tensor("x", (-1, 3)), stored, tensor("a", None), shape, tensor("y", None)]
    nodes = [node(MATMUL, (0, 1), (2,), {}, 4), node(RESHAPE, (2, 3), (4,))]
    found = {"plain": ms(), "quantised": flat(model(tensors, nodes, (0,), (4,)))}
    found |= {path.stem: path.read_bytes() for path in sorted((FIXTURES / "ms").glob("*.ms"))}
    if ZOO.exists():
        names = ("conv_bn_relu", "lstm", "resize_sizes", "nms", "instancenorm", "slice4_c")
        found |= {name: (ZOO / "mindir_converted" / "ops" / f"{name}.ms").read_bytes() for name in names}
        found["lenet"] = (ZOO / "mindir_converted" / "lenet" / "lenet.ms").read_bytes()
    return found


SEEDS = seeds()


def test_seeds_are_valid() -> None:
    assert {name: outcome(seed) for name, seed in SEEDS.items() if outcome(seed) != "Model"} == {}


@pytest.mark.parametrize("name", SEEDS)
def test_cut_files(name: str) -> None:
    """Cut at 200 places: an error, or all that is missing is what nobody reads."""
    seed = SEEDS[name]
    for end in sorted({len(seed) * index // 200 for index in range(200)}):
        assert outcome(seed[:end]) in OUTCOMES - {"WeightError"}
    assert outcome(seed[: len(seed) // 2]) == "ModelFormatError"


def mutated(seed: bytes, generator: random.Random) -> bytes:
    """One to four changes: other bytes, other numbers, parts that are moved, lost or doubled."""
    content = bytearray(seed)
    for _ in range(generator.randint(1, 4)):
        at = generator.randrange(len(content))
        kind = generator.randrange(6)
        if kind == 0:
            content[at] ^= 1 << generator.randrange(8)
        elif kind == 1:
            numbers = [*range(16), 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, len(seed), generator.randrange(len(seed))]
            at = min(at & ~3, len(content) - 4)
            struct.pack_into("<I", content, at, generator.choice(numbers))
        elif kind == 2:
            content[at : at + 4] = generator.randbytes(4)
        elif kind == 3:
            del content[at : at + generator.randint(1, 16)]
        elif kind == 4:
            content[at:at] = content[at : at + generator.randint(1, 64)]
        else:
            other = generator.randrange(len(content))
            content[at : at + 4], content[other : other + 4] = content[other : other + 4], content[at : at + 4]
    return bytes(content)


def test_mutated_files(tmp_path: Path) -> None:
    generator = random.Random(20)
    kinds = list(SEEDS.values())
    results = in_one_gigabyte(tmp_path, [mutated(kinds[index % len(kinds)], generator) for index in range(200)])
    assert set(results) <= OUTCOMES
    assert {"Model", "ModelFormatError"} <= set(results)


def test_mutants_that_load_also_build() -> None:
    """What the reader lets pass is a session, or a documented error."""
    generator = random.Random(21)
    for _ in range(60):
        content = mutated(generator.choice([SEEDS["plain"], SEEDS["quantised"]]), generator)
        try:
            litehouse.load(content, engine="onnxruntime", threads=1)
        except litehouse.LitehouseError as error:
            assert str(error)  # noqa: PT017


def test_weights_are_not_read_twice(tmp_path: Path) -> None:
    """150 MB of weight fit into a child that may allocate 192 MB more than it has."""
    count = 150 << 18
    content = ms(weight(_2=Numbers("i", (count // 3, 1, 3)), _6=bytes(4 * count)))
    (tmp_path / "large.ms").write_bytes(content)
    (tmp_path / "good.ms").write_bytes(ms())
    code = """
import resource, sys, litehouse
litehouse.read(sys.argv[1] + "/good.ms")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (192 << 20),) * 2)
print(litehouse.read(sys.argv[1] + "/large.ms").weights["w"].nbytes)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.stdout.strip() == str(4 * count), done.stderr
    assert W.nbytes == 12


def test_a_huge_rank_from_a_recorded_size() -> None:
    """A shape operand whose recorded length is gigantic: no shape of that rank is made."""
    content = bytearray((FIXTURES / "converted" / "filled.ms").read_bytes())
    content[442] = 0x7F
    with refused(text="the rank of 'y0' is not recorded"):
        litehouse.read(bytes(content))
