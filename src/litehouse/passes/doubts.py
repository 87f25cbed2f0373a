"""Tells the nodes whose results engines give other sizes than ONNX's rules for shapes."""

from __future__ import annotations

import onnx_ir as ir

POOLS = ("AveragePool", "LpPool", "MaxPool")
EXACT = 1 / 256  # sizes times multiples of this are whole or not, in any precision


def is_doubtful(node: ir.Node) -> bool:
    """Whether the sizes of a result may differ (seen in ONNX 1.23.2, ONNX Runtime 1.31.1 and OpenVINO 2026.4.1).

    By ONNX's rules before version 22, a pool may have a window that begins behind the image; engines leave it out. They
    also round differently where an image is enlarged by a fraction.
    """
    if node.domain:
        return False
    if node.op_type in POOLS:
        return _is_doubtful_pool(node)
    return node.op_type in ("Resize", "Upsample") and _is_doubtful_resize(node)


def _is_doubtful_pool(node: ir.Node) -> bool:
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    window = given.get("kernel_shape", ())
    strides, dilations = (given.get(name, (1,) * len(window)) for name in ("strides", "dilations"))
    if str(given.get("auto_pad", "NOTSET")).startswith("SAME"):
        return any(dilation != 1 for dilation in dilations)
    if not given.get("ceil_mode", 0):
        return False
    ends = given.get("pads", (0,) * 2 * len(window))[len(window) :]
    sizes = [dilation * (size - 1) + 1 for dilation, size in zip(dilations, window, strict=True)]
    return any(stride + end > size for stride, end, size in zip(strides, ends, sizes, strict=True))


def _is_doubtful_resize(node: ir.Node) -> bool:
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    if given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return True
    operands = [None if value is None else value.const_value for value in node.inputs[1:3]]  # a region may be before
    scales = [*given.get("scales", ()), *(operands[-1].numpy().reshape(-1) if operands and operands[-1] else ())]
    by_region = given.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    return bool(scales) and (by_region or any(scale % EXACT != 0 for scale in scales))
