"""Image cases: resize, warp, remap, colours, correlation."""

import megengine as mge
import megengine.functional as F
import megengine.module as M
import numpy as np
from megengine.core.ops import builtin

from mge_fixtures.table import KEEP, RAW, add, applied, f16, f32, i8, run_op, u8, values, words

X = f32(2, 3, 6, 5)

for mode in ("bilinear", "nearest", "bicubic"):
    add(f"interpolate_{mode}_up", lambda x, mode=mode: F.vision.interpolate(x, size=(9, 11), mode=mode), X)
    add(f"interpolate_{mode}_down", lambda x, mode=mode: F.vision.interpolate(x, size=(3, 4), mode=mode), X)
    add(
        f"interpolate_{mode}_scale",
        lambda x, mode=mode: F.vision.interpolate(x, scale_factor=2, mode=mode),
        X,
        resized=[f32(1, 3, 4, 7)],
    )
    add(
        f"interpolate_{mode}_scale_fraction",
        lambda x, mode=mode: F.vision.interpolate(x, scale_factor=1.7, mode=mode),
        X,
    )
    add(
        f"interpolate_{mode}_v1",
        lambda x, mode=mode: F.vision.interpolate(x, size=(9, 11), mode=mode),
        X,
        dump_format="FBS",
    )
add(
    "interpolate_bilinear_align_corners",
    lambda x: F.vision.interpolate(x, size=(9, 11), align_corners=True),
    X,
    resized=[f32(1, 3, 4, 7)],
)
add("interpolate_bilinear_align_corners_down", lambda x: F.vision.interpolate(x, size=(3, 2), align_corners=True), X)
add("interpolate_linear", lambda x: F.vision.interpolate(x, size=9, mode="linear"), f32(2, 3, 6))
add(
    "interpolate_linear_align_corners",
    lambda x: F.vision.interpolate(x, size=9, mode="linear", align_corners=True),
    f32(2, 3, 6),
)
add("interpolate_by_input", lambda x, y: F.vision.interpolate(x, size=y), X, values([7, 8], "int32"))
add(
    "interpolate_like",
    lambda x, y: F.vision.interpolate(x, size=(y.shape[2], y.shape[3])),
    X,
    f32(1, 1, 8, 7),
    resized=[X, f32(1, 1, 4, 9)],
)
add(
    "interpolate_trilinear",
    lambda x: F.vision.interpolate(x, size=(5, 7, 6), mode="trilinear"),
    f32(1, 2, 3, 4, 5),
    **KEEP,
)
add(
    "interpolate_trilinear_align_corners",
    lambda x: F.vision.interpolate(x, size=(5, 7, 6), mode="trilinear", align_corners=True),
    f32(1, 2, 3, 4, 5),
    **KEEP,
)


def to_size(op, *size):
    """The function that applies an operator with a size as its last operand."""
    return lambda *inputs: run_op(op, *inputs, mge.Tensor(size, dtype="int32"))


for imode in ("NEAREST", "LINEAR", "AREA", "CUBIC", "LANCZOS4"):
    for form, shape in {"NCHW": (2, 3, 6, 5), "NHWC": (2, 6, 5, 3)}.items():
        for kind, drawn in {"": f32(*shape), "_uint8": u8(*shape)}.items():
            name = f"resize_{imode.lower()}_{form.lower()}{kind}"
            op = builtin.Resize(imode=imode, format=form)
            add(name, to_size(op, 4, 9), drawn, **RAW)
            add(f"{name}_down", to_size(op, 3, 2), drawn, **RAW)
add("resize_linear_float16", to_size(builtin.Resize(imode="LINEAR", format="NCHW"), 6, 7), f16(1, 2, 4, 5), **RAW)
for imode in ("LINEAR", "CUBIC"):  # NHWC images of other than 1 or 3 channels, and of signed bytes
    op, nhwc = (builtin.Resize(imode=imode, format=form) for form in ("NCHW", "NHWC"))
    add(f"resize_{imode.lower()}_nchw_int8", to_size(op, 4, 9), i8(1, 2, 6, 5, low=-128, high=128), **RAW)
    add(f"resize_{imode.lower()}_nhwc_4_channels", to_size(nhwc, 4, 9), f32(1, 6, 5, 4), **RAW)
    add(f"resize_{imode.lower()}_nhwc_4_channels_uint8", to_size(nhwc, 4, 9), u8(1, 6, 5, 4, high=256), **RAW)
