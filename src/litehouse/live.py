"""The weights of a session: what they hold now, and how they get other values while it runs."""

from __future__ import annotations

import contextlib
import copy
import difflib
import functools
import math
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse import lora
from litehouse.device import lack
from litehouse.errors import EngineError, WeightError
from litehouse.lora import Pair
from litehouse.options import Options
from litehouse.signature import is_foreign, settled
from litehouse.weights import Weights
from litehouse.weights.store import has_nan, is_real

if TYPE_CHECKING:
    import onnx_ir as ir

    from litehouse.engines.base import Engine
    from litehouse.model import Model

IN_PLACE, SWAP = "in_place", "swap"
# What reads its weights in an order of its own: given to each run, they would be put into it by each run.
ORDERING = {"Conv", "ConvTranspose", "LSTM", "GRU", "RNN"}
LAYING_OUT = {"Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
# Dtypes that a run can be given as numpy has them.
GIVEN = {"bool", "float16", "float32", "float64"}
GIVEN |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


@dataclass(frozen=True, slots=True)
class WeightInfo:
    """Name, dtype and shape of a weight, and whether `update_weights` takes it."""

    name: str
    dtype: np.dtype
    shape: tuple[int, ...]
    is_updatable: bool


Arrays = Mapping[str, np.ndarray]
Adapters = Mapping[str, Mapping[str, Pair]]
Install = Callable[[Arrays, Callable[[Arrays], None]], None]
"""Makes runs use other values, and calls its second argument with them when it does."""


@dataclass(frozen=True, slots=True)
class Values:
    """What the updatable weights hold. It is never changed, only replaced: a run uses one of them from end to end.

    Attributes:
        number: How many updates came before.
        arrays: The values by name.
        held: Those that each run is given, as the engine takes them.
        adapters: The adapters that are merged into them: pairs by weight, by label.
        bases: What the weights with adapters are without them.
    """

    number: int
    arrays: Arrays
    held: tuple[Any, ...] = ()
    adapters: Adapters = field(default_factory=dict)
    bases: Arrays = field(default_factory=dict)


class Live:
    """The updatable weights of a session, and of its twins.

    Attributes:
        model: The model.
        values: What they hold now.
        updating: Held by whoever changes them.
        sessions: The sessions that use them and are open.
        sharing: The `litehouse.sharing.Sharing` by which other processes get them; None where they are not shared.
    """

    def __init__(self, model: Model, engine: Engine, arrays: Arrays | None = None) -> None:
        """Begin with what the file holds, or with other values.

        Args:
            model: The model.
            engine: The engine that runs it.
            arrays: The values of all updatable weights; None for those of the file.
        """
        self.model, self.engine = model, engine
        if arrays is None:
            known = model.weights if model.updatable else {}  # those of a model that was kept are not read for nothing
            arrays = {name: known[name] for name in model.updatable if name in known}
        self.values = Values(0, arrays, tuple(engine.hold(arrays[name]) for name in model.live))
        self._separate()

    def _separate(self) -> None:
        self.sharing: Any = None
        self.updating = threading.Lock()
        self.sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        _lives.add(self)

    def shared(self) -> Any:
        """How other processes get them; None where they do not, also in a process that was forked off."""
        return self.sharing if self.sharing is not None and self.sharing.is_open else None

    def copy(self) -> Live:
        """Another one, with what this one holds now; `updating` must be held."""
        other = copy.copy(self)
        other._separate()
        return other

    @property
    def adapters(self) -> tuple[str, ...]:
        """The adapters that are merged into the weights, in the order in which they came."""
        return tuple(self.values.adapters)

    def update(self, new: Arrays, install: Install, *, allow_nan: bool = False) -> None:
        """Give weights other values, all of them or none. Adapters stay merged into them.

        Args:
            new: The values by name.
            install: Makes runs use them.
            allow_nan: Take values that are not numbers, too.

        Raises:
            TypeError: `new` is no mapping.
            WeightError: Names, dtypes, shapes or values are wrong; the text tells each of them.
        """
        if not isinstance(new, Mapping):
            raise TypeError(f"update_weights takes a dict of arrays by name, not {type(new).__name__}")
        if not new:
            return
        new = {name: _from_anywhere(array) for name, array in new.items()}
        with self.updating:
            copies, problems = self._kept(new, allow_nan)
            self._refuse(problems)
            self._put(copies, self.values.adapters, install, allow_nan)

    def add(self, label: str, arrays: Arrays, install: Install, *, scale: float, allow_nan: bool) -> None:
        """Take the arrays of a file: whole weights, and the pairs of an adapter, which are merged."""
        with self.updating:
            whole, pairs, problems = lora.split(arrays, scale)
            copies, more = self._kept(whole, allow_nan)
            problems += more
            own: dict[str, Pair] = {}
            for name, pair in pairs.items():
                weight = lora.find(name, self.values.arrays)
                if weight is None:
                    problems.append(f"the adapter's {name!r} means no updatable weight")
                elif weight in own:
                    problems.append(f"the pair for {name!r} means {weight!r}, as another one does")
                else:
                    own[weight] = pair
                    problems += self._pair_problems(name, pair, weight, allow_nan)
            self._refuse(problems, label)
            adapters = {other: pairs for other, pairs in self.values.adapters.items() if other != label}
            self._put(copies, {**adapters, label: own} if own else adapters, install, allow_nan, label)

    def remove(self, label: str, install: Install) -> None:
        """Take an adapter out again: what remains is what there would be without it, to the bit."""
        with self.updating:
            adapters = dict(self.values.adapters)
            if label not in adapters:
                known = ", ".join(map(repr, adapters)) or "none"
                raise WeightError(f"{self.model.path}: no adapter {label!r} is merged; there are: {known}")
            del adapters[label]
            self._put({}, adapters, install, allow_nan=True)

    def _put(self, new: Arrays, adapters: Adapters, install: Install, allow_nan: bool, label: str = "") -> None:
        """Give weights other values, which are right and which nobody else changes, and merge the adapters."""
        before = self.values
        merged = {name for pairs in (*before.adapters.values(), *adapters.values()) for name in pairs}
        bases = {name: new.get(name, before.bases.get(name, before.arrays[name])) for name in merged}
        changed, problems = dict(new), []
        for name in merged:
            old, now = (
                [pairs[name] for pairs in each.values() if name in pairs] for each in (before.adapters, adapters)
            )
            if name in new or old != now:
                changed[name] = self._merged(name, bases[name], now)
                if not allow_nan and now and _has_outgrown(changed[name], bases[name]):
                    problems.append(f"with its adapters {name!r} would hold numbers too large for {bases[name].dtype}")
        self._refuse(problems, label)
        kept = {name: array for name, array in bases.items() if any(name in own for own in adapters.values())}
        install(changed, lambda arrays: self.take(arrays, adapters=adapters, bases=kept))

    def take(
        self,
        changed: Arrays,
        number: int | None = None,
        *,
        adapters: Adapters | None = None,
        bases: Arrays | None = None,
    ) -> None:
        """Let runs that start from now on use these values; what is None is as before, but for the number."""
        before = self.values
        held = tuple(
            self.engine.hold(changed[name]) if name in changed else old
            for name, old in zip(self.model.live, before.held, strict=True)
        )
        self.values = Values(
            before.number + 1 if number is None else number,
            {**before.arrays, **changed},
            held,
            before.adapters if adapters is None else adapters,
            before.bases if bases is None else bases,
        )

    def _merged(self, name: str, base: np.ndarray, pairs: Sequence[Pair]) -> np.ndarray:
        if not pairs:
            return base
        total = base.astype(np.promote_types(base.dtype, np.float32) if base.dtype.kind == "f" else np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # it is looked at afterwards
            for pair in pairs:
                total += pair.product(self._order(name, pair))
            return total.astype(base.dtype)

    def _pair_problems(self, name: str, pair: Pair, weight: str, allow_nan: bool) -> list[str]:
        """What keeps a pair from being merged into a weight."""
        found, own = [], self.values.arrays[weight]
        if not is_real(own):
            found.append(f"{weight!r} holds whole numbers, which no adapter can be merged into")
        order = self._order(weight, pair)
        if order is None or tuple(pair.shape[axis] for axis in order) != own.shape:
            shapes = f"{list(pair.up.shape)} and {list(pair.down.shape)}"
            found.append(f"the pair for {name!r}, {shapes}, does not fit {weight!r}, which is {list(own.shape)}")
        if not allow_nan and (has_nan(pair.down) or has_nan(pair.up) or not math.isfinite(pair.factor)):
            found.append(f"the pair for {name!r}, or its scale, holds values that are not numbers")
        return found

    def _order(self, name: str, pair: Pair) -> tuple[int, ...] | None:
        """How the axes of a pair's product lie in a weight, by the op that reads it; None where that is not known."""
        shape, axes = self.values.arrays[name].shape, tuple(range(len(pair.shape)))
        if len(axes) == 2:
            is_turned = pair.shape != shape or self._orders.get(name) == (1, 0)
            return axes[::-1] if is_turned and pair.shape[::-1] == shape else axes
        return self._orders.get(name)

    @functools.cached_property
    def _orders(self) -> dict[str, tuple[int, ...]]:
        """How the axes (outputs, inputs, ...) lie in the weights of products and convolutions."""
        found = {}
        for node in self.model.graph.graph.all_nodes():
            value = node.inputs[1] if len(node.inputs) > 1 else None
            if value is None or not (node.op_type == "Conv" or _is_product(node)):
                continue
            source, moved = _source(value)
            own = self.values.arrays.get(source)
            if own is not None and len(moved or own.shape) == own.ndim:
                read = tuple(range(own.ndim)) if node.op_type == "Conv" else (1, 0)
                found[source] = tuple(read[axis] for axis in moved) if moved and len(read) == own.ndim else read
        return found

    def _refuse(self, problems: Sequence[str], label: str = "") -> None:
        if problems:
            self.engine.keep(self.model, {})  # in the place of what may be on its way to a device
            where = f"{label}, for {self.model.path}" if label else self.model.path
            raise WeightError(f"{where}: nothing was updated: " + "; ".join(problems))

    def _kept(self, new: Mapping[Any, Any], allow_nan: bool) -> tuple[dict[str, np.ndarray], list[str]]:
        """Copies of what weights are to hold, which nobody else changes, and all that is wrong with it."""
        problems = {name: text for name, array in new.items() if (text := self._problem(name, array))}
        kept = self.engine.keep(self.model, {name: array for name, array in new.items() if name not in problems})
        for name in () if allow_nan else self.engine.not_numbers(self.model, kept):
            problems[name] = f"{name!r} holds values that are not numbers (allow_nan=True takes them)"
        return kept, list(problems.values())

    def _problem(self, name: Any, array: Any) -> str:
        if not isinstance(name, str):
            return f"{name!r} is no name"
        own = self.values.arrays.get(name)
        if own is None:
            near = difflib.get_close_matches(name, self.values.arrays, 1)
            if name in self.model.weight_shapes:
                return f"{name!r} is not among the weights that the model was loaded with as updatable"
            return f"there is no updatable weight {name!r}" + (f" (is {near[0]!r} meant?)" if near else "")
        if not isinstance(array, np.ndarray):
            return f"{name!r} must be a numpy array, not {type(array).__name__}"
        if array.dtype != own.dtype or array.shape != own.shape:
            return f"{name!r} must be {own.dtype} {list(own.shape)}, not {array.dtype} {list(array.shape)}"
        return ""


def _source(value: ir.Value) -> tuple[str, tuple[int, ...] | None]:
    """The name of the weight that a value is, whatever its dtype was made, and where its axes lie in the weight.

    None for the axes that were not moved.
    """
    node, order = value.producer(), None
    while node is not None and node.op_type in ("Cast", "Identity", "Transpose") and node.inputs[0] is not None:
        if node.op_type == "Transpose":
            perm = node.attributes.get_ints("perm", [])
            if order is not None or not perm:
                break  # of no weight that is known here
            order = tuple(perm.index(axis) for axis in range(len(perm)))
        value, node = node.inputs[0], node.inputs[0].producer()
    return str(value.name), order


def _is_product(node: ir.Node) -> bool:
    return node.op_type == "MatMul" or (node.op_type == "Gemm" and not node.attributes.get_int("transB", 0))


def _has_outgrown(array: np.ndarray, base: np.ndarray) -> bool:
    """Whether numbers have become too large for their dtype."""
    return not bool(np.isfinite(array).all()) and bool(np.isfinite(base).all())


def _from_anywhere(array: Any) -> Any:
    """An array of another library as one of numpy; what is on a GPU is copied. What cannot be one stays what it is."""
    if is_foreign(array):
        for take in (np.from_dlpack, _by_torch):
            with contextlib.suppress(AttributeError, BufferError, ImportError, RuntimeError, TypeError, ValueError):
                return take(settled(array))
    return array


def _by_torch(array: Any) -> np.ndarray:
    """What numpy does not take: memory of a GPU, and types that it has from elsewhere."""
    import torch

    from litehouse.engines.torch.values import as_array, fetched

    tensor = torch.from_dlpack(array)
    return fetched(tensor) if tensor.is_cuda else as_array(tensor)


def settle(model: Model, options: Options) -> tuple[Model, Options]:
    """The model and the options, with how its weights are updated decided.

    Raises:
        WeightError: A name or pattern fits no weight that can be updated, or they cannot be updated in that way.
    """
    if not options.updatable:
        return model, options
    _check_patterns(model, options.updatable)
    is_torch = options.engine == "torch" or (
        options.device_kind == "gpu" and options.engine == "auto" and not options.provider and not lack(options.device)
    )
    mode = options.updatable_mode or (IN_PLACE if is_torch else _suiting(model, options))
    if mode == SWAP:
        return model, replace(options, updatable_mode=SWAP)
    if options.engine == "openvino":
        raise EngineError(f"{model.path}: weights are not updated in place on the engine openvino; use 'swap'")
    others = sorted({name for name in model.updatable if model.weights[name].dtype.name not in GIVEN})
    if others:
        raise WeightError(
            f"{model.path}: {others[0]!r} is {model.weights[others[0]].dtype}, which no run can be given; use 'swap'"
        )
    opened = copy.copy(model)
    opened.live, opened.shelf = model.updatable, {}
    return opened, replace(options, updatable_mode=IN_PLACE, engine="torch" if is_torch else "onnxruntime")


def _check_patterns(model: Model, patterns: Sequence[str]) -> None:
    states = {state.name for state in model.states}
    for pattern in patterns:
        if any(name == pattern or fnmatchcase(name, pattern) for name in model.updatable):
            continue
        if pattern in states:
            raise WeightError(f"{model.path}: {pattern!r} is changed by the network itself; Session.reset sets it")
        if any(fnmatchcase(name, pattern) for name in model.weights) or pattern == "*":
            raise WeightError(
                f"{model.path}: no weight that fits {pattern!r} can be updated: they are no real numbers, or single, "
                "or the model was read without updatable="
            )
        near = difflib.get_close_matches(pattern, model.weights, 3)
        hint = f"is {' or '.join(map(repr, near))} meant?" if near else "`litehouse inspect --weights` lists them"
        hint = "updatable='all', without a list, means every weight" if pattern == "all" else hint
        raise WeightError(f"{model.path}: no weight fits {pattern!r}; {hint}")


def _suiting(model: Model, options: Options) -> str:
    """In place, unless that costs each run much, or is not possible."""
    graph, names = model.graph.graph, set(model.updatable)
    arrays = [model.weights[name] for name in names]
    if options.engine == "openvino" or any(array.dtype.name not in GIVEN or array.size == 1 for array in arrays):
        return SWAP
    ordered: set[str] = set()
    for node in graph.all_nodes():
        if node.op_type in ORDERING:
            ordered.update(_behind(value) for value in node.inputs if value is not None)
    return SWAP if ordered & names else IN_PLACE


def _behind(value: ir.Value) -> str:
    """The name of what was only laid out anew to become this value."""
    node = value.producer()
    while node is not None and node.op_type in LAYING_OUT and node.inputs[0] is not None:
        value, node = node.inputs[0], node.inputs[0].producer()
    return str(value.name)


def with_values(model: Model, arrays: Mapping[str, np.ndarray]) -> Model:
    """The model with other values in some of its weights. Nothing of the model itself changes."""
    import onnx_ir as ir

    from litehouse.engines.shell import clone

    made = copy.copy(model)
    made.origin, made.shelf = None, {}  # it is no longer what the file holds
    made.weights = Weights.of({**model.weights, **arrays})
    made.graph = clone(model.graph)
    for name, array in arrays.items():
        value = made.graph.graph.initializers.get(name)
        if value is not None:
            value.const_value = ir.Tensor(array, dtype=value.dtype, name=name)
    if model.translate is not None:
        translate = model.translate
        made.translate = lambda *given, **options: with_values(translate(*given, **options), arrays)
    return made


def _renew_locks() -> None:
    """In a process that was forked off: whoever held a lock is not there."""
    for live in list(_lives):
        live.updating = threading.Lock()


_lives: weakref.WeakSet[Live] = weakref.WeakSet()
os.register_at_fork(after_in_child=_renew_locks)
