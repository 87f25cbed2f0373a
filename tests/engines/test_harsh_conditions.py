"""Whole programs on machines that give less than usual: no safe second engine, one core, old instructions, no cache."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from litehouse.machine import cpu_flags

LOAD = """
import os, sys
import numpy as np
import litehouse
from onnx_models import mlp, mlp_result

x = np.random.default_rng(1).normal(size=(2, 4)).astype("f")

def check(engine):
    session = litehouse.load(mlp(), engine=engine)
    np.testing.assert_allclose(session.run([x])[0], mlp_result(x), rtol=1e-4, atol=1e-4)
    return str(session.engine)
"""


def run(code: str, tmp_path: Path, **variables: str) -> list[str]:
    """The lines that a program prints in a process of its own."""
    usual = {"LITEHOUSE_CACHE_DIR": str(tmp_path / "cache"), "LITEHOUSE_FAIL_PROBES": ""}
    environment = {**os.environ, **usual, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables}
    command = [sys.executable, "-c", LOAD + code]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_with_every_other_engine_failing(tmp_path: Path) -> None:
    code = """
print(check("auto"))
try:
    check("openvino")
except litehouse.EngineError as error:
    print(error)
print("openvino" in sys.modules)
"""
    engine, error, imported = run(code, tmp_path, LITEHOUSE_FAIL_PROBES="all")
    assert engine == "onnxruntime"
    assert "openvino: it is not safe here in fp32: rehearsed failure (LITEHOUSE_FAIL_PROBES)" in error
    assert imported == "False"


def test_with_no_engine_left(tmp_path: Path) -> None:
    code = """
try:
    check("auto")
except litehouse.EngineError as error:
    print(error)
"""
    (error,) = run(code, tmp_path, LITEHOUSE_FAIL_PROBES="onnxruntime,openvino")
    assert "onnxruntime: it is not safe here in fp32: rehearsed failure" in error
    assert "openvino: it is not safe here in fp32: rehearsed failure" in error


@pytest.mark.openvino
@pytest.mark.parametrize(
    "harsh", ["one core", "old instructions", "a file for a cache", "a cache that is off", "a cache below a file"]
)
def test_both_engines_work_with(harsh: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    variables = {
        "one core": {},
        "old instructions": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
        "a file for a cache": {"LITEHOUSE_CACHE_DIR": str(tmp_path / "file")},
        "a cache that is off": {"LITEHOUSE_CACHE_DIR": ""},
        "a cache below a file": {"LITEHOUSE_CACHE_DIR": str(tmp_path / "file" / "cache")},
    }[harsh]
    before = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" if harsh == "one core" else ""
    engines = ("onnxruntime", "openvino")
    assert tuple(run(before + f"for name in {engines}: print(check(name))", tmp_path, **variables)) == engines


@pytest.mark.openvino
def test_two_processes_that_try_at_once(tmp_path: Path) -> None:
    code = """
import multiprocessing

def first(_):
    from litehouse.engines.safety import verdicts
    return [item.safe for item in verdicts([("onnxruntime", "fp32"), ("openvino", "fp32")])]

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(first, range(2), chunksize=1))
"""
    assert run(code, tmp_path) == ["[[True, True], [True, True]]"]
    assert len(list((tmp_path / "cache").rglob("safety/*.json"))) == 2


@pytest.mark.openvino
@pytest.mark.skipif("avx2" not in cpu_flags(), reason="needs a CPU that can be held to less than it has")
def test_a_setting_is_in_force(tmp_path: Path) -> None:
    """OpenVINO reads the variable when its CPU plugin is loaded; an import does not do that, a question to it does."""
    code = """
import openvino
from litehouse.engines import safety

low = safety.Verdict("openvino", "fp32", True, "it dies", {"ONEDNN_MAX_CPU_ISA": "SSE41"})

def kernel():
    core = openvino.Core()
    from litehouse.engines.trials.cases import float_cases
    case = next(float_cases())
    compiled = core.compile_model(core.read_model(case.model), "CPU", {"PERF_COUNT": True})
    request = compiled.create_infer_request()
    request.infer(case.inputs)
    return next(item.exec_type for item in request.profiling_info if item.node_type == "Convolution")

if LATE:
    openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
print(safety.apply(low).safe, kernel())
"""
    assert run("LATE = False" + code, tmp_path) == ["True jit_sse42_f32"]
    (line,) = run("LATE = True" + code, tmp_path)
    assert line.startswith("False ")
    assert "sse42" not in line
