"""Builds a model that is one part of a job: finds the other ranks, agrees with them, and compiles what is between."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse import device
from litehouse.cores.budget import thread_budget
from litehouse.distributed import transports
from litehouse.distributed.exchange import Exchange, find_exchanges
from litehouse.distributed.groups import Groups
from litehouse.distributed.mail import MALFORMED, Key, Mail
from litehouse.distributed.order import Listed
from litehouse.distributed.program import Part, SegmentedProgram
from litehouse.distributed.ranks import ALONE, LOOPBACK, find_place
from litehouse.distributed.segments import Segment, Step, cut, find, part_of
from litehouse.distributed.slicing import slip
from litehouse.engines.base import GivenWeights, Names, OneForm, Program
from litehouse.engines.choice import Choice
from litehouse.engines.progress import SILENT, Progress
from litehouse.engines.select import Selected, select
from litehouse.errors import EngineError, LitehouseError, RankError, printable
from litehouse.model import Model
from litehouse.options import Options
from litehouse.signature import is_static

MEETING = "the meeting of the ranks"
SIZES = {"rank_size", "split_count"}  # attributes that tell for how many ranks an exchange is
Choices = dict[str, Choice]
"""What was chosen for segments that look alike."""


def build_ranked(
    model: Model,
    options: Options,
    choices: Choices | None = None,
    progress: Progress = SILENT,
    mail: Mail | None = None,
) -> Selected:
    """The model, ready to run with the other ranks, who do the same.

    Args:
        model: The part of the model that this rank has.
        options: How to run it; its `job` tells what the launcher does not.
        choices: What earlier builds have chosen; what this one chooses is added.
        progress: Told what is done.
        mail: What connects the ranks, where that is not found by the options.

    Raises:
        EngineError: The file or the environment is not for this rank, or no engine can run a segment.
        RankError: Another rank does not come, fails, or has another model.
    """
    start = time.perf_counter()
    place = find_place(options.job if mail is None else replace(options.job, rank=mail.rank, size=mail.size))
    rank, size = place.rank, place.size
    try:
        _check_slip(model, rank, size)
        groups = Groups(place, options.job.groups)
        exchanges = find_exchanges(find(model.graph.graph, model.path), groups, rank, model.path)
        own = _own_facts(model, options, exchanges)
        if mail is None and place.source == ALONE and options.job.size is None:
            _check_alone(model, exchanges)
    except LitehouseError as error:
        if size > 1 and not isinstance(error, _SizeError):  # else the others would wait for this one
            with contextlib.suppress(LitehouseError):
                (mail or transports.open_mail(place, options.job)).fail(error)
        raise
    if mail is None:
        progress.step(f"waiting for the other {size - 1} ranks" if size > 1 else "no other rank takes part")
        mail = transports.open_mail(place, options.job)
    with mail.using:
        channel = mail.channel()
        try:
            found = _meet(mail, channel, own, model.path)
            if is_whole(options):
                from litehouse.distributed.whole import build_whole  # imports torch

                lists = {other: facts.listed() for other, facts in found.items()}
                open_ranks = {other for other, facts in found.items() if facts.is_open}
                address = LOOPBACK if place.is_one_machine else place.rendezvous()[0]
                built = build_whole(model, options, groups, mail, channel, lists, open_ranks, address)
            else:
                sharers = 1 + sum(
                    bool(set(own.cores) & set(facts.cores)) for facts in (found[other] for other in _others(mail))
                )
                options = replace(options, threads=options.threads or max(1, thread_budget() // sharers))
                built = _build_segments(model, options, exchanges, mail, channel, choices, progress)
            _say(mail, Key(channel, 0, "ready"), {})
            for other in _others(mail):
                _hear(mail, other, Key(channel, 0, "ready"))
        except BaseException as error:
            mail.fail(error, MEETING)
            raise
    return replace(built, seconds=time.perf_counter() - start)


def is_whole(options: Options) -> bool:
    """Whether torch runs all of the model in one program, with its exchanges."""
    return options.device_kind == "gpu" or options.engine == "torch"


def _build_segments(
    model: Model,
    options: Options,
    exchanges: dict[ir.Node, Exchange],
    mail: Mail,
    channel: int,
    choices: Choices | None,
    progress: Progress,
) -> Selected:
    """The model, cut at its exchanges."""
    engine = RankedEngine(mail, channel, {} if choices is None else choices)
    if mail.rank != 0:
        engine.follow(_hear(mail, 0, Key(channel, 0, "choices")))
    with mail.busy():
        program = engine.build(model, options, cut(model.graph.graph, model.path), exchanges, progress)
    if mail.rank == 0:
        _say(mail, Key(channel, 0, "choices"), engine.chosen_facts())
    reason = f"rank {mail.rank} of {mail.size}, in {len(engine.parts)} segments; {engine.reason}"
    return Selected(engine, program, Choice(engine.chosen, program.precision, reason), 0.0)


class _SizeError(EngineError):
    """There are more or fewer processes than the file is for: nobody knows who else there is to be told."""


class RankedEngine(GivenWeights, OneForm):
    """Compiles the segments of one model with the engines that suit them."""

    name = "ranks"
    capabilities = frozenset({"affinity", "inter_op", "ranks"})

    def __init__(self, mail: Mail, channel: int, choices: Choices) -> None:
        """Take part in a job.

        Args:
            mail: What connects the ranks.
            channel: The number of the model in it.
            choices: What was chosen for segments that look alike.
        """
        self._mail, self._channel, self._choices = mail, channel, choices
        self.parts: dict[Segment, Part] = {}
        self._steps: Sequence[Step] = ()
        self._exchanges: dict[ir.Node, Exchange] = {}

    @property
    def chosen(self) -> str:
        """The engines that were chosen."""
        return "+".join(sorted({str(choice) for choice in self._choices.values()})) or "onnxruntime"

    @property
    def reason(self) -> str:
        """Why it was these."""
        reasons = dict.fromkeys(choice.reason for choice in self._choices.values())
        return "; ".join(list(reasons)[:2]) or "there is nothing to compute"

    def chosen_facts(self) -> dict[str, Any]:
        """What was chosen, as plain data."""
        return {kind: choice.facts() for kind, choice in self._choices.items()}

    def follow(self, facts: Any) -> None:
        """Choose what rank 0 has chosen: what all ranks compute, as the layers between, is then the same to the bit."""
        try:
            self._choices |= {str(kind): Choice.of(choice) for kind, choice in facts.items()}
        except MALFORMED as error:
            raise RankError(f"rank 0 speaks another version of Litehouse ({error})", rank=0) from error

    def available(self, options: Options) -> str | None:
        """The segments' own engines tell."""
        del options
        return None

    def lower_precisions(self) -> tuple[str, ...]:
        """The segments' own engines have them."""
        return ()

    def build(
        self,
        model: Model,
        options: Options,
        steps: Sequence[Step],
        exchanges: dict[ir.Node, Exchange],
        progress: Progress,
    ) -> SegmentedProgram:
        """Compile the model for the sizes of the file."""
        self._steps, self._exchanges = steps, exchanges
        segments = [step for step in steps if isinstance(step, Segment)]
        for place, segment in enumerate(segments):
            progress.step(f"building segment {place + 1} of {len(segments)}")
            self.parts[segment] = self._compiled(model, options, segment)
        return self._program(model, options, self.parts)

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
    ) -> Program:
        """The model for other sizes: its segments are compiled when the first run tells theirs."""
        del precision, is_plain, form
        if parts > 1:
            raise EngineError(f"{model.path}: a part of a job does not run a batch in parts")
        return self._program(model, options, {} if shapes is not None else dict(self.parts), is_fixed=shapes is None)

    def restore(self, folder: Path, names: Names, options: Options, precision: str) -> Program:
        """Nothing is kept of a part of a job."""
        raise EngineError(f"{names.path}: a part of a job is not kept ({folder}, {options.engine}, {precision})")

    def _program(
        self, model: Model, options: Options, parts: dict[Segment, Part], *, is_fixed: bool = True
    ) -> SegmentedProgram:
        def compile_(segment: Segment, inputs: Sequence[np.ndarray]) -> Part:
            return self._compiled(model, options, segment, [array.shape for array in inputs])

        how = self._steps, self._exchanges, self._mail, self._channel, compile_, parts
        return SegmentedProgram(model, *how, is_fixed=is_fixed)

    def _compiled(
        self, model: Model, options: Options, segment: Segment, shapes: Sequence[tuple[int, ...]] | None = None
    ) -> Part:
        part = part_of(model, segment)
        if shapes is not None:
            part = _resized(part, shapes)
        kind = _kind(part)
        selected = select(part, options, self._choices.get(kind))
        self._choices[kind] = selected.choice
        return Part(segment, part.live, selected.program)


