"""Tensors on a device: asked for with care, within the settings' share, kept for the next time.

torch's caching allocator does the work. Tensors come with whatever their memory last held.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from torchbridge import memory
from torchbridge.backends.errors import AllocationError, OutOfMemory
from torchbridge.backends.xla import XLA, MemoryInfo
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
    """Allocates on one device, up to the settings' `memory_fraction` of it."""

    def __init__(self, config: Share, device: torch.device) -> None:
        self.config, self.device = config, device
        self._sizes: list[int] = []
        self._refused = 0

    def allocate_tensor(self, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
        """An uninitialised tensor; where memory runs out, after one clean-up.

        Raises:
            OutOfMemory: it does not fit into the settings' share.
            AllocationError: the allocator refused it all the same.
        """
        needed, free = memory.bytes_of(shape, dtype), self.free_bytes()
        if needed > free:
            self._refused += 1
            raise OutOfMemory(
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
            raise AllocationError(f"{needed:,} bytes on {self.device}: {error}") from error
        self._sizes.append(needed)
        return tensor

    def free_bytes(self) -> int:
        """Of the share that the settings allow."""
        now = memory.stats(self.device)
        kept_back = int(now.total * (1 - self.config.memory_fraction))
        return max(0, now.free + now.reserved - now.allocated - kept_back)

    def optimal_alignment(self, dtype: torch.dtype) -> int:
        """Numbers that fill a cache line: rows of a multiple of it all begin at one."""
        return LINE_BYTES // dtype.itemsize

    def aligned_empty(self, rows: int, columns: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """[rows, columns], uninitialised, every row beginning at a cache line.

        The tensor is a view of wider rows: its stride tells, its shape does not change.
        """
        step = self.optimal_alignment(dtype)
        return self.allocate_tensor((rows, step * -(-columns // step)), dtype)[:, :columns]

    def get_memory_stats(self) -> dict[str, Any]:
        """`memory.Stats` of the device, all in bytes."""
        return memory.stats(self.device).to_dict()

    def memory_summary(self) -> str:
        """One line for a person."""
        now = memory.stats(self.device)
        gib = [f"{value / 2**30:.2f} GiB" for value in (now.allocated, now.free, now.total)]
        return f"{self.device}: {gib[0]} in use, {gib[1]} of {gib[2]} free"

    def allocation_summary(self) -> AllocationSummary:
        """So far."""
        sizes = self._sizes
        return AllocationSummary(len(sizes), sum(sizes), max(sizes, default=0), self._refused)


AMDMemoryManager = IntelMemoryManager = MemoryManager


class NVIDIAMemoryManager(MemoryManager):
    """Allocates on `device`, by default the current CUDA device, else the CPU.

    torch's caching allocator does the work; a pool only saves the way to it. Tensors come with
    whatever their memory last held.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        device: torch.device | str | None = None,
        free_bytes: Callable[[], int] | None = None,
        pool_limit_bytes: int = POOL_LIMIT_BYTES,
    ) -> None:
        """`free_bytes` tells how much more fits, by default the device; each pool is bounded."""
        self.whole = config if config is not None else Config()
        usable = torch.cuda.is_available() and not torch.version.hip
        wanted = device or ("cuda" if usable else "cpu")
        # a tensor's device has its index
        super().__init__(self.whole.hardware.nvidia, torch.empty(0, device=wanted).device)
        self.pool_limit_bytes = pool_limit_bytes
        self.pools: dict[str, memory.TensorPool] = {}
        self._free_bytes = free_bytes

    def allocate_tensor(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        pool_id: str | None = None,
    ) -> Tensor:
        """A tensor of arbitrary contents, from a pool where one is named and has it.

        Raises:
            OutOfMemory: the device has not that much.
            AllocationError: there can be no such tensor.
        """
        try:
            if pool_id is None:
                return torch.empty(tuple(shape), dtype=dtype, device=self.device)
            return self._pool(pool_id).take(shape, dtype, self.device)
        except torch.OutOfMemoryError as error:
            raise OutOfMemory(self._insufficient(shape, dtype)) from error
        except (RuntimeError, TypeError) as error:
            raise AllocationError(f"no tensor of shape {tuple(shape)}: {error}") from error

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
                raise OutOfMemory(self._insufficient(shape, dtype))
        return memory.guard(lambda: self.allocate_tensor(shape, dtype), clean_up=self.clear_pool)

    def check_memory_available(self, required_mb: float) -> bool:
        """Do so many MiB more fit on the device? Never, without one."""
        needed = required_mb * MIB
        if self._free_bytes is not None:
            return needed <= self._free_bytes()
        fraction = self.config.memory_fraction
        on_device = self.device.type == "cuda"
        return on_device and memory.has_headroom(needed, self.device, fraction=fraction)

    def estimate_tensor_mb(self, shape: Sequence[int], dtype: torch.dtype) -> float:
        """MiB that a tensor takes."""
        return memory.bytes_of(shape, dtype) / MIB

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
        counts = {name: getattr(pool, name) for name in ("hits", "misses", "evictions")}
        size = {"tensor_count": len(pool), "bytes": pool.bytes, "limit_bytes": pool.limit_bytes}
        return size | counts

    def optimize_tensor_layout(self, tensor: Tensor) -> Tensor:
        """The same numbers in the same shape; [N, C, H, W] channels-last, the rest contiguous."""
        if tensor.dim() == 4:
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor.contiguous()

    def optimize_model_memory(self, model: nn.Module) -> dict[str, int]:
        """Let go of gradients and of torch's cache; bytes held before and after, from storages."""
        before = _held(model)
        model.zero_grad(set_to_none=True)
        memory.empty_cache(self.device)
        after = _held(model)
        return {"before_bytes": before, "after_bytes": after, "freed_bytes": before - after}

    def get_memory_stats(self) -> dict[str, Any]:
        """The device's memory in bytes, and each pool's figures."""
        pools = {pool_id: self.get_pool_stats(pool_id) for pool_id in self.pools}
        return {**super().get_memory_stats(), "pools": pools}

    def _pool(self, pool_id: str) -> memory.TensorPool:
        return self.pools.setdefault(pool_id, memory.TensorPool(self.pool_limit_bytes))

    def _insufficient(self, shape: Sequence[int], dtype: torch.dtype) -> str:
        size = self.estimate_tensor_mb(shape, dtype)
        where = self.device if self.device.type == "cuda" else "there is no CUDA device"
        return f"Insufficient GPU memory for {tuple(shape)}, {size:,.1f} MiB ({where})"


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


@dataclass(frozen=True, slots=True)
class Sample:
    """The memory at one moment of the manager's clock."""

    at: float
    memory: MemoryInfo


@dataclass(frozen=True, slots=True)
class PoolStats:
    """Of one pool; bytes are those that it keeps now."""

    tensor_count: int
    bytes: int
    hits: int
    misses: int
    evictions: int


def tiled(shape: Sequence[int], dtype: torch.dtype) -> Layout:
    """What a tensor takes: its last two sizes are rounded up to whole tiles of 4 KiB."""
    rows, columns = [1, 1, *shape][-2:]
    tile_rows = _SUBLANES * max(1, 4 // dtype.itemsize)
    rounded = tile_rows * math.ceil(rows / tile_rows), _LANES * math.ceil(columns / _LANES)
    return Layout(memory.bytes_of(shape, dtype), memory.bytes_of([*shape[:-2], *rounded], dtype))


class TPUMemoryManager(MemoryManager):
    """Allocates within `memory_fraction` of a chip, and remembers what its memory was like."""

    def __init__(
        self, config: TPUConfig, xla: XLA, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(config, xla.device())
        self.xla, self.clock = xla, clock
        self._pools: dict[str, memory.TensorPool] = {}
        self._history: list[Sample] = []

    def allocate_tensor(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        pool_id: str | None = None,
    ) -> Tensor:
        """An uninitialised tensor on the device, from a pool if one is named.

        Raises:
            OutOfMemory: its tiles do not fit into what is free.
            AllocationError: no such pool.
        """
        self.check_memory_available(shape, dtype)
        if pool_id is None:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        return self._pool(pool_id).take(shape, dtype, self.device)

    def check_memory_available(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Refuse what does not fit.

        Raises:
            OutOfMemory: its tiles are more than what is free.
        """
        needed, free = tiled(shape, dtype).tiled_bytes, self.free_bytes()
        if needed > free:
            raise OutOfMemory(
                f"{tuple(shape)} of {dtype} takes {needed:,} bytes in tiles, {free:,} are free"
            )

    def free_bytes(self) -> int:
        """Of the share that the settings allow."""
        told = self.memory()
        return max(0, int(told.limit * self.config.memory_fraction) - told.used)

    def memory(self) -> MemoryInfo:
        """What XLA says, its limit lowered to the settings' own; remembered for the history.

        Raises:
            AllocationError: the runtime does not count, nor do the settings.
        """
        told, own = self.xla.memory(self.device), self.config.memory_bytes
        if own is not None and own < told.limit:
            told = MemoryInfo(told.used, own, told.peak)
        now = self.clock()
        oldest = now - self.config.history_retention_s
        self._history = [s for s in self._history if s.at >= oldest] + [Sample(now, told)]
        return told

    @property
    def history(self) -> tuple[Sample, ...]:
        """What `memory` said, not older than `history_retention_s`."""
        return tuple(self._history)

    def create_pool(self, pool_id: str, limit_bytes: int) -> None:
        """A pool that keeps at most so many bytes.

        Raises:
            AllocationError: there is one of that name.
        """
        if pool_id in self._pools:
            raise AllocationError(f"pool {pool_id!r} exists")
        self._pools[pool_id] = memory.TensorPool(limit_bytes)

    def return_to_pool(self, tensor: Tensor, pool_id: str) -> None:
        """Keep a tensor that is no longer used.

        Raises:
            AllocationError: no such pool, or a tensor of another device.
        """
        if tensor.device != self.device:
            raise AllocationError(f"the tensor is on {tensor.device}, not on {self.device}")
        self._pool(pool_id).give(tensor)

    def clear_pool(self, pool_id: str) -> int:
        """Give up what a pool keeps; how many bytes that were.

        Raises:
            AllocationError: no such pool.
        """
        return self._pool(pool_id).clear()

    def pool_stats(self, pool_id: str) -> PoolStats:
        """Of one pool.

        Raises:
            AllocationError: no such pool.
        """
        pool = self._pool(pool_id)
        return PoolStats(len(pool), pool.bytes, pool.hits, pool.misses, pool.evictions)

    def _pool(self, pool_id: str) -> memory.TensorPool:
        if pool_id not in self._pools:
            known = ", ".join(self._pools) or "none"
            raise AllocationError(f"no pool {pool_id!r}; there are: {known}")
        return self._pools[pool_id]

    def optimize_tensor_layout(self, tensor: Tensor) -> tuple[Tensor, Layout]:
        """The same numbers in the same shape, contiguous on the device, and what its tiles take.

        XLA chooses the tiles itself: a shape whose `waste` is high is for the caller to change.
        """
        return tensor.contiguous().to(self.device), tiled(tensor.shape, tensor.dtype)

    def optimize_model_memory(self, model: nn.Module, dtype: torch.dtype) -> int:
        """Store the model's floating-point parameters as `dtype`; the bytes that this saves."""
        before = memory.storage_bytes(list(model.parameters()))
        model.to(dtype)
        return before - memory.storage_bytes(list(model.parameters()))
