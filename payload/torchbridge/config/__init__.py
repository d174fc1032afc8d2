"""Configuration of the library, validated at construction; `Config()` suits every machine."""

from torchbridge.config.config import (
    Config,
    HardwareConfig,
    KernelConfig,
    MemoryConfig,
    PrecisionConfig,
)
from torchbridge.config.enums import (
    AMDArchitecture,
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
from torchbridge.config.settings import Settings
from torchbridge.config.vendors import (
    AMDConfig,
    IntelConfig,
    NVIDIAConfig,
    TPUConfig,
    detect_amd_architecture,
    detect_architecture,
    detect_tpu_topology,
    detect_tpu_version,
)
