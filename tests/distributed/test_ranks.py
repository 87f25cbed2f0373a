"""Which rank a process is: what each launcher tells, in which order, and what is refused."""

import json
import os
import socket
import subprocess
import sys

import pytest

import litehouse
from litehouse import EngineError, Job, Place, find_place
from litehouse.distributed import launchers
from litehouse.distributed.launchers import first_node

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "29500"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "PMIX_NAMESPACE": "1951334401",
    "PMIX_RANK": "1",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "5", "MPI_LOCALRANKID": "2", "MPI_LOCALNRANKS": "5", "PMI_FD": "8"}
MVAPICH = {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "6", "MV2_COMM_WORLD_LOCAL_RANK": "0"}
SLURM = {
    "SLURM_PROCID": "6",
    "SLURM_NTASKS": "7",
    "SLURM_LOCALID": "2",
    "SLURM_NNODES": "2",
    "SLURM_JOB_NODELIST": "node[03-04]",
    "SLURM_JOB_ID": "99",
    "SLURM_STEP_ID": "0",
}
CLUSTER = {
    "MS_ROLE": "MS_WORKER",
    "MS_NODE_ID": "7",
    "MS_WORKER_NUM": "8",
    "MS_SCHED_HOST": "10.0.0.9",
    "MS_SCHED_PORT": "8118",
}
MINDSPORE = {"RANK_ID": "8", "RANK_SIZE": "9"}
IN_ORDER = [
    (TORCHRUN, "torchrun", 3, 4),
    (OPEN_MPI, "Open MPI", 1, 2),
    (MPICH, "MPICH", 2, 5),
    (MVAPICH, "MVAPICH", 1, 6),
    (SLURM, "Slurm", 6, 7),
    (CLUSTER, "MindSpore's cluster", 7, 8),
    (MINDSPORE, "MindSpore", 8, 9),
]


def table(tmp_path, hosts, name="table.json"):
    """A rank table file with one rank per host given, in their order."""
    servers = [
        {"server_id": host, "device": [{"device_id": "0", "device_ip": "1.2.3.4", "rank_id": str(rank)}]}
        for rank, host in enumerate(hosts)
    ]
    path = tmp_path / name
    path.write_text(json.dumps({"version": "1.0", "server_list": servers, "status": "completed"}))
    return str(path)


def test_alone():
    place = find_place(environment={})
    assert (place.rank, place.size, place.local_rank, place.local_size) == (0, 1, 0, 1)
    assert place.is_one_machine
    assert place.address == "127.0.0.1"
    assert find_place(Job(size=1), {}).size == 1


def test_the_environment_of_the_process_is_the_default(monkeypatch):
    for name, text in MPICH.items():
        monkeypatch.setenv(name, text)
    for name in TORCHRUN | OPEN_MPI:
        monkeypatch.delenv(name, raising=False)
    assert find_place().rank == 2


@pytest.mark.parametrize("place", range(len(IN_ORDER)))
def test_each_launcher_counts_before_the_later_ones(place):
    environment = {}
    for variables, *_ in reversed(IN_ORDER[place:]):
        environment |= variables
    _, source, rank, size = IN_ORDER[place]
    found = find_place(environment=environment)
    assert (found.source, found.rank, found.size) == (source, rank, size)


