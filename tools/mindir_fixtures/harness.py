"""Turns a table of small networks into ``.mindir`` + ``.npz`` pairs with MindSpore's own outputs.

Needs MindSpore; run through ``tools/make_mindir_fixtures.py``.
"""

import importlib.util
import json
import re
import sys
import textwrap
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn
from mindspore.train.mind_ir_pb2 import ModelProto

from mindir_fixtures.table import Case, Draw

ARGUMENTS = ("x", "y", "z", "w", "v", "u", "t", "s")

DTYPES = dict(
    enumerate(
        [
            "none",
            "float32",
            "uint8",
            "int8",
            "uint16",
            "int16",
            "int32",
            "int64",
            "str",
            "bool",
            "float16",
            "float64",
            "uint32",
            "uint64",
        ]
    )
)
"""numpy's names of MindIR's data types."""

PREAMBLE = """\
import math

import mindspore as ms
import numpy as np
from mindspore import mint, nn, ops
from mindspore import dtype as mstype
from mindspore import numpy as mnp
from mindspore.ops import auto_generate as G
from mindspore.ops import operations as P
"""

CELL = """

class {cls}(nn.Cell):
    def __init__(self, members):
        super().__init__()
        for key, value in members.items():
            setattr(self, key, value)

    def construct(self, {arguments}):
{body}
"""


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _cell_source(name: str, text: str, count: int) -> str:
    body = textwrap.dedent(text).strip() if "return " in text else f"return {text.strip()}"
    arguments = ", ".join(ARGUMENTS[:count])
    return CELL.format(cls=_class_name(name), arguments=arguments, body=textwrap.indent(body, " " * 8))


def _sources(cases: Iterable[Case]) -> str:
    parts = [PREAMBLE]
    for item in cases:
        if isinstance(item.network, str):
            parts.append(_cell_source(item.name, item.network, len(item.inputs)))
        if item.reference is not None:
            parts.append(_cell_source(f"{item.name}_reference", item.reference, len(item.inputs)))
    return "".join(parts)


def build_cells(cases: Iterable[Case], folder: Path) -> Callable[[Case], tuple[nn.Cell, nn.Cell]]:
    """Write the source of the text cases (MindSpore parses source files).

    Returns:
        A function from a case to its two cells: the one to export and the one that gives the outputs.
    """
    file = folder / "cases.py"
    file.write_text(_sources(cases))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)

    def build(item: Case) -> tuple[nn.Cell, nn.Cell]:
        cell = item.network
        if isinstance(cell, str):
            cell = getattr(module, _class_name(item.name))(item.members)
        if item.reference is None:
            return cell, cell
        return cell, getattr(module, _class_name(f"{item.name}_reference"))(item.members)

    return build


def randomise(cell: nn.Cell, rng: np.random.Generator) -> None:
    """Give every weight non-trivial values: fresh layers have zero biases and unit scales, which hide mistakes."""
    for weight in cell.get_parameters():
        if weight.name.startswith("kept") or not np.issubdtype(weight.asnumpy().dtype, np.floating):
            continue
        if "variance" in weight.name:
            array = rng.uniform(0.5, 1.5, weight.shape)
        else:
            fan_in = int(np.prod(weight.shape[1:])) if len(weight.shape) > 1 else 4
            array = rng.standard_normal(weight.shape) / np.sqrt(max(fan_in, 1))
        weight.set_data(ms.Tensor(array.astype(weight.asnumpy().dtype)))


def flatten(value: Any) -> list[np.ndarray]:
    """Outputs depth-first, as arrays; Python numbers become rank-0 arrays (floats as float32), None is left out."""
    if isinstance(value, dict):
        return [array for item in value.values() for array in flatten(item)]
    if isinstance(value, tuple | list):
        return [array for item in value for array in flatten(item)]
    if value is None:
        return []
    if isinstance(value, ms.Tensor):
        return [value.asnumpy().copy()]
    return [np.asarray(value, np.float32 if isinstance(value, float) else None)]


def op_types(path: Path) -> list[str]:
    """Operator types that a file's nodes refer to, sorted."""
    model = ModelProto()
    model.ParseFromString(path.read_bytes())
    primitives = {primitive.name: primitive.op_type for primitive in model.primitives}
    graphs = [model.graph, *model.functions]
    references = {node.op_type.removeprefix("REF::") for graph in graphs for node in graph.node}
    return sorted({primitives[name] for name in references if name in primitives})


def export(cell: nn.Cell, tensors: Sequence[ms.Tensor], path: Path, **options: Any) -> None:
    """Export to ``path`` and make the file an ordinary one (MindSpore writes it read-only)."""
    path.unlink(missing_ok=True)
    ms.export(cell, *tensors, file_name=str(path), file_format="MINDIR", **options)
    if path.exists():
        path.chmod(0o644)


def make(item: Case, cell: nn.Cell, reference: nn.Cell, folder: Path) -> dict[str, Any]:
    """Export one case, run it, store the pair of files; the answer goes into the report."""
    rng = np.random.default_rng(zlib.crc32(item.name.encode()))
    arrays = [entry(rng) if isinstance(entry, Draw) else entry for entry in item.inputs]
    prepare(item, cell, rng)
    path = folder / f"{item.name}.mindir"
    export(cell, signature(item, arrays), path)
    result: dict[str, Any] = {"name": item.name, "ops": op_types(path)}
    # In-place operators write into their inputs and weights: each run gets copies, and the export comes first.
    outputs = flatten(reference.set_train(False)(*[ms.Tensor(array.copy()) for array in arrays]))
    check_declared(path, outputs)
    if item.reference is not None:
        result["reference"] = item.reference
    else:
        result["remark"] = check_loader(item, path, arrays, outputs)
    named = {f"input_{k}": array for k, array in enumerate(arrays)}
    named |= {f"output_{k}": array for k, array in enumerate(outputs)}
    np.savez_compressed(folder / f"{item.name}.npz", **named)
    return result


