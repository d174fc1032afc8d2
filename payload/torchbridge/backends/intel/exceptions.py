"""What can go wrong with Intel's GPUs.

IntelBackendError
├── XPUNotAvailableError      this torch is not built for XPUs, or sees none
├── IPEXNotInstalledError     Intel's extension is asked for by name and is not there
├── XPUDeviceError            no device of this number
│   └── XPUOutOfMemoryError   more was asked for than is free
├── OneDNNError               oneDNN, which computes torch's products, is missing
└── XPUOptimizationError      a level that cannot be applied
"""

from __future__ import annotations


class IntelBackendError(RuntimeError):
    """Any of the below."""


class XPUNotAvailableError(IntelBackendError):
    """This torch is not built for XPUs, or sees none."""


class IPEXNotInstalledError(IntelBackendError):
    """Intel's extension for PyTorch is not there; torch.xpu does without it since torch 2.5."""


class XPUDeviceError(IntelBackendError):
    """No device of this number, or one that fails."""


class XPUOutOfMemoryError(XPUDeviceError):
    """More memory was asked for than is free."""


class OneDNNError(IntelBackendError):
    """This torch is built without oneDNN."""


class XPUOptimizationError(IntelBackendError):
    """A level cannot be applied; the cause is attached."""
