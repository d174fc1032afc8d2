"""Kinds of experts: [..., d] -> [..., d].

An expert maps each token independently, so a token's output does not depend on which others were
routed with it.
"""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.moe.config import MoEConfig

ACTIVATION = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu}
IN_PLACE = {"relu": torch.relu_, "gelu": F.gelu, "silu": partial(F.silu, inplace=True)}


def activate(x: Tensor, name: str, gated: bool) -> Tensor:
    """Return act(x); if gated, act(first half) * second half of x [..., 2h]."""
    if not gated:
        return ACTIVATION[name](x)
    gate, value = x.chunk(2, dim=-1)
    return ACTIVATION[name](gate) * value


def activate_(x: Tensor, name: str, gated: bool) -> Tensor:
    """Compute `activate` in the memory of x if possible; not differentiable."""
    if not gated:
        return IN_PLACE[name](x)
    gate, value = x.chunk(2, dim=-1)
    return IN_PLACE[name](gate).mul_(value)


class FeedForwardExpert(nn.Module):
    """Feed-forward expert d -> h -> d; gated: act(a) * b of two up-projections."""

    def __init__(
        self, hidden_size: int, expert_hidden_size: int, config: MoEConfig, gated: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.gated = gated
        self.up = nn.Linear(hidden_size, expert_hidden_size * (1 + gated), config.use_bias)
        self.down = nn.Linear(expert_hidden_size, hidden_size, config.use_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., d] to [..., d]."""
        hidden = activate(self.up(x), self.config.activation, self.gated)
        return self.down(F.dropout(hidden, self.config.expert_dropout, self.training))


class ConvolutionalExpert(nn.Module):
    """Convolution over three adjacent features (c channels, c * d = h), then a linear layer."""

    def __init__(self, hidden_size: int, expert_hidden_size: int, config: MoEConfig) -> None:
        super().__init__()
        self.config = config
        channels = max(1, expert_hidden_size // hidden_size)
        self.conv = nn.Linear(3, channels)
        self.down = nn.Linear(channels * hidden_size, hidden_size, config.use_bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., d] to [..., d]."""
        # a matrix product over windows: cuDNN's own convolutions round to TF32 unless told not to
        windows = F.pad(x.reshape(-1, x.shape[-1]), (1, 1)).unfold(1, 3, 1)  # [N, d, 3]
        maps = self.conv(windows).transpose(1, 2).flatten(1)  # [N, c * d]
        hidden = activate(maps, self.config.activation, gated=False)
        hidden = F.dropout(hidden, self.config.expert_dropout, self.training)
        return self.down(hidden).reshape(x.shape)


class AttentionExpert(nn.Module):
    """Attention among `num_heads` slices of a token's features, residual, then feed-forward."""

    def __init__(
        self, hidden_size: int, expert_hidden_size: int, config: MoEConfig, num_heads: int = 4
    ) -> None:
        super().__init__()
        if hidden_size % num_heads:
            text = f"hidden_size {hidden_size} must be divisible by num_heads {num_heads}"
            raise ValueError(f"AttentionExpert: {text}")
        self.slices = num_heads
        width = hidden_size // num_heads
        self.qkv = nn.Linear(width, 3 * width, config.use_bias)
        self.feed_forward = FeedForwardExpert(hidden_size, expert_hidden_size, config)

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., d] to [..., d]."""
        slices = x.reshape(-1, self.slices, x.shape[-1] // self.slices)  # [N, s, d / s]
        query, key, value = self.qkv(slices).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.feed_forward((slices + mixed).reshape(x.shape))


class ParameterEfficientExpert(nn.Module):
    """Feed-forward expert whose two matrices have rank r: d -> r -> h -> r -> d."""

    def __init__(
        self, hidden_size: int, expert_hidden_size: int, config: MoEConfig, rank: int = 32
    ) -> None:
        super().__init__()
        self.config = config
        self.up = nn.Sequential(
            nn.Linear(hidden_size, rank, bias=False),
            nn.Linear(rank, expert_hidden_size, config.use_bias),
        )
        self.down = nn.Sequential(
            nn.Linear(expert_hidden_size, rank, bias=False),
            nn.Linear(rank, hidden_size, config.use_bias),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., d] to [..., d]."""
        hidden = activate(self.up(x), self.config.activation, gated=False)
        return self.down(F.dropout(hidden, self.config.expert_dropout, self.training))


EXPERTS = {
    "feedforward": FeedForwardExpert,
    "convolutional": ConvolutionalExpert,
    "attention": AttentionExpert,
    "parameter_efficient": ParameterEfficientExpert,
}
