"""`Model`: a network that was built from a file and can predict."""

import functools
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum

import numpy as np

import litehouse
from litehouse import LitehouseError, Options, Session
from litehouse.device import named
from mindspore_lite._checks import check_elements, check_instance, check_list, check_sections
from mindspore_lite._device_tensor import DeviceRun, explain, wrong_place
from mindspore_lite._group import ModelGroup as ModelGroup
from mindspore_lite._group import ModelGroupFlag as ModelGroupFlag
from mindspore_lite._group import shares_workspace
from mindspore_lite._options import Sections, make_options, merge_sections
from mindspore_lite._runner import ModelParallelRunner as ModelParallelRunner
from mindspore_lite._signature import Description, describe, meta_of
from mindspore_lite._weights import Settings, arrays_of, check_weights, lift, take_settings
from mindspore_lite.context import Context
from mindspore_lite.tensor import (
    Array,
    Tensor,
    TensorMeta,
    fit,
    input_tensor,
    output_tensors,
)


class ModelType(Enum):
    """The kind of a model file."""

    MINDIR = 0
    MINDIR_LITE = 4


FORMATS = {ModelType.MINDIR: "mindir", ModelType.MINDIR_LITE: "ms"}
_ADVICE = {kind: f"build it with {model_type}" for model_type, kind in FORMATS.items()}

USER_INFO = "user_info."
NOT_BUILT = "The model is not built; call build_from_file first."


