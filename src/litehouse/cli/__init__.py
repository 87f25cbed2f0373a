"""The `litehouse` command. Engines, formats and the graph library are imported by the command that needs them."""

import io
import sys
from typing import Annotated

import typer

from litehouse._version import __version__
from litehouse.cli.cache import cache_app
from litehouse.cli.convert import convert_command
from litehouse.cli.doctor import doctor_command
from litehouse.cli.inspect import inspect_command
from litehouse.cli.run import run_command
from litehouse.cli.slice import slice_command
from litehouse.cli.verify import verify_command

app = typer.Typer(
    name="litehouse",
    help="Run, inspect, convert, verify and slice MindIR, .ms, MegEngine and ONNX models; examine the machine.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run_command)
app.command("inspect")(inspect_command)
app.command("convert")(convert_command)
app.command("verify")(verify_command)
app.command("slice")(slice_command)
app.command("doctor")(doctor_command)
app.add_typer(cache_app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"litehouse {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Run, inspect, convert, verify and slice MindIR, .ms, MegEngine and ONNX models; examine the machine."""


def main() -> None:
    """The console script."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names and signs that the encoding lacks become question marks
            stream.reconfigure(errors="replace")
    app()
