"""The one place that talks to `torch_xla`: old names and those of 2.9, found by probing.

old                          2.9
xm.xla_device()              torch_xla.device()
xm.get_xla_supported_devices torch_xla.devices()
xm.mark_step()               torch_xla.sync()
xm.xrt_world_size()          runtime.world_size()
xm.get_ordinal()             runtime.global_ordinal()
xm.xla_device_hw(device)     runtime.device_type()
kb_free, kb_total            bytes_used, bytes_limit, peak_bytes_used
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from torchbridge.backends.tpu.exceptions import TPUMemoryError, XLANotAvailable

INSTALL = "pip install 'torch~=2.9.0' 'torch_xla[tpu]~=2.9.0' (both of the same minor version)"


def load() -> XLA:
    """The installed torch_xla.

    Raises:
        XLANotAvailable: there is none, or it was built for another torch.
    """
    try:
        for part in ("core.xla_model", "debug.metrics"):
            importlib.import_module(f"torch_xla.{part}")
        for part in ("runtime", "backends"):  # old ones have neither
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(f"torch_xla.{part}")
    except (ImportError, OSError) as error:
        raise XLANotAvailable(f"torch_xla cannot be imported ({error}); {INSTALL}") from error
    return XLA(importlib.import_module("torch_xla"))


@dataclass(frozen=True, slots=True)
class MemoryInfo:
    """Bytes of one device; `peak` None where torch_xla does not tell."""

    used: int
    limit: int
    peak: int | None = None

    @property
    def free(self) -> int:
        """Not in use."""
        return self.limit - self.used


@dataclass(frozen=True, slots=True)
class Compilations:
    """How many graphs XLA has compiled in this process, and the seconds that took."""

    count: int
    seconds: float


class XLA:
    """`torch_xla` by one set of names. Tests give a stand-in with the module's attributes."""

    def __init__(self, module: ModuleType | Any) -> None:
        self.module = module
        self._model = module.core.xla_model
        self._metrics = module.debug.metrics
        self._runtime = getattr(module, "runtime", None)

    @property
    def version(self) -> str:
        """Of torch_xla."""
        return str(getattr(self.module, "__version__", "unknown"))

    def device(self, index: int | None = None) -> torch.device:
        """One of this process's devices, the default one without an index."""
        return self._first((self.module, "device"), (self._model, "xla_device"))(index)

    def devices(self) -> list[torch.device]:
        """All devices of this process."""
        if hasattr(self.module, "devices"):
            return list(self.module.devices())
        return [torch.device(name) for name in self._model.get_xla_supported_devices()]

    def sync(self, *, wait: bool = False) -> None:
        """Hand all pending operations to XLA; `wait` until they are done."""
        self._first((self.module, "sync"), (self._model, "mark_step"))(wait=wait)

    def wait(self) -> None:
        """Until the devices are idle."""
        self._model.wait_device_ops()

    @property
    def world_size(self) -> int:
        """Processes (devices) in the job."""
        return self._first((self._runtime, "world_size"), (self._model, "xrt_world_size"))()

    @property
    def ordinal(self) -> int:
        """This process among them."""
        return self._first((self._runtime, "global_ordinal"), (self._model, "get_ordinal"))()

    @property
    def device_type(self) -> str:
        """What is behind the device: `TPU`, or `CPU` under PJRT_DEVICE=CPU."""
        if hasattr(self._runtime, "device_type"):
            return self._runtime.device_type() or "unknown"
        return self._model.xla_device_hw(self.device())

    @property
    def is_tpu(self) -> bool:
        """Is it a TPU that computes?"""
        return self.device_type == "TPU"

    @property
    def accelerator(self) -> str:
        """What the chip is called: `v5litepod-8` by the environment, else `TPU v5 lite` by PJRT."""
        told = os.environ.get("TPU_ACCELERATOR_TYPE")
        if told or not hasattr(self._model, "xla_device_kind"):
            return told or "unknown"
        return self._model.xla_device_kind(str(self.device()))

    def memory(self, device: torch.device) -> MemoryInfo:
        """Of one device.

        Raises:
            TPUMemoryError: this runtime does not count (PJRT's CPU, say).
        """
        try:
            told = self._model.get_memory_info(device)
        except RuntimeError as error:
            raise TPUMemoryError(f"{device} does not tell its memory: {error}") from error
        if "kb_total" in told:
            total, free = 1024 * told["kb_total"], 1024 * told["kb_free"]
            return MemoryInfo(total - free, total)
        peak = told.get("peak_bytes_used")
        return MemoryInfo(int(told["bytes_used"]), int(told["bytes_limit"]), peak)

    def compilations(self) -> Compilations:
        """So far."""
        told = self._metrics.metric_data("CompileTime")
        return Compilations(int(told[0]), told[1] / 1e9) if told else Compilations(0, 0.0)

    @property
    def matmul_precision(self) -> str | None:
        """What float32 products lose: default, high or highest; None where it cannot be set."""
        knobs = getattr(self.module, "backends", None)
        return knobs.get_mat_mul_precision() if hasattr(knobs, "get_mat_mul_precision") else None

    def set_matmul_precision(self, precision: str) -> None:
        """For all graphs compiled from now on; only where `matmul_precision` is not None."""
        self.module.backends.set_mat_mul_precision(precision)

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Sum over all processes."""
        return self._model.all_reduce("sum", tensor)

    def optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Average the gradients over all processes, then step."""
        self._model.optimizer_step(optimizer)

    def save(self, data: Any, path: str) -> None:
        """Write `data` as CPU tensors, from the first process only."""
        self._model.save(data, path)

    @staticmethod
    def _first(*places: tuple[Any, str]) -> Callable[..., Any]:
        """The first function that exists, newest name first."""
        for owner, name in places:
            if hasattr(owner, name):
                return getattr(owner, name)
        names = " or ".join(name for _, name in places)
        raise XLANotAvailable(f"this torch_xla has neither {names}; {INSTALL}")
