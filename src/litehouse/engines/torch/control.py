"""Ops with graphs inside: they run blocks on the frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from litehouse.engines.torch.frame import NONE, Frame, Step
from litehouse.engines.torch.values import Tensor

MAX_TRIPS = (1 << 63) - 1


def run_if(frame: Frame, step: Step) -> list[Any]:
    """`If`: one of two blocks."""
    block = step.blocks["then_branch" if bool(frame.on_host(step.inputs[0], step)) else "else_branch"]
    frame.run(block.steps)
    _give(frame, block.outputs, step.outputs)
    return []


def run_loop(frame: Frame, step: Step) -> list[Any]:
    """`Loop`: a block as often as its count and its condition say."""
    body = step.blocks["body"]
    trips = int(frame.on_host(step.inputs[0], step)) if step.inputs[0] != NONE else MAX_TRIPS
    goes_on = True
    if len(step.inputs) > 1 and step.inputs[1] != NONE:
        goes_on = bool(frame.on_host(step.inputs[1], step))
    carried = max(len(step.inputs) - 2, 0)
    stacks: list[list[Tensor]] = [[] for _ in body.outputs[1 + carried :]]
    for source, target in zip(step.inputs[2:], body.inputs[2:], strict=True):
        frame.move(source, target)
    trip = 0
    while trip < trips and goes_on:
        frame.put(body.inputs[0], torch.tensor(trip).reshape([1] * step.attributes["rank"]), is_known=True)
        frame.put(body.inputs[1], torch.tensor(True), is_known=True)
        frame.run(body.steps)
        goes_on = bool(frame.on_host(body.outputs[0], step))
        for stack, slot in zip(stacks, body.outputs[1 + carried :], strict=True):
            stack.append(frame.on_device(slot))
        _give(frame, body.outputs[1 : 1 + carried], body.inputs[2:])
        trip += 1
    _give(frame, body.inputs[2:], step.outputs[:carried])
    empties = step.attributes["empty"][1 + carried :]
    for stack, empty, slot in zip(stacks, empties, step.outputs[carried:], strict=False):
        if slot != NONE:
            frame.put(slot, torch.stack(stack) if stack else _empty(frame, empty, 0))
    return []


def run_scan(frame: Frame, step: Step) -> list[Any]:
    """`Scan`: a block for each part of its inputs along an axis."""
    body, count = step.blocks["body"], step.attributes["num_scan_inputs"]
    states, scanned = step.inputs[: len(step.inputs) - count], step.inputs[len(step.inputs) - count :]
    axes = step.attributes.get("scan_input_axes") or [0] * count
    ways = step.attributes.get("scan_input_directions") or [0] * count
    arrays = [frame.on_device(slot) for slot in scanned]
    parts = [_along(array, axis, way) for array, axis, way in zip(arrays, axes, ways, strict=True)]
    given = len(body.outputs) - len(states)
    stacks: list[list[Tensor]] = [[] for _ in range(given)]
    for source, target in zip(states, body.inputs, strict=False):
        frame.move(source, target)
    counts = {len(each) for each in parts}
    if len(counts) != 1:
        raise ValueError(f"inputs of {sorted(counts)} parts are scanned together")
    for place in range(len(parts[0])):
        for slot, part in zip(body.inputs[len(states) :], parts, strict=True):
            frame.put(slot, part[place])
        frame.run(body.steps)
        for stack, slot in zip(stacks, body.outputs[len(states) :], strict=True):
            stack.append(frame.on_device(slot))
        _give(frame, body.outputs[: len(states)], body.inputs[: len(states)])
    _give(frame, body.inputs[: len(states)], step.outputs[: len(states)])
    out_axes = step.attributes.get("scan_output_axes") or [0] * given
    out_ways = step.attributes.get("scan_output_directions") or [0] * given
    empties = step.attributes["empty"][len(states) :]
    rows = zip(stacks, empties, step.outputs[len(states) :], out_axes, out_ways, strict=False)
    for stack, empty, slot, axis, way in rows:
        if slot != NONE:
            parts = stack[::-1] if way else stack
            frame.put(slot, torch.stack(parts, axis) if parts else _empty(frame, empty, axis))
    return []


def run_map(frame: Frame, step: Step) -> list[Any]:
    """`SequenceMap`: a block for each element of a sequence."""
    body, values = step.blocks["body"], [frame.on_device(slot) for slot in step.inputs]
    made: list[list[Tensor]] = [[] for _ in body.outputs]
    for place in range(len(values[0])):
        for slot, value in zip(body.inputs, values, strict=True):
            frame.put(slot, value[place] if isinstance(value, list) else value)
        frame.run(body.steps)
        for sequence, slot in zip(made, body.outputs, strict=True):
            sequence.append(frame.on_device(slot))
    for sequence, slot in zip(made, step.outputs, strict=False):
        if slot != NONE:
            frame.put(slot, sequence)
    return []


def _empty(frame: Frame, kind: tuple[torch.dtype, tuple[int, ...]], axis: int) -> Tensor:
    """What comes of no trips: the parts' shape, as far as it is known, with an axis of size 0."""
    dtype, sizes = kind
    shape = list(sizes)
    shape.insert(axis if axis >= 0 else axis + len(sizes) + 1, 0)
    return torch.empty(shape, dtype=dtype, device=frame.place)


def _along(array: Tensor, axis: int, way: int) -> list[Tensor]:
    parts = list(array.unbind(axis))
    return parts[::-1] if way else parts


def _give(frame: Frame, sources: tuple[int, ...], targets: tuple[int, ...]) -> None:
    """Move values all at once: one may be the source of another's place."""
    values = [(frame.device[slot], frame.host[slot], frame.fed.get(slot)) for slot in sources]
    for target, (device, host, fed) in zip(targets, values, strict=False):
        if target == NONE:
            continue
        frame.device[target], frame.host[target] = device, host
        frame.fed.pop(target, None)
        if fed is not None:
            frame.fed[target] = fed


CONTROL: dict[str, Callable[[Frame, Step], list[Any]]] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
    "SequenceMap": run_map,
}
