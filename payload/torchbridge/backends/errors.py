"""What can go wrong with a device. A vendor's name for an error is another name of the same class.

BackendError (RuntimeError)
+-- NotAvailable            there is no such device, or a library that it needs is missing
+-- DeviceError             this device does not exist or cannot be used
|   +-- ArchitectureError       it is too old, unknown, or lacks what was asked for
|   +-- KernelError             a kernel failed, or computes something else
+-- ConfigurationError      the settings contradict themselves or the device (also a ValueError)
+-- AllocationError         a tensor or a pool cannot be had
|   +-- OutOfMemory             for want of memory, also after a clean-up
+-- OptimizationError       a pass failed on a model, or was refused; the cause is attached
+-- CompilationError        a kernel or graph does not compile, or computes something else
|   +-- CompilationTimeout      it took longer than the settings allow
|   +-- Recompilation           the same shapes were compiled again
+-- DataError               there is no tensor to be moved
+-- DistributedError        several processes are needed, or do not agree
+-- CheckpointError         a checkpoint that cannot be read
"""

from __future__ import annotations


class BackendError(RuntimeError):
    """Any of the below."""


class NotAvailable(BackendError):
    """There is no such device here, or a library that torch needs for it; the message names it."""


class DeviceError(BackendError):
    """No device of this number, or one that cannot be used."""


class ArchitectureError(DeviceError):
    """The chip is too old, not known, or has not the units that were asked for."""


class ConfigurationError(BackendError, ValueError):
    """The settings contradict themselves or the device."""


class AllocationError(BackendError):
    """A tensor cannot be made, memory cannot be counted, or a pool is not what it was taken for."""


class OutOfMemory(AllocationError):
    """There is not enough memory, also after a clean-up."""


class OptimizationError(BackendError):
    """A pass failed on a model, or what was asked for was not done."""


class CompilationError(BackendError):
    """A kernel or graph does not compile, there is no compiler, or its result is wrong."""


class CompilationTimeout(CompilationError):
    """A compilation took longer than the settings allow."""


class Recompilation(CompilationError):
    """A model that was compiled for these shapes was compiled again."""


class KernelError(DeviceError):
    """A kernel failed on the device, or computes something else than it should."""


class DataError(BackendError):
    """Something that is neither a tensor nor a collection of tensors."""


class DistributedError(BackendError):
    """Several processes are needed, or they do not agree."""


class CheckpointError(BackendError):
    """A checkpoint that cannot be read."""


# NVIDIA
NVIDIABackendError = BackendError
CUDANotAvailableError = NotAvailable
CUDADeviceError = DeviceError
InvalidComputeCapabilityError = ArchitectureError
InvalidArchitectureError = ConfigurationError
MemoryAllocationError = AllocationError
OutOfMemoryError = OutOfMemory
ModelOptimizationError = FP8CompilationError = FlashAttentionError = OptimizationError
KernelLaunchError = KernelError
# AMD
AMDBackendError = BackendError
ROCmNotAvailableError = NotAvailable
AMDDeviceError = DeviceError
AMDArchitectureError = MatrixCoreError = ArchitectureError
AMDConfigurationError = ConfigurationError
ROCmMemoryError = AllocationError
ROCmOutOfMemoryError = OutOfMemory
AMDOptimizationError = OptimizationError
HIPCompilationError = CompilationError
HIPKernelError = KernelError
# Intel
IntelBackendError = BackendError
XPUNotAvailableError = IPEXNotInstalledError = OneDNNError = NotAvailable
XPUDeviceError = DeviceError
XPUOutOfMemoryError = OutOfMemory
XPUOptimizationError = OptimizationError
# Google
TPUError = BackendError
XLANotAvailable = TPUNotFound = NotAvailable
TPUConfigurationError = ConfigurationError
TPUMemoryError = TPUMemoryPoolError = AllocationError
TPUOutOfMemory = OutOfMemory
TPUOptimizationError = TPUModelError = OptimizationError
TPUDataError = DataError
XLACompilationError = CompilationError
XLACompilationTimeout = CompilationTimeout
XLARecompilation = Recompilation
TPUDistributedError = DistributedError
TPUCheckpointError = CheckpointError
