"""A sliced model over processes that this one starts, and that end with it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import assert_close
from litehouse.distributed.slicing import plan, write
from litehouse.errors import RankError
from litehouse.options import Job, Options
from litehouse.parallel.launched import Launched
from onnx_models import model, node

PATIENCE = 120.0  # seconds: only a hang takes so long
OPTIONS = Options(engine="onnxruntime", threads=1, job=Job(timeout=PATIENCE))


def layers() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    return [random.normal(size=shape).astype("f") for shape in ((64, 512), (512, 64))]


def whole(x: np.ndarray) -> np.ndarray:
    w1, w2 = layers()
    return np.maximum(x @ w1, 0) @ w2


def inputs(rows: int = 2) -> np.ndarray:
    return np.random.default_rng(4).normal(size=(rows, 64)).astype("f")


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    nodes = [node("MatMul", "x w1", "h"), node("Relu", "h", "r"), node("MatMul", "r w2", "y")]
    weights = dict(zip(("w1", "w2"), layers(), strict=True))
    sliced = plan(litehouse.read(model(nodes, {"x": [2, 64]}, {"y": [2, 64]}, weights)), 2)
    assert sliced.exchanges
    return write(sliced, tmp_path / "parts")


@pytest.fixture
def launched(parts: list[Path]) -> Iterator[Launched]:
    with Launched(parts, OPTIONS) as made:
        yield made


def test_it_computes_what_the_whole_model_does(launched: Launched) -> None:
    x = inputs()
    for factor in (1, 2, 3):
        (result,) = launched.run([factor * x])
        assert_close(result, whole(factor * x))
    assert launched.bytes_sent > 0


def test_other_sizes(launched: Launched) -> None:
    launched.resize([(5, 64)])
    (result,) = launched.run([inputs(5)])
    assert_close(result, whole(inputs(5)))


def test_two_at_once(parts: list[Path]) -> None:
    with Launched(parts, OPTIONS) as first, Launched(parts, OPTIONS) as second:
        for made in (first, second, first):
            (result,) = made.run([inputs()])
            assert_close(result, whole(inputs()))


def test_processes_end_when_it_is_closed(parts: list[Path]) -> None:
    made = Launched(parts, OPTIONS)
    made.close()
    assert [process.poll() for process in made._processes] == [0]
    assert os.environ.get("LITEHOUSE_JOB") is None


def test_a_process_that_dies_is_named(parts: list[Path]) -> None:
    with Launched(parts, OPTIONS) as made:
        made.run([inputs()])
        made._processes[0].kill()
        made._processes[0].wait(PATIENCE)
        with pytest.raises(RankError, match="rank 1 died") as caught:
            made.run([inputs()])
    assert caught.value.rank == 1


def test_what_a_process_said_is_told(parts: list[Path]) -> None:
    Path(f"{parts[1]}.data").unlink()
    with pytest.raises(RankError, match=r"rank 1 failed.*rank_1\.onnx.*missing") as caught:
        Launched(parts, OPTIONS)
    assert caught.value.rank == 1


def test_inputs_that_are_refused_here_do_not_reach_the_others(launched: Launched) -> None:
    with pytest.raises(litehouse.ShapeError):
        launched.run([np.ones((3, 64), "f")])
    with pytest.raises(litehouse.ShapeError):
        launched.resize([(1, 2), (3, 4)])
    (result,) = launched.run([inputs()])
    assert_close(result, whole(inputs()))


PARENT = """
import json, sys
from pathlib import Path
import numpy as np
from litehouse import Options
from litehouse.parallel.launched import Launched
made = Launched([Path(path) for path in sys.argv[1:]], Options(engine="onnxruntime", threads=1))
made.run([np.ones((2, 64), "f")])
print(json.dumps([process.pid for process in made._processes]), flush=True)
sys.stdin.read()
"""


def test_processes_do_not_outlive_who_started_them(parts: list[Path]) -> None:
    command = [sys.executable, "-c", PARENT, *map(str, parts)]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    (child,) = json.loads(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + PATIENCE
    while _is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_alive(child)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
