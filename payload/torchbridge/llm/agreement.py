"""How far a changed model is from its reference: both are told the same text, token by token.

Text that each writes for itself says little: one near-tie, and the two go different ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge.llm.cache import KVCache
from torchbridge.llm.generate import Decode, prefill
from torchbridge.llm.gpt2 import GPT2

Logits = Callable[[Tensor], Tensor]  # ids [B, T] -> logits [B, T, V]
_AT_ONCE = 64  # positions that are compared in float64 at a time: at 50257 tokens 26 MB each


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Of two models over `positions` of a text, or the limits of it.

    `top1` is the share of positions with the same likeliest token, `kl` the mean Kullback-Leibler
    divergence from the reference's distribution in nats, `max_difference` that of any logit.
    """

    top1: float
    kl: float
    max_difference: float
    positions: int = 0

    def misses(self, limit: Agreement) -> list[str]:
        """Which measures are past their limits, in words; none if all are within."""
        found = []
        if not self.top1 >= limit.top1:  # a NaN is no agreement
            found.append(f"top-1 {self.top1:.3f} is below {limit.top1:g}")
        if not self.kl <= limit.kl:
            found.append(f"KL {self.kl:.2e} is over {limit.kl:g}")
        if not self.max_difference <= limit.max_difference:
            found.append(f"a logit is {self.max_difference:.3f} off, over {limit.max_difference:g}")
        return found

    def __str__(self) -> str:
        return (
            f"top-1 {self.top1:.1%} of {self.positions} positions, KL {self.kl:.1e} nats, "
            f"logits within {self.max_difference:.3f}"
        )


@torch.no_grad()
def teacher_forced(model: Logits, reference: Logits, ids: Tensor) -> Agreement:
    """Both models on the text ids [B, T]; what each says after every token of it.

    `model` is anything from ids to logits: a GPT2, or `stepwise` for what its decode computes.

    Raises:
        ValueError: the text is empty, or the models' vocabularies differ.
    """
    if not ids.numel():
        raise ValueError("a text of no tokens agrees with everything")
    ours, theirs = model(ids).flatten(0, 1), reference(ids).flatten(0, 1)
    if ours.shape != theirs.shape:
        raise ValueError(f"logits {list(ours.shape)} are not {list(theirs.shape)}")
    same = divergence = 0.0
    largest = torch.zeros((), dtype=torch.float64)
    for a, b in zip(ours.split(_AT_ONCE), theirs.split(_AT_ONCE), strict=True):
        a, b = a.double().cpu(), b.double().cpu()
        same += (a.argmax(dim=-1) == b.argmax(dim=-1)).sum().item()
        logs = b.log_softmax(dim=-1)
        divergence += (logs.exp() * (logs - a.log_softmax(dim=-1))).sum().item()
        largest = torch.maximum(largest, (a - b).abs().max())  # keeps a NaN
    count = ids.numel()
    return Agreement(
        top1=same / count, kl=divergence / count, max_difference=largest.item(), positions=count
    )


def stepwise(model: GPT2, decode: Decode | None = None, cache: KVCache | None = None) -> Logits:
    """The logits of a text by one prefill of its first token and a decode step for each other.

    A decode step may be computed in another way than a whole text: this is what generation sees.
    `cache` is for ids' batch and reset; a compiled or captured decode needs its own.
    """

    @torch.no_grad()
    def logits(ids: Tensor) -> Tensor:
        own = cache or KVCache.of(model, *ids.shape)
        own.reset()
        first, *rest = ids.split(1, dim=1)
        parts = [prefill(model, first, own)]  # and copies: a graph overwrites what it gave
        parts += [(decode or model)(one, own).clone() for one in rest]
        return torch.cat(parts, dim=1)

    return logits
