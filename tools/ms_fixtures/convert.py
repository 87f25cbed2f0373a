"""Converts the networks in a folder to `.ms` files. Runs with MindSpore Lite 2.0.0 (Python 3.7)."""

import json
import sys

import mindspore_lite


def main(folder, source, target, settings):
    kind = mindspore_lite.FmkType.MINDIR if source.endswith(".mindir") else mindspore_lite.FmkType.ONNX
    converter = mindspore_lite.Converter()
    converter.save_type = mindspore_lite.ModelType.MINDIR_LITE
    for section, entries in json.loads(settings).items():
        converter.set_config_info(section, entries)
    converter.convert(kind, folder + "/" + source, folder + "/" + target)


main(*sys.argv[1:])
