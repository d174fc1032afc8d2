"""Tensors on an NVIDIA device: asked for with care, kept for the next time within a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torchbridge import memory
from torchbridge.backends.nvidia.exceptions import MemoryAllocationError, OutOfMemoryError
from torchbridge.config import Config

MIB = 2**20
POOL_LIMIT_BYTES = 256 * MIB


class NVIDIAMemoryManager:
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
        self.config = config if config is not None else Config()
        self.settings = self.config.hardware.nvidia
        usable = torch.cuda.is_available() and not torch.version.hip
        wanted = device or ("cuda" if usable else "cpu")
        self.device = torch.empty(0, device=wanted).device  # with its index
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
            OutOfMemoryError: the device has not that much.
            MemoryAllocationError: there can be no such tensor.
        """
        try:
            if pool_id is None:
                return torch.empty(tuple(shape), dtype=dtype, device=self.device)
            return self._pool(pool_id).take(shape, dtype, self.device)
        except torch.OutOfMemoryError as error:
            raise OutOfMemoryError(self._insufficient(shape, dtype)) from error
        except (RuntimeError, TypeError) as error:
            raise MemoryAllocationError(f"no tensor of shape {tuple(shape)}: {error}") from error

    def allocate_with_oom_protection(
        self,
        shape: Sequence[int],
        dtype: torch.dtype = torch.float32,
        *,
        safety_margin: float | None = None,
    ) -> Tensor:
        """A tensor, if `safety_margin` times its size is free; pools are cleared once to make room.

        Raises:
            OutOfMemoryError: there is not enough memory also after that, or no CUDA device.
        """
        margin = self.config.memory.safety_margin if safety_margin is None else safety_margin
        needed_mb = margin * self.estimate_tensor_mb(shape, dtype)
        if not self.check_memory_available(needed_mb):
            self.clear_pool()
            if not self.check_memory_available(needed_mb):
                raise OutOfMemoryError(self._insufficient(shape, dtype))
        return memory.guard(lambda: self.allocate_tensor(shape, dtype), clean_up=self.clear_pool)

    def check_memory_available(self, required_mb: float) -> bool:
        """Do so many MiB more fit on the device? Never, without one."""
        needed = required_mb * MIB
        if self._free_bytes is not None:
            return needed <= self._free_bytes()
        fraction = self.settings.memory_fraction
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
        return {**memory.stats(self.device).to_dict(), "pools": pools}

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
