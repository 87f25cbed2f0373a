"""`Model.build_from_file`: the order of its checks, its messages, and what a build leaves behind."""

import shutil

import pytest
from facades.mindspore_lite.support import ADD, RELU

import litehouse
import mindspore_lite as mslite
from mindspore_lite import Context, Model, ModelType

INT = "<class 'int'>"
STR = "<class 'str'>"
NONE = "<class 'NoneType'>"
PREFIX = "build_from_file failed! Error is "


def build(path, *arguments, **named):
    model = Model()
    model.build_from_file(path, *(arguments or (ModelType.MINDIR,)), **named)
    return model


def test_text_before_and_after():  # seen on 2.0.0
    model = Model()
    assert str(model) == "model_path: ."
    assert model.model_path_ == ""
    model.build_from_file(RELU.path, ModelType.MINDIR)
    assert str(model) == f"model_path: {RELU.path}."


def test_arguments_by_name():
    model = Model()
    model.build_from_file(
        model_path=RELU.path,
        model_type=ModelType.MINDIR,
        context=None,
        config_path="",
        config_dict=None,
        dec_key=None,
        dec_mode="AES-GCM",
        dec_num_parallel=0,
    )
    assert len(model.get_inputs()) == 1


MISSING = "no/such/file.mindir"

REFUSED_ARGUMENTS = [  # seen on 2.0.0, up to the context; None for the path stands for a file that exists
    ((1, ModelType.MINDIR), {}, TypeError, f"model_path must be str, but got {INT}."),
    ((1, 0), {}, TypeError, f"model_path must be str, but got {INT}."),
    ((None, 0), {}, TypeError, f"model_type must be ModelType, but got {INT}."),
    ((None, "MINDIR"), {}, TypeError, f"model_type must be ModelType, but got {STR}."),
    ((None, ModelType.MINDIR, 1), {}, TypeError, f"context must be Context, but got {INT}."),
    (
        (None, ModelType.MINDIR, Context().cpu),
        {},
        TypeError,
        "context must be Context, but got <class 'mindspore_lite.context._CPU'>.",
    ),
    ((MISSING, ModelType.MINDIR, 1), {}, TypeError, f"context must be Context, but got {INT}."),
    ((None, ModelType.MINDIR, None, None), {}, TypeError, f"config_path must be str, but got {NONE}."),
    ((MISSING, ModelType.MINDIR, None, None), {}, TypeError, f"config_path must be str, but got {NONE}."),
    ((MISSING, ModelType.MINDIR), {}, RuntimeError, "build_from_file failed, model_path does not exist!"),
    (
        (MISSING, ModelType.MINDIR, None, MISSING),
        {},
        RuntimeError,
        "build_from_file failed, model_path does not exist!",
    ),
    ((None, ModelType.MINDIR, None, MISSING), {}, RuntimeError, "build_from_file failed, config_path does not exist!"),
    # From here on master's.
    ((None, ModelType.MINDIR), {"config_dict": 1}, TypeError, f"config_dict must be dict, but got {INT}."),
    ((None, ModelType.MINDIR), {"config_dict": {1: {}}}, TypeError, f"config_dict_key must be str, but got {INT}."),
    (
        (None, ModelType.MINDIR),
        {"config_dict": {"section": "1, 2"}},
        TypeError,
        f"config_dict_value must be dict, but got {STR}.",
    ),
    (
        (None, ModelType.MINDIR),
        {"config_dict": {"a": {1: "x"}}},
        TypeError,
        f"config_dict_value_key must be str, but got {INT}.",
    ),
    (
        (None, ModelType.MINDIR),
        {"config_dict": {"a": {"x": 1}}},
        TypeError,
        f"config_dict_value_value must be str, but got {INT}.",
    ),
    ((None, ModelType.MINDIR), {"dec_key": "abc"}, TypeError, f"dec_key must be bytes, but got {STR}."),
    ((None, ModelType.MINDIR), {"dec_key": b"k", "dec_mode": 1}, TypeError, f"dec_mode must be str, but got {INT}."),
    (
        (None, ModelType.MINDIR),
        {"dec_key": b"k", "dec_num_parallel": "1"},
        TypeError,
        f"dec_num_parallel must be int, but got {STR}.",
    ),
    (
        (None, ModelType.MINDIR),
        {"dec_key": b"k", "dec_mode": ""},
        ValueError,
        "dec_mode must not be empty string!",
    ),
]


