"""Runs ops that torch lacks, on the CPU with ONNX Runtime."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.engines.torch.values import ABSENT, as_array, as_tensor
from litehouse.errors import EngineError

# Types that numpy has from elsewhere, which ONNX Runtime neither takes nor gives: they travel as others that hold them.
TRAVELS_AS: dict[str, np.dtype[Any]] = {
    **{name: np.dtype(np.float32) for name in ("bfloat16", "float4_e2m1fn", "float8_e4m3fn", "float8_e4m3fnuz")},
    **{name: np.dtype(np.float32) for name in ("float8_e5m2", "float8_e5m2fnuz")},
    **{name: np.dtype(np.int8) for name in ("int2", "int4")},
    **{name: np.dtype(np.uint8) for name in ("uint2", "uint4")},
}
CAST = 25  # the version of ONNX whose Cast knows all of these


@dataclass(eq=False)
class Fallback:
    """Nodes that follow each other, in a model of their own.

    Its sessions are made when it runs, as the types of the inputs are known then.

    Attributes:
        nodes: The nodes, in order.
        inputs: What they take.
        outputs: What they give.
        versions: The version of each domain.
        threads: How many compute them.
    """

    nodes: Sequence[ir.Node]
    inputs: Sequence[ir.Value | None]
    outputs: Sequence[ir.Value]
    versions: Mapping[str, int]
    threads: int = 1
    _sessions: dict[tuple[str, ...], tuple[Any, dict[int, np.dtype[Any]]]] = field(default_factory=dict, init=False)

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs, tensors on the CPU; None for one that is left out."""
        arrays = [None if value is None else _arrays(value) for value in values]
        feed = {f"in_{place}": array for place, array in enumerate(arrays) if array is not None}
        key = tuple(f"{name} {_kind(array)}" for name, array in feed.items())
        if key not in self._sessions:
            self._sessions[key] = self._open(arrays)
        session, kinds = self._sessions[key]
        try:
            found = session.run(None, {name: _sent(array) for name, array in feed.items()})
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed while running: {error}") from error
        made = iter(_received(value, kinds.get(place)) for place, value in enumerate(found))
        return [next(made) if output.name else None for output in self.outputs]

    def _open(self, arrays: Sequence[Any]) -> tuple[Any, dict[int, np.dtype[Any]]]:
        """A session, and which of its outputs are of other types than they travel as."""
        try:
            session = self._session(self._model(arrays, {}))
            kinds = {place: kind for place, out in enumerate(session.get_outputs()) if (kind := _exotic(out.type))}
            return self._session(self._model(arrays, kinds)) if kinds else session, kinds
        except Exception as error:
            raise EngineError(f"torch has no such op, and ONNX Runtime cannot build it: {error}") from error

    def _session(self, model: bytes) -> Any:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.log_severity_level = 4
        settings.intra_op_num_threads = self.threads
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # each session has its own threads
        return onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])

    def _model(self, arrays: Sequence[Any], kinds: dict[int, np.dtype[Any]]) -> bytes:
        import onnx

        names: dict[ir.Value | None, str] = {None: ""}
        nodes, inputs = [], []
        dtype = next((array.dtype for array in arrays if isinstance(array, np.ndarray)), np.dtype(np.float32))
        for place, (value, array) in enumerate(zip(self.inputs, arrays, strict=True)):
            if array is None:
                continue
            names[value] = f"in_{place}"
            inputs.append(_declared(f"in_{place}", array, dtype, _shape(value)))
            if isinstance(array, np.ndarray) and array.dtype.name in TRAVELS_AS:
                names[value] = f"exact_{place}"
                nodes.append(_cast(f"in_{place}", names[value], array.dtype))
        for number, node in enumerate(self.nodes):
            proto = ir.serde.serialize_node(node)
            del proto.input[:], proto.output[:]
            proto.input.extend(names.get(value, "") for value in node.inputs)
            names |= {value: f"made_{number}_{place}" for place, value in enumerate(node.outputs) if value.name}
            proto.output.extend(names.get(value, "") for value in node.outputs)
            nodes.append(proto)
        outputs = [names[value] for value in self.outputs if value.name]
        for place, kind in kinds.items():
            nodes.append(_cast(outputs[place], f"sent_{place}", TRAVELS_AS[kind.name]))
            outputs[place] = f"sent_{place}"
        gives = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
        graph = onnx.helper.make_graph(nodes, "ops", inputs, gives)
        imports = [onnx.helper.make_opsetid(domain, version) for domain, version in self._imports().items()]
        model: bytes = onnx.helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
        return model

    def _imports(self) -> dict[str, int]:
        """The versions that first had all ops as they are: the file's may be newer than ONNX Runtime."""
        found = {"": _first_version("Cast", "", min(self.versions.get("", 1), CAST))}
        for node in self.nodes:
            domain = node.domain or ""
            first = _first_version(node.op_type, domain, node.version or self.versions.get(domain, 1))
            found[domain] = max(found.get(domain, 1), first)
        return found


