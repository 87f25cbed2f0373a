"""Small models that are in the repo, with the outputs that MindSpore computed."""

from pathlib import Path

import numpy as np

import mindspore_lite as mslite

MINDIR = Path(__file__).parents[2] / "fixtures" / "mindir"


class Sample:
    """A model file with its inputs and expected outputs."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        with np.load(path.with_suffix(".npz")) as arrays:
            names = sorted(arrays)
            self.inputs = [arrays[name] for name in names if name.startswith("input_")]
            self.outputs = [arrays[name] for name in names if name.startswith("output_")]

    def build(self, context=None, **arguments):
        model = mslite.Model()
        model.build_from_file(self.path, mslite.ModelType.MINDIR, context, **arguments)
        return model

    def check(self, tensors):
        assert len(tensors) == len(self.outputs)
        for tensor, expected in zip(tensors, self.outputs, strict=True):
            data = tensor.get_data_to_numpy()
            assert data.dtype == expected.dtype
            assert data.shape == expected.shape
            np.testing.assert_allclose(data, expected, rtol=1e-4, atol=1e-5)


def sample(name):
    return Sample(MINDIR / "ops" / f"{name}.mindir")


RELU = sample("act_relu")
"""One float32 input [3, 5]."""
ADD = sample("binary_add")
"""Two float32 inputs [2, 3, 5] and [3, 1]."""
ADD_INT64 = sample("binary_int64")
"""Two int64 inputs [3, 5] and [1, 5]."""
DYNAMIC = sample("act_softmax_dynamic")
"""One float32 input [-1, -1, 5]."""
TWO_OUTPUTS = sample("order_topk")
"""One float32 input [2, 3, 5]; a float32 and an int32 output [2, 3, 3]."""
NETWORK = sample("conv2d_batch_norm_relu")
"""A convolution, a normalization and an activation: one float32 input [2, 3, 9, 7], 630 numbers out."""

CONTAINERS = MINDIR / "containers"
"""One small network in every container, plain, split and encrypted; `keys.json` has the keys, `io.npz` the arrays."""
