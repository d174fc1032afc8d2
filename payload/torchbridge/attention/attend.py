"""Compute attention by the fastest exact path, or by a named path."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from torchbridge.attention import flex
from torchbridge.attention.call import PATHS, Call, Path, PathRefused
from torchbridge.attention.patterns import FULL, Causal, Pattern, Shifted
from torchbridge.attention.sdpa import by_matrices, by_sdpa, why_not_sdpa

LONG = 1024 * 1024  # minimum scores per head for which skipping blocks outweighs compiling a kernel


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    pattern: Pattern = FULL,
    mask: Tensor | None = None,
    q_offset: int = 0,
    scale: float | None = None,
    dropout: float = 0.0,
    path: str = "auto",
) -> tuple[Tensor, Path]:
    """Compute softmax(q k^T * scale) v under a pattern and mask; return (output, path taken).

    Shapes: q [B, H, Q, D], k [B, G, K, D], v [B, G, K, Dv] -> [B, H, Q, Dv]; H is a multiple of G.
    Rows without a visible key are 0. Args: pattern: decides which keys are visible and modifies the
    scores. mask: an additional bool mask (True: visible) or float bias, broadcastable to [B, H, Q,
    K]. q_offset: position of the first query among the keys: K - Q with a KV cache. scale: factor
    of the scores, by default 1 / sqrt(D). dropout: probability of dropping a weight; the others are
    rescaled. path: one of `PATHS`; any but `auto` is used or refused.

    Raises:
        ValueError: the shapes do not fit each other or the pattern, or the path is unknown.
        PathRefused: the path cannot compute this call.
    """
    if path not in PATHS:
        raise ValueError(f"path must be one of {', '.join(PATHS)}, got {path!r}")
    call = prepare(q, k, v, pattern, mask, q_offset, scale, dropout)
    return _by_name(call, path) if path != "auto" else _fastest(call)


def prepare(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pattern: Pattern = FULL,
    mask: Tensor | None = None,
    q_offset: int = 0,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Call:
    """Check the arguments of `attend` and return them as a `Call`."""
    check_shapes(q, k, v, mask)
    if type(pattern) is Causal and q_offset >= k.shape[2] - 1:
        pattern = FULL  # a decode step: there are no later keys
    elif q_offset:
        pattern = Shifted(pattern, q_offset)
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    call = Call(q, k, v, pattern, mask, scale, dropout)
    if type(pattern) not in (Pattern, Causal):  # these two fit everything
        pattern.check(*call.scores)
    return call


def check_shapes(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> None:
    """Raise ValueError unless shapes, dtypes and devices of the arguments fit each other."""
    if not q.dim() == k.dim() == v.dim() == 4:
        raise ValueError(
            f"q, k and v must be [batch, heads, positions, width], got {_shapes(q, k, v)}"
        )
    of_q, of_k, of_v = q.shape, k.shape, v.shape
    if of_k[:3] != of_v[:3] or of_q[0] != of_k[0] or of_q[3] != of_k[3]:
        raise ValueError(f"q, k and v do not fit each other: {_shapes(q, k, v)}")
    if of_q[1] % of_k[1]:
        raise ValueError(f"query heads must be a multiple of key heads: {_shapes(q, k, v)}")
    if not (q.dtype == k.dtype == v.dtype and q.device == k.device == v.device):
        kinds = [f"{x.dtype} on {x.device}" for x in (q, k, v)]
        raise ValueError(f"q, k and v must be of one dtype on one device, got {', '.join(kinds)}")
    if mask is not None:
        _check_mask(mask, (*of_q[:3], of_k[2]))


def _shapes(q: Tensor, k: Tensor, v: Tensor) -> str:
    return ", ".join(f"{n} {tuple(x.shape)}" for n, x in (("q", q), ("k", k), ("v", v)))


def _check_mask(mask: Tensor, scores: tuple[int, ...]) -> None:
    fits = mask.dim() <= 4 and all(
        size in (1, wanted)
        for size, wanted in zip(reversed(mask.shape), reversed(scores), strict=False)
    )
    if not fits:
        raise ValueError(
            f"mask {tuple(mask.shape)} does not broadcast to the scores {scores}; a mask of "
            f"padding is [batch, 1, 1, keys]"
        )
    if mask.dtype != torch.bool and not mask.is_floating_point():
        raise ValueError(f"mask must be bool (True: seen) or a float bias, got {mask.dtype}")


def _fastest(call: Call) -> tuple[Tensor, Path]:
    """Compute by FlexAttention if it can skip masked blocks, else by SDPA, else by products."""
    reason, simple = None, type(call.pattern) in (Pattern, Causal)
    if not simple and call.mask is None and call.scores[2] * call.scores[3] >= LONG:
        try:
            return flex.by_flex(call)
        except PathRefused as refusal:
            reason = refusal.reason
    if why_not_sdpa(call) is None:
        output, path = by_sdpa(call, ruled=True)
    else:
        output, _, path = by_matrices(call)
    return output, path if reason is None else replace(path, fallback=reason)


def _by_name(call: Call, path: str) -> tuple[Tensor, Path]:
    if path in ("flex", "flex_eager"):
        return flex.by_flex(call, compiled=path == "flex")
    if path == "explicit":
        output, _, taken = by_matrices(call)
        return output, taken
    return by_sdpa(call, path.partition("_")[2] or None)
