"""Make the fixtures under `tests/fixtures/mge_lite`: small MegEngine models for the tests of the `megenginelite` API.

Run with a Python 3.10 that has `megengine==1.13.0` and `numpy<2`::

    python tools/make_mge_lite_fixtures.py

`NAME.npz` holds inputs and outputs: those of MegEngine Lite, or, for the types that it cannot run, those of MegEngine.
`order.json` has the names of the inputs of `order_*.mge` as MegEngine Lite lists them.
"""

import json
import random
import string
from collections.abc import Callable
from pathlib import Path

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine import jit

from megenginelite import LiteNetwork

TARGET = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "mge_lite"
NOT_IN_LITE = ("float16", "uint16", "bool")


def dump(name: str, function: Callable, inputs: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
    """Write a model and give what MegEngine computes."""
    traced = jit.trace(function, symbolic=True, capture_as_const=True)
    results = traced(*map(mge.tensor, inputs.values()))
    traced.dump(
        str(TARGET / f"{name}.mge"),
        arg_names=list(inputs),
        output_names=outputs,
        optimize_for_inference=False,
        keep_var_name=2,
    )
    return [result.numpy() for result in (results if isinstance(results, tuple) else (results,))]


def run_lite(name: str, inputs: dict[str, np.ndarray], outputs: list[str]) -> list[np.ndarray]:
    """Give what MegEngine Lite computes."""
    network = LiteNetwork()
    network.load(str(TARGET / f"{name}.mge"))
    for key, array in inputs.items():
        network.get_io_tensor(key).set_data_by_copy(array)
    network.forward()
    network.wait()
    return [network.get_io_tensor(key).to_numpy() for key in outputs]


def keep(name: str, function: Callable, inputs: dict[str, np.ndarray], outputs: list[str], lite: bool = True) -> None:
    """Write a model with its arrays."""
    results = dump(name, function, inputs, outputs)
    if lite:
        results = run_lite(name, inputs, outputs)
    kept = {f"input_{key}": array for key, array in inputs.items() if array.size < 1000}
    np.savez_compressed(
        TARGET / f"{name}.npz", **kept, **{f"output_{key}": array for key, array in zip(outputs, results, strict=True)}
    )


def image_network() -> Callable:
    """A classifier for images of any size."""
    mge.random.seed(1)
    features = M.Sequential(M.Conv2d(3, 4, 3, stride=4), M.ReLU())
    last = M.Linear(4, 10)
    return lambda data: F.softmax(last(F.mean(features(data), axis=(2, 3))))


def write_order() -> None:
    """Dump sums of several inputs, and note in which order MegEngine Lite gives their names."""
    generator = random.Random(3)
    letters = string.ascii_letters + string.digits + "_."
    orders = {}
    for count in (2, 5, 14, 30):
        names = ["".join(generator.choices(letters, k=1 + 5 * index % 24)) + str(index) for index in range(count)]
        name = f"order_{count}"
        dump(name, lambda *items: sum(items[1:], items[0]), {key: np.ones(1, np.float32) for key in names}, ["out"])
        network = LiteNetwork()
        network.load(str(TARGET / f"{name}.mge"))
        orders[name] = network.get_all_input_name()
    (TARGET / "order.json").write_text(json.dumps(orders, indent=1) + "\n")


def main() -> None:
    TARGET.mkdir(exist_ok=True)
    weight = mge.tensor((np.arange(12).reshape(4, 3) - 5).astype(np.float32))
    bias = mge.tensor(np.array([1, 2, 3], np.float32))
    row = np.arange(4, dtype=np.float32).reshape(1, 4)
    keep("tiny", lambda data: F.matmul(data, weight) + bias, {"data": row}, ["score"])
    ones = np.ones((1, 3, 224, 224), np.float32)
    keep("image", image_network(), {"data": ones}, ["prob"])
    grid = np.arange(8, dtype=np.float32).reshape(2, 4)
    keep(
        "many",
        lambda left, right, index: (left + right, left - right, F.indexing_one_hot(left, index, 1, keepdims=False)),
        {"left": grid, "right": grid + 1, "index": np.array([1, 2], np.int32)},
        ["total", "difference", "picked"],
    )
    keep(
        "shrink",
        lambda data: (F.cond_take(data > 0, data)[0], data * 2),
        {"data": np.array([1, -1, 2, -3, 4, 5], np.float32)},
        ["kept", "double"],
    )
    bits = np.array([[1, 0, 1], [0, 1, 1]])
    for kind in ("int8", "uint8", "int16", "int32", "float16"):
        keep(f"type_{kind}", lambda x: x + x, {"x": bits.astype(kind)}, ["y"], lite=kind not in NOT_IN_LITE)
    keep("type_uint16", lambda x: F.transpose(x, (1, 0)), {"x": bits.astype("uint16")}, ["y"], lite=False)
    keep("type_bool", F.logical_not, {"x": bits.astype("bool")}, ["y"], lite=False)
    write_order()


if __name__ == "__main__":
    main()
