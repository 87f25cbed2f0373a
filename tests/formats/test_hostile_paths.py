"""Data files that a model names: none outside its folder is ever opened, whatever part of the model names it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from formats.builders import (
    EXPECTED,
    W,
    X,
    branch,
    data_file,
    external,
    info,
    local_function,
    mindir,
    onnx_graph,
    op,
    outcome,
    refused,
    split,
)
from onnx import helper

import litehouse
from litehouse import LimitError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The model's folder. A file that it must not reach lies beside it, and would fit the weight."""
    assert {outcome(mindir()), outcome(onnx_graph())} == {"Model"}  # all modules are imported now
    (tmp_path / "secret").write_bytes(W.tobytes())
    (tmp_path / "model").mkdir()
    return tmp_path / "model"


_watching: list[set[str]] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and _watching:
        _watching[-1].add(str(arguments[0]))


sys.addaudithook(_watch)


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Nothing outside the folder is opened meanwhile."""
    _watching.append(set())
    try:
        yield
    finally:
        opened = _watching.pop()
    assert all(Path(path).resolve().is_relative_to(folder) for path in opened), opened


# How an ONNX model may name a file: each makes the tensor that it gets external.


def in_weight(model: onnx.ModelProto, make: Callable[[onnx.TensorProto], Any]) -> None:
    make(model.graph.initializer[0])


def in_constant(model: onnx.ModelProto, make: Callable[[onnx.TensorProto], Any]) -> None:
    model.graph.node.append(op("Constant", "", "c", value=onnx.numpy_helper.from_array(W)))
    make(model.graph.node[-1].attribute[0].t)


def in_tensors_attribute(model: onnx.ModelProto, make: Callable[[onnx.TensorProto], Any]) -> None:
    model.graph.node[0].attribute.add(name="extra", type=onnx.AttributeProto.TENSORS)
    made = model.graph.node[0].attribute[0].tensors.add()
    made.CopyFrom(onnx.numpy_helper.from_array(W))
    make(made)


def _branching(weights: list[onnx.TensorProto], nodes: list[onnx.NodeProto]) -> onnx.NodeProto:
    inner = branch([*nodes, op("Neg", "x", "t")], "t", weights)
    return op("If", "flag", "i", then_branch=inner, else_branch=branch([op("Neg", "x", "e")], "e"))


def in_branch(model: onnx.ModelProto, make: Callable[[onnx.TensorProto], Any]) -> None:
    weight = onnx.numpy_helper.from_array(W, "inner")
    make(weight)
    model.graph.input.append(info("flag", [], onnx.TensorProto.BOOL))
    model.graph.node.append(_branching([weight], []))


def in_branch_of_branch(model: onnx.ModelProto, make: Callable[[onnx.TensorProto], Any]) -> None:
    weight = onnx.numpy_helper.from_array(W)
    make(weight)
    model.graph.input.append(info("flag", [], onnx.TensorProto.BOOL))
    model.graph.node.append(_branching([], [_branching([], [op("Constant", "", "deep", value=weight)])]))


def in_function(model: onnx.ModelProto, make: Callable[[onnx.TensorProto], Any]) -> None:
    weight = onnx.numpy_helper.from_array(W)
    make(weight)
    model.functions.append(local_function("F", [op("Constant", "", "c", value=weight), op("Add", "p c", "q")]))
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.graph.node.append(op("F", "r", "z", domain="own"))


def in_function_default(model: onnx.ModelProto, make: Callable[[onnx.TensorProto], Any]) -> None:
    in_function(model, lambda _: None)
    default = helper.make_attribute("extra", onnx.numpy_helper.from_array(W))
    make(default.t)
    model.functions[0].attribute_proto.append(default)


PLACES = (
    in_weight,
    in_constant,
    in_tensors_attribute,
    in_branch,
    in_branch_of_branch,
    in_function,
    in_function_default,
)


def hostile_locations(folder: Path) -> dict[str, str]:
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / "folder_link").symlink_to(folder.parent)
    os.mkfifo(folder / "fifo")
    (folder / "loop").symlink_to("loop")
    return {
        "parent": "../secret",
        "parent, hidden": "a/../../secret",
        "parent, from inside": f"../{folder.name}/../secret",
        "absolute": str(folder.parent / "secret"),
        "absolute, twice": "/" + str(folder.parent / "secret"),
        "link": "link",
        "folder link": "folder_link/secret",
        "link loop": "loop",
        "empty": "",
        "the folder": ".",
        "fifo": "fifo",
        "device": "/dev/zero",
        "NUL": "w.bin\0",
        "long": "w" * 5000,
        "missing": "missing.bin",
    }


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_onnx_escapes(folder: Path, place: Callable[..., None]) -> None:
    for location in hostile_locations(folder).values():
        content = onnx_graph(lambda m, at=location: place(m, lambda tensor: external(tensor, at)))
        (folder / "m.onnx").write_bytes(content)
        with watched(folder), refused():
            litehouse.read(folder / "m.onnx")


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
def test_onnx_data_beside_the_model_is_found_from_everywhere(folder: Path, place: Callable[..., None]) -> None:
    (folder / "w.bin").write_bytes(W.tobytes())
    (folder / "m.onnx").write_bytes(onnx_graph(lambda m: place(m, external)))
    assert outcome(folder / "m.onnx") == "Model"


def test_mindir_escapes(folder: Path) -> None:
    for location in hostile_locations(folder).values():
        (folder / "m.mindir").write_bytes(split(location, 0))
        with watched(folder), refused():
            litehouse.read(folder / "m.mindir")


def test_error_names_the_file_and_the_location(folder: Path) -> None:
    (folder / "m.mindir").write_bytes(split("../secret"))
    with refused(text="'../secret'"):
        litehouse.read(folder / "m.mindir")
    (folder / "m.mindir").write_bytes(split("w_variables/data_0"))
    with refused(text="missing"):
        litehouse.read(folder / "m.mindir")


# What is allowed -----------------------------------------------------------------------------------------------------


def test_folder_inside_the_folder(folder: Path) -> None:
    data_file(folder / "m_variables" / "data_0")
    (folder / "m_graph.mindir").write_bytes(split())
    session = litehouse.load(folder / "m_graph.mindir", engine="onnxruntime")
    np.testing.assert_array_equal(session.run([X])[0], EXPECTED)


def test_relative_path_of_the_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data_file(folder / "m_variables" / "data_0")
    (folder / "m_graph.mindir").write_bytes(split())
    monkeypatch.chdir(folder)
    assert outcome("m_graph.mindir") == "Model"
    monkeypatch.chdir(folder.parent)
    assert outcome("model/../model/m_graph.mindir") == "Model"


def test_link_inside_the_folder(folder: Path) -> None:
    (folder / "real.bin").write_bytes(W.tobytes())
    (folder / "w.bin").symlink_to("real.bin")
    (folder / "m.onnx").write_bytes(onnx_graph(lambda m: in_weight(m, external)))
    assert outcome(folder / "m.onnx") == "Model"


def test_model_and_data_both_linked_into_one_cache(tmp_path: Path) -> None:
    """As download caches lay out their files: names in one folder, content in another."""
    (tmp_path / "blobs").mkdir()
    (tmp_path / "names").mkdir()
    (tmp_path / "blobs" / "1").write_bytes(onnx_graph(lambda m: in_weight(m, external)))
    (tmp_path / "blobs" / "2").write_bytes(W.tobytes())
    (tmp_path / "names" / "m.onnx").symlink_to("../blobs/1")
    (tmp_path / "names" / "w.bin").symlink_to("../blobs/2")
    assert outcome(tmp_path / "names" / "m.onnx") == "Model"


# Sizes, offsets, overlaps --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "text"),
    [
        ({"offset": -4}, "lies at bytes -4"),
        ({"offset": 1}, "lies at bytes 1 to 13"),
        ({"offset": 2**63}, "lies at bytes"),
        ({"offset": 10**30}, "lies at bytes"),
        ({"offset": "nan"}, "broken external data"),
        ({"offset": ""}, "broken external data"),
        ({"length": "9" * 5000}, "broken external data"),
        ({"length": 0}, "has 0 bytes, not 12"),
        ({"length": 13}, "has 13 bytes, not 12"),
        ({"length": -12}, "has -12 bytes, not 12"),
    ],
)
@pytest.mark.parametrize("place", [in_weight, in_constant, in_branch], ids=lambda place: place.__name__)
def test_onnx_offsets(folder: Path, place: Callable[..., None], entries: dict[str, Any], text: str) -> None:
    (folder / "w.bin").write_bytes(W.tobytes())
    (folder / "m.onnx").write_bytes(onnx_graph(lambda m: place(m, lambda tensor: external(tensor, **entries))))
    with refused(text=text):
        litehouse.read(folder / "m.onnx")


def test_onnx_unknown_entries_are_ignored(folder: Path) -> None:
    (folder / "w.bin").write_bytes(W.tobytes())
    entries = {"checksum": "0", "__class__": "x", "size": "9" * 30}
    (folder / "m.onnx").write_bytes(onnx_graph(lambda m: in_weight(m, lambda tensor: external(tensor, **entries))))
    assert outcome(folder / "m.onnx") == "Model"


def test_onnx_without_a_location(folder: Path) -> None:
    (folder / "m.onnx").write_bytes(onnx_graph(lambda m: in_weight(m, lambda tensor: external(tensor, None))))
    with refused(text="not inside the model's folder"):
        litehouse.read(folder / "m.onnx")


@pytest.mark.parametrize(
    ("offset", "length", "text"),
    [
        (-1, 12, "lies at bytes -1"),
        (120, 12, "lies at bytes 120"),
        (2**63 - 1, 12, "lies at"),
        (64, 11, "has 11 bytes"),
    ],
)
def test_mindir_offsets(folder: Path, offset: int, length: int, text: str) -> None:
    data_file(folder / "m_variables" / "data_0")
    (folder / "m.mindir").write_bytes(split(offset=offset, length=length))
    with refused(text=text):
        litehouse.read(folder / "m.mindir")


def test_weights_at_one_place_share_memory(folder: Path) -> None:
    """A thousand names for the same bytes cost these bytes once."""
    data_file(folder / "m_variables" / "data_0")
    (folder / "m.mindir").write_bytes(split(count=1000))
    weights = litehouse.read(folder / "m.mindir").weights
    assert len(weights) == 1000
    assert np.shares_memory(weights["w"], weights["w999"])


def test_overlapping_weights_cannot_multiply_a_file(folder: Path) -> None:
    """Each weight lies one byte further than the one before: together they are far larger than the file."""

    def change(model: onnx.ModelProto) -> None:
        for index in range(1000):
            made = model.graph.initializer.add(name=f"w{index}", data_type=onnx.TensorProto.UINT8, dims=[100_000])
            external(made, offset=index)

    (folder / "w.bin").write_bytes(bytes(101_000))
    (folder / "m.onnx").write_bytes(onnx_graph(change))
    with refused(text="overlap"):
        litehouse.read(folder / "m.onnx")


def test_constants_at_one_place_cannot_multiply_a_file(folder: Path) -> None:
    def change(model: onnx.ModelProto) -> None:
        for index in range(1000):
            made = onnx.TensorProto(data_type=onnx.TensorProto.UINT8, dims=[100_000])
            external(made)
            model.graph.node.append(op("Constant", "", f"c{index}", value=made))

    (folder / "w.bin").write_bytes(bytes(100_000))
    (folder / "m.onnx").write_bytes(onnx_graph(change))
    with refused(text="overlap"):
        litehouse.read(folder / "m.onnx")


def test_data_files_count_against_the_limit(folder: Path) -> None:
    (folder / "w.bin").write_bytes(W.tobytes() + bytes(10_000))
    (folder / "m.onnx").write_bytes(onnx_graph(lambda m: in_weight(m, external)))
    with refused(LimitError, "max_model_bytes=9999"):
        litehouse.read(folder / "m.onnx", limits=litehouse.Limits(max_model_bytes=9999))


def test_data_file_that_is_cut_off(folder: Path) -> None:
    data_file(folder / "m_variables" / "data_0")
    (folder / "m.mindir").write_bytes(split())
    for size in (0, 1, 63, 64, 75):
        os.truncate(folder / "m_variables" / "data_0", size)
        with refused():
            litehouse.read(folder / "m.mindir")


def test_model_from_bytes_has_no_folder() -> None:
    with refused(text="load it by its path"):
        litehouse.read(split("w.bin"))
    with refused(text="load it by its path"):
        litehouse.read(onnx_graph(lambda m: in_weight(m, external)))


def test_more_data_files_than_a_process_may_open(folder: Path) -> None:
    """Some writers put each weight into a file of its own."""

    def change(model: onnx.ModelProto) -> None:
        for index in range(1500):
            made = model.graph.initializer.add(name=f"w{index}", data_type=onnx.TensorProto.UINT8, dims=[1])
            external(made, f"w{index}")
            (folder / f"w{index}").write_bytes(bytes([index % 256]))

    (folder / "m.onnx").write_bytes(onnx_graph(change))
    weights = litehouse.read(folder / "m.onnx").weights
    assert all(weights[f"w{index}"][0] == index % 256 for index in range(1500))
