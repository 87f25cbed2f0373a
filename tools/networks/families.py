"""One model of every family that the mindcv package has, the smallest or nearly so."""

from collections.abc import Iterator
from contextlib import contextmanager

import mindspore as ms
from mindir_fixtures.table import f32

from networks.table import Network

SIZES = {
    "cmt_tiny": 160,
    "crossvit_9": 240,
    "edgenext_x_small": 256,
    "halonet_50t": 256,
    "inception_v3": 299,
    "inception_v4": 299,
    "mobilevit_x_small": 256,
    "swinv2_tiny_window8": 256,
    "xception": 299,
}
"""Image sizes other than 224."""

NAMES = """
    mobilenet_v1_025 mobilenet_v2_075 mobilenet_v3_large_075 shufflenet_v1_g3_05 shufflenet_v2_x1_0 squeezenet1_0
    mnasnet_050 mixnet_s efficientnet_b0 efficientnet_v2_s ghostnet_050 regnet_x_200mf regnet_y_200mf rexnet_09
    resnet18 resnet50 resnetv2_50 BiT_resnet50 resnext50_32x4d seresnet18 seresnext26_32x4d senet154 skresnet18
    res2net50 res2net50_v1b resnest14 densenet121 dpn92 googlenet inception_v3 inception_v4 xception nasnet_a_4x1056
    pnasnet repvgg_a0 repmlp_t224 vgg11 hrnet_w32 convnext_tiny convnextv2_atto
    vit_b_32_224 mae_b_16_224_finetune swin_tiny swinv2_tiny_window8 cait_xxs24_224 coat_tiny coat_lite_tiny convit_tiny
    crossvit_9 cmt_tiny edgenext_x_small mobilevit_x_small pit_ti poolformer_s12 pvt_tiny pvt_v2_b0 visformer_tiny
    visformer_tiny_v2 xcit_tiny_12_p16_224 mlp_mixer_s_p32 volo_d1 halonet_50t
"""


@contextmanager
def eager_weights() -> Iterator[None]:
    """Lets networks compute with their weights while they are built, which MindSpore 2.10 initialises later."""
    multiply, reshape = ms.Parameter.__mul__, ms.Tensor.reshape
    ms.Parameter.__mul__ = lambda weight, factor: ms.Tensor(weight.init_data().asnumpy() * factor)
    ms.Tensor.reshape = lambda tensor, *shape: reshape(tensor.init_data() if tensor.has_init else tensor, *shape)
    yield
    ms.Parameter.__mul__, ms.Tensor.reshape = multiply, reshape


def networks() -> list[Network]:
    return [_network(name) for name in NAMES.split()]


def _network(name: str) -> Network:
    def build():
        import mindcv

        with eager_weights():
            return mindcv.create_model(name)

    size = SIZES.get(name, 224)
    return Network(name, "mindcv", build, [[f32(1, 3, size, size)]])
