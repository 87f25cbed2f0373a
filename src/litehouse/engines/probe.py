"""Tries an engine's setting in a child process first, since a native library can kill the process that it is in.

Real case: a virtual machine whose CPU announces AMX but has no tile palette. OpenVINO in bfloat16 dies there (SIGILL).
"""

from __future__ import annotations

import functools
import subprocess
import sys

TIMEOUT = 60.0  # seconds, for a second's work


@functools.cache
def survives(module: str, *arguments: str) -> bool:
    """Whether `python -m module arguments` ends well. Asked once per process."""
    command = [sys.executable, "-P", "-m", module, *arguments]  # -P: no modules from the current folder
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
