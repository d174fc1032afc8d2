"""CUDA itself: its devices, its switches, what is installed. The module is `torch.cuda`; a test may
give another one that answers like it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch import nn

from torchbridge import passes
from torchbridge.backends.nvidia.exceptions import CUDADeviceError, CUDANotAvailableError
from torchbridge.backends.optimise import channels_last, to_device
from torchbridge.config import Config
from torchbridge.hardware import Hardware, probe
from torchbridge.passes import Prepared, Setting
from torchbridge.timing import Spread, timed, warm_up

# what newer versions of torch tell besides
_PROPERTIES = (
    "L2_cache_size",
    "clock_rate",
    "max_threads_per_block",
    "max_threads_per_multi_processor",
    "memory_bus_width",
    "memory_clock_rate",
    "regs_per_multiprocessor",
    "shared_memory_per_block",
    "shared_memory_per_multiprocessor",
    "warp_size",
)


class CUDADeviceManager:
    """The CUDA devices of this machine; without any, the CPU is the device."""

    def __init__(self, cuda: ModuleType | Any = torch.cuda) -> None:
        self.cuda = cuda
        self.device_count = cuda.device_count() if cuda.is_available() else 0

    @property
    def device(self) -> torch.device:
        """The one in use."""
        if not self.device_count:
            return torch.device("cpu")
        return torch.device("cuda", self.cuda.current_device())

    def set_device(self, index: int) -> None:
        """Use another one.

        Raises:
            CUDANotAvailableError: there is none at all.
            CUDADeviceError: there is none of this number.
        """
        self._require(index)
        self.cuda.set_device(index)

    def get_device_properties(self, index: int = 0) -> dict[str, Any]:
        """What the driver tells; None for what this version of torch does not pass on.

        Raises:
            CUDANotAvailableError: there is none at all.
            CUDADeviceError: there is none of this number.
        """
        self._require(index)
        found = self.cuda.get_device_properties(index)
        known = {
            "name": found.name,
            "compute_capability": (found.major, found.minor),
            "total_memory": found.total_memory,
            "multi_processor_count": found.multi_processor_count,
        }
        return known | {name: getattr(found, name, None) for name in _PROPERTIES}

    def synchronize(self) -> None:
        """Wait for the device in use, if there is one."""
        if self.device_count:
            self.cuda.synchronize(self.device)

    def _require(self, index: int) -> None:
        if not self.device_count:
            raise CUDANotAvailableError("there is no CUDA device on this machine")
        if not 0 <= index < self.device_count:
            raise CUDADeviceError(f"device {index}: there are {self.device_count}, from 0")


class CUDAOptimizations:
    """What CUDA can be told, and what is done to any model before it runs there."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        device: torch.device | None = None,
        hardware: Hardware | None = None,
    ) -> None:
        self.config = config if config is not None else Config()
        self.device = device if device is not None else CUDADeviceManager().device
        self.hardware = hardware if hardware is not None else probe(self.device)

    def wanted_flags(self) -> dict[str, bool]:
        """TF32 where it is asked for and native; cuDNN's search for the best convolution."""
        tf32 = self.config.precision.allow_tf32 and self.hardware.has("tf32")
        return {"tf32": tf32, "cudnn_benchmark": self.config.hardware.nvidia.cudnn_benchmark}

    @contextlib.contextmanager
    def flags(self) -> Iterator[dict[str, bool]]:
        """torch's switches as `wanted_flags` says, and afterwards as they were."""
        wanted, cudnn = self.wanted_flags(), torch.backends.cudnn
        before = torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark
        torch.set_float32_matmul_precision("high" if wanted["tf32"] else "highest")
        cudnn.allow_tf32, cudnn.benchmark = wanted["tf32"], wanted["cudnn_benchmark"]
        try:
            yield wanted
        finally:
            torch.set_float32_matmul_precision(before[0])
            cudnn.allow_tf32, cudnn.benchmark = before[1:]

    def optimize_model(self, model: nn.Module) -> Prepared:
        """The model itself on the device, convolutions channels-last."""
        setting = Setting(self.device, self.hardware)
        return passes.apply(model, setting, (to_device, channels_last), level="layout")


class CUDAUtilities:
    """Facts for a person who wonders what this machine has."""

    def __init__(self, cuda: ModuleType | Any = torch.cuda) -> None:
        self.manager = CUDADeviceManager(cuda)

    def get_cuda_env_info(self) -> dict[str, Any]:
        """Versions and devices; None for what is not there."""
        manager, cudnn = self.manager, torch.backends.cudnn
        names = [manager.get_device_properties(i)["name"] for i in range(manager.device_count)]
        return {
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": cudnn.version() if cudnn.is_available() else None,
            "available": manager.device_count > 0,
            "device_count": manager.device_count,
            "devices": names,
            "compiled_for": manager.cuda.get_arch_list(),
        }

    def profile(self, work: Callable[[], object], *, iterations: int = 20) -> Spread:
        """Seconds of one call, the device waited for: median and quartiles after a warm-up."""
        device = self.manager.device
        warm_up(work, device)
        return Spread.of([timed(work, device) for _ in range(iterations)])

    def utilisation(self) -> int:
        """Per cent of the last period in which the device in use was busy.

        Raises:
            CUDANotAvailableError: no device, or NVIDIA's management library is missing.
        """
        if not self.manager.device_count:
            raise CUDANotAvailableError("there is no CUDA device on this machine")
        try:
            return self.manager.cuda.utilization(self.manager.device)
        except ModuleNotFoundError as error:
            message = "nvidia-ml-py is not installed: the device cannot be asked how busy it is"
            raise CUDANotAvailableError(message) from error


def create_cuda_integration(
    config: Config | None = None, cuda: ModuleType | Any = torch.cuda
) -> tuple[CUDADeviceManager, CUDAOptimizations]:
    """The devices, and what to do with the one in use."""
    manager = CUDADeviceManager(cuda)
    return manager, CUDAOptimizations(config, device=manager.device)
