"""The rounding to 16 bits, against numpy."""

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from benchmarks.precision import TYPES, error, outputs, rounded

DTYPES = {"bf16": ml_dtypes.bfloat16, "fp16": np.float16}


@pytest.mark.parametrize("kind", TYPES)
def test_weights_and_results_are_rounded(tmp_path: Path, kind: str) -> None:
    random = np.random.default_rng(0)
    x, weight = random.normal(size=(2, 8)).astype("f"), random.normal(size=(8, 3)).astype("f")
    y, h = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "yh")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Exp", ["h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [y],
        [numpy_helper.from_array(weight, "w")],
        value_info=[h],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 17)]), path)

    def r(array: np.ndarray) -> np.ndarray:
        return array.astype(DTYPES[kind]).astype("f")

    (found,) = outputs(rounded(path, TYPES[kind]), [x])
    np.testing.assert_array_equal(found, r(np.exp(r(x @ r(weight)))))
    assert not np.array_equal(found, outputs(str(path), [x])[0])


def test_an_error_is_a_share_of_the_range() -> None:
    assert error([np.array([0.0, 9.0])], [np.array([1.0, -10.0])]) == 1.9
