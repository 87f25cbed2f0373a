"""In-place operators, views, aliases and mutable weights."""

import mindspore as ms
from mindspore import Parameter, Tensor

from mindir_fixtures.table import Case, boolean, case, f32, i32, values

X = f32(3, 5)


def cases() -> list[Case]:
    return [*operators(), *aliases(), *views(), *methods(), *weights()]


def operators() -> list[Case]:
    symbols = {"add": "+=", "sub": "-=", "mul": "*=", "div": "/=", "floor_div": "//=", "mod": "%=", "pow": "**="}
    result: list[Case] = []
    for name, symbol in symbols.items():
        positive = f32(3, 5, low=0.3, high=2)
        result.append(case(f"inplace_{name}", f"z = x * 2\nz {symbol} y\nreturn z", positive, positive))
        result.append(case(f"inplace_{name}_scalar", f"z = x * 2\nz {symbol} 3\nreturn z", positive))
        result.append(case(f"inplace_{name}_float_scalar", f"z = x * 2\nz {symbol} 1.5\nreturn z", positive))
    return [
        *result,
        case("inplace_add_broadcast", "z = x * 2\nz += y\nreturn z", X, f32(5)),
        case("inplace_add_int32", "z = x * 2\nz += y\nreturn z", i32(3, 5), i32(5)),
        case("inplace_add_mixed", "z = x * 2\nz += y\nreturn z", X, i32(5)),
        case("inplace_add_input", "x += y\nreturn x", X, X),
        case("inplace_add_input_also_returned", "z = x\nx += y\nreturn x, z", X, X),
        case("inplace_residual", "y = ops.relu(x)\ny += x\nreturn ops.relu(y)", X),
        case("inplace_twice", "z = x * 2\nz += y\nz *= y\nz -= 1\nreturn z", X, X),
        case("inplace_and_bool", "z = ops.logical_not(x)\nz &= y\nreturn z", boolean(3, 5), boolean(3, 5)),
        case("inplace_or_bool", "z = ops.logical_not(x)\nz |= y\nreturn z", boolean(3, 5), boolean(3, 5)),
    ]


def aliases() -> list[Case]:
    texts = {
        "read_after": "a = x * 2\nb = a\na += x\nreturn a, b",
        "read_before": "a = x * 2\nb = a + 1\na += x\nreturn a, b",
        "read_before_and_after": "a = x * 2\nb = a + 1\na += x\nc = a + 1\nreturn a, b, c",
        "chain": "a = x * 2\nb = a\na += x\nb += x\nc = a * b\nreturn a, b, c",
        "reshape_is_copy": "a = x * 2\nb = a.reshape(5, 3)\na += x\nreturn a, b",
        "copy": "a = x * 2\nb = a.copy()\na += x\nreturn a, b",
        "out_of_place_breaks": "a = x * 2\nb = a\na = a + x\nreturn a, b",
        "relu_identity": "identity = x * 1\ny = ops.relu(identity)\ny += identity\nidentity += y\nreturn y, identity",
        "loop": "a = x * 2\nfor i in range(3):\n    a += x\n    a *= 0.5\nreturn a",
    }
    bug = {"chain": "MindSpore's loader drops the second of two equal in-place additions"}
    return [case(f"alias_{name}", text, X, loader_bug=bug.get(name)) for name, text in texts.items()]


