"""Runs every benchmark: `python -m benchmarks`, or those named: `python -m benchmarks overhead`.

Options go to the one that is named: `python -m benchmarks suite --short`. `python -m benchmarks build` builds the
networks of the suite, and `python -m benchmarks peers` the environments of the real frameworks.
"""

import importlib
import sys
from collections.abc import Sequence

WITH_OPTIONS = (
    *("suite", "serving", "latency", "worker_memory", "swaps", "soak"),
    *("shared_memory", "updates", "mixtures", "ranks", "gpu"),
)
ALL = (*WITH_OPTIONS, "start", "overhead", "import_time", "load", "precision", "megengine")


def main(words: Sequence[str]) -> None:
    """Run them one after another."""
    first, rest = "".join(words[:1]), list(words[1:])
    if first in WITH_OPTIONS and (not rest or rest[0].startswith("-")):
        importlib.import_module(f"benchmarks.{first}").main(rest)
    elif first == "peers":
        from benchmarks.networks import peers

        peers.main(rest)
    elif list(words) == ["build"]:
        from benchmarks.networks import build

        build.main()
    else:
        if unknown := set(words) - set(ALL):
            raise SystemExit(f"there is no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(ALL)}")
        for name in words or ALL:
            importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main(sys.argv[1:])
