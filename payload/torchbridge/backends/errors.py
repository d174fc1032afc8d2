"""What can go wrong with a device. A vendor's name for an error is another name of its class."""

from __future__ import annotations


class BackendError(RuntimeError):
    """Any of the below."""


class NotAvailable(BackendError):
    """There is no such device here, or a library that torch needs for it; the message names it."""


class DeviceError(BackendError):
    """No device of this number, or one that cannot be used."""


class ArchitectureError(DeviceError):
    """The chip is too old, or not known."""


class KernelError(DeviceError):
    """A kernel failed on the device, or computes something else than it should."""


class ConfigurationError(BackendError, ValueError):
    """The settings contradict themselves or the device."""


class AllocationError(BackendError):
    """A tensor cannot be made, or memory cannot be counted."""


class OutOfMemory(AllocationError):
    """There is not enough memory, also after a clean-up."""


class OptimizationError(BackendError):
    """A pass failed on a model, or what was asked for was not done; the cause is attached."""


class CompilationError(BackendError):
    """A kernel or graph does not compile, there is no compiler, or its result is wrong."""


class CompilationTimeout(CompilationError):
    """A compilation took longer than the settings allow."""


class Recompilation(CompilationError):
    """A model that was compiled for these shapes was compiled again."""


class DataError(BackendError):
    """There is no tensor to be moved."""


class DistributedError(BackendError):
    """Several processes are needed, or do not agree."""


NVIDIABackendError = AMDBackendError = IntelBackendError = TPUError = BackendError
CUDANotAvailableError = ROCmNotAvailableError = XPUNotAvailableError = NotAvailable
IPEXNotInstalledError = OneDNNError = XLANotAvailable = TPUNotFound = NotAvailable
CUDADeviceError = AMDDeviceError = XPUDeviceError = DeviceError
InvalidComputeCapabilityError = AMDArchitectureError = ArchitectureError
KernelLaunchError = HIPKernelError = KernelError
InvalidArchitectureError = AMDConfigurationError = ConfigurationError
MatrixCoreError = TPUConfigurationError = ConfigurationError
MemoryAllocationError = ROCmMemoryError = TPUMemoryError = TPUMemoryPoolError = AllocationError
OutOfMemoryError = ROCmOutOfMemoryError = XPUOutOfMemoryError = TPUOutOfMemory = OutOfMemory
ModelOptimizationError = FP8CompilationError = FlashAttentionError = OptimizationError
AMDOptimizationError = XPUOptimizationError = OptimizationError
TPUOptimizationError = TPUModelError = OptimizationError
HIPCompilationError = XLACompilationError = CompilationError
XLACompilationTimeout, XLARecompilation = CompilationTimeout, Recompilation
TPUDataError, TPUDistributedError = DataError, DistributedError
