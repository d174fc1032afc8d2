"""One attention to be computed, as every path gets it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge.attention.patterns import Pattern


@dataclass(frozen=True, slots=True)
class Call:
    """One attention to be computed.

    `mask` is bool (True: seen) or a float bias, broadcastable to [B, H, Q, K]; `scale` what scores
    are multiplied with before anything else; `dropout` the share of the weights that is dropped.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    pattern: Pattern
    mask: Tensor | None
    scale: float
    dropout: float = 0.0

    @property
    def scores(self) -> tuple[int, int, int, int]:
        """(B, H, Q, K)"""
        batch, heads, queries, _ = self.q.shape
        return batch, heads, queries, self.k.shape[2]

    @property
    def grouped(self) -> bool:
        """Do query heads share heads of keys?"""
        return self.q.shape[1] != self.k.shape[1]

    @property
    def wants_gradient(self) -> bool:
        """Will there be a backward pass?"""
        return torch.is_grad_enabled() and any(x.requires_grad for x in (self.q, self.k, self.v))
