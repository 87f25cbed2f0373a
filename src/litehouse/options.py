"""How to run a model: `Options`, and `Limits` for what a file may ask for."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

GIB = 1 << 30
MAX_THREADS = 4096

ENGINES = ("auto", "onnxruntime", "openvino")
PRECISIONS = ("fp32", "fp16")
DEVICES = ("cpu", "gpu", "ascend")
CORE_CLASSES = ("big", "mid")
OP_PRECISIONS = ("float16", "float32")
TUNINGS = ("off", "fast", "full")
UPDATES = ("", "in_place", "swap")
WORKSPACES = ("own", "shared")
ALLOWED = {
    "engine": ENGINES,
    "precision": PRECISIONS,
    "tune": TUNINGS,
    "workspace": WORKSPACES,
    "updatable_mode": UPDATES,
}
TUNE_VARIABLE = "LITEHOUSE_TUNE"


def _usual_tuning() -> str:
    """What the environment asks for, for programs that cannot say it themselves."""
    tuning = os.environ.get(TUNE_VARIABLE) or "fast"
    if tuning not in TUNINGS:
        raise ValueError(f"the environment variable {TUNE_VARIABLE} must be one of {TUNINGS}, not {tuning!r}")
    return tuning


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model file may ask for. More is refused with `LimitError` before anything is allocated.

    Attributes:
        max_model_bytes: Size of all files of a model together.
        max_tensor_bytes: Size of one tensor.
        max_nodes: Count of nodes, over all graphs of the file.
        max_depth: Depth of graphs that call graphs, and of nested tuples.
    """

    max_model_bytes: int = 512 * GIB
    max_tensor_bytes: int = 64 * GIB
    max_nodes: int = 4_000_000
    max_depth: int = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run a model.

    Attributes:
        device: `"cpu"`, `"gpu"` or `"ascend"`, with an index as in `"gpu:1"`.
        engine: `"auto"`, or the name of one engine.
        threads: Threads inside one op; 0 takes the thread budget of the process (CPU affinity and cgroup quota).
        inter_op: Ops that run side by side; 0 leaves it to the engine.
        workers: Runs at a time that the session is for, each with that many threads. With more than one, OpenVINO
            trades the time of a single run for the count of runs per second. `litehouse.Pool` sets it.
        precision: `"fp32"`, or `"fp16"` where lower precision is allowed: it is used if it is safe here and faster.
        tune: How the engine is found where several can serve: `"fast"` times them for a second or two, unless the
            result is known or in the cache; `"full"` takes six seconds, for every model; `"off"` takes the first.
            The environment variable `LITEHOUSE_TUNE` sets what is usual.
        op_precision: What single ops compute in, by the names that the file gives them: `"float16"` for half precision,
            as far as the engine has it; `"float32"` keeps them, and with them all others, from lower precision.
        affinity: Cores that the threads may use: core ids, `"big"` or `"mid"` for a class of cores, `()` for all.
        workspace: The memory between ops: `"own"`, or `"shared"` with all sessions of the process that say so, where
            the engine can (ONNX Runtime on the CPU).
        updatable: Weights that may be given other values while the model is loaded: names, or patterns for them as in
            file names; `"all"` for every weight that can be.
        updatable_mode: What an update does: `"in_place"` hands the weights to each run, so that an update only copies
            them; `"swap"` builds the model anew beside the runs, which keep full speed; `""` takes the one that suits
            the network.
        cache: Where models are kept that were built, for the next start: a folder, True for the user's own
            (`$LITEHOUSE_CACHE_DIR`, else `litehouse` in the user's cache folder), False for nowhere.
        limits: What a model file may ask for.

    Example:
        >>> Options(threads=2).threads
        2
    """

    device: str = "cpu"
    engine: str = "auto"
    threads: int = 0
    inter_op: int = 0
    workers: int = 1
    precision: str = "fp32"
    op_precision: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[int, ...] | str = ()
    tune: str = field(default_factory=_usual_tuning)
    workspace: str = "own"
    updatable: tuple[str, ...] | list[str] | str = ()
    updatable_mode: str = ""
    cache: Path | bool = True
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        """Check every field, so that a slip shows where it was made."""
        kind, _, index = self.device.partition(":")
        if kind not in DEVICES or (index and not index.isdecimal()):
            raise ValueError(
                f"device must be one of {DEVICES}, with an index as in 'gpu:1' if wanted, not {self.device!r}"
            )
        for name, allowed in ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        for name in ("threads", "inter_op"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= MAX_THREADS:
                raise ValueError(f"{name} must be an int from 0 to {MAX_THREADS}, not {value!r}")
        if not isinstance(self.workers, int) or not 1 <= self.workers <= MAX_THREADS:
            raise ValueError(f"workers must be an int from 1 to {MAX_THREADS}, not {self.workers!r}")
        for name, precision in self.op_precision.items():
            if precision not in OP_PRECISIONS:
                raise ValueError(f"op_precision of {name!r} must be one of {OP_PRECISIONS}, not {precision!r}")
        patterns = ("*",) if self.updatable == "all" else self.updatable
        if isinstance(patterns, str) or not isinstance(patterns, Iterable):
            raise ValueError(f"updatable must be a list of names, or 'all', not {self.updatable!r}")
        object.__setattr__(self, "updatable", tuple(patterns))
        if not all(isinstance(name, str) and name for name in self.updatable):
            raise ValueError(f"updatable must be a list of names, or 'all', not {self.updatable!r}")
        if not isinstance(self.cache, bool | Path):
            raise ValueError(f"cache must be a pathlib.Path, True or False, not {self.cache!r}")
        if isinstance(self.affinity, str):
            if self.affinity not in CORE_CLASSES:
                raise ValueError(f"affinity must be core ids or one of {CORE_CLASSES}, not {self.affinity!r}")
        elif not all(isinstance(core, int) and core >= 0 for core in self.affinity):
            raise ValueError(f"affinity must be core ids of at least 0, not {self.affinity!r}")

    @property
    def device_kind(self) -> str:
        """The device without its index."""
        return self.device.partition(":")[0]
