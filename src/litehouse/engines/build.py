"""Makes a model ready to run: from the cache where it was built before, else by `select`."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

from litehouse.cache import KEEP_SECONDS, Cache, Entry, open_cache
from litehouse.cores.budget import give_back_memory, spare_memory, thread_budget
from litehouse.device import device_fingerprint, give_back
from litehouse.engines import safety
from litehouse.engines.base import Names, Program
from litehouse.engines.choice import Choice
from litehouse.engines.parts import compile_parts, restore
from litehouse.engines.progress import Progress, shown
from litehouse.engines.samples import agree, find_samples
from litehouse.engines.select import ENGINES, Selected, select
from litehouse.errors import EngineError
from litehouse.identity import own_identity
from litehouse.machine import cpu_fingerprint
from litehouse.model import Model, TensorInfo
from litehouse.options import Options

# Dtypes that numpy itself knows (text is "object"): engines hand out others as raw bits.
BOUNDARY = {"object", "bool", "float16", "float32", "float64"}
BOUNDARY |= {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


KEPT_ON = ("cpu", "gpu")
CHOICES = "choices"  # the kind of record
RANKED = "ranked"  # the same, of the segments of one part of a job
WAIT_SECONDS = 120.0  # how long a start waits for another process that builds the same
RETRY_SECONDS = 86400.0  # how long what could not be kept is not tried again: that takes as long as the start
MAX_LIVE = 1 << 26  # bytes of live weights that a child process is sent, to check what was saved
ROOM = 3  # how many times the weights must fit into the memory that is left: saving makes copies


class _DiffersError(Exception):
    """A program that was saved does not compute what it did before."""


def build(model: Model, options: Options) -> Selected:
    """The model, compiled by the engine that suits it best.

    Raises:
        EngineError: No engine can run it here.
    """
    cache = open_cache(options.cache) if options.device_kind in KEPT_ON else None
    identity = model.origin.identify(cache, model.files) if cache and model.origin and not model.is_secret else None
    key = _key(identity, model, options) if identity is not None else None
    if cache is None or key is None:
        _check(model)
        with shown(model.path) as progress:
            built = _ranked(model, options, progress) or select(model, options, progress=progress)
        _give_back(model, options)
        return built
    if (found := _find(cache, key, model, options)) is not None:
        return found
    _check(model)
    with shown(model.path) as progress:
        built_with_others = _ranked(model, options, progress, cache, key)
    if built_with_others is not None:
        _give_back(model, options)
        return built_with_others
    with shown(model.path) as progress, cache.turn(key, WAIT_SECONDS, progress.step) as has_waited:
        found = _find(cache, key, model, options) if has_waited else None
        built = found or _built(cache, key, model, options, progress)
    _give_back(model, options)
    return built


def _give_back(model: Model, options: Options) -> None:
    """Let others have the memory of what was only tried."""
    give_back_memory()
    if options.device_kind == "gpu" and not model.exchanges:  # freeing it waits for the GPU, and that for other ranks
        give_back(options.device)


def _ranked(
    model: Model, options: Options, progress: Progress, cache: Cache | None = None, key: str = ""
) -> Selected | None:
    """The model with the other ranks of its job; None where it is a whole one. What was chosen for it is kept."""
    if not model.exchanges:
        return None
    from litehouse.distributed.ranked import Choices, build_ranked

    _check_ranked(model, options)
    choices: Choices = {}
    with contextlib.suppress(KeyError, TypeError, AttributeError):
        noted = (cache.record(RANKED, key) if cache is not None else None) or {}
        choices |= {kind: Choice.of(facts) for kind, facts in noted["choices"].items()}
        choices = {kind: choice for kind, choice in choices.items() if _holds(choice)}
    known = dict(choices)
    built = build_ranked(model, options, choices, progress)
    if cache is not None and model.origin is not None and choices != known:
        facts = {kind: choice.facts() for kind, choice in choices.items()}
        cache.put_record(RANKED, key, {"path": model.origin.file, "choices": facts})
    return built


def _check_ranked(model: Model, options: Options) -> None:
    """Raise where an option makes no sense for one part of a job."""
    if model.updatable and not model.live:
        raise EngineError(
            f"{model.path}: the model is one part of a job over several ranks, which would have to swap it at one "
            "moment; use updatable_mode='in_place'"
        )
    if options.device_kind == "ascend":
        raise EngineError(f"{model.path}: a part of a job runs on the CPU or on a GPU, not on {options.device!r}")
    if options.device_kind == "gpu" and options.engine not in ("auto", "torch"):
        raise EngineError(f"{model.path}: on a GPU, torch runs the parts of a job, not {options.engine!r}")


def rebuild(model: Model, options: Options, choice: Choice) -> Selected:
    """The model, compiled as an earlier choice says; it computes what another model did, with other weights.

    Raises:
        EngineError: The engine cannot build it.
    """
    engine, precision, is_plain, parts = ENGINES[choice], choice.precision, choice.is_plain, choice.parts
    if parts > 1:
        program = compile_parts(engine, model, options, precision, parts, is_plain=is_plain)
    else:
        program = engine.compile(model, options, precision=precision, is_plain=is_plain, form=choice.form)
    gc.collect()  # graphs are full of cycles, and that of the update before holds its weights
    give_back_memory()
    return Selected(engine, program, choice, 0.0)


def _built(cache: Cache, key: str, model: Model, options: Options, progress: Progress) -> Selected:
    """The model, compiled, and kept where that took long."""
    assert model.origin is not None  # else it has no key
    noted = _noted(cache, key)
    built = select(model, options, noted, progress)
    if built.choice.figures and built.choice is not noted:
        cache.put_record(CHOICES, key, {"path": model.origin.file, "choice": built.choice.facts()})
    is_slow = model.origin.seconds + built.seconds > KEEP_SECONDS
    is_kept = options.device_kind == "cpu" and "keeps" in built.engine.capabilities
    if not is_kept or not is_slow or not _can_keep(cache, key, model):
        return built
    progress.step("keeping it for the next start")
    return _keep(cache, key, model, options, built)


def _noted(cache: Cache, key: str) -> Choice | None:
    """What an earlier race found, if it still holds."""
    try:
        choice = Choice.of((cache.record(CHOICES, key) or {})["choice"])
    except (KeyError, TypeError):
        return None
    return choice if _holds(choice) else None


def _holds(choice: Choice) -> bool:
    return choice.until is None or time.time() < choice.until


def _key(identity: str, model: Model, options: Options) -> str | None:
    """What decides how a model is built; None where that is not known."""
    settled = replace(options, threads=options.threads or thread_budget(), cache=False)
    device = ""
    if options.device_kind != "cpu":
        fingerprint = device_fingerprint(options.device)
        if fingerprint is None:
            return None
        device, settled = fingerprint, replace(settled, device=options.device_kind)  # whichever of the same kind it is
    versions = [safety.engine_version(name) for name in ENGINES]
    shapes = [info.shape for info in model.inputs]
    rehearsed = os.environ.get(safety.REHEARSAL, "")  # what is chosen then is not for other starts
    parts = (identity, own_identity(), versions, cpu_fingerprint(), device, rehearsed, settled, shapes)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _find(cache: Cache, key: str, model: Model, options: Options) -> Selected | None:
    if options.device_kind != "cpu":  # there, only what was chosen is kept
        return None
    entry = cache.find(key)
    if entry is None:
        return None
    try:
        return _restored(entry, model, options)
    except (EngineError, KeyError, TypeError, ValueError):
        return None  # of a kind that this version does not know, or another process has just replaced it


def _restored(entry: Entry, model: Model, options: Options) -> Selected | None:
    facts = entry.facts
    choice = Choice.of(facts["choice"])
    engine = ENGINES[choice]
    if not _holds(choice):
        return None
    if safety.refusal(engine.name, {*facts["needs"], choice.precision}, cache=options.cache) is not None:
        return None
    names = Names(model.path, facts["fed"], facts["given"], len(model.live))
    return Selected(engine, restore(engine, entry.folder, names, options, choice.precision, choice.parts), choice, 0.0)


def _can_keep(cache: Cache, key: str, model: Model) -> bool:
    """Whether it is worth the attempt: there is room, a file can hold what it gives, and no attempt failed lately."""
    nbytes = model.weights.nbytes
    tried = cache.record("unkept", key)
    return (
        all(info.dtype.kind in "fiub" for info in model.outputs)
        and (tried is None or time.time() > tried.get("until", 0.0))
        and spare_memory() > ROOM * nbytes
        and cache.has_room_for(nbytes)
        and sum(model.weights[name].nbytes for name in model.live) <= MAX_LIVE
    )


def _keep(cache: Cache, key: str, model: Model, options: Options, built: Selected) -> Selected:
    """Store what was built, and use it as the next process will: from there."""
    from litehouse.engines.trials.restored import outputs_of  # the next process does not need it

    assert model.origin is not None  # else it has no key
    names, engine, choice = Names.of(model), built.engine, built.choice
    samples = find_samples(model, built.program.bind())
    if samples is None:
        return built
    facts = {
        "what": "program",
        "path": model.origin.file or model.path,
        "choice": choice.facts(),
        "needs": sorted(safety.needs(model)),
        "fed": names.fed,
        "given": names.given,
    }
    restored: list[Program] = []

    def write(folder: Path) -> None:
        built.program.save(folder)
        found = outputs_of(folder, choice, names, options, samples)
        if found is None or not agree(built.program.bind().run(samples), found):
            raise _DiffersError
        restored.append(restore(engine, folder, names, options, choice.precision, choice.parts))

    try:
        entry = cache.store(key, facts, write)
    except (EngineError, OSError, ValueError, _DiffersError):
        cache.put_record("unkept", key, {"path": model.origin.file, "until": time.time() + RETRY_SECONDS})
        return built
    return replace(built, program=restored[0]) if entry is not None and restored else built


def _check(model: Model) -> None:
    states = [TensorInfo(item.name, model.weights[item.name].dtype, ()) for item in model.states]
    for info in (*model.inputs, *model.outputs, *states):
        if info.dtype.name not in BOUNDARY:
            raise EngineError(
                f"{model.path}: {info.name!r} is {info.dtype}, which is not supported for inputs and outputs; "
                "add a Cast to float32 there"
            )