@pytest.mark.parametrize(("arguments", "named", "error", "text"), REFUSED_ARGUMENTS)
def test_refused_arguments_do_not_spoil_the_model(arguments, named, error, text):
    path, *rest = arguments
    model = Model()
    with pytest.raises(error) as caught:
        model.build_from_file(RELU.path if path is None else path, *rest, **named)
    assert str(caught.value) == text
    model.build_from_file(RELU.path, ModelType.MINDIR)
    RELU.check(model.predict(RELU.inputs))


@pytest.mark.parametrize("named", [{"config_dict": {}}, {"config_dict": 0}, {"dec_key": ""}, {"dec_mode": 1}])
def test_what_is_not_looked_at(named):  # master looks at these only where they say something
    build(RELU.path, **named)


def test_path_is_told_once_the_file_was_found():  # seen on 2.0.0
    model = Model()
    with pytest.raises(RuntimeError, match="config_path does not exist"):
        model.build_from_file(RELU.path, ModelType.MINDIR, None, MISSING)
    assert model.model_path_ == RELU.path
    with pytest.raises(RuntimeError, match="model_path does not exist"):
        model.build_from_file(MISSING, ModelType.MINDIR)
    assert model.model_path_ == RELU.path


def test_unreadable_configuration(tmp_path):
    with pytest.raises(RuntimeError, match=r"^load configuration failed! Error is .*directory"):
        build(RELU.path, ModelType.MINDIR, None, str(tmp_path))


def test_configuration_that_is_no_ini(tmp_path):  # accepted by 2.0.0
    path = tmp_path / "config.txt"
    path.write_bytes(b"\xff\xfe\x00garbage\nno section\n")
    build(RELU.path, ModelType.MINDIR, None, str(path))


def test_dict_wins_over_file(tmp_path):
    path = tmp_path / "config.ini"
    path.write_text("[litehouse]\nengine=openvino\nthreads=1\n[common_context]\nanything=1\n")
    model = build(RELU.path, config_path=str(path), config_dict={"litehouse": {"engine": "onnxruntime"}})
    assert model._session.engine == "onnxruntime"
    assert model._session.options.threads == 1


def corrupt(tmp_path, name):
    path = tmp_path / "model.mindir"
    if name == "empty":
        path.write_bytes(b"")
    elif name == "garbage":
        path.write_bytes(b"this is no model at all" * 10)
    elif name == "truncated":
        with open(RELU.path, "rb") as file:
            path.write_bytes(file.read()[:100])
    else:
        path.mkdir()
    return str(path)


@pytest.mark.parametrize("name", ["empty", "garbage", "truncated", "directory"])
def test_bad_file(tmp_path, name):
    path = corrupt(tmp_path, name)
    model = Model()
    with pytest.raises(RuntimeError) as caught:
        model.build_from_file(path, ModelType.MINDIR)
    assert str(caught.value).startswith(PREFIX)
    assert path in str(caught.value)
    assert isinstance(caught.value.__cause__, litehouse.LitehouseError | OSError)
    assert str(model) == f"model_path: {path}."
    assert model.get_inputs() == []
    assert model.get_outputs() == ()


def test_failed_model_stays_failed(tmp_path):  # seen on 2.0.0
    model = Model()
    with pytest.raises(RuntimeError):
        model.build_from_file(corrupt(tmp_path, "garbage"), ModelType.MINDIR)
    with pytest.raises(RuntimeError, match=f"^{PREFIX}.*failed to build before; make a new Model"):
        model.build_from_file(RELU.path, ModelType.MINDIR)


