"""Evict the device's caches before each sample by writing more bytes than they hold."""

from __future__ import annotations

import torch

from torchbridge.bench.sensors import last_level_cache

TIMES = 2  # times the largest cache: one write of its size does not evict everything
LEAST = 2 * 2**30  # on accelerators: the launches overlap the write
UNKNOWN = 256 * 2**20  # if the size of the cache is unknown


class Flush:
    """Evict a device's caches by writing `bytes`; `cache` is the largest cache's size or None."""

    def __init__(self, device: torch.device, cache: int | None = None) -> None:
        """Allocate the buffer; `cache` bytes are probed by default."""
        self.cache = cache or last_level_cache(device)
        size = TIMES * self.cache if self.cache else UNKNOWN
        size = size if device.type == "cpu" else max(size, LEAST)
        self.buffer = torch.zeros(size // 8 + 1, dtype=torch.int64, device=device)
        self.bytes = self.buffer.nbytes
        self._written = 0

    def __call__(self) -> None:
        """Write the whole buffer; on an accelerator the write is only queued."""
        self._written += 1
        self.buffer.fill_(self._written)

    def describe(self) -> str:
        """Describe the bytes written and the cache size in one phrase."""
        size = f"{self.bytes / 2**20:.0f} MiB written before each sample"
        if self.cache is None:
            return f"{size}, the cache's size is not known"
        return f"{size}, cache {self.cache / 2**20:.0f} MiB"