def _resized(part: Model, shapes: Sequence[tuple[int, ...]]) -> Model:
    for node in part.graph.graph.all_nodes():
        for value in node.outputs:
            value.shape = None
    for value, shape in zip(part.graph.graph.inputs, shapes, strict=True):
        value.shape = ir.Shape(shape)
    infos = [replace(info, shape=shape) for info, shape in zip(part.inputs, shapes, strict=True)]
    outputs = tuple(replace(info, shape=(None,) * len(info.shape)) for info in part.outputs)
    return replace(part, inputs=tuple(infos), outputs=outputs)


def _kind(part: Model) -> str:
    """What segments have in common for which the same engine is the best."""
    ops = [node.op_type for node in part.graph.graph]
    weights = [(dtype.name, shape) for dtype, shape in part.weight_shapes.values()]
    infos = [(info.dtype.name, info.shape) for info in (*part.inputs, *part.outputs)]
    return repr((ops, sorted(weights), infos))


def _check_slip(model: Model, rank: int, size: int) -> None:
    own = slip.read(model)
    if own is None:
        return
    if own.size != size:
        hint = "" if size > 1 else f", or say which rank this is with job=litehouse.Job(rank=…, size={own.size})"
        raise _SizeError(
            f"{model.path}: the file is the part of rank {own.rank} of {own.size}, but this process is rank {rank} of "
            f"{size}; start {own.size} processes, as with `mpirun -n {own.size}`{hint}"
        )
    if own.rank != rank:
        raise EngineError(
            f"{model.path}: the file is the part of rank {own.rank} of {own.size}, but this process is rank {rank} "
            f"of {size}; give each rank its own file"
        )
    slip.check_data(model, own)


