"""Errors of the backends; vendor-specific names are aliases of these classes."""

from __future__ import annotations


class BackendError(RuntimeError):
    """Base class of all errors of the backends."""


class NotAvailable(BackendError):
    """The device, or a library that torch needs for it, is missing; the message names it."""


class DeviceError(BackendError):
    """No device has this index, or the device cannot be used."""


class ArchitectureError(DeviceError):
    """The chip is too old or unknown."""


class KernelError(DeviceError):
    """A kernel failed on the device, or computed a wrong result."""


class ConfigurationError(BackendError, ValueError):
    """The settings contradict each other or the device."""


class AllocationError(BackendError):
    """A tensor cannot be allocated, or memory usage cannot be read."""


class OutOfMemory(AllocationError):
    """Memory was insufficient even after cached memory was released."""


class OptimizationError(BackendError):
    """A pass failed on a model or was refused; the original error is its cause."""


class CompilationError(BackendError):
    """A kernel or graph does not compile, the compiler is missing, or its result is wrong."""


class CompilationTimeout(CompilationError):
    """A compilation took longer than the settings allow."""


class Recompilation(CompilationError):
    """A model was compiled again for shapes it was already compiled for."""


class DataError(BackendError):
    """The data contain no tensor to move."""


class DistributedError(BackendError):
    """The data cannot be split over the processes of the job."""


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