def _first_version(op: str, domain: str, version: int) -> int:
    import onnx

    try:
        return int(onnx.defs.get_schema(op, version, domain).since_version)
    except onnx.defs.SchemaError:  # not one of ONNX's own
        return version


def _cast(source: str, target: str, dtype: np.dtype[Any]) -> Any:
    import onnx

    more: dict[str, Any] = {"saturate": 0} if dtype.name.startswith("float8") else {}  # infinity stays infinity
    return onnx.helper.make_node("Cast", [source], [target], to=onnx.helper.np_dtype_to_tensor_dtype(dtype), **more)


def _shape(value: ir.Value | None) -> Sequence[int] | None:
    """The shape of a weight: ONNX Runtime refuses some ops without those of their weights. Others may change theirs."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.shape.numpy()


def _declared(name: str, array: Any, dtype: np.dtype[Any], shape: Sequence[int] | None) -> Any:
    """The declaration of an input; a sequence without elements is taken for one of this dtype."""
    import onnx

    if isinstance(array, list):
        number = onnx.helper.np_dtype_to_tensor_dtype(array[0].dtype if array else dtype)
        return onnx.helper.make_tensor_sequence_value_info(name, number, None)
    number = onnx.helper.np_dtype_to_tensor_dtype(TRAVELS_AS.get(array.dtype.name, array.dtype))
    return onnx.helper.make_tensor_value_info(name, number, shape)


def _exotic(text: str) -> np.dtype[Any] | None:
    """The dtype in ONNX Runtime's name for a type, where it travels as another."""
    import onnx

    found = re.fullmatch(r"tensor\((\w+)\)", text)
    number = getattr(onnx.TensorProto, found[1].upper(), None) if found else None
    dtype = None if number is None else onnx.helper.tensor_dtype_to_np_dtype(number)
    return dtype if dtype is not None and dtype.name in TRAVELS_AS else None


def _arrays(value: Any) -> Any:
    """A tensor as an array, and a sequence of them as a list."""
    return [as_array(each) for each in value] if isinstance(value, list) else as_array(value)


def _kind(array: Any) -> str:
    return f"list of {array[0].dtype if array else ''}" if isinstance(array, list) else str(array.dtype)


def _sent(array: Any) -> Any:
    """An array as ONNX Runtime takes it."""
    if isinstance(array, list) or array.dtype.name not in TRAVELS_AS:
        return array
    return array.astype(TRAVELS_AS[array.dtype.name])


def _received(value: Any, kind: np.dtype[Any] | None) -> Any:
    """What ONNX Runtime gave, as it is here."""
    if value is None:
        return ABSENT
    if isinstance(value, list):
        return [as_tensor(np.asarray(each)) for each in value]
    return as_tensor(np.asarray(value) if kind is None else np.asarray(value).astype(kind))
