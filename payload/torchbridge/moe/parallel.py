"""Expert parallelism: experts are distributed over processes, rows exchanged by all-to-all."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch import Tensor

from torchbridge.moe.banks import Bank, Segments
from torchbridge.moe.paths import Path


class _Exchange(torch.autograd.Function):
    """Send rows to other processes; the gradient is sent back the same way."""

    @staticmethod
    def forward(ctx, rows, send, receive, group):
        ctx.way_back = (receive, send, group)
        return _all_to_all(rows, send, receive, group)

    @staticmethod
    def backward(ctx, grad):
        return _all_to_all(grad, *ctx.way_back), None, None, None


def _all_to_all(rows: Tensor, send: list[int], receive: list[int], group) -> Tensor:
    """Exchange rows: [sum(send), ...] by receiver -> [sum(receive), ...] by sender."""
    out = rows.new_empty(sum(receive), *rows.shape[1:])
    dist.all_to_all_single(out, rows.contiguous(), receive, send, group=group)
    return out


@dataclass(frozen=True, slots=True)
class ExpertPlacement:
    """Distribution of experts: process `rank` of n holds rank * E / n to (rank + 1) * E / n - 1."""

    num_experts: int
    world_size: int
    rank: int

    def __post_init__(self) -> None:
        if self.num_experts % self.world_size:
            raise ValueError(
                f"{self.num_experts} experts cannot be spread evenly over {self.world_size} "
                "processes; use a multiple of the process count"
            )

    @property
    def per_process(self) -> int:
        """Number of experts per process."""
        return self.num_experts // self.world_size

    @property
    def local_experts(self) -> range:
        """The experts of this process."""
        return range(self.rank * self.per_process, (self.rank + 1) * self.per_process)


class ExpertParallelism:
    """Experts distributed over the processes of a group.

    Every process calls the layer with its own tokens and gets their outputs and gradients. Each
    process has the whole gradient of its experts, and the router's gradient for its own tokens.
    """

    def __init__(self, num_experts: int, *, group: dist.ProcessGroup | None = None) -> None:
        """Use `group`, by default the default group, or a single process without one."""
        self.group = group
        distributed = dist.is_available() and dist.is_initialized()
        world_size = dist.get_world_size(group) if distributed else 1
        rank = dist.get_rank(group) if distributed else 0
        self.placement = ExpertPlacement(num_experts, world_size, rank)

    def apply(self, bank: Bank, rows: Tensor, segments: Segments, path: Path) -> Tensor:
        """Map rows [A, d], sorted by expert (all E), to [A, d]; `bank` holds only local experts."""
        world_size, per_process = self.placement.world_size, self.placement.per_process
        if world_size == 1:
            return bank(rows, segments, path)
        outgoing = segments.counts.reshape(world_size, per_process)
        incoming = torch.empty_like(outgoing)  # [sender, local expert]
        dist.all_to_all_single(incoming, outgoing, group=self.group)
        send, receive = torch.stack([outgoing, incoming]).sum(dim=2).tolist()  # one synchronisation
        rows = _Exchange.apply(rows, send, receive, self.group)
        local = torch.arange(per_process, device=rows.device).repeat(world_size)
        sender = local.repeat_interleave(incoming.reshape(-1), output_size=len(rows))
        expert, order = sender.sort(stable=True)
        rows = bank(rows[order], Segments.from_experts(expert, per_process), path)
        return _Exchange.apply(rows[order.argsort()], receive, send, self.group)

    @staticmethod
    def with_synchronisation(path: Path, device: torch.device) -> Path:
        """Add to a path that message sizes synchronise an accelerator."""
        if device.type == "cpu":
            return path
        waits = "expert parallelism waits for the sizes of its messages"
        fallback = waits if path.fallback is None else f"{path.fallback}; {waits}"
        return replace(path, fallback=fallback, synchronises=True)
