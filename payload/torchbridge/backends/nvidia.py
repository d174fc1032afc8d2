"""NVIDIA's devices through CUDA: backend, optimizer, fused layers, and CUDA itself.

For CUDA itself the module is `torch.cuda`; a test may give another one that answers like it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge import passes
from torchbridge.attention.flash import find_package, is_newer
from torchbridge.backends.backend import Backend, Optimizer
from torchbridge.backends.errors import (
    ArchitectureError,
    ConfigurationError,
    CUDADeviceError,
    CUDANotAvailableError,
    DeviceError,
    FlashAttentionError,
    FP8CompilationError,
    InvalidArchitectureError,
    InvalidComputeCapabilityError,
    KernelError,
    KernelLaunchError,
    MemoryAllocationError,
    ModelOptimizationError,
    NotAvailable,
    NVIDIABackendError,
    OptimizationError,
    OutOfMemory,
    OutOfMemoryError,
)
from torchbridge.backends.fp8_compiler import FP8Compiler, SpeedupEstimate
from torchbridge.backends.memory import NVIDIAMemoryManager
from torchbridge.backends.optimise import (
    CONVOLUTIONS,
    NORMS,
    bfloat16,
    channels_last,
    compile_model,
    float16,
    to_device,
)
from torchbridge.config import Config, NVIDIAArchitecture
from torchbridge.hardware import Hardware, probe
from torchbridge.kernels import (
    REGISTRY,
    FusedLinear,
    FusedLinearGELU,
    FusedLinearSiLU,
    KernelRegistry,
)
from torchbridge.passes import Pass, PassResult, Prepared, Setting, difference
from torchbridge.timing import Spread, timed, warm_up

__all__ = [
    "CUDADeviceError",
    "CUDADeviceManager",
    "CUDANotAvailableError",
    "CUDAOptimizations",
    "CUDAUtilities",
    "ConfigurationError",
    "FP8CompilationError",
    "FP8Compiler",
    "FlashAttentionError",
    "InvalidArchitectureError",
    "InvalidComputeCapabilityError",
    "KernelLaunchError",
    "MemoryAllocationError",
    "ModelOptimizationError",
    "NVIDIABackend",
    "NVIDIABackendError",
    "NVIDIAMemoryManager",
    "NVIDIAOptimizer",
    "OutOfMemoryError",
    "SpeedupEstimate",
    "create_cuda_integration",
]

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}


def fuse_linear_activation(model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
    """Linear then GELU or SiLU, neighbours in an nn.Sequential, become one fused layer.

    The layer has the very parameters of the linear one, whose index it takes; the activation's is
    left to an identity. Each is run once beside the two that it replaces.

    Raises:
        KernelError: a fused kernel failed, or computes something else.
    """
    before = _fused(model)
    for sequence in [m for m in model.modules() if isinstance(m, nn.Sequential)]:
        for index in range(len(sequence) - 1):
            fused = _fuse(sequence[index], sequence[index + 1])
            if fused is not None:
                prove(fused, sequence[index], sequence[index + 1])
                sequence[index], sequence[index + 1] = fused, nn.Identity()
    reason = "no nn.Linear with a GELU or SiLU behind it in an nn.Sequential"
    return model, difference("fuse_linear_activation", before, _fused(model), reason=reason)


def _fused(model: nn.Module) -> str:
    return f"{sum(isinstance(m, FusedLinear) for m in model.modules())} fused layer(s)"


def _fuse(linear: nn.Module, activation: nn.Module) -> FusedLinear | None:
    if type(linear) is not nn.Linear:
        return None
    sizes = linear.in_features, linear.out_features, linear.bias is not None
    if type(activation) is nn.GELU:
        fused = FusedLinearGELU(*sizes, approximate=activation.approximate)
    elif type(activation) is nn.SiLU:
        fused = FusedLinearSiLU(*sizes)
    else:
        return None
    fused.weight, fused.bias = linear.weight, linear.bias
    return fused.train(linear.training)


@torch.no_grad()
def prove(fused: FusedLinear, linear: nn.Linear, activation: nn.Module) -> None:
    """Run a fused layer beside the two that it replaces.

    Raises:
        KernelError: it fails, or computes something else.
    """
    weight = linear.weight
    x = torch.linspace(-3, 3, 8 * linear.in_features, dtype=weight.dtype, device=weight.device)
    x = x.reshape(8, linear.in_features)
    try:
        actual, expected = fused(x), activation(linear(x))
    except RuntimeError as error:
        raise KernelError(f"{fused}: {error}") from error
    error = (actual - expected).abs().max() / expected.abs().max()
    if not error <= TOLERANCE[weight.dtype]:
        raise KernelError(f"{fused} by {fused.path_taken} is wrong by {error:.1e}")


FLASH_HEAD_DIM = 256  # the largest that its kernels are built for


class NVIDIABackend(Backend):
    """Rules go by compute capability. `settings` are the config's, what they leave open decided
    by the hardware.

    On top of the shared passes the aggressive level computes in float16 on tensor cores that have
    no bfloat16 (Volta, Turing), and in float8 where the config asks for it (`fp8_enabled=True`).
    """

    name = "nvidia"
    vendor = "nvidia"

    def __init__(self, config: Config | None = None, **options: Any) -> None:
        """As `Backend`'s.

        Raises:
            ArchitectureError: a device older than Pascal.
            ConfigurationError: the config names another architecture than the device's.
            ConfigurationError: it asks for what the device has not.
        """
        super().__init__(config, **options)
        if self.hardware.architecture == "unsupported":
            found = self.hardware.target
            raise ArchitectureError(f"{found} is too old: sm_60 is the least")
        section = self.config.hardware.nvidia
        named, found = section.architecture, self.hardware.architecture
        if self._is_nvidia and named not in (NVIDIAArchitecture.AUTO, found):
            message = f"the config says {named.value}, the device is {found}"
            raise ConfigurationError(f"{message} ({self.hardware.target}); say auto")
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

    def prepare_model(self, model: nn.Module | None, **options: Any) -> Prepared | None:
        """As `Backend`'s.

        Raises:
            TypeError: the model is no module.
            OutOfMemory: the model does not fit on the device.
            OptimizationError: a pass failed.
        """
        try:
            return super().prepare_model(model, **options)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(f"Insufficient GPU memory for the model: {error}") from error
        except RuntimeError as error:
            raise OptimizationError(f"{type(model).__name__}: {error}") from error

    def optimize_for_tensor_cores(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> Prepared:
        """Only what tensor cores need: channels-last and a 16-bit format."""
        chosen = (channels_last, self._narrow)
        return passes.apply(model, self.setting(sample_inputs), chosen, level="tensor_cores")

    def prepare_model_with_custom_kernels(self, model: nn.Module) -> Prepared:
        """Linear layers and the activations behind them as one fused layer each.

        Raises:
            KernelError: a fused kernel failed, or computes something else.
        """
        return passes.apply(model, self.setting(), (fuse_linear_activation,), level="kernels")

    def get_optimal_attention_kernel(
        self, *, dtype: torch.dtype = torch.bfloat16, head_dim: int = 64, name: str | None = None
    ) -> str:
        """The path for `torchbridge.attention.attend`; with `name`, that one or an error.

        Raises:
            OptimizationError: the path of that name cannot be used.
        """
        refused = self._refused_attention(dtype, head_dim)
        if name is None:
            return next(path for path, reason in refused.items() if reason is None)
        reason = refused.get(name, f"known are {', '.join(refused)}")
        if reason is not None:
            raise OptimizationError(f"{name}: {reason}")
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
        if not is_newer(find_package(self.hardware)):
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


class NVIDIAOptimizer(Optimizer):
    """`optimize(model, level)` applies conservative, balanced or aggressive to the model itself."""

    backend_class = NVIDIABackend

    def get_optimization_recommendations(self, model: nn.Module) -> list[str]:
        """What would pay for this model on this hardware, and by which level or class."""
        modules, hardware = list(model.modules()), self.backend.hardware
        has = {
            "conv": any(isinstance(m, CONVOLUTIONS) for m in modules),
            "norm": any(isinstance(m, NORMS) for m in modules),
            "attention": any(isinstance(m, nn.MultiheadAttention) for m in modules),
            "linear": any(isinstance(m, nn.Linear) for m in modules),
        }
        advice = {
            "balanced: fold batch norms into convolutions": has["conv"] and has["norm"],
            "balanced: channels-last for convolutions": has["conv"],
            "balanced: fused attention": has["attention"],
            "aggressive: bfloat16 on tensor cores": hardware.has("bf16"),
            "aggressive: float16 on tensor cores": self._only_float16,
            "aggressive: torch.compile with sample inputs": True,
            "FP8Compiler: linear layers in FP8": has["linear"] and self.backend.supports_fp8,
        }
        return [text for text, holds in advice.items() if holds]

    @property
    def _only_float16(self) -> bool:
        hardware = self.backend.hardware
        return hardware.has("tensor_cores") and not hardware.has("bf16")


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
            NotAvailable: there is none at all.
            DeviceError: there is none of this number.
        """
        self._require(index)
        self.cuda.set_device(index)

    def get_device_properties(self, index: int = 0) -> dict[str, Any]:
        """What the driver tells; None for what this version of torch does not pass on.

        Raises:
            NotAvailable: there is none at all.
            DeviceError: there is none of this number.
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
            raise NotAvailable("there is no CUDA device on this machine")
        if not 0 <= index < self.device_count:
            raise DeviceError(f"device {index}: there are {self.device_count}, from 0")


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
            NotAvailable: no device, or NVIDIA's management library is missing.
        """
        if not self.manager.device_count:
            raise NotAvailable("there is no CUDA device on this machine")
        try:
            return self.manager.cuda.utilization(self.manager.device)
        except ModuleNotFoundError as error:
            message = "nvidia-ml-py is not installed: the device cannot be asked how busy it is"
            raise NotAvailable(message) from error


def create_cuda_integration(
    config: Config | None = None, cuda: ModuleType | Any = torch.cuda
) -> tuple[CUDADeviceManager, CUDAOptimizations]:
    """The devices, and what to do with the one in use."""
    manager = CUDADeviceManager(cuda)
    return manager, CUDAOptimizations(config, device=manager.device)
