"""The model zoo beside the checkout: files that MindSpore and MegEngine made, with the outputs that they computed."""

import json
from pathlib import Path

import numpy as np
import pytest

import litehouse
from conftest import ENGINES, ZOO, assert_close

pytestmark = [
    pytest.mark.zoo,
    pytest.mark.skipif(not ZOO.exists(), reason="the model zoo is not beside the checkout"),
]

NETWORKS = sorted(path.name for path in (ZOO / "mindir").glob("*") if path.is_dir()) if ZOO.exists() else []
OLD = ("add_1.1.0", "relu_1.5.0rc1", "add_1.7.0_aes_gcm", "lenet_2.0.0a0")
# torch takes the threads of the process, whatever is asked for.
RUNS = [(name, threads) for name in ENGINES for threads in ((1,) if name == "torch" else (1, 2))]
KEYS = {
    "aes_gcm_128": (b"0123456789ABCDEF", "AES-GCM"),
    "aes_gcm_256": (b"0123456789ABCDEF0123456789abcdef", "AES-GCM"),
    "aes_cbc_192": (b"0123456789ABCDEF01234567", "AES-CBC"),
    "sm4_cbc": (b"0123456789ABCDEF", "SM4-CBC"),
    "split_gcm_graph": (b"0123456789ABCDEF", "AES-GCM"),
    "plain": (None, "AES-GCM"),
    "split_graph": (None, "AES-GCM"),
}


def _stored(folder: Path, kind: str) -> list[np.ndarray]:
    return [np.load(path) for path in sorted(folder.glob(f"{kind}_[0-9]*.npy"))]


def _check(session: litehouse.Session, folder: Path) -> None:
    outputs, expected = session.run(_stored(folder, "input")), _stored(folder, "output")
    assert len(outputs) == len(expected)
    for index, (actual, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_close(actual, wanted, f"output {index}")


@pytest.mark.parametrize(("name", "threads"), RUNS)
@pytest.mark.parametrize("network", NETWORKS)
def test_networks(network: str, name: str, threads: int) -> None:
    folder = ZOO / "mindir" / network
    _check(litehouse.load(folder / f"{network}.mindir", engine=name, threads=threads), folder)


@pytest.mark.parametrize(("name", "threads"), RUNS)
@pytest.mark.parametrize("container", sorted(KEYS))
def test_containers(container: str, name: str, threads: int) -> None:
    key, mode = KEYS[container]
    path = ZOO / "mindir_formats" / f"{container}.mindir"
    _check(litehouse.load(path, key=key, mode=mode, engine=name, threads=threads), path.parent)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("network", OLD)
def test_old_files(network: str, name: str) -> None:
    folder = ZOO / "mindir_old" / network
    key = b"0123456789ABCDEF" if "aes_gcm" in network else None
    _check(litehouse.load(folder / f"{network}.mindir", key=key, engine=name), folder)


MEGENGINE = sorted(path.name for path in (ZOO / "mge").glob("*") if path.is_dir()) if ZOO.exists() else []


@pytest.mark.parametrize(("name", "threads"), RUNS)
@pytest.mark.parametrize("network", MEGENGINE)
def test_megengine(network: str, name: str, threads: int) -> None:
    folder = ZOO / "mge" / network
    facts = json.loads((folder / "meta.json").read_text())
    session = litehouse.load(folder / facts.get("file", "model.mge"), engine=name, threads=threads)
    if "outputs" in facts:
        assert [info.name for info in session.outputs] == facts["outputs"]
    outputs = session.run({name: np.load(folder / f"{name}.npy") for name in facts["inputs"]})
    for index, actual in enumerate(outputs):
        expected = np.load(folder / f"out_{index}.npy")
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        error = np.abs(actual.astype(np.float64) - expected).max() / np.abs(expected).max()
        assert error <= facts["suggested_tolerance"]["max_abs_over_max_ref"], f"output {index}"
