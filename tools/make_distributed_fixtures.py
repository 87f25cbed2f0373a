"""Makes ``tests/fixtures/distributed`` and the models of ``examples/distributed`` with the real MindSpore.

Run with a Python that has MindSpore 2.10 installed, whose launcher ``msrun`` is beside it::

    python tools/make_distributed_fixtures.py                  # everything
    python tools/make_distributed_fixtures.py reduce pipeline  # cases whose names contain one of these

Each case is a job of its own, two CPU processes (or four), that exports a file for each rank and then runs it. Where
MindSpore has no CPU kernel for an op the job fails after the export, and the expected outputs are numpy's;
``manifest.json`` says which. Where it has one, its outputs must be numpy's too, and are stored.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

TOOLS = Path(__file__).resolve().parent
FIXTURES = TOOLS.parent / "tests" / "fixtures" / "distributed"
EXAMPLE = TOOLS.parent / "examples" / "distributed"
EXAMPLE_CASE = "matmul"
JOB_SECONDS = 180
PORT = 18118


def work(name: str, folder: Path) -> None:
    """Export, and run, what one rank has: MindSpore's launcher starts this."""
    import mindspore as ms
    from distributed_cases import CASES
    from mindspore import communication

    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    communication.init()
    rank, case = communication.get_rank(), CASES[name]
    for group, ranks in case.groups.items():
        if rank in ranks:
            communication.create_group(group, ranks)
    network, inputs = case.network(rank), [ms.Tensor(array) for array in case.inputs(rank)]
    path = folder / f"rank_{rank}.mindir"
    ms.export(network, *inputs, file_name=str(path), file_format="MINDIR")
    path.chmod(0o644)
    results = network(*inputs)
    results = results if isinstance(results, tuple | list) else (results,)
    np.savez(folder / f"rank_{rank}.npz", *[result.asnumpy() for result in results])


def run_job(name: str, ranks: int, folder: Path, log: Path) -> str:
    """Run a job. Why it failed; empty when it did not."""
    counts = f"--worker_num={ranks}", f"--local_worker_num={ranks}"
    launcher = Path(sys.executable).with_name("msrun")
    command = [launcher, *counts, f"--master_port={PORT}", f"--log_dir={log}", "--join=True"]
    environment = {**os.environ, "GLOG_v": "3", "PATH": f"{launcher.parent}:{os.environ['PATH']}"}
    script = [Path(__file__).resolve(), "--rank-of", name, str(folder)]
    try:
        limits: dict[str, Any] = {"cwd": folder.parent, "timeout": JOB_SECONDS}
        done = subprocess.run([*command, *script], env=environment, capture_output=True, text=True, **limits)
    except subprocess.TimeoutExpired:
        return f"no answer within {JOB_SECONDS} s"
    if done.returncode == 0:
        return ""
    text = "\n".join(path.read_text() for path in sorted(log.glob("worker_*.log")))
    found = re.search(r"^\w*Error:((?:.*\n){1,9})", text, re.MULTILINE)
    lines = [line.strip("- ") for line in found[1].splitlines()] if found else []
    reasons = [line.partition(", Please")[0] for line in lines if line and line != "Kernel select failed:"]
    return reasons[0][:160] if reasons else f"exit code {done.returncode}"


def write_groups(groups: dict[str, list[int]], path: Path) -> None:
    """Write what MindSpore writes when it cuts a model itself."""
    from mindspore.train.node_strategy_pb2 import ParallelGroupMap

    message = ParallelGroupMap()
    for name, ranks in groups.items():
        item = message.parallel_group_item.add()
        item.group_name = name
        item.parallel_group_ranks.dim.extend(ranks)
    message.ckpt_restore_rank_list.dim.extend([0])
    path.write_bytes(message.SerializeToString())


def make(name: str, folder: Path) -> dict[str, Any]:
    """Make one case. What the manifest says of it."""
    import mindspore
    from distributed_cases import CASES

    case = CASES[name]
    with tempfile.TemporaryDirectory() as temporary:
        made, log = Path(temporary, "made"), Path(temporary, "log")
        made.mkdir()
        failure = run_job(name, case.ranks, made, log)
        files = [made / f"rank_{rank}.mindir" for rank in range(case.ranks)]
        if not all(path.exists() for path in files):
            raise RuntimeError(f"{name} was not exported: {failure}")
        inputs = [case.inputs(rank) for rank in range(case.ranks)]
        outputs = case.expected(inputs)
        if not failure:
            found = [[*np.load(path.with_suffix(".npz")).values()] for path in files]
            compare(found, outputs, case.meaningless)
            outputs = found
        shutil.rmtree(folder / name, ignore_errors=True)
        (folder / name).mkdir(parents=True)
        for path in files:
            shutil.copy(path, folder / name)
    stored = {}
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for rank, own in enumerate(arrays):
            stored |= {f"rank_{rank}_{kind}_{index}": array for index, array in enumerate(own)}
    np.savez_compressed(folder / name / "arrays.npz", **stored)
    if case.groups:
        write_groups(case.groups, folder / name / "groups.pb")
    by = "numpy" if failure else f"MindSpore {mindspore.__version__}"
    facts: dict[str, Any] = {"ranks": case.ranks, "outputs_by": by, "meaningless": list(case.meaningless)}
    return facts | ({"because": failure} if failure else {})


def compare(found: list[list[np.ndarray]], expected: list[list[np.ndarray]], meaningless: tuple[int, ...]) -> None:
    for rank, (own, wanted) in enumerate(zip(found, expected, strict=True)):
        for array, other in zip(own, wanted, strict=True):
            assert (array.shape, array.dtype) == (other.shape, other.dtype), (rank, array.shape, other.shape)
            if rank not in meaningless:
                np.testing.assert_allclose(array, other, rtol=1e-5, atol=1e-6, err_msg=f"rank {rank}")


def main(wanted: list[str]) -> None:
    from distributed_cases import CASES

    manifest = FIXTURES / "manifest.json"
    told = json.loads(manifest.read_text()) if manifest.exists() else {}
    for name in CASES:
        if wanted and not any(text in name for text in wanted):
            continue
        told[name] = make(name, FIXTURES)
        print(name, told[name], flush=True)
        manifest.write_text(json.dumps({case: told[case] for case in sorted(told) if case in CASES}, indent=2) + "\n")
        if name == EXAMPLE_CASE:
            EXAMPLE.mkdir(exist_ok=True)
            for rank in range(2):
                shutil.copy(FIXTURES / name / f"rank_{rank}.mindir", EXAMPLE / f"Matmul{rank}.mindir")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank-of"]:
        work(sys.argv[2], Path(sys.argv[3]))
    else:
        main(sys.argv[1:])
