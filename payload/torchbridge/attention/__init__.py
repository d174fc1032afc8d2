"""Attention by SDPA, compiled FlexAttention or explicit products; reports the path taken."""

from torchbridge.attention.attend import attend
from torchbridge.attention.call import PATHS, Path, PathRefused
from torchbridge.attention.flex import block_masks, why_not_on
from torchbridge.attention.layers import (
    REGISTRY,
    FlashAttention3,
    FlashAttentionV3,
    FlexAttentionALiBi,
    FlexAttentionCausal,
    FlexAttentionLayer,
    FlexAttentionSlidingWindow,
    MultiHeadAttention,
    create_attention,
    create_flash_attention_3,
    create_flash_attention_v3,
    create_flex_attention,
    get_flex_info,
)
from torchbridge.attention.patterns import (
    FULL,
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
)
