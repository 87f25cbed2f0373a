"""`litehouse verify`: compare what a model returns with stored outputs, and find the op where two engines part."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich.text import Text

from litehouse.cli.arguments import (
    Debug,
    Device,
    Engine,
    Key,
    Mode,
    ModelPath,
    Precision,
    Provider,
    Resize,
    Threads,
    make_options,
    read_model,
    show_engine,
)
from litehouse.cli.arrays import describe, load_reference
from litehouse.cli.compare import Difference, Tolerance, difference
from litehouse.cli.console import CommandError, number_text, progress, reporting, shape_text, stdout, working
from litehouse.cli.fitted import show_fitted
from litehouse.model import Model, TensorInfo
from litehouse.options import Options
from litehouse.session import Session

if TYPE_CHECKING:
    from litehouse.cli.per_op import Outcome

NUMBERS = ("range", "max error", "of range")
ROUNDED = 0.02  # what 16 bits may differ by, as a part of the range: networks that were tried keep within it


@reporting
def verify_command(
    model: ModelPath,
    reference: Annotated[
        Path,
        typer.Option(
            metavar="DIR|FILE.npz",
            help="Stored arrays input_0, … (or by the inputs' names), output_0, …: .npy files in a folder, or one "
            ".npz file.",
        ),
    ],
    tolerance: Annotated[
        float, typer.Option(min=0, metavar="PART", help="Allowed error as part of the output's range.")
    ] = 1e-4,
    rtol: Annotated[
        float | None, typer.Option(min=0, help="Allow atol + rtol * |expected| per value instead.", show_default=False)
    ] = None,
    atol: Annotated[float | None, typer.Option(min=0, help="See --rtol.", show_default=False)] = None,
    resize: Resize = False,
    per_op: Annotated[
        bool, typer.Option("--per-op", help="Find the first op where the engine parts from unoptimised ONNX Runtime.")
    ] = False,
    engine: Engine = "auto",
    device: Device = "cpu",
    provider: Provider = "",
    threads: Threads = 0,
    precision: Precision = "fp32",
    key: Key = None,
    mode: Mode = "AES-GCM",
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """Compare a model's outputs with stored ones. The exit code is 1 when they differ."""
    options = make_options(engine, device, threads, precision, provider=provider)
    limits = Tolerance(tolerance, rtol, atol)
    network = read_model(model, key, mode)
    inputs, expected = load_reference(reference, network.inputs)
    _check_counts(network, inputs, expected, reference)
    with Session(network, options) as session:
        with working("Running"):
            if resize:
                session.resize([array.shape for array in inputs])
            actual = session.run(inputs)
        used = session.engine
    if network.format == "mge":  # it has no scalars: those of MegEngine's Python come back as one number in a row
        expected = [array.reshape(1) if array.shape == () else array for array in expected]
    found = [difference(a, e, limits) for a, e in zip(actual, expected, strict=True)]
    matches = all(item.ok for item in found)
    _show(network.outputs, actual, found)
    show_engine(session)
    if not matches and session.precision != "fp32" and limits == Tolerance():
        stdout().print(f"{session.precision} rounds more than that: --tolerance {ROUNDED} lets it", style="dim")
    if per_op:
        outcome = _search(network, replace(options, engine=used), inputs, limits)
        _show_outcome(outcome, used, matches)
    if not matches:
        raise typer.Exit(1)


def _check_counts(model: Model, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], path: Path) -> None:
    if len(inputs) != len(model.inputs):
        raise CommandError(
            f"{path}: holds {len(inputs)} inputs, named input_0 to input_N or as below\n{describe(model.inputs)}"
        )
    if len(outputs) != len(model.outputs):
        raise CommandError(f"{path}: holds {len(outputs)} outputs, but the model returns {len(model.outputs)}")


def _search(model: Model, options: Options, arrays: Sequence[np.ndarray], limits: Tolerance) -> "Outcome":
    from litehouse.cli.per_op import find_parting, with_shapes

    with progress("Comparing values") as step:
        return find_parting(with_shapes(model, arrays), options, arrays, limits, step)


def _show(infos: Sequence[TensorInfo], arrays: Sequence[np.ndarray], found: Sequence[Difference]) -> None:
    rows = [
        (info.name, array.dtype.name, shape_text(array.shape), *_numbers(item), _verdict(item))
        for info, array, item in zip(infos, arrays, found, strict=True)
    ]
    columns = ("output", "dtype", "shape", *NUMBERS, "at", "")
    show_fitted(columns, rows, right=NUMBERS, droppable=("dtype", "at"))
    for info, item in zip(infos, found, strict=True):
        if item.note:
            stdout().print(f"{info.name}: {item.note}", soft_wrap=True)


def _verdict(item: Difference) -> Text:
    return Text("OK", style="bold green") if item.ok else Text("FAIL", style="bold red")


def _numbers(item: Difference) -> tuple[str, str, str, str]:
    at = shape_text(item.worst) if item.error else ""
    return number_text(item.range), f"{item.error:.3g}", f"{item.relative:.1e}", at


def _show_outcome(outcome: "Outcome", engine: str, matches: bool) -> None:
    console = stdout()
    console.print()
    for name in outcome.skipped:
        console.print(f"not compared, since an engine refuses it as an output: {name}", style="dim")
    parting = outcome.parting
    if parting is None:
        cause = "" if matches else "; so the translation of the file, or the reference, is at fault, and not the engine"
        agrees = f"{engine} agrees with unoptimised ONNX Runtime in all {outcome.compared} values{cause}"
        console.print(agrees, soft_wrap=True)
        return
    console.print(
        Text.assemble(
            f"{engine} parts from unoptimised ONNX Runtime at ",
            (parting.op, "bold red"),
            ", node ",
            (parting.node, "bold"),
            *([", where it fuses this op with others before it"] if parting.fused else []),
        ),
        soft_wrap=True,
    )
    rows: list[tuple[str | Text, ...]] = [
        (name, "input", *(("", "exact", "", "") if item is None else _numbers(item))) for name, item in parting.inputs
    ]
    rows.append((parting.value, Text("output", style="red"), *_numbers(parting.difference)))
    show_fitted(("value", "of the op", *NUMBERS, "at"), rows, right=NUMBERS, droppable=("at",))
