"""The models of the zoo, with the inputs and outputs that are stored for them."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

KEYS: dict[str, tuple[bytes | None, str]] = {
    "aes_gcm_128": (b"0123456789ABCDEF", "AES-GCM"),
    "aes_gcm_256": (b"0123456789ABCDEF0123456789abcdef", "AES-GCM"),
    "aes_cbc_192": (b"0123456789ABCDEF01234567", "AES-CBC"),
    "sm4_cbc": (b"0123456789ABCDEF", "SM4-CBC"),
    "split_gcm_graph": (b"0123456789ABCDEF", "AES-GCM"),
}
OLD_KEY = b"0123456789ABCDEF"
CONVERTED_KEY = bytes.fromhex("30313233343637383939414243444546")
# What MindSpore Lite 2.0.0 stored for these departs from the op's definition, which Litehouse follows.
DEPARTS = {"conv_elu", "un_elu", "lrn", "resize_near_half"}

Arrays = list[np.ndarray]
Stored = tuple[Arrays | dict[str, np.ndarray], Arrays | None]
FOLDERS = ("mindir", "mindir_old", "mindir_formats", "mindir_converted", "mge")


@dataclass(frozen=True)
class Case:
    """A model of the zoo.

    Attributes:
        folder: The folder of the zoo.
        name: Its file, from there.
        path: Its file.
        stored: Reads inputs and outputs; no outputs where those of another engine must do.
        key: The key that opens it.
        mode: How it is encrypted.
        is_resized: Whether the session takes the sizes of the inputs first.
        limit: The error that is allowed, where the file asks for more than usual.
    """

    folder: str
    name: str
    path: Path
    stored: Callable[[], Stored]
    key: bytes | None = None
    mode: str = "AES-GCM"
    is_resized: bool = False
    limit: float = 0.0


def cases(zoo: Path) -> Iterator[Case]:
    """All models in those folders that are there."""
    for folder in FOLDERS:
        if (zoo / folder).is_dir():
            yield from FINDERS[folder](zoo / folder)


def _numbered(folder: Path) -> Stored:
    inputs, outputs = ([np.load(path) for path in _files(folder, f"{kind}_[0-9]*.npy")] for kind in ("input", "output"))
    return inputs, outputs


def _files(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


def _networks(folder: Path) -> Iterator[Case]:
    for path in _files(folder, "*/*.mindir"):
        if path.stem == path.parent.name:
            key = OLD_KEY if "aes_gcm" in path.stem else None
            yield Case(folder.name, path.stem, path, lambda own=path.parent: _numbered(own), key)  # type: ignore[misc]


def _containers(folder: Path) -> Iterator[Case]:
    for path in _files(folder, "*.mindir"):
        key, mode = KEYS.get(path.stem, (None, "AES-GCM"))
        yield Case(folder.name, path.stem, path, lambda: _numbered(folder), key, mode)


def _megengine(folder: Path) -> Iterator[Case]:
    for path in _files(folder, "*/meta.json"):
        facts = json.loads(path.read_text())
        file = path.parent / facts.get("file", "model.mge")
        limit = facts["suggested_tolerance"]["max_abs_over_max_ref"]
        yield Case(folder.name, path.parent.name, file, lambda p=path, f=facts: _named(p.parent, f), limit=limit)  # type: ignore[misc]


def _named(folder: Path, facts: dict[str, Any]) -> Stored:
    outputs = [np.load(folder / f"out_{place}.npy") for place in range(len(_files(folder, "out_*.npy")))]
    return {name: np.load(folder / f"{name}.npy") for name in facts["inputs"]}, outputs


def _converted(folder: Path) -> Iterator[Case]:
    for path in _files(folder, "*/meta.json"):
        if path.parent.name != "lenet_variants":
            yield from _converted_networks(folder.name, path)
    for path in [*_files(folder / "ops", "*.mindir"), *_files(folder / "ops", "*.ms")]:
        archive = path.with_name(f"{path.name}.npz")
        if archive.exists():
            yield Case(folder.name, f"ops/{path.name}", path, lambda own=archive: _archived(own))  # type: ignore[misc]
    for path in [*_files(folder / "lenet_variants", "*.mindir"), *_files(folder / "lenet_variants", "*.ms")]:
        key = CONVERTED_KEY if "encrypted" in path.name else None
        name, is_resized = f"lenet_variants/{path.name}", "dynamic_batch" in path.name
        yield Case(folder.name, name, path, lambda own=path: _variant(own), key, is_resized=is_resized)  # type: ignore[misc]


def _converted_networks(folder: str, path: Path) -> Iterator[Case]:
    for kind, facts in json.loads(path.read_text())["files"].items():
        file = path.parent / f"{path.parent.name}.{kind}"
        if file.exists():
            yield Case(folder, f"{file.parent.name}/{file.name}", file, lambda p=path, f=facts: _told(p.parent, f))  # type: ignore[misc]


def _told(folder: Path, facts: dict[str, Any]) -> Stored:
    inputs, outputs = ([np.load(folder / item["file"]) for item in facts[kind]] for kind in ("inputs", "outputs"))
    return inputs, outputs


def _archived(path: Path) -> Stored:
    with np.load(path) as stored:
        inputs, outputs = (
            [stored[f"{kind}{place}"] for place in range(sum(key.startswith(kind) for key in stored.files))]
            for kind in ("in", "out")
        )
    name, _, kind = path.stem.partition(".")
    departs = name in DEPARTS or (name, kind) == ("transpose5", "mindir")
    return inputs, None if departs else outputs


def _variant(path: Path) -> Stored:
    """LeNet in many forms: what is stored for one, or for the plain one; none where bits were taken from weights."""
    folder, is_dynamic = path.parent, "dynamic_batch" in path.name
    x = np.load(folder / ("dynamic_input_b3_nchw.npy" if is_dynamic else "input_nchw.npy"))
    has_channels_last = "nhwc" in path.stem or (path.suffix == ".ms" and "nchw" not in path.stem)
    x = np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if has_channels_last else x
    stored = folder / f"{path.name}.out{'_b3' if is_dynamic else ''}.npy"
    if "encrypted" in path.name:
        stored = folder / f"lenet_none{path.suffix}.out.npy"
    return [x], [np.load(stored)] if stored.exists() else None


FINDERS: dict[str, Callable[[Path], Iterator[Case]]] = {
    "mindir": _networks,
    "mindir_old": _networks,
    "mindir_formats": _containers,
    "mindir_converted": _converted,
    "mge": _megengine,
}