@pytest.mark.parametrize(
    ("environment", "local_rank", "local_size", "is_one_machine", "address"),
    [
        (TORCHRUN, 1, 0, False, "10.0.0.7"),
        (TORCHRUN | {"MASTER_ADDR": "localhost"}, 1, 0, True, "localhost"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "4"}, 1, 4, True, "127.0.0.1"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "2"}, 1, 2, False, "10.0.0.7"),
        (OPEN_MPI, 1, 2, True, "127.0.0.1"),
        (OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, 1, 1, False, ""),
        (OPEN_MPI | {"LITEHOUSE_RANK_ADDRESS": "one"}, 1, 2, True, "one"),
        (MPICH, 2, 5, True, "127.0.0.1"),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "PMI_LOCAL_RANK": "0"}, 0, 0, True, "127.0.0.1"),
        (MVAPICH, 0, 0, True, "127.0.0.1"),
        (SLURM, 2, 0, False, "node03"),
        (SLURM | {"SLURM_STEP_NODELIST": "node04"}, 2, 0, False, "node04"),
        (SLURM | {"SLURM_JOB_NODELIST": "", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1"}, 2, 0, False, "10.0.0.1"),
        (SLURM | {"SLURM_NNODES": "1"}, 2, 7, True, "127.0.0.1"),
        (CLUSTER, 0, 0, False, "10.0.0.9"),
        (CLUSTER | {"MS_SCHED_HOST": "127.0.0.1"}, 7, 0, True, "127.0.0.1"),
        (MINDSPORE, 8, 0, True, "127.0.0.1"),
    ],
)
def test_where_ranks_are(environment, local_rank, local_size, is_one_machine, address):
    place = find_place(environment=environment)
    assert (place.local_rank, place.local_size) == (local_rank, local_size)
    assert place.is_one_machine == is_one_machine
    assert place.address == address
    assert place.hosts == ((socket.gethostname(),) * place.size if local_size == place.size else ())


def test_several_machines_without_an_address():
    place = find_place(environment=OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1"})
    with pytest.raises(EngineError, match=r"Open MPI .* LITEHOUSE_RANK_ADDRESS and LITEHOUSE_RANK_PORT"):
        place.rendezvous()
    assert find_place(environment=OPEN_MPI).rendezvous()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("environment", "rank", "size"),
    [
        ({"PMIX_RANK": "1", "SLURM_NTASKS": "2"}, 1, 2),
        ({"PMIX_RANK": "1"}, 0, 1),  # a size is not known
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 0, 1),
        ({"SLURM_NTASKS": "4"}, 0, 1),  # a shell inside an allocation
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "ENVIRONMENT": "BATCH"}, 0, 1),  # a batch script
        (SLURM | {"ENVIRONMENT": "BATCH"}, 6, 7),  # a step that it started
        ({"WORLD_SIZE": "1"}, 0, 1),
        ({"RANK": "", "WORLD_SIZE": " "}, 0, 1),
        ({"MS_ROLE": "MS_PSERVER", "MS_WORKER_NUM": "2"}, 0, 1),
        ({"RANK": " 1 ", "WORLD_SIZE": "2"}, 1, 2),
    ],
)
def test_what_is_and_is_not_a_rank(environment, rank, size):
    place = find_place(environment=environment)
    assert (place.rank, place.size) == (rank, size)


