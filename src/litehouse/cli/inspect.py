"""`litehouse inspect`: what is in a model file.

`--json` prints one document:

    schema       1; a later number means that a key changed its meaning
    path         the file, as given
    format       "mindir", "ms", "mge" or "onnx"
    supported    whether Litehouse can run it
    message      null, or why it is not supported
    metadata     {name: text}, what the file says about itself
    inputs       [{name, dtype, shape}]; a size is a number, the name of a dynamic dimension, or null
    outputs      the same; empty where the model is not supported and the file does not record them
    source_ops   {op: count}, in the file
    onnx_ops     {op: count}, after translation; empty where the model is not supported
    weights      {count, bytes, values, largest: null | {name, dtype, shape, bytes}, all: null | [the same of each]}
    states       [{name, dtype, shape}], the weights that a run changes; a session keeps them between runs
    exchanges    {op: count}, with which it exchanges data with other ranks: then it is one part of a job
    unsupported  [{op, count, nodes}]

`weights.all` is filled with `--weights`.
"""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from litehouse.cli.arguments import Debug, Key, Mode, ModelPath, parse_key, read_model
from litehouse.cli.console import bytes_text, reporting, shape_text, stdout, table
from litehouse.errors import UnsupportedOpError, printable
from litehouse.model import Model, TensorInfo

SCHEMA = 1
SHOWN_NODES = 3


