"""A model that is one part of a job, as one torch program: its exchanges are steps between all others.

Tensors stay on their device, and on a GPU the exchanges are captured with all else. What ranks tell each other besides,
as the sizes of what they exchange and who has failed, goes by mail.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import json
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from litehouse.device import place as device_place
from litehouse.distributed.exchange import find_exchanges
from litehouse.distributed.groups import Groups
from litehouse.distributed.lines import Lines, open_lines
from litehouse.distributed.mail import MALFORMED, Key, Mail
from litehouse.distributed.order import Listed, ends_of, order_of
from litehouse.distributed.ranked import precision_of
from litehouse.distributed.segments import find
from litehouse.engines.base import Stoppable
from litehouse.engines.choice import Choice
from litehouse.engines.select import Selected
from litehouse.engines.torch.engine import TorchEngine
from litehouse.engines.torch.exchanges import Given, Kind, Told, TorchExchange
from litehouse.engines.torch.ops.exchanges import EXCHANGES
from litehouse.engines.torch.program import TorchProgram, TorchRunner
from litehouse.engines.torch.values import Tensor
from litehouse.errors import EngineError, RankError
from litehouse.model import Model
from litehouse.options import Options

RUN = "the run"
NEW_RUNS = 3  # of sizes; these may take long, as graphs are captured
Shapes = list[list[int]]


def build_whole(
    model: Model,
    options: Options,
    groups: Groups,
    mail: Mail,
    channel: int,
    lists: Mapping[int, Sequence[Listed]],
    open_ranks: Set[int],
    address: str,
) -> Selected:
    """The model in one program.

    Args:
        model: The part of the model that this rank has.
        options: How to run it.
        groups: The groups of ranks.
        mail: What connects the ranks; all have met.
        channel: The number of the model in it.
        lists: The exchanges of all ranks.
        open_ranks: Those whose files leave sizes open.
        address: Where rank 0 is found.

    Raises:
        EngineError: torch cannot run it.
        RankError: Another rank fails, or has exchanges in an order that does not fit.
    """
    near = _connected(mail.rank, lists)
    engine = WholeEngine(mail, channel, groups, order_of(lists), Sizes(mail, channel, near, bool(open_ranks & near)))
    engine.connect(lists[mail.rank], open_lines(mail, device_place(options.device), address))
    with mail.busy():
        program = engine.compile(model, options, precision=precision_of(options))
    reason = f"rank {mail.rank} of {mail.size}, in one program with its exchanges"
    return Selected(engine, program, Choice(engine.name, program.precision, reason), 0.0)


def _connected(rank: int, lists: Mapping[int, Sequence[Listed]]) -> set[int]:
    """The ranks that a rank exchanges something with, also by way of others, and itself."""
    found, left = {rank}, [rank]
    while left:
        groups = [_line_of(group, label) for group, label, _ in lists[left.pop()] if group]
        new = {member for group in groups for member in group} - found
        found |= new
        left += new
    return found


class Sizes:
    """What ranks know of the sizes that the others run with. They tell each other where these may have changed."""

    def __init__(self, mail: Mail, channel: int, ranks: Set[int], is_open: bool) -> None:
        """Begin with the sizes of the files.

        Args:
            mail: What connects the ranks.
            channel: The number of the model in it.
            ranks: Those that exchange something, this one among them.
            is_open: Whether a file of one of them leaves sizes open: they may then change with every run.
        """
        self._mail, self._channel, self._is_open = mail, channel, is_open
        self._others = sorted(ranks - {mail.rank})
        self._program, self._key, self._run = 0, "", 0

    def key(self, program: int, run: int, shapes: Shapes) -> str:
        """What tells the sizes of a run on all ranks from others; the same on all of them.

        Args:
            program: The number of the program that this rank runs: another one has other sizes.
            run: The number of the run.
            shapes: Those of its inputs.

        Raises:
            RankError: Another rank does not come.
        """
        self._run = run
        if self._is_open or program != self._program:
            own, letter = [program, shapes], Key(self._channel, run, "sizes")
            found = {self._mail.rank: own}
            for rank in self._others:
                self._mail.post(rank, letter, _plain(own), RUN)
            for rank in self._others:
                with self._mail.fetched(rank, letter, RUN) as array:
                    found[rank] = _read(array, rank)
            self._program, self._key = program, json.dumps(sorted(found.items()))
        return self._key

    def asked(self, what: str, exchange: TorchExchange, own: Given) -> Given:
        """Tell each rank of an exchange what it is given, and give what this one is."""
        mail, key, found = self._mail, Key(self._channel, self._run, f"{exchange.label} {what}"), list(own)
        others = [(place, rank) for place, rank in enumerate(exchange.group) if rank != mail.rank]
        if exchange.op != "Receive":
            for place, rank in others:
                mail.post(rank, key, _plain(own[place]), exchange.what)
        if exchange.op != "Send":
            for place, rank in others:
                with mail.fetched(rank, key, exchange.what) as array:
                    found[place] = _kinds(_read(array, rank), rank)
        return found

    def check(self) -> None:
        """Raise RankError where another rank tells of new sizes in a run that this one began with the old ones."""
        for rank in self._others:
            if self._mail.has(rank, Key(self._channel, self._run, "sizes")):
                raise RankError(
                    f"rank {rank} runs with other sizes than before, and rank {self._mail.rank} does not; resize the "
                    "model on all ranks",
                    rank=rank,
                    op=RUN,
                )


class WholeEngine(TorchEngine):
    """The torch engine for one part of a job."""

    capabilities = TorchEngine.capabilities | {"ranks"}

    def __init__(self, mail: Mail, channel: int, groups: Groups, turns: Mapping[str, int], sizes: Sizes) -> None:
        """Take part in a job.

        Args:
            mail: What connects the ranks.
            channel: The number of the model in it.
            groups: The groups of ranks.
            turns: The place of each exchange in the order of all, by its label.
            sizes: What ranks know of each other's sizes.
        """
        self._mail, self._channel, self._groups, self._turns = mail, channel, groups, turns
        self._sizes = sizes
        self._lines: Lines | None = None
        self._programs = 0

    def connect(self, listed: Sequence[Listed], lines: Lines) -> None:
        """Open the lines of all groups that the exchanges of this rank name."""
        self._lines = lines
        lines.open({_line_of(group, label) for group, label, _ in listed if group}, self._channel)

    def forms(self, model: Model, options: Options, precision: str) -> tuple[str, ...]:  # noqa: ARG002
        """None: all ranks must do the same, so nothing is timed."""
        return ()

    def compile(  # type: ignore[override]
        self,
        model: Model,
        options: Options,
        shapes: Sequence[Sequence[int]] | None = None,
        precision: str = "fp32",
        *,
        is_plain: bool = False,
        parts: int = 1,
        form: str = "",
    ) -> WholeProgram:
        """Compile the model; `shapes` replaces the shapes of its inputs."""
        del form
        if parts > 1:
            raise EngineError(f"{model.path}: a part of a job does not run a batch in parts")
        assert self._lines is not None
        exchanges = self._exchanges(model, is_sized=shapes is None)
        program = super().compile(model, options, shapes, precision, is_plain=is_plain, exchanges=exchanges)
        self._programs += 1
        return WholeProgram(program, self._mail, self._channel, self._lines, self._sizes, self._programs)

    def _exchanges(self, model: Model, *, is_sized: bool) -> list[TorchExchange]:
        """The exchanges of a model, which may have been translated anew; `is_sized` where its sizes are to hold."""
        assert self._lines is not None
        nodes: list[ir.Node] = find(model.graph.graph, model.path)
        lines, found = self._lines.open((), self._channel), []
        for number, (node, item) in enumerate(find_exchanges(nodes, self._groups, self._mail.rank, model.path).items()):
            group = _line_of(item.group, item.label) if item.group else ()
            if group and (item.label not in self._turns or group not in lines):
                raise EngineError(f"{model.path}: {item.what} was not there when the ranks met; load the model again")
            found.append(
                TorchExchange(
                    number=number,
                    turn=self._turns.get(item.label, -1),
                    op=node.op_type,
                    name=node.name or "",
                    what=item.what,
                    label=item.label,
                    group=group,
                    place=group.index(self._mail.rank) if group else 0,
                    attributes=item.attributes,
                    function=EXCHANGES.get(node.op_type, list),  # Depend has none
                    line=lines[group] if group else None,
                    sizes=tuple(_shape(value) if is_sized else None for value in node.outputs),
                )
            )
        return found


def _shape(value: ir.Value) -> tuple[int, ...] | None:
    """The shape of a value, where the file tells it."""
    return tuple(value.shape.numpy()) if value.shape is not None and value.shape.is_static() else None


def _line_of(group: tuple[int, ...], label: str) -> tuple[int, ...]:
    """The ranks that an exchange needs a line of."""
    ends = ends_of(label)
    return group if ends is None else tuple(sorted(set(ends)))


class WholeProgram:
    """A torch program that runs together with those of other ranks.

    Attributes:
        precision: What it computes in.
        is_rewritten: Whether passes changed the graph.
        arena: The memory of its weights.
    """

    adopt = staticmethod(TorchProgram.adopt)

    def __init__(
        self, program: TorchProgram, mail: Mail, channel: int, lines: Lines, sizes: Sizes, number: int
    ) -> None:
        """Wrap a program.

        Args:
            program: It.
            mail: What connects the ranks.
            channel: The number of the model in it.
            lines: What its exchanges go by.
            sizes: What ranks know of each other's sizes.
            number: Tells it from other programs of the model.
        """
        self.precision, self.is_rewritten, self.arena = program.precision, program.is_rewritten, program.arena
        self.path = program.names.path
        self._program, self._mail, self._channel, self._lines = program, mail, channel, lines
        self._sizes, self._number = sizes, number
        self._known: dict[str, Told] = {}
        self._runs: collections.Counter[str] = collections.Counter()  # of these sizes
        program.watch = lambda stream: lines.finish(RUN, stream)

    def bind(self) -> WholeRunner:
        """A runner for one thread at a time; runs of all of them take turns, as all ranks must run in one order."""
        runner = WholeRunner(self, self._program.bind())
        self._lines.users.add(runner)
        return runner

    def save(self, folder: Path) -> None:
        """It is not kept."""
        raise EngineError(f"{self.path}: a part of a job is not kept ({folder})")

    def refuse(self, error: BaseException) -> None:
        """End the job: the other ranks may wait for this one already, and cannot be called back."""
        with self._mail.using:
            if self._mail.failure is None:
                self._mail.fail(error)
            self._lines.abort()

    @contextlib.contextmanager
    def running(self, shapes: Shapes) -> Iterator[None]:
        """Around a run with inputs of these shapes. A run that fails ends the job: others may be in the midst of it."""
        mail, program = self._mail, self._program
        if not mail.using.acquire(blocking=False):
            raise EngineError(
                f"{self.path}: another thread is running a part of this job; the ranks could not tell which runs "
                "belong together: let one thread run all parts of the job, in the same order on all ranks"
            )
        try:
            number = mail.begin(self._channel)
            try:
                told = self._told(number, shapes)
                program.told, self._lines.check = told, self._sizes.check
                self._runs[told.key] += 1
                is_new = self._runs[told.key] <= NEW_RUNS
                with mail.busy() if is_new else contextlib.nullcontext():
                    yield
                if told.ask is not None:
                    self._known[told.key] = replace(told, ask=None)
            except BaseException as error:
                mail.fail(error)
                self._lines.abort()
                raise
        finally:
            program.told = self._lines.check = None
            mail.using.release()

    def _told(self, number: int, shapes: Shapes) -> Told:
        """What is known of the sizes of this run."""
        key = self._sizes.key(self._number, number, shapes)
        known = self._known.get(key)
        if known is not None:
            return known

        return Told(
            key, functools.partial(self._sizes.asked, "counts"), ask=functools.partial(self._sizes.asked, "sizes")
        )

    def finish(self) -> None:
        """Wait for what the caller's stream has begun."""
        self._lines.finish(RUN)


