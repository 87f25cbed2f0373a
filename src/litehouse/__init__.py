"""Litehouse runs MindIR and ONNX networks, with neither MindSpore nor MegEngine installed.

Example:
    >>> import litehouse
    >>> litehouse.Options(threads=2).engine
    'auto'
"""

from litehouse._version import __version__
from litehouse.distributed.ranks import Place, find_place
from litehouse.errors import (
    DeadlineError,
    EngineError,
    LimitError,
    LitehouseError,
    ModelFormatError,
    Overloaded,
    RankError,
    ShapeError,
    UnsupportedOpError,
    WeightError,
    WorkerError,
)
from litehouse.live import WeightInfo
from litehouse.loading import attach, load, read
from litehouse.model import Model, TensorInfo
from litehouse.options import Job, Limits, Options
from litehouse.parallel.batching import Batching
from litehouse.parallel.pool import Pool
from litehouse.session import Session
from litehouse.weights import Arena

__all__ = [
    "Arena",
    "Batching",
    "DeadlineError",
    "EngineError",
    "Job",
    "LimitError",
    "Limits",
    "LitehouseError",
    "Model",
    "ModelFormatError",
    "Options",
    "Overloaded",
    "Place",
    "Pool",
    "RankError",
    "Session",
    "ShapeError",
    "TensorInfo",
    "UnsupportedOpError",
    "WeightError",
    "WeightInfo",
    "WorkerError",
    "__version__",
    "attach",
    "find_place",
    "load",
    "read",
]
