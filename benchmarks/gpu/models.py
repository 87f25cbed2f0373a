"""The networks: torch modules with random weights, and the same as ONNX files. Tiny ones stand in on the CPU."""

import copy
import io
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn
from torch.nn import functional

OPSET = 17
# What the last norm of a residual block multiplies by: about what it is after training. With the 1 that a network
# begins with, each block changes all that went before it, and rounding grows from block to block: of ResNet-50, what
# torch itself computes in 16 bits is off by 1.6e-2 of the range then, and by 1.6e-3 so.
BRANCH = 0.3


@dataclass(frozen=True)
class Network:
    """How a network is made.

    Attributes:
        title: Its name for people.
        make: Makes it.
        inputs: Draws its inputs for a batch.
        updated: The shape of the weight that is updated in it, as the file has it or the other way round.
    """

    title: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], list[torch.Tensor]]
    updated: tuple[int, int] = (0, 0)


class Flat(nn.Module):
    """Gives a tuple of tensors, whatever the network gives."""

    def __init__(self, network: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.network, self._names = network, names

    def forward(self, given: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = self.network(given)
        return tuple(getattr(found, name) for name in self._names)


class Encoder(nn.Module):
    """A layer of a transformer, for a rehearsal."""

    def __init__(self, width: int = 32, inner: int = 64, heads: int = 2, words: int = 50) -> None:
        super().__init__()
        self.words, self.heads = nn.Embedding(words, width), heads
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, inner), nn.Linear(inner, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.words(ids)
        batch, length, width = x.shape
        parts = self.mixed(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = self.first(x + self.out(seen.transpose(1, 2).reshape(batch, length, width)))
        made: torch.Tensor = self.second(x + self.narrow(functional.gelu(self.wide(x))))
        return made


def _torchvision(name: str) -> nn.Module:
    from torchvision import models

    made: nn.Module = getattr(models, name)(weights=None)
    return made


def _bert() -> nn.Module:
    from transformers import BertConfig, BertModel

    network = BertModel(BertConfig(attn_implementation="sdpa"))
    return Flat(network, ("last_hidden_state", "pooler_output"))


def _perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def _images(side: int) -> Callable[[int], list[torch.Tensor]]:
    return lambda batch: [torch.randn(batch, 3, side, side)]


def _ids(words: int, length: int) -> Callable[[int], list[torch.Tensor]]:
    return lambda batch: [torch.randint(0, words, (batch, length))]


def _small_images() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU6()),
        *(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.ReLU6()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)),
    )


PERCEPTRON = Network("MLP, 64 to 128 to 10", _perceptron, lambda batch: [torch.randn(batch, 64)])
NETWORKS: dict[str, Network] = {
    "mobilenet_v2": Network("MobileNetV2", lambda: _torchvision("mobilenet_v2"), _images(224)),
    "resnet50": Network("ResNet-50", lambda: _torchvision("resnet50"), _images(224)),
    "bert": Network("BERT-base, 128 tokens", _bert, _ids(30522, 128), (768, 3072)),
    "mlp": PERCEPTRON,
}
TINY: dict[str, Network] = {
    "mobilenet_v2": Network("tiny, for MobileNetV2", _small_images, _images(16)),
    "resnet50": Network("tiny, for ResNet-50", _small_images, _images(16)),
    "bert": Network("tiny, for BERT-base", Encoder, _ids(50, 6), (32, 64)),
    "mlp": PERCEPTRON,
}


class Made:
    """A network with random weights, and inputs for it, on the CPU and in 32 bits.

    Attributes:
        network: How it was made.
        module: The network.
        inputs: The inputs.
        exporter: Which of torch's exporters has written the file.
    """

    def __init__(self, network: Network, module: nn.Module, batch: int) -> None:
        self.network, self.module = network, module
        torch.manual_seed(batch)
        self.inputs = network.inputs(batch)
        self.exporter = ""

    @cached_property
    def onnx(self) -> bytes:
        """The same as an ONNX file, for this batch."""
        try:
            made, self.exporter = _traced(self.module, self.inputs), "TorchScript"
        except Exception as error:  # noqa: BLE001  (what it cannot trace, the other may export)
            logging.getLogger(__name__).info("the exporter by TorchScript failed: %s", error)
            made, self.exporter = _exported(self.module, self.inputs), "dynamo"
        return made


class Models:
    """The networks by name, each made once."""

    def __init__(self, *, is_tiny: bool) -> None:
        self._networks = TINY if is_tiny else NETWORKS
        self._modules: dict[str, nn.Module] = {}
        self._made: dict[tuple[str, int], Made] = {}

    def made(self, name: str, batch: int = 1) -> Made:
        """A network with inputs for a batch."""
        network = self._networks[name]
        if name not in self._modules:
            torch.manual_seed(0)
            module = self._modules[name] = network.make().eval()
            _soften(module)
            _calibrate(module, network.inputs(4))
        if (name, batch) not in self._made:
            self._made[name, batch] = Made(network, self._modules[name], batch)
        return self._made[name, batch]


def _soften(module: nn.Module) -> None:
    """Let residual blocks add as little to what goes through them as those of a trained network do."""
    for block in module.modules():
        last = block.conv[-1] if getattr(block, "use_res_connect", False) else getattr(block, "bn3", None)
        if isinstance(last, nn.BatchNorm2d):
            nn.init.constant_(last.weight, BRANCH)


def _calibrate(module: nn.Module, inputs: list[torch.Tensor]) -> None:
    """Let batch norms take the statistics of what goes through them, so that activations keep their size."""
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    for norm in norms:
        norm.train()
        norm.momentum = 1.0
    if norms:
        with torch.no_grad():
            module(*inputs)
    module.eval()


def moved(module: nn.Module, place: torch.device, precision: str) -> nn.Module:
    """A copy of a network on a device, in a precision."""
    own = copy.deepcopy(module).to(place).eval()
    return own.half() if precision == "fp16" else own


def in_precision(inputs: list[torch.Tensor], precision: str) -> list[torch.Tensor]:
    """The inputs as a network in that precision takes them."""
    if precision != "fp16":
        return inputs
    return [tensor.half() if tensor.is_floating_point() else tensor for tensor in inputs]


def as_tuple(found: Any) -> tuple[torch.Tensor, ...]:
    """What a network gives, as a tuple."""
    return (found,) if isinstance(found, torch.Tensor) else tuple(found)


def _names(inputs: list[torch.Tensor]) -> list[str]:
    return [f"input_{place}" for place in range(len(inputs))]


def _traced(module: nn.Module, inputs: list[torch.Tensor]) -> bytes:
    made = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module, tuple(inputs), made, dynamo=False, opset_version=OPSET, input_names=_names(inputs), verbose=False
        )
    return made.getvalue()


def _exported(module: nn.Module, inputs: list[torch.Tensor]) -> bytes:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        made: Any = torch.onnx.export(
            module, tuple(inputs), dynamo=True, opset_version=18, input_names=_names(inputs), verbose=False
        )
    whole: bytes = made.model_proto.SerializeToString()
    return whole
