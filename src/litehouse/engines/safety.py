"""Which engines may be used here: each is tried in a child process before this one trusts it.

A verdict holds for an engine, what it computes in, their versions and this CPU. It is kept in the cache.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from litehouse._version import __version__
from litehouse.cache import Cache, open_cache
from litehouse.errors import EngineError
from litehouse.machine import cpu_fingerprint, cpu_flags

if TYPE_CHECKING:
    import onnx_ir as ir

    from litehouse.engines.trials.children import Outcome
    from litehouse.model import Model

PRECISIONS = {"onnxruntime": ("fp32", "int8"), "openvino": ("fp32", "int8", "fp16", "bf16")}
"""What each engine can compute in, if the machine can."""
REFERENCE = "onnxruntime"
REHEARSAL = "LITEHOUSE_FAIL_PROBES"
TRIAL_FILES = ("openvino.py", "trials/__main__.py", "trials/cases.py", "trials/children.py")
PACKAGES = {
    "onnxruntime": ("onnxruntime", "onnxruntime-gpu", "onnxruntime-cann"),
    "openvino": ("openvino",),
    "torch": ("torch",),
}

CAP = "ONEDNN_MAX_CPU_ISA"
# The instruction sets that OpenVINO can be held to, best first, and the features that tell of a CPU with a better one.
CAPS = {
    "AVX512_CORE_FP16": {"amx_tile"},
    "AVX512_CORE": {"avx512_vnni", "avx512_bf16", "avx512_fp16"},
    "AVX2": {"avx512f", "avx_vnni"},
    "AVX": {"avx2"},
    "SSE41": {"avx"},
}
LADDER = list(CAPS)
OWN_CAPS = (CAP, "DNNL_MAX_CPU_ISA")
# OpenVINO reads the variable when this is loaded, and never again.
CAPPED_LIBRARY = "libopenvino_intel_cpu_plugin"
MAPS = Path("/proc/self/maps")

# How long a verdict holds that another trial might not confirm: the machine may have been busy, or short of something.
LATE_SECONDS = 86400.0
FOREVER = float("inf")
# How the names of ops on quantised numbers begin: those of ONNX, and those of ONNX Runtime.
QUANTISED = (
    *("QLinear", "QuantizeLinear", "DequantizeLinear", "DynamicQuantize", "ConvInteger", "MatMulInteger"),
    *("MatMulNBits", "QAttention", "QGemm"),
)

SMALL_BITS, MIN_RANK = 8, 2  # of weights for which engines have kernels of their own

_lock = threading.Lock()
_known: dict[tuple[str, str], Verdict] = {}
_applied: dict[str, str] = {}  # variables that this process has set
_replaced: dict[str, str | None] = {}  # what they were before


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an engine may compute in a precision here.

    Attributes:
        engine: The engine's name.
        precision: "fp32", "int8" (quantised networks), "fp16" or "bf16".
        safe: Whether it may be used.
        reason: Why not, or why only with the settings of `environment`, or what it cannot run; empty where all is well.
        environment: Variables that must be set before the engine's library is loaded.
        is_final: Whether another process, on another day, would find the same.
    """

    engine: str
    precision: str
    safe: bool
    reason: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    is_final: bool = field(default=True, compare=False)


def needs(model: Model) -> set[str]:
    """The precisions that a model computes in: "fp32", and "int8" where it is quantised.

    Small weights alone can make it so, in whatever way the graph computes floats of them: engines know the patterns.
    """
    graph = model.graph.graph
    is_quantised = any(node.op_type.startswith(QUANTISED) for node in graph.all_nodes())
    return {"fp32", "int8"} if is_quantised or any(map(_is_small, _weights(graph))) else {"fp32"}


def _weights(graph: ir.Graph) -> Iterator[ir.TensorProtocol]:
    """The weights of a graph and its subgraphs."""
    for part in (graph, *graph.subgraphs()):
        yield from (value.const_value for value in part.initializers.values() if value.const_value is not None)
    for node in graph.all_nodes():
        if node.op_type == "Constant" and "value" in node.attributes:
            yield node.attributes["value"].as_tensor()


def _is_small(weight: ir.TensorProtocol) -> bool:
    return weight.dtype.is_integer() and weight.dtype.bitwidth <= SMALL_BITS and len(weight.shape) >= MIN_RANK


def refusal(engine: str, precisions: Iterable[str], *, cache: bool | Path = True) -> str | None:
    """Why an engine must not be used here for these precisions, in words; None when it may, and is set up for it.

    Call it before the engine's library is imported: it sets variables that the library reads then.
    """
    for verdict in verdicts([(engine, precision) for precision in sorted(precisions)], cache=cache):
        held = apply(verdict)
        if not held.safe:
            return f"it is not safe here in {held.precision}: {held.reason}; `litehouse doctor` tells more"
    return None


def may_change(engine: str, precisions: Iterable[str], *, cache: bool | Path = True) -> bool:
    """Whether an engine that is refused may be used in another process, or on another day."""
    held = [apply(made) for made in verdicts([(engine, precision) for precision in precisions], cache=cache)]
    return any(not made.safe and not made.is_final for made in held)


