"""The benchmark of GPUs, on CPU tensors with tiny networks, and a zoo of three models."""

import fcntl
import json
import multiprocessing
import re
import shutil
import time
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from naps import lock_aside  # noqa: E402

from benchmarks import gpu  # noqa: E402  (they need torch)
from benchmarks.__main__ import main as benchmarks  # noqa: E402
from benchmarks.gpu import models, networks, overhead, processes, runner, update, zoo, zoo_cases  # noqa: E402
from benchmarks.gpu.models import Models, Network  # noqa: E402
from benchmarks.gpu.networks import BOTH, CAPTURED, EAGER, OURS  # noqa: E402
from benchmarks.gpu.place import Place  # noqa: E402
from conftest import FIXTURES, ZOO  # noqa: E402
from litehouse.engines import select  # noqa: E402
from litehouse.engines.torch import pieces  # noqa: E402

CONTAINERS = FIXTURES / "mindir" / "containers"


@pytest.fixture
def rehearse(results, monkeypatch):
    """Run parts on the CPU, captured as on a GPU but without torch's compiler, and read what was written."""
    monkeypatch.setattr(pieces, "ON_CPU", True)
    monkeypatch.setattr(overhead, "CALLS", 3)
    monkeypatch.setattr(runner, "ROUND_SECONDS", 0.05)
    monkeypatch.setattr(runner, "WORKERS", (1,))

    def run(*words):
        usual = ["--device", "cpu", "--tune", "off", "--rounds", "2", "--burst", "0.002", "--peers", "eager,captured"]
        gpu.main([*usual, *words])
        return results("gpu")

    return run


class Liar(torch.nn.Module):
    """Computes something else when it is exported."""

    def forward(self, x):
        return x * (2.0 if torch.onnx.is_in_onnx_export() else 1.0)


# Without a GPU --------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so_and_goes_on(results, capsys):
    benchmarks(["gpu"])
    assert re.search("gpu: torch .*(without CUDA|no GPU).*left out", capsys.readouterr().out)
    with pytest.raises(FileNotFoundError):
        results("gpu")


def test_a_rehearsal_that_is_not_possible_is_not_offered_again(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "lack", lambda _: "torch is not there")
    gpu.main(["--device", "cpu"])
    assert capsys.readouterr().out == "gpu: torch is not there; left out\n"
    gpu.main([])
    assert "(--device cpu rehearses it)" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--parts", "soup"], ["--precisions", "fp8"], ["--networks", "vgg"]])
def test_unknown_words_are_refused(words):
    with pytest.raises(SystemExit):
        gpu.parse(words)


# Networks -------------------------------------------------------------------------------------------------------------


def test_networks(rehearse, tmp_path, capsys):
    target = tmp_path / "found.json"
    found = rehearse(
        "--parts", "networks", "--networks", "mobilenet_v2,bert", "--batches", "1,3", "--json", str(target)
    )
    rows = found["results"]["networks"]
    assert [(row["network"], row["batch"], row["precision"]) for row in rows] == [
        (network, batch, precision)
        for network in ("mobilenet_v2", "bert")
        for batch in (1, 3)
        for precision in ("fp32", "fp16")
    ]
    for row in rows:
        assert row["chosen"]["engine"] == "torch"
        assert row["error"] < 1e-5  # on the CPU it computes in 32 bits, whatever is asked for
        assert row["is_right"]
        assert set(row["times"]) == {OURS, EAGER, CAPTURED}
        assert all(len(own) == 2 for own in row["times"].values())
        assert row["best"] in (EAGER, CAPTURED)
        assert row["ratio"] == row["ratios"][row["best"]]
        assert row["failures"] == {}
    assert 0 < rows[1]["eager_error"] < 2e-2
    assert json.loads(target.read_text())["results"] == found["results"]
    told = capsys.readouterr().out
    assert "Litehouse" in told
    assert f"eager's {rows[1]['eager_error']:.1e}" in told


