"""The enumerations of the API, with the original's numbers."""

from enum import Enum, IntEnum

__all__ = [
    "Enum",
    "IntEnum",
    "LiteAlgoSelectStrategy",
    "LiteBackend",
    "LiteDataType",
    "LiteDeviceType",
    "LiteIOType",
    "LiteLogLevel",
    "LiteTensorPhase",
]


class _Named(IntEnum):
    """An integer that `str` shows by its name, as in Python 3.10, the last one that the original runs on."""

    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"

    def __format__(self, spec: str) -> str:
        return format(int(self), spec)


class LiteBackend(_Named):
    """What runs a network. There is one."""

    LITE_DEFAULT = 0


class LiteDeviceType(_Named):
    """Where a tensor lives or a network runs."""

    LITE_CPU = 0
    LITE_CUDA = 1
    LITE_ATLAS = 3
    LITE_NPU = 4
    LITE_CAMBRICON = 5
    LITE_DEVICE_DEFAULT = 7


class LiteDataType(_Named):
    """The type of a tensor's elements."""

    LITE_FLOAT = 0
    LITE_HALF = 1
    LITE_INT = 2
    LITE_INT16 = 3
    LITE_INT8 = 4
    LITE_UINT8 = 5
    LITE_UINT16 = 6


class LiteTensorPhase(_Named):
    """Among which tensors of a network a name is looked up: all, the inputs, or the outputs."""

    LITE_IO = 0
    LITE_INPUT = 1
    LITE_OUTPUT = 2


class LiteIOType(_Named):
    """Whether the value of an input or output counts, or its shape alone."""

    LITE_IO_VALUE = 0
    LITE_IO_SHAPE = 1


class LiteAlgoSelectStrategy(_Named):
    """How the original chooses the algorithm of an operator. Members can be combined with `|`."""

    LITE_ALGO_HEURISTIC = 1
    LITE_ALGO_PROFILE = 2
    LITE_ALGO_REPRODUCIBLE = 4
    LITE_ALGO_OPTIMIZED = 8


class LiteLogLevel(_Named):
    """How much is logged; `DEBUG` is the most."""

    DEBUG = 0
    INFO = 1
    WARN = 2
    ERROR = 3
