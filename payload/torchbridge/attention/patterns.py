"""Attention patterns: which keys a query sees and how its scores are modified.

A pattern is an immutable value. FlexAttention uses its `mask_mod(b, h, q, k)` and `score_mod(score,
b, h, q, k)` directly; the other paths call them on index tensors. b, h, q and k are indices of
sample, query head, query and key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
ScoreMod = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Pattern:
    """Full attention, and the base class of patterns; combine them by `&`: `ALiBi(8) & Causal()`.

    `per_batch` and `per_head`: the mask depends on the sample, on the head. `additive`: the score
    modification adds a term that does not depend on the score.
    """

    name: ClassVar[str] = "full"
    per_batch: ClassVar[bool] = False
    per_head: ClassVar[bool] = False
    additive: ClassVar[bool] = True

    @property
    def kind(self) -> Hashable:
        """Key of the compiled kernel; patterns of one kind share it."""
        return self.name

    def mask_mod(self, device: torch.device) -> MaskMod | None:
        """Return the function that decides which keys are visible; None if all are."""
        return None

    def score_mod(self, device: torch.device) -> ScoreMod | None:
        """Return the function that modifies scaled, unmasked scores; None if there is none."""
        return None

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ValueError unless the pattern fits scores [batch, heads, queries, keys]."""

    def __and__(self, other: Pattern) -> Pattern:
        return Both(self, other)


FULL = Pattern()


@dataclass(frozen=True)
class Causal(Pattern):
    """Each query sees only keys up to its own position."""

    name: ClassVar[str] = "causal"

    def mask_mod(self, device: torch.device) -> MaskMod:
        """Return the mask k <= q."""
        return _causal


def _causal(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    return q >= k


@dataclass(frozen=True)
class SlidingWindow(Pattern):
    """A query sees the keys less than `window` away on both sides; 1 is the query itself."""

    window: int
    name: ClassVar[str] = "sliding_window"

    def __post_init__(self) -> None:
        if self.window < 1:
            raise ValueError(f"window must be at least 1, got {self.window}")

    def mask_mod(self, device: torch.device) -> MaskMod:
        """Return the mask |q - k| < window."""
        window = self.window
        return lambda b, h, q, k: (q - k < window) & (k - q < window)


@dataclass(frozen=True)
class CausalSlidingWindow(SlidingWindow):
    """A query sees itself and the `window` - 1 keys before it."""

    name: ClassVar[str] = "causal_sliding_window"

    def mask_mod(self, device: torch.device) -> MaskMod:
        """Return the mask 0 <= q - k < window."""
        window = self.window
        return lambda b, h, q, k: (q >= k) & (q - k < window)


def alibi_slopes(num_heads: int) -> list[float]:
    """Return the slopes 2^(-8i/n) for head i = 1..n, n being a power of two.

    Heads beyond a power of two take every other slope of the next one.
    https://arxiv.org/abs/2108.12409
    """
    power = 2 ** int(math.log2(num_heads))
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2 ** (-4 * head / power) for head in range(1, 2 * (num_heads - power), 2)]
    return slopes + between


@dataclass(frozen=True)
class ALiBi(Pattern):
    """Subtract from scores the distance of query and key times a slope per head."""

    num_heads: int
    name: ClassVar[str] = "alibi"

    def __post_init__(self) -> None:
        if self.num_heads < 1:
            raise ValueError(f"num_heads must be at least 1, got {self.num_heads}")

    def score_mod(self, device: torch.device) -> ScoreMod:
        """Return score - slope[h] * |q - k|, with the slopes on `device`."""
        slopes = torch.tensor(alibi_slopes(self.num_heads), device=device)
        return lambda score, b, h, q, k: score - slopes[h] * (q - k).abs()

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ValueError unless there is one slope per head."""
        if heads != self.num_heads:
            raise ValueError(f"alibi has slopes for {self.num_heads} heads, not for {heads}")


@dataclass(frozen=True, eq=False)
class DocumentMasking(Pattern):
    """Packed documents: a query sees keys with the same id; `ids` are integers [B, S] or [S].

    The ids are copied; patterns compare by identity.
    """

    ids: Tensor
    name: ClassVar[str] = "document_masking"
    per_batch: ClassVar[bool] = True

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        if self.ids.dim() not in (1, 2) or self.ids.is_floating_point():
            raise ValueError(f"ids must be integers [B, S] or [S], got {tuple(self.ids.shape)}")
        with torch.inference_mode(False):  # it may be used in training
            object.__setattr__(self, "ids", self.ids.detach().clone())

    def mask_mod(self, device: torch.device) -> MaskMod:
        """Return the mask ids[b, q] == ids[b, k]."""
        ids = self.ids.to(device)
        if ids.dim() == 1:
            return lambda b, h, q, k: ids[q] == ids[k]

        return lambda b, h, q, k: ids[b, q] == ids[b, k]

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ValueError unless there is an id for every sample and position."""
        enough = self.ids.shape[-1] >= max(queries, keys)
        if not enough or (self.ids.dim() == 2 and self.ids.shape[0] != batch):
            raise ValueError(
                f"document ids {tuple(self.ids.shape)} do not fit a batch of {batch} with "
                f"{max(queries, keys)} positions"
            )


