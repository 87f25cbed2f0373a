"""Tensors of torch and of other libraries as inputs, on every engine: what is taken, and what is refused."""

from typing import Any

import numpy as np
import pytest

import litehouse
from conftest import FIXTURES, assert_close
from litehouse import ShapeError
from onnx_models import mlp, mlp_result, model, node

torch = pytest.importorskip("torch")

X = np.random.default_rng(3).normal(size=(2, 4)).astype("f")


class Foreign:
    """An array of another library, which knows DLPack alone."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **settings: Any) -> Any:
        return self._array.__dlpack__(**settings)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


class Minimal:
    """One that does not even say where its memory is."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self) -> Any:
        return self._array.__dlpack__()


class Broken:
    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("no memory to be had")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def of_conjugate() -> Any:
    """Numbers whose sign torch has not changed yet: it remembers to."""
    found = torch.complex(torch.zeros(2, 4), torch.from_numpy(-X)).conj().imag
    assert found.is_neg()
    return found


TAKEN = {
    "tensor": lambda: torch.from_numpy(X.copy()),
    "gradient": lambda: torch.from_numpy(X.copy()).requires_grad_(),
    "parameter": lambda: torch.nn.Parameter(torch.from_numpy(X.copy())),
    "result of a gradient": lambda: torch.from_numpy(X.copy()).requires_grad_() * 1,
    "turned": lambda: torch.from_numpy(X.T.copy()).t(),
    "part": lambda: torch.from_numpy(np.stack([X, X], 2).copy())[:, :, 1],
    "sign to change": of_conjugate,
    "another library": lambda: Foreign(X.copy()),
    "another library's tensor": lambda: Foreign(torch.from_numpy(X.copy())),
    "only DLPack": lambda: Minimal(torch.from_numpy(X.copy())),
}


@pytest.fixture
def session(engine: str) -> litehouse.Session:
    return litehouse.load(mlp(), engine=engine, threads=1, cache=False)


@pytest.mark.parametrize("case", TAKEN)
def test_taken(session: litehouse.Session, case: str) -> None:
    for _ in range(2):
        (found,) = session.run([TAKEN[case]()])
        assert isinstance(found, torch.Tensor) == session.takes_tensors
        assert not getattr(found, "requires_grad", False)
        assert_close(np.asarray(found), mlp_result(X))


def test_which_engines_give_tensors(session: litehouse.Session) -> None:
    assert session.takes_tensors == (session.engine == "torch")


def test_given_by_name_and_as_a_call(session: litehouse.Session) -> None:
    for found in (session.run({"x": torch.from_numpy(X)}), session(torch.from_numpy(X)), session(x=Foreign(X))):
        assert_close(np.asarray(found[0]), mlp_result(X))


