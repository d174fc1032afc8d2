"""Attention layers by name."""

from __future__ import annotations

import torch

from torchbridge.attention.flex import block_masks, why_not_on
from torchbridge.attention.layers import (
    FlashAttention3,
    FlashAttentionV3,
    FlexAttentionALiBi,
    FlexAttentionCausal,
    FlexAttentionLayer,
    FlexAttentionSlidingWindow,
    MultiHeadAttention,
)
from torchbridge.attention.patterns import PATTERNS, create_pattern

REGISTRY: dict[str, type[MultiHeadAttention]] = {
    "multi_head": MultiHeadAttention,
    "flash_attention_3": FlashAttention3,
    "flex": FlexAttentionLayer,
    "flex_causal": FlexAttentionCausal,
    "flex_sliding_window": FlexAttentionSlidingWindow,
    "flex_alibi": FlexAttentionALiBi,
}


def create_attention(name: str, embed_dim: int, num_heads: int, **options) -> MultiHeadAttention:
    """A layer of a kind in `REGISTRY`; options go to its class.

    Raises:
        ValueError: there is no such kind.
    """
    if name not in REGISTRY:
        raise ValueError(f"attention must be one of {', '.join(REGISTRY)}, got {name!r}")
    return REGISTRY[name](embed_dim, num_heads, **options)


def create_flex_attention(
    pattern: str,
    embed_dim: int,
    num_heads: int,
    *,
    num_kv_heads: int | None = None,
    dropout: float = 0.0,
    bias: bool = True,
    path: str = "auto",
    **pattern_options,
) -> FlexAttentionLayer:
    """A layer with a pattern of this name (`PATTERNS`), made with `pattern_options`.

    Raises:
        ValueError: there is no such pattern.
    """
    made = create_pattern(pattern, **pattern_options)
    options = {"num_kv_heads": num_kv_heads, "dropout": dropout, "bias": bias, "path": path}
    return FlexAttentionLayer(embed_dim, num_heads, pattern=made, **options)


def create_flash_attention_3(embed_dim: int, num_heads: int, **options) -> FlashAttention3:
    """`FlashAttention3`; options are its."""
    return FlashAttention3(embed_dim, num_heads, **options)


def create_flash_attention_v3(**options) -> FlashAttentionV3:
    """`FlashAttentionV3`; options are its."""
    return FlashAttentionV3(**options)


def get_flex_info(device: torch.device) -> dict[str, object]:
    """What FlexAttention offers on `device`; `reason` says why it is not available, if so."""
    reason = why_not_on(device)
    return {
        "available": reason is None,
        "reason": reason,
        "device": str(device),
        "patterns": list(PATTERNS),
        "block_masks": len(block_masks),
    }
