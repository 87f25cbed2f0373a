"""What the networks of the suite are called with. Read by all frameworks' scripts, so it needs NumPy alone."""

import numpy as np


def images(rng, batch, size=224):
    """Blurred noise and a little sharp noise: images that differ, as photographs do."""
    coarse = rng.standard_normal((batch, 3, size // 16, size // 16)).repeat(16, 2).repeat(16, 3)
    return (coarse + 0.5 * rng.standard_normal((batch, 3, size, size))).astype(np.float32)


def draw(name, batch):
    """The inputs of a network, always the same for a batch."""
    rng = np.random.default_rng(batch)
    if name == "bert":
        return [rng.integers(0, 30522, (batch, 128)).astype(np.int32)]
    shapes = {
        "unet_block": [(batch, 320, 32, 32), (batch, 1280), (batch, 77, 768)],
        "lstm": [(64, batch, 128)],
        "mlp": [(batch, 32)],
    }
    if name in shapes:
        return [rng.standard_normal(shape).astype(np.float32) for shape in shapes[name]]
    return [images(rng, batch)]