@dataclass(frozen=True)
class PrefixLM(Pattern):
    """All queries see the first `prefix` keys; the rest is causal."""

    prefix: int
    name: ClassVar[str] = "prefix_lm"

    def __post_init__(self) -> None:
        if self.prefix < 0:
            raise ValueError(f"prefix must not be negative, got {self.prefix}")

    def mask_mod(self, device: torch.device) -> MaskMod:
        """Return the mask k < prefix or k <= q."""
        prefix = self.prefix
        return lambda b, h, q, k: (k < prefix) | (q >= k)


@dataclass(frozen=True)
class SoftCap(Pattern):
    """Limit scores smoothly to the range +-`cap`."""

    cap: float
    name: ClassVar[str] = "soft_cap"
    additive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.cap <= 0:
            raise ValueError(f"cap must be above 0, got {self.cap}")

    def score_mod(self, device: torch.device) -> ScoreMod:
        """Return cap * tanh(score / cap)."""
        cap = self.cap
        return lambda score, b, h, q, k: cap * torch.tanh(score / cap)


@dataclass(frozen=True)
class Custom(Pattern):
    """User-defined elementwise functions on tensors; values they close over must not change.

    The score modification is assumed to depend on the score, both functions on sample and head.
    """

    mask: MaskMod | None = None
    score: ScoreMod | None = None
    name: ClassVar[str] = "custom"
    per_batch: ClassVar[bool] = True
    per_head: ClassVar[bool] = True
    additive = property(lambda self: self.score is None)

    def __post_init__(self) -> None:
        if self.mask is None and self.score is None:
            raise ValueError("a custom pattern needs a mask or a score function")

    @property
    def kind(self) -> Hashable:
        """Key of the compiled kernel: the code objects of the functions."""
        return (self.name, *(getattr(f, "__code__", f) for f in (self.mask, self.score)))

    def mask_mod(self, device: torch.device) -> MaskMod | None:
        """Return the given mask function."""
        return self.mask

    def score_mod(self, device: torch.device) -> ScoreMod | None:
        """Return the given score function."""
        return self.score


@dataclass(frozen=True)
class Both(Pattern):
    """A query sees keys that both patterns let it see; `second` modifies the scores of `first`."""

    first: Pattern
    second: Pattern

    name = property(lambda self: f"{self.first.name}+{self.second.name}")
    per_batch = property(lambda self: self.first.per_batch or self.second.per_batch)
    per_head = property(lambda self: self.first.per_head or self.second.per_head)
    additive = property(lambda self: self.first.additive and self.second.additive)
    kind = property(lambda self: (self.first.kind, self.second.kind))

    def mask_mod(self, device: torch.device) -> MaskMod | None:
        """Return the conjunction of both masks."""
        one, two = self.first.mask_mod(device), self.second.mask_mod(device)
        if one is None or two is None:
            return two if one is None else one
        return lambda b, h, q, k: one(b, h, q, k) & two(b, h, q, k)

    def score_mod(self, device: torch.device) -> ScoreMod | None:
        """Return the composition of both score modifications."""
        one, two = self.first.score_mod(device), self.second.score_mod(device)
        if one is None or two is None:
            return two if one is None else one
        return lambda score, b, h, q, k: two(one(score, b, h, q, k), b, h, q, k)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ValueError unless both patterns fit the scores."""
        self.first.check(batch, heads, queries, keys)
        self.second.check(batch, heads, queries, keys)


@dataclass(frozen=True)
class Shifted(Pattern):
    """Apply `inner` to queries that start at key position `offset`, as with a KV cache."""

    inner: Pattern
    offset: int

    name = property(lambda self: self.inner.name)
    per_batch = property(lambda self: self.inner.per_batch)
    per_head = property(lambda self: self.inner.per_head)
    additive = property(lambda self: self.inner.additive)
    kind = property(lambda self: ("shifted", self.inner.kind))

    def mask_mod(self, device: torch.device) -> MaskMod | None:
        """Return the inner mask for q + offset."""
        inner, offset = self.inner.mask_mod(device), self.offset
        return None if inner is None else lambda b, h, q, k: inner(b, h, q + offset, k)

    def score_mod(self, device: torch.device) -> ScoreMod | None:
        """Return the inner score modification for q + offset."""
        inner, offset = self.inner.score_mod(device), self.offset
        if inner is None:
            return None
        return lambda score, b, h, q, k: inner(score, b, h, q + offset, k)

    def check(self, batch: int, heads: int, queries: int, keys: int) -> None:
        """Raise ValueError unless the inner pattern fits up to the last query position."""
        self.inner.check(batch, heads, self.offset + queries, keys)


PATTERNS: dict[str, type[Pattern]] = {
    kind.name: kind
    for kind in (
        Pattern,
        Causal,
        SlidingWindow,
        CausalSlidingWindow,
        ALiBi,
        DocumentMasking,
        PrefixLM,
        SoftCap,
        Custom,
    )
}


def create_pattern(name: str, **options: object) -> Pattern:
    """Create a pattern by its name in `PATTERNS`.

    Raises:
        ValueError: no pattern of that name is implemented.
    """
    if name not in PATTERNS:
        raise ValueError(
            f"attention pattern {name!r} has no implementation here; there are: "
            f"{', '.join(PATTERNS)}"
        )
    return PATTERNS[name](**options)
