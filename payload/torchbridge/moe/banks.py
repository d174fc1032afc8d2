"""All experts of a layer, applied to rows that are sorted by expert.

A assignments, E experts, C slots per expert in capacity mode, width d.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.moe.config import MoEConfig
from torchbridge.moe.experts import FeedForwardExpert, activate
from torchbridge.moe.grouped import grouped_mm, why_not


@dataclass(frozen=True, slots=True)
class Segments:
    """Rows in order of expert: `expert` [A] int64 ascending, `ends` [E] int32 one past the last."""

    expert: Tensor
    ends: Tensor

    @classmethod
    def of(cls, expert: Tensor, num_experts: int) -> Segments:
        """From sorted expert numbers [A]; stays on the device."""
        numbers = torch.arange(num_experts, device=expert.device)
        return cls(expert, torch.searchsorted(expert, numbers, right=True, out_int32=True))

    @property
    def counts(self) -> Tensor:
        """[E] int64 rows of each expert."""
        return torch.diff(self.ends.long(), prepend=self.ends.new_zeros(1))

    def sizes(self) -> list[int]:
        """The counts on the host: one wait for the device, for all experts together."""
        return self.counts.tolist()


@dataclass(frozen=True, slots=True)
class Path:
    """How the experts were computed; `fallback` says why not in the device's best way."""

    name: str
    fallback: str | None = None

    def __str__(self) -> str:
        return self.name if self.fallback is None else f"{self.name} ({self.fallback})"


