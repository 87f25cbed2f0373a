"""ONNX Runtime's own recurrent network with weights of 8 bits, which makes small integers of what it multiplies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from litehouse.engines.torch.ops.quantised_products import dynamic_quantize_matmul
from litehouse.engines.torch.ops.recurrent import Plan, Run, first_states, plan_of, run_lstm, summed_biases
from litehouse.engines.torch.registry import MICROSOFT, LackingError, op
from litehouse.engines.torch.values import Tensor


@dataclass(frozen=True, slots=True)
class Weight:
    """A weight of one direction: integers, their scale, one or one for each column, and their one zero point."""

    small: Tensor
    scale: Tensor
    zero: Tensor

    def times(self, x: Tensor) -> Tensor:
        """The product with numbers that become integers by a scale and a zero point of their own."""
        found: Tensor = dynamic_quantize_matmul(x, self.small, self.scale, self.zero)
        return found


@dataclass(slots=True)
class SmallRun(Run):
    """One direction whose state is multiplied so."""

    recurrence: Weight

    def added(self, given: Tensor, h: Tensor) -> Tensor:
        """What a step adds to the gates, with what the state does."""
        return given + self.recurrence.times(h)


def _runs(plan: Plan, x: Tensor, w: list[Weight], r: list[Weight], biases: list[Tensor | None]) -> Iterator[Run]:
    for place, is_reversed in enumerate(plan.directions):
        bias, inputs = biases[place], w[place].times(x)
        inputs = inputs if bias is None else inputs + bias
        yield SmallRun(inputs, r[place].small, None, None, is_reversed, r[place])


def _weights(small: Tensor, scale: Tensor, zero: Tensor) -> list[Weight]:
    """Those of all directions; the kernel knows one zero point for each."""
    firsts = zero.reshape(zero.shape[0], -1)[:, 0]
    return [Weight(*parts) for parts in zip(small, scale, firsts, strict=True)]


@op("DynamicQuantizeLSTM", domain=MICROSOFT)
def dynamic_quantize_lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    initial_h: Tensor | None,
    initial_c: Tensor | None,
    p: Tensor | None,
    w_scale: Tensor,
    w_zero: Tensor,
    r_scale: Tensor,
    r_zero: Tensor,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Tensor, ...]:
    if lengths is not None:
        raise LackingError("sequences of several lengths, whose range decides on the integers")
    names = ["Sigmoid", "Tanh", "Tanh"]
    plan = plan_of(names, activations, activation_alpha, activation_beta, clip, direction, 0)
    size = hidden_size or r.shape[1]
    runs = _runs(plan, x, _weights(w, w_scale, w_zero), _weights(r, r_scale, r_zero), summed_biases(b, w.shape[0]))
    starts = first_states(initial_h, plan, x, size), first_states(initial_c, plan, x, size)
    return run_lstm(plan, runs, starts, p, is_coupled=bool(input_forget))
