"""Reads handwritten digits with the network of `examples/megengine_digits`, through the `megenginelite` interface."""

from pathlib import Path

import numpy as np

from megenginelite import LiteDataType, LiteDeviceType, LiteNetwork, TensorBatchCollector

EXAMPLES = Path(__file__).resolve().parent.parent
BATCH = 10
ENLARGED = 28  # the network takes every dot as a square of dots
WHITEST = 16


def main() -> None:
    """Say how many of the pictures that training never saw are read right."""
    with np.load(EXAMPLES / "digits" / "held_back.npz") as held_back:
        pictures, labels = held_back["images"], held_back["labels"]
    answers = read_digits(pictures)
    right = int(np.count_nonzero(answers == labels))
    print(f"{right} of {len(labels)} held-back pictures are read right: accuracy {right / len(labels):.1%}")


def read_digits(pictures: np.ndarray) -> np.ndarray:
    """The digit that the network sees in each picture of shades from 0 to 16, a batch at a time."""
    network = LiteNetwork()
    network.load(EXAMPLES / "megengine_digits" / "digits.mge")
    batch = TensorBatchCollector(
        [BATCH, 3, 224, 224], dtype=LiteDataType.LITE_FLOAT, device_type=LiteDeviceType.LITE_CPU
    )
    # The network reads the batch where it lies: nothing is copied.
    network.get_io_tensor("data").share_memory_with(batch.get())
    answers: list[np.ndarray] = []
    for start in range(0, len(pictures), BATCH):
        part = pictures[start : start + BATCH]
        batch.free(range(BATCH))
        for picture in part:
            batch.collect(enlarged(picture))
        network.forward()
        network.wait()
        answers.append(network.get_io_tensor("probabilities").to_numpy()[: len(part)].argmax(axis=1))
    return np.concatenate(answers)


def enlarged(picture: np.ndarray) -> np.ndarray:
    """A grey picture of 8x8 as three colours of 224x224."""
    dots = (picture / np.float32(WHITEST)).astype(np.float32)
    large = dots.repeat(ENLARGED, axis=0).repeat(ENLARGED, axis=1)
    return np.ascontiguousarray(np.broadcast_to(large, (3, *large.shape)))


if __name__ == "__main__":
    main()
