"""Fixtures that several test folders share."""

import importlib.util
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Every test builds small models: more threads than one only make them wait for each other.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Torch's compiler finds out which instructions a CPU has by compiling for each of them, in each new folder: that takes
# longer than the kernels of a test do.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
# What times engines asks for it by name: elsewhere the result must not depend on how busy the machine is.
os.environ["LITEHOUSE_TUNE"] = "off"
# Verdicts on engines are shared by all tests, but each builds its own models.
os.environ["LITEHOUSE_CACHE_BYTES"] = "0"

CPU_ENGINES = ("onnxruntime", "openvino")  # which serve the CPU unasked, and whose programs are kept
ENGINES = (*CPU_ENGINES, "torch") if importlib.util.find_spec("torch") else CPU_ENGINES
REAL_GPU = bool(os.environ.get("LITEHOUSE_TEST_GPU"))
REPOSITORY = Path(__file__).parent.parent
FIXTURES = Path(__file__).parent / "fixtures"
ZOO = REPOSITORY.parent / "shared" / "zoo"

# The largest error that counts as equal, relative to the range of the output.
TOLERANCE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-4, np.dtype(np.float16): 1e-3}


def assert_close(actual: np.ndarray, expected: np.ndarray, what: str = "output") -> None:
    """Equal shapes and dtypes, numbers within the tolerance of the dtype; integers and bools exactly."""
    assert actual.shape == expected.shape, f"{what}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{what}: dtype {actual.dtype}, expected {expected.dtype}"
    if expected.dtype not in TOLERANCE or expected.size == 0:
        np.testing.assert_array_equal(actual, expected, err_msg=what)
        return
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(np.where(finite, 0, actual), np.where(finite, 0, expected), err_msg=what)
    difference = np.abs(actual[finite].astype(np.float64) - expected[finite].astype(np.float64))
    spread = np.ptp(expected[finite].astype(np.float64)) if finite.any() else 0.0
    allowed = TOLERANCE[expected.dtype] * max(spread, np.abs(expected[finite]).max(initial=0.0), 1e-6)
    assert difference.max(initial=0.0) <= allowed, f"{what}: error {difference.max():.3g}, allowed {allowed:.3g}"


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn, on the CPU."""
    return request.param


@pytest.fixture(params=CPU_ENGINES)
def cpu_engine(request: pytest.FixtureRequest) -> str:
    """Each engine that serves the CPU unasked: torch does not."""
    return request.param


@pytest.fixture(autouse=True)
def _starts_anew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every load is that of a process of its own, which has no other session of the file, unless a test is about it."""
    monkeypatch.setattr("litehouse.weights.handover.SECONDS", 60.0)  # a busy machine is not one that hangs
    if "sibling_sessions" not in request.fixturenames:
        monkeypatch.setattr("litehouse.loading._can_share", lambda _: False)


@pytest.fixture
def sibling_sessions() -> None:
    """Let sessions of one file share what is compiled."""


@pytest.fixture
def gpu(request: pytest.FixtureRequest) -> None:
    """A GPU `gpu:0`: one that is made of the CPU's memory; with `LITEHOUSE_TEST_GPU=1`, the one that is there."""
    pytest.importorskip("torch")
    if not REAL_GPU:
        request.getfixturevalue("rehearsed_gpu")


@pytest.fixture
def rehearsed_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU `gpu:0` that is made of the CPU's memory."""
    pytest.importorskip("torch")
    monkeypatch.setenv("LITEHOUSE_REHEARSE_GPU", "1")


class Copies:
    """Counts what is copied between the host and a GPU."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from litehouse import device

        self.up = self.down = 0
        for name in ("_upload", "_upload_pinned", "_download", "_download_into"):
            monkeypatch.setattr(device, name, self._counted(name, getattr(device, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.up += name.startswith("_upload")
            self.down += name.startswith("_download")
            return function(*arguments)

        return call

    def taken(self) -> tuple[int, int]:
        """How many went there and came back since the last call."""
        found = self.up, self.down
        self.up = self.down = 0
        return found


@pytest.fixture
def copies(gpu: None, monkeypatch: pytest.MonkeyPatch) -> Copies:
    """Counts what is copied between the host and the GPU."""
    return Copies(monkeypatch)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the user's cache out of the tests: all workers share one that lasts as long as they do."""
    config.addinivalue_line("markers", "openvino: runs OpenVINO, and skips where that is not safe")
    if not hasattr(config, "workerinput"):
        os.environ["LITEHOUSE_CACHE_DIR"] = tempfile.mkdtemp(prefix="litehouse-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["LITEHOUSE_CACHE_DIR"], ignore_errors=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what runs on an engine that is not safe on this machine, or that `LITEHOUSE_FAIL_PROBES` takes away."""
    values = list(item.callspec.params.values()) if hasattr(item, "callspec") else []
    values += [inner for value in values if isinstance(value, dict) for inner in value.values()]
    engines = {value for value in values if isinstance(value, str) and value in CPU_ENGINES}
    if item.get_closest_marker("openvino"):
        engines.add("openvino")
    for name in engines:
        from litehouse.engines.safety import verdicts

        (found,) = verdicts([(name, "fp32")])
        if not found.safe:
            pytest.skip(f"{name} is not used here: {found.reason}")
