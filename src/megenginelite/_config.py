"""How a network is set up: options, device, and what is known of its inputs and outputs beforehand."""

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

from megenginelite._layout import LiteLayout
from megenginelite.struct import LiteBackend, LiteDeviceType, LiteIOType


class LiteOptions(ctypes.Structure):
    """Settings of the original's optimiser. `docs/megenginelite.md` says which take effect here.

    Example:
        >>> options = LiteOptions()
        >>> options.graph_opt_level
        2
    """

    _fields_ = [
        ("weight_preprocess", ctypes.c_int),
        ("fuse_preprocess", ctypes.c_int),
        ("fake_next_exec", ctypes.c_int),
        ("var_sanity_check_first_run", ctypes.c_int),
        ("const_shape", ctypes.c_int),
        ("force_dynamic_alloc", ctypes.c_int),
        ("force_output_dynamic_alloc", ctypes.c_int),
        ("force_output_use_user_specified_memory", ctypes.c_int),
        ("no_profiling_on_shape_change", ctypes.c_int),
        ("jit_level", ctypes.c_int),
        ("comp_node_seq_record_level", ctypes.c_int),
        ("graph_opt_level", ctypes.c_int),
        ("async_exec_level", ctypes.c_int),
        ("enable_nchw44", ctypes.c_int),
        ("enable_nchw44_dot", ctypes.c_int),
        ("enable_nchw88", ctypes.c_int),
        ("enable_nhwcd4", ctypes.c_int),
        ("enable_nchw4", ctypes.c_int),
        ("enable_nchw32", ctypes.c_int),
        ("enable_nchw64", ctypes.c_int),
    ]

    weight_preprocess: int
    fuse_preprocess: int
    fake_next_exec: int
    var_sanity_check_first_run: int
    const_shape: int
    force_dynamic_alloc: int
    force_output_dynamic_alloc: int
    force_output_use_user_specified_memory: int
    no_profiling_on_shape_change: int
    jit_level: int
    comp_node_seq_record_level: int
    graph_opt_level: int
    async_exec_level: int
    enable_nchw44: int
    enable_nchw44_dot: int
    enable_nchw88: int
    enable_nhwcd4: int
    enable_nchw4: int
    enable_nchw32: int
    enable_nchw64: int

    def __init__(self) -> None:
        super().__init__()
        self.var_sanity_check_first_run = 1
        self.graph_opt_level = 2
        self.async_exec_level = 1

    def __repr__(self) -> str:
        names = [field[0] for field in self._fields_[:13]]
        switches, levels = names[:9], names[9:]
        shown: dict[str, int] = {name: bool(getattr(self, name)) for name in switches}
        return repr(shown | {name: getattr(self, name) for name in levels})


class LiteConfig(ctypes.Structure):
    """Where and how a network runs.

    Args:
        device_type: The device.
        option: Options, which are copied; None for `LiteOptions()`.
    """

    _fields_ = [
        ("has_compression", ctypes.c_int),
        ("device_id", ctypes.c_int),
        ("device_type", ctypes.c_int),
        ("backend", ctypes.c_int),
        ("_bare_model_cryption_name", ctypes.c_char_p),
        ("options", LiteOptions),
        ("auto_optimize_inference", ctypes.c_int),
        ("discrete_input_name", ctypes.c_char_p),
    ]

    has_compression: int
    device_id: int
    device_type: int
    backend: int
    _bare_model_cryption_name: bytes
    options: LiteOptions
    auto_optimize_inference: int
    discrete_input_name: bytes

    def __init__(self, device_type: int = LiteDeviceType.LITE_CPU, option: LiteOptions | None = None) -> None:
        super().__init__()
        self.device_type = device_type
        self.options = option if option is not None else LiteOptions()
        self._bare_model_cryption_name = b""
        self.discrete_input_name = b""

    @property
    def bare_model_cryption_name(self) -> str:
        """The decryption method of an encrypted model; text or bytes can be set. Empty for a plain or packed one."""
        return self._bare_model_cryption_name.decode("utf-8")

    @bare_model_cryption_name.setter
    def bare_model_cryption_name(self, name: str | bytes) -> None:
        assert isinstance(name, (str, bytes)), "name should be str or bytes type."
        self._bare_model_cryption_name = name.encode("utf-8") if isinstance(name, str) else name

    def __repr__(self) -> str:
        return repr(
            {
                "has_compression": bool(self.has_compression),
                "device_id": _device_type(self.device_id),
                "device_type": _device_type(self.device_type),
                "backend": LiteBackend(self.backend),
                "bare_model_cryption_name": self.bare_model_cryption_name,
                "options": self.options,
                "auto_optimize_inference": self.auto_optimize_inference,
                "discrete_input_name": self.discrete_input_name,
            }
        )


def _device_type(number: int) -> int:
    """Give the LiteDeviceType of that number, or the number. The original shows a device's number in this way, too."""
    return LiteDeviceType(number) if number in set(LiteDeviceType) else number


