"""Make the fixtures of MindIR's first version under ``tests/fixtures/mindir20`` with the real MindSpore 2.0.

Run with a Python 3.9 that has MindSpore 2.0 installed::

    python tools/make_mindir20_fixtures.py                 # everything
    python tools/make_mindir20_fixtures.py --only resize_  # cases whose names contain "resize_"

In these files the parameters of an operator are attributes of its primitive; MindSpore 2.10 writes them as operands.
The cases are made in a child process: where MindSpore dies on one, it goes to ``SKIPPED.md`` and a new child goes on.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

TOOLS = Path(__file__).resolve().parent
FIXTURES = TOOLS.parent / "tests" / "fixtures" / "mindir20"
FAMILIES = ("layers", "functions", "networks")
ARGUMENTS = ("x", "y", "z", "w")

PREAMBLE = """\
import mindspore as ms
from mindspore import nn, ops
from mindspore import dtype as mstype
from mindspore import numpy as mnp
from mindspore.ops import operations as P
"""

CELL = """

class {cls}(nn.Cell):
    def __init__(self, members):
        super().__init__()
        for key, value in members.items():
            setattr(self, key, value)

    def construct(self, {arguments}):
{body}
"""


def load_module(name: str, file: Path) -> Any:
    """A module under a short name: MindSpore repeats the module's name in every name of the exported file."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def table() -> list[Any]:
    """All cases."""
    sys.path.insert(0, str(TOOLS))
    cases = []
    for family in FAMILIES:
        cases += load_module(family, TOOLS / "mindir20_fixtures" / f"{family}.py").cases()
    names = [item.name for item in cases]
    repeated = {name for name in names if names.count(name) > 1}
    if repeated:
        raise SystemExit(f"case names occur twice: {sorted(repeated)}. Rename them.")
    return cases


def build_cells(cases: Iterable[Any], folder: Path) -> Callable[[Any], Any]:
    """Write the source of the text cases (MindSpore parses source files). Returns a function from case to cell."""
    parts = [PREAMBLE]
    for item in cases:
        if isinstance(item.network, str):
            text = item.network
            body = textwrap.dedent(text).strip() if "return " in text else f"return {text.strip()}"
            arguments = ", ".join(ARGUMENTS[: len(item.inputs)])
            body = textwrap.indent(body, " " * 8)
            parts.append(CELL.format(cls=item.name.title().replace("_", ""), arguments=arguments, body=body))
    file = folder / "cases.py"
    file.write_text("".join(parts))
    module = load_module("cases", file)

    def build(item: Any) -> Any:
        if isinstance(item.network, str):
            return getattr(module, item.name.title().replace("_", ""))(item.members)
        return item.network

    return build


def prepare(item: Any, cell: Any, rng: Any) -> None:
    """Give every weight non-trivial values, and the cell the float type that the case asks for."""
    import mindspore as ms
    import numpy as np

    for weight in cell.get_parameters():
        if weight.name.startswith("kept") or weight.dtype != ms.float32:
            continue
        if "variance" in weight.name:
            array = rng.uniform(0.5, 1.5, weight.shape)
        else:
            fan_in = int(np.prod(weight.shape[1:])) if len(weight.shape) > 1 else 4
            array = rng.standard_normal(weight.shape) / np.sqrt(max(fan_in, 1))
        weight.set_data(ms.Tensor(array.astype(np.float32)))
        if item.dtype is not None:
            weight.set_dtype(getattr(ms, item.dtype))
    if item.dtype is not None:
        cell.to_float(getattr(ms, item.dtype))
    cell.set_train(False)


def flatten(value: Any) -> list[Any]:
    """Outputs depth-first, as arrays."""
    import mindspore as ms
    import numpy as np

    if isinstance(value, (tuple, list)):
        return [array for item in value for array in flatten(item)]
    return [value.asnumpy().copy() if isinstance(value, ms.Tensor) else np.asarray(value)]


