"""Auxiliary losses of a router. E experts, T tokens, k choices each; all are 0-dim tensors.

probs: [T, E] router probabilities; indices: [T, k] chosen experts; logits: [T, E].
"""

from __future__ import annotations

import torch
from torch import Tensor


def _share(indices: Tensor, num_experts: int, dtype: torch.dtype) -> Tensor:
    """[E] assignments of each expert per token; sums to k. No gradient: it is a count."""
    return expert_counts(indices, num_experts).to(dtype) / max(1, indices.shape[0])


def _mean(values: Tensor) -> Tensor:
    """Over the first dimension; zeros of no rows."""
    return values.sum(dim=0) / max(1, values.shape[0])


def expert_counts(indices: Tensor, num_experts: int) -> Tensor:
    """[E] int64: how often each expert was chosen. Stays on the device."""
    flat = indices.reshape(-1)
    return torch.zeros(num_experts, dtype=torch.int64, device=flat.device).scatter_add_(
        0, flat, torch.ones_like(flat)
    )


def switch_load_balance_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """`E * sum_e share_e * mean_prob_e`: k when balanced, up to k * E / k = E when collapsed."""
    num_experts = probs.shape[1]
    return num_experts * (_share(indices, num_experts, probs.dtype) * _mean(probs)).sum()


def gshard_load_balance_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """The same with first choices only (GShard, scaled by E^2): 1 when balanced, E collapsed."""
    return switch_load_balance_loss(probs, indices[:, :1])


def entropy_load_balance_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """`ln E - H(mean_prob)`: 0 when balanced, ln E when collapsed. `indices` is not needed."""
    mean = _mean(probs)
    # of an expert that no token may use the logarithm would be -inf, and its gradient NaN
    real = mean.clamp(min=torch.finfo(mean.dtype).tiny)
    return (mean * (real * probs.shape[1]).log()).sum()


def router_z_loss(logits: Tensor) -> Tensor:
    """`mean(logsumexp(logits)^2)`: keeps logits small."""
    return _mean(torch.logsumexp(logits, dim=-1).square())


LOAD_BALANCE_LOSSES = {
    "switch": switch_load_balance_loss,
    "gshard": gshard_load_balance_loss,
    "entropy": entropy_load_balance_loss,
}
