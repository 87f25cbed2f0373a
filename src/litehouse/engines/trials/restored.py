"""Opens a compiled model that was saved, in a child process, before this one trusts it."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

import numpy as np

from litehouse.engines.base import Names
from litehouse.engines.choice import Choice
from litehouse.engines.parts import restore
from litehouse.engines.trials.children import end, restrict, run_children
from litehouse.options import Options

ASKED, ANSWERED, WHAT = "asked.npz", "answered.npz", "asked.json"
SETTINGS = ("device", "threads", "inter_op", "workers", "affinity")  # of the options, what an engine looks at


def outputs_of(
    folder: Path, choice: Choice, names: Names, options: Options, samples: Sequence[np.ndarray]
) -> list[np.ndarray] | None:
    """What a saved model gives for these inputs; None where it kills its process, fails, or takes too long.

    None also where that is text, which only pickles could carry.
    """
    settings = {name: getattr(options, name) for name in SETTINGS}
    (folder / WHAT).write_text(json.dumps([choice.facts(), asdict(names), settings]))
    np.savez(folder / ASKED, *samples)
    try:
        (outcome,) = run_children([(("-m", __name__, str(folder)), os.environ)])
        if outcome.kind != "passed":
            return None
        with open(folder / ANSWERED, "rb") as file, np.load(file) as answered:
            return list(answered.values())
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
        return None
    finally:
        for name in (ASKED, ANSWERED, WHAT):
            (folder / name).unlink(missing_ok=True)


def main(folder: Path) -> None:
    """Open the model, run it, and write what it gives."""
    from litehouse.engines.select import ENGINES

    restrict()
    facts, named, settings = json.loads((folder / WHAT).read_text())
    choice = Choice.of(facts)
    affinity = settings.pop("affinity")
    options = Options(**settings, affinity=affinity if isinstance(affinity, str) else tuple(affinity))
    names = Names(**{field.name: named[field.name] for field in fields(Names)})
    with np.load(folder / ASKED) as asked:
        samples = list(asked.values())
    program = restore(ENGINES[choice], folder, names, options, choice.precision, choice.parts)
    np.savez(folder / ANSWERED, *program.bind().run(samples))
    end("passed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
