"""Attention by torch's fused kernels and a dense mask, and explicitly.

q [B, H, Q, D], k [B, G, K, D], v [B, G, K, Dv] with H a multiple of G -> [B, H, Q, Dv].
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.attention.call import Call, Path, PathRefused
from torchbridge.attention.choice import by_backend, by_choice
from torchbridge.attention.dense import Dense, as_bias, joined, modified, visible
from torchbridge.attention.patterns import Causal, Pattern


def why_not_sdpa(call: Call) -> str | None:
    """Why no dense mask or bias says what the pattern does; None when one does."""
    if call.pattern.additive:
        return None
    return f"SDPA only adds to scores, and {call.pattern.name} changes them otherwise"


def by_sdpa(call: Call, backend: str | None = None, choose: str = "torch") -> tuple[Tensor, Path]:
    """Through scaled_dot_product_attention; by the back-end of this name, or as `choose` has it.

    Raises:
        PathRefused: the pattern is no mask, or the back-end cannot compute this.
    """
    name = "sdpa" if backend is None else f"sdpa_{backend}"
    reason = why_not_sdpa(call)
    if reason is not None:
        raise PathRefused(name, reason)
    causal = call.mask is None and type(call.pattern) is Causal
    dense = None if causal else _dense(call)
    form = "is_causal" if causal else _form(dense)
    arguments = {
        "attn_mask": None if dense is None else dense.mask,
        "dropout_p": call.dropout,
        "is_causal": causal,
        "scale": call.scale,
        "enable_gqa": call.grouped,
    }
    if backend is None:
        output, taken, why = by_choice(call, arguments, form, choose)
    else:
        output, taken, why = by_backend(call, arguments, backend), backend, None
    output = output if dense is None else dense.emptied(output)
    return output, Path(name, form, taken, reason=why)


def by_matrices(call: Call) -> tuple[Tensor, Tensor, Path]:
    """Scores, softmax and sum one after the other: (output, weights [B, H, Q, K], path).

    16-bit inputs are computed in float32. Takes any pattern, and memory for all scores.
    """
    q, k, v = (_wide(x) for x in (call.q, call.k, call.v))
    if call.grouped:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = modified(call.pattern, q @ k.transpose(-2, -1) * call.scale)
    mask = joined(visible(call.pattern, call.scores, q.device), call.mask)
    dense = None if mask is None else Dense.of(mask)
    if dense is not None:
        scores = scores + as_bias(dense.mask)
    weights = scores.softmax(dim=-1)
    if dense is not None:
        weights = dense.emptied(weights)
    output = F.dropout(weights, call.dropout) @ v
    return output.to(call.v.dtype), weights.to(call.v.dtype), Path("explicit", "scores")


def _wide(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _dense(call: Call) -> Dense | None:
    """The pattern and the mask of a call as one mask; None if all is seen."""
    q, pattern = call.q, call.pattern
    if type(pattern) is Pattern and call.mask is None:
        return None  # without a look at shapes: a small call is over in microseconds
    mask = joined(visible(pattern, call.scores, q.device), call.mask)
    if pattern.score_mod(q.device) is not None:
        batch = q.shape[0] if pattern.per_batch else 1
        zeros = _wide(q.new_zeros(())).expand(batch, *call.scores[1:])
        mask = joined(modified(pattern, zeros), mask)
    if mask is None:
        return None
    return Dense.of(mask if mask.dtype == torch.bool else mask.to(q.dtype))


def _form(dense: Dense | None) -> str:
    if dense is None:
        return "no mask"
    return "mask" if dense.mask.dtype == torch.bool else "bias"
