"""The published program of several ranks, and the examples like it: each rank prints the whole result.

With a launcher (Open MPI, MPICH, torchrun) and as plain processes with a rank table; on the CPU, which the original
cannot.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "distributed"
TUTORIAL = REPOSITORY.parent / "shared" / "tutorials" / "mindspore_lite_distributed_inference_en.md"
PATIENCE = 300.0  # seconds: only a hang takes so long
TORCHRUN = ("--standalone", "--nproc_per_node=2", "--no-python")  # which else asks Python to buffer nothing
LAUNCHERS = ("mpirun", "mpirun.mpich", "torchrun")
NOT_OURS = ("RANK", "WORLD_SIZE", "OMPI_", "PMI_", "PMIX_", "SLURM_", "MASTER_", "MS_", "PYTHONUNBUFFERED")
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
ON_FEW_CORES = {"OMPI_MCA_rmaps_base_oversubscribe": "1"}
BEGIN = """\
import argparse
import numpy as np
import mindspore_lite as mslite
parser = argparse.ArgumentParser()
parser.add_argument("--model_path")
parser.add_argument("--device_id", type=int)
parser.add_argument("--rank_id", type=int)
parser.add_argument("--config_file", default="")
args = parser.parse_args()
"""
WITH_RANK = 'model_path = args.model_path.replace(".mindir", f"{context.gpu.rank_id}.mindir")\n'
WITHOUT_RANK = "model_path = args.model_path\n"

published = pytest.mark.skipif(not TUTORIAL.exists(), reason="the tutorials are not beside the checkout")


def program(target: str) -> str:
    """The program that the tutorial describes for a device, which is replaced by the CPU."""
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL)

    def block(text: str) -> str:
        (found,) = (each for each in blocks if text in each)
        return found

    device = block(f'context.target = ["{target}"]').replace(f'["{target}"]', '["cpu"]')
    path = WITH_RANK if target == "gpu" else WITHOUT_RANK
    rest = [block(text) for text in ("build_from_file", "np.ones(", "model.predict(", "output.data_size")]
    return "".join([BEGIN, block("mslite.Context()"), device, path, *rest])


def environment(**more: str) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(NOT_OURS)}
    return kept | AS_ROOT | ON_FEW_CORES | {"PYTHON": sys.executable} | more


def start(command: Sequence[str | Path], **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit code, output and errors of a process; it and all that it started are gone then."""
    try:
        printed, errors = process.communicate(timeout=PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, printed, errors


def run(command: Sequence[str | Path], **more: str) -> str:
    code, printed, errors = end(start(command, **more))
    assert code == 0, errors
    return printed


def launch(launcher: str) -> list[str]:
    """The command that starts two Python processes with a launcher."""
    if launcher == "torchrun":
        if importlib.util.find_spec("torch") is None:
            pytest.skip("torch is not installed, whose torchrun this is about")
        return [sys.executable, "-m", "torch.distributed.run", *TORCHRUN, sys.executable]
    if shutil.which(launcher) is None:
        pytest.skip(f"{launcher} is not installed")
    return [launcher, "-n", "2", sys.executable]


def expected() -> np.ndarray:
    """What an input of ones gives."""
    halves = [litehouse.read(EXAMPLE / f"Matmul{rank}.mindir").weights for rank in range(2)]
    weight = np.concatenate([half["weight"] for half in halves])
    with np.load(FIXTURES / "distributed" / "matmul" / "arrays.npz") as arrays:  # MindSpore itself computed with it
        np.testing.assert_allclose(arrays["rank_0_input_0"] @ weight, arrays["rank_0_output_0"], rtol=1e-5)
    return np.ones((4, 16), "f") @ weight


def check(printed: str, ranks: int) -> None:
    """Each rank printed two lines; those of one rank may come between those of another."""
    result, lines = expected(), printed.splitlines()
    sizes = f"data size is:{result.nbytes} tensor elements num is:{result.size}"
    assert lines.count(f"tensor's name is:Default/AllReduce-op0 {sizes}") == ranks, printed
    found = [line.removeprefix("output data is: ") for line in lines if line.startswith("output data is: ")]
    assert (len(found), len(lines)) == (ranks, 2 * ranks), printed
    for numbers in found:
        np.testing.assert_allclose(np.array(numbers.split(), np.float32), result.flat[:10], rtol=1e-5)


@published
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_published_program_with_a_launcher(tmp_path: Path, launcher: str) -> None:
    path = tmp_path / "main.py"
    path.write_text(program("gpu"), encoding="utf-8")
    check(run([*launch(launcher), path, f"--model_path={EXAMPLE / 'Matmul.mindir'}"]), 2)


@published
def test_the_published_program_with_a_rank_table(tmp_path: Path) -> None:
    path = tmp_path / "ascend_ge_distributed.py"
    path.write_text(program("Ascend"), encoding="utf-8")
    devices = [{"device_id": str(rank), "device_ip": f"192.168.100.10{rank}", "rank_id": str(rank)} for rank in (0, 1)]
    server = {"server_id": "127.0.0.1", "device": devices, "host_nic_ip": "reserve"}
    table = {"version": "1.0", "server_count": "1", "server_list": [server], "status": "completed"}
    (tmp_path / "rank_table.json").write_text(json.dumps(table), encoding="utf-8")
    config = tmp_path / "config_file.ini"
    config.write_text(f"[ascend_context]\nrank_table_file={tmp_path / 'rank_table.json'}\n", encoding="utf-8")
    job = uuid.uuid4().hex  # other tests may have the same table at the same time
    ranks = []
    for rank in range(2):
        own = [f"--model_path={EXAMPLE}/Matmul{rank}.mindir", f"--device_id={rank}", f"--rank_id={rank}"]
        ranks.append(start([sys.executable, path, *own, f"--config_file={config}"], LITEHOUSE_JOB=job))
    for code, printed, errors in [end(rank) for rank in ranks]:
        assert (code, errors) == (0, "")
        check(printed, 1)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_example_with_a_launcher(launcher: str) -> None:
    check(run([*launch(launcher), EXAMPLE / "main.py", f"--model_path={EXAMPLE / 'Matmul.mindir'}"]), 2)


@pytest.mark.parametrize("launcher", ["mpirun", "mpirun.mpich"])
def test_the_script_for_mpirun(launcher: str) -> None:
    launch(launcher)
    check(run([EXAMPLE / "run.sh"], MPIRUN=launcher), 2)


def test_the_script_for_rank_tables() -> None:
    check(run([EXAMPLE / "run_by_rank_table.sh"]), 2)


def test_the_script_for_rank_tables_fails_with_a_rank(tmp_path: Path) -> None:
    folder = tmp_path / "distributed"
    shutil.copytree(EXAMPLE, folder)
    (folder / "Matmul1.mindir").unlink()
    with (folder / "config_file.ini").open("a", encoding="utf-8") as config:
        config.write("[litehouse]\nrank_timeout=2\n")
    code, printed, errors = end(start([folder / "run_by_rank_table.sh"]))
    assert code != 0
    assert printed == ""
    assert "model_path does not exist" in errors
    assert "rank 1 of 2 did not begin within 2 s" in errors
