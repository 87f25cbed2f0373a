"""Loss functions, which evaluation networks end in."""

from typing import Any

import onnx_ir as ir

from litehouse.formats.mindir.ops.formula import Formula
from litehouse.formats.mindir.registry import op
from litehouse.formats.mindir.tape import MindirTape

INT64 = ir.DataType.INT64
REDUCTIONS = {0: "sum", 1: "mean", 2: "none"}
TINY = 1e-12


def _reduction(t: MindirTape, reduction: Any) -> str:
    name = t.literal(reduction)
    name = REDUCTIONS.get(name, name)
    if name not in ("sum", "mean", "none"):
        t.refuse(f"reduction {name!r}")
    return str(name)


def _reduced(m: Formula, loss: ir.Value, reduction: Any) -> ir.Value:
    """The losses of all items as the reduction has it, in the result's dtype."""
    name = _reduction(m.t, reduction)
    if name != "none":
        loss = m.t.op("ReduceMean" if name == "mean" else "ReduceSum", [loss], keepdims=0, dtype=m.dtype)
    return m.result(loss)


def _sum(m: Formula, x: ir.Value, axis: int, keep: bool = False) -> ir.Value:
    total: ir.Value = m.t.op("ReduceSum", [x, m.t.ints(axis)], keepdims=int(keep), dtype=m.dtype)
    return total


# Distances -----------------------------------------------------------------------------------------------------------


@op("L1LossExt")
def l1_loss(t: MindirTape, input: Any, target: Any, reduction: Any = "mean") -> Any:
    m = Formula(t)
    return _reduced(m, m("Abs", m("Sub", *m.operands(input, target))), reduction)


@op("MSELossExt")
def mse_loss(t: MindirTape, input: Any, target: Any, reduction: Any = "mean") -> Any:
    m = Formula(t)
    distance = m("Sub", *m.operands(input, target))
    return _reduced(m, m("Mul", distance, distance), reduction)


@op("SmoothL1Loss")
def smooth_l1_loss(t: MindirTape, prediction: Any, target: Any, beta: Any = 1.0, reduction: Any = "none") -> Any:
    """Squares of small distances, and large ones themselves."""
    m, limit = Formula(t), float(t.literal(beta))
    distance = m("Abs", m("Sub", *m.operands(prediction, target)))
    large = m("Sub", distance, limit / 2)
    if limit == 0:
        return _reduced(m, large, reduction)
    small = m("Mul", m("Mul", distance, distance), 0.5 / limit)
    return _reduced(m, m.where(m("Less", distance, limit), small, large), reduction)


@op("TripletMarginLoss")
def triplet_margin_loss(
    t: MindirTape,
    x: Any,
    positive: Any,
    negative: Any,
    margin: Any = 1.0,
    *,
    p: Any = 2,
    swap: Any = False,
    eps: Any = 1e-6,
    reduction: Any = "mean",
) -> Any:
    """How much nearer than the negative example the positive one should be."""
    m, power = Formula(t), float(t.literal(p))
    anchor, good, bad, least = m.operands(x, positive, negative, margin)

    def distance(a: ir.Value, b: ir.Value) -> ir.Value:
        size = m("Abs", m("Add", m("Sub", a, b), float(t.literal(eps))))
        return m("Pow", _sum(m, m("Pow", size, power), -1), 1 / power)

    far = distance(anchor, bad)
    if t.literal(swap):
        far = m("Min", far, distance(good, bad))
    return _reduced(m, m("Max", m("Add", m("Sub", distance(anchor, good), far), least), 0), reduction)


