"""Adapters (LoRA) and whole weights from safetensors files."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import litehouse
from conftest import assert_close
from litehouse import Session, WeightError
from onnx_models import mlp, mlp_result, mlp_weights, model, node

MODES = ("in_place", "swap")
X = np.random.default_rng(1).normal(size=(2, 4)).astype("f")


@pytest.fixture(params=MODES)
def session(request: pytest.FixtureRequest) -> Session:
    return litehouse.load(mlp(), updatable="all", updatable_mode=request.param, engine="onnxruntime")


def _pair(rank: int, inputs: int, outputs: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return random.normal(size=(rank, inputs)).astype("f"), random.normal(size=(outputs, rank)).astype("f")


def test_an_adapter_is_merged_and_taken_out_to_the_bit(session: Session, tmp_path: Path) -> None:
    down, up = _pair(2, 300, 3, seed=0)
    save_file({"w2.lora_A.weight": down, "w2.lora_B.weight": up}, tmp_path / "a.safetensors")
    before = session(X)[0]
    session.update_weights_from(tmp_path / "a.safetensors", scale=0.5)
    w1, w2 = mlp_weights().values()
    assert_close(session(X)[0], np.maximum(X @ w1, 0) @ (w2 + 0.5 * (up @ down).T))
    assert session.adapters == (str(tmp_path / "a.safetensors"),)
    session.remove_adapter(tmp_path / "a.safetensors")
    np.testing.assert_array_equal(session(X)[0], before)
    assert session.adapters == ()
    with pytest.raises(WeightError, match=r"no adapter .* is merged; there are: none"):
        session.remove_adapter(tmp_path / "a.safetensors")


def test_adapters_with_alpha_lie_on_each_other_and_on_updates(tmp_path: Path) -> None:
    session = litehouse.load(mlp(), updatable="all")
    (down1, up1), (down2, up2) = _pair(2, 300, 3, seed=1), _pair(4, 300, 3, seed=2)
    first, second = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    save_file(
        {"w2.lora_down.weight": down1, "w2.lora_up.weight": up1, "w2.alpha": np.float32(8)[None][0:1].reshape(())},
        first,
    )
    save_file(
        {"base_model.model.w2.lora_A.default.weight": down2, "base_model.model.w2.lora_B.default.weight": up2}, second
    )
    session.update_weights_from(first)
    session.update_weights_from(second)
    w1, w2 = mlp_weights().values()
    added1, added2 = 8 / 2 * (up1 @ down1).T, (up2 @ down2).T
    assert_close(session(X)[0], np.maximum(X @ w1, 0) @ (w2 + added1 + added2))
    other = mlp_weights(seed=5)["w2"]
    session.update_weights({"w2": other})
    assert_close(session(X)[0], np.maximum(X @ w1, 0) @ (other + added1 + added2))
    session.remove_adapter(first)
    assert_close(session(X)[0], np.maximum(X @ w1, 0) @ (other + added2))
    session.remove_adapter(second)
    assert_close(session(X)[0], np.maximum(X @ w1, 0) @ other)


def test_a_square_weight_is_turned_as_the_graph_reads_it(tmp_path: Path) -> None:
    down, up = _pair(2, 40, 40, seed=1)
    weight = np.random.default_rng(0).normal(size=(40, 40)).astype("f")
    x = np.random.default_rng(1).normal(size=(2, 40)).astype("f")
    save_file({"w.lora_A": down, "w.lora_B": up}, tmp_path / "a.safetensors")
    for nodes, turned in (
        ([node("MatMul", "x w", "y")], True),
        ([node("Transpose", "w", "t", perm=[1, 0]), node("MatMul", "x t", "y")], False),
        ([node("Gemm", "x w", "y", transB=1)], False),
        ([node("Cast", "w", "c", to=1), node("Identity", "c", "i"), node("MatMul", "x i", "y")], True),
    ):
        session = litehouse.load(model(nodes, {"x": (2, 40)}, {"y": (2, 40)}, {"w": weight}), updatable=["w"])
        session.update_weights_from(tmp_path / "a.safetensors")
        whole = weight + ((up @ down).T if turned else up @ down)
        assert_close(session(x)[0], x @ (whole if turned else whole.T))


def test_an_adapter_of_a_convolution(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    kernel = random.normal(size=(8, 4, 3, 3)).astype("f")
    down, up = random.normal(size=(2, 4, 3, 3)).astype("f"), random.normal(size=(8, 2, 1, 1)).astype("f")
    source = model([node("Conv", "x k.weight", "y")], {"x": (1, 4, 5, 5)}, {"y": (1, 8, 3, 3)}, {"k.weight": kernel})
    save_file({"k.lora_down.weight": down, "k.lora_up.weight": up}, tmp_path / "a.safetensors")
    session = litehouse.load(source, updatable=["k.weight"])
    session.update_weights_from(tmp_path / "a.safetensors")
    whole = kernel + np.einsum("or,rihw->oihw", up[:, :, 0, 0], down)
    x = random.normal(size=(1, 4, 5, 5)).astype("f")
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    assert_close(session(x)[0], np.einsum("nihwab,oiab->nohw", windows, whole).astype("f"))


def test_whole_weights_from_a_file(session: Session, tmp_path: Path) -> None:
    save_file(mlp_weights(seed=5), tmp_path / "w.safetensors")
    session.update_weights_from(tmp_path / "w.safetensors")
    assert_close(session(X)[0], mlp_result(X, seed=5))
    assert session.adapters == ()


def test_half_precision_files_are_merged_in_32_bits(tmp_path: Path) -> None:
    session = litehouse.load(mlp(), updatable="all")
    down, up = (half.astype("e") for half in _pair(2, 300, 3, seed=0))
    save_file({"w2.lora_A": down, "w2.lora_B": up}, tmp_path / "a.safetensors")
    session.update_weights_from(tmp_path / "a.safetensors")
    w1, w2 = mlp_weights().values()
    added = up.astype("f") @ down.astype("f")
    assert_close(session(X)[0], np.maximum(X @ w1, 0) @ (w2 + added.T))


HALVES = (("A", (2, 300)), ("B", (3, 2)))


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"w2.lora_A": (2, 300)}, "'w2' has one half of a pair alone"),
        ({"w2.lora_A": (2, 300), "w2.lora_B": (3, 4)}, "do not fit each other"),
        ({"w2.lora_A": (2, 299), "w2.lora_B": (3, 2)}, r"does not fit 'w2', which is \[300, 3\]"),
        ({"v.lora_A": (2, 300), "v.lora_B": (3, 2)}, "the adapter's 'v' means no updatable weight"),
        ({"w2.alpha": (1,)}, "there is no updatable weight 'w2.alpha'"),
        ({"w2.lora_A": (0, 300), "w2.lora_B": (3, 0)}, "are empty, or its alpha is no number"),
        ({"w2.lora_A": (2, 300), "w2.lora_B": (3, 2), "w2.alpha": (2,)}, "its alpha is no number"),
        (
            {f"{name}.lora_{half}": shape for name in ("w2", "base_model.model.w2") for half, shape in HALVES},
            "means 'w2', as another one does",
        ),
        ({"w2": (3, 300), "w7": (1,)}, r"'w2' must be float32 \[300, 3\].*'w7'"),
    ],
)
def test_wrong_files_change_nothing(
    session: Session, tmp_path: Path, arrays: dict[str, tuple[int, ...]], text: str
) -> None:
    save_file({name: np.ones(shape, "f") for name, shape in arrays.items()}, tmp_path / "a.safetensors")
    with pytest.raises(WeightError, match=text):
        session.update_weights_from(tmp_path / "a.safetensors")
    assert_close(session(X)[0], mlp_result(X))
    assert session.adapters == ()


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff" * 8 + b"{}", b"\x02" + b"\0" * 7 + b"{}x"])
def test_broken_files_are_told(session: Session, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(WeightError, match=r"a\.safetensors"):
        session.update_weights_from(tmp_path / "a.safetensors")
    with pytest.raises(WeightError, match=r"none\.safetensors: cannot be read"):
        session.update_weights_from(tmp_path / "none.safetensors")


def test_adapters_keep_64_bits_and_refuse_whole_numbers(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(4, 6))
    table = np.arange(24).reshape(4, 6)
    nodes = [
        node("MatMul", "x w", "a"),
        node("Cast", "t", "c", to=11),
        node("MatMul", "x c", "b"),
        node("Add", "a b", "y"),
    ]
    source = model(nodes, {"x": (2, 4)}, {"y": (2, 6)}, {"w": weight, "t": table}, dtype=11)
    session = litehouse.load(source, updatable=["w", "t"], engine="onnxruntime")
    zero = {"lora_A": np.zeros((1, 4), "f"), "lora_B": np.zeros((6, 1), "f")}
    save_file({f"w.{name}": array for name, array in zero.items()}, tmp_path / "w.safetensors")
    x = np.random.default_rng(1).normal(size=(2, 4))
    before = session(x)[0]
    session.update_weights_from(tmp_path / "w.safetensors")
    np.testing.assert_array_equal(session(x)[0], before)
    save_file({f"t.{name}": array for name, array in zero.items()}, tmp_path / "t.safetensors")
    with pytest.raises(WeightError, match="'t' holds whole numbers"):
        session.update_weights_from(tmp_path / "t.safetensors")
    with pytest.raises(WeightError, match="or its scale, holds values that are not numbers"):
        session.update_weights_from(tmp_path / "w.safetensors", scale=float("nan"))


@pytest.mark.parametrize("perm", [(0, 3, 1, 2), (1, 0, 2, 3), (0, 1, 3, 2)])
def test_an_adapter_of_a_convolution_that_reads_its_kernel_in_another_order(
    tmp_path: Path, perm: tuple[int, ...]
) -> None:
    """All sizes are 3, so that the shape does not tell."""
    random = np.random.default_rng(0)
    kernel = random.normal(size=(3, 3, 3, 3)).astype("f")
    down, up = random.normal(size=(2, 3, 3, 3)).astype("f"), random.normal(size=(3, 2, 1, 1)).astype("f")
    nodes = [node("Transpose", "k", "t", perm=perm), node("Conv", "x t", "y")]
    source = model(nodes, {"x": (1, 3, 5, 5)}, {"y": (1, 3, 3, 3)}, {"k": kernel})
    save_file({"k.lora_down.weight": down, "k.lora_up.weight": up}, tmp_path / "a.safetensors")
    session = litehouse.load(source, updatable=["k"])
    session.update_weights_from(tmp_path / "a.safetensors")
    whole = kernel.transpose(perm) + np.einsum("or,rihw->oihw", up[:, :, 0, 0], down)
    x = random.normal(size=(1, 3, 5, 5)).astype("f")
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))
    assert_close(session(x)[0], np.einsum("nihwab,oiab->nohw", windows, whole).astype("f"))


def test_a_kernel_that_is_read_in_an_unknown_order_is_refused(tmp_path: Path) -> None:
    ones = np.ones((3, 3, 3, 3), "f")
    source = model([node("ConvTranspose", "x k", "y")], {"x": (1, 3, 5, 5)}, {"y": (1, 3, 7, 7)}, {"k": ones})
    save_file({"k.lora_A": np.ones((2, 3, 3, 3), "f"), "k.lora_B": np.ones((3, 2, 1, 1), "f")}, tmp_path / "a")
    with pytest.raises(WeightError, match="does not fit 'k'"):
        litehouse.load(source, updatable=["k"]).update_weights_from(tmp_path / "a")


def test_every_offender_of_a_file_is_named(session: Session, tmp_path: Path) -> None:
    arrays = {"w1.lora_A": np.ones((2, 4), "f"), "w9": np.ones(3, "f"), "w2": np.ones((300, 3), "f")}
    arrays |= {"v.lora_A": np.ones((2, 4), "f"), "v.lora_B": np.ones((4, 2), "f")}
    save_file(arrays, tmp_path / "a.safetensors")
    with pytest.raises(WeightError) as caught:
        session.update_weights_from(tmp_path / "a.safetensors")
    text = str(caught.value)
    assert text.startswith(f"{tmp_path / 'a.safetensors'}, for <bytes>: nothing was updated: ")
    assert all(part in text for part in ("'w1' has one half", "updatable weight 'w9'", "the adapter's 'v'"))
    assert_close(session(X)[0], mlp_result(X))


@pytest.mark.parametrize(
    ("down", "up", "scale"), [(np.inf, 0.0, 1.0), (1e30, 1e30, 1.0), (1.0, 1.0, 1e300), (np.nan, 1.0, 1.0)]
)
def test_what_no_number_can_hold_is_refused(
    session: Session, tmp_path: Path, down: float, up: float, scale: float
) -> None:
    save_file({"w2.lora_A": np.full((2, 300), down, "f"), "w2.lora_B": np.full((3, 2), up, "f")}, tmp_path / "a")
    with pytest.raises(WeightError, match="numbers"):
        session.update_weights_from(tmp_path / "a", scale=scale)
    assert_close(session(X)[0], mlp_result(X))
    assert session.adapters == ()


def test_a_product_that_fits_nothing_is_not_computed(session: Session, tmp_path: Path) -> None:
    """It would take 160 GB."""
    save_file({"w2.lora_A": np.ones((1, 200_000), "f"), "w2.lora_B": np.ones((200_000, 1), "f")}, tmp_path / "a")
    with pytest.raises(WeightError, match=r"\[200000, 1\] and \[1, 200000\], does not fit 'w2'"):
        session.update_weights_from(tmp_path / "a")


def test_one_file_is_one_adapter_however_its_path_is_written(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    down, up = _pair(2, 300, 3, seed=0)
    save_file({"w2.lora_A": down, "w2.lora_B": up}, tmp_path / "a.safetensors")
    monkeypatch.chdir(tmp_path)
    for path in ("a.safetensors", "./a.safetensors", tmp_path / "a.safetensors"):
        session.update_weights_from(path)
    assert session.adapters == (str(tmp_path / "a.safetensors"),)
    w1, w2 = mlp_weights().values()
    assert_close(session(X)[0], np.maximum(X @ w1, 0) @ (w2 + (up @ down).T))
    session.remove_adapter(f"../{tmp_path.name}/a.safetensors")
    assert_close(session(X)[0], mlp_result(X))


def test_dtypes_that_numpy_lacks_are_told(session: Session, tmp_path: Path) -> None:
    head = json.dumps({"w2": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(head)) + head + bytes(4))
    with pytest.raises(WeightError, match=r"a: cannot be read as safetensors: .*float8"):
        session.update_weights_from(tmp_path / "a")


def test_scales_that_are_none_are_told(session: Session, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="scale must be a number, not str"):
        session.update_weights_from(tmp_path / "a", scale="x")  # type: ignore[arg-type]
