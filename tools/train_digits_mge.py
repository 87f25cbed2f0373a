"""Train the digit classifier of ``examples/megengine_digits`` with MegEngine and dump it as ``.mge``.

Run with a Python that has MegEngine and scikit-learn installed::

    python tools/train_digits_mge.py

The network takes colour pictures of 224x224 dots, as the networks of MegEngine's own tutorials do. Writes
``examples/megengine_digits/digits.mge`` and the README there. The held-back pictures are those of ``examples/digits``.
"""

import argparse
from pathlib import Path

try:
    import megengine as mge
    import megengine.functional as F
    import megengine.module as M
    from megengine import autodiff, jit, optimizer
except ImportError as error:
    raise SystemExit(
        f"MegEngine is missing ({error}). Install it with: python -m pip install megengine==1.13.0 'numpy<2'"
    ) from None

import numpy as np
from digits_data import SEED, load_split, shift

FOLDER = Path(__file__).resolve().parent.parent / "examples" / "megengine_digits"
SIDE, ENLARGED = 8, 28  # a picture of 8x8 dots, each shown as 28x28
BATCH = 32

README = """\
# Digits for MegEngine Lite

A small convolutional network that reads handwritten digits, in colour pictures of 224x224 dots.
Made by `tools/train_digits_mge.py` with MegEngine {version}.

`digits.mge` takes `data`, float32 [1, 3, 224, 224] in 0..1, and gives `probabilities`, float32 [1, 10]. It was trained
on {trained} images of scikit-learn's `load_digits`, enlarged. Of the {count} in `../digits/held_back.npz`, which the
training never saw, MegEngine itself reads **{right} right ({accuracy:.2%})**.
"""


class Digits(M.Module):
    """Averages over the enlarged dots, then three convolutions and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.shrink = M.AvgPool2d(ENLARGED, ENLARGED)
        self.features = M.Sequential(
            M.ConvBn2d(3, 16, 3, padding=1, bias=False),
            M.ReLU(),
            M.ConvBn2d(16, 32, 3, padding=1, bias=False),
            M.ReLU(),
            M.MaxPool2d(2, 2),
            M.ConvBn2d(32, 48, 3, padding=1, bias=False),
            M.ReLU(),
            M.MaxPool2d(2, 2),
        )
        self.scores = M.Linear(48 * 2 * 2, 10)

    def small(self, pictures: mge.Tensor) -> mge.Tensor:
        """The scores for pictures that are small already."""
        return self.scores(F.flatten(self.features(pictures), 1))

    def forward(self, pictures: mge.Tensor) -> mge.Tensor:
        """The probabilities for enlarged pictures."""
        return F.softmax(self.small(self.shrink(pictures)), 1)


def colour(images: np.ndarray) -> np.ndarray:
    """Grey images in 0..16 as three equal colours in 0..1."""
    return np.repeat((images.astype(np.float32) / 16.0)[:, None], 3, axis=1)


def enlarge(pictures: np.ndarray) -> np.ndarray:
    """Every dot as a square of dots."""
    return np.ascontiguousarray(pictures.repeat(ENLARGED, axis=2).repeat(ENLARGED, axis=3))


def train(network: Digits, images: np.ndarray, labels: np.ndarray, epochs: int) -> None:
    """Adam with a falling learning rate, on the small pictures: enlarging and averaging undo each other."""
    rng = np.random.default_rng(SEED)
    adam = optimizer.Adam(network.parameters(), lr=2e-3, weight_decay=1e-4)
    gradients = autodiff.GradManager().attach(network.parameters())
    network.train()
    steps = len(images) // BATCH
    for epoch in range(epochs):
        for group in adam.param_groups:
            group["lr"] = 2e-3 * 0.5 * (1 + np.cos(np.pi * epoch / epochs))
        order, total = rng.permutation(len(images)), 0.0
        for step in range(steps):
            chosen = order[step * BATCH : (step + 1) * BATCH]
            with gradients:
                scores = network.small(mge.Tensor(shift(colour(images[chosen]), rng)))
                loss = F.nn.cross_entropy(scores, mge.Tensor(labels[chosen]), label_smooth=0.05)
                gradients.backward(loss)
            adam.step().clear_grad()
            total += float(loss.numpy())
        print(f"epoch {epoch + 1}/{epochs}: loss {total / steps:.4f}", flush=True)


def write(network: Digits, first: np.ndarray) -> None:
    """Dump the network for one picture at a time."""
    network.eval()

    @jit.trace(symbolic=True, capture_as_const=True)
    def infer(data: mge.Tensor) -> mge.Tensor:
        return network(data)

    infer(mge.Tensor(first))
    FOLDER.mkdir(parents=True, exist_ok=True)
    infer.dump(str(FOLDER / "digits.mge"), arg_names=["data"], output_names=["probabilities"])


def main() -> None:
    """Train, dump, and say how good it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    epochs = parser.parse_args().epochs
    mge.random.seed(SEED)
    images, labels, held_images, held_labels = load_split()
    network = Digits()
    train(network, images, labels, epochs)
    write(network, enlarge(colour(held_images[:1])))
    answers = [int(network(mge.Tensor(enlarge(colour(image[None])))).numpy().argmax()) for image in held_images]
    right = int(np.count_nonzero(np.array(answers) == held_labels))
    accuracy = right / len(held_labels)
    text = README.format(
        version=mge.__version__, trained=len(images), count=len(held_labels), right=right, accuracy=accuracy
    )
    (FOLDER / "README.md").write_text(text, encoding="utf-8")
    print(f"{right} of {len(held_labels)} right, {accuracy:.2%}")


if __name__ == "__main__":
    main()
