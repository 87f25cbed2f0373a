"""A process that does what it is told, a line of JSON at a time, and answers with one."""

import json
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any


class Asked:
    """A worker program that runs until the stack is left.

    Attributes:
        pid: Its process.
    """

    def __init__(self, stack: ExitStack, program: Path, *arguments: object) -> None:
        command = [sys.executable, str(program), *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(self._process.communicate)  # closes its input, which ends it
        self.pid = self._process.pid

    def ask(self, *command: Any) -> Any:
        """Let it do something, and wait for the answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the process that was to {command[0]} has ended")
        return json.loads(line)
