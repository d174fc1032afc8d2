"""The words that configurations are written in. Each is a string: `"aggressive"` may be given."""

from __future__ import annotations

from enum import Enum

import torch


class OptimizationLevel(str, Enum):
    """How far `prepare_model` goes: each level does what the one before it does, and more."""

    CONSERVATIVE = "conservative"
    BALANCED = "balanced"
    AGGRESSIVE = "aggressive"


class PrecisionFormat(str, Enum):
    """What a number is stored as."""

    FP32 = "fp32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8_E4M3 = "fp8_e4m3"
    FP8_E5M2 = "fp8_e5m2"
    FP4 = "fp4"

    @property
    def bits(self) -> int:
        """Of one number."""
        return _BITS[self.value]

    @property
    def feature(self) -> str | None:
        """What `Hardware.has` must say for native arithmetic; None for fp32, which all have."""
        return None if self is PrecisionFormat.FP32 else self.value.split("_")[0]

    @property
    def dtype(self) -> torch.dtype:
        """PyTorch's name of it.

        Raises:
            ValueError: this version of torch has no such type.
        """
        dtype = getattr(torch, _DTYPES[self.value], None)
        if dtype is None:
            raise ValueError(f"torch {torch.__version__} has no torch.{_DTYPES[self.value]}")
        return dtype


_BITS = {"fp32": 32, "fp16": 16, "bf16": 16, "fp8_e4m3": 8, "fp8_e5m2": 8, "fp4": 4}
_DTYPES = {
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp4": "float4_e2m1fn_x2",
}


class HardwareBackend(str, Enum):
    """Whose device computes; `custom` stands for one that registers itself with torch."""

    CUDA = "cuda"
    CPU = "cpu"
    TPU = "tpu"
    AMD = "amd"
    INTEL = "intel"
    CUSTOM = "custom"


class NVIDIAArchitecture(str, Enum):
    """By compute capability: 6.x, 7.0, 7.5, 8.0 to 8.7, 8.9, 9.0, 10.0 and later."""

    AUTO = "auto"
    PASCAL = "pascal"
    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


class TPUVersion(str, Enum):
    """Google's generations."""

    AUTO = "auto"
    V4 = "v4"
    V5E = "v5e"
    V5P = "v5p"
    V6E = "v6e"
    V7 = "v7"


class TPUTopology(str, Enum):
    """One host, a slice over several, or several slices."""

    AUTO = "auto"
    SINGLE = "single"
    POD = "pod"
    SUPERPOD = "superpod"


class TPUCompilationMode(str, Enum):
    """Who hands the graph to XLA."""

    XLA = "xla"
    PJIT = "pjit"
    TORCH_XLA = "torch_xla"


class AMDArchitecture(str, Enum):
    """By the compiler's target: gfx908, gfx90a, gfx942, gfx950, gfx103x, gfx110x, gfx120x."""

    AUTO = "auto"
    CDNA = "cdna"
    CDNA2 = "cdna2"
    CDNA3 = "cdna3"
    CDNA4 = "cdna4"
    RDNA2 = "rdna2"
    RDNA3 = "rdna3"
    RDNA4 = "rdna4"


class IntelArchitecture(str, Enum):
    """Intel's GPUs: data centre (pvc, ats, flex), desktop (dg2), part of the processor."""

    AUTO = "auto"
    PVC = "pvc"
    ATS = "ats"
    DG2 = "dg2"
    FLEX = "flex"
    INTEGRATED = "integrated"


class AttentionPatterns(str, Enum):
    """Which keys a query sees."""

    FULL = "full"
    CAUSAL = "causal"
    SLIDING_WINDOW = "sliding_window"
    SPARSE = "sparse"
    RING = "ring"
    LOCAL = "local"
    GLOBAL = "global"
    DIFFERENTIAL = "differential"
    DYNAMIC_SPARSE = "dynamic_sparse"


class ValidationLevel(str, Enum):
    """How much is checked: each level checks what the one before it does, and more."""

    MINIMAL = "minimal"
    STANDARD = "standard"
    STRICT = "strict"
    COMPREHENSIVE = "comprehensive"
