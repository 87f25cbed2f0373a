"""Tables that fit the terminal: numbers never wrap, and names are shortened from the left."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from litehouse.cli.console import stdout, table

GAP = 2  # between two columns
LEAST_NAME = 12
ELLIPSIS = "…"

Cell = str | Text


def show_fitted(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    right: Sequence[str] = (),
    cut: str | None = None,
    droppable: Sequence[str] = (),
) -> None:
    """Print a table whose first column holds names. Where there is no terminal, nothing is left out.

    Args:
        columns: The heads.
        rows: The cells.
        right: Columns that are aligned right.
        cut: The column of several words where the last ones are left out first.
        droppable: Columns that are left out where the names would have too little room, the first one first.
    """
    console = stdout()
    kept = list(range(len(columns)))
    cells = [list(row) for row in rows]
    if console.is_terminal:
        kept = _fit(columns, cells, console.width, cut, [columns.index(column) for column in droppable])
    shown = table(*(columns[index] for index in kept), right=right)
    for column in shown.columns:
        column.no_wrap = True
    for row in cells:
        shown.add_row(*(row[index] for index in kept))
    console.width = max(console.width, _width(columns, cells, kept))  # what is still too wide, the terminal may wrap
    console.print(shown)


def _fit(
    columns: Sequence[str], rows: list[list[Cell]], room: int, cut: str | None, droppable: Sequence[int]
) -> list[int]:
    """Shorten cells in place, and choose the columns to show."""
    kept = list(range(len(columns)))
    names = _column_width(columns, rows, 0)

    def left_for_names() -> int:
        return room - _width(columns, rows, kept) + names

    if cut is not None and left_for_names() < names:
        at = columns.index(cut)
        wanted = _column_width(columns, rows, at) + left_for_names() - min(names, 2 * LEAST_NAME)
        for row in rows:
            row[at] = shorten_end(str(row[at]), max(wanted, len(cut)))
    for index in droppable:
        if left_for_names() < min(names, LEAST_NAME):
            kept.remove(index)
    longest = max(left_for_names(), LEAST_NAME)
    for row in rows:
        row[0] = shorten_start(str(row[0]), longest)
    return kept


def shorten_start(text: str, width: int) -> str:
    """The end of a text, with an ellipsis in front where it is longer than this."""
    if cell_len(text) <= width:
        return text
    while cell_len(text) >= width:
        text = text[1:]
    return ELLIPSIS + text


def shorten_end(text: str, width: int) -> str:
    """The first words of a text, with an ellipsis behind where it is longer than this."""
    if cell_len(text) <= width:
        return text
    words = text.removesuffix(f" {ELLIPSIS}").split()
    while words and cell_len(" ".join([*words, ELLIPSIS])) > width:
        words.pop()
    return " ".join([*words, ELLIPSIS])


def _width(columns: Sequence[str], rows: Sequence[Sequence[Cell]], kept: Sequence[int]) -> int:
    return sum(_column_width(columns, rows, index) for index in kept) + GAP * len(kept)


def _column_width(columns: Sequence[str], rows: Sequence[Sequence[Cell]], index: int) -> int:
    return max(cell_len(str(text)) for text in (columns[index], *(row[index] for row in rows)))
