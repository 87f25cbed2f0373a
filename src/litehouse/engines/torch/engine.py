"""The torch engine: what `select` knows of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse.apart import apart
from litehouse.cores.budget import thread_budget
from litehouse.device import lack, place
from litehouse.engines.base import GivenWeights, Names
from litehouse.errors import EngineError
from litehouse.model import EXCHANGE_DOMAIN
from litehouse.options import Options

if TYPE_CHECKING:
    import onnx_ir as ir

    from litehouse.engines.torch.exchanges import TorchExchange
    from litehouse.engines.torch.lower import Lowered
    from litehouse.engines.torch.program import TorchProgram
    from litehouse.model import Model


# Where a model's shelf has the live weights, the arena of another process, the arenas of its programs, those of all
# models that it shares memory with, and the ops that were warned of.
STORE, SHARED, ARENAS, GROUP, WARNED = "torch store", "torch shared", "torch arenas", "torch group", "torch warned"
COMPILED, LAST = "compiled", "channels last"
# How long kernels take to make, on the careful side of what an H200 showed: 3 to 7 seconds for networks of 100 to 1000
# nodes, and 5 to 15 more for the first ones of a process.
NODE_SECONDS, FIRST_SECONDS = 0.03, 15.0


class TorchEngine(GivenWeights):
    """Runs models as torch functions: on a GPU, and, where it is asked for by name, on the CPU."""

    name = "torch"
    capabilities = frozenset({"arena"})

    def lower_precisions(self) -> tuple[str, ...]:
        """Half precision, on a GPU."""
        return ("fp16",)

    def available(self, options: Options) -> str | None:
        """Why this engine cannot serve the options; None when it can."""
        if options.device_kind == "cpu" and options.engine != self.name:
            return "on the CPU it is used only where it is asked for"
        if options.device_kind == "ascend":
            return "it does not run on 'ascend'"
        return lack(options.device)

    def forms(self, model: Model, options: Options, precision: str) -> tuple[str, ...]:
        """With kernels that are made for the network, and with channels last."""
        if place(options.device).type == "cpu" or (precision != "fp16" and options.precision == "fp16"):
            return ()
        last = f"{COMPILED} {LAST}" if _has_images(model) else COMPILED
        if options.tune == "full":
            return (COMPILED, LAST, last) if last != COMPILED else (COMPILED,)
        return (last if precision == "fp16" else COMPILED,)

    def making_seconds(self, model: Model, form: str) -> float:
        """About how long it takes to make the kernels of a form; 0 where it has none."""
        if COMPILED not in form:
            return 0.0
        from litehouse.engines.torch.compiled import has_made

        count = sum(1 for _ in model.graph.graph.all_nodes())
        return NODE_SECONDS * max(1, count) + (0.0 if has_made() else FIRST_SECONDS)

    @apart()
    def compile(
        self,
        model: Model,
        options: Options,
        shapes: Sequence[Sequence[int]] | None = None,
        precision: str = "fp32",
        *,
        is_plain: bool = False,
        parts: int = 1,
        form: str = "",
        exchanges: Sequence[TorchExchange] = (),
    ) -> TorchProgram:
        """Compile a model; `shapes` replaces the shapes of its inputs, `exchanges` are its ops between ranks."""
        from litehouse.engines.torch.arena import Arenas
        from litehouse.engines.torch.kernels_kept import workplace_of
        from litehouse.engines.torch.program import TorchProgram
        from litehouse.engines.torch.store import Store

        lowered, is_rewritten = _lowered(model, options, shapes, precision, parts, exchanges, is_plain=is_plain)
        is_fixed = shapes is not None or all(info.is_static for info in model.inputs)
        names, where = Names.of(model), place(options.device)
        if options.precision == "tf32" and precision == "fp32" and where.type == "cuda":
            precision = "tf32"
        with enough_memory(model.path, options.device):
            if model.live and STORE not in model.shelf:
                model.shelf[STORE] = Store({name: model.weights[name] for name in model.live}, where)
            store, shared = model.shelf.get(STORE), model.shelf.pop(SHARED, None)
            arenas, group = model.shelf.setdefault(ARENAS, Arenas()), model.shelf.get(GROUP, Arenas())
            how: dict[str, Any] = {"is_fixed": is_fixed, "form": form, "store": store, "shared": shared}
            how["workplace"] = workplace_of(model, options) if COMPILED in form else None
            how["warned"] = model.shelf.setdefault(WARNED, set())
            others = [*(arenas if shapes is not None else ()), *group]  # what the file's own sizes need is in one arena
            program = TorchProgram(lowered, names, where, precision, others=others, **how)
        arenas.add(program.arena)
        group.add(program.arena)
        program.is_rewritten = is_rewritten
        return program

    def keep(self, model: Model, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Copies of what live weights are to hold, on their way to the device."""
        return model.shelf[STORE].keep(arrays) if STORE in model.shelf else super().keep(model, arrays)

    def not_numbers(self, model: Model, kept: Mapping[str, np.ndarray]) -> list[str]:
        """Which copies have a value that is not a number."""
        return model.shelf[STORE].not_numbers(kept) if STORE in model.shelf else super().not_numbers(model, kept)

    def update(self, model: Model, arrays: Mapping[str, np.ndarray]) -> None:
        """Write live weights to the device, between two runs."""
        model.shelf[STORE].update(arrays)

    def restore(self, folder: Path, names: Names, options: Options, precision: str) -> TorchProgram:  # noqa: ARG002
        """No program of this engine is kept."""
        raise EngineError(f"{names.path}: the torch engine keeps no programs ({folder})")


