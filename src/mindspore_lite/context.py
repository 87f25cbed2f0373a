"""`Context`: on which device a model runs, and how."""

import logging
import os
from typing import NoReturn

from litehouse import LitehouseError, Place, find_place
from mindspore_lite._checks import check_choice, check_count, check_instance, check_list, check_sections

TARGETS = ("cpu", "gpu", "ascend")
PRECISION_MODES = ("enforce_fp32", "preferred_fp16")
GPU_PROVIDERS = ("tensorrt", "cuda")
ASCEND_PRECISION_MODES = ("enforce_fp32", "preferred_fp32", "enforce_fp16", "enforce_origin", "preferred_optimal")

logger = logging.getLogger("mindspore_lite")


class _CPU:
    """Settings of the CPU. Any further attribute may be set, and is ignored, as in the original."""

    def __init__(self) -> None:
        self._precision_mode = "enforce_fp32"
        self._thread_num = 0
        self._inter_op_parallel_num = 0
        self._thread_affinity_mode = 0
        self._thread_affinity_core_list: list[int] = []

    def __str__(self) -> str:
        return (
            "device_type: DeviceType.kCPU,\n"
            f"precision_mode: {self.precision_mode},\n"
            f"thread_num: {self.thread_num},\n"
            f"inter_op_parallel_num: {self.inter_op_parallel_num},\n"
            f"thread_affinity_mode: {self.thread_affinity_mode},\n"
            f"thread_affinity_core_list: {self.thread_affinity_core_list}."
        )

    @property
    def precision_mode(self) -> str:
        """`"enforce_fp32"`, or `"preferred_fp16"` where lower precision is allowed."""
        return self._precision_mode

    @precision_mode.setter
    def precision_mode(self, value: str) -> None:
        check_choice("cpu_precision_mode", value, PRECISION_MODES)
        self._precision_mode = value

    @property
    def thread_num(self) -> int:
        """Threads inside one op; 0 takes what the process may use."""
        return self._thread_num

    @thread_num.setter
    def thread_num(self, value: int) -> None:
        check_count("cpu_thread_num", value)
        self._thread_num = int(value)

    @property
    def inter_op_parallel_num(self) -> int:
        """Ops that run side by side, at most `thread_num`; 0 leaves it to the engine."""
        return self._inter_op_parallel_num

    @inter_op_parallel_num.setter
    def inter_op_parallel_num(self, value: int) -> None:
        check_count("cpu_inter_op_parallel_num", value)
        self._inter_op_parallel_num = int(value)

    @property
    def thread_affinity_mode(self) -> int:
        """0 binds no thread, 1 binds to big cores, 2 to mid cores. Other numbers become 0."""
        return self._thread_affinity_mode

    @thread_affinity_mode.setter
    def thread_affinity_mode(self, value: int) -> None:
        check_instance("cpu_thread_affinity_mode", value, int)
        if value not in (0, 1, 2):
            logger.warning("thread_affinity_mode %s is none of 0, 1 and 2: threads will not be bound", value)
            value = 0
        self._thread_affinity_mode = int(value)

    @property
    def thread_affinity_core_list(self) -> list[int]:
        """Ids of the cores to bind to. A list that is not empty wins over `thread_affinity_mode`."""
        return list(self._thread_affinity_core_list)

    @thread_affinity_core_list.setter
    def thread_affinity_core_list(self, value: list[int]) -> None:
        check_list("cpu_thread_affinity_core_list", value, int)
        self._thread_affinity_core_list = [int(core) for core in value]


class _GPU:
    """Settings of the GPU. Any further attribute may be set, and is ignored, as in the original."""

    def __init__(self, ascend: "_Ascend | None" = None) -> None:
        self._precision_mode = "enforce_fp32"
        self._device_id = 0
        self._provider = ""
        self._ascend = ascend

    def __str__(self) -> str:
        return (
            "device_type: DeviceType.kGPU,\n"
            f"precision_mode: {self.precision_mode},\n"
            f"device_id: {self.device_id},\n"
            f"rank_id: {self.rank_id},\n"
            f"group_size: {self.group_size}."
        )

    @property
    def precision_mode(self) -> str:
        """`"enforce_fp32"`, or `"preferred_fp16"` where lower precision is allowed."""
        return self._precision_mode

    @precision_mode.setter
    def precision_mode(self, value: str) -> None:
        check_choice("gpu_precision_mode", value, PRECISION_MODES)
        self._precision_mode = value

    @property
    def device_id(self) -> int:
        """Which GPU."""
        return self._device_id

    @device_id.setter
    def device_id(self, value: int) -> None:
        check_count("gpu_device_id", value)
        self._device_id = int(value)

    @property
    def provider(self) -> str:
        """The software that drives the GPU: `"tensorrt"` or `"cuda"`; `""` leaves it to the engine."""
        return self._provider

    @provider.setter
    def provider(self, value: str) -> None:
        if value != "":
            check_choice("gpu_provider", value, GPU_PROVIDERS)
        self._provider = value

    @property
    def rank_id(self) -> int:
        """The rank of this process, as its launcher or `ascend.rank_id` tells; 0 without one; read only."""
        place = self._place()
        rank = None if self._ascend is None else self._ascend._rank_id
        return place.rank if rank is None or rank >= place.size else rank

    @rank_id.setter
    def rank_id(self, _: object) -> NoReturn:
        raise AttributeError("can't set attribute")

    @property
    def group_size(self) -> int:
        """How many ranks run together, as the launcher tells; 1 without one; read only."""
        return self._place().size

    @group_size.setter
    def group_size(self, _: object) -> NoReturn:
        raise AttributeError("can't set attribute")

    def _place(self) -> Place:
        try:
            return find_place()
        except LitehouseError as error:
            raise RuntimeError(f"Get rank failed! Error is {error}") from error


