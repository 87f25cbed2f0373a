"""Runs every benchmark: `python -m benchmarks`, or those named: `python -m benchmarks overhead`."""

import importlib
import sys

ALL = ("overhead", "import_time", "load", "megengine")


def main() -> None:
    """Run them one after another."""
    for name in sys.argv[1:] or ALL:
        if name not in ALL:
            raise SystemExit(f"there is no benchmark {name!r}; there are: {', '.join(ALL)}")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
