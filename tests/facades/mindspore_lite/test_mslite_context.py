"""`Context` and its parts: values, refusals and texts. All of it was seen on 2.0.0 unless a line says "master"."""

import logging

import numpy as np
import pytest

import mindspore_lite as mslite

INT = "<class 'int'>"
STR = "<class 'str'>"
FLOAT = "<class 'float'>"
NONE = "<class 'NoneType'>"
INT32 = "<class 'numpy.int32'>"


@pytest.fixture
def context():
    return mslite.Context()


def part(context, name):
    return context if name == "context" else getattr(context, name)


DEFAULTS = [
    ("context", "target", ["cpu"]),
    ("context", "group_info_file", ""),  # master
    ("cpu", "thread_num", 0),
    ("cpu", "inter_op_parallel_num", 0),
    ("cpu", "thread_affinity_mode", 0),
    ("cpu", "thread_affinity_core_list", []),
    ("cpu", "precision_mode", "enforce_fp32"),
    ("gpu", "device_id", 0),
    ("gpu", "rank_id", 0),
    ("gpu", "group_size", 1),
    ("gpu", "precision_mode", "enforce_fp32"),
    ("gpu", "provider", ""),  # a plain attribute there
    ("ascend", "device_id", 0),
    ("ascend", "precision_mode", ""),
    ("ascend", "rank_id", 0),  # master
    ("ascend", "provider", ""),  # master
    ("parallel", "workers_num", 0),
    ("parallel", "config_info", ""),
    ("parallel", "config_path", ""),
    ("parallel", "device_ids", []),  # master
]


@pytest.mark.parametrize(("owner", "name", "value"), DEFAULTS)
def test_default(context, owner, name, value):
    assert getattr(part(context, owner), name) == value


ACCEPTED = [
    ("context", "target", None, ["cpu"]),
    ("context", "target", [], ["cpu"]),
    ("context", "target", (), ["cpu"]),
    ("context", "target", "", ["cpu"]),
    ("context", "target", ["CPU"], ["CPU"]),
    ("context", "target", ["gpu"], ["gpu"]),
    ("context", "target", ["Ascend", "cpu", "cpu"], ["Ascend", "cpu", "cpu"]),
    ("context", "group_info_file", "groups.json", "groups.json"),  # master
    ("cpu", "thread_num", 4, 4),
    ("cpu", "thread_num", 1000, 1000),
    ("cpu", "thread_num", True, 1),
    ("cpu", "inter_op_parallel_num", 2, 2),
    ("cpu", "inter_op_parallel_num", True, 1),
    ("cpu", "thread_affinity_mode", 1, 1),
    ("cpu", "thread_affinity_mode", 2, 2),
    ("cpu", "thread_affinity_mode", -1, 0),
    ("cpu", "thread_affinity_mode", 5, 0),
    ("cpu", "thread_affinity_core_list", [0, 1], [0, 1]),
    ("cpu", "thread_affinity_core_list", [-1], [-1]),
    ("cpu", "thread_affinity_core_list", [True], [1]),
    ("cpu", "precision_mode", "preferred_fp16", "preferred_fp16"),
    ("gpu", "device_id", 3, 3),
    ("gpu", "device_id", True, 1),
    ("gpu", "precision_mode", "preferred_fp16", "preferred_fp16"),
    ("gpu", "provider", "tensorrt", "tensorrt"),
    ("gpu", "provider", "cuda", "cuda"),
    ("gpu", "provider", "", ""),
    ("ascend", "device_id", 3, 3),
    ("ascend", "precision_mode", "enforce_fp32", "enforce_fp32"),
    ("ascend", "precision_mode", "preferred_fp32", "preferred_fp32"),
    ("ascend", "precision_mode", "enforce_fp16", "enforce_fp16"),
    ("ascend", "precision_mode", "enforce_origin", "enforce_origin"),
    ("ascend", "precision_mode", "preferred_optimal", "preferred_optimal"),
    ("ascend", "rank_id", 2, 2),  # master
    ("ascend", "provider", "ge", "ge"),  # master
    ("ascend", "provider", "", ""),  # master
    ("parallel", "workers_num", 3, 3),
    ("parallel", "workers_num", True, 1),
    ("parallel", "config_info", {}, ""),
    ("parallel", "config_info", {"b": {"k": "v", "a": "w"}}, "b: a w\nk v"),
    ("parallel", "config_path", "", ""),
    ("parallel", "device_ids", [0, 1], [0, 1]),  # master
]


