"""What launchers of processes tell theirs: rank, size, place on the machine, and a name for the job."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from litehouse.errors import EngineError
from litehouse.options import MAX_PORT, MAX_RANKS

MAX_DIGITS = 9
MAX_SHOWN = 60
MAX_ANCESTORS = 100

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Launcher:
    """The variables of one launcher.

    Attributes:
        name: A word for messages.
        rank: The variable with the rank.
        sizes: The variables with the count of ranks; the first that is set counts.
        local_ranks: Those with the rank among those of the machine.
        local_sizes: Those with the count of ranks of the machine.
        jobs: Variables that together name the job; the first row whose variables are all set counts.
        address: The variable with the address of rank 0.
        port: The variable with the port that rank 0 may listen on.
    """

    name: str
    rank: str
    sizes: tuple[str, ...]
    local_ranks: tuple[str, ...] = ()
    local_sizes: tuple[str, ...] = ()
    jobs: tuple[tuple[str, ...], ...] = ()
    address: str = ""
    port: str = ""


@dataclass(frozen=True, slots=True)
class Told:
    """What one source tells. None, 0, `()` and `""` stand for what it does not tell.

    Attributes:
        source: A word for messages.
        names: Where rank and size are written, for messages.
        rank: The rank of this process.
        size: How many ranks there are.
        local_rank: The rank among those of this machine.
        local_size: How many ranks this machine has.
        hosts: The host of each rank.
        address: Where rank 0 is found.
        port: The port that it may listen on.
        job: What names the job; `()` where nothing does but the process that started its ranks, see `starter`.
    """

    source: str
    names: tuple[str, str]
    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int = 0
    hosts: tuple[str, ...] = ()
    address: str = ""
    port: int = 0
    job: tuple[str, ...] = ()


TORCHRUN = Launcher(
    "torchrun",
    "RANK",
    ("WORLD_SIZE",),
    ("LOCAL_RANK",),
    ("LOCAL_WORLD_SIZE",),
    (
        ("TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT"),
        ("MASTER_ADDR", "MASTER_PORT"),
    ),
    "MASTER_ADDR",
    "MASTER_PORT",
)
OPEN_MPI = Launcher(
    "Open MPI",
    "OMPI_COMM_WORLD_RANK",
    ("OMPI_COMM_WORLD_SIZE",),
    ("OMPI_COMM_WORLD_LOCAL_RANK",),
    ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    (
        ("PMIX_NAMESPACE", "OMPI_MCA_orte_precondition_transports"),
        ("PMIX_NAMESPACE",),
        ("OMPI_MCA_ess_base_jobid",),
    ),
)
MPICH = Launcher(
    "MPICH",
    "PMI_RANK",
    ("PMI_SIZE",),
    ("MPI_LOCALRANKID", "PMI_LOCAL_RANK"),
    ("MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"),
    (("PMI_JOBID",), ("PALS_APID",)),
)
PMIX = Launcher(
    "PMIx",
    "PMIX_RANK",
    ("PMI_SIZE", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    ("SLURM_LOCALID",),
    jobs=(("PMIX_NAMESPACE",),),
)
MVAPICH = Launcher(
    "MVAPICH",
    "MV2_COMM_WORLD_RANK",
    ("MV2_COMM_WORLD_SIZE",),
    ("MV2_COMM_WORLD_LOCAL_RANK",),
    ("MV2_COMM_WORLD_LOCAL_SIZE",),
)
SLURM = Launcher(
    "Slurm",
    "SLURM_PROCID",
    ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    ("SLURM_LOCALID",),
    jobs=(("SLURM_JOB_ID", "SLURM_STEP_ID"), ("SLURM_JOB_ID",)),
)
CLUSTER = Launcher(
    "MindSpore's cluster",
    "MS_NODE_ID",
    ("MS_WORKER_NUM",),
    jobs=(("MS_SCHED_HOST", "MS_SCHED_PORT"),),
    address="MS_SCHED_HOST",
)
MINDSPORE = Launcher("MindSpore", "RANK_ID", ("RANK_SIZE",))

TABLE_VARIABLES = ("RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH")


def tellers(environment: Environment) -> Iterator[Told]:
    """Give what each launcher tells that left traces, in the order in which they count. `mindspore` is after them."""
    for launcher in (TORCHRUN, OPEN_MPI, MPICH):
        yield from _read(launcher, environment)
    # What PMIx starts does not learn the size from it.
    yield from (told for told in _read(PMIX, environment) if None not in (told.rank, told.size))
    yield from _read(MVAPICH, environment)
    yield from _read_slurm(environment)
    yield from _read_cluster(environment)


def mindspore(environment: Environment) -> Iterator[Told]:
    """Give what MindSpore's plain variables tell."""
    yield from _read(MINDSPORE, environment)


def number(environment: Environment, name: str, most: int) -> int | None:
    """Give a variable that is a whole number, None where it is not set.

    Raises:
        EngineError: It is none, or too large.
    """
    text = environment.get(name, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS and int(text) <= most):
        raise EngineError(
            f"the environment variable {name} is {text[:MAX_SHOWN]!r}, not a whole number from 0 to {most}; "
            f"set it to one, or unset it"
        )
    return int(text)