def views() -> list[Case]:
    texts = {
        "transpose_then_base": "a = x * 2\nb = mint.transpose(a, 0, 1)\na += 1\nreturn a, b",
        "narrow_then_base": "a = x * 2\nb = mint.narrow(a, 1, 1, 3)\na *= 3\nreturn a, b",
        "select_then_base": "a = x * 2\nb = mint.select(a, 1, 2)\na += 1\nreturn a, b",
        "chunk_then_base": "a = x * 2\nb = mint.chunk(a, 2, 1)\na += 1\nreturn a, b[0], b[1]",
        "unsqueeze_then_view": "a = x * 2\nb = mint.unsqueeze(a, 1)\nb += 10\nreturn a, b",
        "squeeze_then_view": "a = mint.unsqueeze(x * 2, 0)\nb = mint.squeeze(a, 0)\nb += 10\nreturn a, b",
        "broadcast_then_base": "a = x * 2\nb = mint.broadcast_to(a, (2, 3, 5))\na += 1\nreturn a, b",
        "permute_then_base": "a = x * 2\nb = mint.permute(a, (1, 0))\na += 1\nreturn a, b",
        "view_method": "a = x * 2\nb = a.view(5, 3)\na += 1\nreturn a, b",
        "view_as_same_shape": "a = x * 2\nb = a.view_as(x)\nb.add_(1)\nreturn a, b",
        "index_then_base": "a = x * 2\nb = a[1]\na += 1\nreturn a, b",
        "index_then_view": "a = x * 2\nb = a[1]\nb += 1\nreturn a, b",
        "view_only": "a = mint.transpose(x, 0, 1)\nreturn mint.narrow(a, 0, 1, 3) * 2",
        "view_read_before": "a = x * 2\nb = mint.transpose(a, 0, 1)\nc = b * 1\na += 1\nreturn b, c",
        "unbind_then_base": "a = x * 2\nb = mint.unbind(a, 0)\na += 1\nreturn a, b[0], b[2]",
    }
    return [case(f"view_{name}", text, X) for name, text in texts.items()]


def methods() -> list[Case]:
    # scatter_: the CPU kernel gives the right result, and leaves its input as it was.
    texts = {
        "add_": "z = x * 1\nz.add_(y, alpha=2)\nreturn z",
        "sub_": "z = x * 1\nz.sub_(y, alpha=2)\nreturn z",
        "mul_": "z = x * 1\nz.mul_(y)\nreturn z",
        "div_": "z = x * 1\nz.div_(y)\nreturn z",
        "copy_": "z = x * 1\nz.copy_(y)\nreturn z",
        "scatter_": "z = x * 1\nz = z.scatter_(1, ms.Tensor([[0, 2]]), y[:1, :2])\nreturn z",
        "remainder_": "z = x * 1\nz.remainder_(2)\nreturn z + y",
    }
    return [
        case(f"inplace_method_{name.strip('_')}", text, X, f32(3, 5, low=0.4, high=2)) for name, text in texts.items()
    ]


def weights() -> list[Case]:
    def state() -> Parameter:
        return Parameter(Tensor([1.0, -2, 3, -4, 5], ms.float32), name="kept_state")

    texts = {
        "assign": "ops.assign(self.a, x[0])\nreturn self.a * 2",
        "assign_read_before": "b = self.a * 2\nops.assign(self.a, x[0])\nreturn b, self.a + 0",
        "assign_add": "ops.assign_add(self.a, x[0])\nreturn self.a + x",
        "assign_sub": "ops.assign_sub(self.a, x[0])\nreturn self.a + x",
        "python_assign": "self.a = self.a + 1\nreturn x * self.a",
        "python_add": "self.a += 1\nreturn x * self.a",
        "set_slice": "self.a[1:3] = 0\nreturn x * self.a",
        "counter": "ops.assign_add(self.a, self.a)\nops.assign_add(self.a, self.a)\nreturn x * self.a",
        "assign_returned": "return ops.assign(self.a, x[1]), x + 1",
        "not_written": "return x * self.a",
    }
    return [
        *[case(f"state_{name}", text, X, a=state()) for name, text in texts.items()],
        case(
            "state_cache_write",
            "self.a[:, y] = x\nreturn self.a.sum(1) + x",
            f32(3),
            values(2, "int32"),
            a=Parameter(Tensor([[0.5] * 4] * 3, ms.float32), name="kept_cache"),
        ),
    ]
