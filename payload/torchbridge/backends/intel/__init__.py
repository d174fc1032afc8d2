"""Intel's GPUs: `IntelBackend()` says aloud when there is none."""

from __future__ import annotations

from torchbridge.backends.intel.backend import IntelBackend, IntelOptimizer, XPUOptimizations
from torchbridge.backends.intel.devices import (
    XPUDeviceInfo,
    XPUDeviceManager,
    get_ipex_version,
    intel_hardware,
    is_ipex_available,
    is_xpu_available,
)
from torchbridge.backends.intel.kernels import (
    AttentionBlocks,
    ConvConfig,
    GemmConfig,
    IntelKernelOptimizer,
)
from torchbridge.backends.intel.memory import IntelMemoryManager

__all__ = [
    "AttentionBlocks",
    "ConvConfig",
    "GemmConfig",
    "IntelBackend",
    "IntelKernelOptimizer",
    "IntelMemoryManager",
    "IntelOptimizer",
    "XPUDeviceInfo",
    "XPUDeviceManager",
    "XPUOptimizations",
    "get_ipex_version",
    "intel_hardware",
    "is_ipex_available",
    "is_xpu_available",
]


def __getattr__(name: str) -> bool:
    """`XPU_AVAILABLE` and `IPEX_AVAILABLE`, asked anew each time."""
    if name == "XPU_AVAILABLE":
        return is_xpu_available()
    if name == "IPEX_AVAILABLE":
        return is_ipex_available()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
