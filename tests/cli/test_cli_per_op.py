"""`litehouse verify --per-op`: the search for the op where two engines part."""

from dataclasses import replace

import numpy as np
import onnx_ir as ir
import pytest
from cli.support import NETWORKS, call, store, write

import onnx_models
from conftest import FIXTURES
from litehouse import EngineError, Options, formats
from litehouse.cli import per_op
from litehouse.cli.compare import Tolerance
from litehouse.engines import safety, select
from litehouse.engines.onnxruntime import OnnxRuntimeEngine

X = np.linspace(-2, 2, 8, dtype=np.float32).reshape(2, 4)


class WrongEngine(OnnxRuntimeEngine):
    """An engine with a defect: it takes the op of one kind for another."""

    name = "openvino"
    taken = ("Tanh", "Sin")

    def compile(self, model, options, *rest, **more):
        graph = model.graph.clone()
        for node in graph.graph.all_nodes():
            if node.op_type == self.taken[0]:
                node.op_type = self.taken[1]
        return super().compile(replace(model, graph=graph), options, *rest, **more)


class PickyEngine(OnnxRuntimeEngine):
    """An engine that refuses one value as an output."""

    name = "openvino"

    def compile(self, model, options, *rest, **more):
        if any(info.name == "h2" for info in model.outputs) and len(model.outputs) > 0 and model.outputs[0].name != "y":
            raise EngineError("not this one")
        return super().compile(model, options, *rest, **more)


def chain(*ops, weights=None):
    """A model of ops one after the other: x -> h0 -> h1 … -> y. Nodes are called place/0 and so on."""
    names = ["x", *(f"h{index}" for index in range(len(ops) - 1)), "y"]
    nodes = [
        onnx_models.node(op, f"{names[index]} {extra}", names[index + 1], name=f"place/{index}")
        for index, (op, _, extra) in enumerate(text.partition(" ") for text in ops)
    ]
    return onnx_models.model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, weights)


def search(data, engine="openvino", arrays=(X,)):
    return per_op.find_parting(formats.read(data), Options(engine=engine), list(arrays), Tolerance())


def install(monkeypatch, engine):
    monkeypatch.setitem(select.ENGINES, "openvino", engine)
    monkeypatch.setattr(safety, "refusal", lambda *_, **__: None)  # OpenVINO itself is not run


@pytest.fixture
def wrong(monkeypatch):
    install(monkeypatch, WrongEngine())


@pytest.mark.parametrize("chunk", [1, 2, 32])
def test_finds_the_op(wrong, monkeypatch, chunk):
    monkeypatch.setattr(per_op, "CHUNK", chunk)
    parting = search(chain("Abs", "Exp", "Tanh", "Neg", "Tanh")).parting
    assert (parting.op, parting.node, parting.value, parting.fused) == ("Tanh", "place/2", "h2", False)
    ((name, error),) = parting.inputs
    assert name == "h1"
    assert error.ok
    assert parting.difference.relative > 0.01


def test_inputs_and_weights_of_the_model_are_exact(wrong, monkeypatch):
    monkeypatch.setattr(WrongEngine, "taken", ("Add", "Sub"))
    weights = {"w": np.ones((2, 4), np.float32)}
    parting = search(chain("Add w", "Neg", weights=weights)).parting
    assert parting.node == "place/0"
    assert parting.inputs == (("x", None), ("w", None))


def test_large_weights(wrong):
    random = np.random.default_rng(0)
    weights = {"w": random.normal(size=(4, 4)).astype("f"), "v": random.normal(size=(2, 1, 2, 4, 64)).astype("f")}
    nodes = [
        onnx_models.node("MatMul", "x w", "a"),
        onnx_models.node("Tanh", "a", "t"),
        onnx_models.node("ReduceSum", "v", "s"),
        onnx_models.node("Add", "t s", "y"),
    ]
    outcome = search(onnx_models.model(nodes, {"x": [2, 4]}, {"y": [2, 4]}, weights))
    assert outcome.parting.value == "t"


def test_real_engines_agree(engine):
    outcome = search(chain("Abs", "Exp", "Tanh", "Neg", "Tanh"), engine)
    assert outcome.parting is None
    assert outcome.compared == 5
    assert outcome.skipped == ()