# Sizes where a float falls short of the row or column that it stands for.
add("resize_nearest_inexact", to_size(builtin.Resize(imode="NEAREST", format="NCHW"), 2, 12), f32(1, 1, 14, 20), **RAW)
add(
    "resize_nearest_nhwc_inexact",
    to_size(builtin.Resize(imode="NEAREST", format="NHWC"), 34, 18),
    u8(1, 6, 14, 1),
    **RAW,
)
AREA = builtin.Resize(imode="AREA", format="NHWC")
add("resize_area_nhwc_uint8_halved", to_size(AREA, 3, 4), u8(1, 6, 8, 3, high=256), **RAW)
add("resize_area_nhwc_uint8_whole", to_size(AREA, 3, 4), u8(1, 9, 8, 1, high=256), **RAW)
add("resize_area_nhwc_whole", to_size(AREA, 3, 4), f32(1, 9, 8, 1), **RAW)


class Blocked(M.Module):
    """A resize between convolutions, which the dump option puts into a blocked layout with them."""

    def __init__(self, mode):
        super().__init__()
        self.convolution, self.mode = M.Conv2d(8, 8, 3, padding=1), mode

    def forward(self, x):
        return self.convolution(F.vision.interpolate(self.convolution(x), size=(9, 7), mode=self.mode))


for layout in ("nchw44", "nchw88"):
    for mode in ("bilinear", "nearest"):
        add(f"interpolate_{mode}_{layout}", Blocked(mode), f32(1, 8, 5, 6), **{f"enable_{layout}": True})

MATRIX = values(
    [[[0.9, 0.2, -0.7], [-0.15, 1.1, 0.4], [0.01, -0.02, 1]], [[1.2, 0, 1], [0.1, 0.8, -1.5], [0, 0.03, 1.1]]]
)
BORDERS = ("REPLICATE", "REFLECT", "REFLECT_101", "WRAP", "CONSTANT")
for border in BORDERS:
    op = builtin.WarpPerspective(imode="LINEAR", bmode=border, format="NCHW", border_val=1.5)
    add(f"warp_perspective_{border.lower()}", applied(op), X, MATRIX, values([7, 8], "int32"), **RAW)
    nhwc = builtin.WarpPerspective(imode="LINEAR", bmode=border, format="NHWC", border_val=1.5)
    add(
        f"warp_perspective_{border.lower()}_nhwc",
        applied(nhwc),
        f32(2, 6, 5, 3),
        MATRIX,
        values([7, 8], "int32"),
        **RAW,
    )
    for form, shape in {"NCHW": (2, 3, 6, 5), "NHWC": (2, 6, 5, 3)}.items():
        op = builtin.WarpAffine(imode="LINEAR", border_mode=border, border_val=1.5, format=form)
        add(
            f"warp_affine_{border.lower()}_{form.lower()}",
            applied(op),
            f32(*shape),
            MATRIX[:, :2],
            values([7, 8], "int32"),
            **RAW,
        )
    for imode in ("LINEAR", "NEAREST"):
        op = builtin.Remap(imode=imode, border_type=border, format="NCHW", scalar=1.5)
        add(f"remap_{imode.lower()}_{border.lower()}", applied(op), X, f32(2, 4, 7, 2, low=-2, high=7), **RAW)