def test_the_best_peer_is_the_one_with_the_lowest_median():
    found = networks.compared({OURS: [2.0, 4.0, 6.0], EAGER: [1.0, 8.0, 8.0], BOTH: [4.0, 4.0, 4.0]})
    assert found["best"] == BOTH
    assert found["ratio"] == {"median": 1.0, "low": 0.5, "high": 1.5}
    assert found["ratios"][EAGER]["median"] == 0.75
    assert found["ms"][OURS]["median"] == 4000


def test_what_fails_does_not_stop_the_others(rehearse, monkeypatch, capsys):
    def broken():
        raise ImportError("no such package")

    monkeypatch.setitem(models.TINY, "mobilenet_v2", Network("broken", broken, lambda batch: []))
    words = ("--parts", "networks", "--networks", "mobilenet_v2,resnet50", "--batches", "1", "--precisions", "fp32")
    first, second = rehearse(*words)["results"]["networks"]
    assert first["failed"] == "ImportError: no such package"
    assert second["is_right"]
    assert "no such package" in capsys.readouterr().out


def test_wrong_outputs_are_told(rehearse, monkeypatch, capsys):
    monkeypatch.setitem(models.TINY, "bert", Network("liar", Liar, lambda batch: [torch.ones(batch, 4)]))
    words = ("--parts", "networks", "--networks", "bert", "--batches", "1", "--precisions", "fp32")
    (row,) = rehearse(*words)["results"]["networks"]
    assert row["error"] == pytest.approx(1.0)
    assert not row["is_right"]
    assert "WRONG" in capsys.readouterr().out


def test_errors_are_parts_of_the_range():
    right = torch.tensor([-2.0, 2.0])
    assert networks.error([right + 0.4], [right]) == pytest.approx(0.1)
    assert networks.error([np.array([-2.0, 2.4])], [right]) == pytest.approx(0.1)
    assert networks.error([right * torch.nan], [right]) == float("inf")
    assert networks.error([], [right]) == float("inf")


def test_batch_norms_are_calibrated():
    made = Models(is_tiny=True).made("mobilenet_v2")
    assert float(made.module[1].running_var.mean()) != 1.0
    assert not made.module.training


class Block(torch.nn.Module):
    """A block that adds to what goes through it, with the names that torchvision has."""

    def __init__(self, kind):
        super().__init__()
        conv, norm = torch.nn.Conv2d(2, 2, 1), torch.nn.BatchNorm2d(2)
        if kind == "bottleneck":
            self.conv1, self.bn3 = conv, norm
        else:
            self.conv, self.use_res_connect = torch.nn.Sequential(conv, norm), kind == "residual"

    def forward(self, x):
        return x + (self.bn3(self.conv1(x)) if hasattr(self, "bn3") else self.conv(x))


