"""Lets MegEngine Lite run a file, and puts the outputs to its inputs. Runs with `megengine==1.13.0` (Python 3.10).

MegEngine itself runs it where Lite lacks the dtype of an output.
"""

import sys
from pathlib import Path

import numpy as np
from megengine.utils.comp_graph_tools import GraphInference

from megenginelite import LiteNetwork


def run_lite(file: Path, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    network = LiteNetwork()
    network.load(str(file))
    for name, value in inputs.items():
        network.get_io_tensor(name).set_data_by_copy(value)
    network.forward()
    network.wait()
    return [network.get_io_tensor(name).to_numpy() for name in network.get_all_output_name()]


def main(case: Path) -> None:
    with np.load(case.with_suffix(".npz")) as stored:
        values = dict(stored)
    inputs = {name.removeprefix("in_"): value for name, value in values.items()}
    file = case.with_suffix(".mge")
    try:
        outputs = run_lite(file, inputs)
    except RuntimeError as error:
        if "unsupport dtype in lite" not in str(error):
            raise
        outputs = list(GraphInference(str(file)).run(inp_dict=inputs).values())
    np.savez_compressed(case.with_suffix(".npz"), **values, **{f"out_{k}": array for k, array in enumerate(outputs)})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
