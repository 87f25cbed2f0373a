"""Sessions of one model in several processes, on one copy of its weights."""

from __future__ import annotations

import functools
import logging
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from litehouse._version import __version__
from litehouse.device import place
from litehouse.engines import onnxruntime_frozen
from litehouse.engines.base import Names
from litehouse.engines.choice import Choice
from litehouse.engines.onnxruntime_frozen import Frozen
from litehouse.engines.select import ENGINES, Selected
from litehouse.errors import EngineError, WeightError
from litehouse.identity import content_of, find, own_identity
from litehouse.kept import info_facts, infos_of, reader, translated
from litehouse.live import Arrays, Live
from litehouse.model import Model, State
from litehouse.options import Options
from litehouse.weights import Arena, Weights
from litehouse.weights.handover import Answer, Asker, Offer, UnavailableError
from litehouse.weights.segments import Counter, Segment
from litehouse.weights.store import dtype_named

if TYPE_CHECKING:
    import onnx_ir as ir

GRAPH, WEIGHT, STATE = "graph", "weight/", "state/"
BETWEEN = "its weights are shared with other processes"
WITHIN = "its weights are shared with other models"
RETRY_SECONDS = 5.0  # before a process that did not answer is asked again
MAX_SEGMENTS = 32  # of updates, before they are put together into one
log = logging.getLogger(__name__)


# What is shared -------------------------------------------------------------------------------------------------------


def freeze(model: Model, options: Options, choice: Choice, content: str) -> Segment:
    """A compiled model in memory that can be shared; `content` is a digest of its file."""
    frozen = _frozen(model, options, choice)
    arrays = {GRAPH: np.frombuffer(frozen.graph, np.uint8)}
    arrays |= {f"{WEIGHT}{name}": array for name, array in frozen.weights.items()}
    arrays |= {f"{STATE}{state.name}": model.weights[state.name] for state in model.states}
    return Segment.make(arrays, {**_facts(model), "content": content, "is_plain": frozen.is_plain})


def check_device(options: Options) -> None:
    """See that what others share in the host's memory can run where the options say.

    Raises:
        WeightError: It cannot.
    """
    if options.device_kind != "cpu" and (reason := ENGINES["onnxruntime"].available(options)) is not None:
        raise WeightError(
            f"the weights are in the host's memory, where ONNX Runtime runs them, and it cannot on {options.device!r}: "
            f"{reason}. Leave `device` out for the CPU, or share a session that runs there"
        )


def thaw(segment: Segment, model: Model, options: Options) -> Selected:
    """The model that a segment holds, over its memory."""
    weights = {name.removeprefix(WEIGHT): array for name, array in segment.arrays.items() if name.startswith(WEIGHT)}
    frozen = Frozen(segment.arrays[GRAPH].tobytes(), weights, segment.facts["is_plain"])
    return _selected(frozen, model, options, BETWEEN)


def is_on_device(segment: Segment) -> bool:
    """Whether what is shared is on a device, and not in the segment."""
    return "arena" in segment.facts


def on_device(segment: Segment, model: Model, arrays: Arrays, options: Options) -> Selected:
    """The model, read from its file, over the memory that another process has on a device."""
    from litehouse.engines.torch.arena import SharedArena
    from litehouse.engines.torch.engine import SHARED, STORE, enough_memory
    from litehouse.engines.torch.store import Store

    choice = Choice.of(segment.facts["choice"])
    if _kinds({name: model.weights[name] for name in model.live}) != _kinds(arrays):
        raise WeightError(f"{model.path}: the other process has live weights that are not those of the model")
    if model.live:
        with enough_memory(model.path, options.device):
            model.shelf[STORE] = Store(arrays, place(options.device))
    model.shelf[SHARED] = SharedArena.of(segment.facts["arena"])
    return _compiled(model, options, choice, BETWEEN)


def _compiled(model: Model, options: Options, choice: Choice, reason: str) -> Selected:
    how: dict[str, Any] = {"precision": choice.precision, "is_plain": choice.is_plain, "form": choice.form}
    program = ENGINES[choice].compile(model, options, **how)
    return Selected(ENGINES[choice], program, Choice(str(choice), reason=reason, **how), 0.0)


