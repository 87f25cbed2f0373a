"""How a context and a configuration become the options of the core, and that these take effect."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from facades.mindspore_lite.support import NETWORK, RELU

import mindspore_lite as mslite
from litehouse import Job
from mindspore_lite._options import make_options, read_sections


def options(sections=None, **settings):
    context = mslite.Context()
    for name, value in settings.items():
        owner, _, attribute = name.partition("__")
        if attribute:
            setattr(getattr(context, owner), attribute, value)
        else:
            setattr(context, owner, value)
    return make_options(context, sections or {})


@pytest.mark.parametrize(
    ("settings", "field", "value"),
    [
        ({}, "device", "cpu"),
        ({"target": ["CPU"]}, "device", "cpu"),
        ({"target": ["gpu"]}, "device", "gpu:0"),
        ({"target": ["GPU"], "gpu__device_id": 2}, "device", "gpu:2"),
        ({"target": ["cpu", "gpu"]}, "device", "gpu:0"),
        ({"target": ["Ascend", "gpu"], "ascend__device_id": 1}, "device", "ascend:1"),
        ({}, "threads", 0),
        ({"cpu__thread_num": 3}, "threads", 3),
        ({}, "inter_op", 0),
        ({"cpu__inter_op_parallel_num": 2}, "inter_op", 2),
        ({"cpu__inter_op_parallel_num": 2, "cpu__thread_num": 2}, "inter_op", 2),
        ({}, "affinity", ()),
        ({"cpu__thread_affinity_mode": 1}, "affinity", "big"),
        ({"cpu__thread_affinity_mode": 2}, "affinity", "mid"),
        ({"cpu__thread_affinity_core_list": [1, 0]}, "affinity", (1, 0)),
        ({"cpu__thread_affinity_core_list": [1], "cpu__thread_affinity_mode": 2}, "affinity", (1,)),
        ({}, "precision", "fp32"),
        ({"cpu__precision_mode": "preferred_fp16"}, "precision", "fp16"),
        ({"gpu__precision_mode": "preferred_fp16"}, "precision", "fp32"),
        ({"target": ["gpu"], "gpu__precision_mode": "preferred_fp16"}, "precision", "fp16"),
        ({"target": ["ascend"], "ascend__precision_mode": "enforce_fp16"}, "precision", "fp16"),
        ({"target": ["ascend"], "ascend__precision_mode": "preferred_fp32"}, "precision", "fp32"),
        ({"target": ["gpu"]}, "provider", ""),
        ({"target": ["gpu"], "gpu__provider": "tensorrt"}, "provider", "tensorrt"),
        ({"target": ["gpu"], "gpu__provider": "cuda"}, "provider", "cuda"),
        ({"gpu__provider": "tensorrt"}, "provider", ""),  # it is for another target
        ({"target": ["ascend"], "ascend__provider": "ge"}, "provider", ""),
        ({"target": ["ascend"], "gpu__provider": "tensorrt"}, "provider", ""),
    ],
)
def test_context(settings, field, value):
    assert getattr(options(**settings), field) == value


@pytest.mark.parametrize(
    ("entries", "field", "value"),
    [
        ({"engine": "onnxruntime"}, "engine", "onnxruntime"),
        ({"threads": "2"}, "threads", 2),
        ({"threads": "3", "inter_op": "2"}, "inter_op", 2),
        ({"precision": "fp16"}, "precision", "fp16"),
        ({"cache": "somewhere"}, "cache", Path("somewhere")),
        ({"cache": "off"}, "cache", False),
        ({"tune": "full"}, "tune", "full"),
        ({"build_seconds": "2.5"}, "build_seconds", 2.5),
    ],
)
def test_section_wins_over_the_context(entries, field, value):
    assert getattr(options({"litehouse": entries}, cpu__thread_num=1), field) == value


def test_other_sections_are_read_over():
    sections = {"common_context": {"threads": "7"}, "ascend_context": {"op": "data_type:float16"}}
    assert options(sections).threads == 0
    assert options(sections).op_precision == {}


GPU = {"target": ["gpu"]}
HALF = {"gpu_context": {"precision_mode": "preferred_fp16"}}


@pytest.mark.parametrize(
    ("sections", "settings", "field", "value"),
    [
        (HALF, GPU, "precision", "fp16"),
        (
            {"gpu_context": {"precision_mode": "enforce_fp32"}},
            GPU | {"gpu__precision_mode": "preferred_fp16"},
            "precision",
            "fp32",
        ),
        (HALF, {}, "precision", "fp32"),  # it is for another target
        (HALF | {"litehouse": {"precision": "fp32"}}, GPU, "precision", "fp32"),
        ({"gpu_context": {"input_shape": "x:[1,2]", "dynamic_dims": "[1~4]"}}, GPU, "precision", "fp32"),  # read over
        ({"ms_cache": {"serialize_path": "engines"}}, GPU, "cache", Path("engines")),
        ({"ms_cache": {"serialize_path": ""}}, GPU, "cache", True),
        ({"ms_cache": {"serialize_path": "engines"}}, {}, "cache", True),
        ({"ms_cache": {"serialize_path": "engines"}, "litehouse": {"cache": "off"}}, GPU, "cache", False),
        ({"ms_cache": {"engine_path": "engines"}}, GPU, "cache", True),
        ({"litehouse": {"provider": "cuda"}}, GPU | {"gpu__provider": "tensorrt"}, "provider", "cuda"),
    ],
)
def test_sections_for_a_gpu(sections, settings, field, value):
    assert getattr(options(sections, **settings), field) == value


def test_bad_sections_for_a_gpu():
    with pytest.raises(
        ValueError, match=r"^\[gpu_context\] precision_mode must be enforce_fp32 or preferred_fp16, not"
    ):
        options({"gpu_context": {"precision_mode": "x"}}, **GPU)
    with pytest.raises(ValueError, match="provider must be one of"):
        options({"litehouse": {"provider": "ge"}}, **GPU)


def test_execution_plan():
    plan = {"Default/conv-op1": "data_type:float16", "Default/add": "data_type: float32"}
    assert options({"execution_plan": plan}).op_precision == {"Default/conv-op1": "float16", "Default/add": "float32"}


@pytest.mark.parametrize("text", ["float16", "data_type=float16", "data_type:int8", "type:float16"])
def test_bad_execution_plan(text):
    with pytest.raises(
        ValueError, match=r"data_type:float16 or data_type:float32|must be one of \('float16', 'float32'\)"
    ):
        options({"execution_plan": {"Default/conv-op1": text}})


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        (
            {"thread": "2"},
            "no key 'thread'; use one of engine, threads, inter_op, precision, tune, updatable_mode, cache",
        ),
        ({"threads": "two"}, "threads must be a number, not 'two'"),
        ({"threads": "-1"}, "threads must be"),
        ({"engine": "abacus"}, "engine must be"),
        ({"rank": "1"}, "no key 'rank'; use one of .*, rank_id, rank_size, rank_address, rank_port, rank_timeout"),
        ({"rank_id": "one"}, "rank_id must be a number, not 'one'"),
        ({"rank_id": "-1"}, "rank must be an int from 0"),
        ({"rank_id": "2", "rank_size": "2"}, "rank must be less than size"),
        ({"rank_port": "99999"}, "port must be"),
        ({"rank_timeout": "nan"}, "timeout must be"),
        ({"rank_timeout": "soon"}, "rank_timeout must be a number"),
        ({"rank_transport": "pigeon"}, "transport must be one of"),
        ({"threads": "1", "inter_op": "2"}, "inter_op_parallel_num 2 is more than thread_num 1"),
    ],
)
def test_bad_section(entries, text):
    with pytest.raises(ValueError, match=text):
        options({"litehouse": entries})


@pytest.mark.parametrize(
    ("settings", "sections", "job"),
    [
        ({}, {}, Job()),
        ({"ascend__rank_id": 0}, {}, Job(rank=0)),  # the default is 0, too, but means nothing
        ({"ascend__rank_id": 1}, {}, Job(rank=1)),
        ({"ascend__rank_id": True}, {}, Job(rank=1)),
        ({"ascend__rank_id": 1}, {"litehouse": {"rank_id": "2", "rank_size": "4"}}, Job(rank=2, size=4)),
        ({"ascend__rank_id": 1}, {"ascend_context": {"rank_table_file": "t.json"}}, Job(rank=1, rank_table="t.json")),
        ({"group_info_file": "groups.pb"}, {}, Job(groups="groups.pb")),
        (
            {},
            {
                "litehouse": {
                    "rank_address": "host",
                    "rank_port": "7000",
                    "rank_timeout": "2.5",
                    "rank_transport": "gloo",
                }
            },
            Job(address="host", port=7000, timeout=2.5, transport="gloo"),
        ),
        ({}, {"common_context": {"rank_id": "1"}}, Job()),
    ],
)
def test_ranks(settings, sections, job):
    assert options(sections, **settings).job == job


def test_a_rank_table_beside_the_configuration(tmp_path, monkeypatch):
    sections = {"ascend_context": {"rank_table_file": "table.json"}}
    config = str(tmp_path / "config.ini")
    assert make_options(mslite.Context(), sections, config).job.rank_table == "table.json"
    (tmp_path / "table.json").write_text("{}")
    assert make_options(mslite.Context(), sections, config).job.rank_table == str(tmp_path / "table.json")
    monkeypatch.chdir(tmp_path)
    assert make_options(mslite.Context(), sections, config).job.rank_table == "table.json"


@pytest.mark.parametrize("way", ["file", "dict", "runner"])
def test_a_rank_table_reaches_the_model(tmp_path, monkeypatch, way):
    (tmp_path / "table.json").write_text("{}")
    config = tmp_path / "config.ini"
    config.write_text("[ascend_context]\nrank_table_file=table.json\n" if way != "dict" else "")
    sections = {"ascend_context": {"rank_table_file": "table.json"}} if way == "dict" else None
    context = mslite.Context()
    context.ascend.rank_id = 3
    if way == "runner":
        made = []
        pool = mslite._runner.Pool
        monkeypatch.setattr(mslite._runner, "Pool", lambda *a, **k: made.append(k["options"]) or pool(*a, **k))
        context.parallel.workers_num = 1
        context.parallel.config_path = str(config)
        mslite.ModelParallelRunner().build_from_file(RELU.path, context)
        job = made[0].job
    else:
        model = mslite.Model()
        model.build_from_file(RELU.path, mslite.ModelType.MINDIR, context, str(config), sections)
        job = model._session.options.job
    assert job == Job(rank=3, rank_table=str(tmp_path / "table.json"))


def test_more_ops_side_by_side_than_threads():
    with pytest.raises(ValueError, match="inter_op_parallel_num 4 is more than thread_num 2"):
        options(cpu__thread_num=2, cpu__inter_op_parallel_num=4)


@pytest.mark.parametrize(
    ("content", "sections"),
    [
        (b"", {}),
        (b"[a]\nx=1\ny = 2 \n[b]\nz=3=4\n", {"a": {"x": "1", "y": "2"}, "b": {"z": "3=4"}}),
        (b"# note\n; note\n[a]\n#x=1\nx=2\n", {"a": {"x": "2"}}),
        (b"[a]\r\nx=1\r\n", {"a": {"x": "1"}}),
        (
            b'[ascend_context]\nvariable_weights_file="names.txt"\n',
            {"ascend_context": {"variable_weights_file": "names.txt"}},
        ),
        (b"[a]\nx=1\n[b]\n[a]\nx=2\n", {"a": {"x": "2"}, "b": {}}),
        (b"x=1\nnot an ini at all\n", {}),  # accepted by 2.0.0, too
        (b"\xff\xfe\x00\x01[\n]\n=\n", {}),
    ],
)
def test_configuration_file(tmp_path, content, sections):
    path = tmp_path / "config.ini"
    path.write_bytes(content)
    assert read_sections(str(path)) == sections


def run(path, settings):
    """Build a model in a process of its own; give, for each thread that appeared, the cores that it may use."""
    program = f"""
