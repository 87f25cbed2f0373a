"""`litehouse convert`: write a model as ONNX."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litehouse.cli.arguments import Debug, Key, Mode, ModelPath, read_model
from litehouse.cli.console import CommandError, bytes_text, progress, reporting, stdout, working
from litehouse.model import Model

if TYPE_CHECKING:
    import onnx_ir as ir

INLINE_BYTES = 1_900_000_000  # protobuf ends at 2 GiB; the graph needs room too


@reporting
def convert_command(
    model: ModelPath,
    target: Annotated[Path, typer.Argument(metavar="OUT.onnx", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    external_data: Annotated[
        bool,
        typer.Option("--external-data", help="Keep the weights in OUT.onnx.data, as is done for 2 GB and more anyway."),
    ] = False,
    key: Key = None,
    mode: Mode = "AES-GCM",
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """Write a model as an ONNX file that plain ONNX Runtime runs to the same numbers."""
    if target.suffix != ".onnx" and not target.is_dir():
        raise CommandError(f"{target}: the name must end in .onnx, since that is what is written; as out.onnx")
    data = target.with_name(f"{target.name}.data")
    _check_target(model, target, force)
    network = read_model(model, key, mode)
    if exchanges := network.exchanges:
        raise CommandError(
            f"{model}: {exchanges[0][0]} and the like exchange data between ranks, which plain ONNX Runtime cannot do; "
            "such a model cannot be written as ONNX"
        )
    external = external_data or _initializer_bytes(network) > INLINE_BYTES
    if external:
        _check_target(model, data, force)
    try:
        _write(network, target, data if external else None)
    except OSError as error:
        raise CommandError(f"{target}: cannot write the file ({error.strerror or error}); check the folder") from error
    console = stdout()
    for path in (target, data) if external else (target,):
        console.print(f"wrote {path} ({bytes_text(path.stat().st_size)})", soft_wrap=True)


def _check_target(model: Path, target: Path, force: bool) -> None:
    if not target.exists():
        return
    if not target.is_file():
        raise CommandError(f"{target}: this is not a file; name the file to write, as out.onnx")
    if model.exists() and target.samefile(model):
        raise CommandError(f"{target}: this is the model itself; write to another file")
    if not force:
        raise CommandError(f"{target}: the file exists; choose another name, or overwrite it with --force")


def _initializer_bytes(model: Model) -> int:
    values = model.graph.graph.initializers.values()
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)


def _write(model: Model, target: Path, data: Path | None) -> None:
    """Write under temporary names and rename, so that a file is never half there."""
    import onnx_ir

    made: ir.Model = model.graph
    made.metadata_props.setdefault("litehouse.source", Path(model.path).name)
    if model.format != "onnx":
        _forget_inner_types(made)
    # In a folder of its own, since the graph's file holds the name of the data's file.
    with tempfile.TemporaryDirectory(prefix=".litehouse-", dir=target.absolute().parent) as folder:
        place = Path(folder) / target.name
        if data is None:
            with working(f"Writing {target.name}"):
                onnx_ir.save(made, place, format="protobuf")
        else:
            with _saved_weights(f"Writing {data.name}") as saved:
                onnx_ir.save(made, place, format="protobuf", external_data=data.name, callback=saved)
            os.replace(place.with_name(data.name), data)
        os.replace(place, target)


def _forget_inner_types(graph: "ir.Model") -> None:
    """Leave out the types of inner values, as the engines do: every reader infers them, and ours may be guesses."""
    for node in graph.graph.all_nodes():
        for value in node.outputs:
            if not value.is_graph_output():
                value.type = value.shape = None


@contextmanager
def _saved_weights(text: str) -> Iterator[Any]:
    with progress(text) as step:
        yield lambda _tensor, info: step(info.index + 1, info.total)
