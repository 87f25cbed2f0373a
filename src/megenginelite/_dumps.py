"""Writes what a network computes: every variable as text or in binary files, and the time of its runs."""

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO, cast

import numpy as np

from litehouse import LitehouseError, Model, Options, Session
from megenginelite._errors import fail
from megenginelite._layout import MAX_DIM, Array, type_name
from megenginelite.tensor import LiteTensor

# MegEngine's numbers of types in its files.
_CODES = {"Float32": 0, "Uint8": 1, "Int8": 2, "Int16": 3, "Int32": 4, "Float16": 9, "Bool": 18, "Uint16": 19}
_SHOWN = 5


class Variable(NamedTuple):
    """A variable of the network after a run."""

    number: int
    name: str
    value: Array
    is_static: bool

    @property
    def layout(self) -> str:
        """Sizes with strides, and the type, as in `{1(4),4(1) Float32}`."""
        strides = [stride // self.value.itemsize for stride in np.empty(self.value.shape, self.value.dtype).strides]
        sizes = ",".join(f"{size}({stride})" for size, stride in zip(self.value.shape, strides, strict=True))
        return f"{{{sizes} {type_name(self.value.dtype)}}}"


class Variables:
    """Computes every variable of a network, in a session of its own for each set of input shapes."""

    def __init__(self, model: Model, options: Options) -> None:
        self._model = model
        self._options = options
        self._shapes: list[tuple[int, ...]] | None = None
        self._session: Session | None = None

    def compute(self, inputs: Sequence[Array]) -> list[Variable]:
        """Give the variables for these inputs."""
        shapes = [array.shape for array in inputs]
        try:
            if self._session is None or shapes != self._shapes:
                assert self._model.translate is not None  # a MegEngine file can always be translated anew
                self._session = Session(self._model.translate(shapes, every=True), self._options)
                self._shapes = shapes
            values = self._session.run(list(inputs))
        except LitehouseError as error:
            fail(f"the variables cannot be computed: {error}", error)
        model = self._session.model
        return [
            Variable(number, info.name, value, info.is_static)
            for number, (info, value) in enumerate(zip(model.outputs, values, strict=True))
        ]


class TextDump:
    """A text file with a record for each variable, one run after another."""

    def __init__(self, path: str) -> None:
        self._path = path
        _open(path, "w").close()

    def write(self, variables: Sequence[Variable]) -> None:
        """Add the variables of a run."""
        with _open(self._path, "a") as file:
            for variable in variables:
                file.write(
                    f"var{variable.number} produced: name={variable.name} layout={variable.layout}\n"
                    f" val: {_summary(variable.value)} {'s' if variable.is_static else 'd'}\n"
                )


class BinaryDump:
    """A folder with a file for each variable, of the last run."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def write(self, variables: Sequence[Variable]) -> None:
        """Write the variables of a run, over those of the run before."""
        for variable in variables:
            kind = type_name(variable.value.dtype)
            if kind not in _CODES:
                fail(f"the variable {variable.name} is of the type {kind}, for which these files have no number")
            text = (
                f"var={{id:{variable.number}, layout:{variable.layout}, {kind}, name:{variable.name}, slot:0, "
                f"{'s' if variable.is_static else 'd'}}}"
            ).encode()
            sizes = (*variable.value.shape, *[0] * MAX_DIM)[:MAX_DIM]
            head = struct.pack(f"<{3 + MAX_DIM}I", len(text), _CODES[kind], MAX_DIM, *sizes)
            path = self._folder / f"{variable.number:06x}"
            try:
                path.write_bytes(head + text + variable.value.tobytes())
            except OSError as error:
                fail(f"failed to open {path}: {error.strerror}", error)


class Profile:
    """A JSON file with the time of the last run.

    Attributes:
        seconds: That time.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.seconds = 0.0

    def write(self, inputs: Mapping[str, LiteTensor], outputs: Mapping[str, LiteTensor]) -> None:
        """Write the file. It has one operator, which is the whole network."""
        names = [*inputs, *outputs]
        numbers = [str(number) for number in range(1, len(names) + 1)]
        interval = {"start": 0.0, "kern": 0.0, "end": self.seconds}
        footprint = {
            "in_shapes": [tensor.layout.shapes for tensor in inputs.values()],
            "out_shapes": [tensor.layout.shapes for tensor in outputs.values()],
            "memory": sum(tensor.nbytes for tensor in (*inputs.values(), *outputs.values())),
            "computation": None,
            "param": {},
        }
        operator = {
            "id": "0",
            "name": "network",
            "type": "Network",
            "node_type": "operator",
            "input": numbers[: len(inputs)],
            "output": numbers[len(inputs) :],
        }
        variables = {
            number: {"id": number, "name": name, "node_type": "var"}
            for number, name in zip(numbers, names, strict=True)
        }
        content = {
            "profiler": {
                "host": {"0": {"main": interval}},
                "device": {"0": {"cpu0:0": interval}},
                "opr_internal_pf": {},
                "opr_footprint": {"0": footprint},
            },
            "graph_exec": {"comp_seq": ["0"], "mem_chunk": {}, "var": variables, "operator": {"0": operator}},
        }
        with _open(self._path, "w") as file:
            json.dump(content, file)


def _open(path: str, mode: str) -> TextIO:
    try:
        return cast(TextIO, open(path, mode, encoding="utf-8"))
    except OSError as error:
        fail(f"failed to open {path}: {error.strerror}", error)


def _summary(value: Array) -> str:
    """Give the first numbers, and the least, the greatest, the mean, the root mean square and the deviation."""
    numbers = value.astype(np.float64).reshape(-1)
    first = ", ".join(f"{number:.4g}" for number in numbers[:_SHOWN]) + (", ..." if numbers.size > _SHOWN else "")
    if not numbers.size:
        return "[]"
    size = math.sqrt(np.square(numbers).mean())
    spread = f"{numbers.std(ddof=1):.3g}" if numbers.size > 1 else "N/A"
    return (
        f"[{first}]min={numbers.min():.3g} max={numbers.max():.3g} mean={numbers.mean():.3g} l2={size:.3g} sd={spread}"
    )
