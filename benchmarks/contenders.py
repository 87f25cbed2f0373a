"""Who takes part in the suite, and how each is started."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import BARE, OTHER, OURS
from benchmarks.networks import PEERS, file, peer

WORKERS = Path(__file__).parent / "workers"


@dataclass(frozen=True)
class Contender:
    """One way to run a network: which worker, on which file, with whose Python, called by how many threads."""

    name: str
    worker: str
    suffix: str
    peer: str = ""
    option: str = ""
    clients: int = 1

    @property
    def missing(self) -> str:
        """Why it is left out, or nothing."""
        return f"{PEERS[self.peer]} is not set" if self.peer and not peer(self.peer) else ""

    def command(self, network: str, batch: int, threads: int, outputs: Path) -> list[str]:
        """How its process is started."""
        python = (peer(self.peer) if self.peer else None) or sys.executable
        model, arrays = file(network, batch, self.suffix), inputs(network, batch, self.suffix)
        command = [python, str(WORKERS / self.worker), str(model), str(arrays), str(threads), str(outputs)]
        return [*command, self.option] if self.option else command


CONTENDERS = {
    "mindir": (
        Contender(OURS, "litehouse_worker.py", ".mindir"),
        Contender(BARE, "onnxruntime_worker.py", ".onnx"),
        Contender(OTHER, "openvino_worker.py", ".onnx"),
        Contender("MindSpore Lite", "mindspore_lite_worker.py", ".lite.mindir", "mindspore_lite"),
        Contender("MindSpore", "mindspore_worker.py", ".mindir", "mindspore"),
    ),
    "mge": (
        Contender(OURS, "litehouse_worker.py", ".mge"),
        Contender("megenginelite", "megenginelite_worker.py", ".mge", "megengine"),
        Contender("megenginelite tuned", "megenginelite_worker.py", ".mge", "megengine", "tuned"),
    ),
}


def inputs(network: str, batch: int, suffix: str) -> Path:
    """The file with the inputs, and with the output that the framework computed."""
    return file(network, batch, ".mge.npz" if suffix == ".mge" else ".npz")


def absent() -> dict[str, str]:
    """Who is left out, and why."""
    return {item.name: item.missing for items in CONTENDERS.values() for item in items if item.missing}
