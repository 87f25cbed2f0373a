"""Weights that are updated, shared between processes, and shared in groups, by the published API."""

import contextlib
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import mindspore_lite as mslite
from conftest import REPOSITORY

DIGITS = str(REPOSITORY / "examples" / "digits" / "model" / "digits.mindir")
WEIGHT, BIAS = "network.scores.weight", "network.scores.bias"
TUTORIAL = REPOSITORY.parent / "shared" / "tutorials" / "mindspore_lite_inference_zh.md"
IMAGES = np.random.default_rng(0).normal(size=(10, 1, 8, 8)).astype("f")


def _build(**arguments):
    model = mslite.Model()
    model.build_from_file(DIGITS, mslite.ModelType.MINDIR, **arguments)
    return model


def _run(model):
    inputs = model.get_inputs()
    inputs[0].set_data_from_numpy(IMAGES)
    return model.predict(inputs)[0].get_data_to_numpy()


def _tensor(array, name=""):
    tensor = mslite.Tensor(array)
    if name:
        tensor.name = name
    return tensor


def _shifted(scores, shift):
    """What the network gives when its last bias is larger by `shift`: it ends with a softmax."""
    whole = scores * np.exp(shift)
    return whole / whole.sum(axis=1, keepdims=True)


SHIFT = np.linspace(0, 2, 10, dtype="f")


@pytest.fixture
def bias():
    import litehouse

    return np.array(litehouse.read(DIGITS).weights[BIAS])


@pytest.fixture
def config(tmp_path):
    (tmp_path / "names.txt").write_text(f"{BIAS}\n")
    path = tmp_path / "config.ini"
    path.write_text('[ascend_context]\nvariable_weights_file="names.txt"\n')
    return str(path)


# Updates --------------------------------------------------------------------------------------------------------------


def test_the_published_flow(tmp_path, monkeypatch, config, bias):
    monkeypatch.chdir(tmp_path)
    context = mslite.Context()
    context.target = ["cpu"]
    model = mslite.Model()
    model.build_from_file(DIGITS, mslite.ModelType.MINDIR, context, "config.ini")
    before = _run(model)
    new_weight = mslite.Tensor(bias + SHIFT)
    new_weights = [new_weight]
    model.update_weights([new_weights])
    np.testing.assert_allclose(_run(model), _shifted(before, SHIFT), rtol=1e-4)


def test_names_beside_the_configuration_and_by_other_names(tmp_path, config, bias):
    model = _build(config_path=config)
    model.update_weights([[_tensor(bias + SHIFT, BIAS)]])
    expected = _shifted(_run(_build()), SHIFT)
    np.testing.assert_allclose(_run(model), expected, rtol=1e-4)
    (tmp_path / "other.txt").write_text(f"{WEIGHT}\n\n{BIAS},last_bias\n")
    for section in ("ascend_context", "gpu_context", "litehouse"):
        model = _build(config_dict={section: {"variable_weights_file": str(tmp_path / "other.txt")}})
        model.update_weights([[_tensor(bias + SHIFT, "last_bias")]])
        np.testing.assert_allclose(_run(model), expected, rtol=1e-4)


def test_nameless_tensors_go_by_the_order_of_the_names(tmp_path, bias):
    import litehouse

    (tmp_path / "names.txt").write_text(f"{WEIGHT}\n{BIAS}\n")
    model = _build(config_dict={"litehouse": {"variable_weights_file": str(tmp_path / "names.txt")}})
    weight = np.array(litehouse.read(DIGITS).weights[WEIGHT])
    model.update_weights([[_tensor(weight)], [_tensor(bias + SHIFT)]])
    np.testing.assert_allclose(_run(model), _shifted(_run(_build()), SHIFT), rtol=1e-4)
    with pytest.raises(RuntimeError, match="1 tensors without names were given for 2 updatable weights"):
        model.update_weights([[_tensor(weight)]])
    with pytest.raises(RuntimeError, match="the same name, or one has none"):
        model.update_weights([[_tensor(weight, WEIGHT), _tensor(bias)]])
    with pytest.raises(RuntimeError, match="the same name, or one has none"):
        model.update_weights([[_tensor(weight, WEIGHT), _tensor(weight, WEIGHT)]])
    (tmp_path / "names.txt").write_text(f"{BIAS},last_bias\n")
    model = _build(config_dict={"litehouse": {"variable_weights_file": str(tmp_path / "names.txt")}})
    with pytest.raises(RuntimeError, match="the same name, or one has none"):
        model.update_weights([[_tensor(bias, BIAS), _tensor(bias, "last_bias")]])


