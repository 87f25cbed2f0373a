"""The published programs, each as a program of its own: the calls and printed lines are the tutorial's."""

import os
import shutil
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from facades.megenginelite.support import path, run

from conftest import REAL_GPU, REPOSITORY, ZOO, assert_close
from megenginelite import LiteNetwork

SHUFFLENET = ZOO / "mge" / "shufflenet_v2_x1_0"

QUICK_START = (REPOSITORY / "examples" / "megengine_quick_start" / "inference.py").read_text()

# The tutorial has `[["data", is_host=False]]`, which is no Python, and runs on CUDA.
SLIP, RIGHT = '[["data", is_host=False]]', '[["data", False]]'
TUTORIAL = ZOO.parent / "tutorials" / "megengine_lite_quick_start_zh.rst"
COLLECTOR = """\
from megenginelite import *
import numpy as np
import os

def test_network():
   model_path = "shufflenet.mge"
   batch = 4

   # construct LiteOption
   net_config = LiteConfig(device_type=LiteDeviceType.LITE_CPU)

   # constuct LiteIO, is_host=False means the input tensor will use device memory
   # set the input tensor "data" memory is not from host, but from device
   ios = LiteNetworkIO(inputs=[["data", False]])

   network = LiteNetwork(config=net_config, io=ios)
   network.load(model_path)

   dev_input_tensor = network.get_io_tensor("data")

   # read input to input_data
   input_layout = dev_input_tensor.layout
   shape = list(input_layout.shapes)[0 : input_layout.ndim]
   arr = np.ones(shape[1:], "float32")

   shape[0] = batch
   print(shape)
   batch_tensor = TensorBatchCollector(
         shape, dtype=LiteDataType.LITE_FLOAT, device_type=LiteDeviceType.LITE_CPU
   )
   for time in range(3):
      batch_tensor.free(range(batch))
      for i in range(batch):
         batch = batch_tensor.collect(arr)
         print("collect batch id = {}".format(batch))
         arr += 1

      # set device input data to input_tensor of the network without copy
      dev_input_tensor.share_memory_with(batch_tensor.get())
      network.forward()
      network.wait()

      output_names = network.get_all_output_name()
      output_tensor = network.get_io_tensor(output_names[0])
      output_data = output_tensor.to_numpy()
      print('shufflenet output shape={}, max={}, sum={}'.format(output_data.shape, output_data.max(), output_data.sum()))

test_network()
"""  # noqa: E501

MODELS = [
    pytest.param(path("image"), id="fixture"),
    pytest.param(
        str(SHUFFLENET / "model.mge"),
        id="zoo",
        marks=[pytest.mark.zoo, pytest.mark.skipif(not SHUFFLENET.exists(), reason="the model zoo is not there")],
    ),
]


def lines(program, *arguments, folder, **variables):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize("model", MODELS)
def test_quick_start(model, tmp_path):
    seeded = QUICK_START.replace("   network = LiteNetwork()", "   np.random.seed(5); network = LiteNetwork()")
    (line,) = lines(seeded, model, folder=tmp_path)
    numbers = np.random.RandomState(5).uniform(0, 1, (1, 3, 224, 224))
    expected = _result(model, numbers.astype("float32"))
    largest, total = (float(word.partition("=")[2]) for word in line.removeprefix("shufflenet output ").split(", "))
    assert line.startswith("shufflenet output max=")
    np.testing.assert_allclose([largest, total], [expected.max(), expected.sum()], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", MODELS)
def test_collector(model, tmp_path):
    shutil.copy(model, tmp_path / "shufflenet.mge")
    _check_collected(model, lines(COLLECTOR, folder=tmp_path))


@pytest.mark.parametrize("model", MODELS)
def test_collector_on_a_gpu(model, tmp_path):
    pytest.importorskip("torch")
    shutil.copy(model, tmp_path / "shufflenet.mge")
    program = _published() or COLLECTOR.replace("LITE_CPU", "LITE_CUDA")
    rehearsal = {} if REAL_GPU else {"LITEHOUSE_REHEARSE_GPU": "1"}
    _check_collected(model, lines(program, folder=tmp_path, **rehearsal))


def test_collector_without_a_gpu(tmp_path):
    shutil.copy(path("image"), tmp_path / "shufflenet.mge")
    program = "import torch\ntorch.cuda.is_available = lambda: False\n" + COLLECTOR.replace("LITE_CPU", "LITE_CUDA")
    pytest.importorskip("torch")
    with pytest.raises(subprocess.CalledProcessError) as caught:
        lines(program, folder=tmp_path)
    assert "RuntimeError: Error: request gpu0 out of valid range [0, 0), Error Code: 1" in caught.value.stderr


@pytest.mark.skipif(not TUTORIAL.exists(), reason="the tutorials are not there")
def test_collector_is_the_published_program():
    assert _published() == COLLECTOR.replace("LITE_CPU", "LITE_CUDA")


def _published():
    """The tutorial's program for CUDA with its slip corrected; nothing where the tutorial is not there."""
    if not TUTORIAL.exists():
        return ""
    _, _, text = TUTORIAL.read_text().rpartition(".. code-block:: python\n   :linenos:\n")
    indented = "\n".join(line for line in text.splitlines()[1:])
    program, _, _ = indented.partition("\n\n上面示例")
    assert SLIP in program
    return textwrap.dedent(program).replace(SLIP, RIGHT) + "\n"


def _check_collected(model, found):
    assert found[0] == "[4, 3, 224, 224]"
    # The variable of the batch's size is used again for the place, so each round collects one piece less.
    ids = [line for line in found if line.startswith("collect")]
    assert ids == [f"collect batch id = {place}" for place in (0, 1, 2, 3, 0, 1, 2, 0, 1)]
    results = [line for line in found if line.startswith("shufflenet")]
    pieces = [[1, 2, 3, 4], [5, 6, 7, 4], [8, 9, 7, 4]]
    for line, levels in zip(results, pieces, strict=True):
        data = np.ones((4, 3, 224, 224), "float32") * np.array(levels, "float32").reshape(4, 1, 1, 1)
        expected = _result(model, data)
        head = f"shufflenet output shape={expected.shape}, max="
        assert line.startswith(head)
        largest, total = map(float, line.removeprefix(head).split(", sum="))
        np.testing.assert_allclose([largest, total], [expected.max(), expected.sum()], rtol=1e-4, atol=1e-3)


def _result(model, data):
    """What the network gives, row by row."""
    network = LiteNetwork()
    network.load(model)
    rows = []
    for row in data:
        network.get_io_tensor("data").set_data_by_copy(row[np.newaxis])
        rows.append(next(iter(run(network).values())))
    return np.concatenate(rows)


@pytest.mark.zoo
@pytest.mark.skipif(not SHUFFLENET.exists(), reason="the model zoo is not there")
def test_shufflenet_gives_the_originals_result():
    expected = np.load(SHUFFLENET / "out_0.npy")
    assert_close(_result(str(SHUFFLENET / "model.mge"), np.load(SHUFFLENET / "data.npy")), expected)
