"""Arrays from files, as inputs and as stored references; and arrays to files."""

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from litehouse.cli.console import CommandError, shape_text, stderr
from litehouse.errors import printable
from litehouse.model import TensorInfo

NUMBERED = re.compile(r"(input|out)(?:put)?_(\d+)")


def gather_inputs(
    infos: Sequence[TensorInfo], given: Sequence[str], fill: np.random.Generator | str | None
) -> list[Any]:
    """One array per input.

    Args:
        infos: What the model takes.
        given: Files, each with the name of its input in front (`name=x.npy`) or in order.
        fill: How to make the inputs that no file was given for: `"zeros"`, a random generator, or None for an error.
    """
    found: dict[str, np.ndarray] = {}
    for text in given:
        name, path = _split(text, infos)
        if name is not None:
            _put(found, name, _single(path, next(info for info in infos if info.name == name)))
        elif path.suffix == ".npz":
            _put_archive(found, infos, path)
        else:
            free = next((info for info in infos if info.name not in found), None)
            if free is None:
                raise CommandError(f"{path}: more inputs than the model takes\n{describe(infos)}")
            _put(found, free.name, _single(path, free))
    missing = [info for info in infos if info.name not in found]
    if missing and fill is None:
        raise CommandError(
            f"{len(missing)} of {len(infos)} inputs not given\n{describe(infos)}\n"
            "give each with --input FILE.npy or --input NAME=FILE.npy, or fill them with --zeros or --random SEED"
        )
    _note_dynamic(missing)
    found |= {info.name: _filled(info, fill) for info in missing}
    return [found[info.name] for info in infos]


def _note_dynamic(infos: Sequence[TensorInfo]) -> None:
    """Say on stderr which dynamic dimensions become 1."""
    for info in infos:
        if not info.is_static:
            made = shape_text(_filled_shape(info))
            text = f"note: input {info.name!r} is filled as {made}: the dynamic dimensions of {shape_text(info.shape)}"
            stderr().print(f"{text} become 1; give a file with --input for other sizes", soft_wrap=True)


def describe(infos: Sequence[TensorInfo]) -> str:
    """The inputs as lines of name, dtype and shape."""
    if not infos:
        return "the model takes no inputs"
    width = max(len(info.name) for info in infos)
    lines = [f"  {info.name:<{width}}  {info.dtype.name:<8} {shape_text(info.shape)}" for info in infos]
    return printable("\n".join(["the model takes:", *lines]))


