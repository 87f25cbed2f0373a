"""Normalisations: modes, outputs, shapes of scales, and older opsets."""

import numpy as np
import pytest
from engines.torch.against import agrees, numbers, on_torch, one_op
from formats.onnx_runs import direct

X = numbers(2, 6, 4, 5)
ONE, TWO, THREE, FOUR = (numbers(6, seed=seed) for seed in (1, 2, 3, 4))


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("shape", [(3, 6), (2, 6, 4), (2, 6, 4, 5), (2, 6, 2, 3, 2)])
def test_batch_norm(shape: tuple[int, ...], opset: int) -> None:
    agrees("BatchNormalization", [numbers(*shape), ONE, TWO, THREE, abs(FOUR)], opset=opset, epsilon=1e-3)


def test_batch_norm_of_float64() -> None:
    values = [value.astype(np.float64) for value in (X, ONE, TWO, THREE, abs(FOUR))]
    agrees("BatchNormalization", values, tolerance=1e-12)


@pytest.mark.parametrize("kinds", [("float16", "float32", "float32"), ("float32", "float16", "float32")])
def test_batch_norm_of_mixed_dtypes(kinds: tuple[str, str, str]) -> None:
    places = (0, 1, 1, 2, 2)  # that of x, that of scale and bias, that of mean and variance
    values = [value.astype(kinds[place]) for value, place in zip((X, ONE, TWO, THREE, abs(FOUR)), places, strict=True)]
    (found,) = on_torch(one_op("BatchNormalization", values, opset=15), values)
    wide = {f"x{place}": value.astype(np.float32) for place, value in enumerate(values)}
    (expected,) = direct(one_op("BatchNormalization", list(wide.values()), opset=15), wide)
    assert found.dtype == kinds[0]
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3)


def test_batch_norm_that_trains() -> None:
    values = (X, ONE, TWO, THREE, abs(FOUR))
    agrees("BatchNormalization", values, outputs=3, training_mode=1, momentum=0.7, opset=15)


@pytest.mark.parametrize("shape", [(2, 6, 7), (2, 6, 4, 5), (2, 6, 2, 3, 2), (1, 6, 1, 1)])
def test_instance_norm(shape: tuple[int, ...]) -> None:
    agrees("InstanceNormalization", [numbers(*shape), ONE, TWO], epsilon=1e-2, opset=7)


@pytest.mark.parametrize("axis", [-1, 1, 2, -3])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_layer_norm(axis: int, outputs: int) -> None:
    scale, bias = numbers(*X.shape[axis:], seed=1), numbers(*X.shape[axis:], seed=2)
    agrees("LayerNormalization", [X, scale, bias], axis=axis, outputs=outputs, epsilon=1e-3, opset=17)
    agrees("LayerNormalization", [X, scale], axis=axis, outputs=outputs, opset=17)


def test_layer_norm_with_a_scale_for_many() -> None:
    agrees("LayerNormalization", [X, numbers(2, 6, 1, 5, seed=1), numbers(5, seed=2)], axis=-1)


def test_layer_norm_of_float64() -> None:
    agrees(
        "LayerNormalization", [*(numbers(*shape, dtype="float64") for shape in ((3, 5), (5,), (5,)))], tolerance=1e-6
    )


@pytest.mark.parametrize("opset", [18, 21])
def test_group_norm(opset: int) -> None:
    count = 3 if opset == 18 else 6
    scale, bias = numbers(count, seed=1), numbers(count, seed=2)
    agrees("GroupNormalization", [X, scale, bias], num_groups=3, epsilon=1e-3, opset=opset, dtypes=["float32"])


@pytest.mark.parametrize("axis", [-1, 1, 2])
def test_rms_norm(axis: int) -> None:
    agrees("RMSNormalization", [X, numbers(*X.shape[axis:], seed=1)], axis=axis, epsilon=1e-3, opset=23)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_lp_norm(axis: int, p: int) -> None:
    x = X.copy()
    x[:, :, 1] = x[:, 2] = x[1] = 0
    agrees("LpNormalization", [x], axis=axis, p=p, opset=7)


@pytest.mark.parametrize("axes", [None, [1], [0, 1, 2, 3], [2, 3]])
def test_mean_variance_norm(axes: list[int] | None) -> None:
    agrees("MeanVarianceNormalization", [X], opset=13, **({} if axes is None else {"axes": axes}))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int) -> None:
    agrees("LRN", [X], size=size, alpha=0.3, beta=0.6, bias=1.5, opset=7)


@pytest.mark.parametrize("opset", [7, 10, 12, 13])
@pytest.mark.parametrize("outputs", [1, 2])
def test_dropout(opset: int, outputs: int) -> None:
    if opset < 12:
        agrees(
            "Dropout",
            [X],
            opset=opset,
            outputs=outputs,
            ratio=0.4,
            dtypes=["float32", "float32" if opset < 10 else "bool"][:outputs],
        )
    else:
        agrees("Dropout", [X, np.array(0.4, np.float32), np.array(False)], opset=opset, outputs=outputs)
