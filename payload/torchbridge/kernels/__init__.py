"""Fused and Triton kernels, one module per operation, and the registry that selects them."""

from torchbridge.kernels import grouped  # has no function: it registers a kernel
from torchbridge.kernels.cross_entropy import linear_cross_entropy
from torchbridge.kernels.experts import moe_experts
from torchbridge.kernels.fused import (
    FusedFFNLayer,
    FusedLinear,
    FusedLinearGELU,
    FusedLinearSiLU,
    create_fused_ffn_layer,
    epilogue_gelu,
    linear_gelu,
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
