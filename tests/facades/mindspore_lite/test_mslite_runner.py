"""`ModelParallelRunner`: the published program, many clients, and the original's checks and messages."""

import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from facades.mindspore_lite.support import ADD, ADD_INT64, DYNAMIC, NETWORK, RELU, TWO_OUTPUTS

import mindspore_lite as mslite
from conftest import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "parallel" / "clients.py"
TUTORIAL = REPOSITORY.parent / "shared" / "tutorials" / "mindspore_lite_concurrent_inference_zh.md"


def _runner(sample=NETWORK, workers=2, threads=1):
    context = mslite.Context()
    context.cpu.thread_num = threads
    context.parallel.workers_num = workers
    runner = mslite.ModelParallelRunner()
    runner.build_from_file(sample.path, context)
    return runner


def _filled(runner, arrays):
    tensors = runner.get_inputs()
    for tensor, array in zip(tensors, arrays, strict=True):
        tensor.set_data_from_numpy(array)
    return tensors


@pytest.mark.zoo
@pytest.mark.skipif(not TUTORIAL.exists(), reason="the tutorials are not beside the checkout")
def test_the_published_program(tmp_path):
    """Five clients of two tasks each, as published."""
    program = "\n".join(re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(encoding="utf-8"), re.DOTALL))
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(NETWORK.path, folder / "mobilenetv2.mindir")
    NETWORK.inputs[0].tofile(folder / "input.bin")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    (expected,) = NETWORK.outputs
    # What its threads print is mixed up, but each text and number is whole.
    for text in ("parallel id: ", " | task index: ", " | run once time: ", "output data is:"):
        assert done.stdout.count(text) == 10
    assert done.stdout.count(f"tensor size is:{expected.nbytes} tensor elements num is:{expected.size}") == 10
    numbers = np.array(re.findall(r"-?\d+\.\d+(?:e-\d+)?", done.stdout), "f")
    for number in expected.flat[:5]:
        assert np.isclose(numbers, number, rtol=1e-4, atol=1e-5).sum() >= 10
    assert "total run time: " in done.stdout


def test_the_example():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    *tasks, last = done.stdout.splitlines()
    assert sorted(line.split(":")[0] for line in tasks) == [f"client {c}, task {t}" for c in range(5) for t in (1, 2)]
    assert all("100 numbers" in line for line in tasks)
    assert len({line.split("first ")[1] for line in tasks}) == 1
    assert last.startswith("10 predictions in ")


@pytest.mark.parametrize("sample", [NETWORK, RELU, ADD, ADD_INT64, TWO_OUTPUTS], ids=lambda item: Path(item.path).stem)
def test_it_computes_what_the_framework_did(sample):
    runner = _runner(sample)
    sample.check(runner.predict(_filled(runner, sample.inputs)))
    sample.check(runner.predict(tuple(_filled(runner, sample.inputs))))


def test_many_clients_get_their_own_answers():
    runner = _runner(RELU, workers=3)

    def client(number):
        random = np.random.default_rng(number)
        for _ in range(200):
            x = random.normal(size=(3, 5)).astype("f")
            (y,) = runner.predict(_filled(runner, [x]))
            np.testing.assert_array_equal(y.get_data_to_numpy(), np.maximum(x, 0))
        return number

    with ThreadPoolExecutor(8) as clients:
        assert list(clients.map(client, range(8))) == list(range(8))


def test_no_more_run_at_a_time_than_there_are_workers(monkeypatch):
    runner = _runner(RELU, workers=1)
    session, lock, inside, most = runner._pool._first._session, threading.Lock(), 0, 0
    run_any = session.run_any

    def watched(arrays, stoppable=None):
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        try:
            return run_any(arrays, stoppable)
        finally:
            with lock:
                inside -= 1

    monkeypatch.setattr(session, "run_any", watched, raising=False)
    tensors = _filled(runner, RELU.inputs)
    with ThreadPoolExecutor(4) as clients:
        list(clients.map(lambda _: runner.predict(tensors), range(100)))
    assert most == 1


def test_workers_and_threads_share_the_cores(monkeypatch):
    monkeypatch.setattr("litehouse.cores.budget.thread_budget", lambda: 8)
    assert (_runner(workers=0, threads=0)._pool.workers, _runner(workers=0, threads=2)._pool.workers) == (8, 4)
    pool = _runner(workers=4, threads=0)._pool
    assert (pool.workers, pool._first._session.options.threads) == (4, 2)
    pool = _runner(workers=3, threads=1)._pool
    assert (pool.workers, pool._first._session.options.threads) == (3, 1)


def test_without_a_context():
    runner = mslite.ModelParallelRunner()
    runner.build_from_file(NETWORK.path)
    NETWORK.check(runner.predict(_filled(runner, NETWORK.inputs)))


def test_other_sizes_need_no_resize():
    runner = _runner(RELU)
    for rows in (1, 3, 7, 3):
        x = np.random.default_rng(rows).normal(size=(rows, 5)).astype("f")
        (y,) = runner.predict([mslite.Tensor(x)])
        assert y.shape == [rows, 5]
        np.testing.assert_array_equal(y.get_data_to_numpy(), np.maximum(x, 0))


