"""Recurrent networks: one step of time after the other, with all products of the inputs made beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from litehouse.engines.torch.ops.common import from_zero
from litehouse.engines.torch.registry import LackingError, op
from litehouse.engines.torch.values import Tensor

Activation = Callable[[Tensor], Tensor]
# By name: the function, and the defaults of its alpha and beta, as far as it has them: None where they are not sure.
ACTIVATIONS: dict[str, tuple[Callable[..., Tensor], tuple[float | None, ...]]] = {
    "affine": (lambda x, alpha, beta: alpha * x + beta, (None, None)),
    "elu": (functional.elu, (1.0,)),
    "hardsigmoid": (lambda x, alpha, beta: (alpha * x + beta).clamp(0, 1), (0.2, 0.5)),
    "leakyrelu": (functional.leaky_relu, (0.01,)),
    "relu": (torch.relu, ()),
    "scaledtanh": (lambda x, alpha, beta: alpha * torch.tanh(beta * x), (None, None)),
    "sigmoid": (torch.sigmoid, ()),
    "softplus": (lambda x: functional.softplus(x, threshold=100.0), ()),
    "softsign": (functional.softsign, ()),
    "tanh": (torch.tanh, ()),
    "thresholdedrelu": (lambda x, alpha: torch.where(x > alpha, x, 0), (None,)),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The attributes that all recurrent ops have.

    Attributes:
        activations: The functions of each direction.
        clip: The bound of what the functions take; None where there is none.
        directions: For each direction, whether it runs from the end to the start.
        is_batch_first: Whether the batch is the first axis of all that comes and goes.
    """

    activations: list[list[Activation]]
    clip: float | None
    directions: list[bool]
    is_batch_first: bool

    def clipped(self, x: Tensor) -> Tensor:
        """Numbers within the bound."""
        return x if self.clip is None else x.clamp(-self.clip, self.clip)


def plan_of(
    defaults: Sequence[str],
    activations: list[str] | None,
    alpha: list[float] | None,
    beta: list[float] | None,
    clip: float | None,
    direction: str,
    layout: int,
) -> Plan:
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    names = activations or [*defaults] * len(directions)
    if len(names) != len(defaults) * len(directions):
        raise LackingError(f"{len(names)} activations")
    made = list(_made(names, iter(alpha or []), iter(beta or [])))
    grouped = [made[place : place + len(defaults)] for place in range(0, len(made), len(defaults))]
    return Plan(grouped, clip, directions, bool(layout))


def _made(names: Sequence[str], alphas: Iterator[float], betas: Iterator[float]) -> Iterator[Activation]:
    """The functions of the names; those that have an alpha or a beta take the next one that is given."""
    for name in names:
        if name.lower() not in ACTIVATIONS:
            raise LackingError(f"the activation {name}")
        function, defaults = ACTIVATIONS[name.lower()]
        values = [next(given, default) for given, default in zip((alphas, betas), defaults, strict=False)]
        if None in values:
            raise LackingError(f"the activation {name} without its numbers")
        yield _bound(function, values)


def _bound(function: Callable[..., Tensor], values: Sequence[float | None]) -> Activation:
    return (lambda x: function(x, *values)) if values else function


@dataclass(slots=True)
class Run:
    """One direction of a network on its input: what each step adds to the gates, and which sequences go on."""

    inputs: Tensor
    weight: Tensor
    is_on: list[Tensor] | None
    order: Tensor | None
    is_reversed: bool

    def steps(self) -> Iterator[tuple[int, Tensor]]:
        """The steps, in the order in which they are computed."""
        times = range(self.inputs.shape[0])
        for time in reversed(times) if self.is_reversed and self.order is None else times:
            yield time, self.inputs[time]

    def added(self, given: Tensor, h: Tensor) -> Tensor:
        """What a step adds to the gates, with what the state does."""
        return torch.addmm(given, h, self.weight)

    def kept(self, time: int, new: Tensor, old: Tensor) -> Tensor:
        """A new state, or the old one for a sequence that has ended."""
        return new if self.is_on is None else torch.where(self.is_on[time], new, old)

    def end(self, state: Tensor) -> Tensor:
        """The last state; zeros for a sequence of no steps, as ONNX Runtime has it."""
        return torch.where(self.is_on[0], state, 0) if self.is_on else state

    def stacked(self, outputs: dict[int, Tensor]) -> Tensor:
        """The outputs of all steps (time, batch, size), zeros behind the end of a sequence."""
        if not outputs:
            return self.inputs.new_zeros(0, self.inputs.shape[1], self.weight.shape[0])
        y = torch.stack([outputs[time] for time in range(len(outputs))])
        if self.is_on is not None:
            y = torch.where(torch.stack(self.is_on), y, 0)
        return y if self.order is None else _ordered(y, self.order)


