"""`.ms` files that are written here, against calculations in numpy: names, shapes, layouts, refusals."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from formats.builders import EXPECTED, W, X, refused
from formats.ms.ms_builder import (
    ACTIVATION,
    ADD,
    COMPRESSION,
    DATA,
    DIMS,
    EXTERNAL,
    FLOAT16,
    FORMAT,
    GRAPHS,
    HUFFMAN,
    INPUTS,
    INT32,
    NODES,
    OBFUSCATED,
    OUTPUTS,
    RELU,
    RESHAPE,
    TENSORS,
    TITLE,
    Numbers,
    flat,
    model,
    ms,
    node,
    tensor,
)
from formats.test_crypto import KEY, encrypt

import litehouse
from conftest import assert_close
from litehouse import ModelFormatError, UnsupportedOpError


def run(content: bytes | Path, engine: str, *inputs: np.ndarray, **options: Any) -> list[np.ndarray]:
    return litehouse.load(content, engine=engine, threads=1, **options).run(inputs)


def test_a_network(engine: str) -> None:
    session = litehouse.load(ms(), engine=engine, threads=1)
    assert_close(session.run([X])[0], EXPECTED)
    assert session.model.format == "ms"
    assert session.model.source_ops == {"AddFusion": 1, "Activation": 1}
    assert session.model.metadata == {"producer": "MindSpore Lite", "source_framework": "ONNX"}
    assert list(session.model.weights) == ["w"]
    (taken,), (given,) = session.inputs, session.outputs
    assert (taken.name, taken.dtype, taken.shape) == ("x", np.float32, (2, 3))
    assert (given.name, given.dtype, given.shape) == ("r", np.float32, (2, 3))


def test_metadata() -> None:
    found = litehouse.read(ms(lambda root: root.update({1: "MindSpore Lite 1.8.1", 2: ("i", 4)}))).metadata
    expected = {"producer": "MindSpore Lite", "producer_version": "1.8.1", "source_framework": "TensorFlow Lite"}
    assert found == expected


def test_weights_in_half_precision_only_where_they_are_stored(engine: str) -> None:
    def change(root: dict[int, Any]) -> None:
        root[TENSORS][1] = tensor("w", (3,), np.array([0.1, 1, -1], np.float16).tobytes(), FLOAT16)

    (result,) = run(ms(change), engine, X)
    assert_close(result, np.maximum(X + np.array([0.1, 1, -1], np.float16).astype(np.float32), 0))


def test_shapes_that_the_file_lacks(engine: str) -> None:
    """The converter leaves them out where an input is dynamic."""

    def change(root: dict[int, Any]) -> None:
        root[TENSORS][0][DIMS] = Numbers("i", (-1, 3))
        for place in (2, 3):
            del root[TENSORS][place][DIMS]

    session = litehouse.load(ms(change), engine=engine, threads=1)
    assert [size if isinstance(size, int) else None for size in session.inputs[0].shape] == [None, 3]
    assert len(session.outputs[0].shape) == 2
    for rows in (1, 5):
        x = np.resize(X, (rows, 3))
        assert_close(session.run([x])[0], np.maximum(x + W, 0))
    session.resize([(4, 3)])
    assert session.inputs[0].shape == session.outputs[0].shape == (4, 3)


def test_resize(engine: str) -> None:
    session = litehouse.load(ms(), engine=engine, threads=1)
    session.resize([(7, 3)])
    x = np.resize(X, (7, 3))
    assert_close(session.run([x])[0], np.maximum(x + W, 0))


def test_names(engine: str) -> None:
    """Tensors may share a name or have none; what the user sees is unique."""

    def change(root: dict[int, Any]) -> None:
        root[TENSORS][1][TITLE] = "x"
        root[TENSORS].append(tensor("", (3,), W.tobytes()))
        root[TENSORS].append(tensor("x", (2, 3)))
        root[NODES].append(node(ADD, (3, 4), (5,)))
        root[OUTPUTS] = Numbers("I", (5, 3, 3))

    session = litehouse.load(ms(change), engine=engine, threads=1)
    assert [info.name for info in session.inputs] == ["x"]
    assert list(session.model.weights) == ["x_1", "weight_4"]
    assert len({info.name for info in session.outputs}) == 3
    results = session.run([X])
    for result, expected in zip(results, (EXPECTED + W, EXPECTED, EXPECTED), strict=True):
        assert_close(result, expected)


def test_an_input_and_a_weight_as_outputs(engine: str) -> None:
    results = run(ms(lambda root: root.update({OUTPUTS: Numbers("I", (0, 1))})), engine, X)
    assert_close(results[0], X)
    assert_close(results[1], W)


def test_main_graph_of_several(engine: str) -> None:
    """The first graph runs; the nodes of others are only run where they are called."""

    def change(root: dict[int, Any]) -> None:
        root[NODES].append(node(ADD, (3, 1), (2,)))
        root[GRAPHS] = [
            {0: "main", 1: Numbers("I", (0,)), 2: Numbers("I", (3,)), 3: Numbers("I", (0, 1))},
            {0: "other", 1: Numbers("I", (3,)), 2: Numbers("I", (2,)), 3: Numbers("I", (2,))},
        ]

    assert_close(run(ms(change), engine, X)[0], EXPECTED)


@pytest.mark.parametrize("layout", [0, 1])
def test_ops_without_a_layout_of_their_own_take_that_of_their_tensor(engine: str, layout: int) -> None:
    x = np.random.default_rng(0).normal(size=(1, 2, 3, 4)).astype(np.float32)
    channels = x.shape[3 if layout else 1]
    gamma, beta = np.arange(1, channels + 1, dtype=np.float32), np.ones(channels, np.float32)
    tensors = [
        tensor("x", x.shape, _3=("i", layout)),
        tensor("gamma", gamma.shape, gamma.tobytes()),
        tensor("beta", beta.shape, beta.tobytes()),
        tensor("y", x.shape, _3=("i", layout)),
    ]
    content = flat(model(tensors, [node(74, (0, 1, 2), (3,), {0: ("f", 1e-5)})], (0,), (3,)))  # InstanceNorm
    axes, shape = ((1, 2), (1, 1, 1, -1)) if layout else ((2, 3), (1, -1, 1, 1))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    expected = (x - mean) / np.sqrt(variance + 1e-5) * gamma.reshape(shape) + beta.reshape(shape)
    assert FORMAT == 3
    assert_close(run(content, engine, x)[0], expected.astype(np.float32))


def test_integers(engine: str) -> None:
    """Shapes are int32 tensors in this dialect."""
    shape = np.array([3, -1], np.int32)
    tensors = [tensor("x", (2, 3)), tensor("s", (2,), shape.tobytes(), INT32), tensor("y", (3, 2))]
    content = flat(model(tensors, [node(RESHAPE, (0, 1), (2,))], (0,), (2,)))
    assert_close(run(content, engine, X)[0], X.reshape(3, 2))


# Data files -----------------------------------------------------------------------------------------------------------


def external(location: str, offset: int = 0, length: int = -1) -> bytes:
    def change(root: dict[int, Any]) -> None:
        del root[TENSORS][1][DATA]
        root[TENSORS][1][EXTERNAL] = [{1: location, 2: ("q", offset), 3: ("q", length)}]

    return ms(change)


@pytest.mark.parametrize("length", [-1, W.nbytes])
def test_weights_in_a_data_file(tmp_path: Path, engine: str, length: int) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(8) + W.tobytes())
    (tmp_path / "m.ms").write_bytes(external("w.bin", 8, length))
    assert_close(run(tmp_path / "m.ms", engine, X)[0], EXPECTED)


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "a/../../w.bin", "", "missing.bin"])
def test_data_files_elsewhere(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (folder / "m.ms").write_bytes(external(location))
    with refused():
        litehouse.read(folder / "m.ms")


def test_a_data_file_that_is_too_short(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    (tmp_path / "m.ms").write_bytes(external("w.bin", 4))
    with refused(text="cut off or damaged"):
        litehouse.read(tmp_path / "m.ms")


# Encryption -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["AES-GCM", "AES-CBC"])
def test_encrypted(engine: str, mode: str) -> None:
    (result,) = run(encrypt(ms(), KEY, mode), engine, X, key=KEY, mode=mode)
    assert_close(result, EXPECTED)


def test_encrypted_without_a_key() -> None:
    with refused(text="give its key"):
        litehouse.read(encrypt(ms(), KEY, "AES-GCM"))


# Refusals -------------------------------------------------------------------------------------------------------------


def test_unsupported_ops_are_all_named() -> None:
    def change(root: dict[int, Any]) -> None:
        root[NODES].append(node(250, (3,), (3,)))
        root[NODES].append(node(134, (3,), (3,)))

    with pytest.raises(UnsupportedOpError) as caught:
        litehouse.read(ms(change))
    assert caught.value.all == [("op number 250", "node3"), ("SkipGram", "node3")]
    assert caught.value.format == "ms"


def refuse(text: str, **slots: Any) -> tuple[str, Any]:
    return text, lambda root: root[TENSORS][1].update({int(slot[1:]): value for slot, value in slots.items()})


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("obfuscated", lambda root: root.update({OBFUSCATED: ("?", True)})),
        ("obfuscated", lambda root: root.update({OBFUSCATED + 1: b"code"})),
        refuse("compressed (Huffman)", **{f"_{HUFFMAN}": ("?", True)}),
        refuse("compressed (INDEXING)", **{f"_{COMPRESSION}": ("i", 1)}),
        refuse("compressed (SPARSE)", **{f"_{COMPRESSION}": ("i", 2)}),
        refuse("compressed (FSE)", **{f"_{COMPRESSION}": ("i", 3)}),
    ],
)
def test_kinds_that_are_not_supported(text: str, change: Any) -> None:
    with refused(text=text):
        litehouse.read(ms(change))


def test_the_first_schema() -> None:
    for tag in ("MSL1", "MSL3"):
        with refused(text=f"the schema {tag} of MindSpore Lite, and only MSL2 is supported"):
            litehouse.read(ms().replace(b"MSL2", tag.encode()))


def test_no_inputs(engine: str) -> None:
    """A network may be constant."""
    tensors = [tensor("w", (3,), W.tobytes()), tensor("y", (3,))]
    content = flat(model(tensors, [node(ACTIVATION, (0,), (1,), dict(RELU))], (), (1,)))
    assert_close(run(content, engine)[0], np.maximum(W, 0))


def test_a_value_that_nothing_computes() -> None:
    with pytest.raises(ModelFormatError, match="no node computes it"):
        litehouse.read(ms(lambda root: root.update({INPUTS: Numbers("I", ())})))


@pytest.mark.slow
def test_many_nodes() -> None:
    """Twenty thousand nodes, one behind the other, and over a hundred blocks of the file."""
    count = 20_000
    tensors = [tensor("x", (2, 3)), tensor("w", (3,), W.tobytes())]
    tensors += [tensor(f"layer/{index:>100}", (2, 3)) for index in range(count)]
    nodes = [node(ADD, (0 if index == 0 else index + 1, 1), (index + 2,)) for index in range(count)]
    (result,) = run(flat(model(tensors, nodes, (0,), (count + 1,))), "onnxruntime", X)
    np.testing.assert_allclose(result, X + count * W, rtol=1e-5)