class Model:
    """A network that was built from a file and can predict. Several threads may share one.

    Example:
        >>> model = Model()
        >>> print(model)
        model_path: .
    """

    def __init__(self) -> None:
        self.model_path_ = ""
        self._session: Session | None = None
        self._is_spoilt = False
        self._inputs: tuple[Description, ...] = ()
        self._run: Callable[[list[Array]], list[Array]] | None = None  # once built, and of fixed shapes
        self._output_names: tuple[str, ...] = ()
        self._device = "cpu"
        self._weights = Settings()
        self._handle = ""
        self._group: ModelGroup | None = None

    def __str__(self) -> str:
        return f"model_path: {self.model_path_}."

    def build_from_file(
        self,
        model_path: str,
        model_type: ModelType,
        context: Context | None = None,
        config_path: str = "",
        config_dict: Sections | None = None,
        dec_key: bytes | None = None,
        dec_mode: str = "AES-GCM",
        dec_num_parallel: int = 0,
    ) -> None:
        """Read a model file and prepare it to run.

        Args:
            model_path: The file.
            model_type: Its kind.
            context: Where and how to run; None stands for `Context()`.
            config_path: A configuration file of `[section]` and `key=value` lines. The section `[litehouse]` takes
                effect, and what `[ascend_context]` or `[gpu_context]` says about weights: `variable_weights_file`,
                those that `update_weights` takes; `shareable_weight_pid_list` and `shareable_weight_mem_handle`, which
                processes share them; and what the first says about ranks: `rank_table_file`. Others are read over.
            config_dict: The same as a dict of dicts; wins over the file.
            dec_key: The key of an encrypted file.
            dec_mode: How it is encrypted: `"AES-GCM"`, `"AES-CBC"` or `"SM4-CBC"`.
            dec_num_parallel: Accepted, and not needed.

        Raises:
            TypeError: An argument is of the wrong type.
            ValueError: `dec_mode` is empty.
            RuntimeError: A file does not exist, or the model cannot be built; the text says why. A Model whose build
                failed, or was done, cannot be built again: make a new one.
        """
        check_instance("model_path", model_path, str)
        check_instance("model_type", model_type, ModelType)
        context = Context() if context is None else context
        check_instance("context", context, Context)
        check_instance("config_path", config_path, str)
        if not os.path.exists(model_path):
            raise RuntimeError("build_from_file failed, model_path does not exist!")
        self.model_path_ = model_path
        sections = _read_config(config_path, config_dict)
        if dec_key:
            _check_decryption(dec_key, dec_mode, dec_num_parallel)
        self._build(model_type, context, sections, config_path, dec_key or None, dec_mode)

    def _build(
        self,
        model_type: ModelType,
        context: Context,
        sections: Sections,
        config_path: str,
        key: bytes | None,
        mode: str,
    ) -> None:
        if self._session is not None or self._is_spoilt:
            state = "failed to build before" if self._is_spoilt else "is already built"
            raise RuntimeError(
                f"build_from_file failed! Error is Common error code. This Model {state}; make a new Model."
            )
        try:
            self._weights = take_settings(sections, config_path)
            options = replace(make_options(context, sections, config_path), updatable=self._weights.names)
            session = self._load(options, key, mode if key else "AES-GCM")
            if session.model.format != FORMATS[model_type]:
                session.close()
                raise ValueError(
                    f"{self.model_path_} is a file of kind {session.model.format}, not {model_type}; "
                    + _ADVICE.get(session.model.format, "litehouse.load opens it")
                )
        except (LitehouseError, OSError, ValueError) as error:
            self._is_spoilt = True
            raise RuntimeError(f"build_from_file failed! Error is {error}") from error
        self._output_names = tuple(info.name for info in session.model.outputs)
        self._device = named(session.options.device)
        self._set_inputs(session)
        self._session = session

    def _load(self, options: Options, key: bytes | None, mode: str) -> Session:
        settings = self._weights
        if settings.handle is not None:
            return litehouse.attach(settings.handle, self.model_path_, options=options)
        if shares_workspace(self.model_path_) or (self._group is not None and self._group._shares_workspace):
            options = replace(options, workspace="shared")
        session = litehouse.load(self.model_path_, key=key, mode=mode, options=options)
        if self._group is not None:
            session.use_arena(self._group._arena)
        if settings.pids is not None:
            self._handle = str(session.share(settings.pids))
        return session

    def _join(self, group: ModelGroup) -> None:
        """Share the weights with the models of a group, from when this one is built."""
        self._group = group
        if self._session is not None:
            self._session.use_arena(group._arena)

    def _set_inputs(self, session: Session) -> None:
        self._inputs = describe(session.inputs)
        run = DeviceRun(session) if session.options.device_kind == "gpu" else session.run
        self._run = None if any(-1 in info.shape for info in self._inputs) else run

    def get_inputs(self) -> list[Tensor]:
        """Give new tensors with the names, types and shapes of the inputs; none before the model is built."""
        return [input_tensor(info.name, info.dtype, info.shape) for info in self._inputs]

    def get_outputs(self) -> tuple[TensorMeta, ...]:
        """Give names, types and shapes of the outputs; none before the model is built."""
        return () if self._session is None else tuple(map(meta_of, describe(self._session.outputs)))

    def predict(self, inputs: Sequence[Tensor | Array], outputs: list[Tensor] | None = None) -> list[Tensor]:
        """Run the model once. Several threads may do so at a time.

        Args:
            inputs: A list or tuple with one Tensor or array per input, in the order of `get_inputs`. Of an array, only
                the element type and the count of bytes must agree with the input.
            outputs: Tensors to write the results into. A tensor whose memory has the size of the result keeps it.
                Tensors on the GPU that the model runs on are filled there.

        Returns:
            The `outputs` given, or new tensors, on the host. Their data is not touched by later calls.

        Raises:
            TypeError: An argument is of the wrong type.
            RuntimeError: The count of inputs, or the shape or type of one, is not the model's; a tensor is on a GPU
                that the model does not run on; or the run failed.
        """
        if not isinstance(inputs, (list, tuple)):
            raise TypeError(f"inputs must be list or tuple, but got {type(inputs)}.")
        expected = self._inputs
        if len(inputs) != len(expected):
            raise RuntimeError(f"model input len:{len(expected)} not equal input len:{len(inputs)}!")
        run = self._run
        if outputs is not None:
            self._check_outputs(outputs)
            if isinstance(run, DeviceRun):
                run = functools.partial(run, outputs=outputs)
        if run is None:
            raise RuntimeError(f"predict failed! {self._why_not_ready()}")
        arrays: list[Array] = []
        for value in inputs:
            array = value._array if isinstance(value, Tensor) else _array_for(expected[len(arrays)], value)
            if array is None:
                raise RuntimeError(f"predict failed! Input {expected[len(arrays)].name!r} has no data; set it first.")
            arrays.append(array)
        try:
            results = run(arrays)
        except LitehouseError as error:
            names = [info.name for info in expected]
            raise RuntimeError(f"predict failed! {explain(error, names, arrays, self._device)}") from error
        if outputs:
            for tensor, array in zip(outputs, results, strict=True):
                tensor._receive(array)
            return outputs
        return output_tensors(self._output_names, results)

    def _why_not_ready(self) -> str:
        dynamic = [info.name for info in self._inputs if -1 in info.shape]
        return f"Input {dynamic[0]!r} has a dynamic shape; call resize first." if dynamic else NOT_BUILT

    def _check_outputs(self, outputs: list[Tensor]) -> None:
        check_list("outputs", outputs, Tensor)
        if outputs and len(outputs) != len(self._output_names):
            raise RuntimeError(f"predict failed! The model has {len(self._output_names)} outputs, not {len(outputs)}.")
        for name, tensor in zip(self._output_names, outputs, strict=False):
            if tensor._device and tensor._device != self._device:
                raise RuntimeError(f"predict failed! {wrong_place(f'Output {name!r}', tensor._device, self._device)}")

    def resize(self, inputs: Sequence[Tensor], dims: Sequence[Sequence[int]]) -> None:
        """Change the shapes of the inputs.

        Args:
            inputs: Tensors of `get_inputs`. Those whose data was not set from an array show the new shape afterwards.
            dims: One shape per input.

        Raises:
            TypeError: An argument is of the wrong type.
            ValueError: There are not as many shapes as tensors.
            RuntimeError: The model is not built, or cannot take these shapes; it keeps the shapes that it had.
        """
        _check_resize(inputs, dims)
        if self._session is None:
            raise RuntimeError(f"resize failed! Error is Common error code. {NOT_BUILT}")
        if len(dims) != len(self._inputs) or any(size < 1 for shape in dims for size in shape):
            raise RuntimeError(
                "resize failed! Error is Invalid input param by user. "
                f"The model takes {len(self._inputs)} shapes of positive sizes, not {dims}."
            )
        try:
            self._session.resize([tuple(map(int, shape)) for shape in dims])
        except LitehouseError as error:
            raise RuntimeError(f"resize failed! Error is {error}") from error
        self._set_inputs(self._session)
        for tensor, info in zip(inputs, self._inputs, strict=True):
            if not tensor._is_shared:
                tensor.shape = info.shape

    def update_weights(self, weights: list[list[Tensor]]) -> None:
        """Give weights other values, all of them or none. A `predict` that starts afterwards uses them.

        Args:
            weights: Lists of tensors with the names of the weights; without names, in the order of the names in the
                file that the configuration names as `variable_weights_file`.

        Raises:
            TypeError: The argument is no list of lists of tensors.
            RuntimeError: The model is not built, or a name, type or shape is wrong; the text tells each.
        """
        check_weights(weights)
        if self._session is None:
            raise RuntimeError("update weight failed! Error is Session is null, please build model first!")
        try:
            self._session.update_weights(arrays_of(weights, self._weights))
        except LitehouseError as error:
            raise RuntimeError(f"update weight failed! Error is {error}") from error

    def get_model_info(self, key: str | None = None) -> str:
        """Give what the file says about itself.

        Args:
            key: `"user_info"` for the notes in the file, as a JSON object; `"input_shape"`, as in
                `"x:[1,3,32,32];y:[1,4]"`; `"current_pid"` for the number of this process, also before the model is
                built; or `"shareable_weight_mem_handle"` for the number by which others get its memory.

        Returns:
            The text, `""` where there is none.

        Raises:
            TypeError: `key` is no str.
        """
        check_instance("key", key, str)
        if key == "current_pid":
            return str(os.getpid())
        if self._session is None:
            return ""
        if key == "shareable_weight_mem_handle":
            return self._handle
        if key == "input_shape":
            return ";".join(f"{info.name}:[{','.join(map(str, info.shape))}]" for info in self._inputs)
        if key == "user_info":
            notes = {
                name.removeprefix(USER_INFO): text
                for name, text in self._session.model.metadata.items()
                if name.startswith(USER_INFO)
            }
            return json.dumps(notes, ensure_ascii=False) if notes else ""
        return ""


