"""`Plan`: what each rank gets, and what the ranks send to each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from litehouse.distributed.slicing import slip
from litehouse.distributed.slicing.constants import RankWeights
from litehouse.errors import LitehouseError
from litehouse.model import Model


@dataclass(frozen=True, slots=True)
class Row:
    """What becomes of one weight.

    Attributes:
        weight: Its name.
        how: `"columns"`, `"rows"`, `"channels"`, `"vocabulary"`, ... , `"stage 1"`, or `"whole"`.
        shape: Its shape.
        bytes_whole: Its bytes in the whole model.
        bytes_per_rank: Its bytes on each rank.
    """

    weight: str
    how: str
    shape: tuple[int, ...]
    bytes_whole: int
    bytes_per_rank: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the ranks send to each other at one place of the graph.

    Attributes:
        op: The op, as `"AllReduce"`.
        value: What is sent.
        bytes_sent: The bytes that one rank sends in a run, the most where they differ.
    """

    op: str
    value: str
    bytes_sent: int


@dataclass(frozen=True)
class Plan:
    """How a model is cut for so many ranks.

    Attributes:
        model: The whole model.
        ranks: How many ranks there are.
        is_pipeline: Whether each rank has some of the layers, instead of a part of each.
        rows: The weights.
        exchanges: What is sent, in the order of the graph.
        states: Values of which a rank has a part, `"Split(2)"`, or a summand, `"Partial"`; all others are replicated.
        bytes_sent: What the rank that sends most sends in a run; sizes that are not known are assumed as `Costs` says.
    """

    model: Model
    ranks: int
    is_pipeline: bool
    rows: tuple[Row, ...]
    exchanges: tuple[Exchange, ...]
    states: dict[str, str]
    bytes_sent: int
    _source: ir.Model = field(repr=False)
    _make: Callable[[int], ir.Model] = field(repr=False)

    @property
    def bytes_whole(self) -> int:
        """Bytes of all weights of the whole model."""
        return sum(row.bytes_whole for row in self.rows)

    @property
    def bytes_per_rank(self) -> tuple[int, ...]:
        """Bytes of the weights of each rank."""
        return tuple(sum(row.bytes_per_rank[rank] for row in self.rows) for rank in range(self.ranks))

    @cached_property
    def fingerprint(self) -> str:
        """What tells these slices from all others: a digest of the model, its weights, and this plan."""
        return slip.fingerprint(self._source, self.ranks, self.is_pipeline, self.rows, self.exchanges)

    def model_for(self, rank: int) -> Model:
        """The model of one rank. Its weights lie in the whole model's memory, and are cut out when they are needed."""
        if not 0 <= rank < self.ranks:
            raise LitehouseError(f"there is no rank {rank} of {self.ranks}")
        graph = self._make(rank)
        for own, given in zip(graph.graph.inputs, self.model.graph.graph.inputs, strict=True):
            own.shape = given.shape  # with the names that its sizes have there
        job = slip.JobSlip(self.fingerprint, rank, self.ranks)
        graph.metadata_props[slip.KEY] = job.text()
        tensors = {name: value.const_value for name, value in graph.graph.initializers.items()}
        model = Model(
            graph=graph,
            weights=RankWeights({name: tensor for name, tensor in tensors.items() if tensor is not None}),
            inputs=self.model.inputs,
            outputs=self.model.outputs,
            format=self.model.format,
            path=self.model.path,
            metadata={**self.model.metadata, slip.READ_KEY: job.text()},
            source_ops=self.model.source_ops,
            states=self.model.states,
            defaults=self.model.defaults,
            is_secret=self.model.is_secret,
        )
        return model
