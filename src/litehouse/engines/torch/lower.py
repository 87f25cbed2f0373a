"""From a graph to steps: each value gets a slot, each node a step; what follows from constants alone is computed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from litehouse.engines.torch.control import CONTROL
from litehouse.engines.torch.exchanges import COUNTS, TorchExchange
from litehouse.engines.torch.fallback import Fallback
from litehouse.engines.torch.frame import NONE, Block, Frame, Step, uses_of
from litehouse.engines.torch.registry import Op, find_op
from litehouse.engines.torch.segments import with_segments
from litehouse.engines.torch.values import as_tensor, dtype_of
from litehouse.errors import EngineError
from litehouse.model import EXCHANGE_DOMAIN

MAX_FOLDED = 1 << 20  # elements of a result that is larger than what it is made of
GROWING = {"ConstantOfShape", "Expand", "Range", "Tile"}
DRAWING = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
NOT_FOLDED = {*DRAWING, "Optional"}
SIZES = {"OptionalHasElement", "SequenceLength", "Shape", "Size"}
LISTS = {"Optional", "SequenceConstruct", "SequenceInsert", "SplitToSequence"}  # give what is no tensor
CPU = torch.device("cpu")
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "litehouse.torch")


@dataclass(slots=True)
class Lowered:
    """A graph as steps.

    Attributes:
        block: The steps.
        constants: By slot, what is known before anything runs; None for all else.
        on_device: The slots of constants that are needed on the device.
        live: The slots of weights that may change, by name.
        derived: Steps that depend on these alone: they run when one of them has changed.
        lacking: The ops that torch lacks, with their nodes.
    """

    block: Block
    constants: list[Any]
    on_device: tuple[int, ...]
    live: dict[str, int]
    derived: list[Step]
    lacking: list[Step] = field(default_factory=list)


def lower(
    whole: ir.Model,
    path: str,
    live: Iterable[str] = (),
    exchanges: Sequence[TorchExchange] = (),
    *,
    threads: int = 1,
) -> Lowered:
    """The steps of a graph.

    Args:
        whole: The graph; it must not change as long as the steps are used.
        path: The model's file, for error texts.
        live: Inputs that are weights.
        exchanges: Its ops between ranks, in the order of the file.
        threads: How many compute what torch lacks.

    Raises:
        EngineError: It has an op of an unknown domain, or one with graphs that is not known.
    """
    return _Lowering(whole, path, exchanges, threads).lowered(frozenset(live))


class _Lowering:
    """The slots of values so far."""

    def __init__(self, whole: ir.Model, path: str, exchanges: Sequence[TorchExchange], threads: int) -> None:
        self._whole, self._path, self._threads = whole, path, threads
        self._exchanges = iter(exchanges)
        self._turns = sorted(each.turn for each in exchanges if each.line is not None)
        self._sends: dict[int, Step] = {}  # by turn, those whose turn has not come
        self._versions = {domain or "": version for domain, version in whole.opset_imports.items()}
        self._slots: dict[ir.Value, int] = {}
        self._constants: list[Any] = []
        self._nothing: list[Any] = []  # as long, for frames that only have constants
        self._on_host: set[int] = set()  # slots whose numbers follow from sizes
        self._lacking: list[Step] = []
        self._fixed: set[int] = set()  # slots that only change with the live weights
        self._derived: list[Step] = []
        self._small: dict[int, int] = {}  # constants of 4 bits, and where they are as int8

    def lowered(self, live: frozenset[str]) -> Lowered:
        graph = self._whole.graph
        slots = {str(value.name): self._slot(value) for value in graph.inputs}
        slots = {name: slot for name, slot in slots.items() if name in live}
        self._fixed = set(slots.values())
        block = self._block(graph)
        _set_frees(block, frozenset(block.outputs), self._kept())
        given = {slot for slot in block.outputs if isinstance(self._constants[slot], torch.Tensor)}
        whole = Block([*self._derived, *block.steps], block.inputs, block.outputs)
        used = given | set(_used_on_device(whole, self._constants))
        return Lowered(block, self._constants, tuple(sorted(used)), slots, self._derived, self._lacking)

    def _kept(self) -> frozenset[int]:
        """What later runs need, too."""
        return frozenset(slot for slot, value in enumerate(self._constants) if value is not None)

    def _slot(self, value: ir.Value) -> int:
        if value not in self._slots:
            self._slots[value] = len(self._constants)
            self._constants.append(None)
            self._nothing.append(None)
        return self._slots[value]

    def _block(self, graph: ir.Graph) -> Block:
        inputs = tuple(self._slot(value) for value in graph.inputs)
        for value in graph.initializers.values():
            if value not in self._slots:  # an input may have a value that is used where none is given
                self._set_constant(value)
        steps: list[Step] = []
        for node in graph:
            if node.domain == EXCHANGE_DOMAIN:
                steps += self._exchange(node)
            elif (step := self._step(node)) is not None:
                steps.append(step)
        outputs = tuple(self._slot(value) for value in graph.outputs)
        steps = with_segments(steps, outputs)
        self._lacking += [step for step in steps if step.is_lacking]
        return Block(steps, inputs, outputs)

    def _set_constant(self, value: ir.Value) -> None:
        if value.const_value is None:
            raise EngineError(f"{self._path}: the weight {value.name!r} has no value")
        self._constants[self._slot(value)] = as_tensor(value.const_value.numpy())

    def _exchange(self, node: ir.Node) -> list[Step]:
        """The steps whose turn has come with an op between ranks.

        All ranks run all exchanges in one order. It is that of the file, but a Send may have to wait for its turn
        behind others: nothing needs it here, as what it gives is what it takes.
        """
        exchange = next(self._exchanges, None)
        if exchange is None or (exchange.op, exchange.name) != (node.op_type, node.name or ""):
            raise EngineError(f"{self._where(node)} exchanges data with other ranks, which are not there")
        inputs = tuple(NONE if value is None else self._slot(value) for value in node.inputs)
        if node.op_type in ("Depend", "Send"):
            self._slots[node.outputs[0]] = inputs[0]
        if exchange.line is None:
            return []
        is_sent = node.op_type == "Send"
        self._sends[exchange.turn] = Step(
            op=node.op_type,
            name=node.name or "",
            function=None,
            known=tuple(exchange.op == "AlltoAllV" and place in COUNTS for place in range(len(inputs))),
            inputs=() if node.op_type == "Receive" else inputs,
            outputs=() if is_sent else tuple(self._slot(value) if value.name else NONE for value in node.outputs),
            fallback=None,
            control=exchange.run,
        )
        steps = []
        while self._turns and self._turns[0] in self._sends:
            steps.append(self._sends.pop(self._turns.pop(0)))
        if not is_sent and exchange.turn in self._sends:
            raise EngineError(f"{self._where(node)} comes before its turn")
        return steps

    def _step(self, node: ir.Node) -> Step | None:
        """The step of a node; None where it was computed at once."""
        if node.op_type == "Loop" and node.domain in ("", "ai.onnx"):  # its count and its condition are known
            self._on_host.update(self._slot(value) for value in node.attributes["body"].as_graph().inputs[:2])
        attributes = {name: self._attribute(node, value) for name, value in node.attributes.items()}
        inputs = tuple(NONE if value is None else self._slot(value) for value in node.inputs)
        if node.domain == "" and node.op_type == "Constant":
            self._constants[self._slot(node.outputs[0])] = _constant(attributes)
            return None
        blocks = {name: value for name, value in attributes.items() if isinstance(value, Block)}
        if blocks:
            return self._control(node, inputs, blocks, attributes)
        if node.domain not in DOMAINS:
            raise EngineError(
                f"{self._where(node)} is of the domain {node.domain!r}, which the torch engine does not know"
            )
        step = self._computed(node, inputs, attributes)
        if node.op_type not in NOT_FOLDED and all(slot == NONE or self._constants[slot] is not None for slot in inputs):
            if self._can_fold(step):
                return self._folded(step)
            step.is_on_host = True
        if node.graph is self._whole.graph and self._follows_from_weights(step):
            self._derived.append(step)
            self._fixed.update(step.outputs)
            return None
        step.is_on_host = step.is_on_host or self._follows_from_sizes(step)
        if step.is_on_host or step.gives_known:
            self._on_host.update(step.outputs)
        return step

    def _computed(self, node: ir.Node, inputs: tuple[int, ...], attributes: dict[str, Any]) -> Step:
        """The step of a node without graphs, by torch's function for it or without one."""
        found = find_op(node.domain, node.op_type, node.version or self._versions.get(node.domain or "", 1))
        fitting = found if found is not None and not found.refusal(attributes, len(inputs)) else None
        if fitting is not None and fitting.small:
            inputs = tuple(self._widened(s) if fitting.takes_small(place) else s for place, s in enumerate(inputs))
        return Step(
            op=node.op_type,
            name=node.name or "",
            function=None if fitting is None else _bound(fitting, attributes, len(node.outputs)),
            known=tuple(fitting is not None and self._knows(fitting, place, inputs) for place in range(len(inputs))),
            inputs=inputs,
            outputs=tuple(self._slot(value) if value.name else NONE for value in node.outputs),
            fallback=Fallback([node], node.inputs, node.outputs, self._versions, self._threads),
            gives_known=node.op_type in SIZES and node.domain == "",
            is_lacking=fitting is None,
            takes_place=fitting is not None and fitting.takes_place,
        )

    def _widened(self, slot: int) -> int:
        """The slot of a constant; of one of 4 bits, another slot, with the same numbers as int8."""
        value = self._constants[slot] if slot != NONE else None
        if not isinstance(value, np.ndarray) or value.dtype.name not in ("int4", "uint4"):
            return slot
        if slot not in self._small:
            self._small[slot] = len(self._constants)
            self._constants.append(as_tensor(value.astype(np.int8)))
            self._nothing.append(None)
        return self._small[slot]

    def _knows(self, fitting: Op, place: int, inputs: tuple[int, ...]) -> bool:
        value = self._constants[inputs[place]] if inputs[place] != NONE else None
        is_single = isinstance(value, torch.Tensor) and value.numel() == 1
        return fitting.knows(place) or (is_single and fitting.sees(place))

    def _follows_from_weights(self, step: Step) -> bool:
        """Whether a step gives tensors that change with the live weights alone, and never in size."""
        slots = [slot for slot in step.inputs if slot != NONE]
        is_computed = not step.is_lacking and not step.gives_known and step.op not in DRAWING | LISTS
        are_fixed = all(slot in self._fixed or self._constants[slot] is not None for slot in slots)
        is_sized = all(
            slot not in self._fixed for slot, is_known in zip(step.inputs, step.known, strict=True) if is_known
        )
        return is_computed and are_fixed and is_sized and any(slot in self._fixed for slot in slots)

    def _follows_from_sizes(self, step: Step) -> bool:
        slots = [slot for slot in step.inputs if slot != NONE]
        is_known = [slot in self._on_host or self._constants[slot] is not None for slot in slots]
        return all(is_known) and any(slot in self._on_host for slot in slots) and step.op not in DRAWING

    def _can_fold(self, step: Step) -> bool:
        if step.op not in GROWING:
            return True
        known = [self._constants[slot] for slot in step.inputs if slot != NONE]
        if step.op == "Range":
            start, limit, delta = (*map(float, known), 1.0)[:3]  # ONNX Runtime's own may leave out the last
            return delta != 0 and (limit - start) / delta <= MAX_FOLDED
        size = float(np.prod(known[-1].double().numpy())) if known else 0.0
        if step.op == "Tile":
            size *= math.prod(known[0].shape)
        elif step.op == "Expand":
            size = _broadcast_size(known[0].shape, known[1].tolist())
        return size <= MAX_FOLDED

    def _folded(self, step: Step) -> Step | None:
        """Compute a step that depends on constants alone; keep it where that fails: it may never be reached."""
        frame = Frame((), (), CPU)
        frame.host, frame.device = self._constants, self._nothing  # what it gives is a constant at once
        step.is_on_host = True
        try:
            with torch.no_grad():
                step.run(frame)
        except EngineError:
            return step
        return None

    def _attribute(self, node: ir.Node, attribute: ir.Attr) -> Any:
        kind, value = attribute.type, attribute.value
        if attribute.is_ref():
            raise EngineError(f"{self._where(node)} refers to an attribute of a function")
        if kind == ir.AttributeType.GRAPH:
            return self._block(value)
        if kind in (ir.AttributeType.INTS, ir.AttributeType.FLOATS, ir.AttributeType.STRINGS):
            return list(value)
        if kind == ir.AttributeType.TENSOR:
            return as_tensor(value.numpy())
        return value

    def _where(self, node: ir.Node) -> str:
        return f"{self._path}: {node.op_type} (node {node.name})"

    def _control(
        self, node: ir.Node, inputs: tuple[int, ...], blocks: dict[str, Block], attributes: dict[str, Any]
    ) -> Step:
        if node.domain not in ("", "ai.onnx") or node.op_type not in CONTROL:
            raise EngineError(f"{self._where(node)} has graphs inside, which the torch engine does not run")
        if node.op_type == "Scan" and (node.version or self._versions[""]) < 9:
            raise EngineError(f"{self._where(node)} is of opset 8, which the torch engine does not run")
        own = {slot for block in blocks.values() for slot in _made(block)}
        for block in blocks.values():
            _set_frees(block, frozenset(block.outputs), self._kept(), own)
        if "body" in blocks:
            body = node.attributes["body"].as_graph()
            attributes["empty"] = [_kind(value) for value in body.outputs]
            attributes["rank"] = len(body.inputs[0].shape or ()) if body.inputs else 0
        return Step(
            op=node.op_type,
            name=node.name or "",
            function=None,
            known=tuple(False for _ in inputs),
            inputs=inputs,
            outputs=tuple(self._slot(value) if value.name else NONE for value in node.outputs),
            fallback=None,
            control=CONTROL[node.op_type],
            blocks=blocks,
            attributes=attributes,
        )