def test_checks_of_update_weights(config, bias):
    model = _build(config_path=config)
    with pytest.raises(TypeError, match=r"^weights must be list, but got <class 'tuple'>\.?$"):
        model.update_weights(())
    with pytest.raises(TypeError, match=r"^weight must be list, but got <class 'NoneType'>\.?$"):
        model.update_weights([None])
    with pytest.raises(TypeError, match=r"^weights element must be Tensor, but got <class 'int'> as index 01\.$"):
        model.update_weights([[_tensor(bias), 1]])
    with pytest.raises(RuntimeError, match=r"^update weight failed! Error is .*'nope'"):
        model.update_weights([[_tensor(bias, "nope")]])
    with pytest.raises(
        RuntimeError, match=r"^update weight failed! Error is .*must be float32 \[10\], not float32 \[9\]"
    ):
        model.update_weights([[_tensor(bias[:9], BIAS)]])
    with pytest.raises(RuntimeError, match="Session is null, please build model first!"):
        mslite.Model().update_weights([[_tensor(bias)]])
    for tensor in (_tensor(bias, BIAS), _tensor(bias)):
        with pytest.raises(RuntimeError, match="no weight is updatable: the configuration has no var"):
            _build().update_weights([[tensor]])


def test_configurations_that_cannot_be_used(tmp_path):
    with pytest.raises(RuntimeError, match=r"build_from_file failed! Error is .*none\.txt"):
        _build(config_dict={"ascend_context": {"variable_weights_file": str(tmp_path / "none.txt")}})
    (tmp_path / "names.txt").write_text("network.scores.bia\n")
    with pytest.raises(RuntimeError, match=r"no weight fits 'network.scores.bia'; is 'network.scores.bias'"):
        _build(config_dict={"ascend_context": {"variable_weights_file": str(tmp_path / "names.txt")}})
    with pytest.raises(RuntimeError, match="shareable_weight_pid_list must be numbers, not 'all'"):
        _build(config_dict={"ascend_context": {"shareable_weight_pid_list": "all"}})
    (tmp_path / "names.txt").write_bytes(b"\xff")
    with pytest.raises(RuntimeError, match=r"variable_weights_file '.*names\.txt' cannot be read: 'utf-8'"):
        _build(config_dict={"ascend_context": {"variable_weights_file": str(tmp_path / "names.txt")}})
    with pytest.raises(RuntimeError, match=r"has no key 'variable_weight_file'; use one of .*variable_weights_file"):
        _build(config_dict={"litehouse": {"variable_weight_file": "names.txt"}})
    with pytest.raises(TypeError, match="config_dict_pids must be str"):
        _build(config_dict={"pids": None})


def test_a_runner_switches_all_workers(config, bias):
    context = mslite.Context()
    context.parallel.workers_num = 2
    context.parallel.config_path = config
    runner = mslite.ModelParallelRunner()
    with pytest.raises(RuntimeError, match="The runner is not built"):
        runner.update_weights([[_tensor(bias)]])
    runner.build_from_file(DIGITS, context)
    before = _run(runner)
    runner.update_weights([[_tensor(bias + SHIFT)]])
    for _ in range(8):
        np.testing.assert_allclose(_run(runner), _shifted(before, SHIFT), rtol=1e-4)


