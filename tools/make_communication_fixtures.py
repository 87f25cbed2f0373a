"""Makes the fixtures of the communication operators, ``tests/fixtures/mindir/communication``, with the real MindSpore.

Run as a job of two processes, with the launcher of MindSpore 2.10::

    msrun --worker_num=2 --local_worker_num=2 --join=True tools/make_communication_fixtures.py

Rank 0 stores its files. Most of the operators have no CPU kernel, so there are no outputs.
"""

import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import communication, nn, ops
from mindspore.ops import operations as P

FOLDER = Path(__file__).resolve().parent.parent / "tests" / "fixtures" / "mindir" / "communication"
ROWS = np.arange(32, dtype=np.float32).reshape(4, 8)


class Plain(nn.Cell):
    """One operator, and a little arithmetic after it."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def construct(self, x):
        return self.op(x) * 2


class Tuple(Plain):
    """An operator of a tuple."""

    def construct(self, x):
        return self.op((x,))[0] * 2


class Sizes(Plain):
    """An operator that takes the sizes of what it sends and receives."""

    def construct(self, x):
        return self.op(x, (8, 24), (8, 8)) * 2


class Sent(Plain):
    """A network whose result does not need what it sends."""

    def construct(self, x):
        y = ops.tanh(x)
        return ops.depend(x * 2, self.op(y))


class Waits(Plain):
    """A network that waits for the other ranks."""

    def construct(self, x):
        y = ops.tanh(x)
        self.op()
        return y * 2


def networks() -> dict[str, tuple[nn.Cell, np.ndarray]]:
    """The cases by name: a network, and what it takes."""
    exchange = P.NeighborExchange([1], [1], ([4, 8],), ([4, 8],), ms.float32)
    sides = [-1, -1, -1, -1, 1, -1, -1, -1]
    rows = {
        "all_reduce": Plain(P.AllReduce()),
        "all_reduce_max": Plain(P.AllReduce(ops.ReduceOp.MAX)),
        "all_gather": Plain(P.AllGather()),
        "reduce_scatter": Plain(P.ReduceScatter()),
        "broadcast": Tuple(P.Broadcast(0)),
        "all_to_all": Plain(P.AlltoAll(2, 0, 1)),
        "send": Plain(P.Send(3, 1)),
        "send_unused": Sent(P.Send(3, 1)),
        "receive": Plain(P.Receive(3, 1, [4, 8], ms.float32)),
        "neighbor_exchange": Tuple(exchange),
        "reduce": Plain(P.Reduce(1)),
        "collective_scatter": Plain(P.CollectiveScatter(0)),
        "collective_gather": Plain(P.CollectiveGather(0)),
        "barrier": Waits(P.Barrier()),
    }
    cases = {name: (network, ROWS) for name, network in rows.items()}
    cases["all_to_all_v"] = Sizes(P.AlltoAllV()), ROWS.reshape(32)
    image = ROWS.reshape(1, 1, 4, 8)
    cases["neighbor_exchange_v2"] = Plain(P.NeighborExchangeV2(sides, [0, 1, 0, 0], sides, [0, 1, 0, 0], "NCHW")), image
    return cases


def main() -> None:
    """Export the cases."""
    ms.set_device("CPU")
    ms.set_context(mode=ms.GRAPH_MODE)
    communication.init()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (network, x) in networks().items():
        path = FOLDER / f"{name}.mindir"
        stored = path if communication.get_rank() == 0 else Path(f"{name}_other.mindir")
        stored.unlink(missing_ok=True)
        try:
            ms.export(network, ms.Tensor(x), file_name=str(stored), file_format="MINDIR")
        except (RuntimeError, TypeError, ValueError) as error:
            print(f"{name}: {str(error).splitlines()[0]}", file=sys.stderr)
            continue
        stored.chmod(0o644)


if __name__ == "__main__":
    main()