def _lowered(
    model: Model,
    options: Options,
    shapes: Sequence[Sequence[int]] | None,
    precision: str,
    parts: int,
    exchanges: Sequence[TorchExchange],
    *,
    is_plain: bool,
) -> tuple[Lowered, bool]:
    """The steps of a model; see `TorchEngine.compile`. And whether its graph was made faster."""
    from litehouse.engines.shell import halved_ops, prepared
    from litehouse.engines.torch.lower import lower
    from litehouse.passes import halve, speed_up

    threads, is_rewritten = options.threads or thread_budget(), False
    try:
        whole = prepared(model, shapes, parts, halved_ops(options.op_precision))
        with _all_used(whole.graph):
            if not is_plain:
                is_rewritten = speed_up(whole, TorchEngine.name)
            if precision == "fp16":
                halve(whole)
        return lower(whole, model.path, model.live, exchanges, threads=threads), is_rewritten
    except EngineError:
        raise
    except Exception as error:
        raise EngineError(f"{model.path}: the graph cannot be made torch functions: {error}") from error


@contextlib.contextmanager
def enough_memory(path: str, device: str) -> Iterator[None]:
    """Say of a device that has no room for a model that it is that."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        reason = str(error).partition("\n")[0]
        raise EngineError(
            f"{path}: {device} has not enough memory for the model ({reason}); free some, or run it on another device"
        ) from error


@contextlib.contextmanager
def _all_used(graph: ir.Graph) -> Iterator[None]:
    """Keep exchanges that nothing uses from being removed: other ranks wait for them."""
    count = len(graph.outputs)
    loose = [node.outputs[0] for node in graph if node.domain == EXCHANGE_DOMAIN and node.outputs]
    graph.outputs.extend(value for value in loose if not value.uses() and not value.is_graph_output())
    try:
        yield
    finally:
        while len(graph.outputs) > count:
            graph.outputs.pop()


def _has_images(model: Model) -> bool:
    """Whether there are convolutions over two axes or more."""
    found = [node.inputs[1] for node in model.graph.graph if node.op_type == "Conv" and len(node.inputs) > 1]
    return any(value is not None and value.shape is not None and len(value.shape) > 3 for value in found)
