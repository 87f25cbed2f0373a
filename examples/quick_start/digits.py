"""Reads handwritten digits with the network of `examples/digits`, through the `mindspore_lite` interface."""

import sys
from pathlib import Path

import numpy as np

import mindspore_lite as mslite

DIGITS = Path(__file__).resolve().parent.parent / "digits"
BLOCKS, LETTERS = " ░▒▓█", " .:*#"
WHITEST = 16
ACROSS, DOWN = 4, 2


def main() -> None:
    """Show some of the pictures that training never saw, and how many of all of them are read right."""
    with np.load(DIGITS / "held_back.npz") as held_back:
        pictures, labels = held_back["images"], held_back["labels"]
    answers = read_digits(pictures)
    for start in range(0, ACROSS * DOWN, ACROSS):
        row = slice(start, start + ACROSS)
        print()
        print(show(pictures[row], answers[row], labels[row]))
    right = int(np.count_nonzero(answers == labels))
    print(f"\n{right} of {len(labels)} held-back pictures are read right: accuracy {right / len(labels):.1%}")


def read_digits(pictures: np.ndarray) -> np.ndarray:
    """The digit that the network sees in each picture of shades from 0 to 16."""
    model = mslite.Model()
    model.build_from_file(str(DIGITS / "model" / "digits.mindir"), mslite.ModelType.MINDIR)
    (network_input,) = model.get_inputs()
    batch = network_input.shape[0]
    answers: list[np.ndarray] = []
    for start in range(0, len(pictures), batch):
        part = pictures[start : start + batch]
        data = np.zeros(network_input.shape, np.float32)  # the last batch may not be full
        data[: len(part), 0] = part / np.float32(WHITEST)
        network_input.set_data_from_numpy(data)
        (scores,) = model.predict([network_input])
        answers.append(scores.get_data_to_numpy()[: len(part)].argmax(axis=1))
    return np.concatenate(answers)


def show(pictures: np.ndarray, answers: np.ndarray, labels: np.ndarray) -> str:
    """Pictures side by side, two letters to a dot, with the answer and the truth below."""
    lines = []
    shades = shades_of(sys.stdout.encoding)
    for y in range(pictures.shape[1]):
        dots = [[shades[int(shade) * (len(shades) - 1) // WHITEST] * 2 for shade in picture[y]] for picture in pictures]
        lines.append("   ".join("".join(row) for row in dots))
    width = 2 * pictures.shape[2]
    captions = [
        f"read {answer}, is {label}{'' if answer == label else ' !'}"
        for answer, label in zip(answers, labels, strict=True)
    ]
    lines.append("   ".join(caption.center(width) for caption in captions))
    return "\n".join(line.rstrip() for line in lines)


def shades_of(encoding: str) -> str:
    """Signs from dark to white that the encoding has."""
    try:
        BLOCKS.encode(encoding)
    except UnicodeEncodeError:
        return LETTERS
    return BLOCKS


if __name__ == "__main__":
    main()