class FeedForwardBank(nn.Module):
    """E feed-forward experts in stacked parameters."""

    def __init__(
        self,
        num_experts: int,
        hidden_size: int,
        expert_hidden_size: int,
        config: MoEConfig,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.config = config
        self.gated = gated
        self.up = _weights(num_experts, expert_hidden_size * (1 + gated), hidden_size)
        self.down = _weights(num_experts, hidden_size, expert_hidden_size)
        bias = config.use_bias
        self.up_bias = _bias(self.up) if bias else None  # [E, h], gated [E, 2h]
        self.down_bias = _bias(self.down) if bias else None  # [E, d]

    def __len__(self) -> int:
        return self.up.shape[0]

    def path(self, rows: Tensor, dispatch: str) -> Path:
        """How rows like these are computed.

        On CUDA in 16 bit one grouped kernel is the best way; elsewhere a matrix multiply per expert
        is as fast. Asked for by name, grouped_mm is used or refused, never replaced.
        """
        prefers = rows.device.type == "cuda" and rows.dtype in (torch.bfloat16, torch.float16)
        if dispatch == "segments" or (dispatch == "auto" and not prefers):
            return Path("segments")
        reason = why_not(rows.device, rows.dtype, (self.up.shape[2], *self.down.shape[1:]))
        if reason is None:
            return Path("grouped_mm")
        if dispatch == "grouped_mm":
            raise RuntimeError(f"dispatch 'grouped_mm' cannot be used: {reason}; use 'auto'")
        return Path("segments", reason)

    def forward(self, rows: Tensor, segments: Segments, path: Path) -> Tensor:
        """[A, d] sorted by expert -> [A, d]"""
        if path.name == "grouped_mm":
            return self._grouped(rows, segments)
        parts = rows.split(segments.sizes())
        return torch.cat([self._one(index, part) for index, part in enumerate(parts)])

    def batched(self, slots: Tensor) -> Tensor:
        """[E, C, d] -> [E, C, d]: as many rows for every expert."""
        hidden = self._hidden(_affine(slots, self.up, self.up_bias))
        return _affine(hidden, self.down, self.down_bias)

    def expert(self, index: int) -> FeedForwardExpert:
        """A copy of one expert as a module of its own."""
        width = self.down.shape[2]
        expert = FeedForwardExpert(self.down.shape[1], width, self.config, self.gated)
        expert.to(self.up)
        with torch.no_grad():
            expert.up.weight.copy_(self.up[index])
            expert.down.weight.copy_(self.down[index])
            if self.up_bias is not None and self.down_bias is not None:
                expert.up.bias.copy_(self.up_bias[index])
                expert.down.bias.copy_(self.down_bias[index])
        return expert.train(self.training)

    def keep(self, experts: range) -> None:
        """Forget all experts but these; they are renumbered from 0."""
        for name, value in list(self.named_parameters()):
            setattr(self, name, nn.Parameter(value[experts.start : experts.stop].detach().clone()))

    def _one(self, index: int, rows: Tensor) -> Tensor:
        up_bias = None if self.up_bias is None else self.up_bias[index]
        down_bias = None if self.down_bias is None else self.down_bias[index]
        hidden = self._hidden(F.linear(rows, self.up[index], up_bias))
        return F.linear(hidden, self.down[index], down_bias)

    def _grouped(self, rows: Tensor, segments: Segments) -> Tensor:
        numbers = torch.arange(len(self), device=rows.device)
        # a product with one-hot rows, not an index: its gradient is a sum in a fixed order
        one_hot = (segments.expert[:, None] == numbers).to(rows.dtype)  # [A, E]
        hidden = grouped_mm(rows, self.up, segments.ends)
        if self.up_bias is not None:
            hidden = torch.addmm(hidden, one_hot, self.up_bias)
        out = grouped_mm(self._hidden(hidden), self.down, segments.ends)
        return out if self.down_bias is None else torch.addmm(out, one_hot, self.down_bias)

    def _hidden(self, up: Tensor) -> Tensor:
        hidden = activate(up, self.config.activation, self.gated)
        return F.dropout(hidden, self.config.expert_dropout, self.training)


class ModuleBank(nn.Module):
    """Any experts, one module each."""

    def __init__(self, num_experts: int, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(make() for _ in range(num_experts))

    def __len__(self) -> int:
        return len(self.experts)

    def path(self, rows: Tensor, dispatch: str) -> Path:
        """Segments always: only feed-forward experts have a grouped form."""
        if dispatch == "grouped_mm":
            raise RuntimeError("dispatch 'grouped_mm' needs feedforward experts; use 'auto'")
        return Path("segments")

    def forward(self, rows: Tensor, segments: Segments, path: Path) -> Tensor:
        """[A, d] sorted by expert -> [A, d]"""
        parts = rows.split(segments.sizes())
        return torch.cat([e(part) for e, part in zip(self.experts, parts, strict=True)])

    def batched(self, slots: Tensor) -> Tensor:
        """[E, C, d] -> [E, C, d]"""
        return torch.stack([e(part) for e, part in zip(self.experts, slots, strict=True)])

    def expert(self, index: int) -> nn.Module:
        """One expert."""
        return self.experts[index]

    def keep(self, experts: range) -> None:
        """Forget all experts but these; they are renumbered from 0."""
        self.experts = self.experts[experts.start : experts.stop]


Bank = FeedForwardBank | ModuleBank


def _weights(num_experts: int, outputs: int, inputs: int) -> nn.Parameter:
    """[E, outputs, inputs], uniform in +-1/sqrt(inputs) as nn.Linear is."""
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter(torch.empty(num_experts, outputs, inputs).uniform_(-bound, bound))


def _bias(weights: nn.Parameter) -> nn.Parameter:
    """[E, outputs], drawn like the weights' own rows."""
    bound = 1 / math.sqrt(weights.shape[2])
    return nn.Parameter(weights.new_empty(weights.shape[:2]).uniform_(-bound, bound))


def _affine(slots: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """[E, C, K], [E, N, K], [E, N] -> [E, C, N]"""
    if bias is None:
        return torch.bmm(slots, weights.transpose(1, 2))
    return torch.baddbmm(bias.unsqueeze(1), slots, weights.transpose(1, 2))
