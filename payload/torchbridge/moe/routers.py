"""Routers choose k of E experts for every token.

Each takes x [T, d] and returns a dict: `logits` [T, E], `probs` [T, E] (sum to 1), `expert_indices`
[T, k] (distinct, best first), `expert_weights` [T, k]. `expert_mask` ([E] or [T, E], True =
allowed) excludes experts. Scores are computed in float32 or wider for every dtype of x, also under
autocast. Of equal scores the lower expert number is chosen.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.kernels.registry import without_autocast
from torchbridge.moe.config import MoEConfig

Routing = dict[str, Tensor]

_assert_on_device = getattr(torch, "_assert_async", None)  # no public name has it


def wide(x: Tensor) -> Tensor:
    """Convert x to float32, or keep it in float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def wide_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute F.linear in float32 or wider."""
    with without_autocast(x.device):
        return F.linear(wide(x), wide(weight), None if bias is None else wide(bias))


def usable(expert_mask: Tensor, top_k: int, device: torch.device) -> Tensor:
    """Return the mask as bool on `device`, after checking it.

    A CPU mask is checked at once; a mask on an accelerator is checked there without
    synchronisation, by a device-side assertion.

    Raises:
        ValueError: it leaves a token fewer than `top_k` experts.
    """
    mask = expert_mask.bool()
    enough = (mask.sum(dim=-1) >= top_k).all()
    text = f"expert_mask leaves a token fewer than top_k={top_k} experts"
    if mask.device.type != "cpu" and _assert_on_device is not None:
        _assert_on_device(enough, text)
    elif not bool(enough):
        raise ValueError(text)
    return mask.to(device, non_blocking=True)


class TopKRouter(nn.Module):
    """Softmax of a linear gate; chooses the k most probable experts."""

    def __init__(self, hidden_size: int, config: MoEConfig) -> None:
        super().__init__()
        self.config = config
        self.gate = nn.Linear(hidden_size, config.num_experts, bias=False)

    def forward(self, x: Tensor, expert_mask: Tensor | None = None) -> Routing:
        """Map x [T, d] to a routing; see this module's docstring."""
        logits = self.logits(F.dropout(x, self.config.router_dropout, self.training))
        mask = None if expert_mask is None else usable(expert_mask, self.config.top_k, x.device)
        if mask is not None:
            logits = logits.masked_fill(~mask, -math.inf)
        probs = logits.softmax(dim=-1)
        ranking = self.ranking(probs.detach())
        if mask is not None:
            ranking = ranking.masked_fill(~mask, -math.inf)
        # a stable sort, not topk: topk leaves the order of equals open
        best = ranking.sort(dim=-1, descending=True, stable=True).indices
        indices = best[:, : self.config.top_k].contiguous()
        weights = probs.gather(1, indices)
        if self.config.normalize_router_probs:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        return {
            "logits": logits,
            "probs": probs,
            "expert_indices": indices,
            "expert_weights": weights,
        }

    def logits(self, x: Tensor) -> Tensor:
        """Return scores [T, E] of x [T, d]."""
        return wide_linear(x, self.gate.weight)

    def ranking(self, probs: Tensor) -> Tensor:
        """Return the scores [T, E] by which experts are chosen; here the probabilities."""
        return probs


class SwitchRouter(TopKRouter):
    """Top-1 router weighted by probability; training multiplies x by noise in 1 +- `jitter`."""

    def __init__(self, hidden_size: int, config: MoEConfig, jitter: float = 0.01) -> None:
        super().__init__(hidden_size, replace(config, top_k=1, normalize_router_probs=False))
        self.jitter = jitter

    def logits(self, x: Tensor) -> Tensor:
        """Return scores [T, E], with noise in training."""
        x = wide(x)
        if self.training and self.jitter:
            x = x * torch.empty_like(x).uniform_(1 - self.jitter, 1 + self.jitter)
        return super().logits(x)


class BalancingRouter(TopKRouter):
    """Top-k router by probability plus a balancing bias per expert; weights have no bias."""

    selection_bias: Tensor

    def __init__(self, hidden_size: int, config: MoEConfig, rate: float) -> None:
        super().__init__(hidden_size, config)
        self.rate = rate
        self.register_buffer("selection_bias", torch.zeros(config.num_experts))

    def ranking(self, probs: Tensor) -> Tensor:
        """Return the probabilities plus the biases."""
        return probs + self.selection_bias.to(probs.dtype)

    @torch.no_grad()
    def adapt(self, counts: Tensor) -> None:
        """Raise the biases of experts below the mean of counts [E] by `rate`, lower the others."""
        load = counts.to(self.selection_bias.dtype)
        self.selection_bias += self.rate * torch.sign(load.mean() - load)


