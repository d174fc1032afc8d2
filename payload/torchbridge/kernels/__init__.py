"""Operations with kernels of our own, one module each, and the registry that picks the kernel."""

from torchbridge.kernels.cross_entropy import linear_cross_entropy
from torchbridge.kernels.experts import moe_experts
from torchbridge.kernels.fused import epilogue_gelu, linear_gelu, linear_silu
from torchbridge.kernels.gated import gated_linear
from torchbridge.kernels.grouped import grouped_mm
from torchbridge.kernels.layers import (
    FusedFFNLayer,
    FusedLinear,
    FusedLinearGELU,
    FusedLinearSiLU,
    create_fused_ffn_layer,
)
from torchbridge.kernels.quantise import quantise_rows
from torchbridge.kernels.registry import (
    REGISTRY,
    Choice,
    Kernel,
    KernelRefused,
    KernelRegistry,
    Request,
)

__all__ = [
    "REGISTRY",
    "Choice",
    "FusedFFNLayer",
    "FusedLinear",
    "FusedLinearGELU",
    "FusedLinearSiLU",
    "Kernel",
    "KernelRefused",
    "KernelRegistry",
    "Request",
    "create_fused_ffn_layer",
    "epilogue_gelu",
    "gated_linear",
    "grouped_mm",
    "linear_cross_entropy",
    "linear_gelu",
    "linear_silu",
    "moe_experts",
    "quantise_rows",
]
