"""Processes that are ranks, for tests, and the network that they run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from distributed.jobs import PATIENCE
from onnx_models import model, node

WORKER = Path(__file__).parent / "rank_worker.py"
RANK_VARIABLES = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "PMIX_", "SLURM_", "MASTER_", "MS_", "LITEHOUSE_RANK")


class Rank:
    """A process that is one rank."""

    def __init__(self, order: dict[str, Any], environment: dict[str, str], prefix: tuple[str, ...] = ()) -> None:
        """Start it.

        Args:
            order: What it shall do, as `rank_worker.py` tells.
            environment: Variables that it has besides those of this process.
            prefix: A command that starts it, such as one that puts it into another network.
        """
        kept = {name: text for name, text in os.environ.items() if not name.startswith(RANK_VARIABLES)}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, str(WORKER), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=kept | environment,
        )

    def hear(self, what: str) -> dict[str, Any]:
        """The next line of that kind; others before it are passed over."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            facts: dict[str, Any] = json.loads(line)
            if facts["what"] == what:
                return facts
        assert self.process.stderr is not None
        raise AssertionError(f"the process ended without {what!r}: {self.process.stderr.read()}")

    def go(self) -> None:
        """Let it begin, if it waits for that."""
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def end(self) -> int:
        """Its exit code, when it has ended by itself."""
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.close()

    def close(self) -> None:
        """Kill it if it is still there."""
        self.process.kill()
        self.process.communicate()


def layers(seed: int) -> list[np.ndarray]:
    random_ = np.random.default_rng(seed)
    return [random_.normal(size=shape).astype("f") for shape in ((64, 512), (512, 64))]


def network(seed: int = 0) -> bytes:
    """Two layers that are large enough to be sliced."""
    nodes = [node("MatMul", "x w1", "h"), node("Relu", "h", "r"), node("MatMul", "r w2", "y")]
    return model(nodes, {"x": [2, 64]}, {"y": [2, 64]}, dict(zip(("w1", "w2"), layers(seed), strict=True)))


def expected() -> float:
    w1, w2 = layers(0)
    return float((np.maximum(np.ones((2, 64), "f") @ w1, 0) @ w2).sum(dtype=np.float64))
