"""Tensors on a device: asked for with care, within the settings' share, kept for the next time.

torch's caching allocator does the work; a pool only saves the way to it. Tensors come with whatever
their memory last held.
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
LINE_BYTES = 64  # a cache line, and what block loads want rows to begin at
# A TPU's vector register is 8 sublanes x 128 lanes of 32 bits; narrower numbers are packed.
_SUBLANES, _LANES = 8, 128


class Share(Protocol):
    """A vendor's settings, of which one counts here."""

    memory_fraction: float


@dataclass(frozen=True, slots=True)
class AllocationSummary:
    """What a manager has handed out since it was made."""

    tensors: int
    bytes: int
    largest_bytes: int
    refused: int


class MemoryManager:
    """Allocates on one device, up to the settings' `memory_fraction` of it.

    `free_bytes` tells how much more fits, by default the device; `pool_limit_bytes` bounds each
    pool, which is made when it is first named.
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
        """An uninitialised tensor, from a pool where one is named and has it.

        Where the device's allocator runs out, it is asked once more after a clean-up.

        Raises:
            OutOfMemory: it does not fit into the settings' share.
            AllocationError: there can be no such tensor.
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
        """What a tensor takes on this device."""
        return memory.bytes_of(shape, dtype)

    def free_bytes(self) -> int:
        """Of the share that the settings allow."""
        if self._free_bytes is not None:
            return self._free_bytes()
        now = memory.stats(self.device)
        kept_back = int(now.total * (1 - self.config.memory_fraction))
        return max(0, now.free + now.reserved - now.allocated - kept_back)

    def optimal_alignment(self, dtype: torch.dtype) -> int:
        """Numbers that fill a cache line: rows of a multiple of it all begin at one."""
        return LINE_BYTES // dtype.itemsize

    def optimize_tensor_layout(self, tensor: Tensor) -> Tensor:
        """The same numbers in the same shape; [N, C, H, W] channels-last, the rest contiguous."""
        if tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor.contiguous()

    def optimize_model_memory(
        self, model: nn.Module, dtype: torch.dtype | None = None
    ) -> dict[str, int]:
        """Let go of gradients and of torch's cache; with `dtype` store the floating-point numbers
        as such. Bytes held before and after, from storages."""
        before = _held(model)
        model.zero_grad(set_to_none=True)
        if dtype is not None:
            model.to(dtype)
        memory.empty_cache(self.device)
        after = _held(model)
        return {"before_bytes": before, "after_bytes": after, "freed_bytes": before - after}

    def return_to_pool(self, tensor: Tensor, pool_id: str) -> None:
        """Keep a tensor that is not used any more; the pool gives up its oldest for it."""
        self._pool(pool_id).give(tensor)

    def clear_pool(self, pool_id: str | None = None) -> int:
        """Give up what a pool (all of them) keeps, and torch's cache; how many bytes of a pool."""
        named = self.pools.values() if pool_id is None else [self._pool(pool_id)]
        freed = sum(pool.clear() for pool in named)
        memory.empty_cache(self.device)
        return freed

    def get_pool_stats(self, pool_id: str) -> dict[str, int]:
        """`tensor_count`, `bytes`, `limit_bytes`, `hits`, `misses`, `evictions`."""
        pool = self._pool(pool_id)
        names = ("bytes", "limit_bytes", "hits", "misses", "evictions")
        return {"tensor_count": len(pool), **{name: getattr(pool, name) for name in names}}

    def get_memory_stats(self) -> dict[str, Any]:
        """`memory.Stats` of the device, all in bytes, and each pool's figures."""
        pools = {pool_id: self.get_pool_stats(pool_id) for pool_id in self.pools}
        return {**memory.stats(self.device).to_dict(), "pools": pools}

    def memory_summary(self) -> str:
        """One line for a person."""
        now = memory.stats(self.device)
        gib = [f"{value / 2**30:.2f} GiB" for value in (now.allocated, now.free, now.total)]
        return f"{self.device}: {gib[0]} in use, {gib[1]} of {gib[2]} free"

    def allocation_summary(self) -> AllocationSummary:
        """So far."""
        sizes = self._sizes
        return AllocationSummary(len(sizes), sum(sizes), max(sizes, default=0), self._refused)

    def _pool(self, pool_id: str) -> memory.TensorPool:
        return self.pools.setdefault(pool_id, memory.TensorPool(self.pool_limit_bytes))


