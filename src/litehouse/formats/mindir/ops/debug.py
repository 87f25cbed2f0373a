"""Ops that print, record or check values while a network runs: here they do nothing."""

from typing import Any

from litehouse.formats.mindir.literals import MONAD
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

NAMES = ("Print", "Assert", "TensorDump", "ScalarSummary", "TensorSummary", "ImageSummary", "HistogramSummary")


@op(*NAMES, structural=True)
def nothing(t: MindirTape, *_: Any) -> Any:
    """Only the order of side effects depends on the result."""
    return MONAD