@reporting
def inspect_command(
    model: ModelPath,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    weights: Annotated[bool, typer.Option("--weights", help="List every weight.")] = False,
    key: Key = None,
    mode: Mode = "AES-GCM",
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """Show a model's inputs, outputs, ops and weights, and what of it is unsupported (exit code 1 then)."""
    try:
        network = read_model(model, key, mode)
        report = describe_model(network, list_weights=weights)
    except UnsupportedOpError as error:
        from litehouse.cli.survey import survey

        found = survey(model, parse_key(key), mode)
        report = _report(str(model), error.format, found, list_weights=weights) | _refusal(error)
    if as_json:
        typer.echo(_json_text(report))
    else:
        _show(report)
    if not report["supported"]:
        raise typer.Exit(1)


def _json_text(report: Mapping[str, Any]) -> str:
    """The document, with letters that the encoding of stdout lacks as escapes."""
    text = json.dumps(report, indent=2, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return json.dumps(report, indent=2)
    return text


def describe_model(model: Model, *, list_weights: bool = False) -> dict[str, Any]:
    """The JSON document of a model that was read; see the module's text."""
    ops = Counter(
        node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"
        for node in model.graph.graph.all_nodes()
    )
    facts: dict[str, Any] = {
        "metadata": model.metadata,
        "inputs": model.inputs,
        "outputs": model.outputs,
        "source_ops": model.source_ops,
        "onnx_ops": ops,
        "exchanges": Counter(op for op, _ in model.exchanges),
        "weights": [TensorInfo(name, array.dtype, array.shape) for name, array in model.weights.items()],
    }
    facts["states"] = [info for info in facts["weights"] if info.name in {state.name for state in model.states}]
    return _report(model.path, model.format, facts, list_weights=list_weights)


def _report(path: str, format_name: str, facts: Mapping[str, Any], *, list_weights: bool) -> dict[str, Any]:
    weights = [_weight(info) for info in facts["weights"]]
    return {
        "schema": SCHEMA,
        "path": path,
        "format": format_name,
        "supported": True,
        "message": None,
        "metadata": dict(facts["metadata"]),
        "inputs": [_tensor(info) for info in facts["inputs"]],
        "outputs": [_tensor(info) for info in facts["outputs"]],
        "source_ops": _sorted(facts["source_ops"]),
        "onnx_ops": _sorted(facts["onnx_ops"]),
        "weights": {
            "count": len(weights),
            "bytes": sum(weight["bytes"] for weight in weights),
            "values": sum(weight.pop("values") for weight in weights),
            "largest": max(weights, key=lambda weight: weight["bytes"], default=None),
            "all": weights if list_weights else None,
        },
        "states": [_tensor(info) for info in facts.get("states", ())],
        "exchanges": dict(facts.get("exchanges", {})),
        "unsupported": [],
    }


def _refusal(error: UnsupportedOpError) -> dict[str, Any]:
    nodes: dict[str, list[str]] = {}
    for op, node in error.all:
        nodes.setdefault(op, []).append(node)
    found = [{"op": op, "count": len(at), "nodes": at} for op, at in nodes.items()]
    message = str(error).partition("\n")[0].removeprefix(f"{error.path}: ").removesuffix(":")
    return {"supported": False, "message": message, "unsupported": found}


def _tensor(info: TensorInfo) -> dict[str, Any]:
    return {"name": info.name, "dtype": info.dtype.name, "shape": list(info.shape)}


def _weight(info: TensorInfo) -> dict[str, Any]:
    values = 1
    for size in info.shape:
        values *= size if isinstance(size, int) else 0  # no weight of a sound file has a dynamic size
    return {**_tensor(info), "bytes": values * info.dtype.itemsize, "values": values}


def _sorted(counts: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


# The page that people read --------------------------------------------------------------------------------------------


def _show(report: Mapping[str, Any]) -> None:
    weights = report["weights"]
    console = stdout()
    size = f"  {bytes_text(Path(report['path']).stat().st_size)}"
    console.print(Text.assemble((Path(report["path"]).name, "bold"), f"  {report['format']}", (size, "dim")))
    for title, content in (
        ("Inputs", _tensors(report["inputs"])),
        ("Outputs", _tensors(report["outputs"])),
        (_ops_title(report), _ops(report["source_ops"], report["onnx_ops"], report["format"])),
        ("Weights", _weights(weights)),
        ("State, which runs change", _tensors(report["states"])),
        ("Metadata", _metadata(report["metadata"])),
        ("Exchanges with other ranks", _exchanges(report["exchanges"])),
        ("Unsupported", _unsupported(report)),
    ):
        if content is not None:
            style = "bold red" if title == "Unsupported" else "bold cyan"
            console.print(Group(Text(f"\n{title}", style=style), Padding(content, (0, 0, 0, 2), expand=False)))


def _tensors(infos: Sequence[Mapping[str, Any]]) -> RenderableType | None:
    if not infos:
        return None
    shown = table("name", "dtype", "shape")
    for info in infos:
        shown.add_row(info["name"], info["dtype"], shape_text(info["shape"]))
    return shown


def _ops_title(report: Mapping[str, Any]) -> str:
    source, onnx = (sum(report[name].values()) for name in ("source_ops", "onnx_ops"))
    if report["format"] == "onnx" or not onnx:
        return f"Ops ({source})"
    return f"Ops ({source} in the file, {onnx} as ONNX)"


def _ops(source: Mapping[str, int], onnx: Mapping[str, int], format_name: str) -> RenderableType | None:
    """The ops of the file, and those that they became, side by side."""
    if format_name == "onnx" or not onnx:
        shown = table("op", "count", right=("count",))
        for name, count in (source or onnx).items():
            shown.add_row(name, str(count))
        return shown if source or onnx else None
    shown = table(f"{format_name} op", "count", "", "ONNX op", "count", right=("count",))
    left, right = (list(_cells(counts.items())) for counts in (source, onnx))
    for index in range(max(len(left), len(right))):
        first = left[index] if index < len(left) else ("", "")
        second = right[index] if index < len(right) else ("", "")
        shown.add_row(*first, "", *second)
    return shown


def _cells(counts: Iterable[tuple[str, int]]) -> Iterable[tuple[str, str]]:
    return ((name, str(count)) for name, count in counts)


def _weights(weights: Mapping[str, Any]) -> RenderableType | None:
    if not weights["count"]:
        return None
    line = f"{weights['count']} with {weights['values']:,} values, {bytes_text(weights['bytes'])}"
    if weights["all"] is None:
        largest = weights["largest"]
        name = printable(largest["name"])
        return Text(f"{line}; largest: {name} {largest['dtype']} {shape_text(largest['shape'])}")
    shown = table("name", "dtype", "shape", "size", right=("size",))
    for weight in weights["all"]:
        shown.add_row(weight["name"], weight["dtype"], shape_text(weight["shape"]), bytes_text(weight["bytes"]))
    return Group(Text(line), shown)


def _metadata(metadata: Mapping[str, str]) -> RenderableType | None:
    if not metadata:
        return None
    shown = table("name", "text")
    shown.show_header = False
    for name, text in metadata.items():
        shown.add_row(Text(printable(name), style="dim"), text)
    return shown


def _exchanges(counts: Mapping[str, int]) -> RenderableType | None:
    if not counts:
        return None
    told = ", ".join(f"{count} {op}" for op, count in counts.items())
    return Text(f"{told}: the file is one part of a job; start one process for each rank, as with mpirun")


def _unsupported(report: Mapping[str, Any]) -> RenderableType | None:
    if report["supported"]:
        return None
    shown = table("op", "count", "nodes", right=("count",))
    for item in report["unsupported"]:
        nodes = item["nodes"]
        more = f"\nand {len(nodes) - SHOWN_NODES} more" if len(nodes) > SHOWN_NODES else ""
        shown.add_row(item["op"], str(item["count"]), "\n".join(nodes[:SHOWN_NODES]) + more)
    return Group(Text(report["message"], style="red"), shown)
