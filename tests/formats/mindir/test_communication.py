"""The communication between the ranks of a job: each op is one node of the domain `litehouse`."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

import litehouse
from conftest import FIXTURES, ZOO

CASES = FIXTURES / "mindir" / "communication"
WORLD = "mccl_world_group"
# The file: the op, and the attributes of its node.
NODES: dict[str, tuple[str, dict[str, Any]]] = {
    "all_reduce": ("AllReduce", {"group": WORLD, "op": "sum"}),
    "all_reduce_max": ("AllReduce", {"group": WORLD, "op": "max"}),
    "all_gather": ("AllGather", {"group": WORLD, "rank_size": 2}),
    "reduce_scatter": ("ReduceScatter", {"group": WORLD, "rank_size": 2, "op": "sum"}),
    "broadcast": ("Broadcast", {"group": WORLD, "root_rank": 0}),
    "all_to_all": (
        "AlltoAll",
        {"group": WORLD, "rank_size": 2, "split_count": 2, "split_dim": 0, "concat_dim": 1},
    ),
    "all_to_all_v": ("AlltoAllV", {"group": WORLD, "block_size": 1}),
    "send": ("Send", {"group": "hccl_world_group", "dest_rank": 1, "sr_tag": 3}),
    "receive": ("Receive", {"group": "hccl_world_group", "src_rank": 1, "sr_tag": 3}),
    "neighbor_exchange": (
        "NeighborExchange",
        {"group": WORLD, "send_rank_ids": (1,), "recv_rank_ids": (1,), "recv_type": int(ir.DataType.FLOAT)},
    ),
    "neighbor_exchange_v2": (
        "NeighborExchangeV2",
        {
            "group": WORLD,
            "send_rank_ids": (-1, -1, -1, -1, 1, -1, -1, -1),
            "recv_rank_ids": (-1, -1, -1, -1, 1, -1, -1, -1),
            "send_lens": (0, 1, 0, 0),
            "recv_lens": (0, 1, 0, 0),
            "format": "NCHW",
        },
    ),
    "reduce": ("Reduce", {"group": WORLD, "dest_rank": 1, "op": "sum"}),
    "collective_scatter": ("CollectiveScatter", {"group": WORLD, "src_rank": 0, "rank_id": 0, "rank_size": 2}),
    "collective_gather": ("CollectiveGather", {"group": WORLD, "dest_rank": 0, "rank_id": 0, "rank_size": 2}),
}
# The shape that MindSpore records for the result of rank 0.
SHAPES = {
    "all_gather": (8, 8),
    "reduce_scatter": (2, 8),
    "all_to_all": (2, 16),
    "all_to_all_v": (16,),
    "neighbor_exchange_v2": (1, 1, 5, 8),
    "reduce": (1,),
    "collective_scatter": (2, 8),
    "collective_gather": (8, 8),
}


def _ours(path: Path) -> list[ir.Node]:
    return [node for node in litehouse.read(path).graph.graph if node.domain == "litehouse"]


@pytest.mark.parametrize("name", NODES)
def test_becomes_one_node(name: str) -> None:
    (node,) = _ours(CASES / f"{name}.mindir")
    kind, attributes = NODES[name]
    assert node.op_type == kind
    assert {key: attribute.value for key, attribute in node.attributes.items()} == attributes
    value = node.outputs[0]
    assert value.dtype == ir.DataType.FLOAT
    assert value.shape is not None
    assert tuple(value.shape) == SHAPES.get(name, (4, 8))
    assert [use.node.op_type for use in value.uses()] == ["Mul"]


def test_counts_of_numbers_are_operands() -> None:
    (node,) = _ours(CASES / "all_to_all_v.mindir")
    counts = [value.const_value.numpy().tolist() for value in node.inputs[1:] if value and value.const_value]
    assert counts == [[8, 24], [8, 8]]


@pytest.mark.parametrize("name", ["send_unused", "barrier"])
def test_what_nothing_uses_is_kept(name: str) -> None:
    kept = _ours(CASES / f"{name}.mindir")
    assert kept[0].op_type == ("Send" if name == "send_unused" else "Barrier")
    assert kept[0].outputs[0].uses()


def test_every_file_is_tested() -> None:
    assert {path.stem for path in CASES.glob("*.mindir")} == {*NODES, "send_unused", "barrier"}


@pytest.mark.parametrize("name", ["all_gather", "all_reduce", "barrier", "broadcast", "send"])
def test_is_not_run_by_one_process(name: str) -> None:
    with pytest.raises(litehouse.EngineError, match="start it with all of its ranks, as in `mpirun -n`"):
        litehouse.load(CASES / f"{name}.mindir")


def test_one_rank_runs_what_is_said_to_be_for_one() -> None:
    """MindSpore writes such files, too, and they look the same."""
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    with litehouse.load(CASES / "all_reduce.mindir", engine="onnxruntime", job=litehouse.Job(size=1)) as session:
        np.testing.assert_array_equal(session(x)[0], x * 2)


@pytest.mark.skipif(not ZOO.exists(), reason="the zoo is not here")
@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("job", ["alltoall", "pipeline", "tp_allgather", "tp_mlp", "tp_reducescatter"])
def test_the_zoo_is_read(job: str, rank: int) -> None:
    assert _ours(ZOO / "distributed" / job / f"rank_{rank}.mindir")
