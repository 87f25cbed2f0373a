"""Control flow cases: branches and loops that depend on tensors."""

import mindspore as ms
from mindspore import Parameter, Tensor, nn

from mindir_fixtures.table import Case, case, f32, values

X = f32(3, 5)

BRANCHES = {
    "if": """
        if x.sum() > 0:
            y = x + 1
        else:
            y = x - 1
        return y
    """,
    "if_not": """
        if not (x.sum() > 100):
            y = x * 2
        else:
            y = x
        return y
    """,
    "if_tuple": """
        if x.sum() > 0:
            a, b = x + 1, x
        else:
            a, b = x - 1, x * 2
        return a, b
    """,
    "if_early_return": """
        if x.mean() > 10:
            return x
        y = ops.relu(x)
        return y * 2
    """,
    "if_nested": """
        y = x
        if x.sum() > -1000:
            if x.max() > 3:
                y = x * 3
            else:
                y = x * 2
        else:
            y = -x
        return y
    """,
    "if_only": """
        y = x
        if x.sum() < 1000:
            y = y + 2
        return y
    """,
    "if_expression": "return x + 1 if x.sum() > 0 else x - 1",
    "if_after_if": """
        y = x
        if x.sum() > 0:
            y = y + 1
        if y.max() > 0:
            y = y * 2
        return y, x
    """,
    "if_shared_value": """
        z = ops.exp(x)
        if x.sum() > 1000:
            y = z + 1
        else:
            y = z * z
        return y + z
    """,
    "elif": """
        s = x.sum()
        if s > 100:
            y = x
        elif s > -100:
            y = x * 2
        else:
            y = x * 3
        return y
    """,
    "and": """
        if x.sum() > -1000 and x.max() > 0:
            y = x + 1
        else:
            y = x - 1
        return y
    """,
}

LOOPS = {
    "while": """
        y = x
        while ops.abs(y).sum() < 100:
            y = y * 2
        return y
    """,
    "while_never": """
        y = x
        while ops.abs(y).sum() < 0:
            y = y * 2
        return y + 1
    """,
    "while_counter": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 4:
            y = y + i
            i = i + 1
        return y, i
    """,
    "while_if": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 5:
            if y.sum() > 0:
                y = y - 1
            else:
                y = y + 2
            i = i + 1
        return y
    """,
    "while_break": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 10:
            y = y * 2
            if ops.abs(y).max() > 50:
                break
            i = i + 1
        return y, i
    """,
    "while_continue": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 6:
            i = i + 1
            if i % 2 == 0:
                continue
            y = y + i
        return y
    """,
    "while_nested": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 3:
            j = ops.zeros((), mstype.int32)
            while j < 2:
                y = y + j
                j = j + 1
            y = y * 1.5
            i = i + 1
        return y
    """,
    "while_then_while": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 3:
            y = y * 1.5
            i = i + 1
        while i < 5:
            y = y - 1
            i = i + 1
        return y
    """,
    "for_unrolled": """
        y = x
        for i in range(3):
            y = y * 1.5 + i
        return y
    """,
    "for_tensor_condition": """
        y = x
        for i in range(3):
            if y.sum() < 20:
                y = y + 1
        return y
    """,
}

WEIGHTED = {
    "if_weight": """
        if x.sum() > 1000:
            y = x * self.a
        else:
            y = x - self.a
        return y
    """,
    "while_weight": """
        i = ops.zeros((), mstype.int32)
        y = x
        while i < 3:
            y = y * 0.5 + self.a
            i = i + 1
        return y
    """,
    "if_layer": """
        if x.sum() > -1000:
            y = self.layer(x)
        else:
            y = x
        return y
    """,
}

BY_INPUT = """
    if y:
        z = x + 1
    else:
        z = x * 2
    return z
"""


class Chooser(nn.Cell):
    """Calls one of several layers, by an index that is known at run time only."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.CellList([nn.ReLU(), nn.Tanh(), nn.Dense(5, 5)])

    def construct(self, x, index):
        return self.layers[index](x)


def cases() -> list[Case]:
    members = {"a": Parameter(Tensor([1.0, -2, 3, -4, 5], ms.float32), name="kept_a"), "layer": nn.Dense(5, 5)}
    return [
        *[case(f"control_{name}", text, X) for name, text in (BRANCHES | LOOPS).items()],
        *[case(f"control_{name}", text, X, **members) for name, text in WEIGHTED.items()],
        case("control_if_input_true", BY_INPUT, X, values(True, "bool")),
        case("control_if_input_false", BY_INPUT, X, values(False, "bool")),
        *[case(f"control_switch_layer_{k}", Chooser(), X, values(k, "int32")) for k in range(3)],
    ]
