"""Litehouse runs MindIR and ONNX networks, with neither MindSpore nor MegEngine installed.

Example:
    >>> import litehouse
    >>> litehouse.Options(threads=2).engine
    'auto'
"""

from litehouse._version import __version__
from litehouse.errors import (
    EngineError,
    LimitError,
    LitehouseError,
    ModelFormatError,
    ShapeError,
    UnsupportedOpError,
    WeightError,
)
from litehouse.model import Model, TensorInfo
from litehouse.options import Limits, Options
from litehouse.session import Session, load, read

__all__ = [
    "EngineError",
    "LimitError",
    "Limits",
    "LitehouseError",
    "Model",
    "ModelFormatError",
    "Options",
    "Session",
    "ShapeError",
    "TensorInfo",
    "UnsupportedOpError",
    "WeightError",
    "__version__",
    "load",
    "read",
]
