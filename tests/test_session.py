"""`Session`: running, checking inputs, resizing, threads."""

import os
import signal
import threading

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from onnx_models import mlp, mlp_result, model, node


@pytest.fixture
def x() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(2, 4)).astype("f")


def test_runs_in_order_and_by_name(engine: str, x: np.ndarray) -> None:
    session = litehouse.load(mlp(), engine=engine, threads=1)
    assert session.engine == engine
    assert_close(session.run([x])[0], mlp_result(x))
    assert_close(session.run({"x": x})[0], mlp_result(x))
    (y,) = session(x)
    assert_close(y, mlp_result(x))
    (y,) = session(x=x)
    assert_close(y, mlp_result(x))


def test_signature(engine: str) -> None:
    session = litehouse.load(mlp(), engine=engine)
    assert session.inputs == (litehouse.TensorInfo("x", np.dtype("f"), (2, 4)),)
    assert session.outputs == (litehouse.TensorInfo("y", np.dtype("f"), (2, 3)),)


def test_outputs_own_their_memory(engine: str, x: np.ndarray) -> None:
    session = litehouse.load(mlp(), engine=engine)
    first = session.run([x])[0]
    kept = first.copy()
    session.run([-x])
    np.testing.assert_array_equal(first, kept)
    first[:] = 0
    assert_close(session.run([x])[0], kept)


def test_any_memory_layout_of_inputs(engine: str, x: np.ndarray) -> None:
    session = litehouse.load(mlp(), engine=engine)
    wide = np.zeros((2, 8), "f")
    wide[:, ::2] = x
    reversed_rows = np.ascontiguousarray(x[::-1])[::-1]
    read_only = np.frombuffer(x.tobytes(), "f").reshape(2, 4)
    for array in (np.asfortranarray(x), wide[:, ::2], reversed_rows, read_only):
        assert_close(session.run([array])[0], mlp_result(x))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], r"takes 1 inputs, not 0: x float32\[2, 4\]"),
        ([np.zeros((2, 4), "f")] * 2, "takes 1 inputs, not 2"),
        ([np.zeros((2, 5), "f")], r"'x' must have the shape \[2, 4\], not \[2, 5\]"),
        ([np.zeros(8, "f")], r"must have the shape"),
        ([np.zeros((2, 4), "d")], r"'x' must be float32, not float64; convert it with .astype\('float32'\)"),
        ([np.zeros((2, 4), ">f4")], "must be float32"),
        ([[[0.0] * 4] * 2], "must be a numpy array, not list"),
        ({}, "input 'x' is missing"),
        ({"x": np.zeros((2, 4), "f"), "z": np.zeros(1)}, "there is no input 'z'"),
    ],
)
def test_wrong_inputs(engine: str, x: np.ndarray, inputs: object, message: str) -> None:
    session = litehouse.load(mlp(), engine=engine)
    with pytest.raises(litehouse.ShapeError, match=message):
        session.run(inputs)  # type: ignore[arg-type]
    assert_close(session.run([x])[0], mlp_result(x))


def test_arrays_by_order_and_name_together(x: np.ndarray) -> None:
    with pytest.raises(litehouse.ShapeError, match="either in order or by name"):
        litehouse.load(mlp())(x, x=x)


def test_unused_input_and_direct_output(engine: str) -> None:
    bytes_ = model([node("Identity", "a", "y")], {"unused": [3], "a": [2]}, {"y": [2]})
    session = litehouse.load(bytes_, engine=engine)
    a = np.array([1, 2], "f")
    np.testing.assert_array_equal(session.run([np.zeros(3, "f"), a])[0], a)


