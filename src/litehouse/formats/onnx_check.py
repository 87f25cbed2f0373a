"""Checks an ONNX message before anything trusts it: names, nesting, calls, ops."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx
from google.protobuf.message import Message

from litehouse.errors import LimitError, ModelFormatError, UnsupportedOpError
from litehouse.formats.onnx_exchanges import FORMS, VERSION, fault_of, typed_values
from litehouse.model import EXCHANGE_DOMAIN
from litehouse.options import Limits

STANDARD = ("", "ai.onnx", "ai.onnx.ml")
ENGINE_DOMAINS = ("com.microsoft", "org.openvinotoolkit")
# Ops of ONNX Runtime in the standard domain, the first one in versions that do not have it: its optimiser writes them.
ENGINE_OPS = {"LayerNormalization", "SimplifiedLayerNormalization"}


def check(proto: Any, limits: Limits, path: str) -> None:
    """Check the whole message.

    Raises:
        ModelFormatError: A name is undefined or defined twice, a node has the wrong count of operands, ...
        LimitError: There are too many nodes, or they are nested too deeply.
        UnsupportedOpError: Ops are of a domain that no engine has.
    """
    if not proto.HasField("graph"):
        raise ModelFormatError("the file has no graph; it is cut off, or not a network", path=path)
    if not proto.graph.output:
        raise ModelFormatError("the network returns nothing; the file is damaged", path=path)
    checker = _Checker(proto, limits, path)
    checker.run()


def tensors(message: Message) -> Iterator[Any]:
    """Every tensor in a message, wherever it is: in weights, attributes, inner graphs and functions."""
    for field, value in message.ListFields():
        kind = field.message_type
        if kind is None or kind.full_name not in _carriers():
            continue
        for item in [value] if isinstance(value, Message) else value:
            if kind.full_name == "onnx.TensorProto":
                yield item
            else:
                yield from tensors(item)


@cache
def _carriers() -> frozenset[str]:
    """The messages that are or hold a tensor, found in the schema itself, so that none is forgotten."""
    messages = onnx.ModelProto.DESCRIPTOR.file.message_types_by_name.values()
    found = {"onnx.TensorProto"}
    while True:
        more = {
            message.full_name
            for message in messages
            if any(field.message_type is not None and field.message_type.full_name in found for field in message.fields)
        }
        if more <= found:
            return frozenset(found)
        found |= more


class _Checker:
    def __init__(self, proto: Any, limits: Limits, path: str) -> None:
        self._proto = proto
        self._limits = limits
        self._path = path
        self._unsupported: list[tuple[str, str]] = []
        self._functions = {(item.domain, item.name, item.overload): item for item in proto.functions}
        self._counts: dict[tuple[str, str, str], int] = {}
        self._known: set[str] = set()
        self._versions: dict[str, int] = {}
        self._typed: set[str] | None = None
        self._in_function = False

    def run(self) -> None:
        if len(self._functions) != len(self._proto.functions):
            raise self._damaged("two functions have one name")
        self._versions = _versions(self._proto.opset_import)
        if not self._versions:
            raise self._damaged("the file does not say which version of ONNX it uses")
        for domain, name, _ in self._functions:
            if domain in STANDARD and self._standard(domain, name) is not None:
                # Some engines would run the function, others the op: a model that looks like another one.
                raise self._damaged(f"the function {name!r} takes the name of a standard op")
            if domain == EXCHANGE_DOMAIN and name in FORMS:
                raise self._damaged(f"the function {name!r} takes the name of an exchange between ranks")
        count = self._graph(self._proto.graph, 1, 1)
        if count > self._limits.max_nodes:
            raise LimitError(
                f"{count} nodes are more than max_nodes={self._limits.max_nodes}; "
                "raise the limit if you trust the file",
                path=self._path,
            )
        for name in self._functions:
            self._function(name, 1)
        if self._unsupported:
            raise UnsupportedOpError(self._unsupported, format="onnx", path=self._path)

    def _damaged(self, what: str) -> ModelFormatError:
        return ModelFormatError(f"{what}; the file is damaged", path=self._path)

    def _graph(self, graph: Any, depth: int, calls: int) -> int:
        """Check one graph and those inside it. Returns the count of nodes, with every call written out."""
        if depth > self._limits.max_depth:
            raise LimitError(f"graphs are nested more than {self._limits.max_depth} deep", path=self._path)
        if graph.sparse_initializer:
            raise ModelFormatError("sparse weights are not supported; save the model with dense ones", path=self._path)
        inputs = [value.name for value in graph.input]
        weights = [tensor.name for tensor in graph.initializer]
        for names in (inputs, weights, [value.name for value in graph.output]):
            if len(set(names)) != len(names) or "" in names:
                raise self._damaged("two inputs, weights or outputs of a graph have one name, or one has none")
        defined = {*inputs, *weights}
        outer = defined & self._known
        self._known |= defined
        count = self._nodes(graph.node, defined, depth, calls)
        for value in graph.output:
            if value.name not in defined:
                raise self._damaged(f"output {value.name!r} is not defined")
        self._known -= defined - outer
        return count

    def _nodes(self, nodes: Any, defined: set[str], depth: int, calls: int) -> int:
        """Check nodes in order: what a node uses must be defined before it, and once."""
        count = len(nodes)
        for node in nodes:
            label = node.name or (node.output[0] if node.output else node.op_type)
            for name in node.input:
                if name and name not in self._known:
                    raise self._damaged(f"node {label!r} uses {name!r}, which nothing before it defines")
            called = (node.domain, node.op_type, node.overload)
            if called in self._functions:
                count += self._function(called, calls + 1)
                self._call(node, label, self._functions[called])
            else:
                self._op(node, label, is_outermost=depth == 1 and not self._in_function)
            for attribute in node.attribute:
                if attribute.HasField("sparse_tensor") or attribute.sparse_tensors:
                    raise ModelFormatError(f"node {label!r} has a sparse tensor; use a dense one", path=self._path)
                graphs = (attribute.g, *attribute.graphs) if attribute.HasField("g") else attribute.graphs
                for inner in graphs:
                    count += self._graph(inner, depth + 1, calls)
            for name in node.output:
                if name in defined:
                    raise self._damaged(f"{name!r} is defined twice")
                if name:
                    defined.add(name)
                    self._known.add(name)
        return count

    def _function(self, name: tuple[str, str, str], calls: int) -> int:
        """Check a function once. Returns its count of nodes, with every call written out."""
        if name in self._counts:
            return self._counts[name]
        if calls > self._limits.max_depth:
            raise LimitError(
                f"functions call each other more than {self._limits.max_depth} deep; recursion is not supported",
                path=self._path,
            )
        function = self._functions[name]
        known, versions, inside = self._known, self._versions, self._in_function
        self._known, self._versions = set(function.input), _versions(function.opset_import)
        self._in_function = True
        count = self._nodes(function.node, set(function.input), 1, calls)
        for output in function.output:
            if output not in self._known:
                raise self._damaged(f"output {output!r} of function {function.name!r} is not defined")
        self._known, self._versions, self._in_function = known, versions, inside
        self._counts[name] = count
        return count

    def _call(self, node: Any, label: str, function: Any) -> None:
        if len(node.input) > len(function.input) or len(node.output) > len(function.output):
            raise self._damaged(
                f"node {label!r} calls {function.name!r} with {len(node.input)} inputs and {len(node.output)} outputs, "
                f"which has {len(function.input)} and {len(function.output)}"
            )

    def _standard(self, domain: str, op: str) -> Any:
        """The schema of a standard op in the version that the file states; None where there is none."""
        domain = "" if domain == "ai.onnx" else domain
        return _schema(op, domain, self._versions.get(domain, 0))

    def _op(self, node: Any, label: str, *, is_outermost: bool) -> None:
        """Check that the op exists in the version that the file states, and its count of operands."""
        if node.domain in ENGINE_DOMAINS:
            return
        if node.domain == EXCHANGE_DOMAIN and node.op_type in FORMS and self._versions.get(node.domain) == VERSION:
            self._exchange(node, label, is_outermost=is_outermost)
            return
        schema = self._standard(node.domain, node.op_type) if node.domain in STANDARD else None
        if schema is None and node.op_type in ENGINE_OPS and node.domain in STANDARD:
            return
        if schema is None:
            self._unsupported.append((f"{node.domain}::{node.op_type}" if node.domain else node.op_type, label))
        elif not (schema.min_input <= len(node.input) <= schema.max_input and len(node.output) <= schema.max_output):
            raise self._damaged(
                f"node {label!r} ({node.op_type}) has {len(node.input)} inputs and {len(node.output)} outputs, "
                "which the op does not take"
            )

    def _exchange(self, node: Any, label: str, *, is_outermost: bool) -> None:
        """Check an op that exchanges data with other ranks; all of them must come to it, so no branch may hold it."""
        if not is_outermost:
            raise self._damaged(f"node {label!r} ({node.op_type}) exchanges data inside a branch, a loop or a function")
        if self._typed is None:
            self._typed = typed_values(self._proto.graph)
        if fault := fault_of(node, self._typed):
            raise self._damaged(f"node {label!r} ({node.op_type}) {fault}")


def _versions(imports: Any) -> dict[str, int]:
    return {"" if item.domain == "ai.onnx" else item.domain: item.version for item in imports}


@cache
def _schema(op: str, domain: str, version: int) -> Any:
    try:
        return onnx.defs.get_schema(op, version, domain)
    except (onnx.defs.SchemaError, TypeError):  # the latter for a version that is no C int
        return None
