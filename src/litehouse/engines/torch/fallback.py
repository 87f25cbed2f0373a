"""Runs single ops that torch lacks, on the CPU with ONNX Runtime."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.engines.torch.values import ABSENT, as_array, as_tensor
from litehouse.errors import EngineError

log = logging.getLogger(__name__)


class Fallback:
    """One node, in a model of its own. What it gives is on the CPU.

    Attributes:
        is_used: Whether it has run.
    """

    def __init__(self, node: ir.Node, versions: dict[str, int], path: str) -> None:
        """Remember the node; sessions are made when it runs, as the types of its inputs are known then."""
        self._node, self._versions, self._path = node, versions, path
        self._sessions: dict[tuple[str, ...], Any] = {}
        self.is_used = False

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs, tensors on the CPU; None for one that is left out."""
        arrays = [None if value is None else _arrays(value) for value in values]
        feed = {f"in_{place}": array for place, array in enumerate(arrays) if array is not None}
        key = tuple(f"{name} {_kind(array)}" for name, array in feed.items())
        if key not in self._sessions:
            self._sessions[key] = self._open(arrays)
        self.is_used = True
        try:
            session = self._sessions[key]
            found = session.run(None, {name: _plain(array) for name, array in feed.items()})
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed while running: {error}") from error
        made = iter(found)
        return [_tensors(next(made)) if output.name else None for output in self._node.outputs]

    def _open(self, arrays: Sequence[Any]) -> Any:
        import onnx
        import onnxruntime

        proto = ir.serde.serialize_node(self._node)
        del proto.input[:], proto.output[:]
        proto.input.extend("" if array is None else f"in_{place}" for place, array in enumerate(arrays))
        names = [f"out_{place}" if output.name else "" for place, output in enumerate(self._node.outputs)]
        proto.output.extend(names)
        kinds = [_declared(f"in_{place}", array) for place, array in enumerate(arrays) if array is not None]
        outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in names if name]
        graph = onnx.helper.make_graph([proto], "op", kinds, outputs)
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in self._versions.items()]
        model = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10)
        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise EngineError(f"torch has no such op, and ONNX Runtime cannot build it: {error}") from error


def _arrays(value: Any) -> Any:
    """A tensor as an array, and a sequence of them as a list."""
    return [as_array(each) for each in value] if isinstance(value, list) else as_array(value)


def _tensors(value: Any) -> Any:
    if value is None:
        return ABSENT
    return [as_tensor(np.asarray(each)) for each in value] if isinstance(value, list) else as_tensor(np.asarray(value))


def _kind(array: Any) -> str:
    return f"list of {array[0].dtype if array else ''}" if isinstance(array, list) else str(array.dtype)


def _declared(name: str, array: Any) -> Any:
    """The declaration of an input. A sequence without elements may be one of anything: numbers are the most likely."""
    import onnx

    if not isinstance(array, list):
        return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), None)
    dtype = array[0].dtype if array else np.dtype(np.float32)
    return onnx.helper.make_tensor_sequence_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(dtype), None)


def _plain(array: Any) -> Any:
    """An array as ONNX Runtime takes it: types that numpy has from elsewhere by memory."""
    from litehouse.engines.onnxruntime import by_memory

    if isinstance(array, list) or array.dtype.name != "bfloat16":
        return array
    import onnxruntime

    return by_memory(onnxruntime, array)