def _kind(value: ir.Value) -> tuple[torch.dtype, tuple[int, ...]]:
    """Dtype and shape of a value as far as the file tells, with 0 for a size that it does not."""
    dtype = dtype_of(value.dtype) if value.dtype is not None else None
    sizes = () if value.shape is None else tuple(size if isinstance(size, int) else 0 for size in value.shape)
    return dtype or torch.float32, sizes


def _broadcast_size(*shapes: Sequence[int]) -> float:
    """The size of what comes of operands of these shapes; 0 where nothing does."""
    try:
        return float(math.prod(np.broadcast_shapes(*map(tuple, shapes))))
    except ValueError:
        return 0.0


def _constant(attributes: dict[str, Any]) -> Any:
    """The value of a Constant."""
    ((name, value),) = attributes.items()
    if name == "value":
        return value
    if name == "sparse_value":
        return as_tensor(value.numpy())
    if name in ("value_string", "value_strings"):
        return np.array(value, object)
    return torch.tensor(value, dtype=torch.int64 if name in ("value_int", "value_ints") else torch.float32)


def _bound(found: Op, attributes: dict[str, Any], outputs: int) -> Callable[..., Any]:
    named = attributes | ({"outputs": outputs} if found.takes_outputs else {})
    return functools.partial(found.function, **named) if named else found.function


