"""Google's TPUs: `TPUBackend()` says aloud when there is none."""

from torchbridge.backends.tpu.backend import TPUBackend
from torchbridge.backends.tpu.compiler import (
    Compilation,
    CompiledModel,
    CompilerStats,
    TrainingStep,
    XLACompiler,
)
from torchbridge.backends.tpu.integration import (
    XLADeviceManager,
    XLADistributedTraining,
    XLAOptimizations,
    XLAUtilities,
    create_xla_integration,
)
from torchbridge.backends.tpu.memory import Layout, TPUMemoryManager, tiled
from torchbridge.backends.tpu.optimizer import TPUOptimizer
from torchbridge.backends.tpu.validation import Findings, validate_config, validate_model
from torchbridge.backends.tpu.xla import XLA, MemoryInfo

__all__ = [
    "XLA",
    "Compilation",
    "CompiledModel",
    "CompilerStats",
    "Findings",
    "Layout",
    "MemoryInfo",
    "TPUBackend",
    "TPUMemoryManager",
    "TPUOptimizer",
    "TrainingStep",
    "XLACompiler",
    "XLADeviceManager",
    "XLADistributedTraining",
    "XLAOptimizations",
    "XLAUtilities",
    "create_xla_integration",
    "tiled",
    "validate_config",
    "validate_model",
]
