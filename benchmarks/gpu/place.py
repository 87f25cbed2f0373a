"""Where tensors are, and the clock for what is computed there: all that is CUDA's own is here."""

import contextlib
import gc
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence

import torch

from litehouse.device import place

WARM_UP = 3  # runs before a capture: kernels are chosen, and memory is taken


class Place:
    """A GPU, or the CPU for a rehearsal.

    Attributes:
        device: Its name in Litehouse.
        torch: Its name in torch.
        is_gpu: Whether it is a GPU.
    """

    def __init__(self, device: str) -> None:
        self.device, self.torch = device, place(device)
        self.is_gpu = self.torch.type == "cuda"

    @property
    def options(self) -> dict[str, str]:
        """The options of Litehouse that bring a model here: on the CPU torch must be asked for."""
        return {"device": self.device} if self.is_gpu else {"device": self.device, "engine": "torch"}

    @property
    def title(self) -> str:
        """Its name for people."""
        return (
            str(torch.cuda.get_device_name(self.torch))
            if self.is_gpu
            else "CPU tensors, a rehearsal: times mean nothing"
        )

    def put(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors, here."""
        return [tensor.to(self.torch) for tensor in tensors]

    def synchronize(self) -> None:
        """Wait for all that was begun here."""
        if self.is_gpu:
            torch.cuda.synchronize(self.torch)

    def seconds(self, run: Callable[[], object], calls: int) -> float:
        """The seconds of one call of many, back to back, by the clock of the host between synchronisations."""
        self.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            run()
        self.synchronize()
        return (time.perf_counter() - start) / calls

    def seconds_on_device(self, run: Callable[[], object], calls: int) -> float:
        """The seconds of one call of many, by the device's own clock."""
        if not self.is_gpu:
            return self.seconds(run, calls)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        with torch.cuda.device(self.torch):
            self.synchronize()
            start.record()
            for _ in range(calls):
                run()
            end.record()
        self.synchronize()
        return float(start.elapsed_time(end)) / 1e3 / calls

    def captured(self, run: Callable[[], object]) -> Callable[[], object]:
        """What a function does here, as a CUDA graph over the same memory; on the CPU, the function."""
        if not self.is_gpu:
            return run
        with torch.cuda.device(self.torch):
            return self._captured(run)

    def _captured(self, run: Callable[[], object]) -> Callable[[], object]:
        stream = torch.cuda.Stream(self.torch)
        stream.wait_stream(torch.cuda.current_stream(self.torch))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream(self.torch).wait_stream(stream)
        self.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = run()

        def replay(_: object = kept) -> None:  # the outputs stay, where a caller may look at them
            graph.replay()

        return replay

    def used(self) -> int:
        """Bytes that are taken on the card, by whomever; 0 on the CPU."""
        if not self.is_gpu:
            return 0
        free, total = torch.cuda.mem_get_info(self.torch)
        return int(total - free)

    def clear(self) -> None:
        """Give back the memory of what is not used any more."""
        gc.collect()
        if self.is_gpu:
            torch.cuda.empty_cache()

    @contextlib.contextmanager
    def exact(self) -> Iterator[None]:
        """No gradients, 32 bits where they are asked for, and for every convolution the algorithm that is fastest."""
        products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
        before = products.allow_tf32, convolutions.allow_tf32, convolutions.benchmark
        products.allow_tf32, convolutions.allow_tf32, convolutions.benchmark = False, False, True
        try:
            with torch.no_grad():
                yield
        finally:
            products.allow_tf32, convolutions.allow_tf32, convolutions.benchmark = before


def used_by_process() -> dict[int, float]:
    """Megabytes on the card by process, as nvidia-smi tells; empty where it does not."""
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        return {int(pid): float(size) for pid, size in (line.split(",") for line in found.splitlines() if line.strip())}
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
