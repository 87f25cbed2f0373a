"""Texts from the scores of a recogniser."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.common import positions, size_along
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64


@op("CTCGreedyDecoder")
def ctc_greedy_decoder(
    t: MindirTape, inputs: ir.Value, sequence_length: ir.Value, *, merge_repeated: Any = True
) -> Any:
    """The best class at each step, without blanks (the last class) and, where asked for, without repetitions.

    Returns:
        A sparse matrix of the classes, a row for each text: places, values and sizes; and the scores of the texts, with
        their sign turned.
    """
    scores = t.op("Transpose", [inputs], perm=(1, 0, 2), dtype=inputs.dtype, shape=[None] * 3)
    best = t.op("ArgMax", [scores], axis=2, keepdims=0, dtype=INT64)
    steps = positions(t, size_along(t, scores, 1))
    lengths = t.op("Unsqueeze", [t.cast(sequence_length, INT64), t.ints(1)])
    spoken = t.op("Less", [steps, lengths])
    blank = t.op("Sub", [size_along(t, scores, 2), t.constant(1, INT64)])
    kept = t.op("And", [spoken, t.op("Not", [t.op("Equal", [best, blank])])])
    if t.literal(merge_repeated):
        before = t.op("Slice", [best, t.ints(0), t.ints(-1), t.ints(1)])
        before = t.op("Pad", [before, t.ints((0, 1, 0, 0)), t.constant(-1, INT64)])
        kept = t.op("And", [kept, t.op("Not", [t.op("Equal", [best, before])])])
    counts = t.op("Cast", [kept], to=int(INT64))
    places = t.op("Sub", [t.op("CumSum", [counts, t.constant(1, INT64)]), t.ints(1)])
    found = t.op("Transpose", [t.op("NonZero", [kept])], perm=(1, 0))
    column = t.op("Unsqueeze", [t.op("GatherND", [places, found]), t.ints(1)])
    indices = t.op("Concat", [t.op("Gather", [found, t.ints(0)], axis=1), column], axis=1)
    longest = t.op("Reshape", [t.op("ReduceMax", [t.op("ReduceSum", [counts, t.ints(1)])]), t.ints(1)])
    sizes = t.op("Concat", [t.op("Shape", [scores], start=0, end=1), longest], axis=0)
    highest = t.op("ReduceMax", [scores, t.ints(2)], keepdims=0)
    spoken_scores = t.op("Where", [spoken, highest, t.constant(0, inputs.dtype)])
    total = t.op("Neg", [t.op("ReduceSum", [spoken_scores, t.ints(1)])])
    return indices, t.op("GatherND", [best, found]), sizes, total
