"""One rank of a job that a launcher starts, as in ``mpirun -n 2 python main.py --model_path=Matmul.mindir``.

The calls are those of a program for MindSpore Lite. Which rank this is, the launcher tells; each rank has a file of its
own, ``Matmul0.mindir`` and so on. The CPU is the target unless another is asked for.
"""

import argparse
from pathlib import Path

import numpy as np

import mindspore_lite as mslite

SHOWN = 10  # numbers of an output


def make_context(target: str) -> mslite.Context:
    """The context of this rank, on the GPU of the same number where that is asked for."""
    context = mslite.Context()
    context.target = [target]
    if target == "gpu":
        context.gpu.device_id = context.gpu.rank_id
        context.gpu.provider = "tensorrt"
    return context


def own_file(path: str, rank: int) -> str:
    """The file of a rank: its number is behind the name."""
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}{rank}{whole.suffix}"))


def describe(output: mslite.Tensor) -> str:
    """What to print of an output: name, sizes, and the first numbers."""
    numbers = " ".join(str(number) for number in output.get_data_to_numpy().flatten()[:SHOWN])
    name, size, count = output.name.rstrip(), output.data_size, output.element_num
    return f"tensor's name is:{name} data size is:{size} tensor elements num is:{count}\noutput data is: {numbers}\n"


def main() -> None:
    """Build the file of this rank, and run it together with the others on an input of ones."""
    parser = argparse.ArgumentParser(description="run one rank of a job")
    parser.add_argument("--model_path", required=True, help="the name that the files of all ranks begin with")
    parser.add_argument("--target", default="cpu", help="the device: cpu or gpu")
    arguments = parser.parse_args()
    context = make_context(arguments.target)
    model = mslite.Model()
    model.build_from_file(own_file(arguments.model_path, context.gpu.rank_id), mslite.ModelType.MINDIR, context)
    inputs = model.get_inputs()
    for tensor in inputs:
        tensor.set_data_from_numpy(np.ones(tensor.shape, dtype=np.float32))
    outputs = model.predict(inputs)
    print("".join(map(describe, outputs)), end="", flush=True)  # at once, or lines of other ranks come between


if __name__ == "__main__":
    main()
