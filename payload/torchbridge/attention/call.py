"""The arguments of one attention call, the paths that can compute it, and refusals."""

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
    """The path that computed a call.

    `form` is the form of the pattern (`no mask`, `is_causal`, `mask`, `bias`, `block mask`,
    `scores`). `backend` is the kernel that SDPA chose, or None if unknown. `fallback` is the reason
    not to take the preferred path. `reason` is the reason to override SDPA's choice (`sdpa.rule`).
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
    """The requested path cannot compute the call; `reason` says why."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"path {name!r} cannot be used: {reason}; use 'auto'")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Call:
    """Arguments of one attention call.

    `mask` is bool (True: visible) or a float bias, broadcastable to [B, H, Q, K]; `scale`
    multiplies the scores first; `dropout` is the probability of dropping a weight.
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
        """Shape (B, H, Q, K) of the scores."""
        batch, heads, queries, _ = self.q.shape
        return batch, heads, queries, self.k.shape[2]

    @property
    def grouped(self) -> bool:
        """Whether query heads share key heads."""
        return self.q.shape[1] != self.k.shape[1]

    @property
    def wants_gradient(self) -> bool:
        """Whether a gradient of an input will be needed."""
        return torch.is_grad_enabled() and any(x.requires_grad for x in (self.q, self.k, self.v))
