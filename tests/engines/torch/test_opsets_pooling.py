import numpy as np
import pytest
from engines.torch.against import agrees, numbers

GEOMETRIES = [
    {},
    {"strides": [2, 2]},
    {"pads": [1, 1, 1, 1], "strides": [2, 2]},
    {"pads": [1, 0, 2, 1], "strides": [2, 1]},
    {"pads": [2, 2, 2, 2]},
    {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
    {"auto_pad": "VALID", "strides": [2, 3]},
]
CEILED = [
    {"strides": [2, 2]},
    {"strides": [3, 3], "pads": [1, 1, 1, 1]},
    {"strides": [2, 3], "pads": [0, 1, 2, 0]},
    {"strides": [4, 4], "pads": [1, 1, 1, 1]},
]


@pytest.mark.parametrize("opset", [8, 10, 11, 12, 22])
@pytest.mark.parametrize("attributes", GEOMETRIES, ids=str)
def test_max_pool(attributes, opset):
    agrees("MaxPool", [numbers(2, 3, 9, 8)], opset=opset, kernel_shape=[3, 3], tolerance=0, **attributes)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("attributes", GEOMETRIES, ids=str)
def test_max_pool_with_places(attributes, order):
    x = np.round(3 * numbers(2, 3, 9, 8))  # with ties
    agrees("MaxPool", [x], outputs=2, kernel_shape=[3, 3], storage_order=order, tolerance=0, **attributes)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("rank", [1, 3])
def test_max_pool_of_another_rank(rank, order):
    x = np.round(3 * numbers(2, 3, *[7, 6, 5][:rank]))
    attributes = {"kernel_shape": [3, 2, 2][:rank], "outputs": 2, "tolerance": 0}
    attributes |= {"storage_order": order} if rank > 1 else {}
    agrees("MaxPool", [x], **attributes)
    agrees("MaxPool", [x], pads=[1, 0, 1][:rank] + [0, 1, 1][:rank], **attributes)


@pytest.mark.parametrize("attributes", CEILED, ids=str)
def test_max_pool_with_windows_beyond_the_image(attributes):
    agrees("MaxPool", [numbers(1, 2, 10, 11)], kernel_shape=[3, 3], ceil_mode=1, tolerance=0, **attributes)
    agrees("MaxPool", [numbers(1, 2, 10, 11)], outputs=2, kernel_shape=[3, 3], ceil_mode=1, tolerance=0, **attributes)


@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
def test_max_pool_with_dilation(pads):
    agrees("MaxPool", [numbers(1, 2, 10, 11)], kernel_shape=[3, 2], dilations=[2, 3], pads=pads, outputs=2)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.float64])
@pytest.mark.parametrize("attributes", [{"pads": [1, 1, 1, 1]}, {"pads": [0, 0, 1, 1]}], ids=str)
def test_max_pool_of_types(dtype, attributes):
    x = np.random.default_rng(0).integers(0, 100, (1, 2, 8, 8)).astype(dtype)
    agrees("MaxPool", [x], opset=12, kernel_shape=[2, 3], tolerance=0, **attributes)


@pytest.mark.parametrize("opset", [7, 10, 11, 19, 22])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("attributes", GEOMETRIES, ids=str)
def test_average_pool(attributes, include, opset):
    agrees(
        "AveragePool", [numbers(2, 3, 9, 8)], opset=opset, kernel_shape=[3, 3], count_include_pad=include, **attributes
    )


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("attributes", CEILED, ids=str)
def test_average_pool_with_windows_beyond_the_image(attributes, include):
    x = numbers(1, 2, 10, 11)
    agrees("AveragePool", [x], opset=22, kernel_shape=[3, 3], ceil_mode=1, count_include_pad=include, **attributes)
    agrees("AveragePool", [x], opset=10, kernel_shape=[3, 3], ceil_mode=1, count_include_pad=include, **attributes)


@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("pads", [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]])
def test_average_pool_with_dilation(pads, include):
    attributes = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": pads, "count_include_pad": include}
    agrees("AveragePool", [numbers(1, 2, 10, 11)], opset=19, **attributes)


@pytest.mark.parametrize("rank", [1, 3])
def test_average_pool_of_another_rank(rank):
    x = numbers(2, 3, *[7, 6, 5][:rank])
    agrees("AveragePool", [x], kernel_shape=[3, 2, 2][:rank])
    agrees("AveragePool", [x], kernel_shape=[3, 2, 2][:rank], pads=[1, 0, 1][:rank] + [0, 1, 1][:rank])


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("attributes", [*GEOMETRIES[:4], *GEOMETRIES[5:]], ids=str)
def test_lp_pool(attributes, p):
    agrees("LpPool", [numbers(2, 3, 9, 8)], opset=11, kernel_shape=[3, 3], p=p, **attributes)


def test_lp_pool_with_dilation():
    agrees(
        "LpPool", [numbers(2, 3, 9, 8)], opset=18, kernel_shape=[3, 2], dilations=[2, 1], ceil_mode=1, strides=[3, 3]
    )


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_global_pools(shape):
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        agrees(op, [numbers(*shape)], opset=21)
    agrees("GlobalLpPool", [numbers(*shape)], p=3)


def test_max_unpool():
    x = numbers(2, 3, 8, 8)
    values, places = agrees("MaxPool", [x], outputs=2, kernel_shape=[2, 2], strides=[2, 2])
    agrees("MaxUnpool", [values, places], kernel_shape=[2, 2], strides=[2, 2], tolerance=0)


def test_max_roi_pool():
    x = numbers(2, 3, 9, 12)
    rois = np.array(
        [[0, 0, 0, 23, 17], [1, 3, 2, 10, 9], [1, 20, 10, 40, 30], [0, 5, 5, 4, 4], [0, 7, 3, 7, 3], [1, -5, -3, 9, 5]],
        np.float32,
    )
    agrees("MaxRoiPool", [x, rois], pooled_shape=[3, 2], spatial_scale=0.5, tolerance=0)
    agrees("MaxRoiPool", [x, rois], pooled_shape=[4, 5], tolerance=0)
