"""A reference of attention in Python's float64, one score at a time.

Each case states its pattern a second time, as a rule on four integers: batch, head, query, key.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from suites.numerics import double
from torchbridge import attention as att
from torchbridge.attention import Pattern

HEADS = 4
IDS = [[0] * 5 + [1] * 9 + [2] * 40, [3] * 1 + [7] * 20 + [3] * 33]  # two samples, 54 positions
SLOPES = [0.25, 0.0625, 0.015625, 0.00390625]  # 2^-2, 2^-4, 2^-6, 2^-8


def always(b: int, h: int, q: int, k: int) -> bool:
    """Return True: every query sees every key."""
    return True


def unchanged(score: float, b: int, h: int, q: int, k: int) -> float:
    """Return the score unchanged."""
    return score


@dataclass(frozen=True)
class Case:
    """A pattern, with its mask and its change of scores as plain Python functions.

    `seen` takes (batch, head, query, key); `change` takes the score and the same four integers.
    """

    pattern: Pattern
    seen: Callable[[int, int, int, int], bool] = always
    change: Callable[[float, int, int, int, int], float] = unchanged


def thirds(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return a custom mask that depends on the batch, the head, the query and the key."""
    return ((b + h + q + k) % 3 != 0) | (q == k)


def waves(score: Tensor, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return a custom score that depends on the batch, the head, the query and the key."""
    return score * (1 + h) / (1 + b) + (q - k) % 8 / 8  # eighths are exact


CASES = {
    "full": Case(att.FULL),
    "causal": Case(att.Causal(), lambda b, h, q, k: k <= q),
    "sliding_window": Case(att.SlidingWindow(4), lambda b, h, q, k: k in range(q - 3, q + 4)),
    "causal_sliding_window": Case(
        att.CausalSlidingWindow(4), lambda b, h, q, k: k in (q - 3, q - 2, q - 1, q)
    ),
    "alibi": Case(att.ALiBi(HEADS), change=lambda s, b, h, q, k: s - SLOPES[h] * max(q - k, k - q)),
    "document_masking": Case(
        att.DocumentMasking(torch.tensor(IDS)), lambda b, h, q, k: IDS[b][q] == IDS[b][k]
    ),
    "prefix_lm": Case(att.PrefixLM(5), lambda b, h, q, k: k in range(5) or k <= q),
    "soft_cap": Case(att.SoftCap(0.75), change=lambda s, b, h, q, k: 0.75 * math.tanh(s / 0.75)),
    "custom": Case(
        att.Custom(thirds, waves),
        lambda b, h, q, k: (b + h + q + k) % 3 > 0 or q == k,
        lambda s, b, h, q, k: s * (1 + h) / (1 + b) + ((q - k) % 8) / 8,
    ),
    "alibi+causal": Case(
        att.ALiBi(HEADS) & att.Causal(),
        lambda b, h, q, k: k <= q,
        lambda s, b, h, q, k: s + SLOPES[h] * (k - q),
    ),
    "soft_cap+document_masking": Case(
        att.SoftCap(0.75) & att.DocumentMasking(torch.tensor(IDS)),
        lambda b, h, q, k: IDS[b][q] == IDS[b][k],
        lambda s, b, h, q, k: 0.75 * math.tanh(s / 0.75),
    ),
}
NOT_FOR_SDPA = ("soft_cap", "custom", "soft_cap+document_masking")


def scaled_scores(q: Tensor, k: Tensor, scale: float | None = None) -> Tensor:
    """Return float64 scores [B, H, Q, K]: each query times each key of its head's group, scaled."""
    q, k = double(q), double(k)
    group = q.shape[1] // k.shape[1]
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    heads = [q[:, h] @ k[:, h // group].transpose(1, 2) for h in range(q.shape[1])]
    return torch.stack(heads, dim=1) * factor


def weigh(scores: Tensor, v: Tensor) -> Tensor:
    """Return v weighted by the softmax of `scores`; 0 for queries whose scores are all -inf."""
    top = scores.amax(dim=-1, keepdim=True)
    shares = torch.exp(scores - torch.where(top == -math.inf, 0.0, top))
    total = shares.sum(dim=-1, keepdim=True)
    weights = torch.where(total > 0, shares / total, 0.0)
    group = scores.shape[1] // v.shape[1]
    heads = [weights[:, h] @ double(v)[:, h // group] for h in range(scores.shape[1])]
    return torch.stack(heads, dim=1)


def by_case(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    case: Case,
    *,
    offset: int = 0,
    mask: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """Return float64 attention [B, H, Q, Dv] by `case`, computed one score at a time.

    `offset` is added to the position of each query; `mask` also hides keys if given.
    """
    scores = scaled_scores(q, k, scale)
    allowed = None if mask is None else mask.cpu().expand(scores.shape)
    for b, h, i, j in torch.cartesian_prod(*map(torch.arange, scores.shape)).tolist():
        here = (b, h, i + offset, j)
        sees = case.seen(*here) and (allowed is None or bool(allowed[b, h, i, j]))
        scores[b, h, i, j] = case.change(scores[b, h, i, j].item(), *here) if sees else -math.inf
    return weigh(scores, v)


def layer_by_case(layer: att.MultiHeadAttention, x: Tensor, case: Case) -> Tensor:
    """Return the layer's output in float64, computed from its weights, with attention by `case`."""
    kept = layer.num_heads * layer.head_dim, layer.num_kv_heads * layer.head_dim
    projected = double(x) @ double(layer.qkv.weight).T + double(layer.qkv.bias)
    parts = projected.split([kept[0], kept[1], kept[1]], dim=-1)
    heads = (part.unflatten(-1, (-1, layer.head_dim)).transpose(1, 2) for part in parts)
    mixed = by_case(*heads, case).transpose(1, 2).flatten(2)
    return mixed @ double(layer.out.weight).T + double(layer.out.bias)


def by_mask(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Return float64 attention [B, H, Q, Dv] by a bool mask that broadcasts to the scores.

    Unlike `by_case` it is fast enough for large shapes.
    """
    scores = scaled_scores(q, k)
    if mask is not None:
        scores = scores.masked_fill(~mask.cpu(), -math.inf)
    return weigh(scores, v)


def lower_triangle(queries: int, keys: int) -> Tensor:
    """Return a bool mask [Q, K] that is True on and below the diagonal."""
    return torch.ones(queries, keys, dtype=torch.bool).tril()


def inputs(
    device: torch.device,
    queries: int = 23,
    keys: int | None = None,
    *,
    batch: int = 2,
    heads: int = HEADS,
    groups: int | None = None,
    width: int = 16,
    dtype: torch.dtype = torch.float32,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return normally distributed q [B, H, Q, D] and k, v [B, G, K, D]."""
    q = torch.randn(batch, heads, queries, width, device=device, dtype=dtype)
    shape = (batch, groups or heads, keys or queries, width)
    k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
    return q, k, v
