"""Dumps the networks of the packed fixtures, or runs what was packed. Runs with `megengine==1.13.0` (Python 3.10).

`dump FOLDER` writes the networks, each in both containers, and an input; `run FOLDER` lets MegEngine Lite load every
file that `cases.json` lists, and writes the names of the outputs there, and their values to `values.npz`.
"""

import json
import os
import sys

import numpy as np


def networks():
    import megengine as mge
    import megengine.functional as F

    dice = np.random.RandomState(0)
    weight, bias = mge.Tensor(dice.randn(6, 5).astype("float32")), mge.Tensor(dice.randn(5).astype("float32"))
    first, second, third = (mge.Tensor(dice.randn(1, 24).astype("float32")) for _ in range(3))
    whole = mge.Tensor(dice.randint(-1000, 1000, (1, 24)).astype("int32"))

    def net(x):
        y = F.relu(F.matmul(x, weight) + bias)
        return y, F.sum(y, axis=1)

    def sums(x):
        return x + first, x + second, x + third, x.astype("int32") + whole

    return {
        "net": (net, dice.randn(2, 6).astype("float32"), ["y", "s"]),
        # Zeros: what comes out are the weights themselves, as they were loaded.
        "sums": (sums, np.zeros((1, 24), "float32"), ["first", "second", "third", "whole"]),
    }


def dump(folder):
    import megengine as mge
    from megengine.jit import trace

    for name, (function, x, outputs) in networks().items():
        traced = trace(function, symbolic=True, capture_as_const=True)
        traced(mge.Tensor(x))
        for suffix, kind in (("", "FBS_V2"), ("_v1", "FBS")):
            path = os.path.join(folder, name + suffix + ".mge")
            traced.dump(path, arg_names=["x"], output_names=outputs, dump_format=kind)
        np.save(os.path.join(folder, name + ".npy"), x)


def run(folder):
    from megenginelite import LiteConfig, LiteGlobal, LiteNetwork

    with open(os.path.join(folder, "cases.json")) as file:
        cases = json.load(file)
    values = {}
    for name, case in sorted(cases.items(), key=lambda item: bool(item[1]["key"])):
        config = LiteConfig()
        if case["key"]:  # such cases come last, since this is for the whole process
            LiteGlobal.update_decryption_key(case["cipher"], bytes.fromhex(case["key"]))
        if case["cipher"]:
            config.bare_model_cryption_name = case["cipher"].encode()
        network = LiteNetwork(config=config)
        network.load(os.path.join(folder, name))
        values[case["network"] + "_x"] = np.load(os.path.join(folder, case["network"] + ".npy"))
        network.get_io_tensor("x").set_data_by_copy(values[case["network"] + "_x"])
        network.forward()
        network.wait()
        case["outputs"] = network.get_all_output_name()
        case["threads"] = network.threads_number
        for output in case["outputs"]:
            values[name + " " + output] = network.get_io_tensor(output).to_numpy().copy()
    with open(os.path.join(folder, "cases.json"), "w") as file:
        json.dump(cases, file, indent=1)
        file.write("\n")
    np.savez_compressed(os.path.join(folder, "values.npz"), **values)


{"dump": dump, "run": run}[sys.argv[1]](sys.argv[2])
