"""What every command shows in the same way: results, errors, progress, and the texts of sizes and shapes."""

import functools
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from litehouse.errors import LitehouseError, printable

# What the core's errors advise, and the option that does it.
HINTS = {
    "give its key": "give the key with --key HEX, --key text:TEXT or --key @FILE",
    "give that mode": "give the mode with --mode",
    "the key does not open the file": "hex digits are read as hex, but a key file of 16, 24 or 32 letters as text; "
    "a key that is text is given as --key text:TEXT",
    "leave the key out": "leave out --key, and unset LITEHOUSE_KEY",
    "resize the session": "give the inputs the shapes of the arrays with --resize",
}
PIPED_WIDTH = 240  # where no terminal sets the width, tables need not be squeezed

Parameters = ParamSpec("Parameters")


class CommandError(LitehouseError):
    """What the command line asks for cannot be done. The text says why, and what to do."""


def stdout() -> Console:
    """The console for results."""
    return _console(stderr=False)


def stderr() -> Console:
    """The console for errors and progress."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal and console.width < PIPED_WIDTH:
        console.width = PIPED_WIDTH
    return console


def reporting(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    """Let a command end with one message and exit code 1 on a `LitehouseError`; its `debug` adds the traceback."""

    @functools.wraps(command)
    def reported(*args: Parameters.args, **kwargs: Parameters.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except LitehouseError as error:
            if kwargs.get("debug"):
                traceback.print_exc(file=sys.stderr)
            message = Text.assemble(("error: ", "bold red"), (str(error), "red"))
            console = stderr()
            console.print(message, soft_wrap=True)
            for hint in (hint for advice, hint in HINTS.items() if advice in str(error)):
                console.print(f"hint: {hint}", soft_wrap=True)
            raise typer.Exit(1) from error

    return reported


@contextmanager
def working(text: str) -> Iterator[None]:
    """Show a spinner with this text on a terminal; nothing when piped."""
    console = stderr()
    if not console.is_terminal:
        yield
        return
    with console.status(Text(text)):
        yield


def silent(done: int, total: int) -> None:
    """Progress that nobody sees."""


@contextmanager
def progress(text: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal, moved by calls of the given function with (done, total); nothing when piped."""
    console = stderr()
    if not console.is_terminal:
        yield silent
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(text, markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task("", total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)


class PlainTable(Table):
    """A table whose cells cannot control the terminal: names come from files of strangers."""

    def add_row(self, *cells: RenderableType | None, **settings: Any) -> None:
        """Add a row, the control characters of its texts written as escapes."""
        super().add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in cells), **settings)


def table(*columns: str, right: Sequence[str] = ()) -> Table:
    """An empty table with these column heads; the columns named in `right` are aligned there. Those never wrap."""
    made = PlainTable(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        fixed = column in right or column in ("dtype", "shape")
        made.add_column(column, justify="right" if column in right else "left", overflow="fold", no_wrap=fixed)
    return made


def shape_text(shape: Sequence[int | str | None]) -> str:
    """A shape as `[1, batch, ?]`."""
    return "[" + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def bytes_text(count: int) -> str:
    """A size as `3.2 MB`."""
    size = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{count} bytes" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError


def number_text(value: float) -> str:
    """A number with six digits."""
    return f"{value:.6g}"


def seconds_text(seconds: float) -> str:
    """A time as `12.3 ms`."""
    for factor, unit in ((1, "s"), (1e3, "ms")):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
