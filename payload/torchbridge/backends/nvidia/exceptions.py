"""What can go wrong with an NVIDIA device.

NVIDIABackendError (RuntimeError)
+-- CUDANotAvailableError          there is no CUDA device, or no such library
+-- CUDADeviceError                this device cannot be used
|   +-- InvalidComputeCapabilityError    it is too old
|   +-- KernelLaunchError                a kernel failed on it
+-- MemoryAllocationError          the tensor cannot be made
|   +-- OutOfMemoryError                 for want of memory
+-- ModelOptimizationError         a pass failed on a model
|   +-- FP8CompilationError              what FP8 makes of it is wrong
|   +-- FlashAttentionError              the attention kernel asked for cannot be used
+-- ConfigurationError (ValueError)      the configuration contradicts itself or the device
    +-- InvalidArchitectureError         it names another architecture than the device's
"""

from __future__ import annotations


class NVIDIABackendError(RuntimeError):
    """Any of them."""


class CUDANotAvailableError(NVIDIABackendError):
    """There is no CUDA device here, or a library that torch needs for it is missing."""


class CUDADeviceError(NVIDIABackendError):
    """This device does not exist or cannot be used."""


class InvalidComputeCapabilityError(CUDADeviceError):
    """The device is older than all that is supported."""


class KernelLaunchError(CUDADeviceError):
    """A kernel failed on the device."""


class MemoryAllocationError(NVIDIABackendError):
    """A tensor of this shape cannot be made."""


class OutOfMemoryError(MemoryAllocationError):
    """There is not enough memory, also after a clean-up."""


class ModelOptimizationError(NVIDIABackendError):
    """A pass failed on a model."""


class FP8CompilationError(ModelOptimizationError):
    """The FP8 model does not compute what the model computes."""


class FlashAttentionError(ModelOptimizationError):
    """The attention kernel asked for by name cannot be used here."""


class ConfigurationError(NVIDIABackendError, ValueError):
    """The configuration contradicts itself or the device."""


class InvalidArchitectureError(ConfigurationError):
    """The configuration names another architecture than the device's."""
