"""All experts of a layer, applied to rows that are sorted by expert.

Shapes: A assignments, E experts, C slots per expert in capacity mode, width d.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchbridge.kernels import Kernel
from torchbridge.kernels.registry import autocast_on
from torchbridge.moe.config import DISPATCHES, MoEConfig
from torchbridge.moe.experts import FeedForwardExpert, activate, activate_
from torchbridge.moe.grouped import grouped_mm, why_not
from torchbridge.moe.paths import (
    Batch,
    Path,
    choose,
    triton_kernel,
    wants_gradient,
    why_no_grouped_kernel,
    why_no_kernel,
    why_no_slots,
)


@dataclass(frozen=True, slots=True)
class Segments:
    """Row ranges per expert: `expert` [A] int64 ascending, `ends` [E] int32 one past the last row.

    No expert has more than `most` rows.
    """

    expert: Tensor
    ends: Tensor
    most: int

    @classmethod
    def from_experts(cls, expert: Tensor, num_experts: int, most: int | None = None) -> Segments:
        """Build from sorted expert numbers [A] without synchronisation; `most` is by default A."""
        numbers = torch.arange(num_experts, device=expert.device)
        ends = torch.searchsorted(expert, numbers, right=True, out_int32=True)
        return cls(expert, ends, expert.shape[0] if most is None else most)

    @property
    def counts(self) -> Tensor:
        """Number of rows per expert, [E] int64."""
        return torch.diff(self.ends.long(), prepend=self.ends.new_zeros(1))

    @property
    def ranks(self) -> Tensor:
        """Index of each row among those of its expert, [A] int64."""
        starts = self.ends.long() - self.counts
        numbers = torch.arange(self.expert.shape[0], device=self.expert.device)
        return numbers - starts[self.expert]

    def sizes(self) -> list[int]:
        """Return the counts on the host, which synchronises the device once."""
        return self.counts.tolist()


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

    def path(self, batch: Batch, dispatch: str) -> Path:
        """Return how a batch is computed; see `paths`."""
        widths = (self.up.shape[2], *self.down.shape[1:])
        traced = torch.compiler.is_compiling()
        refusals = {
            "grouped_mm": lambda: why_not(batch.device, batch.dtype, widths, traced=traced),
            "triton": lambda: self._why_no_kernel(batch, dispatch),
            "triton_grouped": lambda: why_no_grouped_kernel(
                batch, self.up, self.down, by_name=dispatch == "triton_grouped"
            ),
            "slots": lambda: why_no_slots(batch),
        }
        return choose(batch, dispatch, refusals)

    def _why_no_kernel(self, batch: Batch, dispatch: str) -> str | None:
        if self.training and self.config.expert_dropout > 0:
            return "triton has no dropout"
        weights = (self.up, self.down, self.up_bias, self.down_bias)
        return why_no_kernel(batch, len(self), *weights, by_name=dispatch == "triton")

    def forward(self, rows: Tensor, segments: Segments, path: Path) -> Tensor:
        """Map rows [A, d], sorted by expert, to [A, d]."""
        if path.name == "grouped_mm":
            return self._grouped(rows, segments)
        if path.name == "triton_grouped":
            return self._grouped(rows, segments, triton_kernel("grouped_mm"))
        if path.name == "slots":
            return _in_slots(self, rows, segments)
        sizes = segments.sizes()
        if self._differs_from_inference(rows):
            parts = enumerate(rows.split(sizes))
            return torch.cat([self._one(index, part) for index, part in parts])
        return self._without_gradient(rows, sizes)

    def apply_kernel(self, x: Tensor, indices: Tensor, weights: Tensor, kernel: Kernel) -> Tensor:
        """Compute all by one kernel: x [T, d], indices and weights [T, k] -> [T, d]."""
        matrices = (self.up, self.down, self.up_bias, self.down_bias)
        return kernel.run(x, indices, weights, *matrices, self.config.activation, self.gated)

    def batched(self, slots: Tensor) -> Tensor:
        """Map [E, C, d] to [E, C, d], with the same number of rows per expert."""
        hidden = self._hidden(_affine(slots, self.up, self.up_bias))
        return _affine(hidden, self.down, self.down_bias)

    def expert(self, index: int) -> FeedForwardExpert:
        """Return a copy of one expert as a module."""
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
        """Drop all experts outside this range; the rest is renumbered from 0."""
        for name, value in list(self.named_parameters()):
            setattr(self, name, nn.Parameter(value[experts.start : experts.stop].detach().clone()))

    def _one(self, index: int, rows: Tensor) -> Tensor:
        up_bias = None if self.up_bias is None else self.up_bias[index]
        down_bias = None if self.down_bias is None else self.down_bias[index]
        hidden = self._hidden(F.linear(rows, self.up[index], up_bias))
        return F.linear(hidden, self.down[index], down_bias)

    def _differs_from_inference(self, rows: Tensor) -> bool:
        """Return whether there are gradients, dropout or autocast."""
        dropout = self.training and self.config.expert_dropout > 0
        return wants_gradient(self, rows) or dropout or autocast_on(rows.device.type)

    def _without_gradient(self, rows: Tensor, sizes: list[int]) -> Tensor:
        """Compute as `_one`, without gradients: all experts share one hidden-layer buffer."""
        out = torch.empty_like(rows)
        hidden = rows.new_empty(max(sizes, default=0), self.up.shape[1])
        parts = zip(rows.split(sizes), out.split(sizes), strict=True)
        for index, (part, target) in enumerate(parts):
            if len(part):
                up = _linear_into(part, self.up, self.up_bias, index, hidden[: len(part)])
                up = activate_(up, self.config.activation, self.gated)
                _linear_into(up, self.down, self.down_bias, index, target)
        return out

    def _grouped(self, rows: Tensor, segments: Segments, kernel: Kernel | None = None) -> Tensor:
        hidden = grouped_mm(rows, self.up, segments.ends, kernel)
        hidden = self._hidden(add_bias(hidden, self.up_bias, segments))
        output = grouped_mm(hidden, self.down, segments.ends, kernel)
        return add_bias(output, self.down_bias, segments)

    def _hidden(self, up: Tensor) -> Tensor:
        hidden = activate(up, self.config.activation, self.gated)
        return F.dropout(hidden, self.config.expert_dropout, self.training)


class ModuleBank(nn.Module):
    """Experts of any kind, one module each."""

    def __init__(self, num_experts: int, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.experts = nn.ModuleList(make() for _ in range(num_experts))

    def __len__(self) -> int:
        return len(self.experts)

    def path(self, batch: Batch, dispatch: str) -> Path:
        """Return slots or segments; only feed-forward experts have a grouped path."""
        refusals = dict.fromkeys(DISPATCHES[1:4], lambda: "needs feedforward experts")
        return choose(batch, dispatch, {**refusals, "slots": lambda: why_no_slots(batch)})

    def forward(self, rows: Tensor, segments: Segments, path: Path) -> Tensor:
        """Map rows [A, d], sorted by expert, to [A, d]."""
        if path.name == "slots":
            return _in_slots(self, rows, segments)
        parts = rows.split(segments.sizes())
        return torch.cat([e(part) for e, part in zip(self.experts, parts, strict=True)])

    def batched(self, slots: Tensor) -> Tensor:
        """Map [E, C, d] to [E, C, d], with the same number of rows per expert."""
        return torch.stack([e(part) for e, part in zip(self.experts, slots, strict=True)])

    def expert(self, index: int) -> nn.Module:
        """Return the module of one expert."""
        return self.experts[index]

    def keep(self, experts: range) -> None:
        """Drop all experts outside this range; the rest is renumbered from 0."""
        self.experts = self.experts[experts.start : experts.stop]


Bank = FeedForwardBank | ModuleBank


def _weights(num_experts: int, outputs: int, inputs: int) -> nn.Parameter:
    """Return weights [E, outputs, inputs], uniform in +-1/sqrt(inputs) like nn.Linear's."""
    bound = 1 / math.sqrt(inputs)
    return nn.Parameter(torch.empty(num_experts, outputs, inputs).uniform_(-bound, bound))


