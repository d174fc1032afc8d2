"""Settings, checked when they are made. `Config()` suits every machine."""

from torchbridge.config.amd import AMDConfig
from torchbridge.config.config import Config, HardwareConfig
from torchbridge.config.enums import (
    AMDArchitecture,
    AttentionPatterns,
    HardwareBackend,
    IntelArchitecture,
    NVIDIAArchitecture,
    OptimizationLevel,
    PrecisionFormat,
    TPUCompilationMode,
    TPUTopology,
    TPUVersion,
    ValidationLevel,
)
from torchbridge.config.intel import IntelConfig
from torchbridge.config.nvidia import NVIDIAConfig, detect_architecture
from torchbridge.config.sections import (
    AttentionConfig,
    DistributedConfig,
    KernelConfig,
    MemoryConfig,
    PrecisionConfig,
    ValidationConfig,
)
from torchbridge.config.settings import Settings
from torchbridge.config.tpu import TPUConfig, detect_tpu_topology, detect_tpu_version

__all__ = [
    "AMDArchitecture",
    "AMDConfig",
    "AttentionConfig",
    "AttentionPatterns",
    "Config",
    "DistributedConfig",
    "HardwareBackend",
    "HardwareConfig",
    "IntelArchitecture",
    "IntelConfig",
    "KernelConfig",
    "MemoryConfig",
    "NVIDIAArchitecture",
    "NVIDIAConfig",
    "OptimizationLevel",
    "PrecisionConfig",
    "PrecisionFormat",
    "Settings",
    "TPUCompilationMode",
    "TPUConfig",
    "TPUTopology",
    "TPUVersion",
    "ValidationConfig",
    "ValidationLevel",
    "detect_architecture",
    "detect_tpu_topology",
    "detect_tpu_version",
]
