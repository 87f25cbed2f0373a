"""`litehouse slice`: cut a model into one model for each rank of a job.

`--json` prints one document:

    schema       1; a later number means that a key changed its meaning
    path         the file, as given
    ranks        how many ranks there are
    pipeline     whether each rank has some of the layers, instead of a part of each
    fingerprint  what all files of this slicing have in common, and no others
    bytes        {whole, per_rank: [...], sent}; sent are those of the rank that sends most in one run
    weights      [{name, how, shape, bytes, bytes_per_rank}]
    exchanges    [{op, value, bytes}]
    states       {value: "Split(axis)" | "Partial"}; every rank has the whole of all others
    files        the files that were written, in the order of the ranks
    check        null, or {ok, error, note}: the largest error as part of an output's range, null where it is infinite
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.text import Text

from litehouse.cli.arguments import Debug, Key, Mode, ModelPath, read_model
from litehouse.cli.compare import Tolerance, difference
from litehouse.cli.console import CommandError, bytes_text, progress, reporting, shape_text, stderr, stdout, working
from litehouse.cli.fitted import show_fitted
from litehouse.errors import LitehouseError
from litehouse.model import Model
from litehouse.options import Options

if TYPE_CHECKING:
    from litehouse.distributed.slicing import Plan

SCHEMA = 1
SMALLEST = 1024  # bytes; smaller weights are summed up in one line
SHOWN = 40  # lines of the table of weights
OPTIONS = Options(engine="onnxruntime")


@reporting
def slice_command(
    model: ModelPath,
    ranks: Annotated[int, typer.Option("--ranks", "-n", min=1, metavar="N", help="How many ranks run it together.")],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write rank_0.onnx, … there; without it, only the plan is shown."
        ),
    ] = None,
    pipeline: Annotated[
        bool, typer.Option("--pipeline", help="Give each rank some of the layers, instead of a part of each.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Run all ranks in this process, and compare with the whole model.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Overwrite files in --output.")] = False,
    key: Key = None,
    mode: Mode = "AES-GCM",
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """Cut a model into one model for each rank, and show the plan. The exit code is 1 when a check fails."""
    from litehouse.distributed.slicing import plan
    from litehouse.distributed.slicing.writing import refuse_states

    if output is not None:
        _check_target(output, ranks, force)
    network = read_model(model, key, mode)
    refuse_states(network)
    if network.is_secret and output is not None:
        stderr().print("note: the parts are not encrypted; keep the folder to yourself", style="yellow")
    with working("Planning"):
        made = plan(network, ranks, pipeline=pipeline)
    paths = [] if output is None else _write(made, output)
    report = _report(made, str(model), paths)
    if check:
        arrays, expected = _run_whole(network)
        models = [] if paths else [made.model_for(rank) for rank in range(ranks)]
        del network, made  # the slices have the same weights: there is room for them again
        report["check"] = _check(models or [read_model(path, None, "AES-GCM") for path in paths], arrays, expected)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(report)
    if report["check"] and not report["check"]["ok"]:
        raise typer.Exit(1)


def _check_target(folder: Path, ranks: int, force: bool) -> None:
    from litehouse.distributed.slicing.writing import names

    for path in (folder, *folder.parents):
        if path.exists() and not path.is_dir():
            raise CommandError(f"{path}: this is a file; --output names the folder to write the models to")
    present = [folder / name for name in names(ranks) if (folder / name).exists()]
    if present and not force:
        raise CommandError(f"{present[0]}: the file exists; choose another folder, or overwrite it with --force")


def _write(made: "Plan", folder: Path) -> list[Path]:
    from litehouse.distributed.slicing import write

    try:
        with progress("Writing") as step:
            return write(made, folder, step)
    except OSError as error:
        raise CommandError(f"{folder}: cannot write the files ({error.strerror or error}); check the folder") from error


# The check ------------------------------------------------------------------------------------------------------------


def _run_whole(network: Model) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random inputs that the whole model takes, and what it gives for them."""
    from litehouse.cli.trial_inputs import trial_inputs
    from litehouse.session import Session

    reason: LitehouseError | None = None
    with working("Running the whole model"), Session(network, OPTIONS) as session:
        for arrays in trial_inputs(network):
            try:
                return arrays, session.run(arrays)
            except LitehouseError as error:
                reason = reason or error
    raise CommandError(f"{network.path}: the model takes no made-up inputs, so it cannot be checked: {reason}")