def verdicts(pairs: Sequence[tuple[str, str]], *, cache: bool | Path = True, again: bool = False) -> list[Verdict]:
    """The verdicts on pairs of engine and precision. What is not known yet is tried, side by side.

    Args:
        pairs: Engines and what they are to compute in.
        cache: Where verdicts are kept, as in `Options.cache`. With False none is kept, but the user's are looked up:
            they tell of the machine, and nothing of a model.
        again: Try all of them anew.

    Raises:
        EngineError: `LITEHOUSE_FAIL_PROBES` names something that does not exist.
    """
    rehearsed = _rehearsed()
    with _lock:
        asked = [pair for pair in dict.fromkeys(pairs) if pair not in rehearsed and (again or pair not in _known)]
        if asked:
            _learn(asked, cache, again)
        failed = f"rehearsed failure ({REHEARSAL})"
        return [Verdict(*pair, False, failed) if pair in rehearsed else _known[pair] for pair in pairs]


def _learn(pairs: Sequence[tuple[str, str]], cache: bool | Path, again: bool) -> None:
    """Put verdicts among the known ones: those that take no trial, those in the cache, and the rest by trial."""
    store, unknown = open_cache(cache or True), []
    for pair in pairs:
        found = _prejudged(*pair) or (None if again else _recorded(store, *pair))
        if found is None:
            unknown.append(pair)
        else:
            _known[pair] = found
    for made, seconds in _tried(unknown):
        _known[made.engine, made.precision] = replace(made, is_final=seconds == FOREVER)
        if store is not None and cache and seconds:
            _record(store, made, seconds)


def apply(verdict: Verdict) -> Verdict:
    """Put a verdict's settings in force, and return the verdict as it holds in this process.

    Where the library was loaded before without them, it is not safe in this process.
    """
    with _lock:
        missing = {name: value for name, value in verdict.environment.items() if not _in_force(name, value)}
        if not verdict.safe or not missing:
            return verdict
        if _is_loaded(verdict.engine):
            settings = " ".join(f"{name}={value}" for name, value in missing.items())
            reason = f"{verdict.reason}; with {settings} it is safe, but it was loaded in this process without that"
            reason = f"{reason}: set it before the program starts"
            return replace(verdict, safe=False, reason=reason, is_final=False)
        cpu_fingerprint()  # is that of the process as it was started
        for name, value in missing.items():
            _replaced.setdefault(name, os.environ.get(name))
            _applied[name] = os.environ[name] = value
        return verdict


def _renew_lock() -> None:
    """Let a process that was forked off go on, even where another thread held the lock: that thread is not in it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@functools.cache
def engine_version(engine: str) -> str | None:
    """The version of an engine's package, which is not imported for it; None where it is not installed."""
    from importlib import metadata

    for name in PACKAGES[engine]:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    if others := metadata.packages_distributions().get(engine):
        return f"{others[0]} {metadata.version(others[0])}"
    return _bare_version(engine)


def _bare_version(engine: str) -> str | None:
    """What tells a copy of an engine that came without its package's notes, as in frozen programs, from others."""
    from importlib.util import find_spec

    spec = find_spec(engine)
    if spec is None or spec.origin is None:
        return None
    try:
        return f"{engine} (a copy of {int(os.stat(spec.origin).st_mtime)})"
    except OSError:
        return f"{engine} (a copy)"


def _rehearsed() -> set[tuple[str, str]]:
    """What `LITEHOUSE_FAIL_PROBES` lets fail."""
    found: set[tuple[str, str]] = set()
    everything = {(engine, precision) for engine, precisions in PRECISIONS.items() for precision in precisions}
    for word in os.environ.get(REHEARSAL, "").replace(" ", "").split(","):
        named = {pair for pair in everything if word in (pair[0], ":".join(pair))}
        if word == "all":
            named = {pair for pair in everything if pair[0] != REFERENCE}
        if word and not named:
            raise EngineError(
                f"{REHEARSAL} names {word!r}; it takes all, or engines and precisions such as openvino or openvino:int8"
            )
        found |= named
    return found


def _prejudged(engine: str, precision: str) -> Verdict | None:
    """A verdict that takes no trial."""
    if precision not in PRECISIONS[engine]:
        return Verdict(engine, precision, False, f"the engine does not compute in {precision}")
    if engine_version(engine) is None:
        return Verdict(engine, precision, False, "the engine is not installed; reinstall litehouse")
    return None


# Trials ---------------------------------------------------------------------------------------------------------------


