"""Resize, sampling and box cases."""

from mindspore import nn

from mindir_fixtures.table import Case, case, f16, f32, u8, values

X = f32(1, 2, 5, 7)
BOXES = values([[0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], [0.3, -0.2, 1.2, 0.5]])
CORNERS = values([[10, 10, 50, 60], [12, 11, 52, 58], [80, 20, 120, 70], [5, 5, 20, 25]])


def cases() -> list[Case]:
    return [*nearest(), *bilinear(), *bicubic(), *other_modes(), *sampling(), *boxes(), *images()]


def nearest() -> list[Case]:
    texts = {
        "up": "ops.interpolate(x, size=(10, 14), mode='nearest')",
        "uneven": "ops.interpolate(x, size=(8, 9), mode='nearest')",
        "down": "ops.interpolate(x, size=(3, 4), mode='nearest')",
        "scale": "ops.interpolate(x, scale_factor=2.0, mode='nearest', recompute_scale_factor=True)",
        "exact": "ops.interpolate(x, size=(8, 9), mode='nearest-exact')",
        "v1": "P.ResizeNearestNeighbor((8, 9))(x)",
        "v1_align_corners": "P.ResizeNearestNeighbor((8, 9), align_corners=True)(x)",
        "v1_down_align_corners": "P.ResizeNearestNeighbor((3, 4), align_corners=True)(x)",
        "v2": "P.ResizeNearestNeighborV2()(x, (8, 9))",
        "v2_align_corners": "P.ResizeNearestNeighborV2(align_corners=True)(x, (8, 9))",
        "v2_half_pixel": "P.ResizeNearestNeighborV2(half_pixel_centers=True)(x, (8, 9))",
        "mint": "mint.nn.functional.interpolate(x, size=(8, 9), mode='nearest')",
        "mint_scale": "mint.nn.functional.interpolate(x, scale_factor=(2.0, 3.0), mode='nearest')",
    }
    return [
        *[case(f"resize_nearest_{name}", text, X) for name, text in texts.items()],
        case("resize_nearest_float16", "P.ResizeNearestNeighbor((8, 9))(x)", f16(1, 2, 5, 7)),
        case("resize_nearest_rank3", "ops.interpolate(x, size=9, mode='nearest')", f32(2, 3, 5)),
        case("resize_nearest_rank5", "ops.interpolate(x, size=(4, 5, 6), mode='nearest')", f32(1, 2, 3, 2, 4)),
        case("resize_nearest_upsample", nn.Upsample(size=(10, 14), mode="nearest"), X),
    ]


def bilinear() -> list[Case]:
    texts = {
        "up": "ops.interpolate(x, size=(10, 14), mode='bilinear')",
        "uneven": "ops.interpolate(x, size=(8, 9), mode='bilinear', align_corners=False)",
        "align": "ops.interpolate(x, size=(8, 9), mode='bilinear', align_corners=True)",
        "down": "ops.interpolate(x, size=(3, 4), mode='bilinear')",
        "down_align": "ops.interpolate(x, size=(3, 4), mode='bilinear', align_corners=True)",
        "one": "ops.interpolate(x, size=(1, 1), mode='bilinear', align_corners=True)",
        "v2_asymmetric": "P.ResizeBilinearV2(False, False)(x, (8, 9))",
        "v2_asymmetric_down": "P.ResizeBilinearV2(False, False)(x, (3, 4))",
        "v2_half_pixel": "P.ResizeBilinearV2(False, True)(x, (8, 9))",
        "v2_align": "P.ResizeBilinearV2(True, False)(x, (8, 9))",
        "same_size": "P.ResizeBilinearV2(False, True)(x, (5, 7))",
        "scale": "ops.interpolate(x, scale_factor=2.0, mode='bilinear', recompute_scale_factor=True)",
        "function": "ops.ResizeBilinearV2(align_corners=True)(x, (6, 4))",
    }
    return [
        *[case(f"resize_bilinear_{name}", text, X) for name, text in texts.items()],
        case("resize_bilinear_float16", "P.ResizeBilinearV2(False, True)(x, (8, 9))", f16(1, 2, 5, 7)),
        case("resize_bilinear_upsample", nn.Upsample(size=(8, 9), mode="bilinear", align_corners=True), X),
        case("resize_bilinear_dynamic_batch", texts["uneven"], X, shapes=[(None, 2, 5, 7)]),
    ]


def bicubic() -> list[Case]:
    texts = {
        "up": "ops.interpolate(x, size=(8, 9), mode='bicubic')",
        "align": "ops.interpolate(x, size=(8, 9), mode='bicubic', align_corners=True)",
        "down": "ops.interpolate(x, size=(3, 4), mode='bicubic')",
        "primitive": "P.ResizeBicubic(False, False)(x, (8, 9))",
        "primitive_half_pixel": "P.ResizeBicubic(False, True)(x, (8, 9))",
        "primitive_align": "P.ResizeBicubic(True, False)(x, (8, 9))",
        "primitive_down": "P.ResizeBicubic(False, True)(x, (3, 4))",
    }
    return [case(f"resize_bicubic_{name}", text, X) for name, text in texts.items()]


