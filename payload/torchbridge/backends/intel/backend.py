"""Intel's GPUs by torch.xpu. Without one it says so and works on the CPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torchbridge.backends.backend import Backend, OptimizationResult, Optimizer
from torchbridge.backends.intel.devices import is_xpu_available, require_xpu
from torchbridge.backends.intel.exceptions import XPUDeviceError, XPUOptimizationError
from torchbridge.backends.intel.memory import IntelMemoryManager
from torchbridge.backends.optimise import LEVELS, bfloat16, passes_of
from torchbridge.config import Config, IntelArchitecture, IntelConfig, PrecisionFormat
from torchbridge.config.intel import LEVELS as INTEL_LEVELS
from torchbridge.hardware import Hardware
from torchbridge.passes import Pass, Prepared

_NAMES = dict(zip(INTEL_LEVELS, LEVELS, strict=True))


class IntelBackend(Backend):
    """An Intel GPU. Levels go by either name: O0, O1, O2, or conservative, balanced, aggressive."""

    name = "intel"
    vendor = "intel"
    device_error = XPUDeviceError
    pass_error = XPUOptimizationError

    def __init__(
        self,
        config: Config | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """As every backend's.

        Raises:
            XPUNotAvailableError: the settings insist (`enabled`), and there is no XPU.
            XPUDeviceError: their `device_id` is not there, or of another architecture.
        """
        super().__init__(config, hardware=hardware, device=device)
        if self.settings.enabled and not self.devices:
            require_xpu()
        asked, found = self.settings.architecture, self.hardware.architecture
        named = {one.value for one in IntelArchitecture} - {"auto"}  # torch tells others by number
        if asked.value in named and found in named and asked.value != found:
            raise XPUDeviceError(f"architecture is {asked.value}, the device is {found}")
        self.memory = IntelMemoryManager(self.settings, self.device)

    @property
    def device_index(self) -> int:
        """Intel's own `device_id`, else the config's."""
        return self.settings.device_id or super().device_index

    def level_of(self, level: str | None) -> str:
        """By either name; for None that of Intel's own settings."""
        wanted = self.settings.optimization_level if level is None else level
        return super().level_of(_NAMES.get(wanted, wanted))

    @property
    def settings(self) -> IntelConfig:
        """Intel's part of the config."""
        return self.config.hardware.intel

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """The XPUs of this machine."""
        return [torch.device("xpu", index) for index in range(torch.xpu.device_count())]

    @property
    def is_xpu_available(self) -> bool:
        """Does torch see an XPU?"""
        return is_xpu_available()

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """The shared ones; no bfloat16 where `default_precision` is fp32."""
        shared = passes_of(level, training=training)
        kept = self.settings.default_precision is PrecisionFormat.FP32
        return [one for one in shared if not (kept and one is bfloat16)]

    def memory_summary(self) -> str:
        """One line for a person."""
        return self.memory.memory_summary()


class IntelOptimizer(Optimizer):
    """Intel's levels: O0, O1, O2."""

    backend_class = IntelBackend

    def optimize(
        self,
        model: nn.Module,
        level: str | None = None,
        sample_inputs: Sequence[Tensor] = (),
        *,
        training: bool = False,
        measure_s: float = 0.0,
    ) -> OptimizationResult:
        """As every optimizer's; the result's level goes by Intel's name.

        Raises:
            TypeError: the model is no module.
        """
        options = {"training": training, "measure_s": measure_s}
        result = super().optimize(model, level, sample_inputs, **options)
        names = {theirs: ours for ours, theirs in _NAMES.items()}
        return dataclasses.replace(result, optimization_level=names[result.optimization_level])


class XPUOptimizations:
    """Decisions for one device, and inference by them."""

    def __init__(self, backend: IntelBackend) -> None:
        self.backend = backend

    def get_optimal_dtype(self) -> torch.dtype:
        """The narrowest that is native and keeps float32's range; else float32."""
        return torch.bfloat16 if self.backend.hardware.has("bf16") else torch.float32

    def optimize_model_for_inference(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> Prepared:
        """The model at O2.

        Raises:
            TypeError: the model is no module.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"expected a torch.nn.Module, got {type(model).__name__}")
        return self.backend.prepare_model(model, level="O2", sample_inputs=sample_inputs)
