"""What the tools that list supported operators share."""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def families(converters: Mapping[str, Any], counts: Mapping[str, int]) -> list[str]:
    """A section for each file of converters: its operators, and in how many stored files each occurs."""
    found: dict[str, list[str]] = {}
    for name, converter in converters.items():
        found.setdefault(converter.function.__module__.rpartition(".")[2], []).append(name)
    lines = []
    for family in sorted(found):
        lines.append(f"\n## {family.replace('_', ' ').capitalize()}\n")
        lines.append(", ".join(f"`{name}` {counts[name]}" for name in sorted(found[family])))
    return lines


def listed(names: Iterable[str]) -> str:
    """Names in order."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def write_or_check(target: Path, text: str) -> None:
    """Write the document; with `--check`, fail if it is out of date."""
    if "--check" not in sys.argv[1:]:
        target.write_text(text)
    elif target.read_text() != text:
        raise SystemExit(f"{target.name} is out of date; run {Path(sys.argv[0]).name}")