class WholeRunner:
    """Runs a program together with other ranks."""

    def __init__(self, program: WholeProgram, runner: TorchRunner) -> None:
        """Wrap a runner of the torch program."""
        self._program, self._runner = program, runner

    def drop(self) -> None:
        """Let go of what was captured: the job has ended."""
        self._runner.drop()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The outputs for these inputs."""
        with self._program.running([list(array.shape) for array in inputs]):
            return self._runner.run(inputs)

    def run_tensors(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The outputs for inputs that may be on the device, and are there; they are complete."""
        with self._program.running([list(tensor.shape) for tensor in inputs]):
            outputs = self._runner.run_tensors(inputs)
            self._program.finish()
            return outputs

    def run_stoppable(self, inputs: Sequence[np.ndarray], stoppable: Stoppable) -> list[np.ndarray]:
        """The outputs for these inputs. It is not stopped: the other ranks would wait for it."""
        del stoppable
        return self.run(inputs)


def _plain(facts: Any) -> np.ndarray:
    return np.frombuffer(json.dumps(facts).encode(), np.uint8)


def _read(array: np.ndarray, rank: int) -> Any:
    with _understood(rank):
        return json.loads(array.tobytes())


def _kinds(facts: Any, rank: int) -> list[Kind]:
    with _understood(rank):
        return [(str(dtype), tuple(map(int, shape))) for dtype, shape in facts]


@contextlib.contextmanager
def _understood(rank: int) -> Iterator[None]:
    try:
        yield
    except MALFORMED as error:
        raise RankError(f"rank {rank} speaks another version of Litehouse ({error})", rank=rank) from error
