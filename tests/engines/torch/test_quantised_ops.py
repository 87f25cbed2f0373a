"""The ops that ONNX Runtime's quantisers and its optimiser write, against its kernels."""

import numpy as np
import pytest
import torch
from engines.torch import against_runtime
from engines.torch.against import agrees, numbers, one_op
from engines.torch.far import Apart
from engines.torch.quantised_cases import CASES, FOUR_BITS, Case, one, scales, small
from formats.onnx_runs import direct
from onnx import helper
from torch.fx.experimental.proxy_tensor import make_fx

from litehouse import Options, read
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.registry import LackingError, Op, find_op
from litehouse.engines.torch.values import Tensor, as_tensor

ALL = CASES | FOUR_BITS


@pytest.mark.parametrize("name", ALL)
def test_case(name: str) -> None:
    case = ALL[name]
    options = {"dtypes": case.dtypes, "outputs": len(case.dtypes), "known": case.known, "tolerance": case.tolerance}
    agrees(case.op, case.inputs, domain="com.microsoft", more=case.attributes, **options)


def parts(case: Case) -> tuple[Op, list[Tensor | None]]:
    """The function of a use, and its inputs."""
    found = find_op("com.microsoft", case.op, 1)
    assert found is not None
    return found, [None if array is None else as_tensor(array) for array in case.inputs]


def results(case: Case, found: Op, inputs: list[Tensor | None]) -> list[Tensor]:
    given = found.function(*inputs, **case.attributes)
    return list(given)[: len(case.dtypes)] if isinstance(given, tuple) else [given]


def two_of_each() -> list[str]:
    """The first and the last use of each op."""
    ops = {case.op for case in CASES.values()}
    named = {op: [name for name, case in CASES.items() if case.op == op] for op in sorted(ops)}
    return [name for names in named.values() for name in dict.fromkeys((names[0], names[-1]))]


@pytest.mark.parametrize("name", two_of_each())
def test_no_number_is_asked_for(name: str) -> None:
    found, inputs = parts(CASES[name])
    near = results(CASES[name], found, inputs)
    far = [None if value is None else value.to("meta") for value in inputs]
    with Apart():
        there = results(CASES[name], found, far)
    for expected, actual in zip(near, there, strict=True):
        assert (actual.shape, actual.dtype, actual.device.type) == (expected.shape, expected.dtype, "meta")


def indexed(case: Case) -> bool:
    """Whether a use takes indices, which are looked at where nobody waits for that: on the CPU."""
    return "Gather" in case.op or "Embed" in case.op or (case.op == "MatMulNBits" and len(case.inputs) == 5)


@pytest.mark.parametrize("name", [name for name in two_of_each() if not indexed(CASES[name])])
def test_traced(name: str) -> None:
    found, inputs = parts(CASES[name])

    def function(*given: Tensor | None) -> list[Tensor]:
        return results(CASES[name], found, list(given))

    with torch.inference_mode():
        traced = make_fx(function)(*inputs)
        others = [None if value is None else value.flip(0) if value.ndim else value for value in inputs]
        for actual, expected in zip(traced(*others), function(*others), strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("name", ["attention uint8 ends 0", "attention int8 keys 1", "attention uint8 past", "product"])
def test_floats_of_16_bits(name: str) -> None:
    """ONNX Runtime has these on a GPU alone: results are of 16 bits, too."""
    given = [small(3, 40), small(40, 9, dtype="int8", seed=1), one(0.02), scales(9), one(99, "uint8"), None, numbers(9)]
    case = CASES.get(name) or Case("MatMulIntegerToFloat", given)
    halves = [array.astype("f2") if array is not None and array.dtype == "f4" else array for array in case.inputs]
    found, expected = (
        results(case, parts(case)[0], [None if array is None else as_tensor(array) for array in inputs])
        for inputs in (halves, case.inputs)
    )
    for ours, wanted in zip(found, expected, strict=True):
        assert ours.dtype == torch.float16
        torch.testing.assert_close(ours.float(), wanted, rtol=1e-2, atol=1e-2)


def groups(columns: int, count: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.arange(columns) % count).astype(np.int32)


def test_a_table_of_4_bits_is_there_once() -> None:
    case = FOUR_BITS["gather int4 0 1 plain"]
    data, indices, factors = (array for array in case.inputs if array is not None)
    nodes = [
        helper.make_node(
            "GatherBlockQuantized", ["table", place, "scales"], [y], domain="com.microsoft", **case.attributes
        )
        for place, y in (("x", "y"), ("x2", "y2"))
    ]
    given = {"x": indices, "x2": indices[:1], "scales": factors}
    model = against_runtime.whole(nodes, given, ["y", "y2"], {"table": data})
    program = TorchEngine().compile(read(model), Options(engine="torch", cache=False))
    assert [tensor.shape for tensor in program.arena.tensors.values()] == [data.shape]
    for actual, expected in zip(program.bind().run([*given.values()]), direct(model, given), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6)


A, W, S = numbers(3, 64), small(6, 4, 8), scales(6, 4)
LACKING: dict[str, Case] = {
    "groups with packed zeros": Case(
        "MatMulNBits", [A, W, S, small(6, 2), groups(64, 4)], {"K": 64, "N": 6, "block_size": 16}
    ),
    "groups with packed zeros and a bias": Case(
        "MatMulNBits",
        [A, W, S, small(6, 2), groups(64, 4), numbers(6)],
        {"K": 64, "N": 6, "block_size": 16},
        known=(5,),  # whose shape ONNX Runtime must know
    ),
    "lengths": Case(
        "DynamicQuantizeLSTM",
        [
            *(numbers(5, 2, 3), small(1, 3, 16), small(1, 4, 16), None, np.array([5, 3], np.int32), None, None, None),
            *(scales(1), small(1), scales(1, seed=1), small(1)),
        ],
        {"hidden_size": 4},
        ("float32",) * 3,
        tolerance=0.02,  # both sequences have a range of their own where two threads run
    ),
    "windows with gaps": Case(
        "NhwcMaxPool",
        [small(1, 17, 17, 3)],
        {"kernel_shape": [3, 3], "dilations": [2, 1], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
        ("uint8",),
    ),
}


@pytest.mark.parametrize("name", LACKING)
def test_what_torch_leaves_to_onnx_runtime(name: str) -> None:
    case = LACKING[name]
    found, inputs = parts(case)
    with pytest.raises(LackingError):
        results(case, found, inputs)
    options = {"dtypes": case.dtypes, "outputs": len(case.dtypes), "known": case.known, "tolerance": case.tolerance}
    agrees(case.op, case.inputs, domain="com.microsoft", more=case.attributes, lacks=True, **options)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_least_accuracy_is_exceeded(bits: int) -> None:
    """Asked for 8 bits of what is multiplied, ONNX Runtime's kernel rounds to them, and torch does not."""
    inputs = [A, small(6, 4, 2 * bits), S, None, None, numbers(6)]
    options = {"domain": "com.microsoft", "dtypes": ["float32"], "known": (1, 2)}
    more = {"K": 64, "N": 6, "bits": bits, "block_size": 16}
    (full,) = agrees("MatMulNBits", inputs, more=more, tolerance=1e-4, **options)
    model = one_op("MatMulNBits", inputs, more={**more, "accuracy_level": 4}, **options)
    feeds = {"x0": A, "x5": inputs[5]}
    (found,), (rounded,) = against_runtime.run(model, feeds), direct(model, feeds)
    np.testing.assert_array_equal(found, full)
    np.testing.assert_allclose(rounded, full, rtol=0, atol=0.02 * float(np.abs(full).max()))
