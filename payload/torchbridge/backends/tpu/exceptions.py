"""What can go wrong with a TPU.

TPUError
├── XLANotAvailable             torch_xla cannot be imported
├── TPUNotFound                 torch_xla is there, a TPU is not
├── TPUConfigurationError       the settings do not fit this chip
├── XLACompilationError         XLA refused the graph, or its result is wrong
│   ├── XLACompilationTimeout   it took longer than the settings allow
│   └── XLARecompilation        the same shapes were compiled again and again
├── TPUOptimizationError        what was asked for was not done
├── TPUModelError               the model cannot run on a TPU
├── TPUDataError                data that cannot be moved to the device
├── TPUMemoryError              memory that cannot be counted or had
│   ├── TPUOutOfMemory          more was asked for than is free
│   └── TPUMemoryPoolError      no such pool, or a tensor that does not belong to it
├── TPUDistributedError         several processes are needed, or do not agree
└── TPUCheckpointError          a checkpoint that cannot be read
"""

from __future__ import annotations


class TPUError(RuntimeError):
    """Any of the below."""


class XLANotAvailable(TPUError):
    """torch_xla cannot be imported; the message says what to install."""


class TPUNotFound(TPUError):
    """torch_xla computes on something that is not a TPU."""


class TPUConfigurationError(TPUError):
    """The settings ask for what this chip or this torch_xla has not."""


class XLACompilationError(TPUError):
    """XLA refused a graph, or the compiled model disagrees with the eager one."""


class XLACompilationTimeout(XLACompilationError):
    """A compilation took longer than `compile_timeout_s`."""


class XLARecompilation(XLACompilationError):
    """A model that was compiled for these shapes was compiled again."""


class TPUOptimizationError(TPUError):
    """Under `strict_validation`: a level's pass was not applied; its reason is told."""


class TPUModelError(TPUError):
    """The model holds what a TPU cannot compute."""


class TPUDataError(TPUError):
    """Something that is neither a tensor nor a collection of tensors."""


class TPUMemoryError(TPUError):
    """The device's memory cannot be counted or had."""


class TPUOutOfMemory(TPUMemoryError):
    """More memory was asked for than is free."""


class TPUMemoryPoolError(TPUMemoryError):
    """No such pool, or a tensor that does not belong to it."""


class TPUDistributedError(TPUError):
    """Several processes are needed, or they do not agree."""


class TPUCheckpointError(TPUError):
    """A checkpoint that cannot be read."""
