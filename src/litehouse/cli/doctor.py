"""`litehouse doctor`: what this machine has, which engines are safe on it, and what that means.

`--json` prints one document:

    schema     1; a later number means that a key changed its meaning
    usable     whether at least one engine can run models
    litehouse  its version
    python     its version
    machine    {cpu, cores, threads, threads_from}: how many threads a model gets, and what sets that
    engines    [{engine, version: null | text, precision, safe, reason, environment: {name: value}, meaning}]
    gpus       [{device, name, bytes}]: those that torch can use
    no_gpu     null, or why there are none
    extras     [{name, version: null | text, meaning}]
    cache      {folder: null | text, trouble: null | text, bytes, entries, limit: null | bytes,
                kernels: null | text: why they are not kept}
    rehearsed  null, or the value of LITEHOUSE_FAIL_PROBES
"""

import json
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from litehouse._version import __version__
from litehouse.cli.arguments import Debug
from litehouse.cli.console import bytes_text, reporting, stdout, table, working

SCHEMA = 1
# What becomes of models where an engine may not compute in a precision.
MEANINGS = {
    "fp32": "no model runs on it",
    "int8": "quantised models do not run on it",
    "fp16": "models that allow 16 bits do not use it",
    "bf16": "models that allow 16 bits do not use it",
}