def _bias(weights: nn.Parameter) -> nn.Parameter:
    """Return a bias [E, outputs] with the weights' distribution."""
    bound = 1 / math.sqrt(weights.shape[2])
    return nn.Parameter(weights.new_empty(weights.shape[:2]).uniform_(-bound, bound))


def _in_slots(bank: Bank, rows: Tensor, segments: Segments) -> Tensor:
    """Map rows [A, d], sorted by expert, to [A, d]; experts are padded to the same row count."""
    sizes = (len(bank), segments.most)
    slot = segments.expert * segments.most + segments.ranks
    slots = rows.new_zeros(math.prod(sizes), rows.shape[1]).index_copy(0, slot, rows)
    return bank.batched(slots.unflatten(0, sizes)).flatten(0, 1).index_select(0, slot)


class _Shift(torch.autograd.Function):
    """Add to each row of [A, N] its expert's bias of [E, N].

    The gradient of a bias is the sum over its expert's rows in their order, without atomics. NaN
    and infinity of one expert do not reach another, as in a product with one-hot rows.
    """

    @staticmethod
    def forward(ctx, rows, bias, expert, ends):
        ctx.save_for_backward(ends)
        ctx.dtype = bias.dtype
        return rows + bias.to(rows.dtype).index_select(0, expert)

    @staticmethod
    def backward(ctx, grad):
        (ends,) = ctx.saved_tensors
        numbers = torch.arange(grad.shape[0], dtype=ends.dtype, device=grad.device)
        starts = F.pad(ends[:-1], (1, 0))
        sums = F.embedding_bag(numbers, grad.contiguous(), starts, mode="sum")
        return grad, sums.to(ctx.dtype), None, None


def add_bias(rows: Tensor, bias: Tensor | None, segments: Segments) -> Tensor:
    """Add to each row of [A, N] (sorted by expert) its expert's bias of [E, N]."""
    return rows if bias is None else _Shift.apply(rows, bias, segments.expert, segments.ends)


def _linear_into(
    rows: Tensor, weights: Tensor, bias: Tensor | None, index: int, out: Tensor
) -> Tensor:
    """Write F.linear of expert `index` to `out`."""
    if bias is None:
        return torch.mm(rows, weights[index].t(), out=out)
    return torch.addmm(bias[index], rows, weights[index].t(), out=out)


def _affine(slots: Tensor, weights: Tensor, bias: Tensor | None) -> Tensor:
    """Compute slots [E, C, K] @ weights [E, N, K] transposed + bias [E, N] -> [E, C, N]."""
    if bias is None:
        return torch.bmm(slots, weights.transpose(1, 2))
    return torch.baddbmm(bias.unsqueeze(1), slots, weights.transpose(1, 2))
