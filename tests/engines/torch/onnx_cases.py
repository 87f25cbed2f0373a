"""The cases of ONNX's own test suite for single ops: inputs, and the outputs that ONNX's definition gives."""

import functools
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest

from conftest import REAL_GPU

pytest.importorskip("torch")

DEVICE = "gpu:0" if REAL_GPU else "cpu"

# Of numbers of 16 bits the last two bits may differ: torch rounds once where ONNX's definition rounds at each step.
ROUNDED = {"float16": 2e-3, "bfloat16": 2e-2}
REORDERED = 1e-4 if REAL_GPU else 0.0  # a GPU adds up in an order of its own


@functools.cache
def all_cases() -> dict[str, Any]:
    """Every case by name. They are made by ONNX's own code, with a fixed seed."""
    import warnings

    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        np.random.seed(0)  # noqa: NPY002  (it is what that code draws from)
        return {case.name: case for case in collect_testcases(None)}


def cases_of(*ops: str) -> list[str]:
    """The names of the cases with one of these ops."""
    return [name for name, case in all_cases().items() if {node.op_type for node in case.model.graph.node} & set(ops)]


def cases_about(*ops: str) -> list[str]:
    """The names of the cases that test one of these ops: by itself, or as the function that ONNX defines it as."""
    cases = all_cases()
    about = {name for name in cases_of(*ops) if len(cases[name].model.graph.node) == 1}
    return [name for name in cases if name.split("_expanded")[0] in about]


def run_case(name: str, *, may_lack: bool = False, device: str = DEVICE) -> None:
    """Run a case on torch; unless told so, nothing may be computed elsewhere."""
    from litehouse import Options, read
    from litehouse.engines.torch.engine import TorchEngine

    case = all_cases()[name]
    model = read(case.model.SerializeToString())
    program = TorchEngine().compile(model, Options(engine="torch", cache=False, device=device))
    for inputs, outputs in case.data_sets:
        *_, found = runs(program, [array_of(value) for value in inputs])
        if not may_lack:
            assert not program.lacking, f"torch lacks {program.lacking}"
        assert len(found) == len(outputs)
        for actual, expected in zip(found, outputs, strict=True):
            check(actual, array_of(expected), case.rtol, case.atol)


def runs(program: Any, inputs: Sequence[Any]) -> list[list[Any]]:
    """What a program gives in three runs, of which the last replays what was captured, also of a single step."""
    from litehouse.engines.torch import pieces

    with mock.patch.object(pieces, "MIN_STEPS", 1):
        runner = program.bind()
        return [runner.run([array.copy() for array in inputs]) for _ in range(3)]


def array_of(value: Any) -> np.ndarray:
    """The numbers of a case; those of types that numpy lacks are kept as protobuf messages."""
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def check(actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> None:
    """Equal shape and dtype, and numbers within the tolerance that ONNX has for the case."""
    assert actual.shape == expected.shape, f"shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"dtype {actual.dtype}, expected {expected.dtype}"
    if expected.dtype.kind in "OSUbiu":
        np.testing.assert_array_equal(actual, expected)
        return
    rtol, atol = max(rtol, REORDERED, ROUNDED.get(expected.dtype.name, 0.0)), max(atol, REORDERED)
    with np.errstate(invalid="ignore"):  # numpy's small floats warn of NaN
        actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)