def _check(models: list[Model], arrays: list[np.ndarray], expected: list[np.ndarray]) -> dict[str, Any]:
    """How far the outputs of each rank are from those of the whole model."""
    from litehouse.distributed.together import run_together

    with working(f"Running {len(models)} ranks"):
        results = run_together(models, arrays, OPTIONS)
    found = [difference(a, e, Tolerance()) for actual in results for a, e in zip(actual, expected, strict=True)]
    worst = max(found, key=lambda item: (not item.ok, item.relative))
    error = worst.relative if np.isfinite(worst.relative) else None
    return {"ok": all(item.ok for item in found), "error": error, "note": worst.note}


# What is shown --------------------------------------------------------------------------------------------------------


def sizes_of(made: "Plan") -> dict[str, Any]:
    """The bytes of a plan."""
    return {"whole": made.bytes_whole, "per_rank": list(made.bytes_per_rank), "sent": made.bytes_sent}


def _report(made: "Plan", path: str, paths: list[Path]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "path": path,
        "ranks": made.ranks,
        "pipeline": made.is_pipeline,
        "fingerprint": made.fingerprint,
        "bytes": sizes_of(made),
        "weights": [
            {
                "name": row.weight,
                "how": row.how,
                "shape": list(row.shape),
                "bytes": row.bytes_whole,
                "bytes_per_rank": list(row.bytes_per_rank),
            }
            for row in made.rows
        ],
        "exchanges": [{"op": each.op, "value": each.value, "bytes": each.bytes_sent} for each in made.exchanges],
        "states": made.states,
        "files": [str(path) for path in paths],
        "check": None,
    }


def _show(report: Mapping[str, Any]) -> None:
    console = stdout()
    _show_weights(report["weights"])
    console.print()
    show_totals(report["bytes"], Counter(each["op"] for each in report["exchanges"]))
    for path in report["files"]:
        console.print(f"wrote {path} ({bytes_text(_size(Path(path)))})", soft_wrap=True)
    if check := report["check"]:
        verdict = Text("OK", style="bold green") if check["ok"] else Text("FAIL", style="bold red")
        note = f"; {check['note']}" if check["note"] else ""
        error = "beyond measure" if check["error"] is None else f"{check['error']:.1e} of an output's range"
        text = f"  all ranks against the whole model: largest error {error}{note}"
        console.print(Text.assemble(verdict, text), soft_wrap=True)


def show_totals(sizes: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Show the weights of each rank, and what is sent."""
    console, whole = stdout(), sizes["whole"]
    for rank, size in enumerate(sizes["per_rank"]):
        part = f" ({size / whole:.0%} of {bytes_text(whole)})" if whole else ""
        console.print(f"rank {rank}: {bytes_text(size)} of weights{part}", soft_wrap=True)
    kinds = ", ".join(f"{count} {op}" for op, count in counts.items()) or "none"
    if len(sizes["per_rank"]) > 1 and all(size == whole for size in sizes["per_rank"]):
        console.print("note: nothing is worth splitting: every rank has the whole model", style="yellow")
    console.print(f"exchanges in one run: {kinds}; a rank sends {bytes_text(sizes['sent'])}", soft_wrap=True)


def _size(path: Path) -> int:
    return sum(each.stat().st_size for each in (path, path.with_name(f"{path.name}.data")))


def _show_weights(weights: Sequence[Mapping[str, Any]]) -> None:
    """The large weights one by one, the small ones in one line."""
    large = sorted((each for each in weights if each["bytes"] >= SMALLEST), key=lambda each: -each["bytes"])
    rest = [each for each in weights if each["bytes"] < SMALLEST] + large[SHOWN:]
    rows = [
        (
            each["name"],
            each["how"],
            shape_text(each["shape"]),
            bytes_text(each["bytes"]),
            bytes_text(max(each["bytes_per_rank"])),
        )
        for each in large[:SHOWN]
    ]
    if rest:
        whole, own = sum(each["bytes"] for each in rest), sum(max(each["bytes_per_rank"]) for each in rest)
        rows.append((f"{len(rest)} others", "", "", bytes_text(whole), bytes_text(own)))
    columns = ("weight", "how", "shape", "whole", "per rank")
    show_fitted(columns, rows, right=("whole", "per rank"), droppable=("shape",))