def in_arena(model: Model, options: Options, choice: Choice, arena: Arena) -> Selected:
    """The model, over the memory of an arena."""
    if "arena" in ENGINES[choice].capabilities:
        from litehouse.engines.torch.arena import Arenas
        from litehouse.engines.torch.engine import GROUP

        with arena.placing:
            model.shelf[GROUP] = arena.shelf.setdefault(str(place(options.device)), Arenas())
            return _compiled(model, options, choice, WITHIN)
    frozen = _frozen(model, options, choice)
    interned = Frozen(frozen.graph, arena.intern(frozen.weights), frozen.is_plain)
    return _selected(interned, model, options, WITHIN)


def _frozen(model: Model, options: Options, choice: Choice) -> Frozen:
    is_plain = choice == "onnxruntime" and choice.is_plain
    return onnxruntime_frozen.freeze(model, options, is_plain=is_plain)


def _selected(frozen: Frozen, model: Model, options: Options, reason: str) -> Selected:
    program = onnxruntime_frozen.thaw(frozen, Names.of(model), options)
    choice = Choice("onnxruntime", "fp32", reason, is_plain=frozen.is_plain)
    return Selected(ENGINES["onnxruntime"], program, choice, 0.0)


def _facts(model: Model) -> dict[str, Any]:
    return {
        "runtime": runtime(),
        "files": list(model.files),
        "path": model.path,
        "format": model.format,
        "metadata": model.metadata,
        "source_ops": model.source_ops,
        "inputs": info_facts(model.inputs),
        "outputs": info_facts(model.outputs),
        "states": [(state.name, state.output) for state in model.states],
        "given": model.given_names,
        "updatable": list(model.updatable),
        "live": list(model.live),
        "weights": [(name, dtype.name, list(shape)) for name, (dtype, shape) in model.weight_shapes.items()],
        "fixed_nodes": list(model.fixed_nodes),
        "is_translated_anew": model.translate is not None,
    }


def runtime() -> list[str]:
    """What both processes must have in common."""
    from litehouse.engines.safety import engine_version

    return [__version__, own_identity(), str(engine_version("onnxruntime"))]


@dataclass(frozen=True, slots=True)
class _Shared:
    """All that is shared at one moment."""

    number: int
    base_number: int
    base: Segment
    live: Mapping[str, Segment]

    @property
    def segments(self) -> list[Segment]:
        """The segments of the live weights, each once."""
        return list({id(segment): segment for segment in self.live.values()}.values())


# The process that has the model ---------------------------------------------------------------------------------------


def begin_on_device(model: Model, program: Any, choice: Choice, live: Live) -> tuple[Sharing, Arrays]:
    """Offer what a model has on a device: what is there stays where it is. Live weights are offered beside it."""
    content = _content(model, live)
    if not content:
        raise WeightError(f"{model.path}: on a GPU a model is shared by its file, and there is none any more")
    if model.updatable and not model.live:
        raise WeightError(
            f"{model.path}: on a GPU a model is shared as its file has it, and 'swap' builds another one for each "
            "update; load it with updatable_mode='in_place'"
        )
    facts = {**_facts(model), "content": content, "choice": choice.facts(), "arena": program.arena.share().facts()}
    states = {f"{STATE}{state.name}": model.weights[state.name] for state in model.states}
    base, values = Segment.make(states, facts), None
    try:
        values = Segment.make(live.values.arrays, {}) if model.live else None
        return Sharing(base, values, model.path, content), {} if values is None else values.arrays
    except BaseException:
        base.close()
        if values is not None:
            values.close()
        raise


def _content(model: Model, live: Live) -> str:
    """A digest of the file that a model was read from; empty where that cannot be told."""
    origin = live.model.read_from
    is_there = origin is not None and origin.file and not origin.has_changed()
    return content_of(origin.file, model.files) if is_there and origin is not None else ""


