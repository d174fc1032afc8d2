"""Device memory: usage, size estimates, retry after an out-of-memory error, and a tensor pool.

On the CPU, which torch's allocator does not count, figures are those of the process and machine
(Linux).
"""

from __future__ import annotations

import gc
import resource
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stats:
    """Memory in bytes; `reserved` includes unused cache, `peak` is the maximum of `allocated`."""

    total: int
    free: int
    allocated: int
    reserved: int
    peak: int

    def to_dict(self) -> dict[str, int]:
        """Return the fields as `total_bytes`, `free_bytes` and so on."""
        return {f"{name}_bytes": value for name, value in asdict(self).items()}


def stats(device: torch.device) -> Stats:
    """Return the current memory usage of a device."""
    if device.type in ("cuda", "xpu"):
        module = getattr(torch, device.type)
        free, total = module.mem_get_info(device)
        used = module.memory_allocated(device), module.memory_reserved(device)
        return Stats(total, free, *used, module.max_memory_allocated(device))
    pages = [int(word) for word in Path("/proc/self/statm").read_text().split()]
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    machine = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}
    resident = pages[1] * resource.getpagesize()
    peak = max(resident, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    return Stats(machine["MemTotal"], machine["MemAvailable"], resident, resident, peak)


def empty_cache(device: torch.device) -> None:
    """Collect garbage and release cached memory to the device."""
    gc.collect()
    if device.type in ("cuda", "xpu"):
        getattr(torch, device.type).empty_cache()


def bytes_of(shape: Sequence[int], dtype: torch.dtype) -> int:
    """Return the bytes of a tensor of this shape and dtype.

    Raises:
        ValueError: a size is negative.
    """
    count = 1
    for size in shape:
        if size < 0:
            raise ValueError(f"sizes must not be negative, got {tuple(shape)}")
        count *= size
    return count * dtype.itemsize


def storage_bytes(tensors: Sequence[Tensor]) -> int:
    """Return the bytes of the storages of `tensors`; a shared storage counts once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def model_bytes(model: nn.Module) -> int:
    """Return the bytes of the parameters and buffers of a model."""
    return storage_bytes([*model.parameters(), *model.buffers()])


def guard(work: Callable[[], T], *, clean_up: Callable[[], object]) -> T:
    """Return the result of `work`; on an out-of-memory error call `clean_up` and try once more.

    Raises:
        torch.OutOfMemoryError: the second try ran out of memory, too.
    """
    try:
        return work()
    except torch.OutOfMemoryError:
        pass  # outside of the handler, the failed call's tensors are freed
    clean_up()
    return work()


class TensorPool:
    """Pool of reusable tensors; beyond `limit_bytes` the least recently used are released.

    Contents of a reused tensor are undefined.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Create an empty pool. Raises ValueError for a limit below 0."""
        if limit_bytes < 0:
            raise ValueError(f"limit_bytes must not be negative, got {limit_bytes}")
        self.limit_bytes = limit_bytes
        self.bytes = self.hits = self.misses = self.evictions = 0
        self._kept: OrderedDict[int, Tensor] = OrderedDict()  # by age, the oldest first

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the most recently given tensor of this shape, dtype and device, or a new one."""
        wanted = (torch.Size(shape), dtype, device)
        for key in reversed(self._kept):
            tensor = self._kept[key]
            if (tensor.shape, tensor.dtype, tensor.device) == wanted:
                self.hits += 1
                return self._release(key)
        self.misses += 1
        return torch.empty(shape, dtype=dtype, device=device)

    def give(self, tensor: Tensor) -> None:
        """Put an unused tensor into the pool; one that is in it already is not duplicated.

        Tensors that do not cover their whole storage, such as views, are ignored.
        """
        storage = tensor.untyped_storage()
        if storage.nbytes() != tensor.nbytes or not tensor.is_contiguous():
            return
        key = storage.data_ptr()
        if key in self._kept:
            self._release(key)
        self._kept[key] = tensor.detach()
        self.bytes += tensor.nbytes
        while self.bytes > self.limit_bytes:
            self._release(next(iter(self._kept)))
            self.evictions += 1

    def clear(self) -> int:
        """Release all tensors; return their total bytes."""
        freed = self.bytes
        self._kept.clear()
        self.bytes = 0
        return freed

    def _release(self, key: int) -> Tensor:
        tensor = self._kept.pop(key)
        self.bytes -= tensor.nbytes
        return tensor
