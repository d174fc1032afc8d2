"""Single experts: [..., d] -> [..., d]. An expert is a function of one token.

So it does not matter which other tokens were routed with it, nor in which order: mixing tokens
inside an expert would make a token's output depend on its neighbours' routing.
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
    """act(x); gated: x [..., 2h] -> act(first half) * second half."""
    if not gated:
        return ACTIVATION[name](x)
    gate, value = x.chunk(2, dim=-1)
    return ACTIVATION[name](gate) * value


def activate_(x: Tensor, name: str, gated: bool) -> Tensor:
    """As `activate`, in the memory of x where the activation can be; not for gradients."""
    if not gated:
        return IN_PLACE[name](x)
    gate, value = x.chunk(2, dim=-1)
    return IN_PLACE[name](gate).mul_(value)


class FeedForwardExpert(nn.Module):
    """d -> h -> d; gated: the hidden layer is act(a) * b of two projections."""

    def __init__(
        self, hidden_size: int, expert_hidden_size: int, config: MoEConfig, gated: bool = False
    ) -> None:
        super().__init__()
        self.config = config
        self.gated = gated
        self.up = nn.Linear(hidden_size, expert_hidden_size * (1 + gated), config.use_bias)
        self.down = nn.Linear(expert_hidden_size, hidden_size, config.use_bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]"""
        hidden = activate(self.up(x), self.config.activation, self.gated)
        return self.down(F.dropout(hidden, self.config.expert_dropout, self.training))


class ConvolutionalExpert(nn.Module):
    """A convolution along the features (c channels, c * d = h), then h -> d."""

    def __init__(
        self, hidden_size: int, expert_hidden_size: int, config: MoEConfig, kernel_size: int = 3
    ) -> None:
        super().__init__()
        if kernel_size % 2 == 0:
            raise ValueError(f"ConvolutionalExpert: kernel_size must be odd, got {kernel_size}")
        self.config = config
        channels = max(1, expert_hidden_size // hidden_size)
        self.padding = kernel_size // 2
        self.conv = nn.Linear(kernel_size, channels)
        self.down = nn.Linear(channels * hidden_size, hidden_size, config.use_bias)

    def forward(self, x: Tensor) -> Tensor:
        """[..., d] -> [..., d]"""
        # a matrix product over windows: cuDNN's own convolutions round to TF32 unless told not to
        windows = F.pad(x.reshape(-1, x.shape[-1]), (self.padding, self.padding))
        windows = windows.unfold(1, 2 * self.padding + 1, 1)  # [N, d, kernel size]
        maps = self.conv(windows).transpose(1, 2).flatten(1)  # [N, c * d]
        hidden = activate(maps, self.config.activation, gated=False)
        hidden = F.dropout(hidden, self.config.expert_dropout, self.training)
        return self.down(hidden).reshape(x.shape)


class AttentionExpert(nn.Module):
    """Attention among the `num_heads` slices of a token's features, residual, then feed-forward."""

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
        """[..., d] -> [..., d]"""
        slices = x.reshape(-1, self.slices, x.shape[-1] // self.slices)  # [N, s, d / s]
        query, key, value = self.qkv(slices).chunk(3, dim=-1)
        mixed = F.scaled_dot_product_attention(query, key, value)
        return self.feed_forward((slices + mixed).reshape(x.shape))


class ParameterEfficientExpert(nn.Module):
    """d -> r -> h -> r -> d: both matrices of a feed-forward expert in rank r."""

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
        """[..., d] -> [..., d]"""
        hidden = activate(self.up(x), self.config.activation, gated=False)
        return self.down(F.dropout(hidden, self.config.expert_dropout, self.training))


EXPERTS = {
    "feedforward": FeedForwardExpert,
    "convolutional": ConvolutionalExpert,
    "attention": AttentionExpert,
    "parameter_efficient": ParameterEfficientExpert,
}