def begin(model: Model, options: Options, choice: Choice, live: Live) -> tuple[Model, Selected, Sharing, Arrays]:
    """Put a model into memory that can be shared: the model and its live weights, to be used from now on."""
    origin, content = live.model.read_from, _content(model, live)
    base, values = freeze(model, options, choice, content), None
    try:
        built = thaw(base, model, options)
        if model.live:
            values = Segment.make(live.values.arrays, {})
        arrays = {} if values is None else values.arrays
        sharing = Sharing(base, values, model.path, content)
    except BaseException:
        base.close()
        if values is not None:
            values.close()
        raise
    is_swapped = bool(model.updatable) and not model.live
    if origin is None or not origin.file or model.is_secret or model.translate is not None or is_swapped:
        return model, built, sharing, arrays
    # What was read is read again if it is ever needed, and is no second copy of the weights meanwhile.
    again = reader(origin, model.files, functools.partial(translated, origin.file, options.limits, model.updatable))
    return AttachedModel.of(base, again), built, sharing, arrays


class _Held:
    """What a process shares, and what it does so by."""

    def __init__(self, now: _Shared) -> None:
        """Begin with the number 0."""
        self.now, self.counter, self.lock = now, Counter(), threading.Lock()
        self._is_over = False

    def answer(self) -> Answer:
        """What those who ask are told, and the descriptors that they get."""
        with self.lock, ExitStack() as undo:
            segments = self.now.segments
            places = {id(segment): place for place, segment in enumerate(segments)}
            facts: dict[str, Any] = {"number": self.now.number, "base": self.now.base_number}
            facts["live"] = {name: places[id(own)] for name, own in self.now.live.items()}
            table = Segment.make({}, facts)  # of any size, which a message is not
            undo.callback(table.close)
            copies = []
            found = (table.descriptor, self.counter.descriptor, self.now.base.descriptor)
            for descriptor in (*found, *(segment.descriptor for segment in segments)):
                copies.append(os.dup(descriptor))
                undo.callback(os.close, copies[-1])
            undo.pop_all()
            table.close()
            return {}, copies

    def replace(self, now: _Shared) -> None:
        """Share something else from now on."""
        with self.lock:
            before, self.now = self.now, now
            if self._is_over:
                for segment in (now.base, *now.segments):
                    segment.close()
                return
            used = {id(segment) for segment in (now.base, *now.segments)}
            for segment in (before.base, *before.segments):
                if id(segment) not in used:
                    segment.close()
            self.counter.number = now.number

    def end(self, offer: Offer) -> None:
        """Offer nothing more. Who has the memory keeps it."""
        offer.close()
        with self.lock:
            self._is_over = True
            self.counter.close()
            for segment in (self.now.base, *self.now.segments):
                segment.close()


class Sharing:
    """Shares what a session uses, and tells others of each update.

    Attributes:
        handle: The number that other processes ask with.
        allow: Lets processes ask.
        close: Ends the offer.
        content: A digest of the model's file; empty where that cannot be told.
    """

    def __init__(self, base: Segment, live: Segment | None, path: str, content: str) -> None:
        """Offer these segments, to nobody yet."""
        self.content = content
        self._placed: Segment | None = live
        self._held = _Held(_Shared(0, 0, base, dict.fromkeys(live.arrays, live) if live is not None else {}))
        offer = Offer(self._held.answer, path)
        self.handle, self.allow = offer.handle, offer.allow
        self.close = weakref.finalize(self, self._held.end, offer)
        _sharings.add(self)

    @property
    def is_open(self) -> bool:
        """Whether others can ask."""
        return self.close.alive

    def place(self, arrays: Arrays) -> Arrays:
        """The arrays, in memory that can be shared; `publish` shares it.

        They come with others, where the live weights lie in many places.
        """
        now = self._held.now
        if self._placed is not None and not any(self._placed is segment for segment in now.segments):
            self._placed.close()  # an update that failed
        if len(now.segments) >= MAX_SEGMENTS:
            arrays = {**{name: segment.arrays[name] for name, segment in now.live.items()}, **arrays}
        self._placed = Segment.make(arrays, {})
        return self._placed.arrays

    def publish(self, number: int, base: Segment | None = None) -> None:
        """Share the program, or else what was placed, under the number of an update."""
        now = self._held.now
        live = dict(now.live)
        if base is None and self._placed is not None:
            live.update(dict.fromkeys(self._placed.arrays, self._placed))
        base_number = now.base_number if base is None else number
        self._held.replace(_Shared(number, base_number, base or now.base, live))


