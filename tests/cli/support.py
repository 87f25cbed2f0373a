"""What the tests of the command line share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from typer.testing import CliRunner

from litehouse.cli import app

MINDIR = Path(__file__).parents[1] / "fixtures" / "mindir"
OPS = MINDIR / "ops"
CONTAINERS = MINDIR / "containers"
NETWORKS = MINDIR / "networks"


def call(*arguments: Any) -> Any:
    """Run the `litehouse` command in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def lines(result: Any) -> list[list[str]]:
    """The words of each line of a successful command's output."""
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines()]


def failure(result: Any) -> str:
    """The error text of a command that failed as it should: one message, nothing on stdout, exit code 1."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert "Traceback" not in result.stderr
    return result.stderr


def write(path: Path, data: bytes) -> Path:
    """Write a file, and give its path back."""
    path.write_bytes(data)
    return path


def save(path: Path, array: np.ndarray) -> Path:
    """Write a .npy file, and give its path back."""
    np.save(path, array)
    return path


def store(folder: Path, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> Path:
    """Write a reference folder for `litehouse verify`."""
    folder.mkdir(exist_ok=True)
    for kind, arrays in (("input", inputs), ("output", outputs)):
        for index, array in enumerate(arrays):
            np.save(folder / f"{kind}_{index}.npy", array)
    return folder
