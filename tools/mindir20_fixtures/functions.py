"""Functions of tensors: elementwise, reductions, shapes, indexing, scattering, resizing, creation."""

from mindir_fixtures.table import Case, boolean, case, f32, i32, i64, values

X = f32(3, 5)
Y = f32(2, 3, 5)
IMAGE = f32(1, 2, 5, 7)


def cases() -> list[Case]:
    return [*elementwise(), *reductions(), *shapes(), *indexing(), *scattering(), *resizing(), *creation()]


def elementwise() -> list[Case]:
    unary = {
        "abs": "ops.abs(x)",
        "erf": "ops.erf(x)",
        "expm1": "ops.expm1(x)",
        "round": "ops.round(x)",
        "trunc": "ops.trunc(x)",
        "sign": "P.Sign()(x)",
        "cos_sin": "ops.cos(x) * ops.sin(x)",
        "atan": "ops.atan(x)",
        "is_finite": "ops.isfinite(x)",
        "power_scalar": "x ** 2",
        "cast_int32": "x.astype(mstype.int32)",
        "cast_bool": "P.Cast()(x, mstype.bool_)",
        "logical_not": "ops.logical_not(x > 0)",
        "nan_to_num": "ops.nan_to_num(x / 0.0, 1.0, 2.0, 3.0)",
    }
    positive = {"sqrt": "ops.sqrt(x)", "rsqrt": "ops.rsqrt(x)", "log": "ops.log(x)", "log1p": "ops.log1p(x)"}
    binary = {
        "add_scalar": "x + 2 * y",
        "div": "x / y",
        "floor_div": "x // y",
        "floor_mod": "x % y",
        "truncate_div": "P.TruncateDiv()(x, y)",
        "maximum": "ops.maximum(x, y)",
        "minimum": "ops.minimum(x, 0.5)",
        "squared_difference": "P.SquaredDifference()(x, y)",
        "atan2": "ops.atan2(x, y)",
        "greater_equal": "x >= y",
        "not_equal": "x != y",
        "xlogy": "ops.xlogy(x, ops.abs(y))",
        "lerp": "ops.lerp(x, y, 0.3)",
        "addcmul": "P.Addcmul()(x, y, x, ms.Tensor([0.5], mstype.float32))",
        "isclose": "ops.isclose(x, y, 0.5, 0.5)",
        "where": "ops.where(x > y, x, y)",
        "masked_fill": "ops.masked_fill(x, y > 0, 2.5)",
        "logical_or": "ops.logical_or(x > 0, y > 0)",
    }
    return [
        *[case(f"unary_{name}", text, X) for name, text in unary.items()],
        *[case(f"unary_{name}", text, f32(3, 5, low=0.1, high=4)) for name, text in positive.items()],
        *[case(f"binary_{name}", text, X, f32(5, low=0.5, high=3)) for name, text in binary.items()],
        case("binary_int32_mixed", "x * 3 + y", i32(3, 5), f32(3, 5)),
        case("binary_bitwise", "ops.bitwise_and(x, y)", i32(3, 5), i32(5)),
        case("binary_add_n", "P.AddN()((x, y, x))", X, X),
    ]


def reductions() -> list[Case]:
    texts = {
        "sum": "P.ReduceSum()(x, 1)",
        "sum_keep": "P.ReduceSum(keep_dims=True)(x, (0, 2))",
        "mean_all": "P.ReduceMean()(x)",
        "mean_axes": "ops.mean(x, (-2, -1), True)",
        "max": "P.ReduceMax()(x, -1)",
        "min": "x.min(1)",
        "prod": "P.ReduceProd()(x, 2)",
        "all": "P.ReduceAll()(x > 0, 1)",
        "any": "P.ReduceAny(True)(x > 2, (1, 2))",
        "std": "ops.std(x, 1)",
        "argmax": "P.Argmax(1)(x)",
        "argmin": "P.Argmin(axis=-1)(x)",
        "argmax_with_value": "P.ArgMaxWithValue(1, True)(x)",
        "argmin_with_value": "P.ArgMinWithValue(2)(x)",
        "top_k": "ops.topk(x, 2)",
        "sort": "P.Sort(1, True)(x)",
        "cum_sum": "P.CumSum(True, True)(x, 1)",
        "cum_prod": "P.CumProd()(x, 2)",
        "logsumexp": "ops.logsumexp(x, 1)",
        "norm": "ops.norm(x, dim=1)",
        "median": "ops.median(x, 1)",
    }
    repeated = values([3, 3, 1, 1, 1, 3, 2], "int32")
    return [
        *[case(f"reduce_{name}", text, Y) for name, text in texts.items()],
        case("reduce_unique_consecutive", "ops.unique_consecutive(x, True, True)", repeated),
    ]


