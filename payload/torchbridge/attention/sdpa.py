"""Attention by torch's fused kernels with dense masks, or by explicit products.

Shapes: B samples, H query heads, Q queries, K keys, G key heads, H a multiple of G: q [B, H, Q, D],
k [B, G, K, D], v [B, G, K, Dv] -> [B, H, Q, Dv]. Rows without a visible key are 0. All SDPA
back-ends are exact; `rule` overrides torch's order where that is not the order of speed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchbridge.attention.call import Call, Path, PathRefused
from torchbridge.attention.patterns import Causal, Pattern
from torchbridge.hardware import Hardware
from torchbridge.kernels.registry import hardware_of

# Scores of a whole call from which on it takes longer than putting back-ends in order (20 us).
LARGE = 2**25
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
_NAMES = {int(value): name for name, value in BACKENDS.items()}
_ASKED = ("cuda", "xpu")
_choose = getattr(torch, "_fused_sdp_choice", None)
# the FlashAttention activated for SDPA's flash kernel; None for torch's own
_switched = getattr(torch.nn.attention, "current_flash_attention_impl", lambda: None)
Shape = tuple[int, int, int, int]  # (B, H, Q, K)


def why_not_sdpa(call: Call) -> str | None:
    """Return why the pattern cannot be expressed as a mask or bias; None if it can."""
    if call.pattern.additive:
        return None
    return f"SDPA only adds to scores, and {call.pattern.name} changes them otherwise"


def by_sdpa(call: Call, backend: str | None = None, *, ruled: bool = False) -> tuple[Tensor, Path]:
    """Compute the call by scaled_dot_product_attention.

    The back-end is the named one, else that of `rule` if `ruled`, else torch's choice.

    Raises:
        PathRefused: the pattern is not a mask, or the back-end cannot compute the call.
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
    why = None
    if backend is not None:
        output, taken = by_backend(call, arguments, backend), backend
    else:
        output, taken, why = by_choice(call, arguments, form, ruled=ruled)
    output = output if dense is None else dense.emptied(output)
    return output, Path(name, form, taken, reason=why)


def by_choice(
    call: Call, arguments: dict[str, Any], form: str, *, ruled: bool
) -> tuple[Tensor, str | None, str | None]:
    """Return the output, its back-end (None: unknown) and the reason (None: torch's choice)."""
    asked = ruled and not torch.compiler.is_compiling()
    backend, reason = rule(hardware_of(call.q.device), call, form) if asked else (None, None)
    if backend is not None:
        try:
            return by_backend(call, arguments, backend), backend, reason
        except PathRefused as refusal:
            reason = f"{backend} not taken: {refusal.reason}"
    output = F.scaled_dot_product_attention(call.q, call.k, call.v, **arguments)
    return output, chosen(call, arguments), reason


def rule(hardware: Hardware, call: Call, form: str) -> tuple[str | None, str | None]:
    """Return ("cudnn", reason) for large calls on Hopper and sm_100, else (None, None).

    torch prefers FlashAttention-2, which does not use the units introduced by sm_90. On other
    generations it is at least as fast (figures of six:
    https://github.com/huggingface/transformers/pull/48163), so torch's order is kept, as it is
    where another FlashAttention was switched on.
    """
    if hardware.vendor != "nvidia" or (hardware.capability or (0, 0))[0] not in (9, 10):
        return None, None
    if _switched() is not None:
        return None, None
    narrow = max(call.q.shape[3], call.v.shape[3]) <= 128
    plain = form in ("no mask", "is_causal") and not call.dropout
    half = call.q.dtype in (torch.float16, torch.bfloat16)
    batch, heads, queries, keys = call.scores
    large = batch * heads * queries * keys >= LARGE and queries > 1
    if not (narrow and plain and half and large):
        return None, None
    return "cudnn", f"rule: cuDNN's is SDPA's fastest on {hardware.target}"


def by_backend(call: Call, arguments: dict[str, Any], backend: str) -> Tensor:
    """Compute the call with all other back-ends disabled.

    Raises:
        PathRefused: the back-end cannot compute the call.
    """
    with sdpa_kernel(BACKENDS[backend]):
        try:
            found = chosen(call, arguments)
            if found in (backend, None):
                return F.scaled_dot_product_attention(call.q, call.k, call.v, **arguments)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = f"torch has no such kernel for these inputs on {call.q.device.type}"
            raise PathRefused(f"sdpa_{backend}", reason) from error
    raise PathRefused(f"sdpa_{backend}", f"torch takes {found} though all else is switched off")


