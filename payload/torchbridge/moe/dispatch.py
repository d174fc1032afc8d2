"""Send tokens to experts and combine the results.

T tokens, k choices each, A = T * k assignments, E experts. Forward and backward are deterministic:
rows are moved by index, not added atomically.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from torchbridge.kernels import Kernel
from torchbridge.moe.banks import Bank, FeedForwardBank, Segments
from torchbridge.moe.config import MoEConfig
from torchbridge.moe.losses import expert_counts
from torchbridge.moe.parallel import ExpertParallelism
from torchbridge.moe.paths import Batch, Path, triton_kernel
from torchbridge.moe.routers import Routing


@dataclass(frozen=True, slots=True)
class DispatchResult:
    """Output [T, d], computed assignments `counts` [E] int64, `dropped` (0-dim int64), and path."""

    output: Tensor
    counts: Tensor
    dropped: Tensor
    path: Path


class _MoveRows(torch.autograd.Function):
    """Return out with out[i] = rows[index[i]], where every row is taken exactly `copies` times.

    `back` [copies * N] lists, row by row, where its copies went; with it the gradient is a gather
    and a sum of `copies` neighbours instead of a scattered addition.
    """

    @staticmethod
    def forward(ctx, rows, index, back, copies):
        ctx.save_for_backward(back)
        ctx.copies = copies
        return rows.index_select(0, index)

    @staticmethod
    def backward(ctx, grad):
        (back,) = ctx.saved_tensors
        grad = grad.index_select(0, back)
        if ctx.copies > 1:
            grad = grad.unflatten(0, (-1, ctx.copies)).sum(dim=1)
        return grad, None, None, None


class _Combine(torch.autograd.Function):
    """out[t] = the sum over j of weights[t, j] * rows[back[t * k + j]]: one pass, nothing copied.

    rows [A, d] by expert, weights [T, k]; `order` [A] is the inverse of `back` [A].
    """

    @staticmethod
    def forward(ctx, rows, weights, back, order):
        ctx.save_for_backward(rows, weights, back, order)
        bags = back.reshape(weights.shape)
        return F.embedding_bag(bags, rows, mode="sum", per_sample_weights=weights)

    @staticmethod
    def backward(ctx, grad):
        rows, weights, back, order = ctx.saved_tensors
        factors = weights.reshape(-1).index_select(0, order).unsqueeze(1)
        to_rows = grad.index_select(0, order // weights.shape[1]) * factors
        chosen = rows.index_select(0, back).unflatten(0, weights.shape)
        return to_rows, torch.bmm(chosen, grad.unsqueeze(2)).squeeze(2), None, None


def path_for(
    bank: Bank,
    x: Tensor,
    config: MoEConfig,
    parallel: ExpertParallelism | None = None,
    weights: Tensor | None = None,
) -> Path:
    """Return how x [T, d] with weights [T, k] is computed in the current gradient mode.

    Raises:
        RuntimeError: the path requested by `config.dispatch` cannot be used.
    """
    if config.drop_tokens:
        return Path("capacity_slots")
    spread = parallel is not None and parallel.placement.world_size > 1
    path = bank.path(
        Batch.from_tensors(x, weights, config.top_k, bank, spread=spread), config.dispatch
    )
    return parallel.with_synchronisation(path, x.device) if spread else path


def dropless(
    bank: Bank,
    x: Tensor,
    routing: Routing,
    config: MoEConfig,
    parallel: ExpertParallelism | None = None,
) -> DispatchResult:
    """Compute every assignment of x [T, d]: sort by expert, compute, restore the order, sum."""
    path = path_for(bank, x, config, parallel, routing["expert_weights"])
    if path.name == "triton":
        return by_kernel(bank, x, routing, triton_kernel(), path)
    return _by_expert(bank, x, routing, path, parallel)


def by_kernel(
    bank: FeedForwardBank, x: Tensor, routing: Routing, kernel: Kernel, path: Path
) -> DispatchResult:
    """Compute all assignments by one kernel that also sorts and sums."""
    indices = routing["expert_indices"]
    output = bank.apply_kernel(x, indices, routing["expert_weights"], kernel)
    counts = expert_counts(indices, len(bank))
    return DispatchResult(output, counts, counts.new_zeros(()), path)


def _by_expert(
    bank: Bank, x: Tensor, routing: Routing, path: Path, parallel: ExpertParallelism | None
) -> DispatchResult:
    indices, weights = routing["expert_indices"], routing["expert_weights"]
    top_k = indices.shape[1]
    expert, order = indices.reshape(-1).sort(stable=True)  # [A]
    back = _inverse(order)
    experts = routing["probs"].shape[1]
    segments = Segments.from_experts(
        expert, experts, most=x.shape[0]
    )  # a token meets an expert once
    rows = _MoveRows.apply(x, order // top_k, back, top_k)  # [A, d]
    if parallel is None:
        rows = bank(rows, segments, path)
    else:
        rows = parallel.apply(bank, rows, segments, path)
    output = _Combine.apply(rows, weights.to(rows.dtype), back, order)
    counts = segments.counts
    return DispatchResult(output, counts, counts.new_zeros(()), path)


def with_capacity(bank: Bank, x: Tensor, routing: Routing, config: MoEConfig) -> DispatchResult:
    """Compute at most C assignments per expert and drop the least probable others.

    Shapes depend only on T, so nothing synchronises. Dropped assignments contribute zero; the
    weights of a token's other experts do not change.
    """
    indices = routing["expert_indices"]
    capacity = config.capacity(x.shape[0])
    experts = config.num_experts
    order = _by_expert_then_probability(routing)  # [A]
    expert = indices.reshape(-1)[order]
    segments = Segments.from_experts(expert, experts)
    rank = segments.ranks
    limit = _limit(routing, config, x.shape[0], capacity)
    kept = rank < limit
    spare = experts * capacity  # one slot more than there are: where dropped rows go
    slot = torch.where(kept, expert * capacity + rank, spare)[_inverse(order)]  # [A]
    slots = x.new_zeros(spare + 1, x.shape[1])
    slots = slots.index_copy(0, slot, x.repeat_interleave(indices.shape[1], dim=0))
    slots = bank.batched(slots[:-1].unflatten(0, (experts, capacity))).flatten(0, 1)
    rows = torch.cat([slots, slots.new_zeros(1, x.shape[1])]).index_select(0, slot)
    output = _combine(rows, routing["expert_weights"])
    counts = torch.minimum(segments.counts, limit)
    return DispatchResult(output, counts, (~kept).sum(), Path("capacity_slots"))


def _by_expert_then_probability(routing: Routing) -> Tensor:
    """Return assignments [A] by expert, then by falling probability; equal ones in token order."""
    indices = routing["expert_indices"]
    score = routing["probs"].detach().gather(1, indices).reshape(-1)
    by_score = score.sort(descending=True, stable=True).indices
    by_expert = indices.reshape(-1)[by_score].sort(stable=True).indices
    return by_score[by_expert]


def _limit(routing: Routing, config: MoEConfig, tokens: int, capacity: int) -> Tensor:
    """Return the capacity as 0-dim int64, reduced if the router requests less."""
    factor = routing.get("capacity_factor")
    if factor is None:
        return torch.full((), capacity, dtype=torch.int64, device=routing["probs"].device)
    wanted = torch.ceil(factor * (tokens * config.top_k / config.num_experts)).long()
    return wanted.clamp(min=min(config.min_capacity, capacity), max=capacity)


def _inverse(order: Tensor) -> Tensor:
    """Return the permutation that undoes `order` [A]."""
    positions = torch.arange(order.shape[0], device=order.device)
    return torch.empty_like(order).scatter_(0, order, positions)


def _combine(rows: Tensor, weights: Tensor) -> Tensor:
    """Return the weighted sums [T, d] of rows [T * k, d] in token order, by weights [T, k]."""
    rows = rows.unflatten(0, weights.shape)
    return torch.bmm(weights.to(rows.dtype).unsqueeze(1), rows).squeeze(1)
