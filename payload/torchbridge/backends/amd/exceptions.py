"""What can go wrong with AMD's devices.

AMDBackendError
├── ROCmNotAvailableError       this torch is not built for ROCm, or sees no device
├── AMDDeviceError              no device of this number
├── AMDArchitectureError        a chip that is not known
├── AMDConfigurationError       the settings do not fit the chip
├── HIPCompilationError         a kernel that does not compile, or nothing to compile it with
├── HIPKernelError              a compiled kernel that computes something else
├── ROCmMemoryError             memory that cannot be had
│   └── ROCmOutOfMemoryError    more was asked for than is free
├── MatrixCoreError             matrix cores, or a number format of theirs, are missing
└── AMDOptimizationError        a level that cannot be applied
"""

from __future__ import annotations


class AMDBackendError(RuntimeError):
    """Any of the below."""


class ROCmNotAvailableError(AMDBackendError):
    """This torch is not built for ROCm, or sees no device."""


class AMDDeviceError(AMDBackendError):
    """No device of this number."""


class AMDArchitectureError(AMDBackendError):
    """A chip that is not known."""


class AMDConfigurationError(AMDBackendError):
    """The settings do not fit the chip."""


class HIPCompilationError(AMDBackendError):
    """A kernel does not compile, or there is nothing to compile it with: the message names it."""


class HIPKernelError(AMDBackendError):
    """A compiled kernel computes something else than the function that it was made from."""


class ROCmMemoryError(AMDBackendError):
    """Memory cannot be had."""


class ROCmOutOfMemoryError(ROCmMemoryError):
    """More memory was asked for than is free."""


class MatrixCoreError(AMDBackendError):
    """The chip has no matrix cores, or they do not know the number format asked for."""


class AMDOptimizationError(AMDBackendError):
    """A level cannot be applied; the cause is attached."""
