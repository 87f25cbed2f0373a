"""Made-up inputs, to time a model and to compare what its engines compute."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from litehouse.engines.base import Runner
from litehouse.errors import EngineError
from litehouse.model import Model

# How much of the range of an output two engines may differ by: they round differently, and networks amplify it. In 16
# bits only gross errors can be told from rounding.
AGREEMENT = {"fp32": 1e-3, "tf32": 1e-2, "fp16": 0.05, "bf16": 0.3}
# How large a part of the whole numbers of an output may differ: the class of a pixel, where two are nearly as likely.
UNEQUAL = {"fp16": 0.05, "bf16": 0.05}
MAX_BYTES = 1 << 30


def find_samples(model: Model, runner: Runner) -> list[np.ndarray] | None:
    """Inputs that the model takes, its states and its live weights behind them.

    None where it has dynamic sizes, takes none of them, or has a loop: with made-up inputs that may never end.
    """
    if has_loop(model):
        return None
    for arrays in _candidates(model):
        try:
            runner.run(arrays)
        except EngineError:
            continue  # it divides by an integer input, or looks up what is not there
        return arrays
    return None


def has_loop(model: Model) -> bool:
    """Whether a model may run for ever on made-up inputs."""
    return any(node.op_type == "Loop" for node in model.graph.graph.all_nodes())


def agree(first: Sequence[np.ndarray], second: Sequence[np.ndarray], precision: str = "fp32") -> bool:
    """Whether two engines gave the same result, up to the rounding of a precision."""
    allowed, part = AGREEMENT[precision], UNEQUAL.get(precision, 0.0)
    return all(is_close(a, b, allowed, part) for a, b in zip(first, second, strict=True))


def _candidates(model: Model) -> Iterator[list[np.ndarray]]:
    infos = model.inputs
    if not all(info.is_static and info.dtype.kind in "fiub" for info in infos):
        return
    shapes = [(tuple(map(int, info.shape)), info.dtype) for info in infos]  # type: ignore[arg-type]
    if sum(int(np.prod(shape, dtype=float)) * dtype.itemsize for shape, dtype in shapes) > MAX_BYTES:
        return
    states = [model.weights[name] for name in (*(state.name for state in model.states), *model.live)]
    random = np.random.default_rng(0)

    def drawn(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        if dtype.kind == "f":
            return random.standard_normal(shape, np.float32).astype(dtype)
        return random.integers(0, 2, shape).astype(dtype)  # indices that most tables have

    makers: tuple[Callable[[tuple[int, ...], np.dtype], np.ndarray], ...] = (drawn, np.ones, np.zeros)
    for make in makers:
        yield [*(make(shape, dtype) for shape, dtype in shapes), *states]


def is_close(first: np.ndarray, second: np.ndarray, allowed: float, part: float = 0.0) -> bool:
    """Whether two outputs are the same, up to an error, and up to a part of the numbers where these are whole."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.dtype.kind not in "fc" or not first.size:
        return not first.size or bool(np.mean(first != second) <= part)
    finite = np.isfinite(first)
    if not np.array_equal(finite, np.isfinite(second)):
        return False
    a, b = first[finite].astype(np.float64), second[finite].astype(np.float64)
    return bool(np.abs(a - b).max(initial=0.0) <= allowed * np.abs(a).max(initial=1e-30))
