"""A small language model whose feed-forward layers are MoE layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from torchbridge.moe import MoEConfig, MoELayer

LOSSES = ("load_balance_loss", "router_z_loss", "expert_utilization", "tokens_dropped")


class Block(nn.Module):
    """Causal attention and an MoE layer, both with pre-normalisation and residual."""

    def __init__(self, hidden: int, heads: int, config: MoEConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = nn.MultiheadAttention(hidden, heads, batch_first=True)
        self.moe_norm = nn.LayerNorm(hidden)
        self.moe = MoELayer(config, hidden)

    def forward(self, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Map [B, S, d] to [B, S, d] and the MoE layer's auxiliary values."""
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        normed = self.attention_norm(x)
        x = x + self.attention(normed, normed, normed, attn_mask=ahead, need_weights=False)[0]
        output, aux = self.moe(self.moe_norm(x), return_router_logits=True)
        return x + output, {name: aux[name] for name in LOSSES}


class MoETransformer(nn.Module):
    """Map token ids [B, S] to logits [B, S, vocabulary] and each block's auxiliary values."""

    def __init__(
        self, *, vocabulary: int, hidden: int, heads: int, layers: int, experts: int
    ) -> None:
        super().__init__()
        config = MoEConfig(num_experts=experts)
        self.tokens = nn.Embedding(vocabulary, hidden)
        self.positions = nn.Embedding(512, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads, config) for _ in range(layers))
        self.head = nn.Linear(hidden, vocabulary)

    @property
    def moe_layers(self) -> list[MoELayer]:
        """The MoE layer of every block."""
        return [block.moe for block in self.blocks]

    def forward(self, tokens: Tensor) -> tuple[Tensor, list[dict[str, Tensor]]]:
        """Return logits and auxiliary values; see the class."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(places)
        collected = []
        for block in self.blocks:
            x, aux = block(x)
            collected.append(aux)
        return self.head(x), collected
