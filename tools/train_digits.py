"""Train the digit classifier of ``examples/digits`` with MindSpore and export it as MindIR.

Run with a Python that has MindSpore and scikit-learn installed::

    python tools/train_digits.py

Writes ``examples/digits/model/digits.mindir`` (batch of 10), ``examples/digits/model/input.bin`` (the first held-back
batch), ``examples/digits/held_back.npz`` (images and labels that the training never saw) and the README there.
"""

import argparse
import os
from pathlib import Path

os.environ.setdefault("GLOG_v", "3")

try:
    import mindspore as ms
    from mindspore import nn, ops
except ImportError as error:
    raise SystemExit(
        f"MindSpore is missing ({error}). Install it with: python -m pip install mindspore==2.10.0"
    ) from None
import numpy as np
from digits_data import BATCH, SEED, load_split, shift

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "digits"

README = """\
# Digits

A small convolutional network that reads handwritten digits: 8x8 grey images from scikit-learn's `load_digits`.
Made by `tools/train_digits.py` with MindSpore {version}.

| file | content |
|---|---|
| `model/digits.mindir` | the network: input float32 [10, 1, 8, 8] in 0..1, output float32 [10, 10], probabilities |
| `model/input.bin` | the first held-back batch: 10 images, raw float32 |
| `held_back.npz` | `images` (uint8, 0..16, [{count}, 8, 8]) and `labels` ({count}) that the training never saw |

The network was trained on {trained} images. On the {count} held-back ones MindSpore itself gets **{correct} right
({accuracy:.2%})**. Divide the images by 16 before giving them to the network.
"""


class Digits(nn.Cell):
    """Two convolution blocks and two dense layers; probabilities at inference, logits in training."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(1, 16, 3, pad_mode="pad", padding=1, has_bias=False),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, pad_mode="pad", padding=1, has_bias=False),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(32, 48, 3, pad_mode="pad", padding=1, has_bias=False),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
        )
        self.flatten = nn.Flatten()
        self.hidden = nn.Dense(48 * 2 * 2, 64, activation="relu")
        self.dropout = nn.Dropout(p=0.3)
        self.scores = nn.Dense(64, 10)

    def logits(self, images: ms.Tensor) -> ms.Tensor:
        return self.scores(self.dropout(self.hidden(self.flatten(self.features(images)))))

    def construct(self, images: ms.Tensor) -> ms.Tensor:
        return ops.softmax(self.logits(images), -1)


class Loss(nn.Cell):
    """Cross entropy of the network's logits."""

    def __init__(self, network: Digits) -> None:
        super().__init__()
        self.network = network
        self.entropy = nn.CrossEntropyLoss(label_smoothing=0.05)

    def construct(self, images: ms.Tensor, labels: ms.Tensor) -> ms.Tensor:
        return self.entropy(self.network.logits(images), labels)


def normalise(images: np.ndarray) -> np.ndarray:
    return (images.astype(np.float32) / 16.0)[:, None]


def train(network: Digits, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Adam with a cosine learning rate, batches of 32."""
    steps = len(images) // 32
    rates = nn.cosine_decay_lr(1e-5, 2e-3, steps * epochs, steps, epochs)
    step = nn.TrainOneStepCell(Loss(network), nn.Adam(network.trainable_params(), rates, weight_decay=1e-4))
    step.set_train(True)
    rng = np.random.default_rng(SEED)
    for epoch in range(epochs):
        order = rng.permutation(len(images))
        total = 0.0
        for k in range(steps):
            chosen = order[k * 32 : (k + 1) * 32]
            batch = shift(normalise(images[chosen]), rng)
            total += float(step(ms.Tensor(batch), ms.Tensor(labels[chosen])).asnumpy())
        print(f"epoch {epoch + 1}/{epochs}: loss {total / steps:.4f}", flush=True)


def count_right(network: Digits, images: np.ndarray, labels: np.ndarray) -> int:
    network.set_train(False)
    right = 0
    for begin in range(0, len(images), BATCH):
        probabilities = network(ms.Tensor(normalise(images[begin : begin + BATCH]))).asnumpy()
        right += int((probabilities.argmax(1) == labels[begin : begin + BATCH]).sum())
    return right


def write(network: Digits, images: np.ndarray, labels: np.ndarray, folder: Path) -> None:
    """The model, the quick start's input, and the held-back data."""
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    first = normalise(images[:BATCH])
    path = model / "digits.mindir"
    path.unlink(missing_ok=True)
    ms.export(network, ms.Tensor(first), file_name=str(path), file_format="MINDIR")
    path.chmod(0o644)
    first.tofile(model / "input.bin")
    np.savez_compressed(folder / "held_back.npz", images=images, labels=labels)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder to write to")
    arguments = parser.parse_args()
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(SEED)
    images, labels, held_images, held_labels = load_split()
    network = Digits()
    train(network, images, labels, arguments.epochs)
    right = count_right(network, held_images, held_labels)
    write(network, held_images, held_labels, arguments.out)
    count = len(held_images)
    text = README.format(
        version=ms.__version__, count=count, trained=len(images), correct=right, accuracy=right / count
    )
    (arguments.out / "README.md").write_text(text)
    print(f"{right} of {count} held-back images right ({right / count:.2%})")


if __name__ == "__main__":
    main()
