"""Layouts of values and weights, against numpy, and that networks in blocked layouts become plain ones."""

from typing import Any

import numpy as np
import onnx_ir as ir
import pytest
from formats.mge.one_operator import run_operator, translated
from formats.mge.test_convolution_numpy import PLAIN, both, convolved, drawn

import litehouse
from conftest import FIXTURES, assert_close
from litehouse.formats.mge.tape import MgeTape

VALUES = {"NCHW": ("NCHW", 1), "NHWC": ("NHWC", 1), "NHWCD4": ("NHCWc", 4), "CHWN4": ("CHWNc", 4)}
VALUES |= {f"NCHW{size}": ("NCHWc", size) for size in (4, 8, 32, 64)}
VALUES |= {"NCHW44": ("NCHWc", 4), "NCHW44_DOT": ("NCHWc", 4), "NCHW88": ("NCHWc", 8)}


def laid(array: np.ndarray, axes: str, order: str, block: int) -> np.ndarray:
    """An array of those axes in another order, in which a small letter is the place in a block of the large one's."""
    shape, names = [], []
    for axis, size in zip(axes, array.shape, strict=True):
        split = axis.lower() in order
        shape += [size // block, block] if split else [size]
        names += [axis, axis.lower()] if split else [axis]
    return np.ascontiguousarray(array.reshape(shape).transpose([names.index(axis) for axis in order]))


def of_layout(x: np.ndarray, layout: str) -> np.ndarray:
    return laid(x, "NCHW", *VALUES[layout])


DENSE = {
    "NHWC": "OHWI",
    "NHWCD4": "OHWIo",
    "CHWN4": "IHWOi",
    "NCHW44": "OIHWio",
    "NCHW44_DOT": "OIHWoi",
    "NCHW88": "OIHWio",
}
DENSE |= {f"NCHW{size}": "OIHWi" for size in (4, 8, 32, 64)}


@pytest.mark.parametrize("layout", DENSE)
def test_dense(layout: str, engine: str) -> None:
    size = VALUES[layout][1]
    x, w = drawn(2, 2 * size, 5, 4), drawn(size, 2 * size, 3, 3)
    params = PLAIN | both("pad", 1) | {"format": layout}
    weights = laid(w, "OIHW", DENSE[layout], size)
    (y,) = run_operator(engine, "Convolution", [of_layout(x, layout), weights], params)
    assert_close(y, of_layout(convolved(x, w[None], 1, 1), layout))


@pytest.mark.parametrize("layout", DENSE)
def test_grouped(layout: str, engine: str) -> None:
    size = VALUES[layout][1]
    x, w = drawn(2, 4 * size, 5, 4), drawn(2, size, 2 * size, 3, 3)
    params = PLAIN | {"format": layout, "sparse": "GROUP"}
    order = "g" + DENSE[layout]
    weights = np.stack([laid(part, "OIHW", DENSE[layout], size) for part in w])
    assert weights.ndim == len(order)
    (y,) = run_operator(engine, "Convolution", [of_layout(x, layout), weights], params)
    assert_close(y, of_layout(convolved(x, w), layout))


@pytest.mark.parametrize("layout", ["NCHW44", "NCHW44_DOT", "NCHW88", "NHWCD4"])
def test_depthwise(layout: str, engine: str) -> None:
    size = VALUES[layout][1]
    x, w = drawn(2, 2 * size, 5, 4), drawn(2 * size, 1, 1, 3, 3)
    weights = w.reshape(2, size, 3, 3).transpose(0, 2, 3, 1)
    weights = weights.reshape(2, *(1,) * (1 if layout == "NHWCD4" else 2), 3, 3, size).copy()
    params = PLAIN | {"format": layout, "sparse": "GROUP"}
    (y,) = run_operator(engine, "Convolution", [of_layout(x, layout), weights], params)
    assert_close(y, of_layout(convolved(x, w), layout))


@pytest.mark.parametrize("layout", ["NCHW44", "NCHW44_DOT", "NCHW88"])
def test_first_of_a_network(layout: str, engine: str) -> None:
    size = VALUES[layout][1]
    x, w, bias = drawn(1, 3, 6, 5), drawn(2 * size, 3, 3, 3), drawn(1, 2 * size, 1, 1)
    weights = laid(w, "OIHW", "OHWIo", size)
    params = PLAIN | {"format": layout, "nonline_mode": "RELU"} | both("stride", 2)
    (y,) = run_operator(engine, "ConvBias", [x, weights, of_layout(bias, layout)], params)
    assert_close(y, of_layout(np.maximum(convolved(x, w[None], 2) + bias, 0), layout))


@pytest.mark.parametrize("layout", ["NCHW4_NCHW32", "NCHW32_NCHW4", "NCHW4_NCHW", "NCHW4_NHWC"])
def test_another_layout_of_the_result(layout: str, engine: str) -> None:
    source, target = layout.split("_")
    size = VALUES[source][1]
    x, w, bias = drawn(1, size, 6, 5), drawn(32, size, 3, 3), drawn(1, 32, 1, 1)
    params = PLAIN | {"format": layout, "nonline_mode": "IDENTITY"}
    operands = [of_layout(x, source), laid(w, "OIHW", "OIHWi", size), of_layout(bias, target)]
    (y,) = run_operator(engine, "ConvBias", operands, params)
    assert_close(y, of_layout(convolved(x, w[None]) + bias, target))


# RelayoutFormat -------------------------------------------------------------------------------------------------------

CHANGES = [
    *("NHWC_NHWCD4", "NHWC_NHWCD4I", "NHWCD4_NHWC", "NHWCD4I_NHWC", "NCHW_NHWCD4", "NCHW_NHWCD4I", "NHWCD4_NCHW"),
    *("NHWCD4I_NCHW", "NCHW4_CHWN4", "CHWN4_NCHW4", "NCHW_NCHW88", "NCHW88_NCHW", "NCHW_NCHW4", "NCHW4_NCHW"),
    *("NCHW_NCHW64", "NCHW64_NCHW", "NCHW_NHWC", "NHWC_NCHW"),
]


def relaid(engine: str, x: np.ndarray, mode: str, oc: int = 0, group: int = 1) -> np.ndarray:
    return run_operator(engine, "RelayoutFormat", [x], {"mode": mode, "oc": oc, "group": group})[0]


@pytest.mark.parametrize("mode", CHANGES)
def test_change_of_layout(mode: str, engine: str) -> None:
    source, target = mode.replace("D4I", "D4").split("_")
    x = drawn(2, 64, 3, 2)
    assert_close(relaid(engine, of_layout(x, source), mode), of_layout(x, target))


def test_channels_that_fill_no_block(engine: str) -> None:
    x = drawn(2, 6, 3, 2)
    filled = np.pad(x, ((0, 0), (0, 2), (0, 0), (0, 0)))
    assert_close(relaid(engine, x, "NCHW_NCHW4"), of_layout(filled, "NCHW4"))
    assert_close(relaid(engine, x[:, :3].copy(), "NCHW_NCHW4_IC_SMALL"), of_layout(filled_to(x[:, :3], 4), "NCHW4"))
    assert_close(relaid(engine, of_layout(filled, "NCHW4"), "NCHW4_NCHW", oc=6), x)
    parts = np.concatenate([filled_to(x[:, :3], 4), filled_to(x[:, 3:], 4)], 1)
    assert_close(relaid(engine, x, "NCHW_NCHW4", group=2), of_layout(parts, "NCHW4"))
    assert_close(relaid(engine, of_layout(parts, "NCHW4"), "NCHW4_NCHW", oc=6, group=2), x)


def filled_to(x: np.ndarray, count: int) -> np.ndarray:
    return np.pad(x, ((0, 0), (0, count - x.shape[1]), (0, 0), (0, 0)))


def test_change_of_weights(engine: str) -> None:
    w = drawn(8, 6, 3, 2)
    filled = filled_to(w, 8)
    for mode, order, block in [
        ("INTER_WEIGHT_DENSE", "OHWIo", 4),
        ("INTER_WEIGHT_DENSEI_DOT", "OHWIoi", 4),
        ("NCHW_NCHW88_CONV_DENSE_WEIGHT", "OIHWio", 8),
        ("NCHW_NCHW4_WEIGHT", "OIHWi", 4),
    ]:
        assert_close(relaid(engine, w, mode), laid(filled, "OIHW", order, block))
    assert_close(relaid(engine, w[:7], "NCHW_NCHW4_WEIGHT")[:7], laid(filled, "OIHW", "OIHWi", 4)[:7])
    few = w[:, :3].copy()
    mode = "NCHW_NCHW4_IC_SMALL_CONV_DENSE_WEIGHT"
    assert_close(relaid(engine, few, mode), laid(filled_to(few, 4), "OIHW", "OIHWi", 4))


def test_change_of_grouped_weights(engine: str) -> None:
    w, single = drawn(2, 8, 8, 3, 2), drawn(12, 1, 1, 3, 2)
    for mode, order, block in [
        ("INTER_WEIGHT_GROUP", "OHWIo", 4),
        ("INTER_WEIGHT_GROUPI_DOT", "OHWIoi", 4),
        ("NCHW_NCHW88_CONV_GROUP_WEIGHT", "OIHWio", 8),
        ("NCHW_NCHW4_WEIGHT", "OIHWi", 4),
    ]:
        assert_close(relaid(engine, w, mode), np.stack([laid(part, "OIHW", order, block) for part in w]))
    fours = single.reshape(3, 4, 3, 2).transpose(0, 2, 3, 1)[:, None]
    assert_close(relaid(engine, single, "INTER_WEIGHT_CHAN"), fours)
    eights = np.pad(single, ((0, 4), *[(0, 0)] * 4)).reshape(2, 8, 3, 2).transpose(0, 2, 3, 1)[:, None, None]
    assert_close(relaid(engine, single, "NCHW_NCHW88_CONV_CHAN_WEIGHT"), eights)


@pytest.mark.parametrize(
    ("x", "params", "reason"),
    [
        (drawn(1, 6, 2, 2), {"mode": "NCHW_NCHW4", "oc": 0, "group": 4}, "6 channels in 4 groups"),
        (drawn(1, 6, 2, 2), {"mode": "NCHW_NCHW4", "oc": 0, "group": 0}, "0 groups"),
        (drawn(6, 2, 2), {"mode": "INTER_WEIGHT_DENSE", "oc": 0, "group": 1}, "rank 3"),
        (drawn(1, 6, 2, 2), {"mode": "INTER_WEIGHT_GROUP", "oc": 0, "group": 1}, "rank 4"),
    ],
)
def test_refused(x: np.ndarray, params: dict[str, Any], reason: str) -> None:
    with pytest.raises(litehouse.UnsupportedOpError, match=reason):
        translated("RelayoutFormat", [x], params)


# What remains of it ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["nchw44", "nchw44_dot", "nchw88", "nchw4"])
@pytest.mark.parametrize("network", ["network", "network_quantised", "small_quantised"])
def test_no_value_is_moved_between_convolutions(layout: str, network: str) -> None:
    graph = litehouse.read(FIXTURES / "mge" / "layouts" / f"{layout}_{network}.mge").graph.graph
    fixed: set[ir.Value] = set(graph.initializers.values())
    moved = []
    for node in graph:
        if all(value in fixed for value in node.inputs if value is not None):
            fixed.update(node.outputs)
        elif node.op_type == "Transpose" or (node.outputs[0].shape is not None and node.outputs[0].shape.rank() > 4):
            moved.append(node.name)
    assert not moved


def test_moves_that_undo_each_other_are_left_out() -> None:
    t = MgeTape()
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2, 6, 5]))
    there = t.op("Transpose", [x], perm=[1, 2, 0])
    assert t.op("Transpose", [there], perm=[2, 0, 1]) is x
    twice = t.op("Transpose", [there], perm=[1, 2, 0])
    assert twice.producer().inputs[0] is x
    assert twice.shape == [5, 2, 6]
    flat = t.op("Reshape", [x, t.ints([12, 5])])
    assert t.op("Reshape", [flat, t.ints([2, 6, 5])]) is x
    assert t.op("Reshape", [flat, t.ints([0, 5])]).shape == [12, 5], "a zero means the size of what it is given"
    assert t.op("Reshape", [flat, t.ints([-1])]).producer().inputs[0] is x
    assert t.op("Transpose", [x], perm=[0, 1, 2]) is x
