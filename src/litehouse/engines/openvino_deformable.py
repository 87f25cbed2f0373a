"""`DeformConv` for OpenVINO, which has the operator, but does not read it from ONNX."""

from __future__ import annotations

from typing import Any

OP = "DeformConv"
BIAS, MASK = 3, 4


def extend(core: Any, graph: Any) -> None:
    """Teach OpenVINO the operator where a graph uses it, without a bias; with one, OpenVINO says that it lacks it."""
    nodes = [node for node in graph.node if node.op_type == OP and not node.domain]
    if nodes and not any(len(node.input) > BIAS and node.input[BIAS] for node in nodes):
        from openvino.frontend.onnx import ConversionExtension

        core.add_extension(ConversionExtension(OP, _convert))


def _convert(node: Any) -> Any:
    from openvino import opset8

    def attribute(name: str, default: Any) -> Any:
        return node.get_attribute(name) if node.has_attribute(name) else default

    pads = attribute("pads", [0, 0, 0, 0])
    mask = [node.get_input(MASK)] if node.get_input_size() > MASK else []
    made = opset8.deformable_convolution(
        node.get_input(0),
        node.get_input(2),
        node.get_input(1),
        attribute("strides", [1, 1]),
        pads[:2],
        pads[2:],
        attribute("dilations", [1, 1]),
        *(mask or [None]),
        auto_pad="explicit",
        group=attribute("group", 1),
        deformable_group=attribute("offset_group", 1),
        bilinear_interpolation_pad=True,
    )
    return made.outputs()
