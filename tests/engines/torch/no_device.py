"""Ops on torch's device without numbers: as on a GPU, it is another one than the CPU, and nothing can be read back."""

from typing import Any

import numpy as np
import onnx
from engines.torch.onnx_cases import all_cases


def check_case(name: str) -> None:
    """Compute the sizes of a case of one node, with all but the inputs that must be known on that device.

    It fails where tensors on it and on the CPU meet, or where one of its numbers is asked for.
    """
    import torch

    from litehouse.engines.torch.values import as_tensor

    case = all_cases()[name]
    (node,) = case.model.graph.node
    found, attributes = _op(case.model, node)
    inputs, outputs = case.data_sets[0]
    given = iter(inputs)
    arguments: list[Any] = []
    for place, source in enumerate(node.input):
        value = as_tensor(np.asarray(next(given))) if source else None
        arguments.append(value if value is None or found.knows(place) else value.to("meta"))
    with torch.inference_mode():
        made = found.function(*arguments, **attributes)
    made = made if isinstance(made, tuple) else (made,)
    wanted = [np.asarray(array) for array in outputs]
    shapes = [tuple(value.shape) for value, target in zip(made, node.output, strict=False) if target]
    assert shapes == [array.shape for array in wanted]
    is_on_cpu = all(value is None or found.knows(place) for place, value in enumerate(arguments))
    assert {value.device.type for value in made} == {"cpu" if is_on_cpu else "meta"}


def _op(model: onnx.ModelProto, node: onnx.NodeProto) -> tuple[Any, dict[str, Any]]:
    from litehouse.engines.torch.registry import find_op

    versions = {each.domain: each.version for each in model.opset_import}
    found = find_op(node.domain, node.op_type, versions[node.domain])
    assert found is not None
    attributes = {each.name: _plain(onnx.helper.get_attribute_value(each)) for each in node.attribute}
    if found.takes_outputs:
        attributes["outputs"] = len(node.output)
    return found, attributes


def _plain(value: Any) -> Any:
    from litehouse.engines.torch.values import as_tensor

    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return as_tensor(onnx.numpy_helper.to_array(value))
    return [_plain(each) for each in value] if isinstance(value, list | tuple) or hasattr(value, "append") else value