def make(item: Any, cell: Any, folder: Path) -> None:
    """Export one case, run it (one that keeps state twice), store the pair of files."""
    import mindspore as ms
    import numpy as np
    from mindir_fixtures.table import Draw

    rng = np.random.default_rng(zlib.crc32(item.name.encode()))
    arrays = [entry(rng) if isinstance(entry, Draw) else entry for entry in item.inputs]
    prepare(item, cell, rng)
    path = folder / f"{item.name}.mindir"
    path.unlink(missing_ok=True)
    tensors = [ms.Tensor(array) for array in arrays]
    if item.shapes is not None:
        tensors = [
            ms.Tensor(shape=list(shape), dtype=tensor.dtype)
            for shape, tensor in zip(item.shapes, tensors)  # noqa: B905
        ]
    ms.export(cell, *tensors, file_name=str(path), file_format="MINDIR")
    path.chmod(0o644)
    outputs = flatten(cell(*[ms.Tensor(array.copy()) for array in arrays]))
    named = {f"input_{k}": array for k, array in enumerate(arrays)}
    named.update({f"output_{k}": array for k, array in enumerate(outputs)})
    if item.name.startswith("state_"):
        again = flatten(cell(*[ms.Tensor(array.copy()) for array in arrays]))
        named.update({f"again_{k}": array for k, array in enumerate(again)})
    np.savez_compressed(folder / f"{item.name}.npz", **named)


def first_line(error: BaseException) -> str:
    """The first telling line of MindSpore's long error texts, without paths of the machine."""
    lines = [line.strip() for line in str(error).splitlines()]
    telling = [line for line in lines if line and not set(line) <= set("-=*# ") and not line.startswith("- ")]
    text = telling[0] if telling else ""
    text = re.sub(r"0x[0-9a-f]+", "0x..", re.sub(r"(/[\w.+-]+)+/", "", text))
    return f"{type(error).__name__}: {text}"[:240]


def work(arguments: argparse.Namespace) -> None:
    """The child process: one JSON line before and one after each case, so that a crash can be placed."""
    import mindspore as ms

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    done = set(json.loads(arguments.skip))
    cases = [item for item in table() if arguments.only in item.name and item.name not in done]
    build = build_cells(cases, Path.cwd())
    with arguments.worker.open("a") as log:
        for item in cases:
            print(json.dumps({"start": item.name}), file=log, flush=True)
            result = {"name": item.name}
            try:
                make(item, build(item), arguments.out)
            except Exception as error:  # noqa: BLE001 - MindSpore raises any type
                result["error"] = first_line(error)
            print(json.dumps(result), file=log, flush=True)


def run_children(arguments: argparse.Namespace) -> list[dict[str, str]]:
    """Run child processes until every case has a result."""
    with tempfile.TemporaryDirectory() as folder:
        report, log = Path(folder) / "report.jsonl", Path(folder) / "log.txt"
        report.touch()
        environment = {**os.environ, "GLOG_v": "3", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "2"}
        while True:
            entries = [json.loads(line) for line in report.read_text().splitlines()]
            results = [entry for entry in entries if "name" in entry]
            command = [sys.executable, str(Path(__file__).resolve()), "--worker", str(report), "--only", arguments.only]
            command += ["--out", str(arguments.out.resolve()), "--skip", json.dumps([e["name"] for e in results])]
            with log.open("wb") as stream:
                code = subprocess.run(command, cwd=folder, env=environment, stdout=stream, stderr=stream).returncode
            entries = [json.loads(line) for line in report.read_text().splitlines()]
            if not entries or "start" not in entries[-1]:
                if code:
                    raise SystemExit(f"the child process failed:\n{log.read_text(errors='replace')[-3000:]}")
                return [entry for entry in entries if "name" in entry]
            with report.open("a") as stream:
                died = {"name": entries[-1]["start"], "error": f"MindSpore died (exit {code})"}
                print(json.dumps(died), file=stream)


def write_skipped(out: Path, results: list[dict[str, str]]) -> None:
    """Drop the files of failed cases, and list them."""
    rows = []
    for entry in results:
        if "error" in entry:
            for suffix in (".mindir", ".npz"):
                (out / (entry["name"] + suffix)).unlink(missing_ok=True)
            rows.append(f"| {entry['name']} | {entry['error'].replace('|', '/').replace('<', '&lt;')} |")
    text = ["<!-- Written by tools/make_mindir20_fixtures.py. -->", ""]
    text += ["## Cases that MindSpore 2.0 on CPU cannot export or run", "", "| case | reason |", "|---|---|", *rows]
    (out / "SKIPPED.md").write_text("\n".join(text) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="make only cases whose name contains this text")
    parser.add_argument("--out", type=Path, default=FIXTURES, help="folder of the fixtures")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--skip", default="[]", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(arguments)
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    results = run_children(arguments)
    if not arguments.only:
        write_skipped(arguments.out, results)
    failed = [entry for entry in results if "error" in entry]
    print(f"{len(results) - len(failed)} made, {len(failed)} skipped")
    for entry in failed:
        print(f"  skipped {entry['name']}: {entry['error']}")


if __name__ == "__main__":
    main()