class LiteExtraConfig(ctypes.Structure):
    """Whether a packed model's own settings are left aside.

    Args:
        disable_model_config: True leaves them aside.
    """

    _fields_ = [("disable_configure_by_model_info", ctypes.c_int)]

    disable_configure_by_model_info: int

    def __init__(self, disable_model_config: bool = False) -> None:
        super().__init__()
        self.disable_configure_by_model_info = disable_model_config

    def __repr__(self) -> str:
        return repr({"disable_configure_by_model_info": bool(self.disable_configure_by_model_info)})


class LiteIO(ctypes.Structure):
    """What is known of an input or output before the network is loaded.

    Args:
        name: Its name.
        is_host: Whether it lives in the memory of the host.
        io_type: Whether its value counts, or its shape alone.
        layout: Its shape and type, where they are not the file's.
    """

    _fields_ = [
        ("_name", ctypes.c_char_p),
        ("is_host", ctypes.c_int),
        ("io_type", ctypes.c_int),
        ("config_layout", LiteLayout),
    ]

    _name: bytes
    is_host: int
    io_type: int
    config_layout: LiteLayout

    def __init__(
        self,
        name: str | bytes,
        is_host: bool = True,
        io_type: int = LiteIOType.LITE_IO_VALUE,
        layout: LiteLayout | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self.is_host = is_host
        self.io_type = io_type
        self.config_layout = layout if layout is not None else LiteLayout()

    @property
    def name(self) -> str:
        """The name; text or bytes can be set."""
        return self._name.decode("utf-8")

    @name.setter
    def name(self, name: str | bytes) -> None:
        if not isinstance(name, (str, bytes)):
            raise TypeError(f"bytes or integer address expected instead of {type(name).__name__} instance")
        self._name = name.encode("utf-8") if isinstance(name, str) else name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return repr(
            {
                "name": self.name,
                "is_host": bool(self.is_host),
                "io_type": LiteIOType(self.io_type),
                "config_layout": self.config_layout,
            }
        )


class _LiteNetworkIO(ctypes.Structure):
    """A LiteNetworkIO for a C library."""

    _fields_ = [
        ("inputs", ctypes.POINTER(LiteIO)),
        ("outputs", ctypes.POINTER(LiteIO)),
        ("input_size", ctypes.c_size_t),
        ("output_size", ctypes.c_size_t),
    ]


class LiteNetworkIO:
    """What is known of a network's inputs and outputs beforehand. Outputs that are listed come first.

    Args:
        inputs: LiteIO objects, or lists of the arguments for one.
        outputs: The same for outputs.

    Example:
        >>> ios = LiteNetworkIO([["data", True]], [LiteIO("score")])
        >>> [io.name for io in ios.inputs + ios.outputs]
        ['data', 'score']
    """

    def __init__(
        self,
        inputs: Iterable[LiteIO | Sequence[Any]] | None = None,
        outputs: Iterable[LiteIO | Sequence[Any]] | None = None,
    ) -> None:
        self.inputs = [_make_io(item) for item in inputs] if inputs else []
        self.outputs = [_make_io(item) for item in outputs] if outputs else []

    def add_input(
        self,
        obj: LiteIO | str | bytes,
        is_host: bool = True,
        io_type: int = LiteIOType.LITE_IO_VALUE,
        layout: LiteLayout | None = None,
    ) -> None:
        """Add an input: a LiteIO, or a name with what else makes a LiteIO."""
        self.inputs.append(obj if isinstance(obj, LiteIO) else LiteIO(obj, is_host, io_type, layout))

    def add_output(
        self,
        obj: LiteIO | str | bytes,
        is_host: bool = True,
        io_type: int = LiteIOType.LITE_IO_VALUE,
        layout: LiteLayout | None = None,
    ) -> None:
        """Add an output: a LiteIO, or a name with what else makes a LiteIO."""
        self.outputs.append(obj if isinstance(obj, LiteIO) else LiteIO(obj, is_host, io_type, layout))

    def _create_network_io(self) -> _LiteNetworkIO:
        """Give the same as a structure for a C library."""
        inputs = (LiteIO * len(self.inputs))(*self.inputs)
        outputs = (LiteIO * len(self.outputs))(*self.outputs)
        pointer = ctypes.POINTER(LiteIO)
        return _LiteNetworkIO(
            ctypes.cast(inputs, pointer), ctypes.cast(outputs, pointer), len(self.inputs), len(self.outputs)
        )

    def __repr__(self) -> str:
        return repr({"inputs": self.inputs, "outputs": self.outputs})


def _make_io(item: object) -> LiteIO:
    if isinstance(item, LiteIO):
        return item
    assert isinstance(item, list), (
        "the param to construct LiteNetworkIO must be list of the LiteIO member or the LiteIO."
    )
    return LiteIO(*item)