add("warp_perspective", lambda x, y: F.vision.warp_perspective(x, y, (4, 4)), X, MATRIX)
add(
    "warp_perspective_chosen",
    lambda x, y, z: F.vision.warp_perspective(x, y, (4, 4), mat_idx=z),
    X,
    values(np.concatenate([MATRIX, MATRIX[:1]])),
    values([1, 1, 0], "int32"),
)
add(
    "warp_perspective_uint8",
    applied(builtin.WarpPerspective(imode="LINEAR", bmode="REPLICATE", format="NCHW")),
    u8(2, 3, 6, 5),
    MATRIX,
    values([7, 8], "int32"),
    **RAW,
)
for imode in ("NEAREST", "AREA", "CUBIC", "LANCZOS4"):
    op = builtin.WarpPerspective(imode=imode, bmode="REPLICATE", format="NCHW")
    add(f"warp_perspective_{imode.lower()}", applied(op), X, MATRIX, values([7, 8], "int32"), **RAW)
    op = builtin.WarpAffine(imode=imode, border_mode="REPLICATE", format="NHWC")
    add(f"warp_affine_{imode.lower()}", applied(op), f32(2, 6, 5, 3), MATRIX[:, :2], values([7, 8], "int32"), **RAW)
add("warp_affine", lambda x, y: F.vision.warp_affine(x, y, (4, 4)), f32(2, 6, 5, 3), MATRIX[:, :2])
add("warp_affine_uint8", lambda x, y: F.vision.warp_affine(x, y, (4, 4)), u8(2, 6, 5, 3), MATRIX[:, :2])
add("remap", lambda x, y: F.vision.remap(x, y), X, f32(2, 4, 7, 2, low=-2, high=7))
add(
    "remap_halves",
    lambda x, y: F.vision.remap(x, y, interp_mode="nearest"),
    X,
    values(np.tile([[-0.5, 0.5], [1.5, 2.5], [4.5, 5.5]], (2, 1, 1, 1))),
)
add(
    "remap_nhwc",
    applied(builtin.Remap(imode="LINEAR", border_type="REPLICATE", format="NHWC")),
    f32(2, 6, 5, 3),
    f32(2, 4, 7, 2, low=-2, high=7),
    **RAW,
)
add(
    "remap_uint8",
    applied(builtin.Remap(imode="LINEAR", border_type="CONSTANT", format="NCHW", scalar=3)),
    u8(2, 3, 6, 5),
    f32(2, 4, 7, 2, low=-2, high=7),
    **RAW,
)
add(
    "remap_nearest_nhwc_int8",
    applied(builtin.Remap(imode="NEAREST", border_type="CONSTANT", format="NHWC", scalar=-2.5)),
    i8(2, 6, 5, 3),
    f32(2, 4, 7, 2, low=-2, high=7),
    **RAW,
)
add(
    "remap_float16",
    applied(builtin.Remap(imode="LINEAR", border_type="CONSTANT", format="NCHW", scalar=1.5)),
    f16(2, 3, 6, 5),
    f32(2, 4, 7, 2, low=-2, high=7),
    **RAW,
)

# What OpenCV's rules have for images of 1 to 3 channels behind.
for imode in ("NEAREST", "LINEAR", "CUBIC", "LANCZOS4"):
    for channels, border in ((1, "WRAP"), (2, "REFLECT_101"), (3, "CONSTANT")):
        name = f"{imode.lower()}_nhwc_{channels}"
        affine = builtin.WarpAffine(imode=imode, border_mode=border, format="NHWC", border_val=3.7)
        perspective = builtin.WarpPerspective(imode=imode, bmode=border, format="NHWC", border_val=3.7)
        images = u8(2, 9, 8, channels, high=256)
        add(f"warp_affine_{name}_uint8", to_size(affine, 7, 12), images, MATRIX[:, :2], **RAW)
        add(f"warp_perspective_{name}_uint8", to_size(perspective, 7, 12), images, MATRIX, **RAW)
    perspective = builtin.WarpPerspective(imode=imode, bmode="REFLECT", format="NHWC")
    add(f"warp_perspective_{imode.lower()}_nhwc", to_size(perspective, 7, 12), f32(2, 9, 8, 3), MATRIX, **RAW)

