"""The files of the ranks: what is in them, that they are read back, and how much memory their making takes."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import litehouse
from benchmarks.networks import plain as networks
from benchmarks.networks.plain import FLOAT, Builder
from conftest import FIXTURES
from distributed.slicing.support import SMALL, assert_same, sliced
from distributed.slicing.test_networks import NETWORKS
from litehouse.distributed.slicing import Costs, plan, slip, write
from litehouse.distributed.together import run_together
from litehouse.errors import LitehouseError, ModelFormatError
from litehouse.options import Options


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("name", ["bert of any length", "llama", "resnet"])
def test_round_trip(name: str, pipeline: bool, tmp_path: Path) -> None:
    data, inputs = NETWORKS[name]
    made = sliced(data, 2, SMALL, pipeline=pipeline)
    paths = write(made, tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["rank_0.onnx", "rank_1.onnx"]
    assert sorted(path.name for path in paths[0].parent.iterdir()) == sorted(
        name for path in paths for name in (path.name, f"{path.name}.data")
    )
    models = [litehouse.read(path) for path in paths]
    assert_same(made, inputs, models)
    for rank, model in enumerate(models):
        assert slip.read(model) == slip.JobSlip(made.fingerprint, rank, 2)
        assert [info.name for info in model.inputs] == [info.name for info in made.model.inputs]
        assert [info.name for info in model.outputs] == [info.name for info in made.model.outputs]
        assert model.weights.nbytes == pytest.approx(made.bytes_per_rank[rank], rel=0.01)


@pytest.mark.parametrize("pipeline", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_as_threads(ranks: int, pipeline: bool, tmp_path: Path) -> None:
    """The part of Litehouse that runs ranks agrees with the simulation of these tests."""
    data, inputs = NETWORKS["llama of any length"]
    made = sliced(data, ranks, Costs(exchange=0, unknown=4), pipeline=pipeline)
    models = [litehouse.read(path) for path in write(made, tmp_path)]
    options = Options(engine="onnxruntime", threads=1)
    (expected,) = litehouse.Session(made.model, options).run(inputs)
    for (actual,) in run_together(models, inputs, options):
        np.testing.assert_allclose(actual, expected, atol=1e-4 * np.ptp(expected))


def test_slices_of_two_jobs_do_not_mix(tmp_path: Path) -> None:
    data, inputs = NETWORKS["llama"]
    first = write(sliced(data, 2, SMALL), tmp_path / "a")
    second = write(sliced(networks.llama(vocabulary=501), 2, SMALL), tmp_path / "b")
    mixed = [litehouse.read(first[0]), litehouse.read(second[1])]
    with pytest.raises(LitehouseError):
        run_together(mixed, inputs, Options(engine="onnxruntime", threads=1))
    swapped = [litehouse.read(path) for path in reversed(first)]
    with pytest.raises(LitehouseError):
        run_together(swapped, inputs, Options(engine="onnxruntime", threads=1))


def test_fingerprints() -> None:
    """They change with the weights, the count of ranks and the way of cutting, and with nothing else."""
    data = NETWORKS["llama"][0]
    proto = onnx.load_from_string(data)
    weight = next(each for each in proto.graph.initializer if each.name == "layer.0.q.weight")
    weight.raw_data = bytes(4) + weight.raw_data[4:]
    prints = [
        sliced(data, 2).fingerprint,
        sliced(proto, 2).fingerprint,
        sliced(data, 4).fingerprint,
        sliced(data, 2, pipeline=True).fingerprint,
    ]
    assert len(set(prints)) == 4
    assert sliced(data, 2).fingerprint == prints[0]


def test_weights_are_aligned_and_typed(tmp_path: Path) -> None:
    (first, _) = write(sliced(NETWORKS["llama"][0], 2, SMALL), tmp_path)
    proto = onnx.load(first, load_external_data=False)
    places = [
        {entry.key: entry.value for entry in tensor.external_data}
        for tensor in proto.graph.initializer
        if tensor.external_data
    ]
    assert places
    assert all(int(place["offset"]) % 4096 == 0 and place["location"] == "rank_0.onnx.data" for place in places)
    typed = {
        value.name: value.type.tensor_type
        for value in (*proto.graph.value_info, *proto.graph.output, *proto.graph.input)
    }
    for node in proto.graph.node:
        if node.domain == "litehouse":
            for name in (*node.input, *node.output):
                assert typed[name].elem_type == FLOAT
                assert typed[name].HasField("shape")


def test_a_slip_that_is_damaged_is_refused() -> None:
    model = litehouse.read(NETWORKS["llama"][0])
    assert slip.read(model) is None
    good = {"fingerprint": "a", "rank": 0, "size": 2}
    wrong = [{**good, "rank": 2}, {**good, "rank": "0"}, {**good, "size": True}, {**good, "fingerprint": 3}]
    for text in ("", "[]", "7", "{}", "{", "[" * 100_000, *map(json.dumps, wrong)):
        model.metadata[slip.READ_KEY] = text
        with pytest.raises(ModelFormatError, match="slice the model again"):
            slip.read(model)
    model.metadata[slip.READ_KEY] = json.dumps(good)
    assert slip.read(model) == slip.JobSlip("a", 0, 2)


def test_a_part_cannot_be_cut_again() -> None:
    made = sliced(NETWORKS["llama"][0], 2, SMALL)
    with pytest.raises(LitehouseError, match="one rank's part already"):
        plan(made.model_for(0), 2)


def test_models_with_states_are_not_written(tmp_path: Path) -> None:
    model = litehouse.read(FIXTURES / "mindir" / "networks" / "counter.mindir")
    assert model.states
    made = plan(model, 2)
    with pytest.raises(LitehouseError, match="variables"):
        write(made, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_are_not_there() -> None:
    made = sliced(NETWORKS["llama"][0], 2, SMALL)
    for rank in (-1, 2):
        with pytest.raises(LitehouseError, match="no rank"):
            made.model_for(rank)


CHILD = """
import sys
from pathlib import Path
import litehouse
from litehouse.distributed.slicing import plan, write


def most():
    # The most memory so far; what getrusage tells may be the parent's.
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


made = plan(litehouse.read(sys.argv[1]), 4, pipeline=sys.argv[3] == "pipeline")
before = most()
write(made, Path(sys.argv[2]))
print(before, most())
"""


@pytest.mark.slow
@pytest.mark.parametrize("way", ["parts", "pipeline"])
def test_the_whole_model_is_never_there_twice(way: str, tmp_path: Path) -> None:
    """Writing takes no more memory than one weight beside the whole model."""
    b = Builder()
    x = "x"
    for layer in range(6):
        x = b.op("Relu", b.linear(x, f"up{layer}", 1024, 4096, bias=False))
        x = b.linear(x, f"down{layer}", 4096, 1024, bias=False)
    path = tmp_path / "large.onnx"
    path.write_bytes(b.model({"x": (FLOAT, (1, 1024))}, {"y": (x, None)}))
    size = path.stat().st_size
    assert size > 200_000_000
    run = subprocess.run(
        [sys.executable, "-c", CHILD, path, tmp_path / "out", way],
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = map(int, run.stdout.split())
    assert before < 1.3 * size + 200_000_000
    assert after - before < 0.3 * size
    total = sum(each.stat().st_size for each in (tmp_path / "out").iterdir())
    assert total == pytest.approx(size, rel=0.05)