def _read_config(path: str, sections: Sections | None) -> Sections:
    if path and not os.path.exists(path):
        raise RuntimeError("build_from_file failed, config_path does not exist!")
    sections = lift(sections)
    if sections:
        check_sections("config_dict", sections)
    try:
        return merge_sections(path, sections or {})
    except OSError as error:
        raise RuntimeError(f"load configuration failed! Error is {error}") from error


def _check_decryption(key: object, mode: object, parallel: object) -> None:
    check_instance("dec_key", key, bytes)
    check_instance("dec_mode", mode, str)
    check_instance("dec_num_parallel", parallel, int)
    if not mode:
        raise ValueError("dec_mode must not be empty string!")


def _array_for(info: Description, value: object) -> Array:
    """Give the array that stands for an input; the core puts it in C order."""
    if not isinstance(value, np.ndarray):
        raise TypeError("inputs element must be Tensor, of numpy.")
    return value if value.shape == info.shape and value.dtype == info.numpy_type else fit(value, info.dtype, info.shape)


def _check_resize(inputs: object, dims: object) -> None:
    if not isinstance(inputs, (list, tuple)):
        raise TypeError(f"inputs must be list or tuple of Lite Tensor, but got {type(inputs)}.")
    if not isinstance(dims, (list, tuple)):
        raise TypeError(f"dims must be list or tuple of shape, but got {type(dims)}.")
    check_elements("inputs", inputs, Tensor)
    for index, shape in enumerate(dims):
        if not isinstance(shape, (list, tuple)):
            raise TypeError(f"dims element must be list or tuple of int, but got {type(shape)} at index {index}.")
        for place, size in enumerate(shape):
            if not isinstance(size, int):
                raise TypeError(
                    f"dims element's element must be int, but got {type(size)} "
                    f"at {index}th dims element's {place}th element."
                )
    if len(inputs) != len(dims):
        raise ValueError(
            f"inputs' size does not match dims' size, but got inputs: {len(inputs)} and dims: {len(dims)}."
        )
