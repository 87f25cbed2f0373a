"""Jobs for tests: ranks that are threads, over each transport."""

from __future__ import annotations

import importlib.util
import socket
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from litehouse.distributed.local import LocalMail
from litehouse.distributed.mail import Mail
from litehouse.distributed.memory import MemoryMail
from litehouse.distributed.ranks import Place
from litehouse.model import EXCHANGE_DOMAIN, Model, TensorInfo
from litehouse.weights import Weights

has_torch = importlib.util.find_spec("torch") is not None
needs_torch = pytest.mark.skipif(not has_torch, reason="torch is not installed: ranks on several machines need it")
TRANSPORTS = ["local", "memory", pytest.param("gloo", marks=needs_torch)]
PATIENCE = 120.0  # seconds: only a hang takes so long


def in_all(count: int, work: Callable[[int], Any]) -> list[Any]:
    """What the ranks give, each in a thread; the first error where one fails."""
    with ThreadPoolExecutor(count) as threads:
        return [each.result() for each in [threads.submit(work, rank) for rank in range(count)]]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def mails(transport: str, count: int, timeout: float = PATIENCE) -> Iterator[list[Mail]]:
    """The mail of all ranks of a new job."""
    job, port = uuid.uuid4().hex, free_port()

    def begin(rank: int) -> Mail:
        if transport == "memory":
            return MemoryMail(rank, count, job, timeout)
        from litehouse.distributed.gloo import GlooMail

        return GlooMail(Place(rank, count, rank, (), "127.0.0.1", port, job, "a test"), timeout)

    found = LocalMail.world(count, timeout) if transport == "local" else in_all(count, begin)
    try:
        yield list(found)
    finally:
        in_all(count, lambda rank: found[rank].close())


def part(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, Any],
    outputs: dict[str, Any],
    weights: dict[str, np.ndarray] | None = None,
    between: dict[str, Any] | None = None,
    dtype: int = onnx.TensorProto.FLOAT,
    path: str = "part.onnx",
) -> Model:
    """A model with exchanges; `between` has the shapes of the values that they send and give."""

    def infos(shapes: dict[str, Any]) -> list[onnx.ValueInfoProto]:
        return [onnx.helper.make_tensor_value_info(name, dtype, shape) for name, shape in shapes.items()]

    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = onnx.helper.make_graph(
        nodes, "part", infos(inputs), infos(outputs), tensors, value_info=infos(between or {})
    )
    opsets = [onnx.helper.make_opsetid("", 20), onnx.helper.make_opsetid(EXCHANGE_DOMAIN, 1)]
    whole = ir.serde.deserialize_model(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10))
    numpy_dtype = onnx.helper.tensor_dtype_to_np_dtype(dtype)

    def signature(shapes: dict[str, Any]) -> tuple[TensorInfo, ...]:
        return tuple(TensorInfo(name, numpy_dtype, tuple(shape)) for name, shape in shapes.items())

    arrays = Weights.of(weights or {})
    for name, array in arrays.items():
        whole.graph.initializers[name].const_value = ir.Tensor(array, name=name)
    return Model(whole, arrays, signature(inputs), signature(outputs), "onnx", path)


def ranks_op(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    """An exchange of all ranks; its name is the op and what it gives."""
    given = {"group": "hccl_world_group", **attributes}
    return onnx.helper.make_node(
        op_type, inputs.split(), outputs.split(), f"{op_type} {outputs}", domain=EXCHANGE_DOMAIN, **given
    )