@pytest.mark.parametrize(("owner", "name", "value", "seen"), ACCEPTED)
def test_accepted(context, owner, name, value, seen):
    setattr(part(context, owner), name, value)
    got = getattr(part(context, owner), name)
    assert got == seen
    assert type(got) is type(seen)


ASCEND_MODES = "[enforce_fp32, preferred_fp32, enforce_fp16, enforce_origin, preferred_optimal]"

REFUSED = [
    ("context", "target", "cpu", TypeError, f"target must be list, but got {STR}."),
    ("context", "target", ("cpu",), TypeError, "target must be list, but got <class 'tuple'>."),
    ("context", "target", 5, TypeError, f"target must be list, but got {INT}."),
    ("context", "target", ["cpu", 1], TypeError, f"target element must be str, but got {INT} at index 1."),
    ("context", "target", ["npu", 1], TypeError, f"target element must be str, but got {INT} at index 1."),
    ("context", "target", ["NPU"], ValueError, "target elements must be in ['cpu', 'gpu', 'ascend'], but got npu."),
    ("context", "group_info_file", 1, TypeError, f"group_info_file must be str, but got {INT}."),  # master
    ("cpu", "thread_num", -1, ValueError, "cpu_thread_num must be a non-negative int."),
    ("cpu", "thread_num", 1.0, TypeError, f"cpu_thread_num must be int, but got {FLOAT}."),
    ("cpu", "thread_num", "1", TypeError, f"cpu_thread_num must be int, but got {STR}."),
    ("cpu", "thread_num", None, TypeError, f"cpu_thread_num must be int, but got {NONE}."),
    ("cpu", "thread_num", np.int32(3), TypeError, f"cpu_thread_num must be int, but got {INT32}."),
    ("cpu", "inter_op_parallel_num", -1, ValueError, "cpu_inter_op_parallel_num must be a non-negative int."),
    ("cpu", "inter_op_parallel_num", "1", TypeError, f"cpu_inter_op_parallel_num must be int, but got {STR}."),
    ("cpu", "thread_affinity_mode", 1.0, TypeError, f"cpu_thread_affinity_mode must be int, but got {FLOAT}."),
    ("cpu", "thread_affinity_mode", None, TypeError, f"cpu_thread_affinity_mode must be int, but got {NONE}."),
    (
        "cpu",
        "thread_affinity_core_list",
        (0,),
        TypeError,
        "cpu_thread_affinity_core_list must be list, but got <class 'tuple'>.",
    ),
    (
        "cpu",
        "thread_affinity_core_list",
        [0, "a"],
        TypeError,
        f"cpu_thread_affinity_core_list element must be int, but got {STR} at index 1.",
    ),
    (
        "cpu",
        "thread_affinity_core_list",
        [np.int32(1)],
        TypeError,
        f"cpu_thread_affinity_core_list element must be int, but got {INT32} at index 0.",
    ),
    (
        "cpu",
        "precision_mode",
        "preferred_fp32",
        ValueError,
        "cpu_precision_mode must be in [enforce_fp32, preferred_fp16], but got preferred_fp32.",
    ),
    (
        "cpu",
        "precision_mode",
        "",
        ValueError,
        "cpu_precision_mode must be in [enforce_fp32, preferred_fp16], but got .",
    ),
    ("cpu", "precision_mode", None, TypeError, f"cpu_precision_mode must be str, but got {NONE}."),
    ("gpu", "device_id", -1, ValueError, "gpu_device_id must be a non-negative int."),
    ("gpu", "device_id", "a", TypeError, f"gpu_device_id must be int, but got {STR}."),
    ("gpu", "device_id", np.int32(1), TypeError, f"gpu_device_id must be int, but got {INT32}."),
    (
        "gpu",
        "precision_mode",
        "x",
        ValueError,
        "gpu_precision_mode must be in [enforce_fp32, preferred_fp16], but got x.",
    ),
    ("gpu", "precision_mode", 1, TypeError, f"gpu_precision_mode must be str, but got {INT}."),
    ("gpu", "provider", "ge", ValueError, "gpu_provider must be in [tensorrt, cuda], but got ge."),
    ("gpu", "provider", None, TypeError, f"gpu_provider must be str, but got {NONE}."),
    ("gpu", "rank_id", 1, AttributeError, "can't set attribute"),
    ("gpu", "group_size", 1, AttributeError, "can't set attribute"),
    ("ascend", "device_id", -1, ValueError, "ascend_device_id must be a non-negative int."),
    ("ascend", "device_id", None, TypeError, f"ascend_device_id must be int, but got {NONE}."),
    (
        "ascend",
        "precision_mode",
        "preferred_fp16",
        ValueError,
        f"ascend_precision_mode must be in {ASCEND_MODES}, but got preferred_fp16.",
    ),
    ("ascend", "precision_mode", "", ValueError, f"ascend_precision_mode must be in {ASCEND_MODES}, but got ."),
    ("ascend", "precision_mode", 1, TypeError, f"ascend_precision_mode must be str, but got {INT}."),
    ("ascend", "rank_id", -1, ValueError, "ascend_rank_id must be a non-negative int."),  # master
    ("ascend", "rank_id", "1", TypeError, f"ascend_rank_id must be int, but got {STR}."),  # master
    ("ascend", "provider", 1, TypeError, f"ascend_provider must be str, but got {INT}."),  # master
    ("parallel", "workers_num", -1, ValueError, "Set parallel failed, workers_num must be a non-negative int."),
    ("parallel", "workers_num", "a", TypeError, f"workers_num must be int, but got {STR}."),
    ("parallel", "config_info", None, TypeError, f"config_info must be dict, but got {NONE}."),
    ("parallel", "config_info", {1: {}}, TypeError, f"config_info_key must be str, but got {INT}."),
    ("parallel", "config_info", {"a": 1}, TypeError, f"config_info_value must be dict, but got {INT}."),
    ("parallel", "config_info", {"a": {1: "x"}}, TypeError, f"config_info_value_key must be str, but got {INT}."),
    ("parallel", "config_info", {"a": {"x": 1}}, TypeError, f"config_info_value_value must be str, but got {INT}."),
    ("parallel", "config_path", None, TypeError, f"config_path must be str, but got {NONE}."),
    ("parallel", "config_path", "no/such/file", ValueError, "Set parallel failed, config_path does not exist!"),
    ("parallel", "device_ids", (0,), TypeError, "device_ids must be list, but got <class 'tuple'>."),  # master
    ("parallel", "device_ids", ["0"], TypeError, f"device_ids element must be int, but got {STR} at index 0."),
    ("parallel", "device_ids", [-1], ValueError, "Set parallel failed, device_ids contain a negative number."),
]


