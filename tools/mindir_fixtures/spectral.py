"""Complex numbers inside networks, Fourier transforms, windows."""

from mindir_fixtures.table import Case, case, f32, f64, values

PARTS = "return ops.real(a), ops.imag(a)"


def cases() -> list[Case]:
    return [*windows(), *complexes(), *transforms()]


def windows() -> list[Case]:
    return [
        case("window_bartlett", "ops.bartlett_window(ms.Tensor(7)) * x", f32(7)),
        case("window_bartlett_symmetric", "ops.bartlett_window(ms.Tensor(6), periodic=False) * x", f32(6)),
        case("window_blackman", "ops.blackman_window(ms.Tensor(8), periodic=False) * x", f32(8)),
        case("window_hamming", "ops.hamming_window(9) * x", f32(9)),
        case("window_bartlett_input", "P.BartlettWindow()(x)", values(7, "int32")),
        case("window_blackman_input", "P.BlackmanWindow()(x)", values(7, "int32")),
        case("window_hamming_input", "P.HammingWindow()(x)", values([7], "int32")),
        case("window_correlate", "G.Correlate('full')(x, y)", f32(6), f32(3)),
        case("window_correlate_same", "G.Correlate('same')(x, y)", f32(6), f32(3)),
        case("window_correlate_same_even", "G.Correlate('same')(x, y)", f32(7), f32(4)),
        case("window_correlate_valid", "G.Correlate('valid')(x, y)", f32(3), f32(6)),
        case("fft_shift", "ops.fftshift(x)", f32(3, 4)),
        case("fft_shift_odd", "ops.fftshift(x, 1)", f32(3, 5)),
        case("fft_shift_back", "ops.ifftshift(x, 1)", f32(3, 5)),
        case("fft_freq", "ops.fftfreq(6, 0.5) * x", f32(6)),
        case("fft_freq_real", "ops.rfftfreq(6, 0.5) * x", f32(4)),
    ]


def complexes() -> list[Case]:
    pair = f32(3, 4), f32(3, 4)
    made = "a = G.Complex()(x, y)\n"
    moved = "b = a.transpose(1, 0).reshape(2, 6)[:, 1:4]\nc = ops.concat((b, b), 1)\nreturn ops.real(c), ops.imag(c)"
    return [
        case("complex_abs", made + "return P.ComplexAbs()(a)", *pair),
        case("complex_abs_real", made + "return ops.real(ops.abs(a) * 2 + 1)", *pair),
        case("complex_product", "a = G.Complex()(x, y) * G.Complex()(y, x)\n" + PARTS, *pair),
        case("complex_quotient", "a = G.Complex()(x, y) / G.Complex()(y, x)\n" + PARTS, *pair),
        case("complex_sum", "a = G.Complex()(x, y) + x - G.Complex()(y, x) * 2.0\n" + PARTS, *pair),
        case("complex_matmul", "a = ops.matmul(G.Complex()(x, y), G.Complex()(y, x).T)\n" + PARTS, *pair),
        case("complex_exp", "a = ops.exp(G.Complex()(x, y))\n" + PARTS, *pair),
        case("complex_angle", made + "return ops.angle(a)", *pair),
        case("complex_conj", made + "return ops.imag(ops.conj(a))", *pair),
        case("complex_real_of_real", "ops.real(x) + ops.imag(x)", f32(3, 4)),
        case("complex_polar", "a = ops.polar(x, y)\n" + PARTS, f32(3, low=0, high=2), f32(3)),
        case("complex_moved", made + moved, *pair),
        case("complex_reduced", "a = G.Complex()(x, y).sum(1)\n" + PARTS, *pair),
        case("complex_cast", "a = ops.cast(x, mstype.complex64) * G.Complex()(y, y)\n" + PARTS, *pair),
    ]


def transforms() -> list[Case]:
    line, plane = f32(2, 8), f32(2, 4, 6)
    result = [
        case(f"fft_rfft_{norm}", f"a = ops.rfft(x, {size}, {axis}, '{norm}')\n{PARTS}", line)
        for norm, size, axis in (("backward", 6, 1), ("ortho", 7, -1), ("forward", 11, 1))
    ]
    return [
        *result,
        case("fft_fft", "a = ops.fft(x)\n" + PARTS, f32(2, 7)),
        case("fft_fft_axis", "a = ops.fft(x, 5, 0, 'ortho')\n" + PARTS, f32(4, 3)),
        case("fft_ifft", "a = ops.ifft(G.Complex()(x, y))\n" + PARTS, line, line),
        case("fft_ifft_forward", "a = ops.ifft(G.Complex()(x, y), 6, 1, 'forward')\n" + PARTS, line, line),
        case("fft_round_trip", "ops.irfft(ops.rfft(x))", line),
        case("fft_round_trip_odd", "ops.irfft(ops.rfft(x), 7)", f32(2, 7)),
        case("fft_irfft_cut", "ops.irfft(G.Complex()(x, y), 6, 1, 'ortho')", f32(2, 5), f32(2, 5)),
        case("fft_convolution", "ops.irfft(ops.rfft(x) * ops.rfft(y))", line, line),
        case("fft_fft2", "a = ops.fft2(x)\n" + PARTS, plane),
        case("fft_rfft2_round_trip", "ops.irfft2(ops.rfft2(x))", plane),
        case("fft_rfftn", "a = ops.rfftn(x)\n" + PARTS, plane),
        case("fft_irfftn", "ops.irfftn(G.Complex()(x, y), (4, 5), (0, 2))", plane, plane),
        case("fft_fftn", "a = ops.fftn(x, (3, 4), (0, 1))\n" + PARTS, plane),
        case("fft_ifftn", "a = ops.ifftn(G.Complex()(x, y))\n" + PARTS, plane, plane),
        case("fft_hfft", "ops.hfft(x)", f32(2, 5)),
        case("fft_hfft_ortho", "ops.hfft(G.Complex()(x, y), 7, 1, 'ortho')", f32(2, 5), f32(2, 5)),
        case("fft_ihfft", "a = ops.ihfft(x)\n" + PARTS, line),
        case("fft_float64", "a = ops.rfft(x)\n" + PARTS, f64(2, 6)),
        case("fft_stft", "ops.stft(x, 8, 4, 8, y, center=False, return_complex=False)", f32(2, 32), f32(8)),
        case(
            "fft_stft_window",
            "a = ops.stft(x, 8, 3, 5, y, center=False, normalized=True, onesided=False, return_complex=True)\n" + PARTS,
            f32(2, 32),
            f32(5),
        ),
    ]
