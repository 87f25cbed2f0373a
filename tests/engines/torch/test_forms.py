"""Every form in which torch builds a network computes the same; the truth is ONNX Runtime's, without optimisation."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from engines.torch.against_runtime import whole
from formats.onnx_runs import direct
from onnx import helper

from conftest import assert_close
from litehouse import EngineError, Options, read
from onnx_models import model, node

torch = pytest.importorskip("torch")

from litehouse.engines.torch import compiled as compiler  # noqa: E402
from litehouse.engines.torch.engine import TorchEngine  # noqa: E402

RNG = np.random.default_rng(0)
BOOL, INT64 = onnx.TensorProto.BOOL, onnx.TensorProto.INT64
LAST, COMPILED, BOTH = "channels last", "compiled", "compiled channels last"


def drawn(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def images() -> bytes:
    """Convolutions of several kinds, a normalisation, a shortcut, pools and a layer."""
    nodes = [
        node("Conv", "x w1 b1", "c1", pads=(1, 1, 1, 1)),
        node("BatchNormalization", "c1 s b m v", "n1"),
        *(node("Relu", "n1", "r1"), node("Conv", "r1 w2", "c2", pads=(1, 1, 1, 1), group=4)),
        *(node("Add", "c2 r1", "a"), node("MaxPool", "a", "p", kernel_shape=(2, 2), strides=(2, 2))),
        *(node("Conv", "p w3", "c3"), node("GlobalAveragePool", "c3", "g"), node("Flatten", "g", "f")),
        node("Gemm", "f w4 b4", "y"),
    ]
    weights = {"w1": drawn(4, 3, 3, 3), "b1": drawn(4), "s": drawn(4), "b": drawn(4), "m": drawn(4)}
    weights |= {"v": np.abs(drawn(4)) + 1, "w2": drawn(4, 1, 3, 3), "w3": drawn(6, 4, 1, 1)}
    weights |= {"w4": drawn(6, 2), "b4": drawn(2)}
    return model(nodes, {"x": [2, 3, 8, 8]}, {"y": None, "a": None}, weights)


def words() -> bytes:
    """One head of attention with its norm, and a layer with a Gelu written out."""
    nodes = [
        *(node("MatMul", "x wq", "q"), node("MatMul", "x wk", "k"), node("MatMul", "x wv", "v")),
        *(node("Transpose", "k", "kt", perm=(0, 2, 1)), node("MatMul", "q kt", "s"), node("Mul", "s scale", "t")),
        *(node("Softmax", "t", "p", axis=-1), node("MatMul", "p v", "o"), node("Add", "o x", "h")),
        node("LayerNormalization", "h g e", "n"),
        *(node("MatMul", "n w", "l"), node("Add", "l c", "m"), node("Div", "m root", "d"), node("Erf", "d", "f")),
        *(node("Add", "f one", "i"), node("Mul", "m i", "j"), node("Mul", "j half", "y")),
    ]
    weights = {name: drawn(6, 6) for name in ("wq", "wk", "wv")} | {"g": drawn(6), "e": drawn(6)}
    weights |= {"w": drawn(6, 10), "c": drawn(10)}
    numbers = {"scale": 6**-0.5, "root": 2**0.5, "one": 1.0, "half": 0.5}
    weights |= {name: np.array(number, np.float32) for name, number in numbers.items()}
    return model(nodes, {"x": [2, 5, 6]}, {"y": None}, weights)


def float_info(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)


def built(data: bytes, form: str) -> Any:
    return TorchEngine().compile(read(data), Options(engine="torch", cache=False), form=form)


def check(program: Any, data: bytes) -> None:
    """Several runs, on runners of their own and again on one."""
    shape = read(data).inputs[0].shape
    runners = [program.bind(), program.bind()]
    for runner in (*runners, *runners):
        x = drawn(*shape)
        for actual, expected in zip(runner.run([x]), direct(data, {"x": x}), strict=True):
            assert_close(actual, expected)


@pytest.mark.parametrize("form", ["", LAST])
@pytest.mark.parametrize("network", [images, words])
def test_forms_without_a_compiler(network: Any, form: str) -> None:
    data = network()
    check(built(data, form), data)


def test_channels_come_last_in_all_of_the_network() -> None:
    """What is captured has the results of convolutions in that order, too."""
    program = built(images(), LAST)
    runner = program.bind()
    runner.run([drawn(2, 3, 8, 8)])
    (piece,) = runner._parts
    (capture,) = piece._captures.values()
    frame = capture._run()
    whole = [value for value in frame.device if isinstance(value, torch.Tensor) and value.shape == (2, 4, 8, 8)]
    assert whole
    assert all(value.is_contiguous(memory_format=torch.channels_last) for value in whole)


def test_kernels_are_those_of_the_steps_as_they_are_cut_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """With more rows, a branch waits: steps that had kernels together are cut apart. The truth is ONNX Runtime's."""
    monkeypatch.setattr(compiler, "compiled", lambda function, examples, *, is_last: function)
    plain = helper.make_graph([node("Add", "r one", "t")], "plain", [], [float_info("t")])
    counted = [node("NonZero", "r", "z"), node("Size", "z", "k"), node("Cast", "k", "f", to=1), node("Add", "r f", "e")]
    waiting = helper.make_graph(counted, "waiting", [], [float_info("e")])
    nodes = [
        *(node("Relu", "x", "r"), node("Neg", "r", "n"), node("Size", "x", "s"), node("Greater", "s four", "c")),
        node("If", "c", "i", then_branch=waiting, else_branch=plain),
        *(node("Mul", "i n", "m"), node("Add", "m one", "y")),
    ]
    data = whole(nodes, {"x": drawn(2, 2)}, ["y"], {"four": np.array(4), "one": np.float32(1)})
    runner = built(data, COMPILED).bind()
    for rows in (2, 2, 4, 4, 2, 2, 4):
        x = drawn(rows, 2)
        assert_close(runner.run([x])[0], direct(data, {"x": x})[0])


