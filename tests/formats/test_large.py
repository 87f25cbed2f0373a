"""Models beyond 2 GB, which protobuf cannot hold (in sparse files, which take no room), and one of many nodes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from formats.builders import FLOAT, INT64, constant, external, info, node, op, schema, tensor, value
from onnx import helper

import litehouse
from benchmarks.mindir_models import write_chain
from litehouse.formats.wire import _head

pytestmark = pytest.mark.slow

ROWS, WIDTH = 524_400, 1024
SIZE = ROWS * WIDTH * 4
FILLED = (0, 12_345, ROWS - 1)  # rows that are not zero; each holds its own number
OVERHEAD = 500_000  # kB: the interpreter and its libraries

CHILD = """
import json, sys, time
import numpy, litehouse
path, mode = sys.argv[1:]
start = time.perf_counter()
rows = numpy.array(ROWS)
if mode == "read":
    result = litehouse.read(path).weights["w"][rows]
else:
    result = litehouse.load(path, engine="onnxruntime", threads=1).run([rows])[0]
with open("/proc/self/status") as lines:  # not getrusage's: that begins with what the parent process had
    peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(json.dumps([result[:, ::512].tolist(), peak, time.perf_counter() - start]))
""".replace("ROWS", str([*FILLED, 5]))


def fill(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        for row in FILLED:
            file.seek(offset + row * WIDTH * 4)
            file.write(np.full(WIDTH, row, np.float32).tobytes())


def run(path: Path, mode: str) -> int:
    """Check the rows in a child process. Returns its peak of memory in kB."""
    done = subprocess.run([sys.executable, "-c", CHILD, str(path), mode], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows, peak, seconds = json.loads(done.stdout)
    assert rows == [[row, row] for row in FILLED] + [[0, 0]]
    print(f"{mode} of {path.name}: {seconds:.1f} s, {peak / 1e6:.2f} GB")
    return int(peak)


def test_onnx_with_a_data_file(tmp_path: Path) -> None:
    weight = onnx.TensorProto(name="w", data_type=FLOAT, dims=[ROWS, WIDTH])
    external(weight, offset=0, length=SIZE)
    graph = helper.make_graph(
        [op("Gather", "w rows", "y")], "g", [info("rows", ["n"], INT64)], [info("y", ["n", WIDTH])], [weight]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(SIZE)
    fill(tmp_path / "w.bin", 0)
    assert run(tmp_path / "m.onnx", "run") < 2 * SIZE // 1000 + OVERHEAD  # the arena, and the engine's copy


def test_mindir_with_the_weight_inside(tmp_path: Path) -> None:
    """Written by hand, since protobuf cannot: the graph's and the weight's length are over 2 GB."""
    gather = node("REF::Gather:1", "G:w G:rows axis", "G:y:1", (-1, WIDTH))
    rest = schema.Graph(
        name="G",
        node=[constant("axis", 0), gather],
        input=[value("G:rows", (-1,), INT64)],
        output=[value("G:y:1", (-1, WIDTH))],
    ).SerializeToString()
    shell = tensor("G:w", (ROWS, WIDTH)).SerializeToString()
    weight_head = shell + _head(9, SIZE)
    weight = _head(3, len(weight_head) + SIZE) + weight_head
    head = schema.Model(ir_version="1.1").SerializeToString() + _head(7, len(weight) + SIZE + len(rest)) + weight
    tail = rest + schema.Model(primitives=[schema.Primitive(name="Gather:1", op_type="Gather")]).SerializeToString()
    path = tmp_path / "m.mindir"
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + SIZE)
        file.seek(len(head) + SIZE)
        file.write(tail)
    fill(path, len(head))
    assert path.stat().st_size > 1 << 31
    assert run(path, "read") < SIZE // 1000 + OVERHEAD  # the arena alone


def test_a_hundred_thousand_nodes(tmp_path: Path) -> None:
    path = tmp_path / "chain.mindir"
    write_chain(path, 100_000)
    session = litehouse.load(path, engine="onnxruntime", threads=1)
    assert sum(session.model.source_ops.values()) > 99_000
    weights = session.model.weights
    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    expected = x
    for added in _chain(path):
        expected = expected + weights[added] if added else np.maximum(expected, 0)
    np.testing.assert_allclose(session(x)[0], expected, rtol=1e-4, atol=1e-4)


def _chain(path: Path) -> list[str]:
    """The weight that each step of the network adds; empty for a relu."""
    graph = schema.Model.FromString(path.read_bytes()).graph
    loaded = {node.output[0]: node.input[0].partition(":")[2] for node in graph.node if "Load" in node.op_type}
    return [loaded.get(node.input[-1], "") for node in graph.node if node.op_type in ("REF::Add:1", "REF::ReLU:1")]
