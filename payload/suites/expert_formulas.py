"""Formulas of the four experts: x [T, d] in float64, parameters `w` by name -> [T, d]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]


def feed_forward(x: Tensor, w: Weights) -> Tensor:
    """Return the output of two linear layers with ReLU between them."""
    hidden = (x @ w["up.weight"].T + w["up.bias"]).clamp(min=0)
    return hidden @ w["down.weight"].T + w["down.bias"]


def convolutional(x: Tensor, w: Weights) -> Tensor:
    """Return the output of a convolution over the features, ReLU and a linear layer.

    The convolution has width 3 and zero padding.
    """
    left, right = F.pad(x, (1, 0))[:, :-1], F.pad(x, (0, 1))[:, 1:]
    near = torch.stack([left, x, right], dim=-1)  # [T, d, 3]
    maps = torch.einsum("tdk,ck->tcd", near, w["conv.weight"])
    hidden = (maps + w["conv.bias"][:, None]).clamp(min=0).flatten(1)
    return hidden @ w["down.weight"].T + w["down.bias"]


def attention(x: Tensor, w: Weights) -> Tensor:
    """Return the output of attention among four slices of the features, then of a feed-forward.

    The attention is added to the slices (residual connection).
    """
    slices = x.unflatten(1, (4, -1))  # [T, 4, d / 4]
    width = slices.shape[-1]
    query, key, value = (slices @ w["qkv.weight"].T + w["qkv.bias"]).split(width, dim=-1)
    scores = (query @ key.transpose(1, 2) / width**0.5).softmax(dim=-1)
    mixed = (slices + scores @ value).flatten(1)
    up = mixed @ w["feed_forward.up.weight"].T + w["feed_forward.up.bias"]
    return up.clamp(min=0) @ w["feed_forward.down.weight"].T + w["feed_forward.down.bias"]


def parameter_efficient(x: Tensor, w: Weights) -> Tensor:
    """Return the output of a feed-forward whose two matrices are products of two low-rank ones."""
    hidden = x @ w["up.0.weight"].T @ w["up.1.weight"].T + w["up.1.bias"]
    low = hidden.clamp(min=0) @ w["down.0.weight"].T
    return low @ w["down.1.weight"].T + w["down.1.bias"]
