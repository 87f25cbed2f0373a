"""`ModelParallelRunner`: one model for many client threads."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from litehouse import Batching, LitehouseError, Options, Pool
from mindspore_lite._checks import check_elements, check_instance
from mindspore_lite._options import make_options, merge_sections
from mindspore_lite._signature import Description, describe
from mindspore_lite._weights import Settings, arrays_of, check_weights, take_settings
from mindspore_lite.context import Context
from mindspore_lite.tensor import Array, Format, Tensor, input_tensor, output_tensors

NAME = "ModelParallelRunner's build from file failed"
ENDLESS = 1 << 31  # the original refuses nobody
JOINED = 16  # requests that run together on a GPU, at most
_HOST_ONLY = (
    "{} is on a GPU; a ModelParallelRunner takes and gives tensors of the host, which wait for a worker. "
    "Tensor(tensor) is such a copy; Model.predict takes tensors on a GPU"
)


def _on_device(options: Options, device_ids: Sequence[int]) -> Options:
    """Give the options for the device that the workers are to use."""
    if options.device_kind == "cpu" or not device_ids:
        return options
    if len(set(device_ids)) > 1:
        raise ValueError(
            f"parallel.device_ids names several devices, {list(device_ids)}, and a runner has its workers on one: "
            "build a runner for each of them"
        )
    return replace(options, device=f"{options.device_kind}:{device_ids[0]}")


class ModelParallelRunner:
    """One model for many client threads. The weights are in memory once, whatever the count of workers.

    Example:
        >>> runner = ModelParallelRunner()
        >>> print(runner)
        model_path: .
    """

    def __init__(self) -> None:
        self.model_path_ = ""
        self._pool: Pool | None = None
        self._inputs: tuple[Description, ...] = ()
        self._output_names: tuple[str, ...] = ()
        self._weights = Settings()

    def __str__(self) -> str:
        return f"model_path: {self.model_path_}."

    def build_from_file(self, model_path: str, context: Context | None = None) -> None:
        """Read a model file and prepare it to run. A runner may be built again, with another file too.

        Args:
            model_path: The file, of any kind.
            context: Where and how to run; None stands for `Context()`. `context.parallel.workers_num` says how many
                predictions run side by side, each with `thread_num` threads; 0 shares the cores of the process among
                them. Of the `context.parallel.config_path` and `config_info`, the section `[litehouse]` takes effect.

        Raises:
            TypeError: An argument is of the wrong type.
            RuntimeError: The file does not exist, or the model cannot be built; the text says why.
        """
        check_instance("model_path", model_path, str)
        if not os.path.exists(model_path):
            raise RuntimeError(f"{NAME}, model_path does not exist!")
        self.model_path_ = model_path
        context = Context() if context is None else context
        check_instance("context", context, Context)
        parallel = context.parallel
        try:
            sections = merge_sections(parallel.config_path, parallel._config_info)
            weights = take_settings(sections, parallel.config_path)
            if weights.pids is not None or weights.handle is not None:
                raise ValueError("processes share the memory of a Model, not of a ModelParallelRunner")
            options = replace(make_options(context, sections, parallel.config_path), updatable=weights.names)
            options = _on_device(options, parallel.device_ids)
            # Requests that wait fill a GPU together; none waits for others to come.
            joined = Batching(max_size=JOINED, max_delay=0) if options.device_kind == "gpu" else None
            how: dict[str, Any] = {"queue": ENDLESS, "any_size": True, "batching": joined, "options": options}
            pool = Pool(model_path, workers=parallel.workers_num, **how)
        except (LitehouseError, OSError, ValueError) as error:
            raise RuntimeError(f"{NAME}! Error is {error}") from error
        self._inputs = describe(pool.model.inputs)
        self._output_names = tuple(info.name for info in pool.model.outputs)
        self._pool, self._weights = pool, weights

    def get_inputs(self) -> list[Tensor]:
        """Give new tensors with the names, types and shapes of the inputs; none before the runner is built."""
        return [input_tensor(info.name, info.dtype, info.shape) for info in self._inputs]

    def predict(self, inputs: Sequence[Tensor], outputs: list[Tensor] | None = None) -> list[Tensor]:
        """Run the model once. Any number of threads may do so at a time; those that find no worker wait in turn.

        Args:
            inputs: A list or tuple with one Tensor per input, in the order of `get_inputs`. Their sizes may be others
                than those of the file, where the model can take them. They are on the host, whatever the device.
            outputs: Tensors of the host to write the results into. A tensor whose memory has the size of the result
                keeps it.

        Returns:
            The `outputs` given, or new tensors. Their data is not touched by later calls.

        Raises:
            TypeError: An argument is of the wrong type.
            RuntimeError: The count of inputs, or the shape or type of one, is not the model's; or the run failed.
        """
        if not isinstance(inputs, (list, tuple)):
            raise TypeError(f"inputs must be list or tuple, but got {type(inputs)}.")
        check_elements("inputs", inputs, Tensor)
        if outputs is not None:
            self._check_outputs(inputs, outputs)
        if self._pool is None:
            raise RuntimeError("predict failed! The runner is not built; call build_from_file first.")
        if len(inputs) != len(self._inputs):
            raise RuntimeError(f"predict failed! The model takes {len(self._inputs)} inputs, not {len(inputs)}.")
        try:
            results = self._pool.ask([self._array(place, tensor) for place, tensor in enumerate(inputs)])
        except LitehouseError as error:
            lost = next((info.name for info, tensor in zip(self._inputs, inputs, strict=True) if tensor._device), None)
            text = error if lost is None else _HOST_ONLY.format(f"Input {lost!r}")
            raise RuntimeError(f"predict failed! {text}") from error
        if outputs:
            for tensor, array in zip(outputs, results, strict=True):
                tensor._receive(array)
            return outputs
        tensors = output_tensors(self._output_names, results)
        for tensor in tensors:
            tensor.format = Format.NCHW
        return tensors

    def update_weights(self, weights: list[list[Tensor]]) -> None:
        """Give weights other values, for all workers at once; see `Model.update_weights`.

        Raises:
            TypeError: The argument is no list of lists of tensors.
            RuntimeError: The runner is not built, or a name, type or shape is wrong; the text tells each.
        """
        check_weights(weights)
        if self._pool is None:
            raise RuntimeError("update weight failed! The runner is not built; call build_from_file first.")
        try:
            self._pool.update_weights(arrays_of(weights, self._weights))
        except LitehouseError as error:
            raise RuntimeError(f"update weight failed! Error is {error}") from error

    def _array(self, place: int, tensor: Tensor) -> Array:
        array = tensor._array
        if array is None:
            raise RuntimeError(f"predict failed! Input {self._inputs[place].name!r} has no data; set it first.")
        return array

    def _check_outputs(self, inputs: object, outputs: list[Tensor]) -> None:
        """Check what results are written into, in the original's words."""
        if not isinstance(outputs, list):
            raise TypeError(f"outputs must be list, bug got {type(inputs)}.")
        for index, tensor in enumerate(outputs):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"outputs element must be Tensor, bug got {type(tensor)} at index {index}.")
            if tensor._device:
                raise RuntimeError(f"predict failed! {_HOST_ONLY.format(f'outputs[{index}]')}")
        if outputs and len(outputs) != len(self._output_names):
            raise RuntimeError(f"predict failed! The model has {len(self._output_names)} outputs, not {len(outputs)}.")
