"""Loss functions, as evaluation networks have them."""

import numpy as np
from mindspore import nn

from mindir_fixtures.table import Case, Draw, boolean, case, f32, i32, i64, values

LOGITS = f32(4, 5)
CLASSES = values([1, 0, 4, 2], "int32")
WITH_IGNORED = values([1, 3, 4, 3], "int32")
SIGNS = values([1, -1, 1, -1], "float32")
PIXELS = i32(2, 4, 3, low=0, high=5)
CHANCES = f32(4, 5, low=0.05, high=0.95)
WEIGHT = f32(5, low=0.3, high=2)

PAIRS: dict[str, tuple[str, Draw | np.ndarray, Draw | np.ndarray]] = {
    "l1": ("ops.l1_loss(x, y, reduction='{0}')", LOGITS, LOGITS),
    "smooth_l1": ("ops.smooth_l1_loss(x, y, 0.7, '{0}')", LOGITS, LOGITS),
    "mse": ("ops.mse_loss(x, y, '{0}')", LOGITS, LOGITS),
    "huber": ("ops.huber_loss(x, y, '{0}', 0.8)", LOGITS, LOGITS),
    "kl_div": ("ops.kl_div(x, y, '{0}')", LOGITS, CHANCES),
    "cross_entropy": ("ops.cross_entropy(x, y, reduction='{0}')", LOGITS, CLASSES),
    "nll": ("ops.nll_loss(x, y, reduction='{0}')", LOGITS, CLASSES),
    "multi_margin": ("ops.multi_margin_loss(x, y, reduction='{0}')", LOGITS, values([1, 0, 4, 2], "int64")),
    "multilabel_soft_margin": ("ops.multilabel_soft_margin_loss(x, y, reduction='{0}')", LOGITS, boolean(4, 5)),
    "hinge_embedding": (
        "ops.hinge_embedding_loss(x, y, 1.0, '{0}')",
        LOGITS,
        values(np.sign(np.arange(20).reshape(4, 5) % 3 - 0.5)),
    ),
    "bce": ("ops.binary_cross_entropy(x, y, None, '{0}')", CHANCES, CHANCES),
    "bce_with_logits": (
        "ops.binary_cross_entropy_with_logits(x, y, ops.ones_like(x), ops.ones_like(x), '{0}')",
        LOGITS,
        CHANCES,
    ),
}


def cases() -> list[Case]:
    result = [
        case(f"loss_{name}_{reduction}", text.format(reduction), *inputs)
        for name, (text, *inputs) in PAIRS.items()
        for reduction in ("mean", "sum", "none")
    ]
    return [*result, *weighted(), *primitives(), *device()]


def weighted() -> list[Case]:
    return [
        case("loss_cross_entropy_weight", "ops.cross_entropy(x, y, z, 3, 'mean', 0.1)", LOGITS, WITH_IGNORED, WEIGHT),
        case("loss_cross_entropy_chances", "ops.cross_entropy(x, y, z, -100, 'mean', 0.2)", LOGITS, CHANCES, WEIGHT),
        case("loss_cross_entropy_pixels", "ops.cross_entropy(x, y)", f32(2, 5, 4, 3), PIXELS),
        case("loss_nll_weight", "ops.nll_loss(x, y, z, 3, 'mean', 0.0)", LOGITS, WITH_IGNORED, WEIGHT),
        case("loss_nll_weight_none", "ops.nll_loss(x, y, z, 3, 'none', 0.0)", LOGITS, WITH_IGNORED, WEIGHT),
        case("loss_nll_smoothing", "ops.nll_loss(x, y, z, -100, 'mean', 0.1)", LOGITS, CLASSES, WEIGHT),
        case("loss_nll_primitive", "P.NLLLoss('mean', 3)(x, y, z)", LOGITS, WITH_IGNORED, WEIGHT),
        case("loss_nll_primitive_none", "P.NLLLoss('none')(x, y, z)", LOGITS, CLASSES, WEIGHT),
        case("loss_nll_pixels", "ops.nll_loss(x, y)", f32(2, 5, 4, 3), PIXELS),
        case("loss_bce_weight", "ops.binary_cross_entropy(x, y, z, 'mean')", CHANCES, CHANCES, CHANCES),
        case(
            "loss_bce_limits",
            "ops.binary_cross_entropy(x, y, None, 'none')",
            values([0.0, 1.0, 0.0, 1.0, 0.5]),
            values([0.0, 1.0, 1.0, 0.0, 0.5]),
        ),
        case(
            "loss_bce_with_logits_weight",
            "ops.binary_cross_entropy_with_logits(x, y, z, w, 'mean')",
            LOGITS,
            CHANCES,
            CHANCES,
            f32(5, low=0.5, high=3),
        ),
        case("loss_kl_div_batchmean", "ops.kl_div(x, y, 'batchmean')", LOGITS, CHANCES),
        case("loss_kl_div_zero", "ops.kl_div(x, y, 'none')", values([0.5, -1.0]), values([0.0, 0.25])),
        case(
            "loss_multi_margin_weight",
            "ops.multi_margin_loss(x, y, 2, 3, z)",
            LOGITS,
            values([1, 0, 4, 2], "int64"),
            WEIGHT,
        ),
        case("loss_cosine_embedding", "ops.cosine_embedding_loss(x, y, z, 0.2)", LOGITS, LOGITS, SIGNS),
        case("loss_margin_ranking", "ops.margin_ranking_loss(x, y, z, 0.3)", f32(4), f32(4), SIGNS),
        case("loss_gaussian_nll", "ops.gaussian_nll_loss(x, y, z)", LOGITS, LOGITS, CHANCES),
        case("loss_dice", nn.DiceLoss(), CHANCES, CHANCES),
        case("loss_focal", nn.FocalLoss(), f32(4, 3), values([[0], [2], [1], [0]], "int32")),
        case("loss_rmse", nn.RMSELoss(), LOGITS, LOGITS),
        case("loss_poisson_nll", "nn.PoissonNLLLoss()(x, y)", LOGITS, CHANCES),
    ]