def other_modes() -> list[Case]:
    return [
        case("resize_linear", "ops.interpolate(x, size=9, mode='linear')", f32(2, 3, 5)),
        case("resize_linear_align", "ops.interpolate(x, size=9, mode='linear', align_corners=True)", f32(2, 3, 5)),
        case("resize_area", "ops.interpolate(x, size=(3, 4), mode='area')", X),
        case("resize_area_rank3", "ops.interpolate(x, size=4, mode='area')", f32(2, 3, 8)),
        case("resize_trilinear", "ops.interpolate(x, size=(4, 5, 6), mode='trilinear')", f32(1, 2, 3, 2, 4)),
        case(
            "resize_trilinear_align",
            "ops.interpolate(x, size=(4, 5, 6), mode='trilinear', align_corners=True)",
            f32(1, 2, 3, 2, 4),
        ),
        case("resize_area_primitive", "P.ResizeArea()(x, y)", f32(1, 5, 7, 2), values([3, 4], "int32")),
        case("upsample_function", "ops.upsample(x, size=(8, 9), mode='bilinear')", X),
    ]


def sampling() -> list[Case]:
    grid = f32(1, 4, 6, 2, low=-1.3, high=1.3)
    result = [
        case(
            f"grid_sample_{mode}_{padding}{'_align' if align else ''}",
            f"ops.grid_sample(x, y, '{mode}', '{padding}', {align})",
            X,
            grid,
        )
        for mode in ("bilinear", "nearest")
        for padding in ("zeros", "border", "reflection")
        for align in (False, True)
    ]
    volume, points = f32(1, 2, 3, 4, 5), f32(1, 2, 3, 4, 3, low=-1.2, high=1.2)
    theta = values([[[0.8, -0.2, 0.1], [0.3, 1.1, -0.4]], [[1, 0, 0], [0, -1, 0.5]]])
    return [
        *result,
        case("grid_sample_3d", "ops.grid_sample(x, y, 'bilinear', 'zeros', False)", volume, points),
        case("grid_sample_3d_nearest_border", "ops.grid_sample(x, y, 'nearest', 'border', True)", volume, points),
        case("affine_grid", "ops.affine_grid(x, (2, 3, 4, 5), False)", theta),
        case("affine_grid_align", "ops.affine_grid(x, (2, 3, 4, 5), True)", theta),
        case(
            "affine_grid_sample",
            "ops.grid_sample(x, ops.affine_grid(y, (2, 3, 4, 5), True), align_corners=True)",
            f32(2, 3, 5, 7),
            theta,
        ),
        case("affine_grid_3d", "ops.affine_grid(x, (1, 2, 3, 4, 5), True)", f32(1, 3, 4)),
    ]


def boxes() -> list[Case]:
    index = values([0, 1, 0], "int32")
    image = f32(2, 6, 5, 3)
    result = [
        case(f"crop_and_resize_{method}", f"ops.crop_and_resize(x, y, z, (4, 3), '{method}', 0.5)", image, BOXES, index)
        for method in ("bilinear", "nearest")
    ]
    scored = values(
        [
            [10, 10, 50, 60, 0.9],
            [12, 11, 52, 58, 0.8],
            [80, 20, 120, 70, 0.7],
            [5, 5, 20, 25, 0.6],
            [81, 22, 118, 69, 0.3],
        ]
    )
    return [
        *result,
        case("crop_and_resize_single", "ops.crop_and_resize(x, y, z, (1, 1))", image, BOXES, index),
        case("nms_with_mask", "P.NMSWithMask(0.5)(x)", scored),
        case("nms_with_mask_low", "P.NMSWithMask(0.1)(x)", scored),
        case(
            "nms_v3",
            "P.NonMaxSuppressionV3()(x, y, 3, z, w)",
            CORNERS,
            values([0.9, 0.8, 0.7, 0.2]),
            values(0.5),
            values(0.3),
        ),
        case("iou", "ops.iou(x, y)", CORNERS, CORNERS[:2] + 3),
        case("iof", "ops.iou(x, y, mode='iof')", CORNERS, CORNERS[:2] + 3),
        case(
            "bounding_box_decode",
            "ops.bounding_box_decode(x, y, (768, 1280), (0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0), 0.016)",
            CORNERS,
            f32(4, 4, low=-1, high=1),
        ),
        case(
            "bounding_box_decode_scaled",
            "ops.bounding_box_decode(x, y, (100, 90), (0.1, 0.2, 0.0, 0.1), (0.5, 0.4, 0.2, 0.3))",
            CORNERS,
            f32(4, 4),
        ),
        case(
            "bounding_box_encode",
            "ops.bounding_box_encode(x, y, (0.0, 0.1, 0.0, 0.0), (1.0, 0.5, 1.0, 1.0))",
            CORNERS,
            CORNERS + 2,
        ),
        case(
            "check_valid",
            "P.CheckValid()(x, y)",
            values([[1, 1, 5, 5], [3, 3, 20, 9], [-1, 0, 2, 2]]),
            values([10, 12, 1]),
        ),
        case(
            "roi_align",
            "P.ROIAlign(2, 3, 0.5, 2, 0)(x, y)",
            f32(1, 2, 8, 9),
            values([[0, 1, 2, 12, 14], [0, 3, 1, 15, 9]]),
        ),
        case(
            "roi_align_mode1",
            "P.ROIAlign(3, 2, 1.0, 2, 1)(x, y)",
            f32(2, 2, 6, 7),
            values([[0, 1, 0, 5, 4], [1, 0.5, 1, 6, 5]]),
        ),
    ]


def images() -> list[Case]:
    return [
        case("image_rgb_to_hsv", "P.RGBToHSV()(x)", f32(2, 3, 5, 3, low=0, high=1)),
        case("image_adjust_saturation", "P.AdjustSaturation()(x, y)", f32(3, 5, 3, low=0, high=1), values(1.5)),
        case("image_normalise_uint8", "(x.astype(mstype.float32) / 255 - 0.5) / 0.25", u8(1, 3, 4, 5)),
        case("image_nhwc_to_nchw", "x.transpose(0, 3, 1, 2)", f32(2, 5, 7, 3)),
    ]