def test_many_threads_share_a_session(engine: str) -> None:
    session = litehouse.load(mlp(), engine=engine, threads=1)
    random = np.random.default_rng(2)
    inputs = [random.normal(size=(2, 4)).astype("f") for _ in range(8)]
    wrong: list[int] = []

    def client(index: int) -> None:
        expected = mlp_result(inputs[index])
        results = [session.run([inputs[index]])[0] for _ in range(50)]
        wrong.extend(index for result in results if not np.allclose(result, expected, atol=1e-3))

    clients = [threading.Thread(target=client, args=(index,)) for index in range(8)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    assert wrong == []


def test_resize_of_a_dynamic_dimension_keeps_the_program(engine: str) -> None:
    session = litehouse.load(mlp("batch"), engine=engine)
    assert session.inputs[0].shape == ("batch", 4)
    program = session._open().current.program
    session.resize([[5, 4]])
    assert session._open().current.program is program
    assert session.inputs[0].shape == (5, 4)
    assert session.outputs[0].shape == (5, 3)
    five = np.ones((5, 4), "f")
    assert_close(session.run([five])[0], mlp_result(five))


def test_dynamic_model_runs_at_any_size_without_resize(engine: str) -> None:
    session = litehouse.load(mlp("batch"), engine=engine)
    for batch in (1, 7, 3):
        x = np.full((batch, 4), 0.5, "f")
        assert_close(session.run([x])[0], mlp_result(x))


def test_resize_of_a_fixed_dimension_rebuilds(engine: str) -> None:
    session = litehouse.load(mlp(2), engine=engine)
    session.resize([[6, 4]])
    six = np.ones((6, 4), "f")
    assert_close(session.run([six])[0], mlp_result(six))
    assert session.outputs[0].shape == (6, 3)
    session.resize([[2, 4]])
    assert session.outputs[0].shape == (2, 3)
    two = np.ones((2, 4), "f")
    assert_close(session.run([two])[0], mlp_result(two))


def test_outputs_that_depend_on_the_data_stay_dynamic() -> None:
    nodes = [node("NonZero", "x", "i"), node("Cast", "i", "y", to=1)]
    session = litehouse.load(model(nodes, {"x": [4]}, {"y": [1, "n"]}))
    session.resize([[6]])
    assert session.outputs[0].shape == (1, "n")


def test_a_resize_that_zeros_cannot_try() -> None:
    bytes_ = model([node("Div", "a x", "y")], {"x": [4]}, {"y": [4]}, {"a": np.array([6], np.int32)}, dtype=6)
    session = litehouse.load(bytes_, engine="onnxruntime")
    session.resize([[2]])
    np.testing.assert_array_equal(session.run([np.array([2, 3], np.int32)])[0], [3, 2])


@pytest.mark.parametrize("shapes", [[], [[2]], [[2, 4], [1]], [[-1, 4]], [[2, 5]], [[1.5, 4]], [[10**12, 4]]])
def test_impossible_resize_keeps_the_old_shapes(engine: str, x: np.ndarray, shapes: list[list[int]]) -> None:
    session = litehouse.load(mlp(), engine=engine)
    with pytest.raises(litehouse.ShapeError):
        session.resize(shapes)
    assert session.inputs[0].shape == (2, 4)
    assert_close(session.run([x])[0], mlp_result(x))


def test_shapes_are_remembered_up_to_a_bound() -> None:
    session = litehouse.load(mlp(2))
    for batch in range(1, 40):
        session.resize([[batch, 4]])
    assert len(session._open()._remembered) <= 16
    x = np.ones((39, 4), "f")
    assert_close(session.run([x])[0], mlp_result(x))


def test_a_session_with_state_that_is_closed_while_a_run_begins() -> None:
    session = litehouse.load(FIXTURES / "mindir" / "networks" / "counter.mindir", threads=1)
    assert session.model.states

    class Closing(list):
        def pop(self) -> None:
            session.close()
            raise IndexError

    session._open().current.runners = Closing()
    with pytest.raises(litehouse.EngineError, match="closed"):
        session.run([np.zeros(info.shape, info.dtype) for info in session.inputs])


def test_the_first_of_equal_numbers_counts(engine: str) -> None:
    x = np.array([[1, 3, 3, 0], [2, 2, 2, 2]], "f")
    session = litehouse.load(model([node("Hardmax", "x", "y")], {"x": [2, 4]}, {"y": [2, 4]}), engine=engine, threads=1)
    assert session.run([x])[0].tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]


def test_closed_session(x: np.ndarray) -> None:
    with litehouse.load(mlp()) as session:
        session.run([x])
    for use in (lambda: session.run([x]), lambda: session.inputs, lambda: session.resize([[2, 4]])):
        with pytest.raises(litehouse.EngineError, match="closed"):
            use()


def test_engine_failure_while_running_leaves_the_session_usable(engine: str) -> None:
    # Gather with an index outside the table: ONNX Runtime reports it; OpenVINO defines the result.
    table = np.arange(8, dtype="f").reshape(4, 2)
    nodes = [node("Cast", "i", "j", to=7), node("Gather", "t j", "y")]
    session = litehouse.load(model(nodes, {"i": [1]}, {"y": [1, 2]}, {"t": table}), engine=engine)
    if engine == "onnxruntime":
        with pytest.raises(litehouse.EngineError, match="ONNX Runtime failed while running"):
            session.run([np.array([9], "f")])
    np.testing.assert_array_equal(session.run([np.array([3], "f")])[0], table[3:])


def test_weights_are_shared_with_the_arena_not_copied_through_protobuf() -> None:
    litehouse_model = litehouse.read(mlp())
    from litehouse.engines.shell import make_shell

    shell = make_shell(litehouse_model)
    assert set(shell.weights) == {"w1", "w2"}
    assert np.shares_memory(shell.weights["w1"], litehouse_model.weights["w1"])
    assert len(shell.proto.SerializeToString()) < 1000
    # The model still has its weights afterwards.
    assert set(litehouse_model.graph.graph.initializers) == {"w1", "w2"}


@pytest.mark.openvino
def test_auto_takes_the_engine_that_can_build_the_model(monkeypatch: pytest.MonkeyPatch, x: np.ndarray) -> None:
    from litehouse.engines.onnxruntime import OnnxRuntimeEngine

    def refuse(*_: object, **__: object) -> None:
        raise litehouse.EngineError("not this one")

    monkeypatch.setattr(OnnxRuntimeEngine, "compile", refuse)
    session = litehouse.load(mlp())
    assert session.engine == "openvino"
    assert session.engine.reason == "it is the first choice, and tuning is off"
    assert_close(session.run([x])[0], mlp_result(x))
    with pytest.raises(litehouse.EngineError, match="not this one"):
        litehouse.load(mlp(), engine="onnxruntime")