@op("CosineEmbeddingLoss")
def cosine_embedding_loss(
    t: MindirTape, input1: Any, input2: Any, target: Any, margin: Any = 0.0, reduction: Any = "mean"
) -> Any:
    """1 less the cosine of alike pairs, and how much that of others exceeds the margin."""
    m = Formula(t)
    a, b, alike = m.operands(input1, input2, target)
    squares = [m("Add", _sum(m, m("Mul", value, value), -1), TINY) for value in (a, b)]
    cosine = m("Div", _sum(m, m("Mul", a, b), -1), m("Sqrt", m("Mul", *squares)))
    apart = m("Max", m("Sub", cosine, float(t.literal(margin))), 0)
    return _reduced(m, m.where(m("Greater", alike, 0), m("Sub", 1, cosine), apart), reduction)


# Probabilities -------------------------------------------------------------------------------------------------------


@op("BinaryCrossEntropy")
def binary_cross_entropy(t: MindirTape, input: Any, target: Any, weight: Any = None, reduction: Any = "mean") -> Any:
    m = Formula(t)
    x, y = m.operands(input, target)
    hit = m("Mul", y, m("Log", m("Max", x, TINY)))
    miss = m("Mul", m("Sub", 1, y), m("Log", m("Max", m("Sub", 1, x), TINY)))
    loss = m("Neg", m("Add", hit, miss))
    if weight is not None:
        loss = m("Mul", loss, *m.operands(weight))
    return _reduced(m, loss, reduction)


def _log_of_sigmoid(m: Formula, x: ir.Value) -> ir.Value:
    """The logarithm of the sigmoid, with its sign turned; no exponential grows."""
    return m("Add", m("Log", m("Add", m("Exp", m("Neg", m("Abs", x))), 1)), m("Max", m("Neg", x), 0))


@op("BCEWithLogitsLoss")
def bce_with_logits_loss(
    t: MindirTape, input: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: Any = "mean"
) -> Any:
    m = Formula(t)
    x, y = m.operands(input, target)
    loss = _log_of_sigmoid(m, x)
    if pos_weight is not None:
        loss = m("Mul", loss, m("Add", m("Mul", m("Sub", *m.operands(pos_weight, 1)), y), 1))
    loss = m("Add", loss, m("Mul", m("Sub", 1, y), x))
    if weight is not None:
        loss = m("Mul", loss, *m.operands(weight))
    return _reduced(m, loss, reduction)


@op("SigmoidCrossEntropyWithLogits")
def sigmoid_cross_entropy(t: MindirTape, logits: Any, label: Any) -> Any:
    return bce_with_logits_loss(t, logits, label, None, None, "none")


@op("SoftMarginLoss")
def soft_margin_loss(t: MindirTape, input: Any, target: Any, reduction: Any = "mean") -> Any:
    m = Formula(t)
    return _reduced(m, _log_of_sigmoid(m, m("Mul", *m.operands(input, target))), reduction)


@op("KLDivLoss")
def kl_div_loss(t: MindirTape, logits: Any, labels: Any, *, reduction: Any = "mean") -> Any:
    m = Formula(t)
    x, y = m.operands(logits, labels)
    # A probability of 0 counts nothing, though its logarithm is infinite.
    loss = m.where(m("Greater", y, 0), m("Mul", y, m("Sub", m("Log", y), x)), 0)
    if t.literal(reduction) != "batchmean":
        return _reduced(m, loss, reduction)
    rows = t.cast(t.op("Shape", [x], start=0, end=1, dtype=INT64), m.dtype)
    total = m("Div", t.op("ReduceSum", [loss], keepdims=0), t.op("Squeeze", [rows], dtype=m.dtype))
    return m.result(total)


@op("KLDiv")
def kl_div(t: MindirTape, input: Any, target: Any, reduction: Any = "mean", log_target: Any = False) -> Any:
    if not t.literal(log_target):
        return kl_div_loss(t, input, target, reduction=_reduction(t, reduction))
    m = Formula(t)
    x, y = m.operands(input, target)
    return _reduced(m, m("Mul", m("Exp", y), m("Sub", y, x)), reduction)


# Classes -------------------------------------------------------------------------------------------------------------


