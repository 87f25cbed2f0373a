"""`litehouse cache`: what is kept on disk for the next start, and how to be rid of it."""

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from litehouse.cache import Cache, Entry, default_folder, is_limit_wrong, open_cache, trouble
from litehouse.cli.arguments import Debug
from litehouse.cli.console import CommandError, bytes_text, reporting, stdout, table
from litehouse.folders import names

Folder = Annotated[Path | None, typer.Option("--folder", help="Another folder than the user's own.")]

cache_app = typer.Typer(help="List or clear what is kept for the next start.", no_args_is_help=True)


@cache_app.command("list")
@reporting
def list_command(
    folder: Folder = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """List the models that are kept, the last used first."""
    cache = _cache(folder)
    entries = cache.entries()
    if as_json:
        rows = [{"what": _what(entry), "bytes": entry.nbytes, "used": entry.used, **_about(entry)} for entry in entries]
        typer.echo(json.dumps({"folder": str(cache.folder), "limit": cache.limit, "entries": rows}, indent=2))
        return
    shown = table("model", "kept", "size", "last used", right=("size",))
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        shown.add_row(_about(entry)["path"], _what(entry), bytes_text(entry.nbytes), used)
    console = stdout()
    if entries:
        console.print(shown)
    total = bytes_text(sum(entry.nbytes for entry in entries))
    console.print(f"{len(entries)} kept in {cache.folder}, {total} of {bytes_text(cache.limit)}", soft_wrap=True)


@cache_app.command("clear")
@reporting
def clear_command(
    model: Annotated[Path | None, typer.Argument(help="Remove what is kept of this model only.")] = None,
    folder: Folder = None,
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """Remove all that is kept, verdicts of `litehouse doctor` included, or what is kept of one model.

    A program that uses a model goes on undisturbed.
    """
    cache = _cache(folder)
    if model is not None:
        if not model.exists() and not any(_about(entry)["path"] == str(model) for entry in cache.entries()):
            raise CommandError(f"{model} is not there; `litehouse cache list` names the models that are kept")
        freed = cache.forget(str(model))
        stdout().print(f"freed {bytes_text(freed)} that was kept of {model}", soft_wrap=True)
        return
    if not cache.is_there() and names(cache.folder):
        raise CommandError(f"{cache.folder} holds no cache; nothing was removed, check the folder")
    try:
        freed = cache.clear()
    except OSError as error:
        raise CommandError(f"{cache.folder} cannot be cleared ({error.strerror}); check who may write there") from error
    stdout().print(f"freed {bytes_text(freed)} in {cache.folder}", soft_wrap=True)


def _cache(folder: Path | None) -> Cache:
    chosen = folder or default_folder()
    cache = None if chosen is None else open_cache(chosen)
    if cache is None:
        reason = trouble(chosen)
        advice = "" if is_limit_wrong() else "; name a folder with --folder"
        raise CommandError(f"the cache is not used: {reason}{advice}")
    return cache


def _about(entry: Entry) -> dict[str, Any]:
    choice = entry.facts.get("choice", {})
    return {"path": str(entry.facts.get("path", "")), "engine": choice.get("engine"), "reason": choice.get("reason")}


def _what(entry: Entry) -> str:
    engine = _about(entry)["engine"]
    return f"compiled for {engine}" if engine else str(entry.facts.get("what", "unknown"))
