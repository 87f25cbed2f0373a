"""A small language model as exporters write it, token by token: torch runs all of it, and captures it in one piece."""

import logging
from typing import Any

import numpy as np
import onnx
import pytest
from formats.onnx_runs import direct
from onnx import TensorProto as T
from onnx import helper

import litehouse
from litehouse import Options, read
from litehouse.engines.torch.engine import TorchEngine

HEADS, SHARED, SIZE, WORDS, LAYERS, LONGEST = 4, 2, 16, 50, 2, 32
WIDTH = HEADS * SIZE
PACKED = (HEADS + 2 * SHARED) * SIZE
RUNTIME = "com.microsoft"
PROMPT = np.random.default_rng(1).integers(0, WORDS, (2, 5))
CACHES = [f"{kind}_{layer}" for layer in range(LAYERS) for kind in ("key", "value")]


def decoder(dtype: Any = np.float32) -> bytes:
    """Two layers of attention and of a gated network; what a token is likely to be followed by."""
    random, kind = np.random.default_rng(0), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    weights: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *sizes: int) -> str:
        weights[name] = (random.normal(size=sizes) / np.sqrt(sizes[0] if len(sizes) > 1 else 1)).astype(dtype)
        return name

    def node(op: str, inputs: str, outputs: str, domain: str = "", **attributes: Any) -> None:
        names = ["" if name == "_" else name for name in inputs.split()]
        results = ["" if name == "_" else name for name in outputs.split()]
        nodes.append(helper.make_node(op, names, results, name=f"n{len(nodes)}", domain=domain, **attributes))

    angles = np.arange(LONGEST)[:, None] / 100.0 ** (np.arange(SIZE // 2) / (SIZE // 2))
    weights |= {"cos": np.cos(angles).astype(dtype), "sin": np.sin(angles).astype(dtype)}
    weights |= {"one": np.array([1], np.int64), "axis": np.array(1, np.int64)}
    node("ReduceSum", "mask one", "counts", keepdims=0)
    node("Sub", "counts one", "ends")
    node("Cast", "ends", "lasts", to=T.INT32)
    node("Shape", "mask", "sizes")
    node("Gather", "sizes axis", "size")
    node("Cast", "size", "total", to=T.INT32)
    weights["words"] = random.normal(size=(WORDS, WIDTH)).astype(dtype)
    node("Gather", "words tokens", "x")
    node("SimplifiedLayerNormalization", f"x {weight('first', WIDTH)}", "n_0", epsilon=1e-5)
    for at in range(LAYERS):
        node("MatMul", f"n_{at} {weight(f'in_{at}', WIDTH, PACKED)}", f"qkv_{at}")
        inputs = f"qkv_{at} _ _ old_key_{at} old_value_{at} lasts total cos sin"
        heads = {"num_heads": HEADS, "kv_num_heads": SHARED, "do_rotary": 1}
        node("GroupQueryAttention", inputs, f"a_{at} key_{at} value_{at}", RUNTIME, **heads)
        node("MatMul", f"a_{at} {weight(f'out_{at}', WIDTH, WIDTH)}", f"b_{at}")
        norm, inputs = "SkipSimplifiedLayerNormalization", f"{'x' if at == 0 else f's_{at}'} b_{at}"
        node(norm, f"{inputs} {weight(f'norm_{at}', WIDTH)}", f"m_{at} _ _ r_{at}", RUNTIME, epsilon=1e-5)
        node("MatMul", f"m_{at} {weight(f'gate_{at}', WIDTH, 2 * WIDTH)}", f"g_{at}")
        node("MatMul", f"m_{at} {weight(f'up_{at}', WIDTH, 2 * WIDTH)}", f"u_{at}")
        node("Sigmoid", f"g_{at}", f"h_{at}")
        node("Mul", f"g_{at} h_{at}", f"i_{at}")
        node("Mul", f"i_{at} u_{at}", f"j_{at}")
        node("MatMul", f"j_{at} {weight(f'down_{at}', 2 * WIDTH, WIDTH)}", f"d_{at}")
        scale = weight(f"behind_{at}", WIDTH)
        node(norm, f"r_{at} d_{at} {scale}", f"n_{at + 1} _ _ s_{at + 1}", RUNTIME, epsilon=1e-5)
    node("MatMul", f"n_{LAYERS} {weight('head', WIDTH, WORDS)}", "scores")
    cache = ["batch", SHARED, "places", SIZE]
    inputs = [helper.make_tensor_value_info(name, T.INT64, ["batch", size]) for name, size in SIZES.items()]
    inputs += [helper.make_tensor_value_info(f"old_{name}", kind, cache) for name in CACHES]
    outputs = [helper.make_tensor_value_info("scores", kind, ["batch", "count", WORDS])]
    outputs += [helper.make_tensor_value_info(name, kind, ["batch", SHARED, "total", SIZE]) for name in CACHES]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "decoder", inputs, outputs, constants)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(RUNTIME, 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


SIZES = {"tokens": "count", "mask": "total"}


def feeds(dtype: Any = np.float32) -> dict[str, np.ndarray]:
    """A prompt, and no places in the caches yet."""
    caches = {f"old_{name}": np.zeros((2, SHARED, 0, SIZE), dtype) for name in CACHES}
    return {"tokens": PROMPT, "mask": np.ones_like(PROMPT), **caches}


def following(given: dict[str, np.ndarray], found: list[np.ndarray]) -> dict[str, np.ndarray]:
    """What comes behind: the likeliest tokens."""
    mask = np.pad(given["mask"], ((0, 0), (0, 1)), constant_values=1)
    caches = {f"old_{name}": array for name, array in zip(CACHES, found[1:], strict=True)}
    return {"tokens": found[0][:, -1:].argmax(-1), "mask": mask, **caches}


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 1e-4), (np.float16, 2e-2)])
def test_token_by_token(dtype: Any, tolerance: float, caplog: pytest.LogCaptureFixture) -> None:
    data, given = decoder(dtype), feeds(dtype)
    with caplog.at_level(logging.WARNING):
        session = litehouse.load(data, engine="torch", cache=False)
        for _ in range(6):
            found, expected = session.run(given), direct(data, given)
            for ours, theirs in zip(found, expected, strict=True):
                assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
                np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance * np.abs(theirs).max())
            given = following(given, expected)
    assert not caplog.records


def test_captured_in_one_piece(captured: list[str]) -> None:
    """The sizes of the caches are known from those of the mask: nobody waits for a number of the device."""
    runner = TorchEngine().compile(read(decoder()), Options(engine="torch", cache=False)).bind()
    given = feeds()
    given = following(given, direct(decoder(), given))
    for _ in range(2):
        runner.run(list(given.values()))
    (piece,) = captured
    assert piece.count("GroupQueryAttention") == LAYERS
    assert piece.endswith("MatMul")


def test_made_half_precise(rehearsed_gpu: None) -> None:
    """All products are of 16 bits, and what is between them; the caches stay of 32, as the file has them."""
    data, given = decoder(), feeds()
    session = litehouse.load(data, device="gpu", precision="fp16", tune="off", cache=False)
    assert session.precision == "fp16"
    for _ in range(3):
        found, expected = session.run(given), direct(data, given)
        for ours, theirs in zip(found, expected, strict=True):
            assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
            np.testing.assert_allclose(ours, theirs, rtol=2e-2, atol=2e-2 * np.abs(theirs).max())
        given = following(given, expected)
