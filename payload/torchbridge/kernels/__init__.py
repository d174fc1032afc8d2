"""Fused layers, operations with kernels of our own, and the registry that picks the kernel."""

from torchbridge.kernels import functional
from torchbridge.kernels.fused import epilogue_gelu, linear_gelu, linear_silu
from torchbridge.kernels.layers import (
    FusedFFNLayer,
    FusedLinear,
    FusedLinearGELU,
    FusedLinearSiLU,
    create_fused_ffn_layer,
)
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
    "functional",
    "linear_gelu",
    "linear_silu",
]