def primitives() -> list[Case]:
    return [
        case("loss_sigmoid_cross_entropy", "P.SigmoidCrossEntropyWithLogits()(x, y)", LOGITS, CHANCES),
        case("loss_softmax_cross_entropy", "P.SoftmaxCrossEntropyWithLogits()(x, y)", LOGITS, CHANCES),
        case("loss_sparse_softmax", "P.SparseSoftmaxCrossEntropyWithLogits()(x, y)", LOGITS, CLASSES),
        case("loss_softmax_layer", nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), LOGITS, CLASSES),
        case("loss_softmax_layer_dense", nn.SoftmaxCrossEntropyWithLogits(reduction="sum"), LOGITS, CHANCES),
        case("loss_kl_div_primitive", "P.KLDivLoss('none')(x, y)", LOGITS, CHANCES),
        case("loss_bce_primitive", "P.BinaryCrossEntropy('sum')(x, y, z)", CHANCES, CHANCES, CHANCES),
    ]


def device() -> list[Case]:
    """Losses without a CPU kernel, by equivalent networks."""
    distance = "ops.sqrt(ops.square({0} - {1} + 1e-6).sum(-1))"
    near, far, swapped = (distance.format(*pair) for pair in ("xy", "xz", "yz"))
    pixels = "c = ops.one_hot(y, 5, ms.Tensor(1.0), ms.Tensor(0.0), 1)\nreturn -(x * c).sum() / 24"
    signs = values(np.sign(np.arange(20).reshape(4, 5) % 3 - 0.5))
    return [
        case(
            "loss_soft_margin",
            "P.SoftMarginLoss('mean')(x, y)",
            LOGITS,
            signs,
            reference="ops.log(1 + ops.exp(-x * y)).mean()",
        ),
        case(
            "loss_triplet",
            "ops.triplet_margin_loss(x, y, z)",
            LOGITS,
            LOGITS,
            LOGITS,
            reference=f"ops.relu({near} - {far} + 1).mean()",
        ),
        case(
            "loss_triplet_swap",
            "ops.triplet_margin_loss(x, y, z, 2.0, 2, 1e-6, True, 'none')",
            LOGITS,
            LOGITS,
            LOGITS,
            reference=f"ops.relu({near} - ops.minimum({far}, {swapped}) + 2)",
        ),
        case("loss_mint_l1", "mint.nn.functional.l1_loss(x, y)", LOGITS, LOGITS, reference="ops.abs(x - y).mean()"),
        case(
            "loss_mint_mse", "mint.nn.functional.mse_loss(x, y)", LOGITS, LOGITS, reference="ops.square(x - y).mean()"
        ),
        case(
            "loss_mint_kl_div",
            "mint.nn.functional.kl_div(x, y)",
            LOGITS,
            CHANCES,
            reference="(y * (ops.log(y) - x)).mean()",
        ),
        case(
            "loss_mint_kl_div_log",
            "mint.nn.functional.kl_div(x, y, reduction='sum', log_target=True)",
            LOGITS,
            LOGITS,
            reference="(ops.exp(y) * (y - x)).sum()",
        ),
        case(
            "loss_mint_nll_pixels",
            "mint.nn.functional.nll_loss(x, y)",
            f32(2, 5, 4, 3),
            i64(2, 4, 3, low=0, high=5),
            reference=pixels,
        ),
    ]
