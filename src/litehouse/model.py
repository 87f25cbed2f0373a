"""`Model`: a network as an ONNX graph in memory, its weights beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse.weights import Weights

if TYPE_CHECKING:
    import onnx_ir as ir

    from litehouse.identity import Files, Origin

EXCHANGE_DOMAIN = "litehouse"
"""The domain of the ops that exchange data with other ranks, which ONNX does not have."""

Dimension = int | str | None
"""A fixed size, the name of a dynamic dimension, or None for a nameless dynamic one."""


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name, dtype and shape of an input or output."""

    name: str
    dtype: np.dtype
    shape: tuple[Dimension, ...]

    @property
    def is_static(self) -> bool:
        """Whether every dimension is a fixed size."""
        return all(isinstance(size, int) for size in self.shape)


@dataclass(frozen=True, slots=True)
class State:
    """A weight that the network changes when it runs. The next run begins with what this one left.

    Attributes:
        name: The weight's name, and that of the graph's input that takes its value.
        output: The graph's output that has its value after the run.
    """

    name: str
    output: str


@dataclass
class Model:
    """A network, read from a file and translated.

    Attributes:
        graph: The ONNX graph. Its initializers named in `weights` refer to the arena's memory.
        weights: The weights by the file's own names.
        inputs: What the network takes, in call order.
        outputs: What it returns.
        format: The kind of file, as `"mindir"`.
        path: The file, or `"<bytes>"`.
        metadata: What the file says about itself.
        source_ops: How often each op of the source format occurs.
        states: The weights that the network changes when it runs. In the graph they follow the inputs and outputs.
        fixed_nodes: Nodes whose translation used an input-dependent size of the file, so that `resize` must refuse.
        defaults: The values that the file has for inputs, by name.
        translate: Translates the file anew for other shapes of its inputs, over the same weights; None where the graph
            serves all shapes. With `every=True` all variables of the file are outputs.
        files: The data files beside the file, and what they looked like when they were read.
        updatable: Weights that nothing in the graph was computed from, so that they may be given other values.
        live: Those of them that are given to each run: in what an engine compiles they follow the states.
        is_secret: Whether the file was encrypted: nothing that was made of it may be left on a disk.
        origin: What tells the file from others, for those that keep what is made of it; None where nothing may be.
        read_from: What tells the file that it was read from, whatever was done to the model since.
        shelf: What engines keep of it on a device, for all sizes that they build it for.
    """

    graph: ir.Model
    weights: Weights
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    format: str
    path: str
    metadata: dict[str, str] = field(default_factory=dict)
    source_ops: dict[str, int] = field(default_factory=dict)
    states: tuple[State, ...] = ()
    fixed_nodes: tuple[str, ...] = ()
    defaults: dict[str, np.ndarray] = field(default_factory=dict)
    translate: Callable[..., Model] | None = None
    files: Files = field(default_factory=dict)
    updatable: tuple[str, ...] = ()
    live: tuple[str, ...] = ()
    is_secret: bool = False
    origin: Origin | None = field(default=None, init=False)  # what `replace` changes is another model
    read_from: Origin | None = field(default=None, init=False)
    shelf: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def weight_shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """Dtype and shape of all weights."""
        return {name: (array.dtype, array.shape) for name, array in self.weights.items()}

    @property
    def fed_names(self) -> list[str]:
        """The names of all that a compiled model takes: the inputs, then the states, then the live weights."""
        return [*(info.name for info in self.inputs), *(state.name for state in self.states), *self.live]

    @property
    def given_names(self) -> list[str]:
        """The graph's names of all that it gives: the outputs, then the states' next values.

        They are the outputs' own, but where an output is called as an input is.
        """
        return [str(value.name) for value in self.graph.graph.outputs]

    @property
    def exchanges(self) -> list[tuple[str, str]]:
        """The ops that exchange data with other ranks, and their nodes."""
        ours = [node for node in self.graph.graph.all_nodes() if node.domain == EXCHANGE_DOMAIN]
        return [(node.op_type, node.name or "") for node in ours]
