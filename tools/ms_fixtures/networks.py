"""Exports networks with control flow as MindIR, with what they compute. Runs with MindSpore 2.0 (Python 3.9)."""

import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops

GENERATOR = np.random.RandomState(1)
ROWS = [(GENERATOR.randn(2, 3) + shift).astype(np.float32) for shift in (-1, 0.2, 3)]


class If(nn.Cell):
    def construct(self, x):
        if ops.reduce_sum(x) > 0:
            y = x * 2 + 1
        else:
            y = x - 3
        return y * y


class Early(nn.Cell):
    def construct(self, x):
        if ops.reduce_sum(x) > 0:
            return x + 1
        x = ops.relu(x)
        return x - 1


class NestedIf(nn.Cell):
    def construct(self, x):
        total = ops.reduce_sum(x)
        if total > 0:
            if total > 5:
                y = x * 2
            else:
                y = x * 3
        else:
            y = x - 3
        return y + 1


class While(nn.Cell):
    def construct(self, x, count):
        while count > 0:
            x = x * 0.5 + 1
            count = count - 1
        return x


class IfInWhile(nn.Cell):
    def construct(self, x, count):
        while count > 0:
            if ops.reduce_sum(x) > 10:
                x = x - 5
            else:
                x = x + 2
            count = count - 1
        return x


ONE = [(x,) for x in ROWS]
COUNTED = [(x, np.int32(count)) for x in ROWS for count in (0, 1, 4)]
CASES = {
    "if": (If, ONE),
    "early_return": (Early, ONE),
    "nested_if": (NestedIf, ONE),
    "while": (While, COUNTED),
    "if_in_while": (IfInWhile, COUNTED),
}


def main(folder):
    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    for name, (kind, calls) in CASES.items():
        tensors = [[Tensor(array) for array in call] for call in calls]
        mindspore.export(kind(), *tensors[0], file_name=str(folder / name), file_format="MINDIR")
        stored = {}
        for number, call in enumerate(tensors):
            stored.update({f"input_{number}_{index}": np.asarray(array) for index, array in enumerate(calls[number])})
            stored[f"output_{number}_0"] = kind()(*call).asnumpy()
        np.savez(folder / f"{name}.npz", **stored)


main(Path(sys.argv[1]))