def _read(launcher: Launcher, environment: Environment) -> Iterator[Told]:
    """Give what a launcher tells, if it tells a rank or a size."""
    rank = number(environment, launcher.rank, MAX_RANKS)
    size_name, size = _first(environment, launcher.sizes)
    if rank is None and size is None:
        return
    if size == 0 or (rank is not None and size is not None and rank >= size):
        raise EngineError(
            f"the environment variables {launcher.rank} ({rank}) and {size_name} ({size}) contradict each other: a "
            f"rank is less than the count of ranks; correct both, or unset both"
        )
    _, local_rank = _first(environment, launcher.local_ranks)
    _, local_size = _first(environment, launcher.local_sizes)
    yield Told(
        source=launcher.name,
        names=(launcher.rank, size_name),
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size or 0,
        address=environment.get(launcher.address, "").strip(),
        port=_port(launcher, environment),
        job=_job(launcher, environment),
    )


def _first(environment: Environment, names: tuple[str, ...]) -> tuple[str, int | None]:
    """Give the first of the variables that is set, and its number."""
    for name in names:
        found = number(environment, name, MAX_RANKS)
        if found is not None:
            return name, found
    return names[-1] if names else "", None


def _port(launcher: Launcher, environment: Environment) -> int:
    # Where torchrun itself listens on the port, no rank can.
    if not launcher.port or environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return 0
    return number(environment, launcher.port, MAX_PORT) or 0


def _job(launcher: Launcher, environment: Environment) -> tuple[str, ...]:
    for names in launcher.jobs:
        if all(environment.get(name) for name in names):
            return (launcher.name, *(environment[name] for name in names))
    return ()


def starter(variable: str) -> tuple[str, str]:
    """Give number and start time of the nearest ancestor that was started without a variable.

    A launcher sets the variable for each rank, and has none itself. What is between it and the rank, as a script that
    starts the program, inherits the variable; or it is a fork of the launcher, as the part of a shell script in round
    brackets is.
    """
    pid = os.getppid()
    mark = f"{variable}=".encode()
    for _ in range(MAX_ANCESTORS):
        parent = _stat(pid, 1)
        if not parent.isdecimal() or int(parent) < 1:
            break
        has_variable = any(entry.startswith(mark) for entry in _file(pid, "environ").split(b"\0"))
        if not has_variable and not _is_fork(pid, int(parent)):
            break
        pid = int(parent)
    return str(pid), _stat(pid, 19)


def _is_fork(pid: int, parent: int) -> bool:
    """Whether a process runs what its parent runs, with the same words and variables."""
    return all(_file(pid, name) == _file(parent, name) != b"" for name in ("cmdline", "environ"))


def _file(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # of another user, or gone
        return b""


def _stat(pid: int, place: int) -> str:
    """Give a field of a process's stat, counted from behind its name, which may hold anything."""
    fields = _file(pid, "stat").rpartition(b")")[2].split()
    return fields[place].decode(errors="replace") if place < len(fields) else ""


def _read_slurm(environment: Environment) -> Iterator[Told]:
    """Give what Slurm tells the tasks of a step; a batch script, which it also tells a rank, is no task."""
    is_script = environment.get("ENVIRONMENT") == "BATCH" and not environment.get("SLURM_STEP_ID")
    if is_script or not environment.get(SLURM.rank) or (_first(environment, SLURM.sizes)[1] or 0) < 2:
        return
    _, nodes = _first(environment, ("SLURM_STEP_NUM_NODES", "SLURM_NNODES"))
    listed = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST", "")
    for told in _read(SLURM, environment):
        yield replace(
            told,
            local_size=(told.size or 0) if nodes == 1 else 0,
            address=first_node(listed) or environment.get("SLURM_LAUNCH_NODE_IPADDR", ""),
        )


def first_node(listed: str) -> str:
    """Give the first of a list of nodes as Slurm writes it.

    Example:
        >>> first_node("rack[2-3]node[07,09-12],other")
        'rack2node07'
    """
    name = ""
    while listed:
        plain, bracket, listed = listed.partition("[")
        name += plain.partition(",")[0]
        if not bracket or "," in plain:
            break
        inner, _, listed = listed.partition("]")
        name += inner.replace("-", ",").partition(",")[0]
    return name.strip()


def _read_cluster(environment: Environment) -> Iterator[Told]:
    """Give what MindSpore's own launcher tells its workers."""
    role = environment.get("MS_ROLE", "")
    if role == "MS_SCHED":
        raise EngineError(
            "the environment variable MS_ROLE is MS_SCHED: this process is the scheduler of MindSpore's cluster and "
            "has no rank; run models in the workers (MS_WORKER) only"
        )
    if role == "MS_WORKER":
        if not environment.get(CLUSTER.rank) and environment.get(CLUSTER.sizes[0]):
            raise EngineError(
                "MS_ROLE is MS_WORKER and MS_NODE_ID is not set, so that this worker has no rank; set it to the "
                "rank, or start msrun with --node_rank"
            )
        yield from _read(CLUSTER, environment)
