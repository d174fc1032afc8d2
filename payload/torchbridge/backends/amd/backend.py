"""AMD's devices by ROCm, which answers by CUDA's interface. Without one it works on the CPU."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from torchbridge.backends.amd.exceptions import (
    AMDArchitectureError,
    AMDConfigurationError,
    AMDDeviceError,
    AMDOptimizationError,
    MatrixCoreError,
    ROCmNotAvailableError,
)
from torchbridge.backends.backend import Backend, Optimizer
from torchbridge.backends.optimise import bfloat16, compile_model, passes_of
from torchbridge.config import Config, PrecisionFormat
from torchbridge.hardware import Hardware
from torchbridge.passes import Pass

_TILE = 16  # rows and columns of a matrix core's smallest product (v_mfma_*_16x16x*)


def matrix_core_fill(model: nn.Module) -> dict[str, float]:
    """For each linear layer, the share of its matrix-core tiles that holds weights, not padding."""
    return {
        name: module.weight.numel() / math.prod(_TILE * -(-n // _TILE) for n in module.weight.shape)
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear)
    }


class AMDBackend(Backend):
    """An AMD device. `settings` are the config's, what they leave open decided by the hardware."""

    name = "amd"
    vendor = "amd"
    device_error = AMDDeviceError
    pass_error = AMDOptimizationError

    def __init__(
        self,
        config: Config | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """As every backend's.

        Raises:
            AMDDeviceError: the settings' `device_id` is not there.
            AMDArchitectureError: a chip that is not known.
            AMDConfigurationError: the settings ask for what the chip is not.
            MatrixCoreError: they ask for matrix cores, or a number format, that it has not.
        """
        super().__init__(config, hardware=hardware, device=device)
        asked = self.config.hardware.amd
        found = self.hardware
        if found.vendor == "amd" and found.architecture == "unsupported":
            raise AMDArchitectureError(f"{found.target} is no CDNA or RDNA chip that is known")
        if found.vendor == "amd":
            self._refuse_missing(found)
        try:
            self.settings = asked.on(found)
        except ValueError as error:
            raise AMDConfigurationError(str(error)) from error

    @property
    def device_index(self) -> int:
        """AMD's own `device_id`, else the config's."""
        return self.config.hardware.amd.device_id or super().device_index

    def level_of(self, level: str | None) -> str:
        """For None that of AMD's own settings, if they have one, else the config's."""
        return super().level_of(self.settings.optimization_level if level is None else level)

    def _refuse_missing(self, found: Hardware) -> None:
        asked = self.config.hardware.amd
        if asked.matrix_cores and not found.has("matrix_cores"):
            raise MatrixCoreError(f"{found.architecture} ({found.target}) has no matrix cores")
        if asked.default_precision is PrecisionFormat.BF16 and not found.has("bf16"):
            raise MatrixCoreError(f"{found.architecture} ({found.target}) has no native bf16")

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """ROCm's devices; none where torch is built for CUDA."""
        if not torch.version.hip:
            return []
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]

    def require_rocm(self) -> torch.device:
        """The device, if it is AMD's.

        Raises:
            ROCmNotAvailableError: what is missing.
        """
        if not torch.version.hip:
            raise ROCmNotAvailableError(f"torch {torch.__version__} is not built for ROCm")
        if not self.devices:
            raise ROCmNotAvailableError("torch is built for ROCm but sees no device")
        return self.device

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """The shared ones; bfloat16 as `default_precision` says."""
        shared = passes_of(level, training=training)
        wanted = self.settings.default_precision
        if wanted is None or training:
            return shared
        others = [one for one in shared if one is not bfloat16]
        if wanted is PrecisionFormat.FP32:
            return others
        at = others.index(compile_model) if compile_model in others else len(others)
        return [*others[:at], bfloat16, *others[at:]]


class AMDOptimizer(Optimizer):
    """An AMD device's levels by their own names."""

    backend_class = AMDBackend