def _ordered(x: Tensor, order: Tensor) -> Tensor:
    return x.gather(0, order[..., None].expand(-1, -1, x.shape[2]))


def _runs(
    plan: Plan, x: Tensor, w: Tensor, r: Tensor, biases: Sequence[Tensor | None], lengths: Tensor | None
) -> Iterator[Run]:
    """The directions of a network, with all products of the inputs (time, batch, gates)."""
    is_on, order = None, None
    if lengths is not None:
        times = torch.arange(x.shape[0], device=x.device)[:, None]
        is_on = list((times < lengths).unsqueeze(2).unbind(0))
        order = from_zero(torch.where(times < lengths, lengths - 1 - times, times), x.shape[0])
    for place, is_reversed in enumerate(plan.directions):
        own = order if is_reversed else None
        given = x if own is None else _ordered(x, own)
        inputs = functional.linear(given, w[place], biases[place])
        yield Run(inputs, r[place].t(), is_on, own, is_reversed)


def summed_biases(b: Tensor | None, count: int) -> list[Tensor | None]:
    """Those of inputs and of states added up, for each direction."""
    if b is None:
        return [None] * count
    inputs, states = b.chunk(2, 1)
    return list((inputs + states).unbind(0))


def first_states(given: Tensor | None, plan: Plan, x: Tensor, size: int) -> list[Tensor]:
    """The first states of each direction, (batch, size)."""
    if given is None:
        return [x.new_zeros(x.shape[1], size)] * len(plan.directions)
    return list(given.unbind(1 if plan.is_batch_first else 0))


def _sized(outputs: Sequence[Tensor], *states: Sequence[Tensor], plan: Plan) -> tuple[Tensor, ...]:
    """The outputs (time, directions, batch, size) and the last states (directions, batch, size)."""
    y, ends = torch.stack(list(outputs), 1), [torch.stack(list(state)) for state in states]
    if plan.is_batch_first:
        return y.permute(2, 0, 1, 3), *(end.transpose(0, 1) for end in ends)
    return y, *ends


