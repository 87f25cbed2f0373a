"""Joins steps that torch lacks: those that follow each other run as one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from litehouse.engines.torch.frame import NONE, Step, uses_of


def with_segments(steps: Sequence[Step], given: Sequence[int]) -> list[Step]:
    """The steps of a graph that gives these slots, with one for each run of those that torch lacks."""
    found: list[Step] = []
    used = Counter(given)  # how often each slot is, behind the run that is looked at
    for step in steps:
        used.update(uses_of(step))
    for is_lacking, group in groupby(steps, lambda step: step.is_lacking and not step.is_on_host):
        run = list(group)
        for step in run:
            used.subtract(uses_of(step))
        found += _joined(run, used) if is_lacking and len(run) > 1 else run
    return found


def _joined(run: Sequence[Step], used: Mapping[int, int]) -> Sequence[Step]:
    """One step for several; these where a value has a second name between them, or nothing uses what they give."""
    parts = [step.fallback for step in run if step.fallback is not None]
    takes = [pair for step, part in zip(run, parts, strict=True) for pair in zip(step.inputs, part.inputs, strict=True)]
    made = {
        slot: value
        for step, part in zip(run, parts, strict=True)
        for slot, value in zip(step.outputs, part.outputs, strict=True)
        if slot != NONE
    }
    inputs = {value: slot for slot, value in takes if slot not in made and slot != NONE}  # of one slot, several
    outputs = {slot: value for slot, value in made.items() if used[slot] > 0}
    if not outputs or any(made.get(slot, value) is not value for slot, value in takes):
        return run
    nodes = [node for part in parts for node in part.nodes]
    whole = Step(
        op=", ".join(map(str, run)),
        name="",
        function=None,
        known=(False,) * len(inputs),
        inputs=tuple(inputs.values()),
        outputs=tuple(outputs),
        fallback=replace(parts[0], nodes=nodes, inputs=list(inputs), outputs=list(outputs.values())),
        is_lacking=True,
        parts=tuple(run),
    )
    return [whole]
