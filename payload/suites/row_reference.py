"""What the kernels that work on rows are compared with: plain formulas in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def double(x: Tensor) -> Tensor:
    """x as float64 on the CPU."""
    return x.detach().cpu().double()


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight"""
    normal = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    return normal if weight is None else normal * weight


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias"""
    centred = x - x.mean(-1, keepdim=True)
    normal = rms_norm(centred, weight, eps)
    return normal if bias is None else normal + bias


def spread(x: Tensor, eps: float, *, centred: bool) -> Tensor:
    """What a norm divides each row by: [..., 1]"""
    x = double(x)
    x = x - x.mean(-1, keepdim=True) if centred else x
    return (x.square().mean(-1, keepdim=True) + eps).sqrt()


def softmax(x: Tensor) -> Tensor:
    """e^(x - max) / sum"""
    power = (x - x.amax(-1, keepdim=True)).exp()
    return power / power.sum(-1, keepdim=True)


def quantised(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [m, n] in a float8 encoding and its scales [m, 1]; float32, a row at a time."""
    limit, rows, scales = torch.finfo(dtype).max, [], []
    for row in x.detach().cpu().float():
        amax = row.abs().max() if row.numel() else torch.zeros(())
        scale = torch.ones(()) if amax == 0 else (limit * (1 / amax)).clamp(max=2.0**126)
        scaled = row * scale
        rows.append(torch.where(scaled.isinf(), torch.nan, scaled.clamp(-limit, limit)).to(dtype))
        scales.append(scale.reshape(1))
    return torch.stack(rows), torch.stack(scales)


def gradients(
    formula: Callable[..., Tensor], upstream: Tensor, tensors: Sequence[Tensor], *settings: float
) -> tuple[Tensor, list[Tensor]]:
    """The formula's value in float64 and its gradients, by autograd."""
    leaves = [double(one).requires_grad_() for one in tensors]
    output = formula(*leaves, *settings)
    return output.detach(), list(torch.autograd.grad(output, leaves, double(upstream)))
