"""What several tests of benchmarks share."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.networks import PEERS, build
from conftest import FIXTURES


@pytest.fixture
def results(monkeypatch, tmp_path):
    """Reads what a benchmark wrote."""
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    return lambda name: json.loads((tmp_path / f"{name}.json").read_text())


@pytest.fixture
def tiny(monkeypatch, tmp_path) -> Path:
    """A folder where a tiny network stands for the MLP, and no peer."""
    monkeypatch.setenv("LITEHOUSE_BENCHMARK_NETWORKS", str(tmp_path))
    for variable in PEERS.values():
        monkeypatch.delenv(variable, raising=False)
    shutil.copy(FIXTURES / "mindir" / "containers" / "plain.mindir", tmp_path / "mlp_b1.mindir")
    shutil.copy(FIXTURES / "mindir" / "containers" / "io.npz", tmp_path / "mlp_b1.npz")
    build.build(("mlp",), (1,))
    return tmp_path
