"""Who got how much: capacities, drops, balance."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from torchbridge.moe.config import MoEConfig
from torchbridge.moe.losses import LOAD_BALANCE_LOSSES, expert_counts


@dataclass(frozen=True, slots=True)
class CapacityInfo:
    """What a capacity does to one batch of assignments; lists have one entry per expert."""

    expert_capacities: list[int]
    assignments: list[int]
    kept: list[int]
    tokens_dropped: int


class LoadBalancer:
    """The load-balance loss of a config, and what its capacity would do."""

    def __init__(self, config: MoEConfig) -> None:
        self.config = config
        self._loss = LOAD_BALANCE_LOSSES[config.load_balance_loss_type]

    def loss(self, probs: Tensor, indices: Tensor) -> Tensor:
        """Unweighted loss of probs [T, E] and indices [T, k]."""
        return self._loss(probs, indices)

    def capacity_info(self, indices: Tensor) -> CapacityInfo:
        """Capacity per expert, and the drops it would cause for indices [T, k]."""
        capacity = self.config.capacity(indices.shape[0])
        counts = expert_counts(indices, self.config.num_experts).tolist()
        kept = [min(count, capacity) for count in counts]
        return CapacityInfo([capacity] * len(counts), counts, kept, sum(counts) - sum(kept))


def balance(counts: list[int]) -> float:
    """Entropy of `counts` over ln E: 1 when all are equal, 0 when one has all."""
    total = sum(counts)
    if total == 0 or len(counts) < 2:
        return 0.0 if total == 0 else 1.0
    shares = [count / total for count in counts if count]
    return -sum(share * math.log(share) for share in shares) / math.log(len(counts))
