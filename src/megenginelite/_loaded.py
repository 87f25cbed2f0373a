"""`Loaded`: a model with its session, and the tensors that it runs on."""

import json
import os
from collections.abc import Sequence

import numpy as np

import litehouse
from litehouse import LitehouseError, Model, ModelFormatError, Options, Session, TensorInfo, ciphers
from litehouse.device import Values
from megenginelite._devices import check_device, device_option
from megenginelite._errors import fail
from megenginelite._layout import Array, Dtype, lite_type_of, make_layout, shape_text, type_name
from megenginelite._memory import on_host
from megenginelite._order import listed
from megenginelite._settings import Settings
from megenginelite.struct import LiteDeviceType
from megenginelite.tensor import LiteTensor

PACKED = b"packed_model"
_BOOL = np.dtype(np.bool_)
_BYTE = np.dtype(np.uint8)


def read_model(source: str | os.PathLike[str] | bytes, head: bytes, settings: Settings) -> Model:
    """Read a model.

    Args:
        source: A path, or the bytes of a file.
        head: Its first bytes. A packed model names its decryption methods itself.
        settings: What tells how the file is encrypted.

    Raises:
        RuntimeError: It cannot be read; the text says why.
    """
    is_packed = head.startswith(PACKED)
    cipher = "" if is_packed else settings.cipher
    if cipher and not ciphers.is_registered(cipher):
        fail(f"The decryption method {cipher} is not registed yet.")
    try:
        model = litehouse.read(source, mode=cipher) if cipher else litehouse.read(source, cache=True)
    except ModelFormatError as error:
        text = str(error)
        fail(text if "invalid model format" in text else f"invalid model format: {text}", error)
    except (LitehouseError, OSError) as error:
        fail(str(error), error)
    if model.format != "mge":
        fail(f"invalid model format: {model.path} is a file of kind {model.format}; litehouse.load opens it")
    return model


