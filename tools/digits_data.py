"""The handwritten digits that the example networks are trained on: 8x8 grey images from scikit-learn."""

import numpy as np

try:
    from sklearn.datasets import load_digits
except ImportError as error:
    raise SystemExit(
        f"scikit-learn is missing ({error}). Install it with: python -m pip install scikit-learn"
    ) from None

BATCH = 10
SEED = 7


def load_split() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Images (uint8, 0..16) and labels to train on, then those held back (a fifth, a multiple of the batch)."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8).astype(np.uint8)
    labels = labels.astype(np.int32)
    order = np.random.default_rng(SEED).permutation(len(images))
    held = len(images) // 5
    test, train = order[:held], order[held:]
    test = test[: held // BATCH * BATCH]
    return images[train], labels[train], images[test], labels[test]


def shift(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Move each image by at most one pixel: the only augmentation."""
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = rng.integers(0, 3, size=(2, len(images)))
    return np.stack([image[:, r : r + 8, c : c + 8] for image, r, c in zip(padded, rows, columns, strict=True)])