@pytest.mark.parametrize(("owner", "name", "value", "error", "text"), REFUSED)
def test_refused_and_left_as_it_was(context, owner, name, value, error, text):
    before = getattr(part(context, owner), name)
    with pytest.raises(error) as caught:
        setattr(part(context, owner), name, value)
    assert str(caught.value) == text
    assert getattr(part(context, owner), name) == before


def test_takes_no_argument():
    with pytest.raises(TypeError):
        mslite.Context(1)


def test_a_provider_can_be_taken_back(context):
    context.gpu.provider = "tensorrt"
    context.gpu.provider = ""
    assert context.gpu.provider == ""


def test_failed_target_keeps_the_former_one(context):
    context.target = ["Ascend"]
    with pytest.raises(ValueError, match="but got npu"):
        context.target = ["npu"]
    assert context.target == ["Ascend"]


@pytest.mark.parametrize("owner", ["cpu", "gpu", "ascend", "parallel"])
def test_unknown_attributes_are_accepted(context, owner):
    part(context, owner).enable_fp16 = False
    assert part(context, owner).enable_fp16 is False


def test_parts_stay_the_same_objects(context):
    assert context.cpu is context.cpu
    assert context.cpu is not mslite.Context().cpu


def test_core_list_is_copied_both_ways(context):
    given = [0, 1]
    context.cpu.thread_affinity_core_list = given
    given.append(3)
    context.cpu.thread_affinity_core_list.append(4)
    assert context.cpu.thread_affinity_core_list == [0, 1]


def test_unknown_affinity_mode_is_logged(context, caplog):
    with caplog.at_level(logging.WARNING, logger="mindspore_lite"):
        context.cpu.thread_affinity_mode = 7
    assert "thread_affinity_mode 7" in caplog.text


