"""Networks of MindSpore 2.0 for the converter, whose files then mix both dialects. Run as `python native.py FOLDER`.

Writes NAME.source.mindir, and NAME.npz with in0 and out0, out1, … as MindSpore computes them.
"""

import sys
from pathlib import Path

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops


class Images(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2, has_bias=True)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.MaxPool2d(2, 2)
        self.dense = nn.Dense(8 * 2 * 2, 6)
        self.layer_norm = nn.LayerNorm((6,))
        self.group_norm = nn.GroupNorm(2, 8)
        self.deconv = nn.Conv2dTranspose(8, 4, 3, stride=2, has_bias=True)

    def construct(self, x):
        y = ops.ReLU()(self.norm(self.conv(x)))
        scores = ops.Softmax()(self.layer_norm(self.dense(ops.Flatten()(self.pool(y)))))
        wide = self.deconv(self.group_norm(y))
        return scores, ops.Sigmoid()(wide), ops.ReduceMean()(wide, (2, 3))


class Arrays(nn.Cell):
    def __init__(self):
        super().__init__()
        self.places = Tensor(np.array([2, 0], np.int32))

    def construct(self, x):
        joined = ops.Concat(1)((x, x * 2))
        product = ops.matmul(x, ops.transpose(x, (0, 2, 1)))
        picked = ops.gather(x, self.places, 1)
        part = ops.strided_slice(x, (0, 1, 0), (2, 3, 4), (1, 1, 2))
        chosen = ops.select(x > 0, x, -x)
        return joined, product, picked, part, ops.Argmax(-1)(x), ops.log_softmax(x, -1), chosen, ops.Stack(0)((x, x))


CASES = {"native_images": (Images, (2, 3, 8, 8)), "native_arrays": (Arrays, (2, 3, 4))}


def main():
    folder = Path(sys.argv[1])
    mindspore.set_context(mode=mindspore.GRAPH_MODE, device_target="CPU")
    mindspore.set_seed(1)
    for name, (network, shape) in CASES.items():
        cell = network().set_train(False)
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        outputs = [output.asnumpy() for output in cell(Tensor(x))]
        mindspore.export(cell, Tensor(x), file_name=str(folder / f"{name}.source"), file_format="MINDIR")
        np.savez(folder / f"{name}.npz", in0=x, **{f"out{index}": output for index, output in enumerate(outputs)})


if __name__ == "__main__":
    main()
