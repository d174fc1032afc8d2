"""Generate tokens from a prompt: one prefill, then one decode step per token.

Tokens stay on the device, without synchronisation, until the caller reads them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.llm.cache import KVCache
from torchbridge.llm.gpt2 import GPT2
from torchbridge.passes import AttentionOperators

# ids [B, 1] and the cache that they follow -> logits [B, 1, V]
Decode = Callable[[Tensor, KVCache], Tensor]
# a token [B], the cache that it follows, and how many more -> those [B, count]
Follow = Callable[[Tensor, KVCache, int], Tensor]
_LOOK_AFTER = {"cpu": 1}  # tokens between two checks whether all sequences have ended


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """Parameters of random sampling; without it the most likely token is chosen."""

    temperature: float = 1.0
    top_k: int | None = None

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(f"temperature must be positive, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")

    def probabilities(self, logits: Tensor) -> Tensor:
        """Map logits [B, V] to float32 probabilities [B, V]; ties with the k-th token are kept."""
        scaled = logits.float() / self.temperature
        if self.top_k is not None and self.top_k < scaled.shape[-1]:
            least = scaled.topk(self.top_k).values[:, -1:]
            scaled = scaled.masked_fill(scaled < least, -math.inf)
        return scaled.softmax(dim=-1)


def next_token(
    logits: Tensor, sampling: Sampling | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Choose a token: logits [B, V] -> ids [B]; `generator` is on the logits' device."""
    if sampling is None:
        return logits.argmax(dim=-1)
    probabilities = sampling.probabilities(logits)
    # the first of V independent clocks with these rates: torch.multinomial would ask the host
    clocks = torch.empty_like(probabilities).exponential_(generator=generator)
    return (probabilities / clocks).argmax(dim=-1)


@torch.no_grad()
def prefill(model: GPT2, ids: Tensor, cache: KVCache) -> Tensor:
    """Store the prompt [B, T] in the cache; return logits [B, 1, V] after its last token."""
    return model.tokens.logits(model.features(ids, cache)[:, -1:])


@torch.no_grad()
def generate(
    model: GPT2,
    ids: Tensor,
    new_tokens: int,
    *,
    sampling: Sampling | None = None,
    generator: torch.Generator | None = None,
    cache: KVCache | None = None,
    decode: Decode | None = None,
    stop_token: int | None = None,
) -> Tensor:
    """Generate from prompts [B, T]; return [B, T + new_tokens], prompts included.

    A given `cache` is reset and used. `decode` is by default the model's own step. After a
    `stop_token` it is repeated up to the full length; generation ends early when all sequences have
    one. That is checked after each token on the CPU, after every 16th on other devices, because it
    synchronises.

    Raises:
        ValueError: the model is in training mode, the prompt is empty, or the tokens exceed the
            positions or the cache.
    """
    if model.training:
        raise ValueError("the model is in training mode, dropout would change tokens: model.eval()")
    batch, prompt = ids.shape
    if prompt < 1 or new_tokens < 0:
        raise ValueError(f"needs a prompt and new_tokens >= 0, got {prompt} and {new_tokens}")
    if cache is None:  # the last token is not fed back
        cache = KVCache.for_model(model, batch, max(prompt, prompt + new_tokens - 1))
    cache.reset()
    logits = prefill(model, ids, cache)
    choose = partial(next_token, sampling=sampling, generator=generator)
    chosen = choose(logits[:, -1])[:, None][:, :new_tokens]
    follow = _following(decode or model, choose, greedy=sampling is None)
    at_once = new_tokens if stop_token is None else _LOOK_AFTER.get(ids.device.type, 16)
    while chosen.shape[1] < new_tokens and not _ended(chosen, stop_token):
        count = min(at_once, new_tokens - chosen.shape[1])
        chosen = torch.cat([chosen, follow(chosen[:, -1], cache, count)], dim=1)
    return torch.cat([ids, _silenced(chosen, stop_token, new_tokens)], dim=1)


def _following(decode: Decode, choose: Callable[[Tensor], Tensor], *, greedy: bool) -> Follow:
    """Return a function that maps a token [B] to the `count` tokens after it [B, count].

    If `decode` chooses the most likely token itself and `greedy` is set, its method is returned.
    """
    own = getattr(decode, "greedy", None)
    if greedy and own is not None:
        return own

    def follow(token: Tensor, cache: KVCache, count: int) -> Tensor:
        chosen = []
        for _ in range(count):
            token = choose(decode(token[:, None], cache)[:, -1])
            chosen.append(token)
        return torch.stack(chosen, dim=1)

    return follow


def _ended(chosen: Tensor, stop_token: int | None) -> bool:
    """Return whether every sequence of [B, T] has a stop token; this synchronises the device."""
    return stop_token is not None and bool((chosen == stop_token).any(dim=1).all())


def _silenced(chosen: Tensor, stop_token: int | None, length: int) -> Tensor:
    """Fill [B, T] up to [B, length], with stop tokens after the first one."""
    if stop_token is None:
        return chosen
    stops = chosen == stop_token
    masked = chosen.masked_fill(stops.cumsum(dim=1) > stops, stop_token)
    return F.pad(masked, (0, length - masked.shape[1]), value=stop_token)


@torch.no_grad()
def attention_path(model: GPT2, ids: Tensor) -> str:
    """Return the attention kernels of a prefill of ids [B, T] and of a decode step, or `math`.

    They are observed in the dispatcher.
    """
    cache = KVCache.for_model(model, ids.shape[0], ids.shape[1] + 1)
    kernels = []
    for part in (ids, ids[:, -1:]):
        with AttentionOperators() as operators:
            model(part, cache)
        kernels.append(", ".join(sorted(operators.names)) or "math")
    return f"prefill {kernels[0]}; decode {kernels[1]}"
