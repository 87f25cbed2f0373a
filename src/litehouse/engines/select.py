"""Chooses the engine for a model: of those that are safe here, the one that a race finds faster."""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from litehouse.cores.affinity import cores_for
from litehouse.cores.budget import spare_memory, thread_budget
from litehouse.device import device_count, free_memory, lack, split
from litehouse.engines import safety
from litehouse.engines.base import Engine, Program
from litehouse.engines.build_time import BuildTime
from litehouse.engines.choice import Choice, Figure
from litehouse.engines.crowding import Crowding
from litehouse.engines.explain import explain
from litehouse.engines.onnxruntime import OnnxRuntimeEngine
from litehouse.engines.openvino import OpenVinoEngine
from litehouse.engines.parts import compile_parts, counts
from litehouse.engines.progress import SILENT, Progress
from litehouse.engines.race import MIN_ROUNDS, Crowd, Timed, brief, lead, race
from litehouse.engines.samples import agree, find_samples, has_loop
from litehouse.engines.torch.engine import TorchEngine
from litehouse.errors import EngineError
from litehouse.model import Model
from litehouse.options import Options
from litehouse.signature import is_static

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (OnnxRuntimeEngine(), OpenVinoEngine(), TorchEngine())}
# Which of them may serve a device where none is asked for, the most trusted first.
USUAL = {"cpu": ("onnxruntime", "openvino"), "gpu": ("torch", "onnxruntime"), "ascend": ("onnxruntime",)}

