"""Graphs of a GPU: what a function begins there, captured to be begun again at once."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from litehouse.apart import unwarned
from litehouse.engines.torch.driver import begin_capture
from litehouse.engines.torch.scratch import take_scratch
from litehouse.errors import EngineError, RankError

Made = TypeVar("Made")
recording = threading.Lock()  # held while a graph comes about: nobody may wait for the whole GPU meanwhile


class CaptureError(EngineError):
    """Steps can run, but torch cannot capture them: an op waits for the GPU on its own, or somebody else did."""


def graph_of(begin: Callable[[], Made], pool: Any, stream: Any, place: torch.device) -> tuple[Any, Made]:
    """A graph of what a function begins, and what the function gives.

    Args:
        begin: The function; it has run before.
        pool: The memory for what it takes between.
        stream: The stream to capture on, and that nothing else runs on.
        place: The GPU.

    Raises:
        CaptureError: It cannot be captured, or not now.
    """
    try:
        return _captured(begin, pool, stream, place)
    except RankError:
        raise
    except (EngineError, RuntimeError) as error:
        raise CaptureError(str(error).partition("\n")[0]) from error


def _captured(begin: Callable[[], Made], pool: Any, stream: Any, place: torch.device) -> tuple[Any, Made]:
    graph = torch.cuda.CUDAGraph()
    with recording, unwarned("The CUDA Graph is empty"), _nothing_freed():  # as where all outputs are views
        torch.cuda.synchronize(place)  # replays may use the same scratch memory, on streams of callers
        with aside(stream, place):  # torch itself stays there where a capture cannot be ended
            take_scratch(place)
            has_begun, failed = False, None
            try:
                with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                    has_begun = True
                    try:
                        return graph, begin()
                    except BaseException as error:
                        failed = error
                        raise
            except BaseException as error:
                if has_begun and error is not failed:
                    _end(graph, stream)
                if failed is None:
                    raise
            try:
                raise failed  # where the end failed as well, torch has told of that alone
            finally:
                del failed  # it has this frame


@contextlib.contextmanager
def aside(stream: Any, place: torch.device) -> Iterator[Any]:
    """On a stream that things are captured on, between what the current one has begun and what it begins next.

    Gives that other stream, None on the CPU. Nothing is multiplied here but to take scratch memory: somebody may clear
    that at any time, and what is multiplied next takes it from anywhere, for all that is captured behind it.
    """
    if place.type != "cuda":
        yield None
        return
    before = torch.cuda.current_stream(place)
    stream.wait_stream(before)
    try:
        with torch.cuda.stream(stream):
            yield before
    finally:
        before.wait_stream(stream)  # after an error, too: what it has read may be dropped


def _end(graph: Any, stream: Any) -> None:
    """Let torch end a capture to its end, in which it has given up as CUDA had ended it before.

    Else all memory that comes free later waits for the end, nothing is captured with this pool any more, and no numbers
    are drawn outside of captures. Torch ends all of that behind the end of a capture: so it has one, of nothing.
    """
    with contextlib.suppress(EngineError, RuntimeError):  # torch gives up no more in later versions
        begin_capture(stream)
        graph.capture_end()


@contextlib.contextmanager
def _nothing_freed() -> Iterator[None]:
    """Without the collection of garbage: to free memory of a GPU would end what is being captured."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
