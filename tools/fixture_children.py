"""Watches the child processes that make fixtures: a framework may die of a case, or never answer."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

CASE_SECONDS = 60


def read_report(report: Path) -> tuple[list[dict[str, Any]], str | None]:
    """Results so far, and the case that was begun and not finished."""
    results: list[dict[str, Any]] = []
    begun: str | None = None
    for line in report.read_text().splitlines() if report.exists() else []:
        entry = json.loads(line)
        if "start" in entry:
            begun = entry["start"]
        else:
            results.append(entry)
            begun = None
    return results, begun


def watch(process: subprocess.Popen[bytes], report: Path) -> bool:
    """Wait for the child; kill it and answer False when one case takes too long."""
    last, since = -1, time.monotonic()
    while process.poll() is None:
        time.sleep(0.1)
        size = report.stat().st_size if report.exists() else 0
        if size != last:
            last, since = size, time.monotonic()
        elif time.monotonic() - since > CASE_SECONDS:
            process.kill()
            process.wait()
            return False
    return True