class Loaded:
    """A model with its session, and the tensors that it runs on.

    Attributes:
        model: The model.
        session: The session.
        inputs: The tensors of the inputs by name, in the original's order.
        outputs: The tensors of the outputs by name: the declared ones first.
        pieces: The tensors of the input that is fed one piece of the batch at a time.
        has_run: Whether it has run.

    Args:
        model: The model.
        settings: How it runs.
        is_info_disabled: Whether the settings in the file are left aside.
        like: A session of the same model, to share memory with.
    """

    def __init__(
        self, model: Model, settings: Settings, *, is_info_disabled: bool, like: Session | None = None
    ) -> None:
        check_device(settings.device_type, settings.device_id)
        self.model = model
        self.settings = settings
        self.has_run = False
        try:
            device = device_option(settings.device_type, settings.device_id)
            options = Options(device=device, threads=max(settings.threads, 1))
            self.session = like.twin() if like is not None and like.options == options else Session(model, options)
        except (LitehouseError, ValueError) as error:
            fail(str(error), error)
        self._run = self.session.run
        self._infos = model.inputs
        self._inputs = [self._input(info) for info in model.inputs]
        self._outputs = [self._output(info) for info in model.outputs]
        self._has_bools = any(info.dtype == _BOOL for info in model.inputs)
        inputs = {info.name: tensor for info, tensor in zip(model.inputs, self._inputs, strict=True)}
        self.inputs = {name: inputs[name] for name in listed(list(inputs))}
        outputs = {info.name: tensor for info, tensor in zip(model.outputs, self._outputs, strict=True)}
        in_file = json.loads(model.metadata["file_outputs"]) if is_info_disabled and _has_info(model) else list(outputs)
        self.outputs = {name: outputs[name] for name in (*settings.outputs, *in_file) if name in outputs}
        self.pieces = self._make_pieces()

    def _input(self, info: TensorInfo) -> LiteTensor:
        """Make the tensor of an input, with the file's default value, or zeros."""
        shape, dtype = self.settings.layouts.get(info.name, (_sizes(info), None))
        tensor = self._tensor(info.name, device_id=self.settings.device_id)
        tensor.layout = make_layout(shape, dtype or _shown(info.dtype))
        default = self.model.defaults.get(info.name)
        if default is not None and default.shape == shape:
            tensor.set_data_by_copy(np.ascontiguousarray(default))
        return tensor

    def _make_pieces(self) -> list[LiteTensor]:
        whole = self.inputs.get(self.settings.discrete_input)
        if whole is None:
            return []
        array = filled(whole, self.settings.discrete_input)
        layout = make_layout((1, *array.shape[1:]), array.dtype)
        pieces = [self._tensor(self.settings.discrete_input) for _ in range(array.shape[0])]
        for piece in pieces:
            piece.layout = layout
        return pieces

    def _output(self, info: TensorInfo) -> LiteTensor:
        """Make the tensor of an output, without memory where the size depends on the data."""
        dtype = _shown(info.dtype)
        tensor = self._tensor(info.name)
        tensor._relayout(_sizes(info) if info.is_static else (), dtype)
        return tensor

    def _tensor(self, name: str, device_id: int = 0) -> LiteTensor:
        """Make a tensor where an input or output lives; on the host, in memory that belongs to the network's GPU."""
        if not self.settings.is_cuda:
            return LiteTensor(device_id=device_id)
        return LiteTensor(
            device_type=LiteDeviceType.LITE_CUDA,
            device_id=self.settings.device_id,
            is_pinned_host=name not in self.settings.on_device,
        )

    def join_pieces(self) -> None:
        """Put the pieces of the batch into their input."""
        name = self.settings.discrete_input
        arrays = [on_host(filled(piece, name)) for piece in self.pieces]
        try:
            self.inputs[name].set_data_by_copy(np.concatenate(arrays))
        except ValueError as error:
            fail(f"the pieces of {name!r} do not fit together: {error}", error)

    def run(self) -> None:
        """Run on what the tensors of the inputs hold, and fill those of the outputs."""
        self.has_run = True
        try:
            results = self._run(
                [tensor._array for tensor in self._inputs]  # type: ignore[misc]  # None is refused, then looked into
                if not self._has_bools
                else self.arrays()
            )
        except LitehouseError:
            results = self._run_fitted()
        for tensor, result in zip(self._outputs, results):  # noqa: B905  (the session gives all outputs)
            own = tensor._array
            if own is not None and own.shape == result.shape and own.dtype == result.dtype and own.flags.writeable:
                own[...] = result
            else:
                tensor._receive(result, is_fixed=self.settings.fixed_outputs)

    def _run_fitted(self) -> list[Array]:
        self.fit()
        try:
            return self._run(self._given())
        except LitehouseError as error:
            fail(str(error), error)

    def wait(self) -> None:
        """Wait for the outputs of the last run; here they were there when it returned."""

    def _given(self) -> list[Array]:
        """Give what the session takes."""
        return self.arrays()

    def arrays(self) -> list[Array]:
        """Give the inputs on the host. Where the network takes truth values, all that is not 0 is true."""
        pairs = zip(self._inputs, self._infos, strict=True)
        arrays = [(on_host(filled(tensor, info.name)), info.dtype) for tensor, info in pairs]
        return [array != 0 if dtype == _BOOL else array for array, dtype in arrays]

    def fit(self) -> None:
        """Make the session ready for the shapes that the inputs have.

        Raises:
            RuntimeError: A type is not the network's, or it cannot take the shapes. It keeps those that it had.
        """
        for tensor, info in zip(self._inputs, self._infos, strict=True):
            found, expected = filled(tensor, info.name).dtype, _shown(info.dtype)
            if found != expected:
                fail(f"dtype mismatch: get={type_name(found)} expect={type_name(expected)} opr={info.name}")
        shapes = [filled(tensor, info.name).shape for tensor, info in zip(self._inputs, self._infos, strict=True)]
        present = [_sizes(info) for info in self.session.inputs]
        if shapes == present:
            return
        if self.settings.const_shape:
            wrong = next(pair for pair in zip(present, shapes, strict=True) if pair[0] != pair[1])
            fail(f"disallowed shape change: {shape_text(wrong[0])} vs {shape_text(wrong[1])}")
        try:
            self.session.resize(shapes)
        except LitehouseError as error:
            fail(str(error), error)


def _has_info(model: Model) -> bool:
    return "file_outputs" in model.metadata


def filled(tensor: LiteTensor, name: str) -> Values:
    """Give the memory of an input.

    Raises:
        RuntimeError: It has none.
    """
    if tensor._array is None:
        fail(f"the tensor {name} has no layout; give it data first")
    return tensor._array


def _shown(dtype: Dtype) -> Dtype:
    """Give the type by which the API shows values of a type."""
    if dtype == _BOOL:
        return _BYTE
    try:
        lite_type_of(dtype)
    except (KeyError, NotImplementedError) as error:
        fail(f"unsupport dtype in lite : {type_name(dtype)}.", error)
    return dtype


def _sizes(info: TensorInfo) -> tuple[int, ...]:
    return tuple(size for size in info.shape if isinstance(size, int))


def io_layouts(infos: Sequence[TensorInfo]) -> list[tuple[str, tuple[int, ...], Dtype]]:
    """Give names, shapes and types as the API shows them; an empty shape where it depends on the data."""
    return [(info.name, _sizes(info) if info.is_static else (), _shown(info.dtype)) for info in infos]
