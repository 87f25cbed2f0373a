"""Whole programs that get less than usual: no safe second engine, one core, few instructions, no cache, no sources."""

import compileall
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import litehouse
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

def be_nobody():
    # Root may read and write anywhere.
    if os.geteuid() == 0:
        os.seteuid(65534)
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
    "harsh",
    [
        "an affinity for one core",
        "OpenVINO held to SSE 4.1",
        "a file for a cache",
        "a cache that is off",
        "a cache below a file",
        "no folder for temporary files",
    ],
)
def test_both_engines_work_with(harsh: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    variables = {
        "an affinity for one core": {},
        "OpenVINO held to SSE 4.1": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
        "a file for a cache": {"LITEHOUSE_CACHE_DIR": str(tmp_path / "file")},
        "a cache that is off": {"LITEHOUSE_CACHE_DIR": ""},
        "a cache below a file": {"LITEHOUSE_CACHE_DIR": str(tmp_path / "file" / "cache")},
        "no folder for temporary files": {},
    }[harsh]
    before = {
        "an affinity for one core": "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n",
        "no folder for temporary files": "import tempfile; tempfile.tempdir = '/no/such/folder'\n",
    }.get(harsh, "")
    engines = ("onnxruntime", "openvino")
    assert tuple(run(before + f"for name in {engines}: print(check(name))", tmp_path, **variables)) == engines


@pytest.mark.openvino
@pytest.mark.parametrize("name", ["onnxruntime", "openvino"])
def test_a_cache_that_can_only_be_read_is_used(name: str, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from litehouse.engines import build, safety
from litehouse.engines.trials import children

folder = Path(os.environ["LITEHOUSE_CACHE_DIR"])
build.KEEP_SECONDS = -1.0
check({name!r})
assert list(folder.rglob("entry.json")), "nothing was kept"
for path in (folder, *folder.rglob("*")):
    path.chmod(0o555 if path.is_dir() else 0o444)
os.chdir("/")
be_nobody()
try:
    (folder / "new").touch()
    raise SystemExit("the folder can be written")
except PermissionError:
    pass

def select(*_, **__):
    raise SystemExit("the model is built again")

build.select = select
safety._known.clear()
children.PROGRAM = ("-c", "raise SystemExit(9)")
print(check({name!r}))
"""
    with tempfile.TemporaryDirectory() as folder:  # the folders of pytest are closed to other users
        variables = {"LITEHOUSE_CACHE_DIR": folder, "LITEHOUSE_CACHE_BYTES": str(1 << 30)}
        assert run(code, tmp_path, **variables) == [name]


@pytest.mark.openvino
def test_a_current_folder_that_is_closed(tmp_path: Path) -> None:
    """OpenVINO ends the whole process when it opens a compiled model there, so it is not let."""
    code = """
from pathlib import Path
from litehouse.engines.base import Names
from litehouse.engines.openvino import OpenVinoEngine

folder, options, model = Path(os.environ["FOLDER"]), litehouse.Options(threads=1), litehouse.read(mlp())
OpenVinoEngine().compile(model, options).save(folder)
folder.chmod(0o755)
Path("closed").mkdir()
os.chdir("closed")
Path().chmod(0)
be_nobody()
try:
    OpenVinoEngine().restore(folder, Names.of(model), options, "fp32")
except litehouse.EngineError as error:
    print(error)
os.chdir("/")
print(OpenVinoEngine().restore(folder, Names.of(model), options, "fp32").precision)
"""
    with tempfile.TemporaryDirectory() as folder:
        error, precision = run(code, tmp_path, FOLDER=folder)
    assert "cannot search" in error
    assert precision == "fp32"


@pytest.mark.openvino
def test_without_sources(tmp_path: Path) -> None:
    """Compiled files alone, as some packagers leave them."""
    package = tmp_path / "compiled" / "litehouse"
    shutil.copytree(Path(litehouse.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    assert compileall.compile_dir(package, quiet=1, legacy=True)
    for path in package.rglob("*.py"):
        path.unlink()
    code = """
print(litehouse.__file__.endswith(".pyc"))
for name in ("onnxruntime", "openvino"): print(check(name))
"""
    paths = os.pathsep.join([str(package.parent), *filter(None, sys.path)])
    for _ in range(2):
        assert run(code, tmp_path, PYTHONPATH=paths) == ["True", "onnxruntime", "openvino"]
    assert len(list((tmp_path / "cache").rglob("safety/*.json"))) == 2


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
    settings = {"PERF_COUNT": True, "INFERENCE_PRECISION_HINT": "f32"}
    compiled = core.compile_model(core.read_model(case.model), "CPU", settings)
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