@op("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    p: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    names = ["Sigmoid", "Tanh", "Tanh"]
    plan = plan_of(names, activations, activation_alpha, activation_beta, clip, direction, layout)
    x, size = x.transpose(0, 1) if layout else x, hidden_size or r.shape[2]
    runs = _runs(plan, x, w, r, summed_biases(b, w.shape[0]), lengths)
    starts = first_states(initial_h, plan, x, size), first_states(initial_c, plan, x, size)
    return run_lstm(plan, runs, starts, p, is_coupled=bool(input_forget))


def run_lstm(
    plan: Plan,
    runs: Iterable[Run],
    starts: tuple[list[Tensor], list[Tensor]],
    p: Tensor | None,
    *,
    is_coupled: bool,
) -> tuple[Tensor, ...]:
    """The outputs and the last states of all directions, from their runs and first states."""
    all_outputs, all_h, all_c = [], [], []
    for place, (run, h, c) in enumerate(zip(runs, *starts, strict=True)):
        peep = None if p is None else p[place].reshape(3, -1)
        outputs = {}
        for time, given in run.steps():
            new_h, new_c = _lstm_cell(plan, place, run.added(given, h), c, peep, is_coupled=is_coupled)
            h, c = run.kept(time, new_h, h), run.kept(time, new_c, c)
            outputs[time] = h
        all_outputs.append(run.stacked(outputs))
        all_h.append(run.end(h))
        all_c.append(run.end(c))
    return _sized(all_outputs, all_h, all_c, plan=plan)


def _lstm_cell(
    plan: Plan, place: int, gates: Tensor, c: Tensor, peep: Tensor | None, *, is_coupled: bool
) -> tuple[Tensor, Tensor]:
    """One step; the gates are those of input, output, forgetting and cell."""
    f, g, h = plan.activations[place]
    size = c.shape[1]
    if peep is None:
        opened, cell = f(plan.clipped(gates[:, : 3 * size])), g(plan.clipped(gates[:, 3 * size :]))
        taken, given, kept = opened.chunk(3, 1)
        new = torch.addcmul((1 - taken if is_coupled else kept) * c, taken, cell)
        return given * h(new), new
    before_taken, before_given, before_kept, before_cell = gates.chunk(4, 1)
    taken = f(plan.clipped(before_taken + peep[0] * c))
    kept = 1 - taken if is_coupled else f(plan.clipped(before_kept + peep[2] * c))
    new = torch.addcmul(kept * c, taken, g(plan.clipped(before_cell)))
    return f(plan.clipped(before_given + peep[1] * new)) * h(new), new


@op("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    plan = plan_of(["Sigmoid", "Tanh"], activations, activation_alpha, activation_beta, clip, direction, layout)
    x, size = x.transpose(0, 1) if layout else x, hidden_size or r.shape[2]
    biases, inner = _gru_biases(b, w.shape[0], size, is_inside=bool(linear_before_reset))
    all_outputs, all_h = [], []
    runs = zip(_runs(plan, x, w, r, biases, lengths), first_states(initial_h, plan, x, size), strict=True)
    for place, (run, h) in enumerate(runs):
        outputs = {}
        for time, given in run.steps():
            if linear_before_reset:
                new = _gru_cell_linear(plan, place, given, h, run.weight, inner[place])
            else:
                new = _gru_cell(plan, place, given, h, run.weight)
            h = outputs[time] = run.kept(time, new, h)
        all_outputs.append(run.stacked(outputs))
        all_h.append(run.end(h))
    return _sized(all_outputs, all_h, plan=plan)


def _gru_biases(
    b: Tensor | None, count: int, size: int, *, is_inside: bool
) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """What is added before all steps, and what to the states' part of the last gate inside of the reset."""
    if b is None or not is_inside:
        return summed_biases(b, count), [None] * count
    inputs, states = b.chunk(2, 1)
    outside = torch.cat([inputs[:, : 2 * size] + states[:, : 2 * size], inputs[:, 2 * size :]], 1)
    return list(outside.unbind(0)), list(states[:, 2 * size :].unbind(0))


def _gru_cell(plan: Plan, place: int, given: Tensor, h: Tensor, weight: Tensor) -> Tensor:
    """One step; the gates are those of update, reset and the new state."""
    f, g = plan.activations[place]
    size = h.shape[1]
    update, reset = f(plan.clipped(torch.addmm(given[:, : 2 * size], h, weight[:, : 2 * size]))).chunk(2, 1)
    new = g(plan.clipped(torch.addmm(given[:, 2 * size :], reset * h, weight[:, 2 * size :])))
    return torch.lerp(new, h, update)


def _gru_cell_linear(plan: Plan, place: int, given: Tensor, h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The same, with the reset behind the product."""
    f, g = plan.activations[place]
    size = h.shape[1]
    states = h @ weight
    update, reset = f(plan.clipped(given[:, : 2 * size] + states[:, : 2 * size])).chunk(2, 1)
    last = states[:, 2 * size :] if bias is None else states[:, 2 * size :] + bias
    new = g(plan.clipped(torch.addcmul(given[:, 2 * size :], reset, last)))
    return torch.lerp(new, h, update)


@op("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    plan = plan_of(["Tanh"], activations, activation_alpha, activation_beta, clip, direction, layout)
    x, size = x.transpose(0, 1) if layout else x, hidden_size or r.shape[2]
    all_outputs, all_h = [], []
    runs = zip(
        _runs(plan, x, w, r, summed_biases(b, w.shape[0]), lengths), first_states(initial_h, plan, x, size), strict=True
    )
    for place, (run, h) in enumerate(runs):
        (f,) = plan.activations[place]
        outputs = {}
        for time, given in run.steps():
            new = f(plan.clipped(run.added(given, h)))
            h = outputs[time] = run.kept(time, new, h)
        all_outputs.append(run.stacked(outputs))
        all_h.append(run.end(h))
    return _sized(all_outputs, all_h, plan=plan)
