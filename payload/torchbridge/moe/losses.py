"""Auxiliary losses of a router (0-dim tensors), and load balancing.

E experts, T tokens, k choices each. probs: [T, E] router probabilities; indices: [T, k] chosen
experts; logits: [T, E].
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge.moe.config import MoEConfig


def _share(indices: Tensor, num_experts: int, dtype: torch.dtype) -> Tensor:
    """Return each expert's assignments per token [E], which sum to k; without gradient."""
    return expert_counts(indices, num_experts).to(dtype) / max(1, indices.shape[0])


def _mean(values: Tensor) -> Tensor:
    """Return the mean over the first dimension; zeros if there are no rows."""
    return values.sum(dim=0) / max(1, values.shape[0])


def expert_counts(indices: Tensor, num_experts: int) -> Tensor:
    """Count how often each expert was chosen, [E] int64, without synchronisation."""
    flat = indices.reshape(-1)
    return torch.zeros(num_experts, dtype=torch.int64, device=flat.device).scatter_add_(
        0, flat, torch.ones_like(flat)
    )


def switch_load_balance_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """Return `E * sum_e share_e * mean_prob_e`: k if balanced, up to E if collapsed."""
    num_experts = probs.shape[1]
    return num_experts * (_share(indices, num_experts, probs.dtype) * _mean(probs)).sum()


def gshard_load_balance_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """Return the switch loss of first choices (GShard, times E^2): 1 if balanced, up to E."""
    return switch_load_balance_loss(probs, indices[:, :1])


def entropy_load_balance_loss(probs: Tensor, indices: Tensor) -> Tensor:
    """Return `ln E - H(mean_prob)`: 0 if balanced, ln E if collapsed; `indices` is ignored."""
    mean = _mean(probs)
    # of an expert that no token may use the logarithm would be -inf, and its gradient NaN
    real = mean.clamp(min=torch.finfo(mean.dtype).tiny)
    return (mean * (real * probs.shape[1]).log()).sum()


def router_z_loss(logits: Tensor) -> Tensor:
    """Return `mean(logsumexp(logits)^2)`, which keeps logits small."""
    return _mean(torch.logsumexp(logits, dim=-1).square())


LOAD_BALANCE_LOSSES = {
    "switch": switch_load_balance_loss,
    "gshard": gshard_load_balance_loss,
    "entropy": entropy_load_balance_loss,
}


@dataclass(frozen=True, slots=True)
class CapacityInfo:
    """Effect of a capacity on one batch of assignments; lists have one entry per expert."""

    expert_capacities: list[int]
    assignments: list[int]
    kept: list[int]
    tokens_dropped: int


class LoadBalancer:
    """Load-balance loss and capacity statistics of a config."""

    def __init__(self, config: MoEConfig) -> None:
        self.config = config
        self._loss = LOAD_BALANCE_LOSSES[config.load_balance_loss_type]

    def loss(self, probs: Tensor, indices: Tensor) -> Tensor:
        """Return the unweighted loss of probs [T, E] and indices [T, k]."""
        return self._loss(probs, indices)

    def capacity_info(self, indices: Tensor) -> CapacityInfo:
        """Return the capacity per expert and the drops it causes for indices [T, k]."""
        capacity = self.config.capacity(indices.shape[0])
        counts = expert_counts(indices, self.config.num_experts).tolist()
        kept = [min(count, capacity) for count in counts]
        return CapacityInfo([capacity] * len(counts), counts, kept, sum(counts) - sum(kept))


def balance(counts: list[int]) -> float:
    """Return the entropy of `counts` over ln E: 1 if all are equal, 0 if one expert has all.

    0.0 if all counts are zero; otherwise 1.0 for a single expert.
    """
    total = sum(counts)
    if total == 0 or len(counts) < 2:
        return 0.0 if total == 0 else 1.0
    shares = [count / total for count in counts if count]
    return -sum(share * math.log(share) for share in shares) / math.log(len(counts))
