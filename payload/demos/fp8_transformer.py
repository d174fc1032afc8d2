"""A transformer block of six linear layers."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Causal attention and a feed-forward layer, both with pre-normalisation and residual."""

    def __init__(self, width: int, heads: int, feed_forward: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_forward_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, feed_forward), nn.Linear(feed_forward, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map [B, S, d] to [B, S, d]."""
        normed = self.attention_norm(x)
        query, key, value = (
            part(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.feed_forward_norm(x))))
