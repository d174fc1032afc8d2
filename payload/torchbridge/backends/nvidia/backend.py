"""NVIDIA's devices through CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from torchbridge import passes
from torchbridge.attention.flash import find_package
from torchbridge.backends.backend import Backend
from torchbridge.backends.nvidia.exceptions import (
    ConfigurationError,
    FlashAttentionError,
    InvalidArchitectureError,
    InvalidComputeCapabilityError,
    ModelOptimizationError,
    OutOfMemoryError,
)
from torchbridge.backends.nvidia.fp8_compiler import FP8Compiler
from torchbridge.backends.nvidia.fusion import fuse_linear_activation
from torchbridge.backends.optimise import bfloat16, channels_last, compile_model, float16
from torchbridge.config import Config, NVIDIAArchitecture
from torchbridge.hardware import Hardware
from torchbridge.kernels import REGISTRY, KernelRegistry
from torchbridge.passes import Pass, Prepared, Setting

FLASH_HEAD_DIM = 256  # the largest that its kernels are built for


class NVIDIABackend(Backend):
    """Rules go by compute capability. `settings` are the config's, what they leave open decided
    by the hardware.

    On top of the shared passes the aggressive level computes in float16 on tensor cores that have
    no bfloat16 (Volta, Turing), and in float8 where the config asks for it (`fp8_enabled=True`).
    """

    name = "nvidia"
    vendor = "nvidia"

    def __init__(
        self,
        config: Config | None = None,
        *,
        hardware: Hardware | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        """As `Backend`'s.

        Raises:
            InvalidComputeCapabilityError: a device older than Pascal.
            InvalidArchitectureError: the config names another architecture than the device's.
            ConfigurationError: it asks for what the device has not.
        """
        super().__init__(config, hardware=hardware, device=device)
        if self.hardware.architecture == "unsupported":
            found = self.hardware.target
            raise InvalidComputeCapabilityError(f"{found} is too old: sm_60 is the least")
        section = self.config.hardware.nvidia
        named, found = section.architecture, self.hardware.architecture
        if self._is_nvidia and named not in (NVIDIAArchitecture.AUTO, found):
            message = f"the config says {named.value}, the device is {found}"
            raise InvalidArchitectureError(f"{message} ({self.hardware.target}); say auto")
        try:
            self.settings = section.on(self.hardware)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error

    @classmethod
    def find_devices(cls) -> list[torch.device]:
        """All CUDA devices; none where CUDA's interface is ROCm's."""
        if torch.version.hip or not torch.cuda.is_available():
            return []
        return [torch.device("cuda", index) for index in range(torch.cuda.device_count())]

    @property
    def _is_nvidia(self) -> bool:
        return self.hardware.vendor == "nvidia"

    @property
    def is_cuda_available(self) -> bool:
        """The same as `is_available`."""
        return self.is_available

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """(8, 9), say; None without an NVIDIA device."""
        return self.hardware.capability

    @property
    def is_h100(self) -> bool:
        """Hopper: H100, H200, GH200."""
        return self.hardware.architecture == "hopper"

    @property
    def is_blackwell(self) -> bool:
        """sm_100 and later."""
        return self.hardware.architecture == "blackwell"

    @property
    def supports_fp8(self) -> bool:
        """sm_89 and later: Ada, L4 among it, Hopper, Blackwell."""
        return self._is_nvidia and self.hardware.has("fp8")

    @property
    def kernel_registry(self) -> KernelRegistry:
        """The fused kernels, to be looked up with this backend's hardware."""
        return REGISTRY

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """The shared ones, with what only NVIDIA's units have."""
        chosen = list(super().passes(level, training))
        if bfloat16 in chosen and self._narrow is float16:
            chosen[chosen.index(bfloat16)] = float16
        asked = self.config.hardware.nvidia.fp8_enabled is True  # left open it changes no numbers
        if compile_model in chosen and asked and not training:
            fp8 = FP8Compiler(self.config, hardware=self.hardware).apply_pass
            chosen.insert(chosen.index(compile_model), fp8)
        return chosen

    @property
    def _narrow(self) -> Pass:
        """The 16-bit format of the tensor cores."""
        old = self.hardware.has("tensor_cores") and not self.hardware.has("bf16")
        return float16 if old else bfloat16

    def setting(self, sample_inputs: Sequence[Tensor] = (), *, training: bool = False) -> Setting:
        """With CUDA graphs where the config asks for them."""
        setting = super().setting(sample_inputs, training=training)
        if self.settings.cuda_graphs and self.is_available:
            return replace(setting, compile_mode="reduce-overhead")
        return setting

    def prepare_model(
        self,
        model: nn.Module | None,
        *,
        level: str | None = None,
        sample_inputs: Sequence[Tensor] = (),
        training: bool = False,
        measure_s: float = 0.0,
    ) -> Prepared | None:
        """As `Backend`'s.

        Raises:
            TypeError: the model is no module.
            OutOfMemoryError: the model does not fit on the device.
            ModelOptimizationError: a pass failed.
        """
        options = {"sample_inputs": sample_inputs, "training": training, "measure_s": measure_s}
        try:
            return super().prepare_model(model, level=level, **options)
        except torch.OutOfMemoryError as error:
            raise OutOfMemoryError(f"Insufficient GPU memory for the model: {error}") from error
        except RuntimeError as error:
            raise ModelOptimizationError(f"{type(model).__name__}: {error}") from error

    def optimize_for_tensor_cores(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> Prepared:
        """Only what tensor cores need: channels-last and a 16-bit format."""
        chosen = (channels_last, self._narrow)
        return passes.apply(model, self.setting(sample_inputs), chosen, level="tensor_cores")

    def prepare_model_with_custom_kernels(self, model: nn.Module) -> Prepared:
        """Linear layers and the activations behind them as one fused layer each.

        Raises:
            KernelLaunchError: a fused kernel failed, or computes something else.
        """
        return passes.apply(model, self.setting(), (fuse_linear_activation,), level="kernels")

    def get_optimal_attention_kernel(
        self, *, dtype: torch.dtype = torch.bfloat16, head_dim: int = 64, name: str | None = None
    ) -> str:
        """The path for `torchbridge.attention.attend`; with `name`, that one or an error.

        Raises:
            FlashAttentionError: the path of that name cannot be used.
        """
        refused = self._refused_attention(dtype, head_dim)
        if name is None:
            return next(path for path, reason in refused.items() if reason is None)
        reason = refused.get(name, f"known are {', '.join(refused)}")
        if reason is not None:
            raise FlashAttentionError(f"{name}: {reason}")
        return name

    def _refused_attention(self, dtype: torch.dtype, head_dim: int) -> dict[str, str | None]:
        """Each path, the fastest first, and why it cannot be used."""
        flash = package = None
        if head_dim > FLASH_HEAD_DIM:
            flash = f"heads of {head_dim} are wider than {FLASH_HEAD_DIM}"
        if dtype not in (torch.float16, torch.bfloat16):
            flash = f"it computes in 16 bit, not in {dtype}"
        if not self._is_nvidia or (self.compute_capability or (0, 0)) < (8, 0):
            flash = f"needs sm_80; this is {self.hardware.target}"
        if not self.is_h100 or find_package(self.hardware) is None:
            package = "needs Hopper and the package flash_attn_interface"
        efficient = None if self._is_nvidia else f"needs NVIDIA; this is {self.hardware.vendor}"
        if dtype is torch.bfloat16 and not self.hardware.has("bf16"):
            efficient = f"it computes no bfloat16 on {self.hardware.target}"
        return {
            "flash_attn": package or flash,
            "sdpa_flash": flash,
            "sdpa_efficient": efficient,
            "sdpa_math": None,
        }
