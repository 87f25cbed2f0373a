"""Low-rank adapters (LoRA): pairs of small matrices, whose product is added to a weight."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from litehouse.errors import WeightError

# How the two halves are called by those who write such files: behind the name of the weight.
DOWN = re.compile(r"^(?P<weight>.+)\.lora(?:_A|_down)(?:\.[^.]+)?(?:\.weight)?$")
UP = re.compile(r"^(?P<weight>.+)\.lora(?:_B|_up)(?:\.[^.]+)?(?:\.weight)?$")
ALPHA = re.compile(r"^(?P<weight>.+)\.(?:lora_)?alpha$")
BEFORE = ("base_model.model.", "lora_unet_", "lora_te_", "lora_te1_", "lora_te2_")  # what they put in front of it


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """The two halves of what is added to a weight: `factor * up @ down`."""

    down: np.ndarray
    up: np.ndarray
    factor: float

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the product: (outputs, inputs), and for convolutions the sizes of the kernel."""
        return (self.up.shape[0], *self.down.shape[1:])

    def product(self, order: tuple[int, ...] | None) -> np.ndarray:
        """What is added to a weight in which the axes lie in this order, in 32 bits."""
        rank, outputs = self.down.shape[0], self.up.shape[0]
        down, up = self.down.astype(np.float32), self.up.astype(np.float32)
        flat = np.float32(self.factor) * (up.reshape(outputs, rank) @ down.reshape(rank, -1))
        return np.ascontiguousarray(flat.reshape(self.shape).transpose(order))


def load(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file.

    Raises:
        WeightError: It is no such file, or damaged.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "numpy") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (it is no mapping)
    except (OSError, SafetensorError, AttributeError, TypeError, ValueError) as error:  # a dtype that numpy lacks
        raise WeightError(f"{os.fsdecode(path)}: cannot be read as safetensors: {error}") from error


def split(arrays: Mapping[str, np.ndarray], scale: float) -> tuple[dict[str, np.ndarray], dict[str, Pair], list[str]]:
    """Whole weights, the pairs by the names that the file has for their weights, and what is wrong with some."""
    downs, ups, alphas = (_found(pattern, arrays) for pattern in (DOWN, UP, ALPHA))
    pairs: dict[str, Pair] = {}
    problems = [f"{name!r} has one half of a pair alone" for name in sorted(downs.keys() ^ ups.keys())]
    for name in downs.keys() & ups.keys():
        down, up = arrays[downs[name]], arrays[ups[name]]
        if down.ndim < 2 or up.ndim != down.ndim or up.shape[1] != down.shape[0] or any(n != 1 for n in up.shape[2:]):
            problems.append(f"the halves for {name!r}, {list(up.shape)} and {list(down.shape)}, do not fit each other")
            continue
        rank = down.shape[0]
        alpha = arrays[alphas[name]] if name in alphas else np.float32(rank)
        if not rank or alpha.size != 1:
            problems.append(f"the halves for {name!r} are empty, or its alpha is no number")
            continue
        with np.errstate(over="ignore"):
            pairs[name] = Pair(down, up, float(np.float32(scale * float(alpha.reshape(-1)[0]) / rank)))
    taken = {*downs.values(), *ups.values(), *(own for name, own in alphas.items() if name in downs)}
    return {name: array for name, array in arrays.items() if name not in taken}, pairs, problems


def _found(pattern: re.Pattern[str], names: Iterable[str]) -> dict[str, str]:
    return {match["weight"]: name for name in names if (match := pattern.match(name))}


def find(name: str, weights: Iterable[str]) -> str | None:
    """The weight that a file means by a name; None for none, or for several."""
    known = list(weights)
    bare = next((name.removeprefix(front) for front in BEFORE if name.startswith(front)), name)
    for wanted in (name, f"{name}.weight", bare, f"{bare}.weight"):
        if wanted in known:
            return wanted
    plain = {weight: _plain(weight) for weight in known}
    found = [weight for weight in known if plain[weight] in (_plain(bare), _plain(f"{bare}.weight"))]
    return found[0] if len(found) == 1 else None


def _plain(name: str) -> str:
    return re.sub(r"[._/]+", "_", name)
