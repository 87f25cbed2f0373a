"""MindSpore Lite's Python API, served by Litehouse: `import mindspore_lite as mslite` runs with no MindSpore installed.

Example:
    >>> import mindspore_lite as mslite
    >>> context = mslite.Context()
    >>> context.target = ["cpu"]
    >>> print(context)
    target: ['cpu'].
"""

from mindspore_lite.context import Context
from mindspore_lite.model import Model, ModelGroup, ModelGroupFlag, ModelParallelRunner, ModelType
from mindspore_lite.tensor import DataType, Format, Tensor, TensorMeta
from mindspore_lite.version import __version__ as __version__

__all__ = [
    "Context",
    "DataType",
    "Format",
    "Model",
    "ModelGroup",
    "ModelGroupFlag",
    "ModelParallelRunner",
    "ModelType",
    "Tensor",
    "TensorMeta",
]
