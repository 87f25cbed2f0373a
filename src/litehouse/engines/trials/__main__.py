"""One trial: `python -m litehouse.engines.trials ENGINE PRECISION`. The process dies if the machine cannot do it."""

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from litehouse.engines.trials.cases import Case, float_cases, int8_cases
from litehouse.engines.trials.children import ABSENT, PASSED, WRONG, forbid_core_dump

HINTS = {"fp32": "f32", "int8": "f32", "fp16": "f16", "bf16": "bf16"}
TOLERANCE = {"fp32": 1e-4, "int8": 1e-4, "fp16": 1e-2, "bf16": 6e-2}  # as part of the largest expected number
THREADS = (1, 2)

Run = Callable[[Case, int], np.ndarray]


def main(engine: str, precision: str) -> None:
    """Run all cases. Those of fp32 are always among them: what makes a precision safe must leave fp32 safe."""
    forbid_core_dump()
    runs = {name: RUNNERS[engine](name) for name in (precision, "fp32")}
    cases = [(name, case) for name in runs for case in (int8_cases() if name == "int8" else float_cases())]
    refused: dict[str, Exception] = {}
    for threads in THREADS:
        for name, case in cases:
            try:
                actual = runs[name](case, threads)
            except Exception as error:  # noqa: BLE001  (whatever it raises can be caught, and so does no harm)
                refused[case.name] = error
                continue
            _check(case, threads, actual, TOLERANCE[name])
    if len(refused) == len({case.name for _, case in cases}):
        raise refused.popitem()[1]
    print(PASSED, *([f"but it cannot run {', '.join(refused)}"] if refused else []))


def _check(case: Case, threads: int, actual: np.ndarray, tolerance: float) -> None:
    error = float(np.abs(actual - case.expected).max()) if actual.shape == case.expected.shape else np.inf
    allowed = max(1.01 * case.step, tolerance * float(np.abs(case.expected).max()))
    if not error <= allowed:
        count = "1 thread" if threads == 1 else f"{threads} threads"
        print(f"{case.name} with {count} is off by {error:.3g}, where {allowed:.3g} is allowed")
        raise SystemExit(WRONG)


def _onnxruntime(_precision: str) -> Run:
    import onnxruntime

    def run(case: Case, threads: int) -> np.ndarray:
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = threads
        settings.log_severity_level = 4
        session = onnxruntime.InferenceSession(case.model, settings, providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, case.inputs)[0])

    return run


def _openvino(precision: str) -> Run:
    import openvino

    core = openvino.Core()
    # Settings under trial change the answer, so it is asked here, and not in the user's process.
    offered = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if precision.upper() not in offered:
        print(f"the CPU has no {precision} arithmetic that OpenVINO uses")
        raise SystemExit(ABSENT)

    def run(case: Case, threads: int) -> np.ndarray:
        settings: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "INFERENCE_PRECISION_HINT": HINTS[precision],
            "ENABLE_CPU_PINNING": False,
        }
        compiled = core.compile_model(core.read_model(case.model), "CPU", settings)
        return np.asarray(next(iter(compiled(case.inputs).values())))

    return run


RUNNERS: dict[str, Callable[[str], Run]] = {"onnxruntime": _onnxruntime, "openvino": _openvino}


if __name__ == "__main__":
    main(*sys.argv[1:])
