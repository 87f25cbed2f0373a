"""How to run a model: `Options`, `Limits` for what a file may ask for, and `Job` for several processes."""

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

GIB = 1 << 30
MAX_THREADS = 4096
MAX_RANKS = 1 << 16
MAX_PORT = (1 << 16) - 1

ENGINES = ("auto", "onnxruntime", "openvino", "torch")
PRECISIONS = ("fp32", "tf32", "fp16")
DEVICES = ("cpu", "gpu", "ascend")
PROVIDERS = ("", "cuda", "tensorrt")
CORE_CLASSES = ("big", "mid")
OP_PRECISIONS = ("float16", "float32")
TUNINGS = ("off", "fast", "full")
UPDATES = ("", "in_place", "swap")
WORKSPACES = ("own", "shared")
TRANSPORTS = ("", "memory", "gloo")
ALLOWED = {
    "engine": ENGINES,
    "provider": PROVIDERS,
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
class Job:
    """The job over several processes that a model is a part of. What is not set is found from the launcher.

    Attributes:
        rank: Which of the job's processes this one is, from 0.
        size: How many processes the job has.
        rank_table: Path of a rank table file.
        address: Where rank 0 is found by the others, for jobs over several machines.
        port: The port that rank 0 listens on there; 0 derives one from the job.
        groups: Path of a file with groups of ranks (MindSpore's `group_info_file`).
        name: What tells the job from others of this user, where the launcher does not; as the environment variable
            `LITEHOUSE_JOB`.
        timeout: Seconds after which a rank that does not answer is an error.
        transport: How ranks exchange data: `"memory"` (one machine), `"gloo"` (any), `""` picks.

    Example:
        >>> Job(rank=1, size=2).timeout
        30.0
    """

    rank: int | None = None
    size: int | None = None
    rank_table: str = ""
    address: str = ""
    port: int = 0
    groups: str = ""
    name: str = ""
    timeout: float = 30.0
    transport: str = ""

    def __post_init__(self) -> None:
        """Check every field, so that a slip shows where it was made."""
        if self.size is not None and not _is_count(self.size, 1, MAX_RANKS):
            raise ValueError(f"size must be an int from 1 to {MAX_RANKS}, or None, not {self.size!r}")
        if self.rank is not None and not _is_count(self.rank, 0, MAX_RANKS - 1):
            raise ValueError(f"rank must be an int from 0 to {MAX_RANKS - 1}, or None, not {self.rank!r}")
        if self.rank is not None and self.size is not None and self.rank >= self.size:
            raise ValueError(f"rank must be less than size, but rank is {self.rank} and size is {self.size}")
        if not _is_count(self.port, 0, MAX_PORT):
            raise ValueError(f"port must be an int from 0 to {MAX_PORT}, not {self.port!r}")
        for name in ("rank_table", "address", "groups", "name"):
            if not isinstance(getattr(self, name), str):
                raise ValueError(f"{name} must be a str, not {getattr(self, name)!r}")
        if not _is_number(self.timeout) or self.timeout <= 0:
            raise ValueError(f"timeout must be a count of seconds above 0, not {self.timeout!r}")
        object.__setattr__(self, "timeout", float(self.timeout))
        if self.transport not in TRANSPORTS:
            raise ValueError(f"transport must be one of {TRANSPORTS}, not {self.transport!r}")


def _is_count(value: object, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How to run a model.

    Attributes:
        device: `"cpu"`, `"gpu"` or `"ascend"`, with an index as in `"gpu:1"`.
        engine: `"auto"`, or the name of one engine.
        threads: Threads inside one op; 0 takes the thread budget of the process (CPU affinity and cgroup quota).
        inter_op: Ops that run side by side on the CPU; 0 leaves it to the engine.
        workers: Runs at a time that the session is for, each with that many threads. With more than one, OpenVINO
            trades the time of a single run for the count of runs per second. `litehouse.Pool` sets it.
        provider: What ONNX Runtime uses on a GPU: `"cuda"` or `"tensorrt"`, which both mean that engine; `""` takes
            what is usual: torch, else ONNX Runtime with CUDA.
        precision: `"fp32"`, or `"fp16"` where lower precision is allowed: it is used if it is safe here and faster.
            `"tf32"` is the same as the first, but that a GPU may leave out digits in products (TF32).
        tune: How the engine is found where several can serve: `"fast"` times them for a second or two, unless the
            result is known or in the cache; `"full"` takes six seconds, for every model; `"off"` takes the first.
            The environment variable `LITEHOUSE_TUNE` sets what is usual.
        build_seconds: About how long a build may take for what only makes runs faster: on a GPU, the kernels that are
            made for the network, and the timing; on the CPU the timing alone. Kernels that are expected to take more
            than what is left of it are not made, and `session.engine.reason` says so; with 0 none are.
        op_precision: What single ops compute in, by the names that the file gives them: `"float16"` for half precision,
            as far as the engine has it; `"float32"` keeps them, and with them all others, from lower precision.
        affinity: Cores that the threads may use: core ids, `"big"` or `"mid"` for a class of cores, `()` for all. On
            other devices than the CPU, torch leaves it aside.
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
        job: The job over several processes that the model is a part of, where it has ops that span them.

    Example:
        >>> Options(threads=2).threads
        2
    """

    device: str = "cpu"
    engine: str = "auto"
    threads: int = 0
    inter_op: int = 0
    workers: int = 1
    provider: str = ""
    precision: str = "fp32"
    op_precision: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[int, ...] | str = ()
    tune: str = field(default_factory=_usual_tuning)
    build_seconds: float = 120.0
    workspace: str = "own"
    updatable: tuple[str, ...] | list[str] | str = ()
    updatable_mode: str = ""
    cache: Path | bool = True
    limits: Limits = field(default_factory=Limits)
    job: Job = field(default_factory=Job)

    def __post_init__(self) -> None:
        """Check every field, so that a slip shows where it was made."""
        kind, _, index = self.device.partition(":") if isinstance(self.device, str) else ("", "", "")
        if kind not in DEVICES or (index and not index.isdecimal()):
            raise ValueError(
                f"device must be one of {DEVICES}, with an index as in 'gpu:1' if wanted, not {self.device!r}"
            )
        for name, allowed in ALLOWED.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}, not {getattr(self, name)!r}")
        if self.provider and kind != "gpu":
            raise ValueError(f"provider {self.provider!r} is for the device 'gpu', not for {self.device!r}")
        if self.provider and self.engine not in ("auto", "onnxruntime"):
            raise ValueError(
                f"provider {self.provider!r} is ONNX Runtime's, and engine={self.engine!r} is not; leave out one"
            )
        for name in ("threads", "inter_op"):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= MAX_THREADS:
                raise ValueError(f"{name} must be an int from 0 to {MAX_THREADS}, not {value!r}")
        if not isinstance(self.workers, int) or not 1 <= self.workers <= MAX_THREADS:
            raise ValueError(f"workers must be an int from 1 to {MAX_THREADS}, not {self.workers!r}")
        if not _is_number(self.build_seconds) or self.build_seconds < 0:
            raise ValueError(f"build_seconds must be a count of seconds from 0 on, not {self.build_seconds!r}")
        object.__setattr__(self, "build_seconds", float(self.build_seconds))
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
        if not isinstance(self.job, Job):
            raise ValueError(f"job must be a litehouse.Job, not {self.job!r}")
        if isinstance(self.affinity, str):
            if self.affinity not in CORE_CLASSES:
                raise ValueError(f"affinity must be core ids or one of {CORE_CLASSES}, not {self.affinity!r}")
        elif not all(isinstance(core, int) and core >= 0 for core in self.affinity):
            raise ValueError(f"affinity must be core ids of at least 0, not {self.affinity!r}")

    def plain(self) -> dict[str, Any]:
        """The options as plain data, as JSON has it: for another process."""
        facts = asdict(self) | {"op_precision": dict(self.op_precision)}
        return facts | {"cache": str(self.cache) if isinstance(self.cache, Path) else self.cache}

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """The options that `plain` gave."""
        facts = dict(plain)
        facts |= {"limits": Limits(**facts["limits"]), "job": Job(**facts["job"])}
        facts["cache"] = Path(facts["cache"]) if isinstance(facts["cache"], str) else facts["cache"]
        if not isinstance(facts["affinity"], str):
            facts["affinity"] = tuple(facts["affinity"])
        return cls(**facts)

    @property
    def device_kind(self) -> str:
        """The device without its index."""
        return self.device.partition(":")[0]