# The others -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Received:
    """What another process shares at one moment.

    Attributes:
        number: How many updates came before.
        base_number: How many of them before the compiled model was made.
        base: The compiled model.
        arrays: The live weights.
    """

    number: int
    base_number: int
    base: Segment
    arrays: Arrays


class Attached:
    """The memory of another process, and what is updated there.

    Attributes:
        pid: That process.
        now: What it shares, as far as that is known here.
        sessions: The sessions that use it and are open.
    """

    def __init__(self, handle: int) -> None:
        """Ask for it.

        Raises:
            WeightError: Nobody offers it, it is not for this process, or that process runs other versions.
        """
        self._handle, self._lock, self._later = handle, threading.Lock(), 0.0
        self._asker: Asker | None = Asker(handle)
        self._again: Callable[[], Model] | None = None
        self.sessions: weakref.WeakSet[Any] = weakref.WeakSet()
        self.pid = self._asker.pid
        try:
            self._counter, self.now = self._fetch(None)
            self._check()
        except BaseException:
            self._asker.close()
            raise
        _attached.add(self)

    def latest(self) -> Received:
        """What the other process shares now; where it does not answer, what is known."""
        if self._counter.number == self.now.number or time.monotonic() < self._later:
            return self.now
        with self._lock:
            if self._counter.number != self.now.number and time.monotonic() >= self._later:
                try:
                    self.now = self._fetch_again()
                except WeightError as error:
                    self.lose()
                    is_gone = isinstance(error, UnavailableError)
                    self._later = math.inf if is_gone else time.monotonic() + RETRY_SECONDS
                    what = "no longer followed" if is_gone else "tried to be followed again later"
                    log.warning("updates of shared weights are %s: %s", what, error)
            return self.now

    def _fetch_again(self) -> Received:
        """What is shared now; where the connection was lost, over another one."""
        if self._asker is not None:
            try:
                return self._fetch(self.now)[1]
            except WeightError as error:
                if not isinstance(error.__cause__, EOFError | ConnectionError):
                    raise
                self.lose()
        self._asker = Asker(self._handle)
        return self._fetch(self.now)[1]

    def lose(self) -> None:
        """Drop the connection; the next update needs another one."""
        if self._asker is not None:
            self._asker.close()
        self._asker = None

    def renew_lock(self) -> None:
        """This process was forked off: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def check_file(self, source: str | os.PathLike[str]) -> None:
        """Raise WeightError unless a file is the one whose model is shared."""
        facts, path = self.now.base.facts, os.fsdecode(find(source))
        if not facts["content"]:
            raise WeightError(
                f"process {self.pid} loaded {facts['path']} from no file that is still there; leave {path} out"
            )
        content = content_of(path, facts["files"])
        if not content:
            raise WeightError(f"{path}, or a file beside it that belongs to it, cannot be read")
        if content != facts["content"] and os.path.realpath(path) == os.path.realpath(facts["path"]):
            raise WeightError(f"{path} has changed since process {self.pid} loaded it")
        if content != facts["content"]:
            raise WeightError(f"{path} is not the model whose weights process {self.pid} shares, {facts['path']}")

    def model(self, now: Received, again: Callable[[], Model] | None = None) -> AttachedModel:
        """The model that is shared; `again` reads it from its file, now and in later updates."""
        self._again = again or self._again
        with self.understood():
            return AttachedModel.of(now.base, self._again)

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Raise WeightError where what the other process says leads to nothing."""
        try:
            yield
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise WeightError(f"process {self.pid} shares something that is not understood: {error!r}") from error

    def close(self) -> None:
        """Give up the connection; the memory is freed with what uses it."""
        self._later = math.inf
        self.lose()

    def _fetch(self, known: Received | None) -> tuple[Counter, Received]:
        """Take what is shared now."""
        assert self._asker is not None
        left = list(self._asker.ask()[1])
        try:
            facts = _mapped(left.pop(0)).facts
            number, base_number = int(facts["number"]), int(facts["base"])
            counter = Counter(left.pop(0))
            counter.close()
            if known is not None and known.base_number == base_number:
                base = known.base
                os.close(left.pop(0))
            else:
                base = _mapped(left.pop(0))
            segments = []
            while left:
                segments.append(_mapped(left.pop(0)))
            arrays = {name: segments[place].arrays[name] for name, place in facts["live"].items()}
            if known is not None and _kinds(arrays) != _kinds(known.arrays):
                raise ValueError("its live weights are others than before")
            return counter, Received(number, base_number, base, arrays)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise WeightError(f"process {self.pid} answered in a way that is not understood: {error}") from error
        finally:
            for descriptor in left:
                os.close(descriptor)

    def _check(self) -> None:
        theirs = self.now.base.facts.get("runtime")
        if theirs != (ours := runtime()):
            raise WeightError(
                f"process {self.pid} shares weights as Litehouse {theirs and theirs[0]} with ONNX Runtime "
                f"{theirs and theirs[-1]} does, and this one has {ours[0]} and {ours[-1]}, or another build of it"
            )