def test_config_info_accumulates(context):
    context.parallel.config_info = {"b": {"k": "v", "a": "w"}}
    context.parallel.config_info = {"a": {"z": "1"}}
    context.parallel.config_info = {}
    assert context.parallel.config_info == "a: z 1\nb: a w\nk v"
    context.parallel.config_info = {"a": {}, "b": {"q": "r"}}
    assert context.parallel.config_info == "a: b: q r"


def test_config_path_keeps_the_former_one_on_an_empty_text(context, tmp_path):
    path = str(tmp_path)
    context.parallel.config_path = path
    context.parallel.config_path = ""
    assert context.parallel.config_path == path


def test_texts(context):
    context.target = ["Ascend", "cpu"]
    assert str(context) == "target: ['Ascend', 'cpu']."
    assert str(context.cpu) == (
        "device_type: DeviceType.kCPU,\n"
        "precision_mode: enforce_fp32,\n"
        "thread_num: 0,\n"
        "inter_op_parallel_num: 0,\n"
        "thread_affinity_mode: 0,\n"
        "thread_affinity_core_list: []."
    )
    assert str(context.gpu) == (
        "device_type: DeviceType.kGPU,\nprecision_mode: enforce_fp32,\ndevice_id: 0,\nrank_id: 0,\ngroup_size: 1."
    )
    assert str(context.ascend) == (  # master
        "device_type: DeviceType.kAscend,\nprecision_mode: ,\ndevice_id: 0.provider: .rank_id: 0."
    )
    assert str(context.parallel) == "workers num: 0,\nconfig info: ,\nconfig file: ."


def test_text_of_a_changed_cpu(context):
    context.cpu.thread_num = 5
    context.cpu.inter_op_parallel_num = 2
    context.cpu.thread_affinity_mode = 1
    context.cpu.thread_affinity_core_list = [0, 1]
    context.cpu.precision_mode = "preferred_fp16"
    assert str(context.cpu).splitlines()[1:] == [
        "precision_mode: preferred_fp16,",
        "thread_num: 5,",
        "inter_op_parallel_num: 2,",
        "thread_affinity_mode: 1,",
        "thread_affinity_core_list: [0, 1].",
    ]


RANK_VARIABLES = (
    *("RANK", "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE", "PMIX_RANK"),
    *("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "SLURM_PROCID", "MS_ROLE", "RANK_ID", "RANK_SIZE"),
    *("RANK_TABLE_FILE", "MINDSPORE_HCCL_CONFIG_PATH"),
)


@pytest.fixture
def launched(monkeypatch):
    """Let the process look as if a launcher had set these variables, and no others."""

    def launched(**variables):
        for name in RANK_VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, text in variables.items():
            monkeypatch.setenv(name, text)

    return launched


@pytest.mark.parametrize(
    ("variables", "rank", "size"),
    [
        ({}, 0, 1),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, 2, 3),
        ({"RANK": "3", "WORLD_SIZE": "4"}, 3, 4),
    ],
)
def test_the_launcher_tells_the_rank(context, launched, variables, rank, size):
    launched(**variables)
    assert (context.gpu.rank_id, context.gpu.group_size) == (rank, size)
    assert str(context.gpu).endswith(f"rank_id: {rank},\ngroup_size: {size}.")
    context.gpu.device_id = context.gpu.rank_id
    assert context.gpu.device_id == rank
    assert context.ascend.rank_id == 0


def test_the_rank_that_was_set_wins(context, launched):
    launched(OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")
    context.ascend.rank_id = 0
    assert (context.gpu.rank_id, context.gpu.group_size) == (0, 2)
    launched()
    context.ascend.rank_id = 5  # how many there are, a rank table of the model will tell
    assert (context.gpu.rank_id, context.gpu.group_size) == (0, 1)
    assert context.ascend.rank_id == 5
    assert str(context.ascend).endswith("rank_id: 5.")


def test_a_broken_environment_is_an_error_of_the_call(launched):
    launched(RANK="x", WORLD_SIZE="2")
    context = mslite.Context()
    for name in ("rank_id", "group_size"):
        with pytest.raises(RuntimeError, match=r"Get rank failed! Error is .*RANK is 'x', not a whole number"):
            getattr(context.gpu, name)
