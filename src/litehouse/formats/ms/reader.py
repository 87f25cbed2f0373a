"""Reads a `.ms` file of MindSpore Lite: what it declares, its weights, then the translation of its graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from litehouse.errors import ModelFormatError
from litehouse.formats import opaque
from litehouse.formats.loader import WeightLoader
from litehouse.formats.mindir.literals import numpy_dtype
from litehouse.formats.ms.meta import read_meta
from litehouse.formats.ms.translate import Translator
from litehouse.formats.ms.weights import load_weights
from litehouse.formats.source import Source
from litehouse.model import Model, TensorInfo
from litehouse.options import Limits

IR_VERSION = 10


def read_ms(
    source: Source,
    limits: Limits,
    updatable: Sequence[str] = (),
    *,
    unlock: Callable[[Source], Source] | None = None,
) -> Model:
    """Read a `.ms` file.

    Args:
        source: The file, decrypted.
        limits: What it may ask for.
        updatable: Patterns for names of weights that nothing may be computed from.
        unlock: Decrypts a data file beside it.

    Raises:
        ModelFormatError: The file is broken.
        UnsupportedOpError: It uses ops that Litehouse does not run.
    """
    meta = read_meta(source, limits)
    Translator(meta, limits, source.path).refuse_unsupported()
    weights, names = load_weights(meta, source, WeightLoader(source, limits, unlock))

    def make(changing: frozenset[str]) -> tuple[Translator, ir.Graph]:
        translator = Translator(meta, limits, source.path)
        return translator, translator.run(weights, names, changing)

    (translator, graph), open_names = opaque.translate(make, lambda made: made[1], weights, updatable, source.path)
    return Model(
        graph=ir.Model(graph, ir_version=IR_VERSION, producer_name="litehouse"),
        weights=weights,
        inputs=tuple(_info(value, source.path) for value in graph.inputs),
        outputs=tuple(_info(value, source.path) for value in graph.outputs),
        format="ms",
        path=source.path,
        metadata=meta.metadata,
        source_ops=translator.source_ops,
        fixed_nodes=tuple(translator.tape.fixed),
        updatable=open_names,
    )


def _info(value: ir.Value, path: str) -> TensorInfo:
    assert value.name is not None
    if value.dtype is None or value.shape is None:
        raise ModelFormatError(
            f"the rank of {value.name!r} is not recorded, and does not follow from the network; "
            "convert the model with a fixed input shape",
            path=path,
        )
    shape = tuple(size if isinstance(size, int) else size.value for size in value.shape)
    return TensorInfo(value.name, numpy_dtype(value.dtype), shape)
