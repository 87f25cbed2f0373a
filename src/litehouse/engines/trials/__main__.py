"""One trial: `python -m litehouse.engines.trials ENGINE PRECISION`. The process dies if the machine cannot do it."""

import sys
from collections.abc import Callable

import numpy as np

from litehouse.engines.openvino import settings
from litehouse.engines.trials.cases import Case, float_cases, int8_cases
from litehouse.engines.trials.children import end, in_one_line, is_lack, restrict

TOLERANCE = {"fp32": 1e-4, "int8": 1e-4, "fp16": 1e-2, "bf16": 6e-2}  # as part of the largest expected number
THREADS = (1, 2)

Run = Callable[[Case, int], np.ndarray]


def main(engine: str, precision: str) -> None:
    """Run all cases. Those of fp32 are always among them: what makes a precision safe must leave fp32 safe."""
    restrict()
    try:
        refused = _refused(engine, precision)
    except Exception as error:
        if is_lack(error):
            end("unclear", f"something is missing ({in_one_line(error)})")
        raise
    end("passed", f"but it cannot run {', '.join(refused)}" if refused else "")


def _refused(engine: str, precision: str) -> dict[str, Exception]:
    """The cases that the engine cannot run, with its errors."""
    runs = {name: RUNNERS[engine](name) for name in (precision, "fp32")}
    cases = [(name, case) for name in runs for case in (int8_cases() if name == "int8" else float_cases())]
    refused: dict[str, Exception] = {}
    for threads in THREADS:
        for name, case in cases:
            try:
                actual = runs[name](case, threads)
            except Exception as error:
                if is_lack(error):
                    raise
                # Whatever it raises can be caught, and so does no harm.
                refused[case.name] = error
                continue
            _check(case, threads, actual, TOLERANCE[name])
    if len(refused) == len({case.name for _, case in cases}):
        raise refused.popitem()[1]
    return refused


def _check(case: Case, threads: int, actual: np.ndarray, tolerance: float) -> None:
    error = float(np.abs(actual - case.expected).max()) if actual.shape == case.expected.shape else np.inf
    allowed = max(1.01 * case.step, tolerance * float(np.abs(case.expected).max()))
    if not error <= allowed:
        count = "1 thread" if threads == 1 else f"{threads} threads"
        found = f"{case.name} with {count} is off by {error:.3g}, where {allowed:.3g} is allowed"
        end("broken", f"it computes wrong numbers: {found}")


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
        end("absent", f"the CPU has no {precision} arithmetic that OpenVINO uses")
    floats = "fp32" if precision == "int8" else precision

    def run(case: Case, threads: int) -> np.ndarray:
        compiled = core.compile_model(core.read_model(case.model), "CPU", settings(threads, floats))
        return np.asarray(next(iter(compiled(case.inputs).values())))

    return run


RUNNERS: dict[str, Callable[[str], Run]] = {"onnxruntime": _onnxruntime, "openvino": _openvino}


if __name__ == "__main__":
    main(*sys.argv[1:])
