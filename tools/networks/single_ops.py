"""Single operators in seeded random variations: dtypes, ranks, axes, broadcasting, strides, pads, groups."""

import random
from collections.abc import Callable

from mindir_fixtures.table import Case, Draw, boolean, case, f32, i32, i64, values

Choice = random.Random


def cases() -> list[Case]:
    """The same cases in every run."""
    found: list[Case] = []
    for number, (family, (make, count)) in enumerate(FAMILIES.items()):
        choose = Choice(number)
        for k in range(count):
            text, inputs = make(choose, k)
            found.append(case(f"{family}_{k}", text, *inputs))
    return found


Made = tuple[str, list]


def convolution(choose: Choice, k: int) -> Made:
    group = choose.choice((1, 1, 2, 3))
    channels, out = group * choose.randint(1, 3), group * choose.randint(1, 3)
    kernel = (choose.randint(1, 4), choose.randint(1, 4))
    stride, dilation = (choose.randint(1, 3), choose.randint(1, 2)), (choose.randint(1, 2), choose.randint(1, 3))
    mode = ("same", "valid", "pad")[k % 3]
    pads = (choose.randint(0, 2), choose.randint(0, 3)) if mode == "pad" else ()
    padding = f", padding={pads}" if pads else ""
    text = f"ops.conv2d(x, y, z, {stride}, '{mode}'{padding}, dilation={dilation}, groups={group})"
    x = f32(choose.randint(1, 3), channels, choose.randint(9, 13), choose.randint(10, 12))
    return text, [x, f32(out, channels // group, *kernel), f32(out)]


def pooling(choose: Choice, k: int) -> Made:
    kernel, stride = choose.randint(2, 3), choose.randint(1, 3)
    shape = [choose.randint(1, 2), choose.randint(1, 3), choose.randint(7, 12), choose.randint(6, 11)]
    padding, ceil = choose.randint(0, kernel // 2), bool(k % 4 < 2)
    if k % 3 == 0:
        return f"ops.max_pool2d(x, {kernel}, {stride}, {padding}, 1, ceil_mode={ceil})", [f32(*shape)]
    if k % 3 == 1:
        include = choose.choice((True, False))
        return f"ops.avg_pool2d(x, {kernel}, {stride}, {padding}, {ceil}, {include})", [f32(*shape)]
    size = (choose.randint(1, 5), choose.randint(1, 5))
    return f"ops.adaptive_avg_pool2d(x, {size})", [f32(*shape)]


def reduction(choose: Choice, k: int) -> Made:
    name = ("sum", "mean", "amax", "amin", "prod", "all", "any", "logsumexp", "std", "var")[k % 10]
    rank = choose.choice((1, 2, 3, 5))
    shape = [choose.randint(1, 4) for _ in range(rank)]
    axes = tuple(choose.sample(range(-rank, 0), choose.randint(1, rank)))
    axis = axes[0] if len(axes) == 1 or name in ("prod", "all", "any", "std", "var", "logsumexp") else axes
    keep = choose.choice((True, False))
    if name in ("all", "any"):
        return f"ops.{name}(x, {axis}, {keep})", [boolean(*shape)]
    if name in ("std", "var"):
        shape[axis] = 4
        return f"ops.{name}(x, {axis}, {choose.randint(0, 1)}, {keep})", [f32(*shape)]
    named = {"sum": "dim={}, keepdim={}", "mean": "axis={}, keep_dims={}", "prod": "axis={}, keep_dims={}"}
    arguments = named.get(name, "{}, {}").format(axis, keep)
    dtype = choose.choice(("float32", "float16")) if name in ("amax", "amin", "mean") else "float32"
    return f"ops.{name}(x, {arguments})", [Draw(dtype, tuple(shape))]


BINARY = "x + y|x - y|x * y|x / y|ops.maximum(x, y)|ops.minimum(x, y)|x // y|x % y|x > y|x <= y|x == y|x != y"


def elementwise(choose: Choice, k: int) -> Made:
    texts = BINARY.split("|")
    dtypes = ("float32", "int32", "float16", "int64", "float64", "uint8", "int8", "int16")
    first, second = dtypes[k % 8], dtypes[choose.choice((k % 8, k % 8, 0))]
    shape = [choose.randint(2, 4) for _ in range(choose.choice((1, 3, 5)))]
    other = [choose.choice((1, size)) for size in shape[choose.randint(0, len(shape) - 1) :]]
    return texts[k % len(texts)], [Draw(first, tuple(shape), 0, 9), Draw(second, tuple(other), 1, 7)]


UNARY = (
    "abs ceil floor round exp sin cos tanh sigmoid erf square sqrt rsqrt log neg sign relu reciprocal asinh "
    "expm1 log1p trunc isfinite logical_not sinh cosh atan erfc"
)


def unary(choose: Choice, k: int) -> Made:
    name = UNARY.split()[k % len(UNARY.split())]
    dtype = choose.choice(("float32", "float16", "float64")) if name not in ("logical_not", "erfc") else "float32"
    dtype = "int32" if name in ("abs", "neg", "sign", "square", "relu") and choose.random() < 0.5 else dtype
    shape = tuple(choose.randint(1, 5) for _ in range(choose.choice((0, 1, 2, 4, 6))))
    positive = name in ("sqrt", "rsqrt", "log", "reciprocal", "log1p")
    x = Draw("bool" if name == "logical_not" else dtype, shape, 0.2 if positive else -3, 4)
    return f"ops.{name}(x)", [x]


def slicing(choose: Choice, _: int) -> Made:
    rank = choose.randint(1, 5)
    shape = [choose.randint(3, 6) for _ in range(rank)]
    parts = []
    for size in shape[: choose.randint(1, rank)]:
        kind = choose.choice(("item", "range", "range", "step", "back", "all"))
        low = choose.randint(-size, size - 1)
        step = choose.randint(2, 3)
        parts.append(
            {
                "item": str(low),
                "range": f"{choose.randint(0, 1)}:{choose.randint(2, size)}",
                "step": f"{choose.randint(0, 1)}::{step}",
                "back": f"{choose.choice(('', -1))}:-{size - 1}:-1",
                "all": ":",
            }[kind]
        )
    if choose.random() < 0.3:
        parts.insert(choose.randint(0, len(parts)), "None")
    if choose.random() < 0.3:
        parts.append("...")
    return f"x[{', '.join(parts)}] * 1", [choose.choice((f32, i32, i64))(*shape)]


def shaping(choose: Choice, k: int) -> Made:
    rank = choose.randint(2, 5)
    shape = [choose.randint(1, 4) for _ in range(rank)]
    order = choose.sample(range(rank), rank)
    axis = choose.randint(-rank, rank - 1)
    shape[axis] = 4
    texts = [
        f"ops.transpose(x, {tuple(order)})",
        f"ops.flip(x, ({axis},))",
        f"ops.cat((x, x * 2), {axis})",
        f"ops.stack((x, x + 1, x), {axis})",
        f"ops.split(x, {choose.randint(1, 3)}, {axis})",
        f"ops.unsqueeze(x, {axis}).squeeze({axis})",
        f"ops.tile(x, {tuple(choose.randint(1, 3) for _ in range(rank + k % 2))})",
        f"ops.swapaxes(x, {axis}, 0)",
        f"ops.repeat_interleave(x, {choose.randint(2, 3)}, {axis})",
        f"ops.broadcast_to(x, {(2, *shape)})",
        f"ops.flatten(x, start_dim={choose.randint(0, rank - 2)})",
        f"ops.cumsum(x, {axis})",
    ]
    return texts[k % len(texts)], [Draw(choose.choice(("float32", "int32", "float16")), tuple(shape))]


def picking(choose: Choice, k: int) -> Made:
    rank = choose.randint(1, 4)
    shape = [choose.randint(3, 5) for _ in range(rank)]
    axis = choose.randint(-rank, rank - 1)
    where = [choose.randint(1, 3) for _ in range(choose.randint(0, 3))]
    index = choose.choice((i32, i64))
    x = Draw(choose.choice(("float32", "int32", "float64")), tuple(shape))
    if k % 6 == 0:
        return f"ops.gather(x, y, {axis})", [x, index(*where, low=0, high=shape[axis])]
    if k % 6 == 1:
        small = [choose.randint(1, size) for size in shape]
        return f"ops.gather_elements(x, {axis}, y)", [x, index(*small, low=0, high=shape[axis])]
    if k % 6 == 2:
        depth = choose.randint(1, rank)
        return "ops.gather_nd(x, y)", [x, i32(3, depth, low=0, high=3)]
    if k % 6 == 3:
        return f"ops.topk(x, {choose.randint(1, 3)}, {axis})", [f32(*shape)]
    if k % 6 == 4:
        return f"ops.argmax(x, {axis}, {bool(k % 4)})", [f32(*shape)]
    updates = [3, *shape[1:]]
    return "ops.tensor_scatter_add(x, y, z)", [f32(*shape), values([[0], [2], [0]], "int32"), f32(*updates)]


def products(choose: Choice, k: int) -> Made:
    a, b, c = (choose.randint(1, 5) for _ in range(3))
    batch = [choose.randint(1, 3) for _ in range(choose.randint(0, 3))]
    other = [choose.choice((1, size)) for size in batch[choose.randint(0, len(batch)) :]] if batch else []
    dtype = choose.choice(("float32", "float32", "float16", "float64"))
    if k % 3 == 0:
        flags = choose.choice((True, False)), choose.choice((True, False))
        x, y = ((b, a) if flags[0] else (a, b)), ((c, b) if flags[1] else (b, c))
        return "P.MatMul({}, {})(x, y)".format(*flags), [Draw(dtype, x), Draw(dtype, y)]
    if k % 3 == 1:
        return "ops.matmul(x, y)", [Draw(dtype, (*batch, a, b)), Draw(dtype, (*other, b, c))]
    return "ops.dense(x, y, z)", [f32(*batch, a, b), f32(c, b), f32(c)]


def normalising(choose: Choice, k: int) -> Made:
    shape = [choose.randint(1, 3), 6, choose.randint(2, 5), choose.randint(2, 5)]
    axis = choose.randint(-4, 3)
    groups = choose.choice((1, 2, 3, 6))
    if k % 4 == 0:
        return f"ops.softmax(x, {axis})", [Draw(choose.choice(("float32", "float16")), tuple(shape))]
    if k % 4 == 1:
        first = choose.randint(1, 3)
        part = tuple(shape[first:])
        text = f"P.LayerNorm({first}, {first}, {choose.choice((1e-5, 1e-2))})(x, y, z)[0]"
        return text, [f32(*shape), f32(*part), f32(*part)]
    if k % 4 == 2:
        return f"ops.group_norm(x, {groups}, y, z, 1e-3)", [f32(*shape), f32(6), f32(6)]
    return f"ops.log_softmax(x, {axis})", [f32(*shape)]


def padding(choose: Choice, k: int) -> Made:
    mode = ("constant", "reflect", "replicate", "circular")[k % 4]
    axes = choose.randint(1, 3) if mode != "reflect" else choose.randint(1, 2)
    rank = choose.randint(axes, 4) if mode == "constant" else axes + 2
    pads = tuple(choose.randint(0, 2) for _ in range(2 * axes))
    value = f", {choose.choice((0.0, -1.5, 2.0))}" if mode == "constant" else ""
    return f"ops.pad(x, {pads}, '{mode}'{value})", [f32(*[choose.randint(3, 5) for _ in range(rank)])]


def resizing(choose: Choice, k: int) -> Made:
    shape = [choose.randint(1, 2), choose.randint(1, 3), choose.randint(3, 7), choose.randint(3, 7)]
    size = (choose.randint(2, 11), choose.randint(2, 11))
    if k % 3 == 0:
        return f"ops.interpolate(x, size={size}, mode='nearest')", [f32(*shape)]
    align = bool(k % 2)
    return f"ops.interpolate(x, size={size}, mode='bilinear', align_corners={align})", [f32(*shape)]


FAMILIES: dict[str, tuple[Callable[[Choice, int], Made], int]] = {
    "convolution": (convolution, 15),
    "pooling": (pooling, 12),
    "reduction": (reduction, 20),
    "elementwise": (elementwise, 24),
    "unary": (unary, 28),
    "slicing": (slicing, 12),
    "shaping": (shaping, 24),
    "picking": (picking, 18),
    "product": (products, 12),
    "normalising": (normalising, 12),
    "padding": (padding, 12),
    "resizing": (resizing, 9),
}
