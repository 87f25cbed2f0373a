"""`litehouse slice`."""

import json
from pathlib import Path

import pytest
from cli.support import NETWORKS, call, failure, write

import litehouse
from benchmarks.networks import plain as networks
from litehouse.distributed.slicing import slip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = networks.llama(layers=1, hidden=128, inner=256, vocabulary=600)
    return write(tmp_path_factory.mktemp("models") / "decoder.onnx", data)


@pytest.mark.parametrize("ways", [(), ("--pipeline",)])
def test_writes_checks_and_shows(model: Path, ways: tuple[str, ...], tmp_path: Path) -> None:
    result = call("slice", model, "--ranks", 2, "-o", tmp_path / "out", "--check", *ways)
    assert result.exit_code == 0, result.output
    for rank in (0, 1):
        assert f"rank {rank}: " in result.stdout
        found = slip.read(litehouse.read(tmp_path / "out" / f"rank_{rank}.onnx"))
        assert found is not None
        assert (found.rank, found.size) == (rank, 2)
    assert "exchanges in one run" in result.stdout
    assert "OK  all ranks against the whole model" in result.stdout
    assert ("stage 0" if ways else "columns") in result.stdout


def test_the_plan_alone(model: Path, tmp_path: Path) -> None:
    result = call("slice", model, "--ranks", 2)
    assert result.exit_code == 0, result.output
    assert "wrote" not in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_json(model: Path, tmp_path: Path) -> None:
    result = call("slice", model, "--ranks", 2, "-o", tmp_path / "out", "--json", "--check")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["schema"] == 1
    assert report["ranks"] == 2
    assert report["pipeline"] is False
    assert report["check"]["ok"] is True
    assert report["check"]["error"] < 1e-4
    assert [Path(path).name for path in report["files"]] == ["rank_0.onnx", "rank_1.onnx"]
    assert max(report["bytes"]["per_rank"]) < 0.6 * report["bytes"]["whole"]
    kinds = {each["name"]: each["how"] for each in report["weights"]}
    assert kinds["layer.0.gate.weight"] == "columns"
    assert kinds["layer.0.down.weight"] == "rows"
    assert {each["op"] for each in report["exchanges"]} == {"AllReduce", "AllGather"}
    assert report["fingerprint"] == slip.read(litehouse.read(report["files"][0])).fingerprint  # type: ignore[union-attr]


def test_mindir(tmp_path: Path) -> None:
    result = call("slice", NETWORKS / "llama.mindir", "--ranks", 2, "-o", tmp_path, "--check")
    assert result.exit_code == 0, result.output


def test_existing_files_are_kept(model: Path, tmp_path: Path) -> None:
    kept = write(tmp_path / "rank_1.onnx", b"mine")
    assert "--force" in failure(call("slice", model, "--ranks", 2, "-o", tmp_path))
    assert kept.read_bytes() == b"mine"
    assert call("slice", model, "--ranks", 2, "-o", tmp_path, "--force").exit_code == 0
    assert kept.read_bytes() != b"mine"
    assert "this is a file" in failure(call("slice", model, "--ranks", 2, "-o", kept))
    assert "this is a file" in failure(call("slice", model, "--ranks", 2, "-o", kept / "deeper"))


def test_states_are_refused(tmp_path: Path) -> None:
    assert "variables" in failure(call("slice", NETWORKS / "counter.mindir", "--ranks", 2, "-o", tmp_path))


def test_a_part_is_refused(model: Path, tmp_path: Path) -> None:
    call("slice", model, "--ranks", 2, "-o", tmp_path)
    assert "only a whole one" in failure(call("slice", tmp_path / "rank_0.onnx", "--ranks", 2))


def test_a_wrong_count_of_ranks(model: Path) -> None:
    assert call("slice", model, "--ranks", 0).exit_code == 2
    assert "ranks must be" in failure(call("slice", model, "--ranks", 100_000))


def test_a_difference_is_a_failure(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from litehouse.distributed import together

    real = together.run_together
    monkeypatch.setattr(together, "run_together", lambda *all_: [[array + 1 for array in each] for each in real(*all_)])
    result = call("slice", model, "--ranks", 2, "--check")
    assert result.exit_code == 1
    assert "FAIL" in result.stdout


def test_checks_all_words_and_open_sizes(tmp_path: Path) -> None:
    """The ids of a check are not only the first few: a part of a table that was wrong would be noticed."""
    from litehouse.cli.trial_inputs import trial_inputs

    path = write(tmp_path / "open.onnx", networks.llama(layers=1, vocabulary=700, batch="batch", length="length"))
    (ids,) = next(trial_inputs(litehouse.read(path)))
    assert ids.shape == (2, 8)
    assert ids.max() > 350
    assert ids.min() < 350
    result = call("slice", path, "--ranks", 2, "--check", "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