def _tried(pairs: Sequence[tuple[str, str]]) -> list[tuple[Verdict, float]]:
    """The verdicts by trial, and for how many seconds each holds.

    What breaks is tried again with one safe setting after the other, until one passes.
    """
    from litehouse.engines.trials.children import run_trials

    ends: dict[tuple[str, str], list[Outcome]] = {pair: [] for pair in pairs}
    made: dict[tuple[str, str], tuple[Verdict, float]] = {}
    settings: dict[tuple[str, str], list[dict[str, str]]] = {pair: [{}, *_safe_settings(pair[0])] for pair in pairs}
    while open_pairs := [pair for pair in pairs if pair not in made]:
        turns = [settings[pair].pop(0) for pair in open_pairs]
        outcomes = run_trials([(*pair, _started_with() | turn) for pair, turn in zip(open_pairs, turns, strict=True)])
        for pair, turn, outcome in zip(open_pairs, turns, outcomes, strict=True):
            ends[pair].append(outcome)
            if outcome.kind not in ("broken", "failed") or not settings[pair]:
                made[pair] = _judged(pair, turn, ends[pair])
    return [made[pair] for pair in pairs]


def _judged(pair: tuple[str, str], environment: dict[str, str], outcomes: Sequence[Outcome]) -> tuple[Verdict, float]:
    """The verdict from one trial after the other, the first without any setting and the last with this one."""
    first, last = outcomes[0], outcomes[-1]
    if last.kind == "unclear" or (last.kind == "late" and pair[0] == REFERENCE):
        # Nothing replaces the reference, and nothing speaks against it.
        is_reference = pair[0] == REFERENCE
        return Verdict(*pair, is_reference, f"it could not be tried: {last.words}" if is_reference else last.words), 0.0
    seconds = LATE_SECONDS if any(_may_change(outcome) for outcome in outcomes) else FOREVER
    if last.kind == "passed":
        words = [first.words, last.words] if environment else [last.words]
        return Verdict(*pair, True, ", ".join(filter(None, words)), environment), seconds
    return Verdict(*pair, False, last.words if last.kind == "late" else first.words), seconds


def _may_change(outcome: Outcome) -> bool:
    """Whether the same trial may end otherwise on another day."""
    return outcome.kind in ("failed", "late") or (outcome.kind == "passed" and bool(outcome.words))


def _safe_settings(engine: str) -> list[dict[str, str]]:
    """The settings under which an engine may work where its own choice does not: lower instruction sets."""
    if engine != "openvino":
        return []
    lower, is_lower = [], False
    for name, signs in CAPS.items():
        is_lower = is_lower or bool(signs & cpu_flags())
        if is_lower:
            lower.append(name)
    variables = _started_with()
    own = next((variables[name].upper() for name in OWN_CAPS if variables.get(name)), "")
    if own in CAPS:
        lower = [name for name in lower if LADDER.index(name) > LADDER.index(own)]
    elif own:
        lower = lower[-1:]  # one that is not on the ladder; the lowest is never higher
    return [{CAP: name} for name in lower]


def _started_with() -> dict[str, str]:
    """The variables without the settings that this process has put in force: verdicts are for any process."""
    variables = {**os.environ, **_replaced}
    return {name: value for name, value in variables.items() if value is not None}


def _in_force(name: str, value: str) -> bool:
    """Whether this process put a setting in force that is as safe, or safer."""
    return name in _applied and LADDER.index(_applied[name]) >= LADDER.index(value)


def _is_loaded(engine: str) -> bool:
    """Whether the library that reads the settings is in this process."""
    try:
        return CAPPED_LIBRARY in MAPS.read_text(errors="replace")
    except OSError:
        return engine in sys.modules


# Records --------------------------------------------------------------------------------------------------------------


def _record(store: Cache, made: Verdict, seconds: float) -> None:
    until = None if seconds == FOREVER else time.time() + seconds
    value = {"safe": made.safe, "reason": made.reason, "environment": made.environment, "until": until}
    store.put_record("safety", _key(made.engine, made.precision), value)


def _recorded(store: Cache | None, engine: str, precision: str) -> Verdict | None:
    """The verdict in the cache; None where there is none that still holds."""
    noted: dict[str, Any] | None = None if store is None else store.record("safety", _key(engine, precision))
    try:
        if noted is None or (noted["until"] is not None and time.time() >= noted["until"]):
            return None
        environment = dict(noted["environment"])
        if not environment.keys() <= {CAP} or not set(environment.values()) <= CAPS.keys():
            return None
        is_final = noted["until"] is None
        return Verdict(engine, precision, bool(noted["safe"]), str(noted["reason"]), environment, is_final)
    except (KeyError, TypeError, ValueError):
        return None


def _key(engine: str, precision: str) -> str:
    versions = (engine_version(engine), __version__, _trial_identity(), sys.version)
    about = (engine, precision, *versions, cpu_fingerprint())
    return hashlib.sha256(repr(about).encode()).hexdigest()


@functools.cache
def _trial_identity() -> str:
    """A digest of the trials: a verdict from others is none. Without their sources, the version must tell."""
    import pkgutil

    try:
        sources = [pkgutil.get_data("litehouse.engines", name) or b"" for name in TRIAL_FILES]
    except OSError:
        return ""
    return hashlib.sha256(b"".join(sources)).hexdigest()
