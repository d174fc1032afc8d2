"""Attention that says how it was computed: SDPA, compiled FlexAttention, or explicitly."""

from torchbridge.attention.attend import attend, attend_weighed
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
from torchbridge.attention.paths import PATHS, Path, PathRefused
from torchbridge.attention.patterns import (
    FULL,
    PATTERNS,
    ALiBi,
    Causal,
    CausalSlidingWindow,
    Custom,
    DocumentMasking,
    Pattern,
    PrefixLM,
    SlidingWindow,
    SoftCap,
    alibi_slopes,
    create_pattern,
)
from torchbridge.attention.registry import (
    REGISTRY,
    create_attention,
    create_flash_attention_3,
    create_flash_attention_v3,
    create_flex_attention,
    get_flex_info,
)

__all__ = [
    "FULL",
    "PATHS",
    "PATTERNS",
    "REGISTRY",
    "ALiBi",
    "Causal",
    "CausalSlidingWindow",
    "Custom",
    "DocumentMasking",
    "FlashAttention3",
    "FlashAttentionV3",
    "FlexAttentionALiBi",
    "FlexAttentionCausal",
    "FlexAttentionLayer",
    "FlexAttentionSlidingWindow",
    "MultiHeadAttention",
    "Path",
    "PathRefused",
    "Pattern",
    "PrefixLM",
    "SlidingWindow",
    "SoftCap",
    "alibi_slopes",
    "attend",
    "attend_weighed",
    "block_masks",
    "create_attention",
    "create_flash_attention_3",
    "create_flash_attention_v3",
    "create_flex_attention",
    "create_pattern",
    "get_flex_info",
    "why_not_on",
]