def load_reference(path: Path, infos: Sequence[TensorInfo]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The stored inputs and outputs: .npy files of a folder, or arrays in one .npz file.

    Outputs are named `output_0` (or `out_0`) and so on, inputs `input_0` and so on or by the model's own names.
    """
    names = [info.name for info in infos]
    if path.is_dir():
        files = {
            file.stem: file
            for file in sorted(path.glob("*.npy"))
            if NUMBERED.fullmatch(file.stem) or file.stem in names
        }
        archives = sorted(path.glob("*.npz"))
        if files:
            arrays = {name: _load_npy(file) for name, file in files.items()}
        elif len(archives) == 1:
            arrays = _load_npz(archives[0])
        else:
            raise CommandError(f"{path}: no input_0.npy, … and output_0.npy, … there, and not exactly one .npz file")
    else:
        arrays = _load_npz(path)
    inputs, outputs = (_numbered(arrays, kind, path) for kind in ("input", "out"))
    named = [found for name in names if (found := arrays.get(name, arrays.get(f"in_{name}"))) is not None]
    if len(named) == len(names):
        inputs = named
    if not outputs:
        there = f"; there are: {', '.join(sorted(arrays)[:12])}" if arrays else ""
        raise CommandError(f"{path}: no stored output; the first must be named output_0{there}")
    return inputs, outputs


def save_outputs(folder: Path, arrays: Sequence[np.ndarray]) -> list[Path]:
    """Write `output_0.npy`, … into a folder."""
    paths = output_paths(folder, len(arrays))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, array in zip(paths, arrays, strict=True):
            # NumPy's files cannot name bfloat16 and its like; float32 holds all their values.
            np.save(path, array.astype(np.float32) if array.dtype.kind == "V" else array, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise CommandError(f"{folder}: cannot write the outputs ({error})") from error
    return paths


def output_paths(folder: Path, count: int) -> list[Path]:
    """The files that `save_outputs` writes."""
    return [folder / f"output_{index}.npy" for index in range(count)]


def _split(text: str, infos: Sequence[TensorInfo]) -> tuple[str | None, Path]:
    """The input's name, where one is in front, and the file."""
    for info in infos:
        if text.startswith(f"{info.name}="):
            return info.name, Path(text[len(info.name) + 1 :])
    name, equals, _ = text.partition("=")
    if equals and not Path(text).exists():
        raise CommandError(f"there is no input {name!r}\n{describe(infos)}")
    return None, Path(text)


def _put(found: dict[str, np.ndarray], name: str, array: np.ndarray) -> None:
    if name in found:
        raise CommandError(f"input {name!r} is given twice; give it once")
    found[name] = array


def _put_archive(found: dict[str, np.ndarray], infos: Sequence[TensorInfo], path: Path) -> None:
    """Take the inputs out of an .npz file: by name, or as `input_0`, …; stored outputs may be there too."""
    arrays = _load_npz(path)
    places = {info.name: info.name for info in infos}
    if not places.keys() & arrays.keys():
        places = {f"input_{index}": info.name for index, info in enumerate(infos)}
    strange = [name for name in arrays if name not in places and not re.fullmatch(r"output_\d+", name)]
    if strange or not places.keys() & arrays.keys():
        what = f"the array {strange[0]!r} is no input" if strange else "holds no input"
        raise CommandError(
            f"{path}: {what}\n{describe(infos)}\nname the arrays after the inputs, or input_0, input_1, … in order"
        )
    for name, array in arrays.items():
        if name in places:
            _put(found, places[name], array)


def _single(path: Path, info: TensorInfo) -> np.ndarray:
    """The one array of a file. A `.bin` file holds the bare values of the input."""
    if path.suffix == ".npz":
        arrays = _load_npz(path)
        if len(arrays) != 1:
            raise CommandError(f"{path}: holds {len(arrays)} arrays; name one input only where the file holds one")
        return next(iter(arrays.values()))
    return _load_bare(path, info) if path.suffix == ".bin" else _load_npy(path)


def _load_bare(path: Path, info: TensorInfo) -> np.ndarray:
    if not info.is_static:
        raise CommandError(f"{path}: input {info.name!r} of shape {shape_text(info.shape)} needs a .npy file")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise CommandError(f"{path}: cannot read the file ({error.strerror or error}); check the path") from error
    shape = _filled_shape(info)
    expected = math.prod(shape) * info.dtype.itemsize
    if len(content) != expected:
        raise CommandError(
            f"{path}: {len(content)} bytes, {expected} expected: "
            f"input {info.name!r} is {info.dtype.name} {shape_text(info.shape)}"
        )
    return np.frombuffer(bytearray(content), info.dtype).reshape(shape)


def _load_npy(path: Path) -> np.ndarray:
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        loaded.close()
        raise CommandError(f"{path}: holds several arrays; give it the suffix .npz")
    return loaded


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    loaded = _load(path)
    if isinstance(loaded, np.ndarray):
        return {"input_0": loaded}
    with loaded:
        try:
            return {name: loaded[name] for name in loaded.files}
        except Exception as error:
            raise CommandError(
                f"{path}: not a readable .npz file ({error}); write it again with numpy.savez"
            ) from error


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except OSError as error:
        raise CommandError(f"{path}: cannot read the file ({error.strerror or error}); check the path") from error
    except Exception as error:
        raise CommandError(
            f"{path}: not a readable .npy or .npz file ({error}); write it again with numpy.save"
        ) from error


def _numbered(arrays: Mapping[str, np.ndarray], kind: str, path: Path) -> list[np.ndarray]:
    found = {
        int(match[2]): array
        for name, array in arrays.items()
        if (match := NUMBERED.fullmatch(name)) and match[1] == kind
    }
    absent = [index for index in range(max(found, default=-1)) if index not in found]
    if absent:
        word = {"out": "output"}.get(kind, kind)
        raise CommandError(f"{path}: {word}_{absent[0]} is missing, but {word}_{max(found)} is there")
    return [found[index] for index in sorted(found)]


def _filled_shape(info: TensorInfo) -> list[int]:
    return [size if isinstance(size, int) else 1 for size in info.shape]


def _filled(info: TensorInfo, fill: np.random.Generator | str | None) -> np.ndarray:
    """Zeros, or random values that any network should take: dynamic sizes are 1, integers are 0 or 1."""
    shape = _filled_shape(info)
    if not isinstance(fill, np.random.Generator):
        return np.zeros(shape, info.dtype)
    if info.dtype.kind in "biu":
        return fill.integers(0, 2, shape).astype(info.dtype)
    return fill.standard_normal(shape).astype(info.dtype)
