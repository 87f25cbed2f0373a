"""`Tape`: what an op converter writes ONNX nodes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np
import onnx_ir as ir

MAX_COUNT = 1 << 16
COMPLEX = (ir.DataType.COMPLEX64, ir.DataType.COMPLEX128)


class RefusedError(Exception):
    """A converter's word that it cannot translate this use of its op. The reader adds op, node and file."""


class Tape:
    """Collects the nodes and constants of one graph, in order.

    Attributes:
        nodes: The nodes, in order.
        constants: The small constants of the graph, which become initializers.
        label: Where in the source model the nodes come from; part of their names.
        fixed: Labels whose translation asked for a size that depends on the inputs' sizes.
        open_weights: Weights whose values are not known while the nodes are written, but whose sizes are.
    """

    def __init__(self) -> None:
        """Start with no nodes."""
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self.label = ""
        self.fixed: list[str] = []
        self.open_weights: set[ir.Value] = set()
        self._known: dict[tuple[str, tuple[int, ...], bytes], ir.Value] = {}
        self._count = 0

    # Writing ---------------------------------------------------------------------------------------------------------

    def op(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        *,
        outputs: int = 1,
        domain: str = "",
        like: ir.Value | None = None,
        dtype: ir.DataType | None = None,
        shape: Sequence[Any] | None = None,
        **attributes: Any,
    ) -> Any:
        """Write a node. Returns its value, or a tuple of values when `outputs` is not 1.

        Args:
            op_type: The ONNX op.
            inputs: Its inputs; None leaves an optional one out.
            outputs: How many outputs it has.
            domain: The op's domain; the standard one by default.
            like: A value whose dtype and shape the first output shares.
            dtype: The dtype of the first output.
            shape: The shape of the first output.
            **attributes: The node's attributes; those that are None are left out.
        """
        values = [ir.Value(name=self.name()) for _ in range(self.bounded(outputs))]
        if like is not None:
            # A type of its own: setting the dtype of a value changes the type in place.
            values[0].type = None if like.dtype is None else ir.TensorType(like.dtype)
            values[0].shape = like.shape
        if dtype is not None:
            values[0].dtype = dtype
        if shape is not None:
            values[0].shape = ir.Shape(shape)
        self.node(op_type, inputs, values, domain=domain, **attributes)
        return values[0] if outputs == 1 else tuple(values)

    def node(
        self,
        op_type: str,
        inputs: Sequence[ir.Value | None],
        outputs: Sequence[ir.Value],
        *,
        domain: str = "",
        **attributes: Any,
    ) -> None:
        """Write a node whose outputs are there already."""
        if not domain and op_type != "Identity" and any(v is not None and v.dtype in COMPLEX for v in inputs):
            self.refuse("complex numbers are not supported here")
        kept = [
            ir.convenience.convert_attribute(name, value) for name, value in attributes.items() if value is not None
        ]
        name = f"{self.label}/{op_type}_{self._count}" if self.label else f"{op_type}_{self._count}"
        self.nodes.append(ir.Node(domain, op_type, inputs, kept, outputs=outputs, name=name))

    @contextmanager
    def into(self, nodes: list[ir.Node]) -> Iterator[list[ir.Node]]:
        """Write the nodes to another list meanwhile: those of a subgraph."""
        self.nodes, outer = nodes, self.nodes
        try:
            yield nodes
        finally:
            self.nodes = outer

    def constant(self, value: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A constant of the graph, from anything that numpy takes; equal ones are one value."""
        with np.errstate(over="ignore"):  # a mask of -1e9 is minus infinity in float16
            array = np.asarray(value, None if dtype is None else dtype.numpy())
        array = np.ascontiguousarray(array).reshape(array.shape)
        key = (array.dtype.name, array.shape, array.tobytes())
        if key not in self._known:
            made = ir.Value(name=self.name())
            tensor = ir.Tensor(array, dtype, name=made.name)
            made.const_value, made.dtype, made.shape = tensor, tensor.dtype, tensor.shape
            self.constants.append(made)
            self._known[key] = made
        return self._known[key]

    def tensor(self, value: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A value or literal as a value of that dtype."""
        if isinstance(value, ir.Value):
            return value if dtype is None else self.cast(value, dtype)
        if isinstance(value, tuple | list) and any(isinstance(item, ir.Value) for item in value):
            return self.ints(value) if dtype is None else self.cast(self.ints(value), dtype)
        return self.constant(value, dtype)

    def cast(self, value: ir.Value, dtype: ir.DataType) -> ir.Value:
        """The value in that dtype; no node where it has it already."""
        if value.dtype == dtype:
            return value
        if value.const_value is not None and value.const_value.size == 1:
            return self.constant(value.const_value.numpy(), dtype)
        cast: ir.Value = self.op("Cast", [value], like=value, dtype=dtype, to=int(dtype))
        return cast

    def ints(self, value: Any) -> ir.Value:
        """A 1-D int64 value from an int, a sequence that mixes ints and run-time scalars, or an integer tensor."""
        if isinstance(value, ir.Value) and value.const_value is not None:
            return self.constant(value.const_value.numpy().reshape(-1), ir.DataType.INT64)
        if isinstance(value, ir.Value):
            flat = self.cast(value, ir.DataType.INT64)
            if value.shape is None or value.shape.rank() != 1:
                flat = self.op("Reshape", [flat, self.constant([-1], ir.DataType.INT64)], dtype=ir.DataType.INT64)
            return flat
        items = tuple(value) if isinstance(value, tuple | list) else (value,)
        if not any(isinstance(item, ir.Value) for item in items):
            return self.constant(np.array(items, np.int64))
        if len(items) == 1:
            return self.ints(items[0])
        parts = [self.ints(item) for item in items]
        joined: ir.Value = self.op("Concat", parts, axis=0, dtype=ir.DataType.INT64, shape=[len(items)])
        return joined

    def name(self) -> str:
        """A name that no value of the source model has."""
        self._count += 1
        return f"#{self._count}"

    # Asking ----------------------------------------------------------------------------------------------------------

    def refuse(self, reason: str) -> NoReturn:
        """Say that this use of the op cannot be translated."""
        raise RefusedError(reason)

    def bounded(self, count: int) -> int:
        """The count, refused where it is absurd: a file of a few bytes must not make us build millions of things."""
        if not 0 <= count <= MAX_COUNT:
            self.refuse(f"a count of {count}, beyond {MAX_COUNT}")
        return count

    def dtype(self, value: ir.Value) -> ir.DataType:
        """The dtype of a value, which must be known."""
        if value.dtype is None:
            self.refuse("the dtype of an operand is not recorded in the file")
        return value.dtype

    def rank(self, value: ir.Value) -> int:
        """The rank of a value, which must be known."""
        if value.shape is None:
            self.refuse("the rank of an operand is not known (dynamic rank is not supported)")
        return value.shape.rank()

    def known_sizes(self, value: ir.Value) -> tuple[int | None, ...]:
        """The sizes of a value, None where they are only known when the model runs.

        Asking ties the translation to these sizes, so prefer nodes that work for any size. Sizes of constants and of
        weights are free.
        """
        rank = self.rank(value)
        is_free = value.const_value is not None or value in self.open_weights
        if not is_free and self.label not in self.fixed[-1:]:
            self.fixed.append(self.label)
        assert value.shape is not None
        return tuple(size if isinstance(size, int) else None for size in (value.shape[axis] for axis in range(rank)))

    def sizes(self, value: ir.Value) -> tuple[int, ...]:
        """The sizes of a value, all of which must be known; see `known_sizes`."""
        sizes = self.known_sizes(value)
        if None in sizes:
            self.refuse(f"an operand of dynamic shape {sizes} is not supported here")
        return tuple(size for size in sizes if size is not None)

    def literal(self, value: Any) -> Any:
        """A Python literal from a literal or a constant value: numbers, tuples of numbers. Refuses run-time values."""
        if isinstance(value, ir.Value):
            if value.const_value is None:
                self.refuse("an operand that must be constant is computed when the model runs")
            return _plain(value.const_value.numpy().tolist())
        if isinstance(value, tuple | list):
            return tuple(self.literal(item) for item in value)
        return value

    def is_literal(self, value: Any) -> bool:
        """Whether `literal` would give a value."""
        if isinstance(value, tuple | list):
            return all(self.is_literal(item) for item in value)
        return not isinstance(value, ir.Value) or value.const_value is not None


def _plain(value: Any) -> Any:
    return tuple(_plain(item) for item in value) if isinstance(value, list) else value
