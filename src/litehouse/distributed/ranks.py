"""Which rank of a job this process is: from the caller, a rank table, or the launcher that started it."""

import hashlib
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from litehouse.distributed import launchers
from litehouse.distributed.launchers import Environment, Told
from litehouse.distributed.rank_table import read_rank_table
from litehouse.errors import EngineError
from litehouse.options import MAX_PORT, Job

JOB_VARIABLE = "LITEHOUSE_JOB"
ADDRESS_VARIABLE = "LITEHOUSE_RANK_ADDRESS"
PORT_VARIABLE = "LITEHOUSE_RANK_PORT"
PORTS = range(20000, 60000)
LOOPBACK = "127.0.0.1"
CALLER = "the caller"
ALONE = "no launcher"
ADVICE = (
    "set ascend.rank_id, or rank_id and rank_size in the section [litehouse] of the configuration (litehouse.Job has "
    "both), or start the processes with torchrun, mpirun or srun"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Which rank of a job this process is, and where it meets the others.

    Attributes:
        rank: The rank, from 0.
        size: How many ranks the job has.
        local_rank: The rank among those of this machine.
        hosts: The host of each rank; `()` when unknown.
        address: Where rank 0 is found; `""` when the job has several machines and nothing tells.
        port: The port that rank 0 may listen on.
        job: A text of hexadecimal digits, the same for all ranks of the job, another for other jobs.
        source: Where the rank is from, in words.
        local_size: How many ranks this machine has; 0 when unknown.

    Example:
        >>> find_place(environment={"RANK": "1", "WORLD_SIZE": "2"}).rank
        1
    """

    rank: int
    size: int
    local_rank: int
    hosts: tuple[str, ...]
    address: str
    port: int
    job: str
    source: str
    local_size: int = 0

    @property
    def is_one_machine(self) -> bool:
        """Whether all ranks are on this machine, as far as it is known."""
        if self.hosts:
            return len(set(self.hosts)) == 1
        return self.local_size == self.size if self.local_size else _is_loopback(self.address)

    def rendezvous(self) -> tuple[str, int]:
        """Give the address and the port where rank 0 waits for the others.

        Raises:
            EngineError: The job has several machines, and nothing tells where rank 0 is.
        """
        if not self.address:
            raise EngineError(
                f"{self.source} started {self.size} ranks on several machines and does not tell where rank 0 is; set "
                f"the environment variables {ADDRESS_VARIABLE} and {PORT_VARIABLE} on all of them"
            )
        return self.address, self.port


def find_place(job: Job | None = None, environment: Environment | None = None) -> Place:
    """Find which rank this process is.

    The first that tells counts: the caller, a rank table, torchrun, Open MPI, MPICH and Intel MPI, MVAPICH, Slurm,
    MindSpore's own variables. Where nothing does, the process is alone: rank 0 of 1. A size that the caller does not
    give is taken from the first source that knows it. The environment variable `LITEHOUSE_JOB` names the job, where
    what the launcher tells does not keep two jobs apart; `LITEHOUSE_RANK_ADDRESS` and `LITEHOUSE_RANK_PORT` say where
    rank 0 is, for launchers that do not tell. A port that is not given is one of 20000 to 59999, by the job's name.

    Args:
        job: What the caller knows.
        environment: The variables; None for those of the process.

    Returns:
        The place.

    Raises:
        EngineError: What there is does not tell a rank, or contradicts itself; the text names the variables.
    """
    job = Job() if job is None else job
    environment = os.environ if environment is None else environment
    told = _look(job, environment)
    if told is None:
        if job.rank is not None or (job.size or 1) != 1:
            raise EngineError(_lacking(job))
        alone = ("alone", str(os.getpid()))
        told = Told(ALONE, ("rank", "size"), rank=0, size=1, local_size=1, job=alone)
    return _place(job, told, environment)


def _lacking(job: Job) -> str:
    if job.rank is None:
        return f"the job has {job.size} ranks, and nothing tells which of them this process is; {ADVICE}"
    return (
        f"this process is rank {job.rank}, and nothing tells how many ranks there are; set rank_size in the section "
        "[litehouse] of the configuration (the size of litehouse.Job), or give a rank table file"
    )


def _look(job: Job, environment: Environment) -> Told | None:
    """Give what tells the rank and the size; the caller's own come first."""
    if job.rank_table:
        return _of_caller(job, _from_table(job, job.rank_table, "the rank table", environment))
    if job.rank is not None and job.size is not None:
        return _of_caller(job, _same_job(job, environment))
    for told in _sources(job, environment):
        rank = 0 if told.rank is None and told.size == 1 else told.rank
        has_rank, has_size = (job.rank, rank) != (None, None), (job.size, told.size) != (None, None)
        if has_rank and has_size:
            return _of_caller(job, replace(told, rank=rank))
        if job.rank is None:
            there, missing = told.names if has_rank else told.names[::-1]
            raise EngineError(
                f"the environment variable {there} is set and {missing} is not; set both, or unset {there}, or {ADVICE}"
            )
    return None


def _sources(job: Job, environment: Environment) -> Iterator[Told]:
    """Give what the environment tells. A rank table that is named there is MindSpore's, as are the last variables."""
    yield from launchers.tellers(environment)
    for name in launchers.TABLE_VARIABLES:
        if environment.get(name):
            yield _from_table(job, environment[name], f"the rank table of {name}", environment)
            return
    yield from launchers.mindspore(environment)


def _same_job(job: Job, environment: Environment) -> Told:
    """Give what a launcher tells about the job of a caller who knows rank and size, if it started that job."""
    try:
        for told in _sources(job, environment):
            if told.size == job.size:
                return told
    except EngineError:  # it is not needed
        pass
    return Told(CALLER, ("rank", "size"), size=job.size)


def _of_caller(job: Job, told: Told) -> Told:
    """Lay what the caller set over what a source tells."""
    size = told.size if job.size is None else job.size
    if told.size is not None and size != told.size:
        raise EngineError(
            f"the caller says that the job has {size} ranks, and {told.source} ({told.names[1]}) says {told.size}; "
            "leave out the one that is wrong"
        )
    rank = told.rank if job.rank is None else job.rank
    if rank is None or size is None:
        raise EngineError(_lacking(replace(job, size=size)))
    if rank >= size:
        raise EngineError(
            f"this process is rank {rank} by {told.source if job.rank is None else CALLER}, and the job has only "
            f"{size} ranks by {CALLER if job.size is not None else told.source}; ranks count from 0, correct one"
        )
    return replace(
        told,
        rank=rank,
        size=size,
        local_rank=told.local_rank if rank == told.rank else None,
        source=told.source if job.rank is None else CALLER,
        job=told.job if told.job or told.rank is not None else ("caller", str(size), str(os.getuid()), os.getcwd()),
    )


def _from_table(job: Job, path: str, source: str, environment: Environment) -> Told:
    """Give what a rank table tells; which of its ranks this process is, the caller, the launcher or the host tells."""
    table = read_rank_table(path, timeout=job.timeout)
    size = len(table.hosts)
    told = Told(source, ("rank_id", "the table"), size=size, hosts=table.hosts, address=table.hosts[0])
    told = replace(told, job=("table", table.digest))
    if job.rank is not None:
        return told
    for launched in chain(launchers.mindspore(environment), launchers.tellers(environment)):
        if launched.size not in (None, size):
            raise EngineError(
                f"{path} has {size} ranks, and the environment variable {launched.names[1]} says {launched.size}; "
                "correct one of them"
            )
        if launched.rank is not None:
            if launched.rank >= size:
                raise EngineError(
                    f"{path} has {size} ranks, and the environment variable {launched.names[0]} says that this is "
                    f"rank {launched.rank}; correct one of them"
                )
            return replace(told, rank=launched.rank, job=told.job + launched.job)
    if len(table.local) == 1:
        return replace(told, rank=table.local[0])
    raise EngineError(
        f"{path} has {len(table.local)} ranks on this machine, and nothing tells which of them this process is; set "
        "ascend.rank_id (the rank of litehouse.Job) or the environment variable RANK_ID"
    )


def _place(job: Job, told: Told, environment: Environment) -> Place:
    """Give the place that a complete source tells."""
    rank, size, hosts = told.rank or 0, told.size or 1, told.hosts
    if not hosts and told.local_size == size:
        hosts = (socket.gethostname(),) * size
    local_size = hosts.count(hosts[rank]) if hosts else told.local_size
    address = job.address or environment.get(ADDRESS_VARIABLE, "").strip()
    port = job.port or launchers.number(environment, PORT_VARIABLE, MAX_PORT) or told.port
    name = _name(job.name, told, address, port, 0 < local_size < size, environment)
    if not address:
        is_one = len(set(hosts)) == 1 or (not hosts and local_size in (0, size) and not told.address)
        address = LOOPBACK if is_one else told.address
    local_rank = told.local_rank
    if local_rank is None and hosts:
        local_rank = hosts[:rank].count(hosts[rank])
    place = Place(
        rank, size, local_rank or 0, hosts, address, port or _derived_port(name), name, told.source, local_size
    )
    return replace(place, local_rank=rank) if local_rank is None and place.is_one_machine else place


def _name(own: str, told: Told, address: str, port: int, is_spread: bool, environment: Environment) -> str:
    """Give the job's name: what a variable or the launcher says, else the process that started all ranks."""
    parts = told.job
    if own or environment.get(JOB_VARIABLE):
        parts = (JOB_VARIABLE, own or environment[JOB_VARIABLE])
    elif not parts and is_spread:  # each machine has another starter
        parts = ("address", address, str(port), str(told.size))
    elif not parts:
        parts = ("starter", *launchers.starter(told.names[0]))
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


def _derived_port(name: str) -> int:
    return PORTS[int(name[:8], 16) % len(PORTS)]


def _is_loopback(address: str) -> bool:
    return address in ("localhost", "::1") or address.startswith("127.")
