"""Patterns as dense masks: for SDPA, for explicit attention, and for whatever looks at them.

B samples, H query heads, Q queries, K keys. A row without a visible key has the output 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge.attention.patterns import Pattern

Shape = tuple[int, int, int, int]  # (B, H, Q, K)


def positions(shape: Shape, device: torch.device) -> tuple[Tensor, ...]:
    """Numbers of sample, head, query and key that broadcast to `shape`."""
    views = ((-1, 1, 1, 1), (-1, 1, 1), (-1, 1), (-1,))
    return tuple(
        torch.arange(size, device=device).view(view)
        for size, view in zip(shape, views, strict=True)
    )


def visible(pattern: Pattern, shape: Shape, device: torch.device) -> Tensor | None:
    """[B or 1, H or 1, Q, K] bool: does a query see a key? None if all are seen."""
    mod = pattern.mask_mod(device)
    if mod is None:
        return None
    batch, heads, queries, keys = shape
    shape = (batch if pattern.per_batch else 1, heads if pattern.per_head else 1, queries, keys)
    return mod(*positions(shape, device)).expand(shape)


def modified(pattern: Pattern, scores: Tensor) -> Tensor:
    """`scores` [B, H, Q, K] as the pattern's score modification leaves them."""
    mod = pattern.score_mod(scores.device)
    return scores if mod is None else mod(scores, *positions(scores.shape, scores.device))


@dataclass(frozen=True, slots=True)
class Dense:
    """What is added to scores, and which rows see nothing.

    `mask` is bool (True: seen) or a float bias, broadcastable to [B, H, Q, K], and leaves at least
    one key visible in every row; `empty` [..., Q, 1] are the rows that should see none.
    """

    mask: Tensor
    empty: Tensor

    @classmethod
    def of(cls, mask: Tensor) -> Dense:
        """Any mask: rows without a visible key see all of them instead, and are noted."""
        if mask.dtype == torch.bool:
            empty = ~mask.any(dim=-1, keepdim=True)
            return cls(mask | empty, empty)
        empty = (mask == -math.inf).all(dim=-1, keepdim=True)
        return cls(mask.masked_fill(empty, 0.0), empty)

    def emptied(self, output: Tensor) -> Tensor:
        """`output` [B, H, Q, D], 0 in rows that see nothing."""
        return output.masked_fill(self.empty, 0.0)


def joined(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    """The mask that says what both say; each is bool, a float bias, or None."""
    if one is None or two is None:
        return two if one is None else one
    if one.dtype == torch.bool and two.dtype == torch.bool:
        return one & two
    return as_bias(one) + as_bias(two)


def as_bias(mask: Tensor) -> Tensor:
    """A float bias from a bool mask; a bias as it is."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -math.inf)
