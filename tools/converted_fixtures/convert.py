# ruff: noqa: B905 (Python 3.7 has no strict zip)
"""Convert ONNX files and run the results. For MindSpore Lite 2.0.0, whose Python is 3.7: no newer words here.

Run as `python convert.py FOLDER NAME EXTENSION SETTINGS`, a process for each file: the converter or the runtime may
crash. Writes NAME.EXTENSION; and NAME.EXTENSION.npz with what the runtime computed from the arrays in NAME.npz, with
NAME.EXTENSION.json beside it for the names and shapes that it reports.
"""

import json
import os
import sys

import numpy as np

import mindspore_lite

KEY = "30313233343637383939414243444546"
QUANTIZED = {
    "dynamic": {"quant_type": "DYNAMIC_QUANT", "bit_num": "8"},
    "weight": {
        "quant_type": "WEIGHT_QUANT",
        "bit_num": "8",
        "min_quant_weight_size": "0",
        "min_quant_weight_channel": "4",
    },
}


def convert(folder, name, extension, settings):
    converter = mindspore_lite.Converter()
    lite = extension == "ms"
    converter.save_type = mindspore_lite.ModelType.MINDIR_LITE if lite else mindspore_lite.ModelType.MINDIR
    if "optimize" in settings:
        converter.optimize = settings["optimize"]
    if "input_format" in settings:
        converter.input_format = getattr(mindspore_lite.Format, settings["input_format"])
    if "weight_fp16" in settings:
        converter.weight_fp16 = True
    if "encrypt" in settings:
        converter.enable_encryption = True
        converter.encrypt_key = KEY
    if "quant" in settings:
        converter.set_config_info("common_quant_param", QUANTIZED[settings["quant"]])
    native = os.path.join(folder, name + ".source.mindir")
    kind = mindspore_lite.FmkType.MINDIR if os.path.exists(native) else mindspore_lite.FmkType.ONNX
    source = native if os.path.exists(native) else os.path.join(folder, name + ".onnx")
    converter.convert(kind, source, os.path.join(folder, name))


def fitted(array, tensor):
    """The array as the runtime wants it: in its dtype, and channels last where it says so. None where neither fits."""
    array = array.astype({"INT32": np.int32, "INT64": np.int64}.get(tensor.dtype.name, array.dtype))
    if list(array.shape) == list(tensor.shape):
        return array
    if array.ndim == 4 and list(array.transpose(0, 2, 3, 1).shape) == list(tensor.shape):
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    return None


def run(folder, name, extension):
    context = mindspore_lite.Context()
    context.target = ["cpu"]
    context.cpu.thread_num = 1
    model = mindspore_lite.Model()
    lite = extension == "ms"
    kind = mindspore_lite.ModelType.MINDIR_LITE if lite else mindspore_lite.ModelType.MINDIR
    path = os.path.join(folder, name + "." + extension)
    model.build_from_file(path, kind, context)
    given = np.load(os.path.join(folder, name + ".npz"))
    arrays = [given[f"in{index}"] for index in range(sum(key.startswith("in") for key in given))]
    tensors = model.get_inputs()
    if any(size < 0 for tensor in tensors for size in tensor.shape):
        shapes = [tensor.shape for tensor in tensors]
        wanted = [a.shape if s[1] == a.shape[1] else a.transpose(0, 2, 3, 1).shape for a, s in zip(arrays, shapes)]
        model.resize(tensors, [list(shape) for shape in wanted])
        tensors = model.get_inputs()
    for array, tensor in zip(arrays, tensors):
        tensor.set_data_from_numpy(fitted(array, tensor))
    outputs = model.predict(tensors)
    results = {f"out{index}": tensor.get_data_to_numpy() for index, tensor in enumerate(outputs)}
    np.savez(path + ".npz", **results)
    facts = {
        "inputs": [{"name": t.name, "dtype": t.dtype.name, "shape": list(t.shape)} for t in tensors],
        "outputs": [{"name": t.name, "dtype": t.dtype.name, "shape": list(t.shape)} for t in outputs],
    }
    with open(path + ".json", "w") as file:
        json.dump(facts, file)


def main():
    folder, name, extension, settings = sys.argv[1:5]
    convert(folder, name, extension, json.loads(settings))
    print("CONVERTED")
    sys.stdout.flush()
    if "encrypt" not in settings:
        run(folder, name, extension)
    print("DONE")


if __name__ == "__main__":
    main()
