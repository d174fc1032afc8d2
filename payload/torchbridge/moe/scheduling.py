"""Place experts on workers by load, or load them to the device on demand."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchbridge.moe.banks import Segments


@dataclass(frozen=True, slots=True)
class Placement:
    """Worker of each expert (`worker_of`) and load of each worker (`loads`)."""

    worker_of: tuple[int, ...]
    loads: tuple[int, ...]

    @property
    def imbalance(self) -> float:
        """Largest load over the mean; 1 is optimal."""
        total = sum(self.loads)
        return max(self.loads) * len(self.loads) / total if total else 1.0


class ExpertScheduler:
    """Place experts on workers by load: heaviest first, each on the least loaded worker.

    The largest load is at most 4/3 - 1/(3w) of the optimum (Graham's bound).
    """

    def __init__(self, num_workers: int) -> None:
        if num_workers < 1:
            raise ValueError(f"ExpertScheduler: num_workers must be positive, got {num_workers}")
        self.num_workers = num_workers

    def place(self, counts: Sequence[int]) -> Placement:
        """Return a placement for experts with these assignment counts."""
        loads = [0] * self.num_workers
        worker_of = [0] * len(counts)
        for expert in sorted(range(len(counts)), key=lambda e: (-counts[e], e)):
            worker = min(range(self.num_workers), key=lambda w: (loads[w], w))
            worker_of[expert] = worker
            loads[worker] += counts[expert]
        return Placement(tuple(worker_of), tuple(loads))


class MemoryEfficientSwitching:
    """Keep at most `max_resident` experts on the device and copy others on demand; for inference.

    The least recently used expert is evicted. `hits`, `misses` and `evictions` are counted.
    """

    def __init__(
        self, experts: Sequence[nn.Module], device: torch.device, max_resident: int
    ) -> None:
        if max_resident < 1:
            text = f"max_resident must be positive, got {max_resident}"
            raise ValueError(f"MemoryEfficientSwitching: {text}")
        self.experts = experts
        self.device = device
        self.max_resident = max_resident
        self.hits = self.misses = self.evictions = 0
        self._resident: OrderedDict[int, nn.Module] = OrderedDict()

    @property
    def resident(self) -> tuple[int, ...]:
        """Experts on the device, least recently used first."""
        return tuple(self._resident)

    @property
    def resident_bytes(self) -> int:
        """Bytes of the parameters on the device."""
        parameters = (p for expert in self._resident.values() for p in expert.parameters())
        return sum(p.numel() * p.element_size() for p in parameters)

    @torch.no_grad()
    def __call__(self, rows: Tensor, segments: Segments) -> Tensor:
        """Map rows [A, d], sorted by expert, to [A, d]; experts without rows are not loaded."""
        parts = rows.split(segments.sizes())
        return torch.cat([self._fetch(e)(p) if len(p) else p for e, p in enumerate(parts)])

    def _fetch(self, index: int) -> nn.Module:
        if index in self._resident:
            self.hits += 1
            self._resident.move_to_end(index)
            return self._resident[index]
        self.misses += 1
        if len(self._resident) == self.max_resident:
            self._resident.popitem(last=False)
            self.evictions += 1
        self._resident[index] = copy.deepcopy(self.experts[index]).to(self.device).eval()
        return self._resident[index]