def test_second_build_fails_and_the_first_stays():  # seen on 2.0.0
    model = RELU.build()
    with pytest.raises(RuntimeError, match=f"^{PREFIX}.*already built; make a new Model"):
        model.build_from_file(ADD.path, ModelType.MINDIR)
    RELU.check(model.predict(RELU.inputs))


def test_one_file_in_many_models():
    models = [RELU.build() for _ in range(3)]
    for model in models:
        RELU.check(model.predict(RELU.inputs))


def test_file_of_another_kind():  # refused by 2.0.0, too
    with pytest.raises(RuntimeError, match=f"^{PREFIX}.*not ModelType.MINDIR_LITE"):
        build(RELU.path, ModelType.MINDIR_LITE)


@pytest.mark.parametrize("target", ["gpu", "ascend"])
def test_target_that_the_machine_lacks(target, monkeypatch):
    def refuse(*arguments, options, **named):
        assert options.device == f"{target}:0"
        raise litehouse.EngineError(f"no {target} here; install one")

    monkeypatch.setattr(litehouse, "load", refuse)
    context = mslite.Context()
    context.target = [target]
    with pytest.raises(RuntimeError) as caught:
        build(RELU.path, ModelType.MINDIR, context)
    assert str(caught.value) == f"{PREFIX}no {target} here; install one"
    assert isinstance(caught.value.__cause__, litehouse.EngineError)


def test_tensorrt_that_the_machine_lacks(monkeypatch):
    import onnxruntime

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    context = mslite.Context()
    context.target = ["gpu"]
    context.gpu.device_id = context.gpu.rank_id
    context.gpu.provider = "tensorrt"
    with pytest.raises(RuntimeError) as caught:
        build(RELU.path, ModelType.MINDIR, context)
    assert str(caught.value) == (
        f"{PREFIX}no engine can run on 'gpu:0'. onnxruntime: the installed onnxruntime is the one for the CPU; "
        "install onnxruntime-gpu in its place, and TensorRT beside it"
    )


def test_ascend_is_refused_by_the_core():
    context = mslite.Context()
    context.target = ["ascend"]
    with pytest.raises(RuntimeError, match=f"(?is)^{PREFIX}.*ascend"):
        build(RELU.path, ModelType.MINDIR, context)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"thread_num": 1, "inter_op_parallel_num": 2}, "inter_op_parallel_num 2 is more than thread_num 1"),
        ({"thread_affinity_core_list": [-1]}, "affinity"),
        ({"thread_affinity_core_list": [100_000]}, "100000"),
    ],
)
def test_context_that_does_not_work(settings, text):
    context = mslite.Context()
    for name, value in settings.items():
        setattr(context.cpu, name, value)
    model = Model()
    with pytest.raises(RuntimeError, match=f"^{PREFIX}.*{text}"):
        model.build_from_file(RELU.path, ModelType.MINDIR, context)
    with pytest.raises(RuntimeError, match="failed to build before"):
        model.build_from_file(RELU.path, ModelType.MINDIR)


def test_context_may_change_after_the_build():
    context = mslite.Context()
    context.cpu.thread_num = 1
    model = RELU.build(context)
    context.cpu.thread_num = 2
    assert model._session.options.threads == 1
    assert RELU.build(context)._session.options.threads == 2


def test_tutorial_context_builds():
    context = mslite.Context()
    context.target = ["cpu"]
    context.cpu.thread_num = 1
    context.cpu.thread_affinity_mode = 2
    context.cpu.enable_fp16 = False
    RELU.check(RELU.build(context).predict(RELU.inputs))


def test_built_model_does_not_need_the_file(tmp_path):
    path = tmp_path / "model.mindir"
    shutil.copy(RELU.path, path)
    model = build(str(path))
    path.unlink()
    RELU.check(model.predict(RELU.inputs))
