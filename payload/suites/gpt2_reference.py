"""A reference of GPT-2 in float64 on the CPU, and what else its suites share.

It is written from the formulas and uses only the names of the library's weights.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchbridge.llm import GPT2, GPT2Config

SMALL = GPT2Config(vocabulary=97, positions=64, layers=3, heads=4, width=32, dropout=0.0)
WIDER = GPT2Config(vocabulary=512, positions=128, layers=4, heads=4, width=128, dropout=0.0)


def lively(config: GPT2Config = SMALL, seed: int = 0) -> GPT2:
    """Return a GPT-2 in eval mode whose next token depends on all tokens before it.

    Larger random weights are added, because GPT-2 with its initial weights repeats one token.
    """
    generator = torch.Generator().manual_seed(seed)
    model = GPT2(config, generator)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            size = 0.6 if name.startswith("positions") else 0.2 if parameter.dim() == 2 else 0.05
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=size)
    return model.eval()


def prompts(batch: int, tokens: int, device: torch.device, config: GPT2Config = SMALL) -> Tensor:
    """Return random token ids [batch, tokens]."""
    return torch.randint(0, config.vocabulary, (batch, tokens), device=device)


def logits(model: GPT2, ids: Tensor) -> Tensor:
    """Return the float64 logits [B, T, V] for ids [B, T]."""
    weights = {name: value.detach().cpu().double() for name, value in model.state_dict().items()}
    config, ids = model.config, ids.cpu()
    eps, heads = config.layer_norm_epsilon, config.heads
    x = weights["tokens.weight"][ids] + weights["positions.weight"][: ids.shape[1]]
    for layer in range(config.layers):
        own = {
            name.removeprefix(f"blocks.{layer}."): value
            for name, value in weights.items()
            if name.startswith(f"blocks.{layer}.")
        }
        x = x + attention(norm(x, own, "norm1", eps), own, heads)
        x = x + affine(gelu(affine(norm(x, own, "norm2", eps), own, "up")), own, "down")
    return norm(x, weights, "norm", eps) @ weights["tokens.weight"].T


def greedy(model: GPT2, ids: Tensor, new_tokens: int) -> Tensor:
    """Return ids [B, T + new_tokens], continued greedily; each step computes the whole sequence."""
    ids = ids.cpu()
    for _ in range(new_tokens):
        ids = torch.cat([ids, logits(model, ids)[:, -1:].argmax(dim=-1)], dim=1)
    return ids


def attention(x: Tensor, weights: dict[str, Tensor], heads: int) -> Tensor:
    """Return causal attention [B, T, d] -> [B, T, d] with an explicit softmax."""
    tokens, width = x.shape[1:]
    parts = affine(x, weights, "attention.qkv").split(width, dim=-1)
    outputs = []
    for head in range(heads):
        columns = slice(head * width // heads, (head + 1) * width // heads)
        q, k, v = (part[..., columns] for part in parts)
        scores = q @ k.transpose(1, 2) / math.sqrt(width // heads)
        future = torch.arange(tokens)[None, :] > torch.arange(tokens)[:, None]
        scores = scores.masked_fill(future, -math.inf)
        shares = (scores - scores.amax(dim=-1, keepdim=True)).exp()
        outputs.append(shares / shares.sum(dim=-1, keepdim=True) @ v)
    return affine(torch.cat(outputs, dim=-1), weights, "attention.out")


def affine(x: Tensor, weights: dict[str, Tensor], name: str) -> Tensor:
    """Return x W^T + b of the named weights."""
    return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]


def norm(x: Tensor, weights: dict[str, Tensor], name: str, eps: float) -> Tensor:
    """Return x with mean 0 and variance 1 over the last dimension, then scaled and shifted."""
    centred = x - x.mean(dim=-1, keepdim=True)
    spread = (centred.square().mean(dim=-1, keepdim=True) + eps).sqrt()
    return centred / spread * weights[f"{name}.weight"] + weights[f"{name}.bias"]


def gelu(x: Tensor) -> Tensor:
    """Return GELU by GPT-2's tanh approximation."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
