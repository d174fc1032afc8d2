"""Allocate tensors on a device within a share of its memory, and pool them for reuse.

torch's caching allocator does the work; a pool saves the call to it. Contents of allocated tensors
are undefined.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchbridge import memory
from torchbridge.backends.errors import AllocationError, OutOfMemory
from torchbridge.backends.xla import XLA
from torchbridge.config import Config, TPUConfig

MIB = 2**20
POOL_LIMIT_BYTES = 256 * MIB
LINE_BYTES = 64  # a cache line, and the alignment of rows for block loads
# A TPU's vector register is 8 sublanes x 128 lanes of 32 bits; narrower numbers are packed.
_SUBLANES, _LANES = 8, 128


class Share(Protocol):
    """Interface of the vendor settings that limit memory."""

    memory_fraction: float


@dataclass(frozen=True, slots=True)
class AllocationSummary:
    """Allocations of a manager since its construction."""

    tensors: int
    bytes: int
    largest_bytes: int
    refused: int


class MemoryManager:
    """Allocate on one device, up to the settings' `memory_fraction` of its memory.

    `free_bytes` returns the free memory, by default the device's; `pool_limit_bytes` bounds each
    pool. A pool is created when it is first named.
    """

    def __init__(
        self,
        config: Share,
        device: torch.device | str,
        *,
        free_bytes: Callable[[], int] | None = None,
        pool_limit_bytes: int = POOL_LIMIT_BYTES,
    ) -> None:
        self.config = config
        self.device = torch.device(device)
        self.pool_limit_bytes = pool_limit_bytes
        self.pools: dict[str, memory.TensorPool] = {}
        self._free_bytes = free_bytes
        self._sizes: list[int] = []
        self._refused = 0

    def allocate_tensor(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        pool_id: str | None = None,
    ) -> Tensor:
        """Allocate an uninitialised tensor, from the pool `pool_id` if that has one.

        If the allocator runs out of memory, the pools are cleared and it is tried once more.

        Raises:
            OutOfMemory: it does not fit into the settings' share.
            AllocationError: the shape or dtype is invalid.
        """
        try:
            self._fits(shape, dtype)
            tensor = memory.guard(
                lambda: self._taken(shape, dtype, pool_id), clean_up=self.clear_pool
            )
        except torch.OutOfMemoryError as error:
            self._refused += 1
            raise OutOfMemory(f"Insufficient GPU memory for {tuple(shape)}: {error}") from error
        except (ValueError, TypeError) as error:
            raise AllocationError(f"no tensor of shape {tuple(shape)}: {error}") from error
        self._sizes.append(tensor.nbytes)
        return tensor

    def _taken(self, shape: Sequence[int], dtype: torch.dtype, pool_id: str | None) -> Tensor:
        if pool_id is None:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        return self._pool(pool_id).take(shape, dtype, self.device)

    def _fits(self, shape: Sequence[int], dtype: torch.dtype, margin: float = 1.0) -> None:
        needed, free = margin * self.bytes_of(shape, dtype), self.free_bytes()
        if needed > free:
            self._refused += 1
            raise OutOfMemory(
                f"Insufficient GPU memory for {tuple(shape)} of {dtype}: {needed:,.0f} bytes, "
                f"{free:,} are free on {self.device} within {self.config.memory_fraction:.0%}"
            )

    def bytes_of(self, shape: Sequence[int], dtype: torch.dtype) -> int:
        """Return the bytes of a tensor on this device."""
        return memory.bytes_of(shape, dtype)

    def free_bytes(self) -> int:
        """Return the free bytes within the settings' share."""
        if self._free_bytes is not None:
            return self._free_bytes()
        now = memory.stats(self.device)
        kept_back = int(now.total * (1 - self.config.memory_fraction))
        return max(0, now.free + now.reserved - now.allocated - kept_back)

    def optimal_alignment(self, dtype: torch.dtype) -> int:
        """Return how many numbers fill a cache line; rows of a multiple of it are aligned."""
        return LINE_BYTES // dtype.itemsize

    def optimize_tensor_layout(self, tensor: Tensor) -> Tensor:
        """Return the tensor in channels_last format if it is [N, C, H, W], else contiguous."""
        if tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor.contiguous()

    def optimize_model_memory(
        self, model: nn.Module, dtype: torch.dtype | None = None
    ) -> dict[str, int]:
        """Drop gradients, convert to `dtype` if given, and empty torch's cache.

        Returns the bytes of the model's storages before and after.
        """
        before = _held(model)
        model.zero_grad(set_to_none=True)
        if dtype is not None:
            model.to(dtype)
        memory.empty_cache(self.device)
        after = _held(model)
        return {"before_bytes": before, "after_bytes": after, "freed_bytes": before - after}

    def return_to_pool(self, tensor: Tensor, pool_id: str) -> None:
        """Put an unused tensor into a pool; the pool may evict its oldest."""
        self._pool(pool_id).give(tensor)

    def clear_pool(self, pool_id: str | None = None) -> int:
        """Clear one pool, or all, and torch's cache; return the bytes that the pools held."""
        named = self.pools.values() if pool_id is None else [self._pool(pool_id)]
        freed = sum(pool.clear() for pool in named)
        memory.empty_cache(self.device)
        return freed

    def get_pool_stats(self, pool_id: str) -> dict[str, int]:
        """Return a pool's `tensor_count`, `bytes`, `limit_bytes`, `hits`, `misses`, `evictions`."""
        pool = self._pool(pool_id)
        names = ("bytes", "limit_bytes", "hits", "misses", "evictions")
        return {"tensor_count": len(pool), **{name: getattr(pool, name) for name in names}}

    def get_memory_stats(self) -> dict[str, Any]:
        """Return `memory.Stats` of the device in bytes, and the statistics of each pool."""
        pools = {pool_id: self.get_pool_stats(pool_id) for pool_id in self.pools}
        return {**memory.stats(self.device).to_dict(), "pools": pools}

    def memory_summary(self) -> str:
        """Return one line with used, free and total memory."""
        now = memory.stats(self.device)
        gib = [f"{value / 2**30:.2f} GiB" for value in (now.allocated, now.free, now.total)]
        return f"{self.device}: {gib[0]} in use, {gib[1]} of {gib[2]} free"

    def allocation_summary(self) -> AllocationSummary:
        """Return the allocations since construction."""
        sizes = self._sizes
        return AllocationSummary(len(sizes), sum(sizes), max(sizes, default=0), self._refused)

    def _pool(self, pool_id: str) -> memory.TensorPool:
        return self.pools.setdefault(pool_id, memory.TensorPool(self.pool_limit_bytes))