@pytest.mark.parametrize(
    ("environment", "text"),
    [
        ({"RANK": "1"}, "RANK is set and WORLD_SIZE is not; set both"),
        ({"WORLD_SIZE": "2"}, "WORLD_SIZE is set and RANK is not; set both"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_RANK is set and OMPI_COMM_WORLD_SIZE is not"),
        ({"PMI_SIZE": "4"}, "PMI_SIZE is set and PMI_RANK is not"),
        ({"RANK_ID": "0"}, "RANK_ID is set and RANK_SIZE is not"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, r"RANK \(2\) and WORLD_SIZE \(2\) contradict"),
        ({"PMI_RANK": "0", "PMI_SIZE": "0"}, "contradict"),
        ({"SLURM_PROCID": "9", "SLURM_NTASKS": "2"}, "SLURM_PROCID .* SLURM_NTASKS .* contradict"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK is 'one', not a whole number"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK is '-1', not a whole number"),
        ({"RANK": "1.0", "WORLD_SIZE": "2"}, "not a whole number"),
        ({"RANK": "١", "WORLD_SIZE": "3"}, "not a whole number"),
        ({"RANK": "1", "WORLD_SIZE": "9" * 5000}, "WORLD_SIZE is '9{60}', not"),
        ({"RANK": "1", "WORLD_SIZE": "999999999"}, "WORLD_SIZE"),
        ({"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "x"}, "LOCAL_RANK is 'x'"),
        (TORCHRUN | {"MASTER_PORT": "70000"}, "MASTER_PORT is '70000'"),
        (OPEN_MPI | {"LITEHOUSE_RANK_PORT": "a"}, "LITEHOUSE_RANK_PORT is 'a'"),
        ({"MS_ROLE": "MS_SCHED", "RANK_ID": "0", "RANK_SIZE": "2"}, "scheduler"),
        ({"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "2"}, "MS_NODE_ID is not set"),
        ({"MS_ROLE": "MS_WORKER", "MS_WORKER_NUM": "2", "MS_NODE_ID": "a"}, "MS_NODE_ID is 'a'"),
        ({"MS_ROLE": "MS_WORKER", "MS_NODE_ID": "0"}, "MS_NODE_ID is set and MS_WORKER_NUM is not"),
    ],
)
def test_variables_that_make_no_sense(environment, text):
    with pytest.raises(EngineError, match=text):
        find_place(environment=environment)


@pytest.mark.parametrize(
    ("job", "environment", "rank", "size", "source"),
    [
        (Job(rank=1, size=3), {}, 1, 3, "the caller"),
        (Job(rank=1, size=3), TORCHRUN, 1, 3, "the caller"),
        (Job(rank=1, size=3), {"RANK": "x"}, 1, 3, "the caller"),
        (Job(rank=0), TORCHRUN, 0, 4, "the caller"),
        (Job(rank=0), {"RANK": "1"} | OPEN_MPI, 0, 2, "the caller"),  # the next that knows the size
        (Job(rank=1), {"RANK_SIZE": "2"}, 1, 2, "the caller"),
        (Job(size=4), TORCHRUN, 3, 4, "torchrun"),
        (Job(size=2), {"RANK": "1"}, 1, 2, "torchrun"),
    ],
)
def test_the_caller_counts_first(job, environment, rank, size, source):
    place = find_place(job, environment)
    assert (place.rank, place.size, place.source) == (rank, size, source)


def test_the_local_rank_of_a_caller_is_not_that_of_another_rank():
    assert find_place(Job(rank=1), OPEN_MPI).local_rank == 1
    assert find_place(Job(rank=0), OPEN_MPI).local_rank == 0
    assert find_place(Job(rank=3), TORCHRUN).local_rank == 1
    assert find_place(Job(rank=2), TORCHRUN).local_rank == 0  # unknown, on another machine


@pytest.mark.parametrize(
    ("job", "environment", "text"),
    [
        (Job(rank=1), {}, "rank 1, and nothing tells how many ranks there are; set rank_size"),
        (Job(rank=0), {"RANK": "0"}, "nothing tells how many"),
        (Job(size=2), {}, "2 ranks, and nothing tells which of them this process is; set ascend.rank_id"),
        (Job(size=3), TORCHRUN, r"3 ranks, and torchrun \(WORLD_SIZE\) says 4"),
        (Job(rank=4), TORCHRUN, "rank 4 by the caller, and the job has only 4 ranks by torchrun"),
        (Job(size=2), {"RANK": "2"}, "rank 2 by torchrun, and the job has only 2 ranks by the caller"),
    ],
)
def test_a_caller_who_knows_too_little_or_too_much(job, environment, text):
    with pytest.raises(EngineError, match=text):
        find_place(job, environment)


# Rank tables ----------------------------------------------------------------------------------------------------------

FAR = ["192.0.2.10", "192.0.2.11", "192.0.2.12"]  # addresses for documentation, nobody's


@pytest.mark.parametrize(
    ("fields", "environment", "rank", "source"),
    [
        ({"rank": 2}, {}, 2, "the caller"),
        ({"rank": 2}, TORCHRUN, 2, "the caller"),
        ({}, {"RANK_ID": "1"}, 1, "the rank table"),
        ({}, {"RANK_ID": "1", "RANK": "2", "WORLD_SIZE": "3"}, 1, "the rank table"),
        ({}, {"RANK": "2", "WORLD_SIZE": "3"}, 2, "the rank table"),
        ({"size": 3}, {"RANK_ID": "0"}, 0, "the rank table"),
    ],
)
def test_rank_with_a_table(tmp_path, fields, environment, rank, source):
    place = find_place(Job(rank_table=table(tmp_path, FAR), **fields), environment)
    assert (place.rank, place.size, place.source) == (rank, 3, source)
    assert place.hosts == tuple(FAR)
    assert place.address == FAR[0]
    assert (place.local_rank, place.local_size) == (0, 1)
    assert not place.is_one_machine


def test_the_only_rank_of_the_table_on_this_machine(tmp_path):
    path = table(tmp_path, [FAR[0], "127.0.0.1", FAR[2]])
    assert find_place(Job(rank_table=path), {}).rank == 1


def test_a_table_of_one_machine_needs_no_address(tmp_path):
    place = find_place(Job(rank=1, rank_table=table(tmp_path, [FAR[0]] * 2)), {})
    assert place.is_one_machine
    assert (place.address, place.local_rank, place.local_size) == ("127.0.0.1", 1, 2)


@pytest.mark.parametrize(
    ("hosts", "fields", "environment", "text"),
    [
        (["127.0.0.1"] * 2, {}, {}, "2 ranks on this machine, .* set ascend.rank_id .* RANK_ID"),
        (FAR, {}, {}, "0 ranks on this machine"),
        (FAR, {}, {"RANK_ID": "3"}, "3 ranks, and the environment variable RANK_ID says that this is rank 3"),
        (FAR, {}, {"RANK_ID": "0", "RANK_SIZE": "2"}, "3 ranks, and the environment variable RANK_SIZE says 2"),
        (FAR, {}, TORCHRUN, "WORLD_SIZE says 4"),
        (FAR, {"rank": 3}, {}, "rank 3 by the caller, and the job has only 3 ranks"),
        (FAR, {"size": 2}, {"RANK_ID": "0"}, "2 ranks, and the rank table .* says 3"),
    ],
)
def test_a_table_that_does_not_fit(tmp_path, hosts, fields, environment, text):
    with pytest.raises(EngineError, match=text):
        find_place(Job(rank_table=table(tmp_path, hosts), **fields), environment)


@pytest.mark.parametrize("variable", ["RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH"])
def test_the_table_that_the_environment_names(tmp_path, variable):
    environment = {variable: table(tmp_path, FAR)}
    place = find_place(environment=environment | {"RANK_ID": "2"})
    assert (place.rank, place.size, place.source) == (2, 3, f"the rank table of {variable}")
    assert find_place(Job(rank=1), environment).hosts == tuple(FAR)
    assert find_place(environment=environment | OPEN_MPI).source == "Open MPI"
    with pytest.raises(EngineError, match="cannot be read"):
        find_place(environment={variable: str(tmp_path / "none.json")})


# Names and ports ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "other"),
    [
        (TORCHRUN, {"MASTER_PORT": "29501"}),
        (TORCHRUN | {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "0"}, {"TORCHELASTIC_RUN_ID": "b"}),
        (
            TORCHRUN | {"TORCHELASTIC_RUN_ID": "a", "TORCHELASTIC_RESTART_COUNT": "0"},
            {"TORCHELASTIC_RESTART_COUNT": "1"},
        ),
        (OPEN_MPI, {"PMIX_NAMESPACE": "1951334402"}),
        (OPEN_MPI | {"PMIX_NAMESPACE": "", "OMPI_MCA_ess_base_jobid": "1"}, {"OMPI_MCA_ess_base_jobid": "2"}),
        (MPICH | {"PMI_JOBID": "1"}, {"PMI_JOBID": "2"}),
        (SLURM, {"SLURM_STEP_ID": "1"}),
        (SLURM, {"SLURM_JOB_ID": "100"}),
        (CLUSTER, {"MS_SCHED_PORT": "8119"}),
        (MPICH | {"LITEHOUSE_JOB": "a"}, {"LITEHOUSE_JOB": "b"}),
        (TORCHRUN, {"LITEHOUSE_JOB": "b"}),
        (OPEN_MPI, {"LITEHOUSE_JOB": "b"}),
    ],
)
def test_jobs_are_told_apart_and_ranks_are_not(environment, other):
    variables = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "MS_NODE_ID"} & set(environment)
    first = find_place(environment=environment)
    second = find_place(environment=environment | dict.fromkeys(variables, "0"))
    assert second.rank == 0
    assert second.rank != first.rank
    assert (first.job, first.port) == (second.job, second.port)
    assert find_place(environment=environment | other).job != first.job


def test_the_job_of_a_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    job = find_place(Job(rank=0, size=2), {}).job
    assert find_place(Job(rank=1, size=2), {}).job == job
    assert find_place(Job(rank=1), {"RANK_SIZE": "2"}).job == job
    assert find_place(Job(rank=1, size=3), {}).job != job
    assert find_place(Job(rank=1, size=2), OPEN_MPI).job == find_place(environment=OPEN_MPI).job
    monkeypatch.chdir(tmp_path.parent)
    assert find_place(Job(rank=0, size=2), {}).job != job


def test_the_job_of_a_table(tmp_path):
    names = [
        find_place(Job(rank=rank, rank_table=table(tmp_path, hosts, name)), {}).job
        for rank, hosts, name in [(0, FAR, "a"), (1, FAR, "b"), (0, FAR[:2], "c")]
    ]
    assert names[0] == names[1] != names[2]
    job = Job(rank_table=table(tmp_path, FAR[:2]))
    launched = [OPEN_MPI, OPEN_MPI | {"OMPI_COMM_WORLD_RANK": "0"}, OPEN_MPI | {"PMIX_NAMESPACE": "2"}]
    names = [find_place(job, environment).job for environment in launched]
    assert names[0] == names[1] != names[2]  # the launcher keeps two runs with one table apart


def test_a_job_over_machines_is_named_by_its_address():
    environment = MPICH | {"MPI_LOCALNRANKS": "1", "LITEHOUSE_RANK_ADDRESS": "one"}
    job = find_place(environment=environment).job
    assert find_place(environment=environment | {"LITEHOUSE_RANK_PORT": "7000"}).job != job
    assert find_place(Job(address="one"), MPICH | {"MPI_LOCALNRANKS": "1"}).job == job


@pytest.mark.parametrize(
    ("job", "environment", "address", "port"),
    [
        (Job(address="a", port=1), TORCHRUN | {"LITEHOUSE_RANK_ADDRESS": "b", "LITEHOUSE_RANK_PORT": "2"}, "a", 1),
        (Job(), TORCHRUN | {"LITEHOUSE_RANK_ADDRESS": "b", "LITEHOUSE_RANK_PORT": "2"}, "b", 2),
        (Job(), TORCHRUN, "10.0.0.7", 29500),
        (Job(port=5), TORCHRUN, "10.0.0.7", 5),
        (Job(rank=0, size=2, address="a", port=6), {}, "a", 6),
    ],
)
def test_address_and_port(job, environment, address, port):
    place = find_place(job, environment)
    assert place.rendezvous() == (address, port)
    assert not place.is_one_machine


def test_the_address_of_a_caller_wins_over_the_table(tmp_path):
    place = find_place(Job(rank=0, rank_table=table(tmp_path, FAR), address="a"), {})
    assert place.address == "a"


@pytest.mark.parametrize("environment", [OPEN_MPI, SLURM, CLUSTER, TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "True"}])
def test_a_port_from_the_name(environment):
    place = find_place(environment=environment)
    assert 20000 <= place.port < 60000
    assert place.port == find_place(environment=environment).port
    assert place.port != 29500  # torchrun itself listens there


@pytest.mark.parametrize(
    ("listed", "first"),
    [
        ("", ""),
        ("one", "one"),
        ("one,two", "one"),
        ("node[03-05,9]", "node03"),
        ("node[3,5-9],x", "node3"),
        ("a1,node[3,5]", "a1"),
        ("rack[2-3]node[07,09]s", "rack2node07s"),
        ("node[", "node"),
        ("][,", "]"),
    ],
)
def test_nodes_of_slurm(listed, first):
    assert first_node(listed) == first


# Processes ------------------------------------------------------------------------------------------------------------

SHOW = "import os; from litehouse import find_place as f; p = f(); os.write(1, f'{p.rank} {p.job}\\n'.encode())"
SCRIPTS = {
    "plain": 'for i in 0 1; do RANK_ID=$i RANK_SIZE=2 "$0" -c "$1" & done; wait',
    "through another shell": 'for i in 0 1; do RANK_ID=$i RANK_SIZE=2 sh -c \'"$0" -c "$1"; :\' "$0" "$1" & done; wait',
    "in a part of the shell": 'for i in 0 1; do (export RANK_ID=$i RANK_SIZE=2; "$0" -c "$1"; :) & done; wait',
    "exported": 'for i in 0 1; do export RANK_ID=$i RANK_SIZE=2; "$0" -c "$1" & done; wait',
}


def jobs_of(script):
    names = {*TORCHRUN, *OPEN_MPI, *MPICH, *MVAPICH, *SLURM, *CLUSTER, *MINDSPORE, "LITEHOUSE_JOB", "RANK_TABLE_FILE"}
    environment = {name: text for name, text in os.environ.items() if name not in names}
    command = ["sh", "-c", script, sys.executable, SHOW]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
    ranks, jobs = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert sorted(ranks) == ["0", "1"], done.stderr
    return set(jobs)


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_the_starter_names_the_job(script):
    jobs = jobs_of(script)
    assert len(jobs) == 1


def test_two_starters_are_two_jobs():
    assert jobs_of(SCRIPTS["plain"]) != jobs_of(SCRIPTS["plain"])


def test_a_starter_is_found_where_nothing_can_be_read(monkeypatch):
    monkeypatch.setattr(launchers, "_file", lambda pid, name: b"")
    assert launchers.starter("RANK_ID") == (str(os.getppid()), "")


# Options and errors ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"rank": -1}, "rank must be an int"),
        ({"rank": True}, "rank must be an int"),
        ({"rank": "0"}, "rank must be an int"),
        ({"rank": 1 << 16}, "rank must be an int"),
        ({"size": 0}, "size must be an int from 1"),
        ({"size": (1 << 16) + 1}, "size must be an int from 1"),
        ({"rank": 2, "size": 2}, "rank must be less than size, but rank is 2 and size is 2"),
        ({"port": -1}, "port must be"),
        ({"port": 65536}, "port must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": -1.0}, "timeout must be"),
        ({"timeout": float("inf")}, "timeout must be"),
        ({"timeout": float("nan")}, "timeout must be"),
        ({"timeout": "1"}, "timeout must be"),
        ({"transport": "pigeon"}, "transport must be one of"),
        ({"rank_table": None}, "rank_table must be a str"),
        ({"address": 5}, "address must be a str"),
        ({"groups": b"x"}, "groups must be a str"),
    ],
)
def test_wrong_jobs_are_refused_where_they_are_made(fields, text):
    with pytest.raises(ValueError, match=text):
        Job(**fields)


def test_options_have_a_job():
    assert litehouse.Options().job == Job()
    options = litehouse.Options(job=Job(rank=1, size=2, timeout=5))
    assert repr(options) == repr(litehouse.Options(job=Job(rank=1, size=2, timeout=5.0)))
    assert repr(options) != repr(litehouse.Options())
    with pytest.raises(ValueError, match=r"job must be a litehouse\.Job"):
        litehouse.Options(job={"rank": 1})


def test_rank_error():
    error = litehouse.RankError("rank 1 is gone", rank=1, op="Default/AllReduce")
    assert isinstance(error, EngineError)
    assert (error.rank, error.op, str(error)) == (1, "Default/AllReduce", "rank 1 is gone")
    assert (litehouse.RankError("x").rank, litehouse.RankError("x").op) == (None, "")


def test_a_place_can_be_made_by_hand():
    place = Place(0, 2, 0, (), "127.0.0.1", 20000, "job", "a test")
    assert place.is_one_machine
    assert place.rendezvous() == ("127.0.0.1", 20000)