# Far outside, a third coordinate of zero, and other dtypes.
FAR = values(MATRIX * [[40], [40], [1]])
ZERO = values([[[1, 0.5, 0], [0, 1, 0.25], [1, 0, -3]], [[1, 0, 0], [0, 1, 0], [0, 0, 0]]])
for border in ("REPLICATE", "WRAP", "CONSTANT"):
    name = f"warp_perspective_{border.lower()}"
    op, nhwc = (
        builtin.WarpPerspective(imode="LINEAR", bmode=border, format=form, border_val=3) for form in ("NCHW", "NHWC")
    )
    add(f"{name}_zero", to_size(op, 7, 8), X, ZERO, **RAW)
    add(f"{name}_zero_nhwc", to_size(nhwc, 7, 8), f32(2, 6, 5, 3), ZERO, **RAW)
    add(f"{name}_far", to_size(op, 7, 8), X, FAR, **RAW)
    add(f"{name}_far_nhwc", to_size(nhwc, 7, 8), f32(2, 6, 5, 3), FAR, **RAW)
    add(f"{name}_int8", to_size(op, 7, 8), i8(2, 3, 6, 5, low=-128, high=128), MATRIX, **RAW)
    add(f"{name}_nhwc_uint8", to_size(nhwc, 7, 8), u8(2, 6, 5, 4, high=256), MATRIX, **RAW)
    three = values(np.concatenate([MATRIX, MATRIX[:1]]))
    add(f"{name}_nhwc_chosen", to_size(nhwc, 7, 8), f32(2, 6, 5, 4), three, values([1, 1, 0], "int32"), **RAW)
WARP, AFFINE = (
    builtin.WarpPerspective(imode="LINEAR", bmode="REPLICATE", format="NCHW"),
    builtin.WarpAffine(imode="LINEAR", border_mode="REPLICATE", format="NCHW"),
)
add("warp_perspective_float16", to_size(WARP, 7, 8), f16(2, 3, 6, 5), MATRIX, **RAW)
add("warp_affine_float16", to_size(AFFINE, 7, 8), f16(2, 3, 6, 5), values(MATRIX[:, :2], "float16"), **RAW)
add("warp_perspective_small", to_size(WARP, 2, 2), f32(2, 3, 9, 8), MATRIX, **RAW)  # few of the pixels
add("interpolate_align_corners_one_row", lambda x: F.vision.interpolate(x, size=(1, 4), align_corners=True), X)

CHANNELS = {"GRAY": 1, "RGBA": 4}
for mode in words(
    "RGB2GRAY RGB2YUV YUV2RGB GRAY2RGB RGBA2RGB RGBA2BGR RGBA2GRAY RGB2BGR BGR2GRAY BGR2RGB YCrCb2RGB YCrCb2BGR"
):
    count = CHANNELS.get(mode.split("2")[0], 3)
    op = builtin.CvtColor(mode=mode)
    add(f"cvt_color_{mode.lower()}", applied(op), f32(2, 4, 5, count, low=0, high=1), **RAW)
    add(f"cvt_color_{mode.lower()}_uint8", applied(op), u8(2, 4, 5, count, high=255), **RAW)
for layout in ("NV21", "NV12", "YV12", "YU12"):
    for mode in (
        f"YUV2GRAY_{layout}",
        f"YUV2RGB_{layout}",
        f"YUV2BGR_{layout}",
        f"BT601_YUV2RGB_{layout}",
        f"BT601_YUV2BGR_{layout}",
    ):
        add(
            f"cvt_color_{mode.lower()}",
            applied(builtin.CvtColor(mode=mode)),
            u8(1, 6, 6, 1, high=255),
            **RAW,
        )

A = f32(1, 4, 7, 8)
for multiply in (True, False):
    end = "" if multiply else "_difference"
    add(
        f"correlation{end}",
        lambda x, y, m=multiply: F.vision.correlation(x, y, max_displacement=2, pad_size=2, is_multiply=m),
        A,
        A,
    )
    add(
        f"correlation_kernel{end}",
        lambda x, y, m=multiply: F.vision.correlation(
            x, y, kernel_size=3, max_displacement=2, stride2=2, pad_size=3, is_multiply=m
        ),
        A,
        A,
    )
    add(
        f"correlation_stride{end}",
        lambda x, y, m=multiply: F.vision.correlation(x, y, max_displacement=1, stride1=2, pad_size=1, is_multiply=m),
        A,
        A,
    )
