"""Runs every benchmark: `python -m benchmarks`, or those named: `python -m benchmarks overhead`.

`python -m benchmarks suite` takes arguments of its own; `python -m benchmarks build` builds the networks of the suite,
and `python -m benchmarks peers` the environments of the real frameworks.
"""

import importlib
import sys

ALL = ("suite", "start", "overhead", "import_time", "load", "precision", "megengine")


def main() -> None:
    """Run them one after another."""
    names = sys.argv[1:]
    if names[:1] == ["suite"]:
        from benchmarks import suite

        suite.main(names[1:])
    elif names[:1] == ["peers"]:
        from benchmarks.networks import peers

        peers.main(names[1:])
    elif names == ["build"]:
        from benchmarks.networks import build

        build.main()
    else:
        if unknown := set(names) - set(ALL):
            raise SystemExit(f"there is no benchmark {', '.join(sorted(unknown))}; there are: {', '.join(ALL)}")
        for name in names or ALL:
            importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
