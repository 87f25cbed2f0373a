"""`LiteNetwork`: a model that was loaded and can run; and what can be asked and told about one."""

import io
import logging
import os
from dataclasses import replace
from pathlib import Path

from litehouse import Model, Session, ciphers
from megenginelite._callbacks import (
    AsyncCallback,
    LiteAsyncCallback,
    LiteFinishCallback,
    LiteStartCallback,
    TensorCallback,
    check_callable,
    start_finish_callback,
    wrap_async_callback,
)
from megenginelite._config import LiteConfig, LiteExtraConfig, LiteIO, LiteNetworkIO, LiteOptions
from megenginelite._device_loaded import DeviceLoaded
from megenginelite._devices import check_device
from megenginelite._dumps import BinaryDump, Profile, TextDump
from megenginelite._errors import check_int, check_struct, fail
from megenginelite._extras import Extras
from megenginelite._layout import LiteLayout, make_layout
from megenginelite._loaded import PACKED, Loaded, io_layouts, read_model
from megenginelite._order import listed
from megenginelite._settings import Settings
from megenginelite.struct import LiteTensorPhase
from megenginelite.tensor import LiteTensor

__all__ = [
    "LiteAsyncCallback",
    "LiteConfig",
    "LiteExtraConfig",
    "LiteFinishCallback",
    "LiteIO",
    "LiteLayout",
    "LiteNetwork",
    "LiteNetworkIO",
    "LiteOptions",
    "LiteStartCallback",
    "LiteTensor",
    "LiteTensorPhase",
    "get_model_io_info",
    "io",
    "logging",
    "os",
    "start_finish_callback",
    "wrap_async_callback",
]

FilePath = str | os.PathLike[str]