@pytest.mark.parametrize("entry", [{"shareable_weight_pid_list": "1"}, {"shareable_weight_mem_handle": "5"}])
def test_a_runner_shares_with_no_other_process(entry):
    context = mslite.Context()
    context.parallel.config_info = {"ascend_context": entry}
    with pytest.raises(RuntimeError, match="memory of a Model, not of a ModelParallelRunner"):
        mslite.ModelParallelRunner().build_from_file(DIGITS, context)


# Processes ------------------------------------------------------------------------------------------------------------


def test_the_process_is_told_before_the_model_is_built():
    assert mslite.Model().get_model_info("current_pid") == str(os.getpid())
    assert mslite.Model().get_model_info("shareable_weight_mem_handle") == ""
    assert _build().get_model_info("shareable_weight_mem_handle") == ""


@pytest.mark.parametrize("form", ["ascend_context", "gpu_context", "beside", "list"])
def test_models_share_memory_by_handle(form, bias):
    pids = [0, os.getpid()] if form == "list" else f"0, {os.getpid()}"
    is_section = form.endswith("context")
    owner = _build(config_dict={form: {"shareable_weight_pid_list": pids}} if is_section else {"pids": pids})
    handle = owner.get_model_info("shareable_weight_mem_handle")
    assert 0 < int(handle) < 2**63
    given = {"shared_mem_handle": int(handle)}
    if is_section:
        given = {form: {"shareable_weight_mem_handle": handle}}
    other = _build(config_dict=given)
    np.testing.assert_allclose(_run(other), _run(_build()), rtol=1e-4)
    inputs = other.get_inputs()
    other.resize(inputs, [[3, 1, 8, 8]])
    inputs[0].set_data_from_numpy(IMAGES[:3])
    np.testing.assert_allclose(other.predict(inputs)[0].get_data_to_numpy(), _run(owner)[:3], rtol=1e-4)
    with pytest.raises(RuntimeError, match="belong to the process that shares them; update them there"):
        other.update_weights([[_tensor(bias)]])
    with pytest.raises(RuntimeError, match="build_from_file failed! Error is nobody offers weights under the handle 7"):
        _build(config_dict={"shared_mem_handle": "7"})


@pytest.mark.skipif(not TUTORIAL.exists(), reason="the tutorials are not beside the checkout")
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_the_published_program_of_several_processes(tmp_path, device, request):
    if device == "gpu":
        request.getfixturevalue("gpu")
    text = TUTORIAL.read_text(encoding="utf-8")
    (program,) = (code for code in re.findall(r"```python\n(.*?)```", text, re.S) if "PROCESS_NUM" in code)
    given = "[np.random.randn(1,8,168,128).astype(np.float32), np.random.randn(1).astype(np.int32)]"
    for old, new in (
        ('"path_to_your_mindir"', repr(DIGITS)),
        ("device_type='ascend'", f"device_type='{device}'"),
        (given, "[np.ones((10, 1, 8, 8), np.float32)]"),  # what this model takes
    ):
        assert program.count(old) == 1
        program = program.replace(old, new)
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # a line at a time
    command = [sys.executable, tmp_path / "program.py"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)
    try:
        printed, errors = process.communicate(timeout=600)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # those that it started wait for each other, if one fails
    assert process.returncode == 0, errors
    results = [re.sub(r"\s+", " ", each) for each in re.findall(r"share  \d   (\[array.*?\)\])", printed, re.S)]
    assert len(results) == 3
    assert len(set(results)) == 1


# Groups ---------------------------------------------------------------------------------------------------------------


def test_flags():
    assert [(flag.name, flag.value) for flag in mslite.ModelGroupFlag] == [
        ("SHARE_WEIGHT", 1),
        ("SHARE_WORKSPACE", 2),
        ("SHARE_WEIGHT_WORKSPACE", 3),
    ]
    with pytest.raises(RuntimeError, match=r"^Parameter flags should be ModelGroupFlag\.SHARE_WORKSPACE or"):
        mslite.ModelGroup(1)