def _kinds(arrays: Arrays) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
    """Dtypes and shapes, by name."""
    return {name: (array.dtype, array.shape) for name, array in arrays.items()}


def _mapped(descriptor: int) -> Segment:
    """A segment that is not handed on; its memory stays mapped."""
    segment = Segment(descriptor)
    segment.close()
    return segment


def _part() -> None:
    """In a process that was forked off: it shares nothing, and two processes must not speak over one connection."""
    for sharing in list(_sharings):
        sharing.close.detach()
    for attached in list(_attached):
        attached.renew_lock()
        attached.lose()


_sharings: weakref.WeakSet[Sharing] = weakref.WeakSet()
_attached: weakref.WeakSet[Attached] = weakref.WeakSet()
os.register_at_fork(after_in_child=_part)


class AttachedModel(Model):
    """A model that another process has loaded. Its graph is read from the file, if there is one and it is needed.

    Its live weights are those of the session, and not the model's.
    """

    _again: Callable[[], Model] | None
    _facts: dict[str, Any]

    @classmethod
    def of(cls, base: Segment, again: Callable[[], Model] | None) -> AttachedModel:
        """The model that a segment holds.

        Args:
            base: The segment.
            again: Reads the model from its file; None where there is none.
        """
        facts, model = base.facts, cls.__new__(cls)
        model._again, model._facts = again, facts
        model.inputs, model.outputs = infos_of(facts["inputs"]), infos_of(facts["outputs"])
        model.format, model.path = facts["format"], facts["path"]
        model.metadata, model.source_ops = facts["metadata"], facts["source_ops"]
        model.states = tuple(State(*state) for state in facts["states"])
        model.fixed_nodes = tuple(facts["fixed_nodes"])
        model.updatable, model.live = tuple(facts["updatable"]), tuple(facts["live"])
        model.weights = Weights.of({state.name: base.arrays[f"{STATE}{state.name}"] for state in model.states})
        model.defaults, model.files, model.is_secret, model.origin, model.read_from = {}, {}, False, None, None
        model.shelf = {}
        model.translate = model._translate_again if facts["is_translated_anew"] else None
        return model

    def _translate_again(self, *given: Any, **options: Any) -> Model:
        translate = self._read_again().translate
        assert translate is not None
        return translate(*given, **options)

    def _read_again(self) -> Model:
        if self._again is None:
            raise EngineError("it was attached without its file; attach(handle, path) builds it for others")
        if self.updatable and not self.live:
            raise EngineError(
                "its weights are built into what the other process shares; let it update them in_place, or share that "
                "size"
            )
        return self._again()

    @functools.cached_property
    def graph(self) -> ir.Model:  # type: ignore[override]
        """The graph, from the file."""
        return self._read_again().graph

    @property
    def given_names(self) -> list[str]:
        """The names of all that it gives."""
        return list(self._facts["given"])

    @property
    def weight_shapes(self) -> dict[str, tuple[np.dtype, tuple[int, ...]]]:
        """Dtype and shape of all weights."""
        return {name: (dtype_named(dtype), tuple(shape)) for name, dtype, shape in self._facts["weights"]}