def shapes() -> list[Case]:
    texts = {
        "reshape": "x.reshape(5, -1)",
        "flatten": "P.Flatten()(x)",
        "transpose": "ops.transpose(x, (2, 0, 1))",
        "swapaxes": "x.swapaxes(0, -1)",
        "expand_dims": "ops.expand_dims(x, -2)",
        "concat": "ops.concat((x, x * 2), -1)",
        "stack": "P.Stack(axis=1)([x, x])",
        "unstack": "P.Unstack(axis=1)(x)",
        "split": "P.Split(1, 3)(x)",
        "tile": "ops.tile(x, (2, 1, 3, 2))",
        "broadcast_to": "P.BroadcastTo((4, -1, 3, 5))(x)",
        "reverse": "P.ReverseV2([0, 2])(x)",
        "roll": "mnp.roll(x, -1, 2)",
        "tril": "ops.tril(x, 1)",
        "triu": "ops.triu(x, -1)",
        "pad": "P.Pad(((0, 1), (2, 0), (1, 3)))(x)",
        "pad_v3_constant": "ops.pad(x, (1, 2, 0, 3), 'constant', 1.5)",
        "pad_v3_reflect": "ops.pad(x, (1, 2), 'reflect')",
        "pad_mirror": "P.MirrorPad('SYMMETRIC')(x, ms.Tensor([[0, 0], [1, 2], [3, 0]]))",
        "repeat_interleave": "ops.repeat_interleave(x, 3, 1)",
        "shape_as_output": "x.shape",
        "size": "ops.size(x)",
        "identity": "P.Identity()(x)",
        "tuples": "x, (x + 1, (x * 2, x.sum()))",
    }
    return [
        *[case(f"shape_{name.removeprefix('shape_')}", text, Y) for name, text in texts.items()],
        case("shape_squeeze", "P.Squeeze((1, 3))(x)", f32(2, 1, 3, 1)),
        case("shape_depth_to_space", "P.DepthToSpace(2)(x)", f32(2, 12, 3, 5)),
        case("shape_space_to_depth", "P.SpaceToDepth(2)(x)", f32(2, 3, 4, 6)),
        case("shape_batch_to_space", "ops.batch_to_space_nd(x, [2, 2], [[0, 1], [1, 0]])", f32(8, 3, 3, 2)),
        case("shape_meshgrid", "ops.meshgrid(x, y)", f32(3), f32(5)),
        case("shape_dynamic_halves", "x.reshape(x.shape[0] // 2, -1)", f32(4, 3), shapes=[(None, 3)]),
        case(
            "shape_dynamic_reshape",
            "x.reshape(x.shape[0], x.shape[1] * x.shape[2])",
            Y,
            shapes=[(None, 3, None)],
        ),
    ]


def indexing() -> list[Case]:
    texts = {
        "slice": "x[:, 1:3]",
        "slice_steps": "x[::-1, ..., 1::2]",
        "slice_backwards": "x[1:0:-1, 2::-2]",
        "slice_item": "x[-1, :, 2]",
        "slice_new_axis": "x[:, None, 1]",
        "strided_slice": "P.StridedSlice(1, 2, 0, 0, 4)(x, (1, 0, 2), (2, 1, 3), (1, 1, 1))",
        "slice_primitive": "ops.slice(x, (0, 1, 2), (2, 2, 3))",
        "tensor_index": "x[:, ms.Tensor([2, 0, 1, 2])]",
    }
    return [
        *[case(f"index_{name}", text, Y) for name, text in texts.items()],
        case("index_gather", "ops.gather(x, y, 1)", Y, i32(4, low=0, high=3)),
        case("index_gather_negative_axis", "ops.gather(x, y, -1)", Y, i64(2, 2, low=0, high=5)),
        case("index_gather_d", "ops.gather_d(x, 1, y)", X, i32(3, 2, low=0, high=5)),
        case("index_gather_nd", "ops.gather_nd(x, y)", Y, i32(4, 2, low=0, high=2)),
        case("index_one_hot", "P.OneHot(0)(x, 5, y, z)", i32(2, 3, low=0, high=5), values(2.0), values(-1.0)),
        case("index_select", "ops.select(x, y, y * 2)", boolean(3, 5), X),
        case("index_masked_select", "ops.masked_select(x, y)", X, boolean(3, 5)),
        case("index_nonzero", "ops.nonzero(x)", values([[0, 1, 0], [2, 0, 3]])),
    ]