RACE_SECONDS = {"fast": 1.5, "full": 6.0}
MIN_LEAD = 1.03  # below, the first candidate stays: it loads faster, and processes share its weights
FEW_LEAD = 1.1  # the same, after less rounds than a race should have
AGAIN_SECONDS = 86400.0  # how long a choice holds that something was in the way of
ROOM = 4  # how many times the weights must fit into the memory that is left, to build one more program for the race
DEVICE_ROOM = 2  # the same for the memory of a GPU: the weights, and what is between the ops
MIN_PARTED = 1.0  # milliseconds of a run; below, calling the threads costs more than they gain
LARGE_BYTES = 1 << 25  # of weights, which take some tenths of a second to compile
TINY_SECONDS = 100e-6  # what OpenVINO's call alone takes is a large part of such a run
RECURRENT = {"LSTM", "GRU", "RNN", "Loop", "Scan"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """An engine, what it is to compute in, whether it gets the graph as the file has it, parts of a batch, a form."""

    engine: Engine
    precision: str
    is_plain: bool = False
    parts: int = 1
    form: str = ""

    def __str__(self) -> str:
        """Its name, with what is not usual."""
        text = self.engine.name if self.precision == "fp32" else f"{self.engine.name} in {self.precision}"
        text += f", {self.form}" if self.form else ""
        text += " with the plain graph" if self.is_plain and self.precision == "fp32" else ""
        return text if self.parts == 1 else f"{text} on {self.parts} parts of the batch"


@dataclass(frozen=True, slots=True)
class Selected:
    """A model that an engine has compiled.

    Attributes:
        engine: The engine.
        program: What it made.
        choice: Why it was that one.
        seconds: How long it took to compile.
    """

    engine: Engine
    program: Program
    choice: Choice
    seconds: float


def candidates(
    options: Options, needs: set[str], refused: list[str], doubts: list[str], progress: Progress = SILENT
) -> Iterator[Candidate]:
    """What can serve these options, the most trusted first. An engine is tried when its turn comes, not before.

    Args:
        options: What the caller wants.
        needs: What the model computes in, as `safety.needs` tells.
        refused: Takes the engines that cannot serve, with the reasons.
        doubts: Takes those of the reasons that may be gone at the next start.
        progress: Told what is done.
    """
    wanted = _wanted(options)
    usable = []
    is_halved = options.precision == "fp16" and "float32" not in options.op_precision.values()
    for engine in [ENGINES[name] for name in _names(options)]:
        progress.step(f"trying {engine.name}")
        missing = wanted - engine.capabilities
        reason = f"it does not offer {', '.join(sorted(missing))}" if missing else _refusal(engine, options, needs)
        if reason is None:
            usable.append(engine)
            yield Candidate(engine, "fp32")
        else:
            refused.append(f"{engine.name}: {reason}")
            if (
                not missing
                and _is_tried(engine, options)
                and safety.may_change(engine.name, needs, cache=options.cache)
            ):
                doubts.append(f"{engine.name} was not used this time, since {reason}")
    if is_halved:
        for engine in usable:
            yield from _lower(engine, options)


def _wanted(options: Options) -> set[str]:
    """What an engine must offer: how cores are used matters on the CPU alone."""
    if options.device_kind != "cpu":
        return set()
    wanted = {"inter_op": options.inter_op > 1, "affinity": bool(cores_for(options.affinity))}
    return {name for name, is_wanted in wanted.items() if is_wanted}


def _names(options: Options) -> Sequence[str]:
    """The engines that may serve."""
    if options.provider:
        return ("onnxruntime",)
    return USUAL[options.device_kind] if options.engine == "auto" else (options.engine,)


def _refusal(engine: Engine, options: Options, needs: set[str]) -> str | None:
    # Safety first: the library reads its safe settings when it is imported.
    unsafe = safety.refusal(engine.name, needs, cache=options.cache) if _is_tried(engine, options) else None
    return unsafe or engine.available(options)


def _is_tried(engine: Engine, options: Options) -> bool:
    """Whether an engine is tried in a child process first: the GPU's own are not, as a trial takes seconds there."""
    return options.device_kind == "cpu" and engine.name in safety.PRECISIONS


def _lower(engine: Engine, options: Options) -> list[Candidate]:
    """An engine in the 16-bit precisions that are safe here; on the CPU with the plain graph: the passes are for 32."""
    if not _is_tried(engine, options):
        return [Candidate(engine, name) for name in engine.lower_precisions()]
    precisions = engine.lower_precisions()
    safe = [name for name in precisions if safety.refusal(engine.name, {name}, cache=options.cache) is None]
    return [Candidate(engine, name, is_plain=True) for name in safe]


def select(model: Model, options: Options, known: Choice | None = None, progress: Progress = SILENT) -> Selected:
    """The engine for a model, with the model compiled.

    Args:
        model: The model.
        options: What the caller wants.
        known: What an earlier race found.
        progress: Told what is done.

    Raises:
        EngineError: None can build it; the text is that of the most trusted one, or says what is missing.
    """
    needs, refused, doubts, failures = safety.needs(model), list[str](), list[str](), list[EngineError]()
    if known is not None:
        again = candidates(replace(options, engine=str(known)), needs, refused, doubts, progress)
        if (winner := _noted(known, again, options)) is not None:
            with contextlib.suppress(EngineError):  # then the others have their chance
                return replace(_again(winner, model, options, progress).selected(""), choice=known)
    found = candidates(options, needs, refused, doubts, progress)
    for candidate in found:
        try:
            first = _compiled(candidate, model, options, progress)
        except EngineError as error:
            failures.append(error)
            continue
        return _doubted(_challenge(model, options, first, found, doubts, progress), doubts)
    if failures:
        raise failures[0]
    raise EngineError(f"no engine can run on {options.device!r}. " + ". ".join(_advice(options, refused)))


def _advice(options: Options, refused: Sequence[str]) -> Sequence[str]:
    """Why none can, and what would: nothing that is installed brings a GPU that is not there."""
    reasons = list(dict.fromkeys(refused))
    if options.device_kind != "gpu" or not (count := device_count("gpu")):
        return reasons
    if split(options.device)[1] >= count:
        return [f"torch: {lack(options.device)}"]
    return [*reasons, "Without a provider, torch would run it"] if options.provider else reasons


def _noted(known: Choice, found: Iterator[Candidate], options: Options) -> Candidate | None:
    """The candidate that an earlier race has chosen; None where there is none such any more.

    What was not offered in its precision has come to it by the options: TF32, or what a provider computes in.
    """
    own = [candidate for candidate in found if candidate.engine.name == known]
    exact = [candidate for candidate in own if candidate.precision == known.precision]
    usual = own if known.precision == options.precision else []
    for candidate in (*exact, *usual):
        return replace(candidate, is_plain=known.is_plain, parts=known.parts, form=known.form)
    return None


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A candidate with the model compiled."""

    candidate: Candidate
    program: Program
    seconds: float

    def selected(self, reason: str, figures: tuple[Figure, ...] = ()) -> Selected:
        chosen = self.candidate
        names = chosen.engine.name, chosen.precision
        choice = Choice(*names, reason, figures, is_plain=chosen.is_plain, parts=chosen.parts, form=chosen.form)
        return Selected(chosen.engine, self.program, choice, self.seconds)


def _compiled(candidate: Candidate, model: Model, options: Options, progress: Progress) -> _Compiled:
    progress.step(f"compiling for {candidate}", is_long=model.weights.nbytes > LARGE_BYTES)
    start = time.perf_counter()
    engine, precision, is_plain = candidate.engine, candidate.precision, candidate.is_plain
    if candidate.parts == 1:
        program = engine.compile(model, options, precision=precision, is_plain=is_plain, form=candidate.form)
    else:
        program = compile_parts(engine, model, options, precision, candidate.parts, is_plain=is_plain)
    # What it computes in may be less than was asked for, or allowed and taken.
    return _Compiled(replace(candidate, precision=program.precision), program, time.perf_counter() - start)


def _again(candidate: Candidate, model: Model, options: Options, progress: Progress) -> _Compiled:
    """What won an earlier race; its kernels are made now, not in the first run, where that can be done."""
    compiled = _compiled(candidate, model, options, progress)
    if candidate.engine.making_seconds(model, candidate.form):
        progress.step(f"making kernels for {candidate}", is_long=True)
        if find_samples(model, compiled.program.bind()) is None:  # the race had some
            raise EngineError(f"{model.path}: kernels cannot be made")
    return compiled


def _doubted(selected: Selected, doubts: Sequence[str]) -> Selected:
    """What was chosen, for a day only where another start might choose otherwise."""
    if not doubts:
        return selected
    facts = selected.choice.facts()
    facts["reason"] += f"; {' and '.join(doubts)}: it is chosen anew after a day"
    return replace(selected, choice=Choice.of(facts | {"until": time.time() + AGAIN_SECONDS}))


def _challenge(
    model: Model,
    options: Options,
    first: _Compiled,
    others: Iterator[Candidate],
    doubts: list[str],
    progress: Progress,
) -> Selected:
    """Race the others against the first, where that can change anything."""
    if (reason := _known(model, options)) is not None:
        is_halved = options.precision == "fp16" and options.device_kind != "cpu" and not options.provider
        return _halved(first, others, model, options, reason, progress) if is_halved else first.selected(reason)
    runner = first.program.bind()
    samples = find_samples(model, runner)
    if samples is None:
        return first.selected(_untried(model))
    if options.tune == "fast" and (taken := brief(runner, samples)) < TINY_SECONDS:
        why = "it has the shortest call" if options.device_kind == "cpu" else "that is what a call takes in any form"
        return first.selected(f"a run takes {taken * 1e6:.0f} µs, and {why}")
    budget = BuildTime(options.build_seconds)
    built = [first, *_plain(first, model, options, progress)]
    for candidate in _with_forms(first.candidate, others, model, options):
        if not _is_room(model, options):
            doubts.append("too little memory was left to try others")
            break
        making = candidate.engine.making_seconds(model, candidate.form)
        if making and not budget.admits(str(candidate), making, RACE_SECONDS[options.tune]):
            continue
        with contextlib.suppress(EngineError):  # then it takes no part
            rival = _compiled(candidate, model, options, progress)
            if not making or _makes_kernels(rival, samples, budget, doubts, progress):
                built += [rival, *_plain(rival, model, options, progress)]
    remarks = "".join(f"; {text}" for text in budget.left_out) + _unused(options, built)
    is_untried = budget.left_out or options.device_kind != "cpu"
    alone = ("nothing else was tried" if is_untried else "nothing else can run it") + remarks
    if len(built) == 1 and not counts(model, options):  # there is nothing to time
        return first.selected(alone)
    crowding = Crowding((options.threads or thread_budget()) * options.workers)
    heat = _raced(options, built, samples, budget, progress)
    parts = _in_parts(heat, model, options, progress)
    if parts:
        heat = _raced(options, [heat.winner, *parts], samples, budget, progress, before=heat)
    elif len(built) == 1:
        return first.selected(alone)
    if options.device_kind == "cpu" and crowding.is_felt():
        doubts.append("the machine was busy with other work")
    return heat.winner.selected(heat.reason + remarks, heat.figures)


def _makes_kernels(
    rival: _Compiled, samples: list[np.ndarray], budget: BuildTime, doubts: list[str], progress: Progress
) -> bool:
    """Whether the kernels of a candidate can be made: that is done in its first run, whose time tells of the others."""
    progress.step(f"making kernels for {rival.candidate}", is_long=True)
    start = time.perf_counter()
    try:
        rival.program.bind().run(samples)
    except EngineError as error:
        doubts.append(f"{rival.candidate} took no part ({error})")
        return False
    budget.note(time.perf_counter() - start)
    return True


def _halved(
    first: _Compiled, others: Iterator[Candidate], model: Model, options: Options, reason: str, progress: Progress
) -> Selected:
    """The first in 16 bits, which every device but the CPU is faster in; as it is, if that gives other numbers."""
    engine = first.candidate.engine
    candidate = next((each for each in others if each.precision == "fp16" and each.engine is engine), None)
    if candidate is None:
        return first.selected(reason + _unused(options, [first]))
    runner = first.program.bind()
    samples = find_samples(model, runner)
    if samples is None and options.tune != "off":
        return first.selected(_untried(model))
    try:
        rival = _compiled(candidate, model, options, progress)
    except EngineError as error:
        return first.selected(f"16 bits were allowed, but it cannot be built in them: {error}")
    if samples is not None and not _agrees(rival, samples, runner.run(samples)):
        return first.selected("in 16 bits it computes other numbers")
    return rival.selected("16 bits were allowed, and " + ("tuning is off" if options.tune == "off" else reason))


def _with_forms(first: Candidate, others: Iterator[Candidate], model: Model, options: Options) -> Iterator[Candidate]:
    """The other candidates, and all of them in the other forms that their engines have.

    On a GPU, one engine serves a model whatever the clock says: what another cannot take, as tensors there, must not
    depend on a race.
    """
    for place, candidate in enumerate(itertools.chain([first], others)):
        if options.device_kind != "cpu" and candidate.engine is not first.engine:
            continue
        if place:
            yield candidate
        forms = candidate.engine.forms(model, options, candidate.precision)
        yield from (replace(candidate, form=form) for form in forms)


def _unused(options: Options, built: Sequence[_Compiled]) -> str:
    """A word on lower precision that was allowed, but that no engine has here."""
    is_missed = options.precision == "fp16" and all(each.candidate.precision == "fp32" for each in built)
    if not is_missed:
        return ""
    if "float32" in options.op_precision.values():
        return "; 16 bits were allowed, but not to all of its ops"
    return "; 16 bits were allowed, but no engine can compute in them here"


def _plain(compiled: _Compiled, model: Model, options: Options, progress: Progress) -> list[_Compiled]:
    """The same engine with the graph as the file has it, where that is another and there is room for it."""
    candidate = replace(compiled.candidate, is_plain=True)
    is_usual = not candidate.form and candidate.precision != "fp16"
    if not compiled.program.is_rewritten or not is_usual or not _is_room(model, options):
        return []
    with contextlib.suppress(EngineError):
        return [_compiled(candidate, model, options, progress)]
    return []


def _is_room(model: Model, options: Options) -> bool:
    """Whether one more program fits in beside those that are there."""
    nbytes = model.weights.nbytes
    on_device = free_memory(options.device) if options.device_kind == "gpu" else None
    return spare_memory() >= ROOM * nbytes and (on_device is None or on_device >= DEVICE_ROOM * nbytes)


def _known(model: Model, options: Options) -> str | None:
    """Why no race is needed; None where it is."""
    if options.provider:
        return f"the provider {options.provider!r} was asked for"
    if options.engine != "auto" and options.precision != "fp16" and options.device_kind == "cpu":
        return "it was asked for"
    if options.tune == "off":
        return "it is the first choice, and tuning is off"
    found = {node.op_type for node in model.graph.graph.all_nodes()} & RECURRENT
    if options.tune == "fast" and found:
        why = "which it is known to run best" if options.device_kind == "cpu" else "and only tune='full' times such"
        return f"the network is recurrent ({', '.join(sorted(found))}), {why}"
    return None


def _untried(model: Model) -> str:
    """Why a model cannot be tried on made-up inputs."""
    if not is_static(model.inputs):
        return "its sizes are only known when it runs, so nothing was timed"
    if has_loop(model):
        return "it has a loop, which may never end on made-up inputs, so nothing was timed"
    return "it takes no made-up inputs, so nothing was timed"


def _in_parts(heat: _Heat, model: Model, options: Options, progress: Progress) -> list[_Compiled]:
    """The winner with the batch in parts, where that can be done and a run is long enough to gain."""
    found: list[_Compiled] = []
    if heat.milliseconds < MIN_PARTED:
        return found
    for count in counts(model, options):
        with contextlib.suppress(EngineError):  # it cannot be told that the images do not depend on each other
            if _is_room(model, options):
                found.append(_compiled(replace(heat.winner.candidate, parts=count), model, options, progress))
    return found


@dataclass(frozen=True, slots=True)
class _Heat:
    """What a race has found."""

    winner: _Compiled
    milliseconds: float
    figures: tuple[Figure, ...]
    reason: str


def _raced(
    options: Options,
    built: list[_Compiled],
    samples: list[np.ndarray],
    budget: BuildTime,
    progress: Progress,
    before: _Heat | None = None,
) -> _Heat:
    """Race those that compute the same; `before` is the race that the first of them has won."""
    progress.step("timing the engines", is_long=True)
    # What the passes made of the graph is held against the graph of the file, too, on the most trusted engine.
    own = [each for each in built if each.candidate.engine is built[0].candidate.engine]
    trusted = next((each for each in own if not each.program.is_rewritten), built[0])
    reference = trusted.program.bind().run(samples)
    fit = [each for each in built if each is trusted or _agrees(each, samples, reference)]
    unfit = [str(each.candidate) for each in built if each not in fit]
    runners, is_thorough = [_runner(each.program, options.workers) for each in fit], options.tune == "full"
    # On the CPU engines compile for long, and none is left out for it.
    allowed = options.build_seconds if options.device_kind == "cpu" else budget.left
    seconds = min(RACE_SECONDS[options.tune], allowed)
    try:
        times = race(runners, samples, seconds, progress, is_thorough=is_thorough)
    except EngineError as error:  # as where not all of them fit into the memory of a GPU
        return before or _Heat(fit[0], 0.0, (), f"{fit[0].candidate} stays, as nothing could be timed ({error})")
    figures = tuple(_figure(each.candidate, own, times[0]) for each, own in zip(fit, times, strict=True))
    best = max(range(len(fit)), key=lambda place: figures[place].lead)
    least = MIN_LEAD if figures[best].rounds >= MIN_ROUNDS else FEW_LEAD
    if figures[best].lead < least:
        best = 0
    reason = explain([str(each.candidate) for each in fit], figures, best, unfit, least)
    if before is not None:
        reason, figures = f"{before.reason}; then {reason}", (*before.figures, *figures[1:])
    return _Heat(fit[best], figures[best].milliseconds, figures, reason)


def _runner(program: Program, workers: int) -> Timed:
    """What is timed: the workers of a pool as they will run, side by side."""
    return program.bind() if workers == 1 else Crowd([program.bind() for _ in range(workers)])


def _agrees(rival: _Compiled, samples: list[np.ndarray], reference: list[np.ndarray]) -> bool:
    try:
        return agree(reference, rival.program.bind().run(samples), rival.candidate.precision)
    except EngineError:
        return False


def _figure(candidate: Candidate, own: Sequence[float], first: Sequence[float]) -> Figure:
    milliseconds = statistics.median(own) * 1e3
    name, precision, is_plain = candidate.engine.name, candidate.precision, candidate.is_plain
    leads, rounds = lead(own, first), len(own)
    return Figure(name, precision, is_plain, milliseconds, leads, rounds, candidate.parts, candidate.form)
