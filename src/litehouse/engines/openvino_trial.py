"""What the probe runs in a child process: a convolution and a matrix product in one OpenVINO precision."""

import sys

import numpy as np
import openvino
import openvino.opset13 as ops


def main(hint: str) -> None:
    """Compile and run the small network; the process dies here if the machine cannot do it."""
    image = ops.parameter([1, 16, 32, 32], np.float32)
    kernel = ops.constant(np.full((32, 16, 3, 3), 0.01, np.float32))
    features = ops.convolution(image, kernel, [1, 1], [1, 1], [1, 1], [1, 1])
    rows = ops.reshape(features, np.array([1024, 32]), special_zero=False)
    result = ops.matmul(rows, ops.constant(np.full((32, 64), 0.01, np.float32)), False, False)
    network = openvino.Model([result], [image])
    compiled = openvino.Core().compile_model(network, "CPU", {"INFERENCE_PRECISION_HINT": hint})
    (output,) = compiled(np.ones((1, 16, 32, 32), np.float32)).values()
    if not np.isfinite(output).all():
        raise SystemExit("the result is not finite")


if __name__ == "__main__":
    main(sys.argv[1])
