"""Tiny files that ask for much: read in a child process whose memory is limited, and timed."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from formats.builders import FLOAT, HUGE, attribute, external, mindir, node, onnx_graph, op, schema, split, tensor

ROOM = 192 << 20  # what a child may allocate beyond what it has when everything is imported

CHILD = """
import gc, json, resource, sys, time
import litehouse
good, room, *paths = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))  # ends one that hangs, however busy the machine is
litehouse.read(good + ".mindir"), litehouse.read(good + ".onnx")
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(room),) * 2)
for path in paths:
    gc.collect()
    start = time.process_time()
    try:
        litehouse.read(path)
        what = "Model"
    except litehouse.LitehouseError as error:
        what = type(error).__name__
        if "no check foresaw" in str(error) or error.__cause__ is not None and "Memory" in str(error):
            what = str(error)
    print(json.dumps([path, what, time.process_time() - start]), flush=True)
with open("/proc/self/status") as lines:  # not getrusage's: that begins with what the parent process had
    print(json.dumps(["peak", next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0]))
"""


def weight(dims: list[int], dtype: int = FLOAT, data: bytes | None = b"") -> Callable[[schema.Model], Any]:
    return lambda model: model.graph.parameter[0].CopyFrom(tensor("G:w", dims, dtype, data))


def onnx_weight(**fields: Any) -> Callable[[onnx.ModelProto], Any]:
    return lambda model: model.graph.initializer[0].CopyFrom(onnx.TensorProto(name="w", data_type=FLOAT, **fields))


def onnx_constant(**fields: Any) -> Callable[[onnx.ModelProto], Any]:
    made = onnx.TensorProto(data_type=FLOAT, **fields)
    return lambda model: model.graph.node.append(op("Constant", "", "c", value=made))


def onnx_external(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].dims[:] = [2**32]
    external(model.graph.initializer[0])


GIGABYTES = [2**30, 8]  # 32 GB of float32, below the limit for one tensor

BOMBS: dict[str, Callable[[], bytes]] = {
    "weight.mindir": lambda: mindir(weight(GIGABYTES)),
    "weight_int64.mindir": lambda: mindir(weight([2**33], 7)),
    "weight_without_data.mindir": lambda: mindir(weight(GIGABYTES, data=None)),
    "weight_overflow.mindir": lambda: mindir(weight([2**62, 4])),
    "weight_zero.mindir": lambda: mindir(weight([0, HUGE, HUGE])),
    "weight_rank.mindir": lambda: mindir(weight([2] * 100_000)),
    "split.mindir": lambda: split(length=2**35),
    "split_offset.mindir": lambda: split(offset=2**62),
    "constant.mindir": lambda: mindir(
        lambda m: m.graph.node.insert(
            0,
            schema.Node(
                output=["c"],
                op_type="Constant",
                attribute=[schema.Attribute(name="value", type=19, tensors=[tensor("", GIGABYTES, FLOAT, b"")])],
            ),
        )
    ),
    "encrypted.mindir": lambda: (
        b"\xd9\x5e\x3a\x7f" + b"\xff\xff\xff\x7f" + b"\x10\0\0\0" + bytes(16) + b"\xff\xff\xff\x7f"
    ),
    "raw.onnx": lambda: onnx_graph(onnx_weight(dims=GIGABYTES, raw_data=b"1234")),
    "typed.onnx": lambda: onnx_graph(onnx_weight(dims=GIGABYTES, float_data=[1.0])),
    "nothing.onnx": lambda: onnx_graph(onnx_weight(dims=GIGABYTES)),
    "zero.onnx": lambda: onnx_graph(onnx_weight(dims=[0, HUGE])),
    "external.onnx": lambda: onnx_graph(onnx_external),
    "constant.onnx": lambda: onnx_graph(onnx_constant(dims=GIGABYTES)),
    "constant_raw.onnx": lambda: onnx_graph(onnx_constant(dims=GIGABYTES, raw_data=b"")),
}


def run(folder: Path, names: list[str]) -> dict[str, tuple[Any, float]]:
    (folder / "good.mindir").write_bytes(mindir())
    (folder / "good.onnx").write_bytes(onnx_graph())
    (folder / "w.bin").write_bytes(bytes(16))
    paths = [str(folder / name) for name in names]
    command = [sys.executable, "-c", CHILD, str(folder / "good"), str(ROOM), *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != -signal.SIGXCPU, "the reader hangs"
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return {Path(path).name: (what, seconds) for path, what, seconds in rows}


def test_bombs(tmp_path: Path) -> None:
    for name, make in BOMBS.items():
        (tmp_path / name).write_bytes(make())
    results = run(tmp_path, list(BOMBS))
    peak, _ = results.pop("peak")
    assert {name: what for name, (what, _) in results.items() if what not in ("ModelFormatError", "LimitError")} == {}
    assert max(seconds for _, seconds in results.values()) < 1
    assert peak < 1_000_000  # kB: the interpreter with numpy, onnx and protobuf, and no bomb


def test_a_large_weight_is_held_once(tmp_path: Path) -> None:
    """150 MB of weight fit into a child that may allocate 192 MB: the arena is the only copy."""
    content = bytes(150 << 20)
    (tmp_path / "large.mindir").write_bytes(mindir(weight([150 << 18], data=content)))
    (tmp_path / "large.onnx").write_bytes(onnx_graph(onnx_weight(dims=[150 << 18], raw_data=content)))
    results = run(tmp_path, ["large.mindir", "large.onnx"])
    assert [results[name][0] for name in ("large.mindir", "large.onnx")] == ["Model", "Model"]


def doubled(count: int) -> bytes:
    """Tuples that hold the one before twice: a file of `count` nodes with two to the power of `count` items."""

    def change(model: schema.Model) -> None:
        model.primitives.add(name="MakeTuple:3", op_type="MakeTuple")
        last = "G:r:2"
        for index in range(count):
            model.graph.node.append(node("REF::MakeTuple:3", f"{last} {last}", f"G:t{index}:0", None))
            last = f"G:t{index}:0"

    return mindir(change)


def absurd(kind: str, **attributes: Any) -> bytes:
    """One op of the network with attributes that ask for much work."""

    def change(model: schema.Model) -> None:
        made = model.primitives.add(name="Evil:3", op_type=kind)
        made.attribute.extend(attribute(name, content) for name, content in attributes.items())
        model.graph.node.append(node("REF::Evil:3", "G:r:2", "G:e:3"))

    return mindir(change)


ABSURD: dict[str, Callable[[], bytes]] = {
    "tuples that double": lambda: doubled(60),
    "split into a billion": lambda: absurd("Split", axis=0, output_num=10**9),
    "pool to a billion": lambda: absurd("AdaptiveAvgPool2D", output_size=(10**9, 1)),
}


@pytest.mark.parametrize("name", ABSURD)
def test_absurd_work(tmp_path: Path, name: str) -> None:
    (tmp_path / "m.mindir").write_bytes(ABSURD[name]())
    (what, seconds) = run(tmp_path, ["m.mindir"])["m.mindir"]
    assert what in ("ModelFormatError", "LimitError", "UnsupportedOpError")
    assert seconds < 1
