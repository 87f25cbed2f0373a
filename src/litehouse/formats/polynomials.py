"""Coefficients of functions that ONNX lacks, the highest power first."""

# log(erfc(x) / t) + x * x by t = 1 / (1 + x / 2), for x up to 9.5, where erfc leaves float32; to 6e-9.
ERFC = (
    -0.149288612,
    1.01676638,
    -2.90740976,
    4.42309475,
    -3.73588854,
    1.78919209,
    -0.766024593,
    0.241523639,
    0.351640625,
    1.00197921,
    -1.26558519,
)
