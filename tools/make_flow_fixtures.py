"""Make the fixtures of control flow and state under ``tests/fixtures/flow`` with the real MindSpore.

Run with a Python that has MindSpore 2.10 installed::

    python tools/make_flow_fixtures.py             # everything
    python tools/make_flow_fixtures.py loop cache  # cases whose names contain one of these

Every case is exported, loaded again, and called several times in a row with different inputs, so that all its ways
are taken and its state is seen to change. ``NAME.npz`` holds ``input_CALL_INDEX`` and ``output_CALL_INDEX``. A case
that MindSpore cannot export or run is listed in ``SKIPPED.md`` with the reason.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

TOOLS = Path(__file__).resolve().parent
FIXTURES = TOOLS.parent / "tests" / "fixtures" / "flow"


def make(name: str, folder: Path) -> str:
    """Make one case. The reason where MindSpore cannot; empty where it can."""
    import flow_cases
    import mindspore
    from mindspore import nn

    build, calls = flow_cases.CASES[name]
    tensors = [[mindspore.Tensor(array) for array in call] for call in calls]
    try:
        shapes = flow_cases.DYNAMIC.get(name)
        example = tensors[0] if shapes is None else [mindspore.Tensor(shape=s, dtype=d) for s, d in shapes]
        mindspore.export(build(), *example, file_name=str(folder / name), file_format="MINDIR")
        network = nn.GraphCell(mindspore.load(str(folder / f"{name}.mindir")))
        stored: dict[str, Any] = {}
        for number, call in enumerate(tensors):
            if shapes is not None:  # a loaded network with control flow takes inputs of one size only
                network = nn.GraphCell(mindspore.load(str(folder / f"{name}.mindir")))
            results = network(*call)
            results = results if isinstance(results, tuple | list) else (results,)
            stored |= {f"input_{number}_{index}": array for index, array in enumerate(calls[number])}
            stored |= {f"output_{number}_{index}": np.asarray(r) for index, r in enumerate(flat(results))}
    except Exception as error:  # noqa: BLE001  (whatever MindSpore raises is the reason)
        (folder / f"{name}.mindir").unlink(missing_ok=True)
        return " ".join(str(error).split())[:160] or type(error).__name__
    np.savez_compressed(folder / f"{name}.npz", **stored)
    return ""


def flat(results: Any) -> list[Any]:
    found: list[Any] = []
    for result in results:
        if isinstance(result, tuple | list):
            found += flat(result)
        else:
            found.append(result.asnumpy() if hasattr(result, "asnumpy") else result)
    return found


def main() -> None:
    sys.path.insert(0, str(TOOLS))
    import flow_cases
    import mindspore

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    wanted = [name for name in flow_cases.CASES if not sys.argv[1:] or any(text in name for text in sys.argv[1:])]
    FIXTURES.mkdir(parents=True, exist_ok=True)
    skipped = {}
    for name in wanted:
        with tempfile.TemporaryDirectory() as folder:
            reason = make(name, Path(folder))
            if reason:
                skipped[name] = reason
                continue
            for suffix in (".mindir", ".npz"):
                made = Path(folder) / f"{name}{suffix}"
                (FIXTURES / made.name).write_bytes(made.read_bytes())
        print(name, flush=True)
    for name, reason in skipped.items():
        print(f"SKIPPED {name}: {reason}", flush=True)
    if not sys.argv[1:]:
        lines = [f"- `{name}`: {reason}" for name, reason in skipped.items()]
        (FIXTURES / "SKIPPED.md").write_text(
            "# Cases that MindSpore 2.10 cannot export or run\n\n" + "\n".join(lines) + "\n"
        )


if __name__ == "__main__":
    main()
