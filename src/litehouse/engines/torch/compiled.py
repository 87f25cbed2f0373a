"""Makes kernels for a function on tensors, with torch's own compiler."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from litehouse.apart import unwarned
from litehouse.engines.torch.kernels_kept import Workplace
from litehouse.engines.torch.values import Tensor
from litehouse.errors import EngineError

Function = Callable[..., list[Tensor]]
# What was made before is found in its own folder, and nowhere else: not on a server, nor where all users can write.
TRUSTED = {"fx_graph_cache": True, "fx_graph_remote_cache": False, "cpp_cache_precompile_headers": False}
# Divisions whose last bit is right, and no product and sum in one: by names of torch's versions, which differ.
EXACT = ("eager_numerics.division_rounding", "emulate_divison_rounding", "emulate_precision_casts")
STEPPED = ("aten.ceil", "aten.floor", "aten.fmod", "aten.remainder", "aten.round", "aten.trunc")


class KernelsError(EngineError):
    """Kernels cannot be made."""


class Kernels:
    """The kernels that were made for a program; all of its runners use them."""

    def __init__(self, *, is_last: bool, workplace: Workplace | None = None) -> None:
        """Begin with none.

        Args:
            is_last: Let the compiler put the channels of images last.
            workplace: Where they are made; None leaves nothing of them.
        """
        self._is_last, self._workplace = is_last, workplace or Workplace()
        self._made: dict[Hashable, Function] = {}
        self._lock = threading.Lock()

    def find(self, key: Hashable, function: Function, examples: Sequence[Tensor]) -> Function:
        """The kernels for a key, which tells the function and the sizes; they are made where there are none.

        Raises:
            KernelsError: They cannot be made.
        """
        with self._lock:
            if key not in self._made:
                try:
                    self._made[key] = self._workplace.make(lambda: self._tried(function, examples))
                except Exception as error:
                    reason = str(error).strip().partition("\n")[0]
                    raise KernelsError(f"kernels cannot be made: {type(error).__name__}: {reason}") from error
            return self._made[key]

    def _tried(self, function: Function, examples: Sequence[Tensor]) -> Function:
        """New kernels, that have run once: some are only chosen and loaded then."""
        made = compiled(function, examples, is_last=self._is_last)
        made(*examples)
        _note()
        return made


_has_made = False


def has_made() -> bool:
    """Whether this process has made kernels before, and has the compiler loaded."""
    return _has_made


def _note() -> None:
    global _has_made
    _has_made = True


def compiled(function: Function, examples: Sequence[Tensor], *, is_last: bool) -> Function:
    """The function, in kernels for tensors of exactly these sizes, strides and dtypes.

    Weights are given to it like all else, so that it keeps none: their memory can be written to and shared. It is not
    captured; that is the caller's part.
    """
    from torch._guards import TracingContext, tracing
    from torch._inductor import compile as make
    from torch._subclasses import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    graph: Any = make_fx(function)(*examples)
    # Left to itself, the compiler puts channels last wherever there are convolutions, which 32 bits do not gain from.
    settings = {"triton.cudagraphs": False, "layout_optimization": is_last, **TRUSTED, **_exact(graph)}
    # It looks for what it made before only where sizes might be unknown, though here none is.
    sizes = FakeTensorMode(
        shape_env=ShapeEnv(assume_static_by_default=True), static_shapes=True, allow_non_fake_inputs=True
    )
    stand_ins = [sizes.from_tensor(example, static_shapes=True) for example in examples]
    with tracing(TracingContext(sizes)), unwarned("TensorFloat32 tensor cores"):  # the caller's precision decides
        made: Function = make(graph, stand_ins, options=settings)
    return made


def _exact(graph: Any) -> dict[str, bool]:
    """What lets kernels compute as torch's own do: where numbers become whole, the last bit can be a whole step."""
    from torch._inductor import config

    is_stepped = any(_makes_whole(node) for node in graph.graph.nodes)
    return dict.fromkeys(config.get_config_copy().keys() & set(EXACT), True) if is_stepped else {}


def _makes_whole(node: Any) -> bool:
    """Whether a node of a traced function makes whole numbers of floats."""
    is_cast = str(node.target).startswith("aten._to_copy")
    if not is_cast and not str(node.target).startswith(STEPPED):
        return False
    given, made = node.args[0].meta["val"].dtype, node.meta["val"].dtype
    return given.is_floating_point and not (is_cast and (made.is_floating_point or str(made) == "torch.bool"))