def chosen(call: Call, arguments: dict[str, Any]) -> str | None:
    """Return the back-end that torch chooses for the call; None if unknown."""
    if _choose is None or torch.compiler.is_compiling():
        return None
    if not call.q.is_cpu and call.q.device.type not in _ASKED:
        return None
    return _NAMES.get(int(_choose(call.q, call.k, call.v, **arguments)))


def by_matrices(call: Call) -> tuple[Tensor, Tensor, Path]:
    """Compute scores, softmax and sum explicitly; return (output, weights [B, H, Q, K], path).

    16-bit inputs are computed in float32. Supports any pattern; stores all scores.
    """
    q, k, v = (_wide(x) for x in (call.q, call.k, call.v))
    if call.grouped:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
    scores = modified(call.pattern, q @ k.transpose(-2, -1) * call.scale)
    mask = joined(visible(call.pattern, call.scores, q.device), call.mask)
    dense = None if mask is None else Dense.from_mask(mask)
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
    """Return pattern and mask of a call as one dense mask; None if all keys are visible."""
    q, pattern = call.q, call.pattern
    if type(pattern) is Pattern and call.mask is None:
        return None  # without checking shapes: a small call takes microseconds
    mask = joined(visible(pattern, call.scores, q.device), call.mask)
    if pattern.score_mod(q.device) is not None:
        batch = q.shape[0] if pattern.per_batch else 1
        zeros = _wide(q.new_zeros(())).expand(batch, *call.scores[1:])
        mask = joined(modified(pattern, zeros), mask)
    if mask is None:
        return None
    return Dense.from_mask(mask if mask.dtype == torch.bool else mask.to(q.dtype))


def _form(dense: Dense | None) -> str:
    if dense is None:
        return "no mask"
    return "mask" if dense.mask.dtype == torch.bool else "bias"


def positions(shape: Shape, device: torch.device) -> tuple[Tensor, ...]:
    """Return index tensors of sample, head, query and key that broadcast to `shape`."""
    views = ((-1, 1, 1, 1), (-1, 1, 1), (-1, 1), (-1,))
    return tuple(
        torch.arange(size, device=device).view(view)
        for size, view in zip(shape, views, strict=True)
    )


def visible(pattern: Pattern, shape: Shape, device: torch.device) -> Tensor | None:
    """Return a bool mask [B or 1, H or 1, Q, K] of visible keys; None if all are visible."""
    mod = pattern.mask_mod(device)
    if mod is None:
        return None
    batch, heads, queries, keys = shape
    shape = (batch if pattern.per_batch else 1, heads if pattern.per_head else 1, queries, keys)
    return mod(*positions(shape, device)).expand(shape)


def modified(pattern: Pattern, scores: Tensor) -> Tensor:
    """Apply the pattern's score modification to `scores` [B, H, Q, K]."""
    mod = pattern.score_mod(scores.device)
    return scores if mod is None else mod(scores, *positions(scores.shape, scores.device))


@dataclass(frozen=True, slots=True)
class Dense:
    """A dense mask and the rows without a visible key.

    `mask` is bool (True: visible) or a float bias, broadcastable to [B, H, Q, K], and leaves at
    least one key visible in every row; `empty` [..., Q, 1] marks the rows that see none.
    """

    mask: Tensor
    empty: Tensor

    @classmethod
    def from_mask(cls, mask: Tensor) -> Dense:
        """Build from any mask; rows without a visible key see all keys and are marked empty."""
        if mask.dtype == torch.bool:
            empty = ~mask.any(dim=-1, keepdim=True)
            return cls(mask | empty, empty)
        empty = (mask == -math.inf).all(dim=-1, keepdim=True)
        return cls(mask.masked_fill(empty, 0.0), empty)

    def emptied(self, output: Tensor) -> Tensor:
        """Return `output` [B, H, Q, D] with empty rows set to 0."""
        return output.masked_fill(self.empty, 0.0)


def joined(one: Tensor | None, two: Tensor | None) -> Tensor | None:
    """Combine two masks; each is bool, a float bias, or None."""
    if one is None or two is None:
        return two if one is None else one
    if one.dtype == torch.bool and two.dtype == torch.bool:
        return one & two
    return as_bias(one) + as_bias(two)


def as_bias(mask: Tensor) -> Tensor:
    """Convert a bool mask to a float bias; return a bias unchanged."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, -math.inf)
