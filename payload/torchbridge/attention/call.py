"""One attention to be computed, as every path gets it; the paths, and why one was not taken."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge.attention.patterns import Pattern

PATHS = (
    "auto",  # the fastest exact one, by rules on the hardware
    "sdpa",  # torch's scaled_dot_product_attention, its back-end of choice
    "sdpa_flash",
    "sdpa_efficient",
    "sdpa_cudnn",
    "sdpa_math",
    "flex",  # compiled FlexAttention
    "flex_eager",  # FlexAttention uncompiled: it materialises all scores
    "explicit",  # two matrix products and a softmax: materialises all scores
)


@dataclass(frozen=True, slots=True)
class Path:
    """A way that was taken.

    `form` is what the pattern became there (`no mask`, `is_causal`, `mask`, `bias`, `block mask`,
    `scores`); `backend` the kernel torch chose for SDPA, None where it
    does not tell; `fallback` why it is not the way that such a call should take; `reason` why that
    back-end is not left to torch (`sdpa.rule`).
    """

    name: str
    form: str
    backend: str | None = None
    fallback: str | None = None
    reason: str | None = None

    def __str__(self) -> str:
        taken = f"{self.name}[{self.form}]"
        if self.backend is not None:
            taken = f"{self.name}[{self.form}, {self.backend}]"
        return taken if self.fallback is None else f"{taken} ({self.fallback})"


class PathRefused(RuntimeError):
    """A way cannot compute what it was asked for; `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"path {name!r} cannot be used: {reason}; use 'auto'")
        self.reason = reason


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