def test_residual_blocks_add_as_little_as_those_of_trained_networks(monkeypatch):
    """Else rounding grows from block to block, and 16 bits seem to be worse than they are."""
    blocks = lambda: torch.nn.Sequential(*map(Block, ("bottleneck", "residual", "plain")))  # noqa: E731
    monkeypatch.setitem(models.TINY, "resnet50", Network("blocks", blocks, lambda n: [torch.randn(n, 2, 4, 4)]))
    module = Models(is_tiny=True).made("resnet50").module
    norms = [part.weight.detach().tolist() for part in module.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms == [pytest.approx([each] * 2) for each in (models.BRANCH, models.BRANCH, 1.0)]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles with g++")
def test_compiled_peers(rehearse):
    words = (
        "--peers",
        f"{EAGER},{BOTH}",
        "--parts",
        "networks",
        "--networks",
        "bert",
        "--batches",
        "1",
        "--precisions",
        "fp32",
    )
    (row,) = rehearse(*words)["results"]["networks"]
    assert row["failures"] == {}
    assert set(row["times"]) == {OURS, EAGER, BOTH}
    assert row["compile_s"] > 0


def test_the_table_tells_who_failed_from_who_was_not_asked():
    facts = {"chosen": {"engine": "torch", "precision": "fp16", "form": "compiled"}, "build_s": 1.0}
    row = {"network": "bert", "batch": 1, "precision": "fp16", "failures": {CAPTURED: "no"}, "is_right": True}
    row |= facts | {"error": 0.0} | networks.compared({OURS: [1.0], EAGER: [2.0]})
    columns = {str(column.header): list(column.cells) for column in networks.table([row]).columns}
    assert [columns[name] for name in (EAGER, CAPTURED, BOTH)] == [["2000.000"], ["failed"], ["–"]]
    assert columns["ours"] == ["torch fp16, compiled"]


# The time that is left ------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_left_out(rehearse, capsys):
    found = rehearse("--parts", "networks,overhead,update", "--seconds", "0.000001")
    rows = [row for part in found["results"].values() for row in part]
    assert len(rows) == 3 * 2 * 2 + 2 * 2 + 2
    assert all("skipped" in row for row in rows)
    assert len(found["left_out"]) == len(rows)
    assert f"{len(rows)} left out, since it no longer fitted" in capsys.readouterr().out


# The zoo --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_zoo(tmp_path):
    """Three files of one model: as it is, with other outputs than it has, and damaged."""
    with np.load(CONTAINERS / "io.npz") as stored:
        inputs = [stored[key] for key in sorted(stored.files) if key.startswith("input")]
        outputs = [stored[key] for key in sorted(stored.files) if key.startswith("output")]
    for name in ("good", "other", "damaged"):
        folder = tmp_path / "zoo" / "mindir" / name
        folder.mkdir(parents=True)
        shutil.copy(CONTAINERS / "plain.mindir", folder / f"{name}.mindir")
        for place, array in enumerate(inputs):
            np.save(folder / f"input_{place}.npy", array)
        for place, array in enumerate(outputs):
            np.save(folder / f"output_{place}.npy", array * (2 if name == "other" else 1))
    (tmp_path / "zoo" / "mindir" / "damaged" / "damaged.mindir").write_bytes(b"no model")
    return tmp_path / "zoo"


def test_the_zoo(rehearse, small_zoo, capsys):
    rows = rehearse("--parts", "zoo", "--zoo", str(small_zoo))["results"]["zoo"]
    assert [(row["name"], row["asked"]) for row in rows] == [
        (name, precision) for precision in ("fp32", "fp16") for name in ("damaged", "good", "other")
    ]
    damaged, good, other = rows[:3]
    assert "ModelFormatError" in damaged["failed"]
    assert good["is_right"]
    assert good["error"] < 1e-5
    assert good["lacking"] == []
    assert not other["is_right"]
    assert other["error"] == pytest.approx(0.5, abs=0.3)
    shown = capsys.readouterr().out
    assert "mindir/other in fp32: error" in shown
    assert "mindir/damaged in fp32: failed: ModelFormatError" in shown


@pytest.mark.slow
def test_processes_end_with_the_benchmark(tmp_path):
    file = tmp_path / "lock"
    file.touch()
    benchmark = multiprocessing.get_context("spawn").Process(target=lock_aside, args=(file,))
    benchmark.start()
    wait_until(lambda: is_locked(file))
    benchmark.kill()
    wait_until(lambda: not is_locked(file))
    benchmark.join()


def is_locked(file):
    with file.open() as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_until(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_the_zoo_in_several_processes(rehearse, small_zoo):
    def run(*words):
        rows = rehearse("--parts", "zoo", "--zoo", str(small_zoo), "--precisions", "fp32", *words)["results"]["zoo"]
        return [(row["name"], row.get("error"), row.get("failed")) for row in rows]

    assert run("--processes", "2") == run()


def test_a_model_that_ends_its_process_fails_alone(small_zoo):
    record = SimpleNamespace(given=SimpleNamespace(processes=2, zoo=small_zoo, device="cpu"))
    found = []
    with zoo._checker(record, list(zoo_cases.cases(small_zoo))) as checked:
        for turn in range(5):
            try:
                found.append(checked(1, "fp32")["is_right"])
            except BrokenProcessPool:
                found.append("its process died")
            if turn == 0:
                (child,) = multiprocessing.active_children()
                child.kill()
                child.join()
    assert sorted(found, key=str) == [True] * 4 + ["its process died"]


def test_who_is_right_by_a_bound_of_its_own_is_named(rehearse, small_zoo, monkeypatch, capsys):
    kind = [replace(case, limit=2.0) for case in zoo_cases.cases(small_zoo)]
    monkeypatch.setattr(zoo, "cases", lambda _: kind)
    rehearse("--parts", "zoo", "--zoo", str(small_zoo), "--precisions", "fp32")
    shown = capsys.readouterr().out
    assert "mindir/other in fp32: error" in shown
    assert "right by the bound of its own file alone" in shown
    assert "mindir/good" not in shown


def test_a_zoo_that_is_not_there(rehearse, tmp_path, capsys):
    assert rehearse("--parts", "zoo", "--zoo", str(tmp_path / "none"))["results"]["zoo"] == []
    shown = capsys.readouterr().out
    assert "0 models" in shown
    assert "left out: --zoo names a folder that has some of mindir, " in shown
    assert "The zoo in" not in shown  # a table of nothing looks like success


@pytest.mark.parametrize(
    ("own", "right", "is_exact", "error"),
    [
        ([1.0, 2.5], [1.0, 2.0], True, 0.25),
        ([-1.0, 1.2], [-1.0, 1.0], True, 0.1),
        ([1, 2, 3, 5], [1, 2, 3, 4], False, 0.25),
        ([1, 2, 3, 5], [1, 2, 3, 4], True, np.inf),
        ([1, 2], [1, 2], True, 0.0),
        ([True, False], [True, True], True, np.inf),
        ([np.inf, 1.0], [np.inf, 1.0], True, 0.0),
        ([5.0, 1.0], [np.inf, 1.0], True, np.inf),
        ([np.nan, 1.0], [1.0, 1.0], True, np.inf),
    ],
)
def test_errors_of_outputs(own, right, is_exact, error):
    assert zoo.worst([np.array(own)], [np.array(right)], is_exact=is_exact) == pytest.approx(error)


def test_outputs_of_other_kinds_are_refused():
    for own in (np.zeros(3), np.zeros(2, np.float32)):
        with pytest.raises(ValueError, match="an output of"):
            zoo.worst([own], [np.zeros(2)], is_exact=True)
    with pytest.raises(ValueError, match="0 outputs, not 1"):
        zoo.worst([], [np.zeros(2)], is_exact=True)


def test_finds_in_another_order():
    boxes = np.float32([[0, 0, 9, 9], [5, 5, 9, 9], [1, 2, 3, 4]])
    wanted = [boxes, np.float32([0.9, 0.899, 0.5]), np.int32([4, 1, 1])]
    found = [array[[1, 0, 2]] for array in wanted]
    found[0] = found[0] + np.float32(0.01)
    assert zoo.worst(found, wanted, is_exact=False) > 0.5
    assert zoo.worst(zoo.in_order(found, wanted), wanted, is_exact=False) == pytest.approx(0.01 / 9, rel=1e-3)
    found[2] = np.int32([4, 4, 1])  # one of them is another find
    assert zoo.worst(zoo.in_order(found, wanted), wanted, is_exact=False) > 0.3
    twice = [array[[0, 0, 2]] for array in wanted]
    assert zoo.worst(zoo.in_order(twice, wanted), wanted, is_exact=False) > 0.3
    assert zoo.in_order([boxes], [boxes[:2]])[0] is boxes
    assert zoo.in_order([boxes[:0]], [boxes[:0]])[0].shape == (0, 4)  # it has found nothing
    alike, endless = np.float32([1, 1, 1]), np.float32([1, 1, np.inf])
    assert np.isinf(zoo.in_order([endless], [alike])[0]).any()  # none takes the place of another one


def test_a_find_that_is_nowhere_else_moves_no_other_one():
    wanted = np.float32([0.4, 1, 2, 3, 9])
    found = np.float32([1, 2, 3, 9, 10])  # not the first one, but another behind the last
    (ordered,) = zoo.in_order([found], [wanted])
    assert ordered.tolist() == [10, 1, 2, 3, 9]


def test_encrypted_models_are_left_out_without_cryptography(rehearse, small_zoo, monkeypatch, capsys):
    (small_zoo / "mindir").rename(small_zoo / "mindir_old")
    folder = (small_zoo / "mindir_old" / "good").rename(small_zoo / "mindir_old" / "aes_gcm")
    (folder / "good.mindir").rename(folder / "aes_gcm.mindir")
    monkeypatch.setattr(zoo.importlib.util, "find_spec", lambda name: None)
    rows = rehearse("--parts", "zoo", "--zoo", str(small_zoo), "--precisions", "fp32")["results"]["zoo"]
    assert {row["name"]: "cryptography" in row.get("skipped", "") for row in rows} == {
        "aes_gcm": True,
        "damaged": False,
        "other": False,
    }
    assert "1 left out: it is encrypted" in capsys.readouterr().out


@pytest.mark.zoo
@pytest.mark.skipif(not ZOO.exists(), reason="the model zoo is not beside the checkout")
def test_all_models_of_the_zoo_are_found():
    found = list(zoo_cases.cases(ZOO))
    files = [path for kind in ("mindir", "ms", "mge", "lite") for path in ZOO.rglob(f"*.{kind}")]
    without = {path for path in files if path.parent.name == "ops" and not path.with_name(f"{path.name}.npz").exists()}
    parts = {path for path in files if ZOO / "distributed" in path.parents}
    assert {case.path for case in found} == set(files) - without - parts
    for case in found:
        inputs, outputs = case.stored()
        assert len(inputs) > 0 or case.folder == "mindir"
        assert outputs is None or len(outputs) > 0


# Calls, updates, processes, pools -------------------------------------------------------------------------------------


def test_overhead(rehearse, capsys):
    rows = rehearse("--parts", "overhead")["results"]["overhead"]
    assert [row["network"] for row in rows] == ["mlp", "mlp", "mobilenet_v2", "mobilenet_v2"]
    for row in rows:
        assert {name: len(own) for name, own in row["times"].items()} == {"device": 2, "tensors": 2, "numpy": 2}
        whole, alone = row["times"]["tensors"], row["times"]["device"]
        beyond = sorted(1e6 * (mine - its) for mine, its in zip(whole, alone, strict=True))
        assert row["tensors_overhead_us"]["median"] == pytest.approx(sum(beyond) / 2)
    assert "beyond" in capsys.readouterr().out


def test_update(rehearse):
    rows = rehearse("--parts", "update")["results"]["update"]
    for row in rows:
        assert sorted(row["shape"]) == [32, 64]
        assert row["change"] > 4e-2
        found = row["sources"]["numpy"]
        assert found["is_right"]
        assert found["errors"]["new"] < 1e-5
        assert found["done_ms"]["median"] >= found["returned_ms"]["median"] > 0
        assert "failed" in row["sources"]["tensor"] or row["sources"]["tensor"]["is_right"]


def test_an_update_that_no_run_sees_is_told(rehearse, monkeypatch, capsys):
    monkeypatch.setattr("litehouse.Session.update_weights", lambda *_: None)
    (row,) = rehearse("--parts", "update", "--precisions", "fp32")["results"]["update"]
    assert not row["sources"]["numpy"]["is_right"]
    assert row["sources"]["numpy"]["errors"]["new"] == pytest.approx(row["change"], rel=0.5)
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.slow
def test_processes(rehearse):
    rows = rehearse("--parts", "processes", "--precisions", "fp32")["results"]["processes"]
    assert [row["way"] for row in rows] == list(processes.WAYS)
    for row in rows:
        assert row["is_right"]
        assert max(row["errors"]) < 1e-5
        assert row["weights_mb"] > 0
        assert len(row["growth_mb"]) == len(row["ms"]) == processes.COUNT


def test_a_process_that_fails_is_told(rehearse, monkeypatch, tmp_path):
    program = tmp_path / "refuses.py"
    program.write_text("for line in __import__('sys').stdin: print('{\"failed\": \"no memory\"}', flush=True)")
    monkeypatch.setattr(processes, "PROGRAM", program)
    rows = rehearse("--parts", "processes", "--precisions", "fp32")["results"]["processes"]
    assert [row["failed"] for row in rows] == ["ProcessError: begin: no memory"] * 2
    program.write_text("")
    rows = rehearse("--parts", "processes", "--precisions", "fp32")["results"]["processes"]
    assert all("ProcessError" in row["failed"] for row in rows)


@pytest.mark.slow
def test_starts(rehearse, capsys):
    (row,) = rehearse("--parts", "starts", "--networks", "bert", "--precisions", "fp32")["results"]["starts"]
    assert list(row["starts"]) == ["first", "second"]
    assert row["is_right"]
    for start in row["starts"].values():
        assert start["seconds"] > 0
        assert start["error"] < 1e-5
        assert start["chosen"]["engine"] == "torch"
    assert "torch fp32" in capsys.readouterr().out


def test_what_one_part_has_chosen_the_next_one_finds(rehearse, monkeypatch):
    races = []
    race = select.race
    monkeypatch.setattr(select, "RACE_SECONDS", {"full": 0.05})
    monkeypatch.setattr(select, "race", lambda *given, **more: races.append(given) or race(*given, **more))
    monkeypatch.setattr(select, "counts", lambda *_: [])
    monkeypatch.setattr(overhead, "NETWORKS", ("mobilenet_v2",))
    words = ("--networks", "mobilenet_v2", "--batches", "1", "--precisions", "fp16", "--tune", "full")
    found = rehearse("--parts", "networks,overhead", *words)["results"]
    assert len(races) == 1
    assert found["networks"][0]["chosen"] == found["overhead"][0]["chosen"]


def test_runner(rehearse, capsys):
    (row,) = rehearse("--parts", "runner", "--precisions", "fp32")["results"]["runner"]
    assert list(row["lanes"]) == [EAGER, "1 worker(s)", "1 worker(s), joined"]
    for lane in row["lanes"].values():
        assert lane["is_right"]
        assert len(lane["rates"]) == 2
        assert lane["per_second"]["median"] > 0
    assert row["lanes"]["1 worker(s), joined"]["batching"]
    assert "requests/s" in capsys.readouterr().out


# The place ------------------------------------------------------------------------------------------------------------


def test_a_place_on_the_cpu():
    place = Place("cpu")
    assert place.options == {"device": "cpu", "engine": "torch"}
    assert place.used() == 0
    calls = []
    assert place.seconds_on_device(lambda: calls.append(1), 4) >= 0
    assert len(calls) == 4
    with place.exact():
        assert not torch.is_grad_enabled()
        assert torch.backends.cudnn.benchmark
    assert not torch.backends.cudnn.benchmark


def test_the_options_of_a_gpu():
    place = Place("gpu:1")
    assert place.options == {"device": "gpu:1"}
    assert place.torch == torch.device("cuda", 1)


def test_the_updated_weight_is_found_by_its_shape():
    made = Models(is_tiny=True).made("bert")
    name, values = update.weight(made)
    assert values.shape in ((32, 64), (64, 32))
    assert name
    with pytest.raises(LookupError, match="no weight of the shape"):
        update.weight(Models(is_tiny=True).made("mlp"))
