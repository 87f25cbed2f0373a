"""What a MegEngine file declares, as plain records. No weight is read here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from litehouse.formats.flat import Table
from litehouse.formats.loader import Place
from litehouse.formats.mge.schema import enum_name

MAX_RANK = 7  # MegEngine's own limit
NUMPY_DTYPES = {
    "Float32": "float32",
    "Float16": "float16",
    "BFloat16": "bfloat16",
    "Uint8": "uint8",
    "Byte": "uint8",
    "Int8": "int8",
    "Int16": "int16",
    "Uint16": "uint16",
    "Int32": "int32",
    "Bool": "bool",
    "Quantized8Asymm": "uint8",
    "QuantizedS8": "int8",
    "QuantizedS16": "int16",
    "QuantizedS32": "int32",
}


@dataclass(frozen=True, slots=True)
class DType:
    """A dtype by MegEngine's name. The real value of a quantised number q is (q - zero_point) * scale."""

    name: str
    scale: float = 0.0
    zero_point: int = 0

    @property
    def is_quantised(self) -> bool:
        """Whether the numbers stand for others."""
        return self.name.startswith("Quantized")

    @property
    def numpy(self) -> np.dtype | None:
        """The dtype that the numbers are stored in; None for those of a few bits, which are not supported."""
        if self.name == "BFloat16":
            import ml_dtypes

            made: np.dtype = np.dtype(ml_dtypes.bfloat16)
            return made
        return np.dtype(NUMPY_DTYPES[self.name]) if self.name in NUMPY_DTYPES else None


@dataclass(frozen=True, slots=True)
class TensorRecord:
    """A tensor that an operator owns: a weight, or the declaration of an input (which has no place)."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    place: Place | None


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator.

    Attributes:
        type: Its kind, without the version behind it: `Convolution` for `ConvolutionV2`.
        name: Its name in the file, or one made from its kind and place.
        params: The fields of its parameter table.
        inputs: The variables that it takes.
        outputs: The variables that it gives.
        output_dtype: The dtype that it was told to give; None where it follows from the inputs.
        tensors: Its own tensors.
    """

    type: str
    name: str
    params: Mapping[str, Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    output_dtype: DType | None
    tensors: tuple[TensorRecord, ...]


@dataclass(slots=True)
class GraphRecord:
    """One graph of a file.

    Attributes:
        operators: In the order of computation.
        names: The names of variables, where the file has them.
        outputs: The variables that the network returns, each once.
        aliases: Names of outputs that differ from those of their variables.
        metadata: What the file says about itself.
        size: How many bytes the graph's container takes; another one may follow.
    """

    operators: list[Operator]
    names: dict[int, str]
    outputs: list[int]
    aliases: dict[int, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    size: int = 0


def read_dtype(table: Table | None) -> DType | None:
    """The dtype that a table declares; None without a table."""
    if table is None:
        return None
    name = enum_name(table, 0, "DTypeEnum", 0, "B")
    _, parameters = table.union(1)
    if parameters is None:
        return DType(name)
    scale = parameters.number(0, "f")
    if not 0 < scale < float("inf"):
        parameters.damaged(f"a quantisation scale of {scale}")
    return DType(name, scale, parameters.number(1, "B"))


def read_shape(table: Table, slot: int) -> tuple[int, ...]:
    """The shape that a table declares."""
    if table.count(slot) > MAX_RANK:
        table.damaged(f"a shape of {table.count(slot)} dimensions")
    return table.numbers(slot, "I")