def _check_alone(model: Model, exchanges: dict[ir.Node, Exchange]) -> None:
    """Raise where a process that nothing calls a rank would take its part of the result for the whole."""
    for exchange in exchanges.values():
        if exchange.group and not SIZES & exchange.attributes.keys():
            raise EngineError(
                f"{model.path}: {exchange.what} is for the ranks of a job, the file does not tell for how many, and "
                "nothing tells that this process is one of them; start it with all of its ranks, as in `mpirun -n`, "
                "or set rank_size=1 in the section [litehouse] of the configuration (the size of litehouse.Job) if it "
                "is for one"
            )


def _others(mail: Mail) -> list[int]:
    return [rank for rank in range(mail.size) if rank != mail.rank]


def _own_facts(model: Model, options: Options, exchanges: dict[ir.Node, Exchange]) -> _Facts:
    """What this rank tells the others."""
    sliced, how, card = slip.read(model), "", ""
    if is_whole(options):
        if (reason := device.lack(options.device)) is not None:
            raise EngineError(f"no engine can run on {options.device!r}. torch: {reason}")
        from litehouse.distributed.lines import backend_for, card_of

        where = device.place(options.device)
        how = f"in one torch program by {backend_for(where)} in {precision_of(options)}"
        card = card_of(where, transports.own_machine())
    return _Facts(
        "" if sliced is None else sliced.fingerprint,
        [[list(item.group), item.label, item.what, item.shared] for item in exchanges.values()],
        sorted(transports.own_cores()),
        how,
        card,
        not is_static(model.inputs),
    )


def precision_of(options: Options) -> str:
    """What torch computes in: all ranks must find the same, so nothing is tried out."""
    is_halved = options.precision == "fp16" and "float32" not in options.op_precision.values()
    return "fp16" if is_halved and options.device_kind == "gpu" else "fp32"


