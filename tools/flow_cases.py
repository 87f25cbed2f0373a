"""Networks with control flow and state, and the inputs of their calls; see ``make_flow_fixtures.py``."""

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

X = np.arange(15, dtype=np.float32).reshape(3, 5) / 4 - 1
NEGATIVE = -X - 2
LARGE = X * 20
CALLS = [[X], [NEGATIVE], [LARGE]]
FLOAT = ms.float32

CASES: dict[str, tuple[Callable[[], nn.Cell], list[list[np.ndarray]]]] = {}
DYNAMIC: dict[str, list[tuple[list[int | None], Any]]] = {}


def case(name: str, calls: list[list[np.ndarray]] | None = None, dynamic: Any = None) -> Any:
    def register(cell: type[nn.Cell]) -> type[nn.Cell]:
        CASES[name] = (cell, calls or CALLS)
        if dynamic is not None:
            DYNAMIC[name] = dynamic
        return cell

    return register


def zero() -> Tensor:
    return Tensor(0, ms.int32)


def parameter(name: str, value: Any) -> Parameter:
    return Parameter(Tensor(np.asarray(value)), name=name)


# Branches -------------------------------------------------------------------------------------------------------------


@case("if_chain_of_returns")
class ChainOfReturns(nn.Cell):
    def construct(self, x):
        if x.sum() > 100:
            return x * 2
        if x.sum() > 0:
            return x - 1
        if x.max() < -5:
            return x
        y = ops.relu(x)
        if y.sum() > 1:
            return y
        return y - 3


@case("if_in_place")
class IfInPlace(nn.Cell):
    def construct(self, x):
        a = x * 1.0
        b = a
        if x.sum() > 0:
            a += 1
        else:
            a -= 5
        return a, b * 2


@case("if_in_place_one_side")
class IfInPlaceOneSide(nn.Cell):
    def construct(self, x):
        a = x * 1.0
        if x.sum() > 0:
            a *= 3
        return a + 1


@case("if_passes_memory_on")
class IfPassesMemoryOn(nn.Cell):
    def construct(self, x):
        a = x * 1.0
        if x.sum() > 0:
            y = a
        else:
            y = a * 2
        y += 1
        return y


@case("if_tuples")
class IfTuples(nn.Cell):
    def construct(self, x):
        if x.sum() > 0:
            pair = (x, (x + 1, x * 2))
        else:
            pair = (-x, (x - 1, x / 2))
        return pair[0] + pair[1][0], pair[1][1]


@case("if_numbers")
class IfNumbers(nn.Cell):
    def construct(self, x):
        if x.sum() > 0:
            factor = 3
            shift = 0.5
        else:
            factor = 5
            shift = 1.5
        return x * factor + shift


@case("if_in_if_in_if")
class IfInIfInIf(nn.Cell):
    def construct(self, x):
        y = x
        if x.sum() > 0:
            y = y + 1
            if x.max() > 10:
                y = y * 2
                if x.min() < -15:
                    y = y - 100
                else:
                    y = y + 100
            y = y - 2
        else:
            if x.min() < -3:
                y = ops.relu(y)
            y = y + 7
        return y


@case("if_one_line")
class IfOneLine(nn.Cell):
    def construct(self, x):
        return (x if x.sum() > 0 else -x) + (1 if x.max() > 10 else 2)


@case("if_other_shape_inside")
class IfOtherShapeInside(nn.Cell):
    def construct(self, x):
        if x.sum() > 0:
            y = ops.cat((x, x), 0).sum(0)
        else:
            y = x[1:].sum(0)
        return y


@case("if_with_layers")
class IfWithLayers(nn.Cell):
    def __init__(self):
        super().__init__()
        ms.set_seed(1)
        self.first = nn.Dense(5, 4)
        self.second = nn.SequentialCell(nn.Dense(5, 8), nn.ReLU(), nn.Dense(8, 4))

    def construct(self, x):
        y = self.first(x) if x.sum() > 0 else self.second(x)
        return ops.softmax(y, -1)


@case("if_and_or_not")
class IfAndOrNot(nn.Cell):
    def construct(self, x):
        if (x.sum() > 0 and x.max() > 10) or not x.min() > -2:
            return x + 1
        return x - 1