AMDMemoryManager = IntelMemoryManager = MemoryManager


class NVIDIAMemoryManager(MemoryManager):
    """Memory manager of `device`, by default the current CUDA device, else the CPU."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        device: torch.device | str | None = None,
        **options: Any,
    ) -> None:
        """Create the manager; options are those of `MemoryManager`."""
        self.whole = config if config is not None else Config()
        usable = torch.cuda.is_available() and not torch.version.hip
        wanted = device or ("cuda" if usable else "cpu")
        exact = torch.empty(0, device=wanted).device  # with an index, as tensors' devices have
        super().__init__(self.whole.hardware.nvidia, exact, **options)

    def allocate_with_oom_protection(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        safety_margin: float | None = None,
    ) -> Tensor:
        """Allocate a tensor if `safety_margin` times its size is free, clearing the pools if
        needed.

        Raises:
            OutOfMemory: memory is insufficient even then, or there is no CUDA device.
        """
        margin = self.whole.memory.safety_margin if safety_margin is None else safety_margin
        needed_mb = margin * self.estimate_tensor_mb(shape, dtype)
        if not self.check_memory_available(needed_mb):
            self.clear_pool()
            if not self.check_memory_available(needed_mb):
                self._refused += 1
                where = self.device if self.device.type == "cuda" else "there is no CUDA device"
                raise OutOfMemory(f"Insufficient GPU memory for {needed_mb:,.1f} MiB ({where})")
        return self.allocate_tensor(shape, dtype)

    def check_memory_available(self, required_mb: float) -> bool:
        """Return whether so many MiB are free; False without a CUDA device."""
        counted = self.device.type == "cuda" or self._free_bytes is not None
        return counted and required_mb * MIB <= self.free_bytes()

    def estimate_tensor_mb(self, shape: Sequence[int], dtype: torch.dtype) -> float:
        """Return the size of a tensor in MiB."""
        return memory.bytes_of(shape, dtype) / MIB


def _held(model: nn.Module) -> int:
    parameters = list(model.parameters())
    gradients = [p.grad for p in parameters if p.grad is not None]
    return memory.storage_bytes([*parameters, *model.buffers(), *gradients])


@dataclass(frozen=True, slots=True)
class Layout:
    """Bytes of a tensor, and of the tiles in which XLA stores it."""

    bytes: int
    tiled_bytes: int

    @property
    def waste(self) -> float:
        """Share of the tiles that is padding."""
        return 1 - self.bytes / self.tiled_bytes if self.tiled_bytes else 0.0


def tiled(shape: Sequence[int], dtype: torch.dtype) -> Layout:
    """Return the bytes of a tensor whose last two sizes are rounded up to tiles of 4 KiB."""
    rows, columns = [1, 1, *shape][-2:]
    tile_rows = _SUBLANES * max(1, 4 // dtype.itemsize)
    rounded = tile_rows * math.ceil(rows / tile_rows), _LANES * math.ceil(columns / _LANES)
    return Layout(memory.bytes_of(shape, dtype), memory.bytes_of([*shape[:-2], *rounded], dtype))


class TPUMemoryManager(MemoryManager):
    """Allocate within `memory_fraction` of a TPU chip, and keep a history of its usage."""

    def __init__(
        self,
        config: TPUConfig,
        xla: XLA,
        *,
        clock: Callable[[], float] = time.monotonic,
        **options: Any,
    ) -> None:
        super().__init__(config, xla.device(), **options)
        self.xla, self.clock = xla, clock
        self._history: list[tuple[float, memory.Stats]] = []

    def bytes_of(self, shape: Sequence[int], dtype: torch.dtype) -> int:
        """Return the bytes of a tensor, including the padding of its tiles."""
        return tiled(shape, dtype).tiled_bytes

    def free_bytes(self) -> int:
        """Return the free bytes within the settings' share."""
        usage = self.memory()
        return max(0, int(usage.total * self.config.memory_fraction) - usage.allocated)

    def memory(self) -> memory.Stats:
        """Return the memory usage by XLA, limited to the settings' memory, and add it to the
        history.

        Raises:
            AllocationError: the runtime does not report memory usage.
        """
        usage, own = self.xla.memory(self.device), self.config.memory_bytes
        if own is not None and own < usage.total:
            usage = replace(usage, total=own, free=own - usage.allocated)
        now = self.clock()
        oldest = now - self.config.history_retention_s
        self._history = [one for one in self._history if one[0] >= oldest] + [(now, usage)]
        return usage

    @property
    def history(self) -> tuple[tuple[float, memory.Stats], ...]:
        """(time, usage) of each call of `memory` within the last `history_retention_s` seconds."""
        return tuple(self._history)