@pytest.mark.parametrize("flag", ["SHARE_WEIGHT", "SHARE_WEIGHT_WORKSPACE"])
def test_models_of_a_group_share_weights(flag):
    expected = _run(_build())
    group = mslite.ModelGroup(mslite.ModelGroupFlag[flag])
    models = [mslite.Model(), mslite.Model()]
    group.add_model(models)
    for model in models:
        model.build_from_file(DIGITS, mslite.ModelType.MINDIR)
        alone = group._arena.nbytes
        np.testing.assert_allclose(_run(model), expected, rtol=1e-4)
    assert 0 < alone == group._arena.nbytes
    built = _build()
    group.add_model((built,))
    np.testing.assert_allclose(_run(built), expected, rtol=1e-4)
    assert group._arena.nbytes == alone
    with pytest.raises(RuntimeError, match=r"^ModelGroup's add model failed\. "):
        mslite.ModelGroup(mslite.ModelGroupFlag.SHARE_WEIGHT).add_model(models)


@pytest.mark.usefixtures("gpu")
def test_models_of_a_group_share_weights_on_a_gpu():
    expected = _run(_build())
    group, models = mslite.ModelGroup(mslite.ModelGroupFlag.SHARE_WEIGHT), [mslite.Model(), mslite.Model()]
    group.add_model(models)
    context = mslite.Context()
    context.target = ["gpu"]
    for model in models:
        model.build_from_file(DIGITS, mslite.ModelType.MINDIR, context)
        np.testing.assert_allclose(_run(model), expected, rtol=1e-3, atol=1e-4)
    first, second = (model._session.loaded.built.program.arena for model in models)
    assert second.memory.numel() == 1 < first.memory.numel()  # nothing is there twice


def test_models_of_a_group_share_the_workspace():
    group = mslite.ModelGroup()
    group.add_model([DIGITS])
    group.cal_max_size_of_workspace(mslite.ModelType.MINDIR, mslite.Context())
    model = _build()
    assert model._session.options.workspace == "shared"
    np.testing.assert_allclose(_run(model).sum(axis=1), 1, rtol=1e-4)
    with pytest.raises(RuntimeError, match=r"^ModelGroup's cal max size of workspace failed\."):
        group.cal_max_size_of_workspace(mslite.ModelType.MINDIR_LITE, mslite.Context())
    del group, model
    assert _build()._session.options.workspace == "own"


def test_checks_of_groups(tmp_path):
    weights, workspace = mslite.ModelGroup(mslite.ModelGroupFlag.SHARE_WEIGHT), mslite.ModelGroup()
    for wrong in (DIGITS, None, {}):
        with pytest.raises(TypeError, match="models must be list/tuple, but got"):
            workspace.add_model(wrong)
    with pytest.raises(RuntimeError, match="models cannot be empty"):
        workspace.add_model([])
    with pytest.raises(TypeError, match=r"models element must be all str or Model, but got <class 'int'> at index 1\."):
        workspace.add_model([DIGITS, 1])
    with pytest.raises(TypeError, match=r"must be all str or Model, but got .*Model'> at index 1\."):
        workspace.add_model([DIGITS, mslite.Model()])
    for group, models in ((weights, [DIGITS]), (workspace, [mslite.Model()])):
        with pytest.raises(RuntimeError, match=r"^ModelGroup's add model failed\. "):
            group.add_model(models)
    with pytest.raises(TypeError, match="context must be Context"):
        workspace.cal_max_size_of_workspace(mslite.ModelType.MINDIR, None)
    with pytest.raises(TypeError, match="model_type must be ModelType"):
        workspace.cal_max_size_of_workspace("MINDIR", mslite.Context())
    with pytest.raises(RuntimeError, match="cal max size of workspace failed"):
        workspace.cal_max_size_of_workspace(mslite.ModelType.MINDIR, mslite.Context())
    workspace.add_model([str(tmp_path / "none.mindir")])
    with pytest.raises(RuntimeError, match="cal max size of workspace failed"):
        workspace.cal_max_size_of_workspace(mslite.ModelType.MINDIR, mslite.Context())
