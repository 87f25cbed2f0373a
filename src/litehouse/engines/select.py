"""Chooses the engine for a model."""

from __future__ import annotations

from litehouse.engines.base import Engine, Program
from litehouse.engines.onnxruntime import OnnxRuntimeEngine
from litehouse.engines.openvino import OpenVinoEngine
from litehouse.errors import EngineError
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.parallel.affinity import cores_for

# Dtypes that numpy itself knows (text is "object"): engines hand out others as raw bits.
BOUNDARY = {"object", "bool", "float16", "float32", "float64"}
BOUNDARY |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
ENGINES: dict[str, Engine] = {engine.name: engine for engine in (OnnxRuntimeEngine(), OpenVinoEngine())}


def select(options: Options) -> list[Engine]:
    """The engines that can serve these options, best first: the one they name, else all that offer what they ask for.

    Raises:
        EngineError: No engine can serve them; the text says what is missing.
    """
    needs = set()
    if options.inter_op > 1:
        needs.add("inter_op")
    if cores_for(options.affinity):
        needs.add("affinity")
    candidates = list(ENGINES.values()) if options.engine == "auto" else [ENGINES[options.engine]]
    found, reasons = [], []
    for engine in candidates:
        missing = needs - engine.capabilities
        reason = f"it does not offer {', '.join(sorted(missing))}" if missing else engine.available(options)
        if reason is None:
            found.append(engine)
        else:
            reasons.append(f"{engine.name}: {reason}")
    if not found:
        raise EngineError(f"no engine can run on {options.device!r}. " + "; ".join(reasons))
    if options.precision == "fp16":
        # Lower precision is allowed, not demanded: an engine that has it comes first, the others stay at fp32.
        found.sort(key=lambda engine: engine.lower_precision() is None)
    return found


def compile_first(model: Model, options: Options) -> tuple[Engine, Program]:
    """The first engine that can build the model, and the program that it built.

    Raises:
        EngineError: None can; the text is that of the best one.
    """
    states = [TensorInfo(item.name, model.weights[item.name].dtype, ()) for item in model.states]
    for info in (*model.inputs, *model.outputs, *states):
        if info.dtype.name not in BOUNDARY:
            raise EngineError(
                f"{model.path}: {info.name!r} is {info.dtype}, which is not supported for inputs and outputs; "
                "add a Cast to float32 there"
            )
    if exchanges := model.exchanges:
        op, node = exchanges[0]
        raise EngineError(
            f"{model.path}: the model is one part of a job over several ranks: {len(exchanges)} of its ops, as "
            f"{op} (node {node}), exchange data with other processes, which is not supported yet"
        )
    failures: list[EngineError] = []
    for engine in select(options):
        try:
            return engine, engine.compile(model, options)
        except EngineError as error:
            failures.append(error)
    raise failures[0]
