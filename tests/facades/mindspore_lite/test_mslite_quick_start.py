"""The published quick start, as a program of its own: the calls, paths and printed lines are the tutorial's."""

import shutil
import subprocess
import sys

import numpy as np
import pytest
from facades.mindspore_lite.support import NETWORK

PROGRAM = """\
import numpy as np
import mindspore_lite as mslite

context = mslite.Context()
context.target = ["cpu"]
context.cpu.thread_num = 1
context.cpu.thread_affinity_mode=2

MODEL_PATH = "./model/mobilenetv2.mindir"
IN_DATA_PATH = "./model/input.bin"
model = mslite.Model()
model.build_from_file(MODEL_PATH, mslite.ModelType.MINDIR, context)

inputs = model.get_inputs()
in_data = np.fromfile(IN_DATA_PATH, dtype=np.float32)
inputs[0].set_data_from_numpy(in_data)

outputs = model.predict(inputs)

for output in outputs:
  name = output.name.rstrip()
  data_size = output.data_size
  element_num = output.element_num
  print("tensor's name is:%s data size is:%s tensor elements num is:%s" % (name, data_size, element_num))
  data = output.get_data_to_numpy()
  data = data.flatten()
  print("output data is:", end=" ")
  for i in range(50):
    print(data[i], end=" ")
  print("")
"""

FROM_2_0_0 = PROGRAM.replace("context.cpu.thread_affinity_mode=2", "context.cpu.enable_fp16 = False")
"""The same in the form that went with 2.0.0, which sets an attribute that nobody reads."""


@pytest.mark.parametrize("program", [PROGRAM, FROM_2_0_0])
def test_quick_start(tmp_path, program):
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(NETWORK.path, folder / "mobilenetv2.mindir")
    NETWORK.inputs[0].tofile(folder / "input.bin")
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    first, second = done.stdout.splitlines()
    (expected,) = NETWORK.outputs
    assert first.startswith("tensor's name is:")
    assert first.endswith(f" data size is:{expected.nbytes} tensor elements num is:{expected.size}")
    assert second.startswith("output data is: ")
    numbers = np.array(second.removeprefix("output data is: ").split(), np.float32)
    np.testing.assert_allclose(numbers, expected.reshape(-1)[:50], rtol=1e-4, atol=1e-5)
    assert done.stderr == ""