class LiteNetwork:
    """A model that is loaded from a file and can run.

    Args:
        config: Where and how to run; None for `LiteConfig()`. Later changes of it do nothing.
        io: What is known of inputs and outputs beforehand; None for nothing.

    Example:
        >>> network = LiteNetwork()
        >>> network.threads_number
        1
    """

    def __init__(self, config: LiteConfig | None = None, io: LiteNetworkIO | None = None) -> None:
        self.config = LiteConfig() if config is None else config
        self.network_io = LiteNetworkIO() if io is None else io
        check_struct(self.config, LiteConfig, 2)
        self._settings = Settings.of(self.config, self.network_io)
        self._is_info_disabled = False
        self._loaded: Loaded | None = None
        self._extras = Extras()
        self._is_plain = True  # whether a run is nothing but a run
        self._is_at_end = True  # and whether it is over when `forward` returns
        self._keeps_file = False
        self._file = b""

    def __repr__(self) -> str:
        return repr({"config": self.config, "IOs": self.network_io})

    def load(self, file: FilePath | io.BufferedReader) -> None:
        """Load a MegEngine model, bare or packed. A model that was loaded before is replaced.

        Args:
            file: A path, or a file that was opened for reading bytes, which is read from where it stands.

        Raises:
            FileNotFoundError: There is no such file.
            RuntimeError: It is no model that can run here; the text says why.
        """
        source: FilePath | bytes
        if isinstance(file, (str, os.PathLike)):
            source = file
            with open(file, "rb") as opened:
                head = opened.read(len(PACKED))
                content = head + opened.read() if self._keeps_file else b""
        else:
            assert isinstance(file, io.BufferedReader), "file must be BufferedReader when open!!"
            source = content = file.read()
            head = content[: len(PACKED)]
        self._build(read_model(source, head, self._settings))
        if self._keeps_file:
            cipher = "" if head == PACKED else self._settings.cipher
            self._file = ciphers.decrypt(cipher, content, path=str(file)) if cipher else content

    def _build(self, model: Model, like: Session | None = None) -> None:
        self._extras.join()
        disabled = self._is_info_disabled
        settings = self._settings.with_info(model.metadata.get("info", ""), is_disabled=disabled)
        is_on_device = settings.is_cuda and bool(settings.on_device)
        kind = DeviceLoaded if is_on_device else Loaded
        self._loaded = kind(model, settings, is_info_disabled=disabled, like=like)
        self._extras.forget()
        self._note_extras()

    def _note_extras(self) -> None:
        has_pieces = self._loaded is not None and bool(self._loaded.pieces)
        self._is_plain = not has_pieces and not self._extras.are_needed
        self._is_at_end = self._is_plain and type(self._loaded) is Loaded

    def share_weights_with(self, src_network: "LiteNetwork") -> None:
        """Load the model of another network: both use the same memory for the weights, and run side by side.

        Raises:
            RuntimeError: The other network is not loaded.
        """
        assert isinstance(src_network, LiteNetwork)
        if src_network._loaded is None:
            fail("shared_weight_with_network should be used after the src network loaded.")
        self._build(src_network._loaded.model, src_network._loaded.session)
        self._file = src_network._file

    def share_runtime_memroy(self, src_network: "LiteNetwork") -> None:
        """Accept another network to share working memory with. The engines manage that memory themselves."""
        assert isinstance(src_network, LiteNetwork)
        self._check_not_loaded("share_runtime_memory_with")

    share_runtime_memory_with = share_runtime_memroy  # the original's name is a slip of the pen

    def forward(self) -> None:
        """Run on what the tensors of the inputs hold.

        The tensors of the outputs have the results when this returns; with `async_with_callback`, when the callback is
        called. Where all inputs and outputs are on a GPU, `wait` waits for them; who asks such a tensor for data sees
        them, too.

        Raises:
            RuntimeError: No model is loaded, it cannot take the inputs, or the run failed. It can run again.
        """
        loaded = self._loaded
        if loaded is None:
            fail("forward should be used after model loaded.")
        if self._is_plain:
            loaded.run()
        else:
            self._extras.forward(loaded)

    def wait(self) -> None:
        """Wait for the end of the last `forward`, and raise the error that it had in another thread."""
        loaded = self._loaded
        if loaded is None:
            fail("wait should be used after model loaded.")
        if not self._is_at_end:
            loaded.wait()
            self._extras.wait(loaded)

    # Tensors and their names ------------------------------------------------------------------------------------------

    def get_io_tensor(self, name: str | bytes, phase: int = LiteTensorPhase.LITE_IO) -> LiteTensor:
        """Give the tensor of an input or output. It is the same one with every call.

        Args:
            name: The name.
            phase: Where to look: among inputs, outputs, or both.

        Raises:
            RuntimeError: There is none of that name, or no model is loaded.
        """
        loaded = self._check_loaded("get_io_tensor")
        name = name.decode("utf-8") if isinstance(name, bytes) else name
        if phase in (LiteTensorPhase.LITE_IO, LiteTensorPhase.LITE_INPUT) and name in loaded.inputs:
            return loaded.inputs[name]
        if phase in (LiteTensorPhase.LITE_IO, LiteTensorPhase.LITE_OUTPUT) and name in loaded.outputs:
            return loaded.outputs[name]
        fail(
            f"tensor name must be {name} input tensor name or the registered output tensor name if NetworkIO is set, "
            "if NetworkIO is not set, the output tensor is all the network output tensor, or the output tensor is only "
            "the registered tensor."
        )

    def get_discrete_tensor(self, name: str, n_idx: int, phase: int = LiteTensorPhase.LITE_INPUT) -> LiteTensor:
        """Give the tensor of one piece of the batch, for the input that `LiteConfig.discrete_input_name` names.

        Args:
            name: That input.
            n_idx: The place in the batch.
            phase: `LITE_INPUT`.

        Raises:
            RuntimeError: It is not that input, there is no such place, or no model is loaded.
        """
        loaded = self._check_loaded("get_io_tensor")
        if phase != LiteTensorPhase.LITE_INPUT or not loaded.pieces or name != loaded.settings.discrete_input:
            fail(f"tensor name must be {name} input tensor name.")
        if not 0 <= check_int(n_idx, 3) < len(loaded.pieces):
            fail(f"n_idx should be less than {len(loaded.pieces)}")
        return loaded.pieces[n_idx]

    def get_input_name(self, index: int) -> str:
        """Give the name of an input, in the original's order."""
        names = self.get_all_input_name() or []
        if not 0 <= check_int(index, 2) < len(names):
            fail("The input tensor index is large than the total inputs number.")
        return names[index]

    def get_output_name(self, index: int) -> str:
        """Give the name of an output: those that were declared come first."""
        names = self.get_all_output_name() or []
        if not 0 <= check_int(index, 2) < len(names):
            fail("The output tensor index is large than the total outputs number.")
        return names[index]

    def get_all_input_name(self) -> list[str] | None:
        """Give the names of the inputs; None before a model is loaded."""
        return None if self._loaded is None else list(self._loaded.inputs)

    def get_all_output_name(self) -> list[str] | None:
        """Give the names of the outputs; None before a model is loaded."""
        return None if self._loaded is None else list(self._loaded.outputs)

    # Settings ---------------------------------------------------------------------------------------------------------

    @property
    def _present(self) -> Settings:
        return self._settings if self._loaded is None else self._loaded.settings

    @property
    def device_id(self) -> int:
        """The number of the device; can be set before a model is loaded."""
        return self._present.device_id

    @device_id.setter
    def device_id(self, device_id: int) -> None:
        self._check_not_loaded("set_device_id")
        self._settings = replace(self._settings, device_id=check_int(device_id, 2))

    @property
    def stream_id(self) -> int:
        """A number without effect; can be set before a model is loaded."""
        return self._present.stream_id

    @stream_id.setter
    def stream_id(self, stream_id: int) -> None:
        self._check_not_loaded("set_stream_id")
        self._settings = replace(self._settings, stream_id=check_int(stream_id, 2))

    @property
    def threads_number(self) -> int:
        """Threads inside one operator; can be set before a model is loaded. A packed model may bring its own number."""
        return self._present.threads

    @threads_number.setter
    def threads_number(self, nr_threads: int) -> None:
        self._check_not_loaded("set_cpu_threads_number")
        if check_int(nr_threads, 2) < 0:
            fail(f"threads_number must not be negative, but got {nr_threads}")
        self._settings = replace(self._settings, threads=nr_threads or 1)

    def enable_cpu_inplace_mode(self) -> None:
        """Ask for the CPU's in-place mode, before a model is loaded. A run is in the caller's thread in any case."""
        self._check_not_loaded("set_cpu_inplace_mode")
        self._settings = replace(self._settings, is_inplace=True)

    def is_cpu_inplace_mode(self) -> bool:
        """Say whether the in-place mode was asked for."""
        return self._present.is_inplace

    def use_tensorrt(self) -> None:
        """Accept the wish for TensorRT, before a model is loaded. Torch runs the network on a GPU all the same."""
        self._check_not_loaded("use_tensorrt")

    def extra_configure(self, extra_config: LiteExtraConfig) -> None:
        """Say whether a packed model's own settings are left aside, before it is loaded."""
        check_struct(extra_config, LiteExtraConfig, 2)
        if self._loaded is not None:
            fail("disable_configure_by_model_info should be configured before model loaded.")
        self._is_info_disabled = bool(extra_config.disable_configure_by_model_info)

    def set_network_algo_policy(
        self, policy: int, shared_batch_size: int = 0, binary_equal_between_batch: bool = False
    ) -> None:
        """Accept how algorithms are to be chosen, before the first run. The engines choose theirs themselves."""
        for place, value in ((2, policy), (2, shared_batch_size), (3, binary_equal_between_batch)):
            check_int(value, place)
        self._check_not_run()

    def set_network_algo_workspace_limit(self, size_limit: int) -> None:
        """Accept a limit for working memory, after loading and before the first run. It has no effect."""
        check_int(size_limit, 2)
        self._check_loaded("set_network_algo_policy")
        self._check_not_run()

    def _check_not_run(self) -> None:
        if self._loaded is not None and self._loaded.has_run:
            fail("attempt to modify ExecutionPolicy after it has been accessed")

    def _check_loaded(self, what: str) -> Loaded:
        if self._loaded is None:
            fail(f"{what} should be used after model loaded.")
        return self._loaded

    def _check_not_loaded(self, what: str) -> None:
        if self._loaded is not None:
            fail(f"{what} should be used before model loaded.")

    # Callbacks and dumps ----------------------------------------------------------------------------------------------

    def async_with_callback(self, async_callback: AsyncCallback) -> None:
        """Let `forward` return at once, and call a function without arguments when the results are there.

        The function runs in the network's own thread. An error of the run, or of the function, is logged, and raised by
        the next `wait` or `forward`.
        """
        if self._present.is_inplace:
            fail("cpu inplace mode not support async mode")
        self._extras.run_beside(check_callable(async_callback))
        self._note_extras()

    def set_start_callback(self, start_callback: TensorCallback) -> None:
        """Call a function with a dict of the inputs, LiteIO to LiteTensor, before each run."""
        self._extras.start = check_callable(start_callback)
        self._note_extras()

    def set_finish_callback(self, finish_callback: TensorCallback) -> None:
        """Call a function with a dict of the outputs, LiteIO to LiteTensor, in `wait`."""
        self._extras.finish = check_callable(finish_callback)
        self._note_extras()

    def enable_profile_performance(self, profile_file: FilePath) -> None:
        """Write the time of the last run to a JSON file, in `wait`."""
        self._extras.profile = Profile(os.fspath(profile_file))
        self._note_extras()

    def io_txt_dump(self, txt_file: FilePath) -> None:
        """Write all variables of every run to a text file. They are computed a second time for that."""
        self._extras.dumps.append(TextDump(os.fspath(txt_file)))
        self._note_extras()

    def io_bin_dump(self, bin_dir: FilePath) -> None:
        """Write all variables of a run to files in a folder, which must exist. They are computed a second time."""
        self._extras.dumps.append(BinaryDump(os.fspath(bin_dir)))
        self._note_extras()

    def get_static_memory_alloc_info(self, log_dir: FilePath = "logs/test") -> None:  # noqa: ARG002
        """Refuse: like in the original's published packages, there is nothing to tell."""
        fail("Doesn't support get_static_memory_alloc_info().Please check macro.")

    def enable_global_layout_transform(self) -> None:
        """Ask for a model in the best layouts, before loading. The engines choose layouts when they compile a model."""
        self._check_not_loaded("enable_global_layout_transform")
        self._keeps_file = True

    def dump_layout_transform_model(self, model_file: FilePath) -> None:
        """Write the model to a file. It is the one that was loaded, without encryption if it was not a packed one."""
        path = Path(os.fspath(model_file))
        self._check_loaded("dump_layout_transform_model")
        if not self._file:
            fail("dump layout transform model should call enable_global_layout_transform before")
        try:
            path.write_bytes(self._file)
        except OSError as error:
            fail(f"failed to open {path}: {error.strerror}", error)


def get_model_io_info(model_path: FilePath, config: LiteConfig | None = None) -> LiteNetworkIO:
    """Give names, shapes and types of a model's inputs and outputs without building it.

    Args:
        model_path: The file.
        config: Tells how it is encrypted; None for `LiteConfig()`.

    Raises:
        RuntimeError: There is no such file, or it is no model.
    """
    config = LiteConfig() if config is None else config
    check_struct(config, LiteConfig, 2)
    check_device(config.device_type, config.device_id)
    try:
        with open(model_path, "rb") as file:
            head = file.read(len(PACKED))
    except OSError as error:
        fail(f"failed to open {os.fspath(model_path)}: {error.strerror}", error)
    settings = Settings.of(config, LiteNetworkIO())
    model = read_model(model_path, head, settings)
    found = LiteNetworkIO()
    inputs = {item[0]: item for item in io_layouts(model.inputs)}
    for name, shape, dtype in (inputs[name] for name in listed(list(inputs))):
        found.add_input(name, layout=make_layout(shape, dtype))
    for name, shape, dtype in io_layouts(model.outputs):
        found.add_output(name, layout=make_layout(shape, dtype))
    return found
