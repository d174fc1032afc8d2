"""NVIDIA GPUs through CUDA: backend, optimizer, fused layers and device management.

Classes that take `cuda` use `torch.cuda` by default; tests pass a substitute.
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
from torchbridge.backends.backend import Backend, Optimizer
from torchbridge.backends.errors import DeviceError, KernelError, NotAvailable
from torchbridge.backends.fp8_compiler import FP8Compiler
from torchbridge.backends.memory import NVIDIAMemoryManager  # noqa: F401  offered here
from torchbridge.backends.optimise import (
    CONVOLUTIONS,
    NORMS,
    bfloat16,
    channels_last,
    compile_model,
    float16,
    to_device,
)
from torchbridge.config import Config
from torchbridge.hardware import Hardware, probe
from torchbridge.kernels import (
    REGISTRY,
    FusedLinear,
    FusedLinearGELU,
    FusedLinearSiLU,
    KernelRegistry,
)
from torchbridge.numbers import tf32
from torchbridge.passes import Pass, PassResult, Prepared, Setting, difference
from torchbridge.timing import Spread, timed, warm_up

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}


def fuse_linear_activation(model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
    """Replace each nn.Linear followed by GELU or SiLU in an nn.Sequential by one fused layer.

    The fused layer shares the linear layer's parameters and takes its index; the activation becomes
    an nn.Identity. Its output is compared with that of the original layers.

    Raises:
        KernelError: a fused kernel failed, or its output is wrong.
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
    """Compare a fused layer's output with that of the two layers it replaces.

    Raises:
        KernelError: it failed, or its output is wrong.
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


class NVIDIABackend(Backend):
    """Backend of NVIDIA GPUs.

    float16 replaces bfloat16 on tensor cores without bfloat16 (Volta, Turing), and compiled
    inference uses float8 if `fp8_enabled` is True.
    """

    name = "nvidia"
    vendor = "nvidia"

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """Compute capability, e.g. (8, 9); None without an NVIDIA device."""
        return self.hardware.capability

    @property
    def is_h100(self) -> bool:
        """Whether the GPU is of the Hopper architecture: H100, H200, GH200."""
        return self.hardware.architecture == "hopper"

    @property
    def is_blackwell(self) -> bool:
        """Whether the GPU is of the Blackwell architecture (sm_100 and later)."""
        return self.hardware.architecture == "blackwell"

    @property
    def supports_fp8(self) -> bool:
        """Whether the GPU has FP8 units (sm_89 and later: Ada, Hopper, Blackwell)."""
        return self.hardware.vendor == "nvidia" and self.hardware.has("fp8")

    @property
    def kernel_registry(self) -> KernelRegistry:
        """The registry of fused kernels, to be queried with this backend's hardware."""
        return REGISTRY

    @property
    def narrow(self) -> Pass:
        """The pass that converts to the tensor cores' 16-bit format."""
        old = self.hardware.has("tensor_cores") and not self.hardware.has("bf16")
        return float16 if old else bfloat16

    def passes(self, level: str, training: bool) -> Sequence[Pass]:
        """Return the shared passes with this GPU's 16-bit format, and FP8 if requested."""
        shared = super().passes(level, training)
        chosen = [self.narrow if one is bfloat16 else one for one in shared]
        asked = self.config.hardware.nvidia.fp8_enabled is True  # None does not change numbers
        if compile_model in chosen and asked and not training:
            fp8 = FP8Compiler(self.config, hardware=self.hardware).apply_pass
            chosen.insert(chosen.index(compile_model), fp8)
        return chosen

    def setting(self, sample_inputs: Sequence[Tensor] = (), *, training: bool = False) -> Setting:
        """Extend the shared setting by CUDA graphs if the config enables them."""
        setting = super().setting(sample_inputs, training=training)
        if self.settings.cuda_graphs and self.is_available:
            return replace(setting, compile_mode="reduce-overhead")
        return setting

    def optimize_for_tensor_cores(
        self, model: nn.Module, sample_inputs: Sequence[Tensor] = ()
    ) -> Prepared:
        """Apply only channels_last and the 16-bit format."""
        chosen = (channels_last, self.narrow)
        return passes.apply(model, self.setting(sample_inputs), chosen, level="tensor_cores")

    def prepare_model_with_custom_kernels(self, model: nn.Module) -> Prepared:
        """Fuse linear layers with the activations that follow them.

        Raises:
            KernelError: a fused kernel failed, or its output is wrong.
        """
        return passes.apply(model, self.setting(), (fuse_linear_activation,), level="kernels")


