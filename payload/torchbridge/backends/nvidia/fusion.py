"""Linear layers and the activations behind them as one layer."""

from __future__ import annotations

import torch
from torch import nn

from torchbridge.backends.nvidia.exceptions import KernelLaunchError
from torchbridge.kernels import FusedLinear, FusedLinearGELU, FusedLinearSiLU
from torchbridge.passes import PassResult, Setting, difference

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 3e-3, torch.float64: 1e-12}


def fuse_linear_activation(model: nn.Module, setting: Setting) -> tuple[nn.Module, PassResult]:
    """Linear then GELU or SiLU, neighbours in an nn.Sequential, become one fused layer.

    The layer has the very parameters of the linear one, whose index it takes; the activation's is
    left to an identity. Each is run once beside the two that it replaces.

    Raises:
        KernelLaunchError: a fused kernel failed, or computes something else.
    """
    before = _fused(model)
    for sequence in [m for m in model.modules() if isinstance(m, nn.Sequential)]:
        for index in range(len(sequence) - 1):
            fused = _fuse(sequence[index], sequence[index + 1])
            if fused is not None:
                prove(fused, sequence[index], sequence[index + 1])
                sequence[index], sequence[index + 1] = fused, nn.Identity()
    reason = "no nn.Linear with a GELU or SiLU behind it in an nn.Sequential"
    return model, difference("fuse_linear_activation", before, _fused(model), reason=reason)


def _fused(model: nn.Module) -> str:
    return f"{sum(isinstance(m, FusedLinear) for m in model.modules())} fused layer(s)"


def _fuse(linear: nn.Module, activation: nn.Module) -> FusedLinear | None:
    if type(linear) is not nn.Linear:
        return None
    sizes = linear.in_features, linear.out_features, linear.bias is not None
    if type(activation) is nn.GELU:
        fused = FusedLinearGELU(*sizes, approximate=activation.approximate)
    elif type(activation) is nn.SiLU:
        fused = FusedLinearSiLU(*sizes)
    else:
        return None
    fused.weight, fused.bias = linear.weight, linear.bias
    return fused.train(linear.training)


@torch.no_grad()
def prove(fused: FusedLinear, linear: nn.Linear, activation: nn.Module) -> None:
    """Run a fused layer beside the two that it replaces.

    Raises:
        KernelLaunchError: it fails, or computes something else.
    """
    weight = linear.weight
    x = torch.linspace(-3, 3, 8 * linear.in_features, dtype=weight.dtype, device=weight.device)
    x = x.reshape(8, linear.in_features)
    try:
        actual, expected = fused(x), activation(linear(x))
    except RuntimeError as error:
        raise KernelLaunchError(f"{fused}: {error}") from error
    error = (actual - expected).abs().max() / expected.abs().max()
    if not error <= TOLERANCE[weight.dtype]:
        raise KernelLaunchError(f"{fused} by {fused.path_taken} is wrong by {error:.1e}")
