"""Compare a changed model with its reference on the same text, token by token.

Texts that each model generates itself diverge after one near-tie, so they are not compared.
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
    """Measured agreement of two models over `positions` of a text, or limits for it.

    `top1` is the share of positions with the same most likely token, `kl` the mean Kullback-Leibler
    divergence from the reference in nats, `max_difference` the largest difference of a logit.
    """

    top1: float
    kl: float
    max_difference: float
    positions: int = 0

    def misses(self, limit: Agreement) -> list[str]:
        """Return a message for each measure that misses its limit."""
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
    """Compare the logits of both models at every position of the text ids [B, T].

    `model` maps ids to logits: a GPT2, or `stepwise` for the logits of its decode steps.

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
    """Return a function that computes a text's logits by prefill of one token and decode steps.

    These are the logits that generation sees; they may be computed differently from those of a
    whole text. `cache` must fit the batch and is reset; a compiled or captured decode needs its
    own.
    """

    @torch.no_grad()
    def logits(ids: Tensor) -> Tensor:
        own = cache or KVCache.for_model(model, *ids.shape)
        own.reset()
        first, *rest = ids.split(1, dim=1)
        parts = [prefill(model, first, own)]  # and copies: a graph overwrites what it gave
        parts += [(decode or model)(one, own).clone() for one in rest]
        return torch.cat(parts, dim=1)

    return logits