class NVIDIAOptimizer(Optimizer):
    """Optimizer of NVIDIA GPUs with the levels conservative, balanced and aggressive."""

    backend_class = NVIDIABackend

    def get_optimization_recommendations(self, model: nn.Module) -> list[str]:
        """List the optimizations that suit this model and hardware, with their level or class."""
        modules, backend = list(model.modules()), self.backend

        def has(*kinds: type[nn.Module]) -> bool:
            return any(isinstance(module, kinds) for module in modules)

        narrow, cores = backend.narrow.__name__, backend.hardware.has("tensor_cores")
        advice = {
            "balanced: fold batch norms into convolutions": has(*CONVOLUTIONS) and has(*NORMS),
            "balanced: channels-last for convolutions": has(*CONVOLUTIONS),
            "balanced: fused attention": has(nn.MultiheadAttention),
            f"aggressive: {narrow} on tensor cores": cores,
            "aggressive: torch.compile with sample inputs": True,
            "FP8Compiler: linear layers in FP8": has(nn.Linear) and backend.supports_fp8,
        }
        return [text for text, holds in advice.items() if holds]


_PROPERTIES = """name total_memory multi_processor_count L2_cache_size clock_rate memory_clock_rate
memory_bus_width max_threads_per_block max_threads_per_multi_processor regs_per_multiprocessor
shared_memory_per_block shared_memory_per_multiprocessor warp_size"""


class CUDADeviceManager:
    """Manage the CUDA devices of this machine; without any, the device is the CPU."""

    def __init__(self, cuda: ModuleType | Any = torch.cuda) -> None:
        self.cuda = cuda
        self.device_count = cuda.device_count() if cuda.is_available() else 0

    @property
    def device(self) -> torch.device:
        """The current device."""
        if not self.device_count:
            return torch.device("cpu")
        return torch.device("cuda", self.cuda.current_device())

    def set_device(self, index: int) -> None:
        """Switch to another device.

        Raises:
            NotAvailable: there is no CUDA device.
            DeviceError: no device has this index.
        """
        self._require(index)
        self.cuda.set_device(index)

    def get_device_properties(self, index: int = 0) -> dict[str, Any]:
        """Return the driver's properties of a device; None for those this torch does not report.

        Raises:
            NotAvailable: there is no CUDA device.
            DeviceError: no device has this index.
        """
        self._require(index)
        found = self.cuda.get_device_properties(index)
        values = {name: getattr(found, name, None) for name in _PROPERTIES.split()}
        return {"compute_capability": (found.major, found.minor), **values}

    def synchronize(self) -> None:
        """Synchronise the current device, if there is one."""
        if self.device_count:
            self.cuda.synchronize(self.device)

    def _require(self, index: int) -> None:
        if not self.device_count:
            raise NotAvailable("there is no CUDA device on this machine")
        if not 0 <= index < self.device_count:
            raise DeviceError(f"device {index}: there are {self.device_count}, from 0")


class CUDAOptimizations:
    """Set CUDA's numeric flags, and prepare a model's device and memory format."""

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
        """Return the flags to set: TF32 if allowed and native, and cuDNN's autotuning."""
        tf32 = self.config.precision.allow_tf32 and self.hardware.has("tf32")
        return {"tf32": tf32, "cudnn_benchmark": self.config.hardware.nvidia.cudnn_benchmark}

    @contextlib.contextmanager
    def flags(self) -> Iterator[dict[str, bool]]:
        """Set torch's flags to `wanted_flags` in the block; restore them afterwards."""
        wanted, cudnn = self.wanted_flags(), torch.backends.cudnn
        before, cudnn.benchmark = cudnn.benchmark, wanted["cudnn_benchmark"]
        try:
            with tf32(allowed=wanted["tf32"]):
                yield wanted
        finally:
            cudnn.benchmark = before

    def optimize_model(self, model: nn.Module) -> Prepared:
        """Move the model to the device, with convolutions in channels_last format."""
        setting = Setting(self.device, self.hardware)
        return passes.apply(model, setting, (to_device, channels_last), level="layout")


class CUDAUtilities:
    """Reports the CUDA environment and profiles work on the current device."""

    def __init__(self, cuda: ModuleType | Any = torch.cuda) -> None:
        self.manager = CUDADeviceManager(cuda)

    def get_cuda_env_info(self) -> dict[str, Any]:
        """Return versions, devices and compiled architectures; None for missing libraries."""
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
        """Return median and quartiles of the seconds of one synchronised call, after warm-up."""
        device = self.manager.device
        warm_up(work, device)
        return Spread.from_samples([timed(work, device) for _ in range(iterations)])


def create_cuda_integration(
    config: Config | None = None, cuda: ModuleType | Any = torch.cuda
) -> tuple[CUDADeviceManager, CUDAOptimizations]:
    """Return the device manager and the optimizations of its current device."""
    manager = CUDADeviceManager(cuda)
    return manager, CUDAOptimizations(config, device=manager.device)