AMDMemoryManager = IntelMemoryManager = MemoryManager


class NVIDIAMemoryManager(MemoryManager):
    """On `device`, by default the current CUDA device, else the CPU."""

    def __init__(
        self,
        config: Config | None = None,
        *,
        device: torch.device | str | None = None,
        **options: Any,
    ) -> None:
        """Options are `MemoryManager`'s."""
        self.whole = config if config is not None else Config()
        usable = torch.cuda.is_available() and not torch.version.hip
        wanted = device or ("cuda" if usable else "cpu")
        exact = torch.empty(0, device=wanted).device  # a tensor's device has its index
        super().__init__(self.whole.hardware.nvidia, exact, **options)

    def allocate_with_oom_protection(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        safety_margin: float | None = None,
    ) -> Tensor:
        """A tensor, if `safety_margin` times its size is free; pools are cleared once to make room.

        Raises:
            OutOfMemory: there is not enough memory also after that, or no CUDA device.
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
        """Do so many MiB more fit on the device? Never, without one."""
        counted = self.device.type == "cuda" or self._free_bytes is not None
        return counted and required_mb * MIB <= self.free_bytes()

    def estimate_tensor_mb(self, shape: Sequence[int], dtype: torch.dtype) -> float:
        """MiB that a tensor takes."""
        return memory.bytes_of(shape, dtype) / MIB


def _held(model: nn.Module) -> int:
    parameters = list(model.parameters())
    gradients = [p.grad for p in parameters if p.grad is not None]
    return memory.storage_bytes([*parameters, *model.buffers(), *gradients])


@dataclass(frozen=True, slots=True)
class Layout:
    """A tensor's bytes, and those of the tiles that XLA stores it in."""

    bytes: int
    tiled_bytes: int

    @property
    def waste(self) -> float:
        """Share of the tiles that holds padding."""
        return 1 - self.bytes / self.tiled_bytes if self.tiled_bytes else 0.0


def tiled(shape: Sequence[int], dtype: torch.dtype) -> Layout:
    """What a tensor takes: its last two sizes are rounded up to whole tiles of 4 KiB."""
    rows, columns = [1, 1, *shape][-2:]
    tile_rows = _SUBLANES * max(1, 4 // dtype.itemsize)
    rounded = tile_rows * math.ceil(rows / tile_rows), _LANES * math.ceil(columns / _LANES)
    return Layout(memory.bytes_of(shape, dtype), memory.bytes_of([*shape[:-2], *rounded], dtype))


class TPUMemoryManager(MemoryManager):
    """Allocates within `memory_fraction` of a chip, and remembers what its memory was like."""

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
        """In tiles."""
        return tiled(shape, dtype).tiled_bytes

    def free_bytes(self) -> int:
        """Of the share that the settings allow."""
        told = self.memory()
        return max(0, int(told.total * self.config.memory_fraction) - told.allocated)

    def memory(self) -> memory.Stats:
        """What XLA says, its limit lowered to the settings' own; remembered for the history.

        Raises:
            AllocationError: the runtime does not count.
        """
        told, own = self.xla.memory(self.device), self.config.memory_bytes
        if own is not None and own < told.total:
            told = replace(told, total=own, free=own - told.allocated)
        now = self.clock()
        oldest = now - self.config.history_retention_s
        self._history = [one for one in self._history if one[0] >= oldest] + [(now, told)]
        return told

    @property
    def history(self) -> tuple[tuple[float, memory.Stats], ...]:
        """(when, what `memory` said), not older than `history_retention_s`."""
        return tuple(self._history)