def test_branches_are_searched_in_order(wrong):
    nodes = [
        onnx_models.node("Neg", "x", "a"),
        onnx_models.node("Tanh", "x", "b", name="the_first"),
        onnx_models.node("Tanh", "a", "c"),
        onnx_models.node("Add", "b c", "y"),
    ]
    parting = search(onnx_models.model(nodes, {"x": [2, 4]}, {"y": [2, 4]})).parting
    assert parting.node == "the_first"


@pytest.mark.parametrize("tail", [0, 5])
def test_a_real_defect_that_needs_fusion(tail):
    """ONNX Runtime's Pad_Fusion is wrong, but only where the padded value is not an output."""
    nodes = [
        onnx_models.node("Neg", "x", "n", name="before"),
        onnx_models.node("Pad", "n pads", "p", name="pad"),
        onnx_models.node("MaxPool", "p", "m", name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        *(onnx_models.node("Add", f"{f't{index - 1}' if index else 'm'} one", f"t{index}") for index in range(tail)),
        onnx_models.node("Identity", f"t{tail - 1}" if tail else "m", "y"),
    ]
    weights = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "one": np.ones(1, np.float32)}
    data = onnx_models.model(nodes, {"x": [1, 1, 2, 2]}, {"y": [1, 1, 2, 2]}, weights)
    outcome = search(data, "onnxruntime", [np.ones((1, 1, 2, 2), np.float32)])
    assert outcome.parting is not None
    assert (outcome.parting.op, outcome.parting.node, outcome.parting.fused) == ("MaxPool", "pool", True)
    assert [name for name, _ in outcome.parting.inputs] == ["p"]


def test_values_that_an_engine_refuses_are_skipped(monkeypatch):
    install(monkeypatch, PickyEngine())
    outcome = search(chain("Abs", "Exp", "Tanh", "Neg", "Tanh"))
    assert outcome.parting is None
    assert outcome.skipped == ("h2",)
    assert outcome.compared == 4


def test_search_leaves_the_model_alone(wrong):
    model = formats.read(chain("Abs", "Tanh", "Neg"))
    before = ir.to_proto(model.graph).SerializeToString()
    per_op.find_parting(model, Options(engine="openvino"), [X], Tolerance())
    assert ir.to_proto(model.graph).SerializeToString() == before


def test_command_names_the_op(tmp_path, wrong):
    model = write(tmp_path / "m.onnx", chain("Abs", "Exp", "Tanh", "Neg"))
    folder = store(tmp_path / "reference", [X], [-np.tanh(np.exp(np.abs(X)))])
    result = call("verify", model, "--reference", folder, "--engine", "openvino", "--per-op")
    assert result.exit_code == 1
    shown = result.stdout.splitlines()
    assert "FAIL" in shown[1]
    assert "openvino parts from unoptimised ONNX Runtime at Tanh, node place/2" in shown
    assert shown[-2].split()[:2] == ["h1", "input"]
    assert shown[-1].split()[:2] == ["h2", "output"]
    result = call("verify", model, "--reference", folder, "--engine", "onnxruntime", "--per-op")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "onnxruntime agrees with unoptimised ONNX Runtime in all 4 values"


def test_command_tells_when_no_engine_is_at_fault(tmp_path):
    model = write(tmp_path / "m.onnx", chain("Abs", "Exp"))
    folder = store(tmp_path / "reference", [X], [X])
    result = call("verify", model, "--reference", folder, "--per-op")
    assert result.exit_code == 1
    assert "the translation of the file, or the reference, is at fault" in result.stdout


@pytest.mark.parametrize("name", ["negative_pool", "many_outputs", "resnet", "dynamic_batch", "vit"])
def test_mindir_models(engine, name):
    path = NETWORKS / f"{name}.mindir"
    result = call("verify", path, "--reference", path.with_suffix(".npz"), "--engine", engine, "--per-op")
    assert result.exit_code == 0, result.output
    assert "agrees with unoptimised ONNX Runtime" in result.stdout


def test_state_is_as_in_the_file(engine, tmp_path):
    path = FIXTURES / "flow" / "state_counter.mindir"
    x = np.zeros((3, 5), np.float32)
    folder = store(tmp_path, [x], [x + 8, np.array(8, np.int32)])
    result = call("verify", path, "--reference", folder, "--engine", engine, "--per-op")
    assert result.exit_code == 0, result.output
    assert "agrees with unoptimised ONNX Runtime" in result.output
