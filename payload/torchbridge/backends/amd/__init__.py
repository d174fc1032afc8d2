"""AMD's devices: `AMDBackend()` says aloud when there is none."""

from torchbridge.backends.amd.backend import AMDBackend, AMDOptimizer, matrix_core_fill
from torchbridge.backends.amd.compiler import CompiledKernel, ROCmCompiler
from torchbridge.backends.amd.hip import HIPUtilities, HostEvent, HostStream, Region
from torchbridge.backends.amd.memory import AllocationSummary, AMDMemoryManager

__all__ = [
    "AMDBackend",
    "AMDMemoryManager",
    "AMDOptimizer",
    "AllocationSummary",
    "CompiledKernel",
    "HIPUtilities",
    "HostEvent",
    "HostStream",
    "ROCmCompiler",
    "Region",
    "matrix_core_fill",
]
