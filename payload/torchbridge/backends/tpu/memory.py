"""A TPU's memory: what XLA says of it, what tensors take in its tiles, and tensors used again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from torchbridge.backends.tpu.exceptions import TPUMemoryPoolError, TPUOutOfMemory
from torchbridge.backends.tpu.xla import XLA, MemoryInfo
from torchbridge.config import TPUConfig
from torchbridge.memory import TensorPool, bytes_of, storage_bytes

# A vector register is 8 sublanes x 128 lanes of 32 bits; narrower numbers are packed in sublanes.
_SUBLANES, _LANES = 8, 128


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
    return Layout(bytes_of(shape, dtype), bytes_of([*shape[:-2], *rounded], dtype))


class TPUMemoryManager:
    """Allocates within `memory_fraction` of a chip, and remembers what its memory was like."""

    def __init__(
        self, config: TPUConfig, xla: XLA, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.config, self.xla, self.clock = config, xla, clock
        self.device = xla.device()
        self._pools: dict[str, TensorPool] = {}
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
            TPUOutOfMemory: its tiles do not fit into what is free.
            TPUMemoryPoolError: no such pool.
        """
        self.check_memory_available(shape, dtype)
        if pool_id is None:
            return torch.empty(tuple(shape), dtype=dtype, device=self.device)
        return self._pool(pool_id).take(shape, dtype, self.device)

    def check_memory_available(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        """Refuse what does not fit.

        Raises:
            TPUOutOfMemory: its tiles are more than what is free.
        """
        needed, free = tiled(shape, dtype).tiled_bytes, self.free_bytes()
        if needed > free:
            raise TPUOutOfMemory(
                f"{tuple(shape)} of {dtype} takes {needed:,} bytes in tiles, {free:,} are free"
            )

    def free_bytes(self) -> int:
        """Of the share that the settings allow."""
        memory = self.memory()
        return max(0, int(memory.limit * self.config.memory_fraction) - memory.used)

    def memory(self) -> MemoryInfo:
        """What XLA says, its limit lowered to the settings' own; remembered for the history.

        Raises:
            TPUMemoryError: the runtime does not count, nor do the settings.
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
            TPUMemoryPoolError: there is one of that name.
        """
        if pool_id in self._pools:
            raise TPUMemoryPoolError(f"pool {pool_id!r} exists")
        self._pools[pool_id] = TensorPool(limit_bytes)

    def return_to_pool(self, tensor: Tensor, pool_id: str) -> None:
        """Keep a tensor that is no longer used.

        Raises:
            TPUMemoryPoolError: no such pool, or a tensor of another device.
        """
        if tensor.device != self.device:
            raise TPUMemoryPoolError(f"the tensor is on {tensor.device}, not on {self.device}")
        self._pool(pool_id).give(tensor)

    def clear_pool(self, pool_id: str) -> int:
        """Give up what a pool keeps; how many bytes that were.

        Raises:
            TPUMemoryPoolError: no such pool.
        """
        return self._pool(pool_id).clear()

    def pool_stats(self, pool_id: str) -> PoolStats:
        """Of one pool.

        Raises:
            TPUMemoryPoolError: no such pool.
        """
        pool = self._pool(pool_id)
        return PoolStats(len(pool), pool.bytes, pool.hits, pool.misses, pool.evictions)

    def _pool(self, pool_id: str) -> TensorPool:
        if pool_id not in self._pools:
            known = ", ".join(self._pools) or "none"
            raise TPUMemoryPoolError(f"no pool {pool_id!r}; there are: {known}")
        return self._pools[pool_id]

    def optimize_tensor_layout(self, tensor: Tensor) -> tuple[Tensor, Layout]:
        """The same numbers in the same shape, contiguous on the device, and what its tiles take.

        XLA chooses the tiles itself: a shape whose `waste` is high is for the caller to change.
        """
        return tensor.contiguous().to(self.device), tiled(tensor.shape, tensor.dtype)

    def optimize_model_memory(self, model: nn.Module, dtype: torch.dtype) -> int:
        """Store the model's floating-point parameters as `dtype`; the bytes that this saves."""
        before = storage_bytes(list(model.parameters()))
        model.to(dtype)
        return before - storage_bytes(list(model.parameters()))
