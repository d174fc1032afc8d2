"""A ROCm device's memory: torch's caching allocator, within the settings' share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchbridge import memory
from torchbridge.backends.amd.exceptions import ROCmMemoryError, ROCmOutOfMemoryError
from torchbridge.config import AMDConfig


@dataclass(frozen=True, slots=True)
class AllocationSummary:
    """What this manager has handed out since it was made."""

    tensors: int
    bytes: int
    largest_bytes: int
    refused: int


class AMDMemoryManager:
    """Allocates on one device, up to `memory_fraction` of it."""

    def __init__(self, config: AMDConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self._sizes: list[int] = []
        self._refused = 0

    def allocate_tensor(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """An uninitialised tensor; where memory runs out, after one clean-up.

        Raises:
            ROCmOutOfMemoryError: it does not fit into the settings' share.
            ROCmMemoryError: the allocator refused it all the same.
        """
        needed, free = memory.bytes_of(shape, dtype), self.free_bytes()
        if needed > free:
            self._refused += 1
            raise ROCmOutOfMemoryError(
                f"{tuple(shape)} of {dtype} takes {needed:,} bytes, {free:,} are free on "
                f"{self.device} within {self.config.memory_fraction:.0%}"
            )
        try:
            tensor = memory.guard(
                lambda: torch.empty(tuple(shape), dtype=dtype, device=self.device),
                clean_up=lambda: memory.empty_cache(self.device),
            )
        except torch.OutOfMemoryError as error:
            self._refused += 1
            raise ROCmMemoryError(f"{needed:,} bytes on {self.device}: {error}") from error
        self._sizes.append(needed)
        return tensor

    def free_bytes(self) -> int:
        """Of the share that the settings allow."""
        now = memory.stats(self.device)
        kept_back = int(now.total * (1 - self.config.memory_fraction))
        return max(0, now.free + now.reserved - now.allocated - kept_back)

    def get_memory_stats(self) -> dict[str, int]:
        """`memory.Stats` of the device, all in bytes."""
        return memory.stats(self.device).to_dict()

    def allocation_summary(self) -> AllocationSummary:
        """So far."""
        sizes = self._sizes
        return AllocationSummary(len(sizes), sum(sizes), max(sizes, default=0), self._refused)