REFUSED = {
    "dtype": (lambda: torch.zeros(2, 4, dtype=torch.float64), "input 'x' must be float32, not float64"),
    "bits": (lambda: torch.zeros(2, 4, dtype=torch.bfloat16), "input 'x'.*(bfloat16|cannot be taken)"),
    "shape": (lambda: torch.zeros(2, 5), r"input 'x' must have the shape \[2, 4\], not \[2, 5\]"),
    "rank": (lambda: torch.zeros(8), r"input 'x' must have the shape \[2, 4\], not \[8\]"),
    "no memory": (lambda: torch.zeros(2, 4, device="meta"), "input 'x'.*meta.*copy it there"),
    "sparse": (lambda: torch.zeros(2, 4).to_sparse(), "input 'x'.*(sparse|layout)"),
    "broken": (lambda: Broken(), "input 'x' cannot be taken.*no memory to be had"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(session: litehouse.Session, case: str) -> None:
    made, message = REFUSED[case]
    with pytest.raises(ShapeError, match=message):
        session.run([made()])
    assert_close(np.asarray(session.run([torch.from_numpy(X)])[0]), mlp_result(X))  # it stays usable


def test_memory_of_another_device_is_refused_by_engines_of_the_cpu(cpu_engine: str) -> None:
    """As CuPy's arrays are: DLPack tells of the GPU."""

    class OnGpu(Foreign):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("it is on a GPU")

    session = litehouse.load(mlp(), engine=cpu_engine, threads=1, cache=False)
    with pytest.raises(ShapeError, match="the engine takes arrays of the host: copy it there"):
        session.run([OnGpu(X)])


def test_memory_of_a_gpu_is_refused_by_a_torch_that_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(_: Any) -> None:
        raise AssertionError("Torch not compiled with CUDA enabled")

    monkeypatch.setattr(torch, "from_dlpack", lacks)
    session = litehouse.load(mlp(), engine="torch", threads=1, cache=False)
    with pytest.raises(ShapeError, match=r"input 'x' cannot be taken as a tensor .*not compiled with CUDA"):
        session.run([Foreign(X)])


def test_arrays_and_tensors_together(engine: str) -> None:
    nodes = [node("MatMul", "a b", "m"), node("Add", "m c", "y")]
    session = litehouse.load(
        model(nodes, {"a": [2, 4], "b": [4, 2], "c": [2]}, {"y": [2, 2]}), engine=engine, cache=False
    )
    b, c = np.ascontiguousarray(X.T), np.float32([1, 2])
    for given in ([X, torch.from_numpy(b), c], [torch.from_numpy(X), b, Foreign(c)], [X, b, torch.from_numpy(c)]):
        (found,) = session.run(given)
        assert isinstance(found, torch.Tensor) == session.takes_tensors
        assert_close(np.asarray(found), X @ b + c)
    (found,) = session.run([X, b, c])
    assert isinstance(found, np.ndarray)
    with pytest.raises(ShapeError, match="input 'c' must be float32, not float64"):
        session.run([torch.from_numpy(X), b, c.astype(np.float64)])
    with pytest.raises(ShapeError, match="input 'c' must be a numpy array, not list"):
        session.run([torch.from_numpy(X), b, [1.0, 2.0]])


def test_numbers_of_any_type(engine: str) -> None:
    """A single number, and whole ones."""
    nodes = [node("Cast", "n", "f", to=1), node("Mul", "x f", "y")]
    data = _typed(nodes, {"x": (np.float32, [2, 4]), "n": (np.int64, [])})
    session = litehouse.load(data, engine=engine, cache=False)
    for n in (torch.tensor(3), np.int64(3), np.array(3)):
        assert_close(np.asarray(session.run([torch.from_numpy(X), n])[0]), X * 3)
    with pytest.raises(ShapeError, match="input 'n' must be int64, not int32"):
        session.run([torch.from_numpy(X), torch.tensor(3, dtype=torch.int32)])


def _typed(nodes: list[Any], inputs: dict[str, tuple[Any, list[int]]]) -> bytes:
    from onnx import helper

    kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(kind)) for name, (kind, _) in inputs.items()}
    takes = [helper.make_tensor_value_info(name, kinds[name], shape) for name, (_, shape) in inputs.items()]
    gives = [helper.make_tensor_value_info("y", 1, [2, 4])]
    graph = helper.make_graph(nodes, "test", takes, gives)
    imports = [helper.make_opsetid("", 20)]
    data: bytes = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    return data


def test_open_sizes_and_resizes(engine: str) -> None:
    session = litehouse.load(mlp("n"), engine=engine, threads=1, cache=False)
    for count in (1, 3, 1, 3):
        x = np.tile(X, (2, 1))[:count]
        assert_close(np.asarray(session.run([torch.from_numpy(x)])[0]), mlp_result(x))
    session.resize([[2, 4]])
    assert_close(np.asarray(session.run([torch.from_numpy(X)])[0]), mlp_result(X))
    with pytest.raises(ShapeError, match=r"must have the shape \[2, 4\], not \[3, 4\]"):
        session.run([torch.zeros(3, 4)])


def test_the_inputs_stay_as_they_are_and_the_outputs_are_the_callers(session: litehouse.Session) -> None:
    given = torch.from_numpy(X.copy())
    first = session.run([given])[0]
    before = np.asarray(first).copy()
    first[...] = 7
    assert_close(np.asarray(session.run([given])[0]), before)
    np.testing.assert_array_equal(given.numpy(), X)


COUNTER = FIXTURES / "mindir" / "networks" / "counter.mindir"


def test_states(engine: str) -> None:
    """What a network keeps is the same whether a run is given arrays or tensors."""
    plain = litehouse.load(COUNTER, engine="onnxruntime", threads=1, cache=False)
    session = litehouse.load(COUNTER, engine=engine, threads=1, cache=False)
    random = np.random.default_rng(0)
    for turn in range(6):
        inputs = [random.normal(size=info.shape).astype(info.dtype) for info in session.inputs]
        given = [torch.from_numpy(array) for array in inputs] if turn % 3 else inputs
        for actual, expected in zip(session.run(given), plain.run(inputs), strict=True):
            assert_close(np.asarray(actual), expected)
        for name, expected in plain.state.items():
            assert isinstance(session.state[name], np.ndarray)
            assert_close(session.state[name], expected)
    session.reset()
    for name, expected in litehouse.load(COUNTER, engine="onnxruntime", cache=False).state.items():
        np.testing.assert_array_equal(session.state[name], expected)


def test_a_state_is_not_what_a_caller_holds(engine: str) -> None:
    session = litehouse.load(COUNTER, engine=engine, threads=1, cache=False)
    inputs = [torch.ones(info.shape, dtype=getattr(torch, info.dtype.name)) for info in session.inputs]
    session.run(inputs)
    before = session.state
    for array in session.state.values():
        array[...] = 9
    for name, expected in before.items():
        np.testing.assert_array_equal(session.state[name], expected)