@op("SoftmaxCrossEntropyWithLogits")
def softmax_cross_entropy(t: MindirTape, logits: Any, labels: Any) -> Any:
    """The losses, and their derivative."""
    m = Formula(t)
    x, y = m.operands(logits, labels)
    loss = m("Neg", _sum(m, m("Mul", y, t.op("LogSoftmax", [x], axis=-1)), -1))
    return m.result(loss), m.result(m("Sub", t.op("Softmax", [x], axis=-1, dtype=m.dtype), y))


@op("SparseSoftmaxCrossEntropyWithLogits")
def sparse_softmax_cross_entropy(
    t: MindirTape, logits: Any, labels: ir.Value, *, is_grad: Any = False, sens: Any = 1.0
) -> Any:
    """The mean of the losses."""
    if t.literal(is_grad):
        t.refuse("the derivative of a loss")
    m = Formula(t)
    chances = t.op("LogSoftmax", m.operands(logits), axis=-1, dtype=m.dtype)
    loss = m("Neg", _of_class(m, chances, labels, 1))
    return _reduced(m, loss, "mean")


def _of_class(m: Formula, x: ir.Value, labels: ir.Value, axis: int) -> ir.Value:
    """The value of each item's own class."""
    t = m.t
    places = t.op("Unsqueeze", [t.cast(labels, INT64), t.ints(axis)])
    chosen: ir.Value = t.op("Squeeze", [t.op("GatherElements", [x, places], axis=axis), t.ints(axis)], dtype=m.dtype)
    return chosen


@op("NLLLoss", "NLLLoss2d")
def nll_loss(
    t: MindirTape, logits: Any, labels: ir.Value, weight: Any, reduction: Any = "mean", ignore_index: Any = -100
) -> Any:
    """The weighted value of each item's class, with its sign turned; and the sum of the weights."""
    m = Formula(t)
    x, weights = m.operands(logits, weight)
    classes = t.cast(labels, INT64)
    kept = t.op("Not", [t.op("Equal", [classes, t.constant(t.literal(ignore_index), INT64)])])
    classes = t.op("Where", [kept, classes, t.constant(0, INT64)], dtype=INT64)
    own = m.where(kept, t.op("Gather", [weights, classes], axis=0, dtype=m.dtype), 0)
    total = t.op("ReduceSum", [own], keepdims=0, dtype=m.dtype)
    loss = m("Neg", m("Mul", own, _of_class(m, x, classes, 1 if t.rank(x) > 1 else 0)))
    if _reduction(t, reduction) == "mean":
        return m.result(m("Div", t.op("ReduceSum", [loss], keepdims=0, dtype=m.dtype), total)), m.result(total)
    return _reduced(m, loss, reduction), m.result(total)


@op("MultiMarginLoss")
def multi_margin_loss(
    t: MindirTape,
    inputs: Any,
    target: ir.Value,
    weight: Any = None,
    *,
    p: Any = 1,
    margin: Any = 1.0,
    reduction: Any = "mean",
) -> Any:
    """How much each other class comes within a margin of an item's own."""
    m = Formula(t)
    (x,) = m.operands(inputs)
    own = t.op("Unsqueeze", [_of_class(m, x, target, 1), t.ints(1)], dtype=m.dtype)
    gap = m("Max", m("Add", m("Sub", x, own), float(t.literal(margin))), 0)
    if t.literal(p) == 2:
        gap = m("Mul", gap, gap)
    if weight is not None:
        places = t.op("Unsqueeze", [t.cast(target, INT64), t.ints(1)])
        gap = m("Mul", gap, t.op("Gather", [*m.operands(weight), places], axis=0))
    classes = t.op(
        "Range", [t.constant(0, INT64), t.op("Squeeze", [t.op("Shape", [x], start=1)]), t.constant(1, INT64)]
    )
    others = t.op("Equal", [classes, t.op("Unsqueeze", [t.cast(target, INT64), t.ints(1)])])
    return _reduced(m, t.op("ReduceMean", [m.where(others, 0, gap), t.ints(1)], keepdims=0, dtype=m.dtype), reduction)
