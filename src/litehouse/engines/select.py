"""Chooses the engine for a model."""

from __future__ import annotations

from litehouse.engines.base import Engine
from litehouse.engines.onnxruntime import OnnxRuntimeEngine
from litehouse.engines.openvino import OpenVinoEngine
from litehouse.errors import EngineError
from litehouse.options import Options
from litehouse.parallel.affinity import cores_for

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (OnnxRuntimeEngine(), OpenVinoEngine())}


def select(options: Options) -> Engine:
    """The engine for these options: the one they name, else the first that offers what they ask for.

    Raises:
        EngineError: No engine can serve them; the text says what is missing.
    """
    needs = set()
    if options.inter_op > 1:
        needs.add("inter_op")
    if cores_for(options.affinity):
        needs.add("affinity")
    candidates = list(ENGINES.values()) if options.engine == "auto" else [ENGINES[options.engine]]
    if options.precision == "fp16":
        # Lower precision is allowed, not demanded: an engine that offers it comes first, the others stay at fp32.
        candidates.sort(key=lambda engine: engine.available(options) is not None or engine.lower_precision() is None)
    reasons = []
    for engine in candidates:
        missing = needs - engine.capabilities
        reason = f"it does not offer {', '.join(sorted(missing))}" if missing else engine.available(options)
        if reason is None:
            return engine
        reasons.append(f"{engine.name}: {reason}")
    raise EngineError(f"no engine can run on {options.device!r}. " + "; ".join(reasons))