@case("if_many_returns")
class IfManyReturns(nn.Cell):
    """What follows each if is written once, not into both its branches."""

    def construct(self, x):
        y = x
        if y.sum() > 0:
            if y.max() > 2:
                return y * 0
            y = y + 1.0
        y = y * 0.5 + 0
        if y.sum() > 1:
            if y.max() > 3:
                return y * 1
            y = y + 1.0
        y = y * 0.5 + 1
        if y.sum() > 2:
            if y.max() > 4:
                return y * 2
            y = y + 1.0
        y = y * 0.5 + 2
        if y.sum() > 3:
            if y.max() > 5:
                return y * 3
            y = y + 1.0
        y = y * 0.5 + 3
        if y.sum() > 4:
            if y.max() > 6:
                return y * 4
            y = y + 1.0
        y = y * 0.5 + 4
        if y.sum() > 5:
            if y.max() > 7:
                return y * 5
            y = y + 1.0
        y = y * 0.5 + 5
        if y.sum() > 6:
            if y.max() > 8:
                return y * 6
            y = y + 1.0
        y = y * 0.5 + 6
        if y.sum() > 7:
            if y.max() > 9:
                return y * 7
            y = y + 1.0
        y = y * 0.5 + 7
        if y.sum() > 8:
            if y.max() > 10:
                return y * 8
            y = y + 1.0
        y = y * 0.5 + 8
        return y


# Functions ------------------------------------------------------------------------------------------------------------


@case("function_twice")
class FunctionTwice(nn.Cell):
    def shrink(self, x, limit):
        if x.max() > limit:
            return x / 2, limit
        return x, limit + 1

    def construct(self, x):
        a, limit = self.shrink(x, Tensor(3.0))
        b, limit = self.shrink(a + 1, limit)
        c, limit = self.shrink(b * 3, limit)
        return a, b, c, limit


@case("function_with_loop_twice")
class FunctionWithLoopTwice(nn.Cell):
    def double(self, x, n):
        i = zero()
        while i < n:
            x = x * 2
            i = i + 1
        return x

    def construct(self, x):
        return self.double(x, 3) + self.double(x + 1, 2)