def test_sizes_that_no_kernels_can_be_made_for_do_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is a full disk a reason not to run them."""
    makers = iter([lambda make: make(), lambda _: (_ for _ in ()).throw(OSError("no space left"))])
    monkeypatch.setattr("litehouse.engines.torch.kernels_kept.Workplace.make", lambda _, make: next(makers)(make))
    monkeypatch.setattr(compiler, "compiled", lambda function, examples, *, is_last: function)
    runner = built(whole([node("Relu", "x", "r"), node("Neg", "r", "y")], {"x": drawn(2, 2)}, ["y"]), COMPILED).bind()
    for rows in (2, 2, 2, 3, 3, 3, 2):
        x = drawn(rows, 2)
        np.testing.assert_array_equal(runner.run([x])[0], -np.maximum(x, 0))
    (told,) = caplog.messages
    assert told == "a size runs in torch's own kernels: kernels cannot be made: OSError: no space left"


def test_indices_that_follow_from_sizes(monkeypatch: pytest.MonkeyPatch, rehearsed_gpu: None) -> None:
    """They are on the CPU, also where the GPU is made of its memory: kernels have nothing to tell of them."""
    monkeypatch.setattr(compiler, "compiled", lambda function, examples, *, is_last: function)
    nodes = [node("Shape", "x", "n"), node("Gather", "w n", "g"), node("Add", "g x", "a"), node("Neg", "a", "y")]
    w = drawn(6)
    runner = built(whole(nodes, {"x": drawn(1, 2)}, ["y"], {"w": w}), COMPILED).bind()
    for rows in (2, 2, 5, 5, 2):
        x = drawn(rows, 2)
        np.testing.assert_array_equal(runner.run([x])[0], -(w[[rows, 2]] + x))
    for _ in range(2):
        with pytest.raises(EngineError, match=r"Gather.*index 9 is out of the range"):
            runner.run([drawn(9, 2)])


def test_kernels_take_the_same_whatever_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that runs takes the count of rows to the device; the steps behind it know it either way."""
    make_fx = pytest.importorskip("torch.fx.experimental.proxy_tensor").make_fx
    monkeypatch.setattr(compiler, "compiled", lambda function, examples, *, is_last: make_fx(function)(*examples))
    kinds = {"i": INT64, "c": onnx.TensorProto.BOOL, "s": INT64}
    body = helper.make_graph(
        [node("Add", "s n", "t"), node("Identity", "c", "d")],
        "body",
        [helper.make_tensor_value_info(name, kind, [1] if name == "s" else []) for name, kind in kinds.items()],
        [
            helper.make_tensor_value_info("d", onnx.TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", INT64, [1]),
        ],
    )
    nodes = [
        *(node("Shape", "x", "n", end=1), helper.make_node("Loop", ["k", "", "v"], ["total"], body=body)),
        *(node("Add", "total n", "a"), node("Neg", "a", "y")),
    ]
    data = whole(nodes, {"x": drawn(1), "k": np.array(1), "v": np.array([1])}, ["y"])
    program = built(data, COMPILED)
    for count in (1, 0, 2):
        runner = program.bind()
        for more in range(3):
            (found,) = runner.run([drawn(3), np.array(count), np.array([more])])
            assert found.tolist() == [-(more + 3 * count + 3)]


@pytest.mark.parametrize(
    ("nodes", "is_exact"),
    [
        ([node("Div", "x s", "q"), node("Round", "q", "y")], True),
        ([node("Div", "x s", "q"), node("Floor", "q", "y")], True),
        ([node("Div", "x s", "q"), node("Cast", "q", "y", to=INT64)], True),
        ([node("Div", "x s", "q"), node("Neg", "q", "y")], False),
        ([node("Greater", "x s", "m"), node("Cast", "m", "n", to=INT64), node("Mod", "n k", "y")], False),
        ([node("Div", "x s", "q"), node("Cast", "q", "m", to=BOOL), node("Not", "m", "y")], False),
    ],
)
def test_kernels_for_whole_numbers_are_exact(
    nodes: list[onnx.NodeProto], is_exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU's compiler divides by a reciprocal, and joins products and sums, unless it is told not to.

    To be told so costs time: masks, and integers that become others, need no such care.
    """
    pytest.importorskip("torch._inductor")
    given: list[dict[str, Any]] = []
    monkeypatch.setattr("torch._inductor.compile", lambda graph, _, options: given.append(options) or graph)
    x = drawn(3)
    data = whole(nodes, {"x": x}, ["y"], {"s": np.array([0.3], "f"), "k": np.array([2])})
    runner = built(data, COMPILED).bind()
    for _ in range(3):
        np.testing.assert_array_equal(runner.run([x])[0], direct(data, {"x": x})[0])
    (options,) = given
    exact = {name for name in options if "divis" in name or name == "emulate_precision_casts"}
    assert len(exact) == (2 if is_exact else 0)
    assert all(options[name] for name in exact)


# With kernels that are made for the network ---------------------------------------------------------------------------

needs_compiler = [
    pytest.mark.slow,
    pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # torch uses its own old parts
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """How many tensors each function takes that kernels are made for; in a folder of its own, by this process."""
    import torch._inductor.config as settings

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    counts: list[int] = []
    make = compiler.compiled

    def counted(function: Any, examples: Any, *, is_last: bool) -> Any:
        counts.append(len(examples))
        return make(function, examples, is_last=is_last)

    monkeypatch.setattr(compiler, "compiled", counted)
    with settings.patch(compile_threads=1):
        yield counts


class TestCompiled:
    pytestmark = needs_compiler

    def test_images(self, made: list[int]) -> None:
        data = images()
        for form in (COMPILED, BOTH):
            made.clear()
            check(built(data, form), data)
            assert len(made) == 1  # once, for all runners

    def test_words_and_their_weights(self, made: list[int]) -> None:
        data = words()
        program = built(data, COMPILED)
        check(program, data)
        assert len(made) == 1
        assert made[0] >= 1 + len(program.arena.tensors) - 4  # single numbers may be known beforehand
        x = drawn(2, 5, 6)
        runner = program.bind()
        before = runner.run([x])[0]
        program.arena.memory.zero_()
        np.testing.assert_array_equal(runner.run([x])[0], np.zeros_like(before))  # weights are read in each run
        assert before.any()
        assert len(made) == 1

    def test_kernels_are_for_sizes_and_for_pieces(self, made: list[int]) -> None:
        """A step that waits is between two pieces; sizes that come once are not worth kernels."""
        nodes = [
            *(node("Relu", "x", "a"), node("Add", "a x", "b"), node("NonZero", "b", "z")),
            *(node("Neg", "b", "c"), node("Mul", "c a", "y"), node("Shape", "z", "n"), node("Cast", "n", "s", to=1)),
        ]
        data = model(nodes, {"x": ["n", 3]}, {"y": None, "s": None})
        runner, counts = built(data, COMPILED).bind(), []
        for count in (2, 2, 2, 4, 2):
            x = drawn(count, 3)
            found = runner.run([x])
            b = np.maximum(x, 0) + x
            np.testing.assert_allclose(found[0], -b * np.maximum(x, 0), rtol=1e-6)
            assert found[1].tolist() == [2, np.count_nonzero(b)]
            counts.append(len(made))
        assert counts[0] == 0
        assert counts[-1] == counts[2] == 2
