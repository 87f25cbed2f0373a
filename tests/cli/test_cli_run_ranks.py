"""`litehouse run --ranks`: slices, launches and runs in one go."""

import tempfile

import numpy as np
import pytest
from cli.support import CONTAINERS, MINDIR, call, failure, write

from conftest import assert_close
from onnx_models import model, node

STATE = MINDIR.parent / "flow" / "rounds_state.mindir"


@pytest.fixture
def network(tmp_path):
    random = np.random.default_rng(3)
    weights = {
        "w1": random.normal(size=(64, 512)).astype("f"),
        "w2": random.normal(size=(512, 64)).astype("f"),
    }
    nodes = [node("MatMul", "x w1", "h"), node("Relu", "h", "r"), node("MatMul", "r w2", "y")]
    path = write(tmp_path / "network.onnx", model(nodes, {"x": [2, 64]}, {"y": [2, 64]}, weights))
    return path, lambda x: np.maximum(x @ weights["w1"], 0) @ weights["w2"]


@pytest.mark.parametrize(("how", "kind"), [([], "1 AllReduce"), (["--pipeline"], "Send")])
def test_it_gives_what_the_whole_model_gives(network, how, kind, tmp_path, monkeypatch):
    path, compute = network
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    x = np.random.default_rng(4).normal(size=(2, 64)).astype("f")
    np.save(tmp_path / "x.npy", x)
    arguments = ["--input", tmp_path / "x.npy", "--output", tmp_path / "out", "--threads", 1, *how]
    result = call("run", path, "--ranks", 2, *arguments)
    assert result.exit_code == 0, result.output
    assert_close(np.load(tmp_path / "out" / "output_0.npy"), compute(x))
    assert "rank 1: 131.1 kB of weights (50% of 262.1 kB)" in result.stdout
    assert kind in result.stdout.partition("exchanges in one run: ")[2]
    assert list(folder.iterdir()) == []  # the parts are gone


def test_parts_of_an_encrypted_model_are_not_left_on_a_disk():
    arguments = ["--key", "text:litehouse-key-16", "--mode", "SM4-CBC", "--zeros"]
    told = failure(call("run", CONTAINERS / "sm4_cbc.mindir", "--ranks", 2, *arguments))
    assert "the model is encrypted" in told
    assert "litehouse slice" in told


def test_options_that_make_no_sense_are_refused(network):
    assert call("run", network[0], "--pipeline", "--zeros").exit_code == 2
    refused = call("run", network[0], "--ranks", 2, "--device", "gpu", "--zeros")
    assert refused.exit_code == 2
    assert "litehouse slice" in refused.stderr


@pytest.mark.parametrize("more", [[], ["--check"], ["--pipeline", "--check"]])
def test_networks_with_state_are_not_sliced(more):
    told = failure(call("slice", STATE, "--ranks", 2, *more))
    assert "a run changes the network's own variables" in told
