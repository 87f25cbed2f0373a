"""Made-up inputs for a model that is checked: of sizes that it takes, and with ids of all words of its tables."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from litehouse.model import Dimension, Model

# For a first size that is not known, and for any other; the first pair that the model takes is used.
SIZES = ((2, 8), (1, 32), (1, 1), (1, 224))
THROUGH = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"))  # an id stays one
FEW = 2  # values of integers that are no ids: flags, masks


def trial_inputs(model: Model) -> Iterator[list[np.ndarray]]:
    """Random inputs, in the order in which they are worth a try."""
    words = {str(value.name): _words(value) for value in model.graph.graph.inputs}
    is_static = all(info.is_static for info in model.inputs)
    for batch, other in SIZES[:1] if is_static else SIZES:
        random = np.random.default_rng(0)
        made = []
        for info in model.inputs:
            shape = [_size(size, other if axis else batch) for axis, size in enumerate(info.shape)]
            if info.dtype.kind in "biu":
                made.append(random.integers(0, words[info.name] or FEW, shape).astype(info.dtype))
            else:
                made.append(random.standard_normal(shape).astype(info.dtype))
        yield made


def _size(size: Dimension, unknown: int) -> int:
    return size if isinstance(size, int) else unknown


def _words(value: ir.Value) -> int | None:
    """How many rows the smallest table has that is looked up with an input; None where it is no id."""
    left, found = [value], []
    while left:
        for node, place in left.pop().uses():
            table = node.inputs[0]
            if node.op_type == "Gather" and place == 1 and table is not None and table.is_initializer():
                axis = node.attributes["axis"].as_int() if "axis" in node.attributes else 0
                if table.shape is not None and isinstance(table.shape[axis], int):
                    found.append(int(table.shape[axis]))  # type: ignore[arg-type]
            elif node.op_type in THROUGH and place == 0:
                left += node.outputs
    return min(found, default=None)