def scattering() -> list[Case]:
    indices = values([[0, 1], [2, 3], [0, 4]], "int32")
    rows = values([[2], [0]], "int32")
    return [
        case("scatter_update", "P.TensorScatterUpdate()(x, y, z)", X, indices, f32(3)),
        *[
            case(f"scatter_{name.lower()}", f"P.TensorScatter{name}()(x, y, z)", X, rows, f32(2, 5))
            for name in ("Add", "Sub", "Max", "Min", "Mul", "Div")
        ],
        case("scatter_nd", "ops.scatter_nd(x, y, (3, 5))", indices, f32(3)),
        case(
            "scatter_elements",
            "ops.tensor_scatter_elements(x, y, z, 1, 'add')",
            X,
            values([[0, 2], [1, 4], [3, 0]], "int32"),
            f32(3, 2),
        ),
        case("scatter_segment_sum", "ops.unsorted_segment_sum(x, y, 4)", X, values([2, 0, 2], "int32")),
        case("scatter_slice_assign", "y = x * 1\ny[:, 1:3] = 0\nreturn y", X),
    ]


def resizing() -> list[Case]:
    texts = {
        "nearest": "P.ResizeNearestNeighbor((8, 9))(x)",
        "nearest_align": "P.ResizeNearestNeighbor((3, 4), align_corners=True)(x)",
        "nearest_v2": "P.ResizeNearestNeighborV2(data_format='NCHW')(x, ms.Tensor([8, 9], mstype.int32))",
        "bilinear": "P.ResizeBilinear((8, 9))(x)",
        "bilinear_align": "P.ResizeBilinear((8, 9), align_corners=True)(x)",
        "bilinear_half_pixel": "P.ResizeBilinear((8, 9), half_pixel_centers=True)(x)",
        "bilinear_v2": "P.ResizeBilinearV2(half_pixel_centers=True)(x, (3, 4))",
        "interpolate_nearest": "ops.interpolate(x, size=(8, 9), mode='nearest')",
        "interpolate_bilinear": "ops.interpolate(x, size=(8, 9), mode='bilinear', align_corners=True)",
        "interpolate_area": "ops.interpolate(x, size=(3, 4), mode='area')",
        "bicubic": "P.ResizeBicubic(half_pixel_centers=True)(x, ms.Tensor([8, 9], mstype.int32))",
    }
    return [
        *[case(f"resize_{name}", text, IMAGE) for name, text in texts.items()],
        case("resize_linear", "ops.interpolate(x, size=9, mode='linear', align_corners=True)", f32(2, 3, 5)),
        case("resize_grid_sample", "ops.grid_sample(x, y)", IMAGE, f32(1, 4, 6, 2, low=-1.3, high=1.3)),
    ]


def creation() -> list[Case]:
    texts = {
        "ones": "ops.ones((2, 3), mstype.float32) + x[0, 0]",
        "fill": "ops.fill(mstype.float32, (3, 5), 2.5) + x",
        "zeros_like": "ops.zeros_like(x) - 1",
        "eye": "ops.eye(3, 5, mstype.float32) + x",
        "linspace": "ops.linspace(ms.Tensor(-1.0), ms.Tensor(2.0), 5) + x",
        "arange": "ops.arange(5) + x",
        "range": "P.Range()(ms.Tensor(1), ms.Tensor(11), ms.Tensor(2)) + x",
        "constant": "ms.Tensor([[1.0], [2.0], [-3.0]], mstype.float32) * x",
    }
    return [case(f"create_{name}", text, X) for name, text in texts.items()]
