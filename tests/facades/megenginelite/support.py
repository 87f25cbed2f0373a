"""Small models that are in the repo, with the outputs that MegEngine Lite 1.13.0 computed."""

import numpy as np

from conftest import FIXTURES
from litehouse.device import DeviceArray
from megenginelite import LiteDeviceType, LiteLayout, LiteNetwork, LiteTensor

MODELS = FIXTURES / "mge_lite"

ROW = np.arange(4, dtype=np.float32).reshape(1, 4)
WEIGHT = (np.arange(12).reshape(4, 3) - 5).astype(np.float32)


def score(data):
    """What `tiny` computes of its input `data`, by hand."""
    return data @ WEIGHT + np.array([1, 2, 3], np.float32)


def path(name):
    return str(MODELS / f"{name}.mge")


def load(name="tiny", config=None, io=None):
    network = LiteNetwork(config, io)
    network.load(path(name))
    return network


def arrays(name):
    """The stored inputs and outputs of a model, by name."""
    with np.load(MODELS / f"{name}.npz") as stored:
        return [
            {key.removeprefix(f"{kind}_"): stored[key] for key in stored if key.startswith(kind)}
            for kind in ("input", "output")
        ]


def run(network):
    network.forward()
    network.wait()
    return {name: network.get_io_tensor(name).to_numpy() for name in network.get_all_output_name()}


def feed(network, inputs):
    for name, array in inputs.items():
        network.get_io_tensor(name).set_data_by_copy(array)


def counted(*shape, dtype="float32"):
    return np.arange(int(np.prod(shape))).reshape(shape).astype(dtype)


def tensor(*shape, dtype="float32"):
    """A tensor with the numbers from 0 on."""
    made = LiteTensor(LiteLayout(list(shape), dtype))
    made.set_data_by_copy(counted(*shape, dtype=dtype))
    return made


def on_device(*shape, dtype="float32"):
    """The same on a GPU."""
    made = LiteTensor(LiteLayout(list(shape), dtype), LiteDeviceType.LITE_CUDA)
    made.set_data_by_copy(counted(*shape, dtype=dtype))
    return made


def is_on_device(made):
    return isinstance(made._array, DeviceArray)


def address(made):
    return made.get_ctypes_memory().value