@case("function_choice", [[np.int32(0), X], [np.int32(1), X], [np.int32(2), X], [np.int32(-1), X]])
class FunctionChoice(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([nn.ReLU(), nn.Softmax(), nn.Tanh()])

    def construct(self, index, x):
        return self.layers[index](x) + 1


# Loops ----------------------------------------------------------------------------------------------------------------


@case("while_break_continue_return")
class WhileBreakContinueReturn(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 10:
            i = i + 1
            x = x * 1.5
            if x.max() > 50:
                return x, i
            if x.min() < -30:
                break
            if x.sum() > 20:
                x = x - 1
                continue
            x = x + 0.25
        y = ops.relu(x)
        return y - 3, i


@case("while_in_while")
class WhileInWhile(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 4:
            j = zero()
            while j < i:
                x = x + 1
                j = j + 1
            x = x * 2
            i = i + 1
        return x


@case("while_in_while_breaks")
class WhileInWhileBreaks(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 6:
            j = zero()
            while j < 3:
                x = x + 1
                j = j + 1
                if x.sum() > 40:
                    break
            if x.sum() > 100:
                return x * 0, i, j
            if x.min() > 4:
                break
            i = i + 1
        return x, i, i * 2


@case("while_in_while_in_while")
class WhileInWhileInWhile(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 3:
            j = zero()
            while j < 2:
                k = zero()
                while k < j + 1:
                    x = x + k
                    k = k + 1
                x = x - 0.5
                j = j + 1
            i = i + 1
        return x


@case("while_in_if_in_while")
class WhileInIfInWhile(nn.Cell):
    def construct(self, x):
        i = zero()
        total = x.sum()
        while i < 3:
            if x.sum() > 5:
                j = zero()
                while x.sum() > 2 and j < 5:
                    x = x - 0.5
                    j = j + 1
            else:
                x = x + 1
            total = total + x.sum()
            i = i + 1
        return x, total


@case("while_tuple_state")
class WhileTupleState(nn.Cell):
    def construct(self, x):
        i = zero()
        pair = (x, x * 2)
        while i < 3:
            pair = (pair[1], pair[0] + pair[1])
            i = i + 1
        return pair


@case("while_swap")
class WhileSwap(nn.Cell):
    def construct(self, x):
        a = x
        b = -x
        i = zero()
        while i < 5:
            a, b = b, a + 1
            i = i + 1
        return a, b


@case("while_in_place")
class WhileInPlace(nn.Cell):
    def construct(self, x):
        y = x * 1.0
        z = y
        i = zero()
        while i < 3:
            y += 1
            i = i + 1
        return y, z


@case("while_in_place_counter", [[X]])
class WhileInPlaceCounter(nn.Cell):
    """One call: MindSpore keeps what is written into a constant for the next one."""

    def construct(self, x):
        i = zero()
        while i < 3:
            x = x * 2
            i += 1
        return x, i


@case("while_in_place_inside")
class WhileInPlaceInside(nn.Cell):
    def construct(self, x):
        i = zero()
        total = x * 0.0
        while i < 3:
            y = x * 2
            y += i
            y[0] = 7.0
            total = total + y
            i = i + 1
        return total


@case("while_invariant")
class WhileInvariant(nn.Cell):
    def __init__(self):
        super().__init__()
        self.weight = parameter("weight", np.linspace(-1, 1, 25, dtype=np.float32).reshape(5, 5))

    def construct(self, x):
        step = ops.tanh(x)
        i = zero()
        while i < 4:
            x = ops.matmul(x, self.weight) + step
            i = i + 1
        return x


@case("while_condition_from_body")
class WhileConditionFromBody(nn.Cell):
    def construct(self, x):
        error = Tensor(100.0, FLOAT)
        while error > 0.1:
            y = x / 2 + 0.1
            error = ops.abs(y - x).max()
            x = y
        return x, error


@case("while_never")
class WhileNever(nn.Cell):
    def construct(self, x):
        i = Tensor(5, ms.int32)
        while i < x.sum() * 0:
            x = x + 1
            i = i + 1
        return x, i


@case("while_result_written")
class WhileResultWritten(nn.Cell):
    def construct(self, x):
        i = zero()
        y = x * 1.0
        while i < 2:
            y = y + 1
            i = i + 1
        y += 10
        return y


@case("while_after_while")
class WhileAfterWhile(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 2:
            x = x + 1
            i = i + 1
        while i < 6 and x.sum() < 50:
            x = x * 1.25
            i = i + 1
        y = ops.relu(x)
        while i > 0:
            y = y - 0.125
            i = i - 1
        return y, i


@case("while_if_else_tail")
class WhileIfElseTail(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 6:
            if x.sum() > 10:
                x = x - 2
            elif x.sum() > 0:
                x = x * 1.5
            else:
                x = x + 3
            i = i + 1
        return x


@case("while_with_cell")
class WhileWithCell(nn.Cell):
    def __init__(self):
        super().__init__()
        ms.set_seed(3)
        self.cell = nn.GRUCell(5, 6)

    def construct(self, x):
        hidden = ops.zeros((3, 6), FLOAT)
        i = zero()
        while i < 4:
            hidden = self.cell(x + i, hidden)
            i = i + 1
        return hidden


@case("for_range")
class ForRange(nn.Cell):
    def construct(self, x):
        y = x
        for i in range(4):
            if y.sum() > 10:
                y = y - i
            else:
                y = y + 2 * i
        return y


@case("for_rows")
class ForRows(nn.Cell):
    def construct(self, x):
        total = ops.zeros_like(x[0])
        for row in x:
            if row.sum() > 0:
                total = total + row
            else:
                total = total - row
        return total


@case("for_break")
class ForBreak(nn.Cell):
    def construct(self, x):
        y = x
        for i in range(5):
            y = y + i
            if y.sum() > 30:
                break
        return y


@case("greedy_search", [[np.int32(1)], [np.int32(4)]])
class GreedySearch(nn.Cell):
    """A decoder that takes the best next word until it meets the end."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(5)
        self.table = parameter("table", rng.standard_normal((9, 6)).astype(np.float32))
        self.out = parameter("out", rng.standard_normal((6, 9)).astype(np.float32))

    def construct(self, first):
        words = ops.zeros((8,), ms.int32)
        state = ops.zeros((6,), FLOAT)
        word = first
        i = zero()
        while i < 8:
            state = ops.tanh(state + ops.gather(self.table, word, 0))
            word = ops.argmax(ops.matmul(state, self.out)).astype(ms.int32)
            if word == 3:
                break
            words = ops.tensor_scatter_update(words, i.reshape((1, 1)), word.reshape((1,)))
            i = i + 1
        return words, i, state


@case("while_true")
class WhileTrue(nn.Cell):
    def construct(self, x):
        i = zero()
        while True:
            x = x * 1.5
            i = i + 1
            if i >= 4 or x.max() > 60:
                break
        return x, i


@case("while_list_state")
class WhileListState(nn.Cell):
    def construct(self, x):
        parts = [x, x + 1, x * 2]
        i = zero()
        while i < 2:
            parts = [parts[2], parts[0], parts[1] - 1]
            i = i + 1
        return parts[0] + parts[1] * 2 + parts[2] * 3


@case("while_calls_a_function_that_returns_early")
class WhileCallsEarlyReturn(nn.Cell):
    def limited(self, x, i):
        if x.max() > 20:
            return x / 4
        if i > 2:
            return x + 10
        return x * 2

    def construct(self, x):
        i = zero()
        while i < 5:
            x = self.limited(x, i)
            i = i + 1
        return x


@case("while_function_with_loop_inside")
class WhileFunctionWithLoopInside(nn.Cell):
    def halve(self, x):
        j = zero()
        while x.max() > 4 and j < 10:
            x = x / 2
            j = j + 1
        return x, j

    def construct(self, x):
        i = zero()
        total = zero()
        while i < 3:
            x, j = self.halve(x * 5)
            total = total + j
            i = i + 1
        return x, total


@case("while_reads_what_it_wrote_before")
class WhileReadsWhatItWroteBefore(nn.Cell):
    def construct(self, x):
        seen = ops.zeros((4, 5), FLOAT)
        i = zero()
        while i < 4:
            seen[i] = x.sum(0) + i
            x = x - seen[0]
            i = i + 1
        return seen, x


@case("while_condition_of_one_number", [[X, np.array([2], np.int32)], [X, np.array([0], np.int32)]])
class WhileConditionOfOneNumber(nn.Cell):
    def construct(self, x, n):
        i = Tensor([0], ms.int32)
        while i < n:
            x = x + 1
            i = i + 1
        return x


@case("for_in_while")
class ForInWhile(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 2:
            for k in range(3):
                if x.sum() > 25:
                    break
                x = x + k
            i = i + 1
        return x


@case("if_none")
class IfNone(nn.Cell):
    def half(self, x, mask=None):
        if mask is None:
            return x / 2
        return x * mask

    def construct(self, x):
        if x.sum() > 0:
            return self.half(x)
        return self.half(x, x + 1)


@case("if_both_sides_the_same")
class IfBothSidesTheSame(nn.Cell):
    def construct(self, x):
        a = ops.relu(x)
        if x.sum() > 0:
            y = a
        else:
            y = a
        return y + a


ROUNDS = [[X, np.int32(rounds)] for rounds in (3, 0, 1, 0)]


@case("rounds_return", ROUNDS)
class RoundsReturn(nn.Cell):
    def construct(self, x, n):
        i = n - n
        while i < n:
            i = i + 1
            if x.sum() > 1:
                return (x + 1,)
        return (x - 1,)


@case("rounds_break", ROUNDS)
class RoundsBreak(nn.Cell):
    def construct(self, x, n):
        i = n - n
        y = x * 2
        while i < n:
            i = i + 1
            y = y + i
            if y.sum() > 60:
                break
            y = y * 1.5
        return y, i


@case("rounds_nested", ROUNDS)
class RoundsNested(nn.Cell):
    def construct(self, x, n):
        i = n - n
        while i < n:
            j = zero()
            while j < i:
                x = x + 1
                j = j + 1
                if x.sum() > 30:
                    break
            i = i + 1
            if x.max() > 9:
                return x, i
        return x * 2, i


@case("rounds_unread", ROUNDS)
class RoundsUnread(nn.Cell):
    def construct(self, x, n):
        i = n - n
        y = x * 10
        while i < n:
            i = i + 1
            y = x + i
        return y


@case("rounds_in_place_and_new", ROUNDS)
class RoundsInPlaceAndNew(nn.Cell):
    def construct(self, x, n):
        i = n - n
        b = x * 1.0
        while i < n:
            i = i + 1
            b += 1.0
            b = b * 0.5
        return b


@case("rounds_state", ROUNDS)
class RoundsState(nn.Cell):
    def __init__(self):
        super().__init__()
        self.p = parameter("p", np.zeros(5, np.float32))

    def construct(self, x, n):
        i = n - n
        while i < n:
            i = i + 1
            ops.assign(self.p, x[0] + i)
        return x * self.p


@case("if_known_condition", ROUNDS)
class IfKnownCondition(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flag = parameter("flag", np.int32(0))

    def construct(self, x, n):
        b = x + n
        if self.flag < 9:
            if self.flag > 9:
                return b * 2.0
        if b.max() < 1.13:
            b = b - 0.5
        return b * 3.0


# Dynamic shapes -------------------------------------------------------------------------------------------------------


@case("if_dynamic", [[X], [X[:1]], [np.concatenate([X, X])]], [([None, 5], FLOAT)])
class IfDynamic(nn.Cell):
    def construct(self, x):
        if x.shape[0] > 2:
            return x.sum(0)
        return x.max(0)


@case("while_dynamic", [[X], [X[:1]], [np.concatenate([X, X])]], [([None, 5], FLOAT)])
class WhileDynamic(nn.Cell):
    def construct(self, x):
        i = zero()
        while i < 3:
            x = x * 2 + 1
            i = i + 1
        return x


@case("while_rows_dynamic", [[X], [X[:1]], [np.concatenate([X, X])]], [([None, 5], FLOAT)])
class WhileRowsDynamic(nn.Cell):
    def construct(self, x):
        i = zero()
        total = ops.zeros((5,), FLOAT)
        while i < x.shape[0]:
            total = total + ops.gather(x, i, 0)
            i = i + 1
        return total


# State ----------------------------------------------------------------------------------------------------------------


@case("state_counter")
class StateCounter(nn.Cell):
    def __init__(self):
        super().__init__()
        self.count = parameter("count", np.int32(7))

    def construct(self, x):
        self.count = self.count + 1
        return x + self.count, self.count


@case("state_in_if")
class StateInIf(nn.Cell):
    def __init__(self):
        super().__init__()
        self.p = parameter("p", np.zeros(5, np.float32))

    def construct(self, x):
        if x.sum() > 0:
            self.p = self.p + x[0]
        else:
            self.p = self.p - 1
        return x + self.p


@case("state_in_if_one_side")
class StateInIfOneSide(nn.Cell):
    def __init__(self):
        super().__init__()
        self.p = parameter("p", np.ones(5, np.float32))

    def construct(self, x):
        before = x * self.p
        if x.sum() > 0:
            ops.assign(self.p, x[1])
        return before, x * self.p


@case("state_in_while")
class StateInWhile(nn.Cell):
    def __init__(self):
        super().__init__()
        self.p = parameter("p", np.zeros(5, np.float32))

    def construct(self, x):
        i = zero()
        while i < 3:
            self.p = self.p + x[0]
            i = i + 1
        return x + self.p


@case("state_in_nested_while")
class StateInNestedWhile(nn.Cell):
    def __init__(self):
        super().__init__()
        self.total = parameter("total", np.float32(0))
        self.rounds = parameter("rounds", np.int32(0))

    def construct(self, x):
        i = zero()
        while i < 3:
            j = zero()
            while j < 2:
                self.total = self.total + x.sum()
                j = j + 1
                if self.total > 100:
                    break
            self.rounds = self.rounds + j
            i = i + 1
        return self.total, self.rounds


@case("state_decides")
class StateDecides(nn.Cell):
    def __init__(self):
        super().__init__()
        self.on = parameter("on", np.float32(0))

    def construct(self, x):
        if self.on > 0:
            y = x * 10
        else:
            y = x
        self.on = 1 - self.on
        return y


@case("state_loop_bound")
class StateLoopBound(nn.Cell):
    def __init__(self):
        super().__init__()
        self.n = parameter("n", np.int32(1))

    def construct(self, x):
        i = zero()
        while i < self.n:
            x = x + 1
            i = i + 1
        self.n = self.n * 2
        return x, self.n


@case("state_cache", [[X[:1]], [X[1:2]], [X[2:3]], [X[:1] * 3]])
class StateCache(nn.Cell):
    """A key and value cache: attention of one new token over all tokens so far."""

    def __init__(self):
        super().__init__()
        self.keys = parameter("keys", np.zeros((8, 5), np.float32))
        self.values = parameter("values", np.zeros((8, 5), np.float32))
        self.position = parameter("position", np.int32(0))
        self.places = Tensor(np.arange(8, dtype=np.int32))

    def construct(self, x):
        self.keys[self.position] = x[0]
        self.values[self.position] = ops.tanh(x[0])
        scores = ops.matmul(x, self.keys.T)
        scores = ops.where(self.places <= self.position, scores, Tensor(-1e9, FLOAT))
        self.position = self.position + 1
        return ops.matmul(ops.softmax(scores, -1), self.values)


@case("state_slice_written")
class StateSliceWritten(nn.Cell):
    def __init__(self):
        super().__init__()
        self.p = parameter("p", np.zeros((4, 5), np.float32))

    def construct(self, x):
        self.p[1:3] = x[:2]
        self.p[:, 0] += 1
        return self.p * 1.0


@case("state_moving_average")
class StateMovingAverage(nn.Cell):
    def __init__(self):
        super().__init__()
        self.mean = parameter("mean", np.zeros(5, np.float32))

    def construct(self, x):
        ops.assign(self.mean, self.mean * 0.9 + x.mean(0) * 0.1)
        return x - self.mean


@case("state_swap")
class StateSwap(nn.Cell):
    def __init__(self):
        super().__init__()
        self.a = parameter("a", np.zeros(5, np.float32))
        self.b = parameter("b", np.ones(5, np.float32))

    def construct(self, x):
        old = self.a * 1.0
        self.a = self.b + x[0]
        self.b = old
        return self.a, self.b


@case("state_and_other_weights")
class StateAndOtherWeights(nn.Cell):
    def __init__(self):
        super().__init__()
        ms.set_seed(2)
        self.dense = nn.Dense(5, 5)
        self.hidden = parameter("hidden", np.zeros((3, 5), np.float32))

    def construct(self, x):
        self.hidden = ops.tanh(self.dense(x) + self.hidden)
        return self.hidden * 2


@case("state_in_condition")
class StateInCondition(nn.Cell):
    def __init__(self):
        super().__init__()
        self.left = parameter("left", np.int32(5))

    def take(self):
        self.left = self.left - 1
        return self.left

    def construct(self, x):
        while self.take() > 2:
            x = x + 1
        return x, self.left


@case("state_in_function_of_both_sides")
class StateInFunctionOfBothSides(nn.Cell):
    def __init__(self):
        super().__init__()
        self.total = parameter("total", np.zeros(5, np.float32))

    def note(self, row):
        self.total = self.total + row
        return self.total * 2

    def construct(self, x):
        if x.sum() > 0:
            y = self.note(x[0])
        else:
            y = self.note(x[1]) + self.note(x[2])
        return y, self.total


@case("state_read_before_and_after_a_loop")
class StateReadBeforeAndAfterALoop(nn.Cell):
    def __init__(self):
        super().__init__()
        self.p = parameter("p", np.float32(1))

    def construct(self, x):
        before = self.p * 1.0
        i = zero()
        while i < 3:
            self.p = self.p * 2
            if self.p > 10:
                break
            i = i + 1
        return before, self.p * 1.0, x + self.p


@case("state_scattered_in_while", [[X], [X * 2]])
class StateScatteredInWhile(nn.Cell):
    def __init__(self):
        super().__init__()
        self.table = parameter("table", np.zeros((4, 5), np.float32))

    def construct(self, x):
        i = zero()
        while i < 3:
            self.table[i] = self.table[i] + x[i]
            i = i + 1
        return self.table.sum(0)


@case("state_written_after_a_call")
class StateWrittenAfterACall(nn.Cell):
    def __init__(self):
        super().__init__()
        self.p = parameter("p", np.ones(5, np.float32))

    def scaled(self, x):
        if x.max() > 9:
            return x * self.p
        return x - self.p

    def construct(self, x):
        if x.sum() > 0:
            y = self.scaled(x)
            ops.assign(self.p, x[1])
            return y
        y = self.scaled(x + 1)
        ops.assign(self.p, self.p * 2)
        return y
