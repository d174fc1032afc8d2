"""NVIDIA's devices: backend, optimizer, FP8, memory, CUDA itself."""

from torchbridge.backends.nvidia.backend import NVIDIABackend
from torchbridge.backends.nvidia.cuda import (
    CUDADeviceManager,
    CUDAOptimizations,
    CUDAUtilities,
    create_cuda_integration,
)
from torchbridge.backends.nvidia.exceptions import (
    ConfigurationError,
    CUDADeviceError,
    CUDANotAvailableError,
    FlashAttentionError,
    FP8CompilationError,
    InvalidArchitectureError,
    InvalidComputeCapabilityError,
    KernelLaunchError,
    MemoryAllocationError,
    ModelOptimizationError,
    NVIDIABackendError,
    OutOfMemoryError,
)
from torchbridge.backends.nvidia.fp8_compiler import FP8Compiler
from torchbridge.backends.nvidia.memory import NVIDIAMemoryManager
from torchbridge.backends.nvidia.optimizer import NVIDIAOptimizer
from torchbridge.backends.nvidia.roofline import Peaks, SpeedupEstimate

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
    "Peaks",
    "SpeedupEstimate",
    "create_cuda_integration",
]
