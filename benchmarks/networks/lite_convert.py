"""Converts an ONNX file with the converter of MindSpore Lite 2.0.0 (Python 3.7): `PYTHON SCRIPT SOURCE TARGET`."""

import sys

import mindspore_lite

converter = mindspore_lite.Converter()
converter.save_type = mindspore_lite.ModelType.MINDIR
converter.convert(mindspore_lite.FmkType.ONNX, sys.argv[1], sys.argv[2])
