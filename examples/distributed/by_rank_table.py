"""One rank of a job without a launcher: a rank table tells where all ranks are, the arguments which one this is.

The calls are those of a program for MindSpore Lite on Ascend; here the CPU is the target unless another is asked for.
The configuration file names the rank table.
"""

import argparse

import numpy as np

import mindspore_lite as mslite

SHOWN = 10  # numbers of an output


def make_context(target: str, device_id: int, rank_id: int) -> mslite.Context:
    """The context of this rank."""
    context = mslite.Context()
    context.target = [target]
    context.ascend.device_id = device_id
    context.ascend.rank_id = rank_id
    context.ascend.provider = "ge"
    return context


def describe(output: mslite.Tensor) -> str:
    """What to print of an output: name, sizes, and the first numbers."""
    numbers = " ".join(str(number) for number in output.get_data_to_numpy().flatten()[:SHOWN])
    name, size, count = output.name.rstrip(), output.data_size, output.element_num
    return f"tensor's name is:{name} data size is:{size} tensor elements num is:{count}\noutput data is: {numbers}\n"


def main() -> None:
    """Build the file of this rank, and run it together with the others on an input of ones."""
    parser = argparse.ArgumentParser(description="run one rank of a job that a rank table describes")
    parser.add_argument("--model_path", required=True, help="the file of this rank")
    parser.add_argument("--device_id", type=int, default=0, help="the device of this rank; the CPU needs none")
    parser.add_argument("--rank_id", type=int, required=True, help="which rank this is, from 0")
    parser.add_argument("--config_file", required=True, help="the file that names the rank table")
    parser.add_argument("--target", default="cpu", help="the device: cpu or Ascend")
    arguments = parser.parse_args()
    context = make_context(arguments.target, arguments.device_id, arguments.rank_id)
    model = mslite.Model()
    model.build_from_file(arguments.model_path, mslite.ModelType.MINDIR, context, arguments.config_file)
    inputs = model.get_inputs()
    for tensor in inputs:
        tensor.set_data_from_numpy(np.ones(tensor.shape, dtype=np.float32))
    outputs = model.predict(inputs)
    print("".join(map(describe, outputs)), end="", flush=True)  # at once, or lines of other ranks come between


if __name__ == "__main__":
    main()