def _made(block: Block) -> Iterable[int]:
    """The slots that a block has for itself: its inputs, and what its steps and those inside them give."""
    yield from block.inputs
    for step in block.steps:
        yield from (slot for slot in step.outputs if slot != NONE)
        for inner in step.blocks.values():
            yield from _made(inner)


def _set_frees(block: Block, kept: frozenset[int], constants: frozenset[int], own: set[int] | None = None) -> None:
    """Note behind which step each slot is used no more; `own` are those that may be freed, all by default."""
    last: dict[int, int] = {}
    for place, step in enumerate(block.steps):
        for slot in (*uses_of(step), *(slot for slot in step.outputs if slot != NONE)):
            last[slot] = place
    frees: dict[int, list[int]] = {}
    for slot, place in last.items():
        if slot not in kept and slot not in constants and (own is None or slot in own):
            frees.setdefault(place, []).append(slot)
    for place, step in enumerate(block.steps):
        step.frees = tuple(frees.get(place, ()))


def _used_on_device(block: Block, constants: list[Any]) -> Iterable[int]:
    """The slots of constants that steps take on the device."""
    for step in block.steps:
        for place, slot in enumerate(step.inputs):
            is_there = slot != NONE and isinstance(constants[slot], torch.Tensor)
            if is_there and not step.is_on_host and not step.known[place] and not step.is_lacking:
                yield slot
        for inner in step.blocks.values():
            yield from _used_on_device(inner, constants)