def _meet(mail: Mail, channel: int, own: _Facts, path: str) -> dict[int, _Facts]:
    """Agree with all ranks on the model; what each has told."""
    key = Key(channel, 0, "meeting")
    _say(mail, key, own.plain())
    found = {mail.rank: own}
    for other in _others(mail):
        found[other] = _Facts.of(_hear(mail, other, key), other)
        _compare(own, found[other], mail.rank, other, path)
    return found


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a rank tells the others of itself.

    Attributes:
        fingerprint: That of the job that its file is a part of.
        exchanges: Group, label, op and what must be the same, of each.
        cores: The cores that it may use, with the name of its machine.
        how: How it runs, as far as all must run alike.
        card: What tells its GPU from all others; empty for none.
        is_open: Whether its file leaves sizes of inputs open.
    """

    fingerprint: str
    exchanges: list[list[Any]]
    cores: list[str]
    how: str = ""
    card: str = ""
    is_open: bool = False

    def plain(self) -> dict[str, Any]:
        facts = {"fingerprint": self.fingerprint, "exchanges": self.exchanges, "cores": self.cores}
        return facts | {"how": self.how, "card": self.card, "is_open": self.is_open}

    def listed(self) -> list[Listed]:
        return [(tuple(group), label, what) for group, label, what, _ in self.exchanges]

    @classmethod
    def of(cls, facts: Any, rank: int) -> _Facts:
        try:
            exchanges = [[list(group), str(label), str(op), str(same)] for group, label, op, same in facts["exchanges"]]
            more = str(facts["how"]), str(facts["card"]), bool(facts["is_open"])
            return cls(str(facts["fingerprint"]), exchanges, list(map(str, facts["cores"])), *more)
        except MALFORMED as error:
            raise RankError(f"rank {rank} speaks another version of Litehouse ({error})", rank=rank) from error


def _compare(own: _Facts, other: _Facts, rank: int, source: int, path: str) -> None:
    """Raise where two ranks have models that do not belong together."""
    if own.fingerprint != other.fingerprint:
        raise RankError(
            f"{path}: rank {source} has a file that is not of the same job as that of rank {rank}: both must come from "
            "one slicing of one model",
            rank=source,
            op=MEETING,
        )
    if own.how != other.how:
        ways = [facts.how or "in segments on the CPU" for facts in (own, other)]
        raise RankError(
            f"{path}: rank {rank} runs {ways[0]}, but rank {source} {printable(ways[1])}: give all ranks the same "
            "device, engine and precision",
            rank=source,
            op=MEETING,
        )
    if own.card and own.card == other.card:
        raise RankError(
            f"{path}: rank {rank} and rank {source} are on one GPU ({own.card.rpartition('/')[2]}), which NCCL does "
            "not support: give each rank a GPU of its own, as with context.gpu.device_id = context.gpu.rank_id or "
            "device=f'gpu:{rank}', or run them on the CPU",
            rank=source,
            op=MEETING,
        )
    mine, theirs = (
        {label: (what, shared) for group, label, what, shared in facts.exchanges if _concerns(group, label, at)}
        for facts, at in ((own, source), (other, rank))
    )
    for label in dict.fromkeys((*mine, *theirs)):
        if label not in mine or label not in theirs:
            lacking, has = (source, mine) if label in mine else (rank, theirs)
            what = printable(str(has[label][0]))
            raise RankError(
                f"{path}: rank {lacking} has no counterpart to {what} of rank {rank if lacking == source else source}: "
                "a rank was given the wrong file",
                rank=source,
                op=what,
            )
        if mine[label][1] != theirs[label][1]:
            what = printable(str(mine[label][0]))
            raise RankError(
                f"{path}: {what} is {mine[label][1]} here, but {printable(str(theirs[label][1]))} on rank {source}: a "
                "rank was given the wrong file",
                rank=source,
                op=what,
            )


def _concerns(group: Any, label: str, rank: int) -> bool:
    """Whether an exchange is one with that rank."""
    if not str(label).startswith("Send "):
        return rank in group
    ends = str(label).split(" ")[1].split(">")
    return str(rank) in ends


def _say(mail: Mail, key: Key, facts: dict[str, Any]) -> None:
    array = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    for other in _others(mail):
        mail.post(other, key, array, MEETING)


def _hear(mail: Mail, other: int, key: Key) -> Any:
    with mail.fetched(other, key, MEETING) as array:
        try:
            return json.loads(array.tobytes())
        except MALFORMED as error:
            raise RankError(f"rank {other} speaks another version of Litehouse ({error})", rank=other) from error