@reporting
def doctor_command(
    again: Annotated[bool, typer.Option("--again", help="Try the engines anew, whatever is known of them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    debug: Debug = False,  # noqa: ARG001  (for @reporting)
) -> None:
    """Tell which engines are safe on this machine. The exit code is 1 when none can run models."""
    with working("Trying the engines"):
        report = examine(again)
    if as_json:
        typer.echo(json.dumps(report, indent=2))
    else:
        _show(report)
    if not report["usable"]:
        raise typer.Exit(1)


def examine(again: bool = False) -> dict[str, Any]:
    """The JSON document; see the module's text."""
    engines = _engines(again)
    usable = any(engine["safe"] for engine in engines if engine["precision"] == "fp32")
    return {
        "schema": SCHEMA,
        "usable": usable,
        "litehouse": __version__,
        "python": platform.python_version(),
        "machine": _machine(),
        "engines": engines,
        **_gpus(),
        "extras": _extras(),
        "cache": _cache(),
        "rehearsed": os.environ.get("LITEHOUSE_FAIL_PROBES") or None,
    }


def _machine() -> dict[str, Any]:
    from litehouse.cores.budget import thread_budget
    from litehouse.machine import cpu_name

    cores, allowed, threads = os.cpu_count() or 1, len(os.sched_getaffinity(0)), thread_budget()
    cause = "all cores"
    if threads < allowed:
        cause = "the CPU quota of the cgroup"
    elif allowed < cores:
        cause = "the CPU affinity of the process"
    return {"cpu": cpu_name(), "cores": cores, "threads": threads, "threads_from": cause}


def _engines(again: bool) -> list[dict[str, Any]]:
    from litehouse.engines.safety import PRECISIONS, engine_version, verdicts

    pairs = [(engine, precision) for engine, precisions in PRECISIONS.items() for precision in precisions]
    return [
        {
            "engine": verdict.engine,
            "version": engine_version(verdict.engine),
            "precision": verdict.precision,
            "safe": verdict.safe,
            "reason": verdict.reason,
            "environment": verdict.environment,
            "meaning": "" if verdict.safe else MEANINGS[verdict.precision],
        }
        for verdict in verdicts(pairs, again=again)
    ]


def _gpus() -> dict[str, Any]:
    """The GPUs that torch can use, or why there are none."""
    from litehouse.device import about, device_count, lack

    found = [(f"gpu:{index}", *about(f"gpu:{index}")) for index in range(device_count("gpu"))]
    shown = [{"device": device, "name": name, "bytes": nbytes} for device, name, nbytes in found]
    return {"gpus": shown, "no_gpu": None if shown else lack("gpu")}


def _extras() -> list[dict[str, Any]]:
    """Packages that Litehouse can do without, and what they are for."""
    absent = {
        "torch": "the extras gpu and distributed bring it",
        "onnxruntime-gpu": "it takes the place of onnxruntime for NVIDIA GPUs",
        "onnxruntime-cann": "it takes the place of onnxruntime for Ascend",
    }
    found = {name: _version(name) for name in absent}
    return [
        {"name": name, "version": version, "meaning": "" if version else absent[name]}
        for name, version in found.items()
    ]


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cache() -> dict[str, Any]:
    from litehouse.cache import BYTES_VARIABLE, default_folder, open_cache, trouble

    folder, found = default_folder(), open_cache()
    reason = trouble(folder)
    if found is not None:
        reason = _write_trouble(found.folder) if found.limit else f"{BYTES_VARIABLE} is 0"
    return {
        "folder": None if folder is None else str(folder),
        "trouble": reason,
        "bytes": 0 if found is None else found.nbytes(),
        "entries": 0 if found is None else len(found.entries()),
        "limit": None if found is None else found.limit,
        "kernels": None if found is None else found.kernels_trouble(),
    }


def _write_trouble(folder: Path) -> str | None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return None
    except OSError as error:
        return f"nothing can be written there ({error.strerror})"


# The page that people read --------------------------------------------------------------------------------------------


def _show(report: Mapping[str, Any]) -> None:
    machine, console = report["machine"], stdout()
    for title, content in (
        ("Machine", _pairs(_machine_lines(report, machine))),
        ("Engines", _verdicts(report["engines"])),
        ("GPU", _pairs(_gpu_lines(report))),
        ("Extras", _pairs([(extra["name"], _extra_line(extra)) for extra in report["extras"]])),
        ("Cache", _pairs(_cache_lines(report["cache"]))),
    ):
        console.print(Group(Text(title, style="bold cyan"), Padding(content, (0, 0, 1, 2), expand=False)))
    if report["rehearsed"]:
        console.print(f"Failures are rehearsed: LITEHOUSE_FAIL_PROBES={report['rehearsed']}", style="yellow")
    if report["usable"]:
        return
    console.print("No engine can run models on this machine; the table says why.", style="bold red", soft_wrap=True)


def _machine_lines(report: Mapping[str, Any], machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("CPU", machine["cpu"]),
        ("cores", str(machine["cores"])),
        ("threads", f"{machine['threads']} ({machine['threads_from']})"),
        ("Python", report["python"]),
        ("litehouse", report["litehouse"]),
    ]


def _pairs(rows: Sequence[tuple[str, str]]) -> RenderableType:
    shown = table("name", "text")
    shown.show_header = False
    for name, text in rows:
        shown.add_row(Text(name, style="dim"), text)
    return shown


def _verdicts(engines: Sequence[Mapping[str, Any]]) -> RenderableType:
    shown = table("engine", "precision", "verdict", "why")
    for item in engines:
        name = item["version"] or f"{item['engine']} (not installed)"
        settings = " ".join(f"{name}={value}" for name, value in item["environment"].items())
        if not item["safe"]:
            verdict, why = Text("not used", style="yellow"), f"{item['reason']}; {item['meaning']}"
        elif settings:
            verdict, why = Text("safe with a setting", style="green"), f"{settings}; without it, {item['reason']}"
        else:
            verdict, why = Text("safe", style="green"), item["reason"]
        shown.add_row(name, item["precision"], verdict, why)
    return shown


def _gpu_lines(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    if report["no_gpu"]:
        return [("none", report["no_gpu"])]
    return [
        (gpu["device"], gpu["name"] + (f", {bytes_text(gpu['bytes'])}" if gpu["bytes"] else ""))
        for gpu in report["gpus"]
    ]


def _extra_line(extra: Mapping[str, Any]) -> str:
    return extra["version"] or f"not installed; {extra['meaning']}"


def _cache_lines(cache: Mapping[str, Any]) -> list[tuple[str, str]]:
    which = "models" if cache["limit"] is None else "models that are not there yet"
    trouble = f"{cache['trouble']}; {which} are built anew at every start"
    lines = [("folder", cache["folder"] or "none"), ("state", trouble if cache["trouble"] else "in use")]
    if cache["limit"] is not None:
        size = f"{bytes_text(cache['bytes'])}, {cache['entries']} kept; {bytes_text(cache['limit'])} at most"
        lines.append(("size", size))
    if cache["kernels"]:
        lines.append(("kernels", f"{cache['kernels']}; those of a GPU are made anew at every start"))
    return lines
