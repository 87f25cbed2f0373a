"""What `import mindspore_lite` costs beyond numpy, in fresh processes run in turn."""

import statistics
import subprocess
import sys

from benchmarks.harness import Result, report

ROUNDS = 9
PROGRAM = "import numpy, time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"
CONTENDERS = {name: f"import {name}" for name in ("sys", "mindspore_lite", "litehouse", "onnxruntime")}


def main() -> None:
    """Measure the imports with numpy already there; the ratio is to importing ONNX Runtime."""
    times: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    for _ in range(ROUNDS):
        for name, statement in CONTENDERS.items():
            command = [sys.executable, "-c", PROGRAM.format(statement)]
            times[name].append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    baseline = times.pop("onnxruntime")
    results = [Result("onnxruntime", statistics.median(baseline) * 1e6, 1.0, 1.0, 1.0)]
    for name, own in times.items():
        ratios = sorted(mine / theirs for mine, theirs in zip(own, baseline, strict=True))
        results.append(Result(name, statistics.median(own) * 1e6, statistics.median(ratios), ratios[0], ratios[-1]))
    report("import time", results)


if __name__ == "__main__":
    main()