import os, pathlib
import onnxruntime, numpy
import mindspore_lite as mslite

def threads():
    return {{task.name: task for task in pathlib.Path("/proc/self/task").iterdir()}}

context = mslite.Context()
{settings}
model = mslite.Model()
before = threads()
config = {{"litehouse": {{"engine": "onnxruntime"}}}}
model.build_from_file({path!r}, mslite.ModelType.MINDIR, context, config_dict=config)
for name, task in threads().items():
    if name not in before:
        status = (task / "status").read_text()
        print(status.split("Cpus_allowed_list:")[1].split()[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_thread_num_takes_effect():
    assert len(run(RELU.path, "context.cpu.thread_num = 1")) == 0
    assert len(run(RELU.path, "context.cpu.thread_num = 4")) == 3


def test_inter_op_takes_effect():
    settings = "context.cpu.thread_num = 2\ncontext.cpu.inter_op_parallel_num = 2"
    assert len(run(RELU.path, settings)) > len(run(RELU.path, "context.cpu.thread_num = 2"))


def test_core_list_takes_effect():
    core = max(os.sched_getaffinity(0))
    settings = f"context.cpu.thread_num = 2\ncontext.cpu.thread_affinity_core_list = [{core}]"
    assert run(RELU.path, settings) == [str(core)]


def test_lower_precision_is_allowed():
    context = mslite.Context()
    context.cpu.precision_mode = "preferred_fp16"
    model = NETWORK.build(context)
    assert model._session.options.precision == "fp16"
    (output,) = model.predict(NETWORK.inputs)
    assert output.dtype is mslite.DataType.FLOAT32
    np.testing.assert_allclose(output.get_data_to_numpy(), NETWORK.outputs[0], atol=0.05)