def test_a_dynamic_model():
    runner = _runner(DYNAMIC)
    assert runner.get_inputs()[0].shape == [-1, -1, 5]
    DYNAMIC.check(runner.predict([mslite.Tensor(DYNAMIC.inputs[0])]))


def test_outputs_own_their_memory_and_are_nchw():
    runner = _runner(RELU)
    (first,) = runner.predict(_filled(runner, RELU.inputs))
    kept = first.get_data_to_numpy().copy()
    runner.predict(_filled(runner, [np.ones_like(RELU.inputs[0])]))
    np.testing.assert_array_equal(first.get_data_to_numpy(), kept)
    assert first.format == mslite.Format.NCHW


def test_outputs_can_be_given():
    runner = _runner(RELU)
    given = [mslite.Tensor(np.zeros_like(RELU.outputs[0]))]
    assert runner.predict(_filled(runner, RELU.inputs), given) is given
    RELU.check(given)


def test_inputs_are_new_with_every_call_and_none_before_the_build():
    assert mslite.ModelParallelRunner().get_inputs() == []
    runner = _runner()
    assert runner.get_inputs()[0] is not runner.get_inputs()[0]


def test_it_can_be_built_again_with_another_file():
    runner = _runner(RELU)
    assert str(runner) == f"model_path: {RELU.path}."
    runner.build_from_file(ADD.path)
    ADD.check(runner.predict(_filled(runner, ADD.inputs)))


def test_the_configuration_of_the_workers_takes_effect(tmp_path):
    context = mslite.Context()
    context.parallel.workers_num = 1
    (tmp_path / "config.ini").write_text("[litehouse]\nengine=onnxruntime\nthreads=2\n")
    context.parallel.config_path = str(tmp_path / "config.ini")
    context.parallel.config_info = {"litehouse": {"threads": "1"}, "weight": {"weight_path": "ignored"}}
    runner = mslite.ModelParallelRunner()
    runner.build_from_file(RELU.path, context)
    options = runner._pool._first._session.options
    assert (options.engine, options.threads) == ("onnxruntime", 1)


def test_it_is_also_found_in_the_submodule():
    assert mslite.model.ModelParallelRunner is mslite.ModelParallelRunner
    assert str(mslite.ModelParallelRunner()) == "model_path: ."


# Errors, as seen on 2.0.0 ---------------------------------------------------------------------------------------------


def test_wrong_arguments_of_the_build(tmp_path):
    runner = mslite.ModelParallelRunner()
    with pytest.raises(TypeError, match=r"model_path must be str, but got <class 'int'>\."):
        runner.build_from_file(1)
    with pytest.raises(RuntimeError, match="ModelParallelRunner's build from file failed, model_path does not exist!"):
        runner.build_from_file(str(tmp_path / "none.mindir"))
    with pytest.raises(TypeError, match=r"context must be Context, but got <class 'str'>\."):
        runner.build_from_file(RELU.path, "cpu")
    (tmp_path / "broken.mindir").write_bytes(b"\x00" * 99)
    with pytest.raises(RuntimeError, match="ModelParallelRunner's build from file failed! Error is "):
        runner.build_from_file(str(tmp_path / "broken.mindir"))
    runner.build_from_file(RELU.path)  # it stays usable
    RELU.check(runner.predict(_filled(runner, RELU.inputs)))


def test_wrong_arguments_of_predict():
    runner = _runner(RELU)
    tensor = mslite.Tensor(RELU.inputs[0])
    with pytest.raises(TypeError, match=r"inputs must be list or tuple, but got <class 'int'>\."):
        runner.predict(1)
    with pytest.raises(TypeError, match=r"inputs element must be Tensor, but got <class 'numpy.ndarray'> at index 0\."):
        runner.predict([RELU.inputs[0]])
    with pytest.raises(RuntimeError, match="predict failed!"):
        runner.predict([tensor, tensor])
    with pytest.raises(RuntimeError, match=r"predict failed! .* must be float32, not int32"):
        runner.predict([mslite.Tensor(np.zeros((3, 5), "i4"))])
    with pytest.raises(RuntimeError, match="predict failed!"):
        runner.predict([mslite.Tensor(np.zeros((3, 5, 1), "f"))])
    with pytest.raises(RuntimeError, match=r"predict failed! Input .* has no data"):
        runner.predict(runner.get_inputs())
    with pytest.raises(TypeError, match=r"outputs must be list, bug got <class 'list'>\."):
        runner.predict([tensor], (tensor,))
    with pytest.raises(TypeError, match=r"outputs element must be Tensor, bug got <class 'int'> at index 1\."):
        runner.predict([tensor], [tensor, 1])
    with pytest.raises(RuntimeError, match="predict failed! The model has 1 outputs, not 2"):
        runner.predict([tensor], [tensor, tensor])
    RELU.check(runner.predict([tensor]))


def test_predict_before_the_build():
    with pytest.raises(RuntimeError, match="predict failed!"):
        mslite.ModelParallelRunner().predict([])
