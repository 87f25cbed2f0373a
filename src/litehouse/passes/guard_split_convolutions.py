"""Keeps convolutions of parts of an image apart."""

from __future__ import annotations

import onnx_ir as ir

from litehouse.passes.sketch import name_behind

PARTS = ("Slice", "Split")
REMOVABLE = ("Dropout", "Identity")  # what the optimiser takes out before it looks for the pattern


class GuardSplitConvolutionsPass(ir.passes.InPlacePass):
    """Puts a copy before a convolution of a part of an image, where such convolutions are joined again.

    OpenVINO (seen in 2026.4.1) makes one convolution of as many groups out of them, and does not look which part each
    of them takes, nor along which axis they are joined: other numbers, or another shape, where it is not one part after
    the other along the channels. A Max of a value and itself is a copy that it does not remove.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Guard every such place, in all graphs of the model."""
        modified = False
        for node in list(model.graph.all_nodes()):
            convolutions = _convolutions(node) if node.op_type == "Concat" and not node.domain else []
            if len(convolutions) > 1 and not _are_in_order(node, convolutions):
                _guard(convolutions[0])
                modified = True
        return ir.passes.PassResult(model, modified)


def _maker(value: ir.Value | None) -> ir.Node | None:
    """The node that gives a value, before those that only pass it on."""
    node = None if value is None else value.producer()
    while node is not None and node.op_type in REMOVABLE and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    return node


def _convolutions(concat: ir.Node) -> list[ir.Node]:
    """The convolutions of parts of an image that a node joins; none if it joins anything else."""
    found = []
    for value in concat.inputs:
        node = _maker(value)
        part = None if node is None or node.op_type != "Conv" or node.domain else _maker(node.inputs[0])
        if node is None or part is None or part.op_type not in PARTS or part.domain:
            return []
        found.append(node)
    return found


def _are_in_order(concat: ir.Node, convolutions: list[ir.Node]) -> bool:
    """Whether they take all parts of one image, one after the other, and are joined along the channels."""
    split = _maker(convolutions[0].inputs[0])
    taken = [node.inputs[0] for node in convolutions]
    return split is not None and taken == list(split.outputs) and concat.attributes["axis"].as_int() == 1


def _guard(convolution: ir.Node) -> None:
    part = convolution.inputs[0]
    guard = ir.node("Max", [part, part], name=name_behind(convolution, "guard"))
    made = guard.outputs[0]
    assert part is not None
    assert convolution.graph is not None
    made.name, made.type, made.shape = f"{convolution.outputs[0].name}/guard", part.type, part.shape
    convolution.graph.insert_before(convolution, guard)
    convolution.replace_input_with(0, made)