class LearnedRouter(TopKRouter):
    """Router with a two-layer gate; its result includes `features` [T, router_hidden_size]."""

    def __init__(self, hidden_size: int, config: MoEConfig, router_hidden_size: int = 128) -> None:
        super().__init__(router_hidden_size, config)
        self.features = nn.Linear(hidden_size, router_hidden_size)

    def forward(self, x: Tensor, expert_mask: Tensor | None = None) -> Routing:
        """Map x [T, d] to a routing with the hidden layer's features."""
        features = F.relu(wide_linear(x, self.features.weight, self.features.bias))
        return {**super().forward(features, expert_mask), "features": features}


class DynamicCapacityRouter(TopKRouter):
    """Top-k router whose capacity depends on the batch, for layers with `drop_tokens`.

    Adds `complexity` [T], the entropy of a token's probabilities over ln E, and `capacity_factor`
    (0-dim): from 1 at zero entropy to the config's at maximum entropy.
    """

    def forward(self, x: Tensor, expert_mask: Tensor | None = None) -> Routing:
        """Map x [T, d] to a routing with complexity and capacity factor."""
        routing = super().forward(x, expert_mask)
        probs = routing["probs"].detach()
        entropy = -torch.xlogy(probs, probs).sum(dim=-1)
        complexity = entropy / math.log(max(2, probs.shape[1]))
        factor = 1 + (self.config.capacity_factor - 1) * complexity.mean()
        return {**routing, "complexity": complexity, "capacity_factor": factor}


class HashRouter(nn.Module):
    """Router without parameters: k distinct experts by a hash of the token, with equal weights.

    The hash is of `token_ids` [T] if given, else of the token's float32 bits. `logits` are zero and
    `probs` uniform.
    """

    def __init__(self, hidden_size: int, config: MoEConfig, seed: int = 0) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.config = config
        self.seed = seed

    def forward(
        self, x: Tensor, expert_mask: Tensor | None = None, token_ids: Tensor | None = None
    ) -> Routing:
        """Map x [T, d] to a routing; see the class."""
        experts, top_k = self.config.num_experts, self.config.top_k
        token = hash_rows(x) if token_ids is None else mix(token_ids.long())
        salts = mix(torch.arange(experts, device=x.device) + 1 + self.seed * experts)
        keys = mix(token[:, None] ^ salts)  # [T, E]: one lottery ticket per expert
        if expert_mask is not None:
            keys = keys.masked_fill(
                ~usable(expert_mask, top_k, x.device), torch.iinfo(torch.int64).max
            )
        indices = keys.sort(dim=-1, stable=True).indices[:, :top_k].contiguous()
        logits = wide(x).new_zeros(x.shape[0], experts)
        return {
            "logits": logits,
            "probs": torch.full_like(logits, 1 / experts),
            "expert_indices": indices,
            "expert_weights": logits.new_full((x.shape[0], top_k), 1 / top_k),
        }


# A hash in plain tensor operations: no host round trip, the same on every device. Arithmetic is
# modulo 2^64 in int64 (two's complement), so results are exact and order-independent.


def _signed(value: int) -> int:
    """Return the int64 with the bits of an unsigned 64-bit constant."""
    return value - 2**64 if value >= 2**63 else value


GOLDEN = _signed(0x9E3779B97F4A7C15)
_MULTIPLY_1 = _signed(0xBF58476D1CE4E5B9)
_MULTIPLY_2 = _signed(0x94D049BB133111EB)


def _shift_right(value: Tensor, bits: int) -> Tensor:
    """Shift logically, since torch shifts int64 arithmetically."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def mix(value: Tensor) -> Tensor:
    """Apply the finaliser of splitmix64: a bijection in which each bit affects all bits."""
    value = (value ^ _shift_right(value, 30)) * _MULTIPLY_1
    value = (value ^ _shift_right(value, 27)) * _MULTIPLY_2
    return value ^ _shift_right(value, 31)


def hash_rows(x: Tensor) -> Tensor:
    """Hash the float32 bits of x [T, d] to [T] int64; 0.0 and -0.0 are equal."""
    bits = (x.detach().float() + 0.0).contiguous().view(torch.int32).long()
    columns = torch.arange(1, x.shape[1] + 1, device=x.device)
    return mix((bits * (mix(columns * GOLDEN) | 1)).sum(dim=1))
