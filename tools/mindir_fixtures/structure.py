"""Graph structure cases: outputs, inputs, constants, numbers computed on the host."""

import mindspore as ms
from mindspore import Parameter, Tensor

from mindir_fixtures.table import Case, boolean, case, f32, i32, values

X = f32(3, 5)


def parameter(items: object, name: str) -> Parameter:
    return Parameter(Tensor(items, ms.float32), name=f"kept_{name}")


def cases() -> list[Case]:
    return [*outputs(), *inputs(), *constants(), *host_arithmetic()]


def outputs() -> list[Case]:
    texts = {
        "tuple": "x + y, x - y",
        "nested_tuple": "(x + y, (x - y, (x * y,))), x / 2",
        "list": "[x + y, x - y]",
        "list_in_tuple": "x, [x + y, x - y], y * 2",
        "dict": "{'first': x + y, 'second': x - y}",
        "dict_of_tuples": "{'a': (x + y, x), 'b': x * y}",
        "same_twice": "z = x + y\nreturn z, z",
        "input_direct": "x",
        "inputs_swapped": "y, x",
        "input_and_result": "x, x + y",
        "input_twice": "x, x",
        "constant": "ops.ones((2, 3), mstype.float32)",
        "constant_and_result": "x + y, ms.Tensor([1.0, 2.5])",
        "constant_int": "x + y, ms.Tensor([1, 2, 3], mstype.int32)",
        "python_int": "x + y, 7",
        "python_float": "x + y, 2.5",
        "python_bool": "x + y, True",
        "none": "x + y, None",
        "none_in_middle": "x + y, None, x - y",
        "shape": "x + y, x.shape",
        "rank0": "(x + y).sum()",
        "rank0_pair": "x.sum(), y.mean()",
        "unused_multi": "ops.topk(x, 2)[1], y",
        "one_element_tuple": "(x + y,)",
        "seven": "x, y, x + y, x - y, x * y, x / 2, y * 3",
        "weight_direct": "self.a, x + y",
    }
    return [
        *[case(f"output_{name}", text, X, X, a=parameter([1.0, -2.0, 3.5], "a")) for name, text in texts.items()],
        case("output_bool", "x > y", X, X),
        case("output_mixed_types", "x > 0, x.astype(mstype.int32), x.astype(mstype.float16), x", X),
    ]


def inputs() -> list[Case]:
    return [
        case("input_unused_first", "y * 2", X, X),
        case("input_unused_middle", "x - z", X, i32(2), X),
        case("input_all_unused", "ops.zeros((2, 2), mstype.float32)", X),
        case("input_rank0", "x * y", X, values(2.5)),
        case("input_eight", "x + y + z + w + v + u + t + s", *[f32(2, 3)] * 8),
        case("input_bool", "ops.where(x, y, -y)", boolean(3, 5), X),
        case(
            "input_mixed_types", "ops.gather(y, x, 0) * z.astype(mstype.float32)", i32(2, low=0, high=3), X, boolean(5)
        ),
        case("input_empty", "ops.concat((x, y), 0)", f32(0, 5), X),
        case("input_large_rank", "x.sum((1, 3, 5)) + x[:, 0, :, 0, :, 0]", f32(1, 2, 3, 2, 1, 2)),
    ]


def constants() -> list[Case]:
    return [
        case(
            "constant_tensor_members",
            "x * self.scale + self.shift",
            X,
            scale=Tensor([1.0, 2, 3, 4, 5], ms.float32),
            shift=Tensor(-1.5, ms.float32),
        ),
        case(
            "constant_weight",
            "x * self.a + self.b",
            X,
            a=parameter([1, 2, 3, 4, 5], "a"),
            b=parameter([[0.5], [1], [-1]], "b"),
        ),
        case("constant_weight_shared", "x * self.a + self.a", X, a=parameter([1, 2, 3, 4, 5], "a")),
        case("constant_weight_unused", "x + 1", X, a=parameter([1, 2, 3], "a")),
        case("constant_weight_int", "x + self.a", i32(3), a=Parameter(Tensor([1, 2, 3], ms.int32), name="kept_int")),
        case(
            "constant_weight_bool",
            "ops.where(self.a, x, 0.0)",
            f32(3),
            a=Parameter(Tensor([True, False, True]), name="kept_bool"),
        ),
        case(
            "constant_float16_weight",
            "x * self.a",
            Tensor([1.5, 2], ms.float16).asnumpy(),
            a=Parameter(Tensor([0.5, -3], ms.float16), name="kept_half"),
        ),
        case("constant_folded_arithmetic", "x * (2 + 3) / (4 - 1.5)", X),
        case("constant_empty_tensor", "ops.concat((x, ops.zeros((0, 5), mstype.float32)), 0)", X),
        case("constant_in_both_branches", "y = x * 3 if x.shape[0] > 2 else x * 5\nreturn y + 3", X),
        case("constant_numpy", "x + ms.Tensor(np.arange(5).astype(np.float32))", X),
        case("constant_scalar_weight", "x * self.a", X, a=parameter(2.5, "a")),
    ]


def host_arithmetic() -> list[Case]:
    return [
        case("host_scalars", "n = x.shape[0] * 2 + 1\nreturn x * n + x.shape[1] // 2", X),
        case("host_scalars_dynamic", "n = x.shape[0] * 2 + 1\nreturn x * n", X, shapes=[(None, 5)]),
        case("host_scalar_divide_dynamic", "return x / x.shape[1]", X, shapes=[(3, None)]),
        case("host_scalar_sqrt_dynamic", "return x * (x.shape[1] ** -0.5)", X, shapes=[(3, None)]),
        case(
            "host_if_dynamic",
            "if x.shape[0] > 2:\n    y = x + 1\nelse:\n    y = x - 1\nreturn y",
            X,
            shapes=[(None, 5)],
        ),
        case("host_min_max_dynamic", "n = min(x.shape[0], 2)\nreturn x[:n] * 2", X, shapes=[(None, 5)]),
        case("host_modulo_dynamic", "n = x.shape[0] % 2\nreturn x + n", X, shapes=[(None, 5)]),
        case("host_tensor_to_scalar", "return x * float(y)", X, values(2.0)),
    ]