def test_a_provider_that_falls_back_to_the_cpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import onnxruntime

    monkeypatch.setattr(
        onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr("litehouse.engines.onnxruntime.make_providers", lambda *_: ["CPUExecutionProvider"])
    with pytest.raises(litehouse.EngineError, match="cannot use 'gpu:0' on this machine"):
        litehouse.load(mlp(), device="gpu:0")


def test_resize_by_name_and_wrong_forms() -> None:
    session = litehouse.load(mlp("batch"))
    session.resize({"x": [3, 4]})
    assert session.inputs[0].shape == (3, 4)
    for shapes in ([3, 4], {"z": [3, 4]}, "ab"):
        with pytest.raises(litehouse.ShapeError):
            session.resize(shapes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": "0123456789ABCDEF"}, "key must be bytes, not str"),
        ({"options": {"threads": 2}}, "options must be Options, not dict"),
        ({"thread": 2}, "there is no option 'thread'; the options are device, engine, threads"),
    ],
)
def test_wrong_arguments_of_load(arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        litehouse.load(mlp(), **arguments)


def test_repr() -> None:
    session = litehouse.load(mlp())
    assert repr(session) == "<Session <bytes>: x float32[2, 4] -> y, on onnxruntime>"
    session.close()
    assert "closed" in repr(session)


def test_images_with_their_axes_in_another_order() -> None:
    session = litehouse.load(model([node("Relu", "x", "y")], {"x": [1, 8, 9, 3]}, {"y": [1, 8, 9, 3]}))
    with pytest.raises(litehouse.ShapeError, match=r"transpose it with \.transpose\(0, 2, 3, 1\)"):
        session.run([np.zeros((1, 3, 8, 9), "f")])
    with pytest.raises(litehouse.ShapeError, match="reshape the array, or resize the session"):
        session.run([np.zeros((1, 8, 9, 4), "f")])


@pytest.mark.parametrize("wrong", [None, 3, np.zeros((1, 2, 4), "f")])
def test_inputs_that_are_no_list(wrong: object) -> None:
    with pytest.raises(litehouse.ShapeError, match=r"as run\(\[x\]\)"):
        litehouse.load(mlp()).run(wrong)  # type: ignore[arg-type]
    with pytest.raises(litehouse.ShapeError, match="give one shape per input"):
        litehouse.load(mlp()).resize(wrong)  # type: ignore[arg-type]


def test_a_number_as_input(engine: str) -> None:
    session = litehouse.load(model([node("Neg", "x", "y")], {"x": []}, {"y": []}), engine=engine)
    assert session(np.float32(2))[0] == -2
    with pytest.raises(litehouse.ShapeError, match=r"np\.array\(value, 'float32'\) makes one"):
        session(2.0)  # type: ignore[arg-type]


def test_a_twin_shares_the_compiled_model_and_nothing_else() -> None:
    first = litehouse.load(mlp("n"))
    second = first.twin()
    assert second.loaded is first.loaded
    x = np.random.default_rng(0).normal(size=(3, 4)).astype("f")
    first.resize([(5, 4)])
    second.resize([(3, 4)])
    assert (first.inputs[0].shape, second.inputs[0].shape) == ((5, 4), (3, 4))
    first.close()
    assert_close(second.run([x])[0], mlp_result(x))
    with pytest.raises(litehouse.EngineError, match="the session is closed"):
        first.twin()


def test_a_twin_has_a_state_of_its_own() -> None:
    path = FIXTURES / "mindir" / "networks" / "counter.mindir"
    first = litehouse.load(path)
    inputs = [np.ones([size or 1 for size in info.shape], info.dtype) for info in first.inputs]
    for _ in range(3):
        first.run(inputs)
    for found, expected in zip(first.twin().run(inputs), litehouse.load(path).run(inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_inputs_of_any_size_run_whatever_the_session_was_resized_to(engine: str) -> None:
    session = litehouse.load(mlp(), engine=engine)
    for rows in (2, 5, 1, 2):
        x = np.random.default_rng(rows).normal(size=(rows, 4)).astype("f")
        assert_close(session.run_any([x])[0], mlp_result(x))
    assert session.inputs[0].shape == (2, 4)


def test_runs_of_one_program_share_their_runners() -> None:
    session = litehouse.load(mlp("n"))
    for rows in (2, 5, 1, 2):
        session.run_any([np.ones((rows, 4), "f")])
    assert len(session._open()._runners) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_forked_process_is_told_instead_of_left_waiting(threads: int, engine: str, x: np.ndarray) -> None:
    session = litehouse.load(mlp(), threads=threads, engine=engine)
    session.run([x])
    pid = os.fork()
    if pid == 0:
        signal.alarm(300)  # a process that hangs ends
        status = 2
        try:
            session.run([x])
            status = 0
        except litehouse.EngineError as error:
            status = 1 if "was forked off after the model was loaded" in str(error) else 3
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (0 if (threads, engine) == (1, "onnxruntime") else 1)
    session.run([x])