class _Ascend:
    """Settings of the Ascend NPU. Any further attribute may be set, and is ignored, as in the original."""

    def __init__(self) -> None:
        self._precision_mode = ""
        self._device_id = 0
        self._provider = ""
        self._rank_id: int | None = None  # until it is set, the launcher tells

    def __str__(self) -> str:
        return (
            "device_type: DeviceType.kAscend,\n"
            f"precision_mode: {self.precision_mode},\n"
            f"device_id: {self.device_id}.provider: {self.provider}.rank_id: {self.rank_id}."
        )

    @property
    def precision_mode(self) -> str:
        """One of `ASCEND_PRECISION_MODES`, or `""` for the device's own choice."""
        return self._precision_mode

    @precision_mode.setter
    def precision_mode(self, value: str) -> None:
        check_choice("ascend_precision_mode", value, ASCEND_PRECISION_MODES)
        self._precision_mode = value

    @property
    def device_id(self) -> int:
        """Which NPU."""
        return self._device_id

    @device_id.setter
    def device_id(self, value: int) -> None:
        check_count("ascend_device_id", value)
        self._device_id = int(value)

    @property
    def provider(self) -> str:
        """The software that drives the NPU, as `"ge"`."""
        return self._provider

    @provider.setter
    def provider(self, value: str) -> None:
        check_instance("ascend_provider", value, str)
        self._provider = value

    @property
    def rank_id(self) -> int:
        """The rank of this process. One that is set wins over what a rank table or a launcher tells."""
        return self._rank_id or 0

    @rank_id.setter
    def rank_id(self, value: int) -> None:
        check_count("ascend_rank_id", value)
        self._rank_id = int(value)


class _Parallel:
    """Settings of a runner with several workers. Any further attribute may be set, and is ignored."""

    def __init__(self) -> None:
        self._workers_num = 0
        self._config_info: dict[str, dict[str, str]] = {}
        self._config_path = ""
        self._device_ids: list[int] = []

    def __str__(self) -> str:
        return f"workers num: {self.workers_num},\nconfig info: {self.config_info},\nconfig file: {self.config_path}."

    @property
    def workers_num(self) -> int:
        """Workers that run the model side by side; 0 leaves it to the runner."""
        return self._workers_num

    @workers_num.setter
    def workers_num(self, value: int) -> None:
        check_count("workers_num", value, prefix="Set parallel failed, ")
        self._workers_num = int(value)

    @property
    def config_info(self) -> str:
        """All sections that were set, as text. Set a dict of sections; each set adds to or replaces sections."""
        text = ""
        for name, entries in sorted(self._config_info.items()):
            text += f"{name}: " + "".join(f"{key} {value}\n" for key, value in sorted(entries.items()))
        return text.removesuffix("\n")

    @config_info.setter
    def config_info(self, value: dict[str, dict[str, str]]) -> None:
        check_sections("config_info", value)
        self._config_info.update({name: dict(entries) for name, entries in value.items()})

    @property
    def config_path(self) -> str:
        """A configuration file. Setting an empty text changes nothing."""
        return self._config_path

    @config_path.setter
    def config_path(self, value: str) -> None:
        check_instance("config_path", value, str)
        if not value:
            return
        if not os.path.exists(value):
            raise ValueError("Set parallel failed, config_path does not exist!")
        self._config_path = value

    @property
    def device_ids(self) -> list[int]:
        """The device that the workers use, in the place of `device_id`. A runner for more than one is refused."""
        return list(self._device_ids)

    @device_ids.setter
    def device_ids(self, value: list[int]) -> None:
        check_list("device_ids", value, int)
        if any(index < 0 for index in value):
            raise ValueError("Set parallel failed, device_ids contain a negative number.")
        self._device_ids = [int(index) for index in value]


class Context:
    """On which device a model runs, and how.

    Attributes:
        cpu: Threads, affinity and precision on the CPU.
        gpu: Index, precision and provider of the GPU, and which rank of how many this process is.
        ascend: Index, precision, provider and rank of the NPU.
        parallel: Workers of a runner.

    Example:
        >>> context = Context()
        >>> context.cpu.thread_num = 2
        >>> print(context)
        target: ['cpu'].
    """

    def __init__(self) -> None:
        self._target = ["cpu"]
        self._group_info_file = ""
        self.cpu = _CPU()
        self.ascend = _Ascend()
        self.gpu = _GPU(self.ascend)
        self.parallel = _Parallel()

    def __str__(self) -> str:
        return f"target: {self.target}."

    @property
    def target(self) -> list[str]:
        """Names of devices: `"cpu"`, `"gpu"`, `"ascend"`. An empty value stands for the CPU.

        A device that this machine lacks is accepted here, and refused when a model is built.
        """
        return self._target

    @target.setter
    def target(self, value: list[str] | None) -> None:
        if not value:
            self._target = ["cpu"]
            return
        check_list("target", value, str)
        for name in value:
            if name.lower() not in TARGETS:
                raise ValueError(f"target elements must be in {list(TARGETS)}, but got {name.lower()}.")
        self._target = value

    @property
    def group_info_file(self) -> str:
        """The file that tells the groups of ranks of a distributed model."""
        return self._group_info_file

    @group_info_file.setter
    def group_info_file(self, value: str) -> None:
        check_instance("group_info_file", value, str)
        self._group_info_file = value