def prepare(item: Case, cell: nn.Cell, rng: np.random.Generator) -> None:
    """Random weights, inference mode, and the float type that the case asks for."""
    randomise(cell, rng)
    if item.dtype is not None:
        cell.to_float(getattr(ms, item.dtype))
        for weight in cell.get_parameters():
            weight.set_dtype(getattr(ms, item.dtype))
    cell.set_train(False)


def signature(item: Case, arrays: Sequence[np.ndarray]) -> list[ms.Tensor]:
    """Tensors to export with: the inputs themselves, or stand-ins with dynamic dimensions."""
    tensors = [ms.Tensor(array) for array in arrays]
    if item.shapes is None:
        return tensors
    return [
        ms.Tensor(shape=None if shape is None else list(shape), dtype=tensor.dtype)
        for shape, tensor in zip(item.shapes, tensors, strict=True)
    ]


def declared(path: Path) -> list[tuple[int, tuple[int, ...]]]:
    """Types and shapes of the outputs that a file declares, depth-first; a Python number counts as rank 0."""
    model = ModelProto()
    model.ParseFromString(path.read_bytes())
    found: list[tuple[int, tuple[int, ...]]] = []

    def walk(attribute: Any) -> None:
        for item in attribute.values:
            walk(item)
        if attribute.tensors:
            scalar = attribute.type == attribute.SCALAR
            found.append((attribute.tensors[0].data_type, () if scalar else tuple(attribute.tensors[0].dims)))

    for output in model.graph.output:
        if output.tensor:
            found.append((output.tensor[0].data_type, tuple(output.tensor[0].dims)))
        else:
            walk(output.attr_info)
    return found


def check_declared(path: Path, outputs: Sequence[np.ndarray]) -> None:
    """The outputs must have the types and shapes that the file declares (constants in a tuple declare none)."""
    expected = declared(path)
    if len(expected) != len(outputs):
        return
    for k, ((code, shape), array) in enumerate(zip(expected, outputs, strict=True)):
        same = len(shape) == array.ndim and all(a in (-1, b) for a, b in zip(shape, array.shape, strict=True))
        if not (same or -2 in shape) or DTYPES[code] != array.dtype:
            raise RuntimeError(f"output {k} is {array.dtype}{array.shape}, the file declares {DTYPES[code]}{shape}")


def check_loader(item: Case, path: Path, arrays: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> str:
    """Run the stored file through MindSpore's own loader: outputs that differ are not to be trusted.

    Returns:
        A remark where the loader cannot run the file, or is known to be wrong on it; empty when it agrees.
    """
    try:
        cell = nn.GraphCell(ms.load(str(path)))
        again = flatten(cell(*[ms.Tensor(array.copy()) for array in arrays]))
    except Exception as error:  # noqa: BLE001 - MindSpore raises any type
        return f"MindSpore's loader: {first_line(error)}"
    difference = compare(outputs, again)
    if difference and item.loader_bug is None:
        raise RuntimeError(f"the exported file, loaded by MindSpore, gives other outputs: {difference}")
    return item.loader_bug or ""


def compare(outputs: Sequence[np.ndarray], again: Sequence[np.ndarray]) -> str:
    """Empty when both are the same, otherwise what differs first."""
    if len(outputs) != len(again):
        return f"{len(outputs)} outputs before, {len(again)} after reload"
    for k, (a, b) in enumerate(zip(outputs, again, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {k}: {a.dtype}{a.shape} before, {b.dtype}{b.shape} after reload"
        if not np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=a.dtype.kind in "fc"):
            return f"output {k} differs after reload"
    return ""


def first_line(error: BaseException) -> str:
    """The first telling line of MindSpore's long error texts, without paths of the machine."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not set(line) <= set("-=*# ") and not line.startswith("- ")]
    text = telling[0] if telling else type(error).__name__
    text = re.sub(r"(/[\w.+-]+)+/", "", text)
    text = re.sub(r"0x[0-9a-f]+", "0x..", text)
    text = re.sub(r",? Please .*", "", text)
    return f"{type(error).__name__}: {text}"[:240]


def run_family(cases: Sequence[Case], folder: Path, work: Path, report: Path, skip: set[str]) -> None:
    """Make all cases of a family; one JSON line is written before and one after each, so a crash can be placed."""
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    folder.mkdir(parents=True, exist_ok=True)
    build = build_cells(cases, work)
    with report.open("a") as log:
        for item in cases:
            if item.name in skip:
                continue
            print(json.dumps({"start": item.name}), file=log, flush=True)
            try:
                result = make(item, *build(item), folder)
            except Exception as error:  # noqa: BLE001 - MindSpore raises any type
                result = {"name": item.name, "error": first_line(error)}
                (folder / f"{item.name}.mindir").unlink(missing_ok=True)
                (folder / f"{item.name}.npz").unlink(missing_ok=True)
            print(json.dumps(result), file=log, flush=True)
