"""An XPU's memory: torch's caching allocator, within the settings' share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchbridge import memory
from torchbridge.backends.intel.exceptions import XPUOutOfMemoryError
from torchbridge.config import IntelConfig

LINE_BYTES = 64  # a cache line, and what block loads want rows to begin at


class IntelMemoryManager:
    """Allocates on one device, up to `memory_fraction` of it."""

    def __init__(self, config: IntelConfig, device: torch.device) -> None:
        self.config, self.device = config, device

    def allocate_tensor(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """An uninitialised tensor; where memory runs out, after one clean-up.

        Raises:
            XPUOutOfMemoryError: it does not fit into the settings' share.
        """
        needed, now = memory.bytes_of(shape, dtype), memory.stats(self.device)
        kept_back = int(now.total * (1 - self.config.memory_fraction))
        free = max(0, now.free + now.reserved - now.allocated - kept_back)
        if needed > free:
            raise XPUOutOfMemoryError(
                f"{tuple(shape)} of {dtype} takes {needed:,} bytes, {free:,} are free on "
                f"{self.device} within {self.config.memory_fraction:.0%}"
            )
        return memory.guard(
            lambda: torch.empty(tuple(shape), dtype=dtype, device=self.device),
            clean_up=lambda: memory.empty_cache(self.device),
        )

    def optimal_alignment(self, dtype: torch.dtype) -> int:
        """Numbers that fill a cache line: rows of a multiple of it all begin at one."""
        return LINE_BYTES // dtype.itemsize

    def aligned_empty(self, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """[rows, columns], uninitialised, every row beginning at a cache line.

        The tensor is a view of wider rows: its stride tells, its shape does not change.
        """
        step = self.optimal_alignment(dtype)
        wide = step * -(-columns // step)
        return self.allocate_tensor((rows, wide), dtype)[:, :columns]

    def get_memory_stats(self) -> dict[str, int]:
        """`memory.Stats` of the device, all in bytes."""
        return memory.stats(self.device).to_dict()

    def memory_summary(self) -> str:
        """One line for a person."""
        now = memory.stats(self.device)
        gib = [f"{value / 2**30:.2f} GiB" for value in (now.allocated, now.free, now.total)]
        return f"{self.device}: {gib[0]} in use, {gib[1]} of {gib[2]} free"
