"""One rank in a process of its own, for tests: says what happens, a line of JSON each.

Its argument is JSON: the `paths` of the models that it loads one after the other, the fields of its `job`, and how
often it runs each (`runs`; null for as long as it can); `options` are further ones for `litehouse.load`. Errors are
told, and the process goes on. It may have to import modules (`imports`) before it says that it has started, and to wait
for a line then (`waits`).
"""

from __future__ import annotations

import importlib
import json
import sys
from typing import Any

import numpy as np

import litehouse
from litehouse.distributed.transports import open_mail

ONNX_RUNTIME = {"engine": "onnxruntime"}


def tell(what: str, **facts: Any) -> None:
    print(json.dumps({"what": what, **facts}), flush=True)


def work(path: str, job: dict[str, Any], runs: int | None, later: float | None, options: dict[str, Any]) -> None:
    with litehouse.load(path, threads=1, job=litehouse.Job(**job), **options) as session:
        if later is not None:  # it has begun, however long that took
            open_mail(litehouse.find_place(litehouse.Job(**job)), litehouse.Job(**{**job, "timeout": later}))
        inputs = [np.ones([*map(int, info.shape)], info.dtype) for info in session.inputs]
        tell("loaded")
        count = 0
        while runs is None or count < runs:
            results = session.run(inputs)
            if count == 0:
                tell("ran", results=[float(np.sum(array, dtype=np.float64)) for array in results])
            count += 1


def main() -> None:
    order = json.loads(sys.argv[1])
    for name in order.get("imports", ()):
        importlib.import_module(name)
    tell("started")
    if order.get("waits"):
        sys.stdin.readline()
    for path in order["paths"]:
        try:
            work(path, order["job"], order["runs"], order.get("later"), order.get("options", ONNX_RUNTIME))
            tell("done")
        except litehouse.LitehouseError as error:
            rank, op = getattr(error, "rank", None), getattr(error, "op", "")
            tell("failed", kind=type(error).__name__, rank=rank, op=op, text=str(error))
    if order.get("whole"):  # the process is as usable as before
        with litehouse.load(order["whole"], threads=1, engine="onnxruntime") as session:
            (result,) = session.run([np.ones([*map(int, info.shape)], info.dtype) for info in session.inputs])
            tell("usable", result=float(result.sum()))


main()
