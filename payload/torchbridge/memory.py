"""Device memory: what is used, whether more fits, and how to try again when it did not.

torch's caching allocator does the work. On the CPU, which it does not count, the figures are those
of the process and the machine (Linux).
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
    """All in bytes. `reserved` includes what is cached but unused; `peak` is of `allocated`."""

    total: int
    free: int
    allocated: int
    reserved: int
    peak: int

    def to_dict(self) -> dict[str, int]:
        """`total_bytes`, `free_bytes` and so on."""
        return {f"{name}_bytes": value for name, value in asdict(self).items()}


def stats(device: torch.device) -> Stats:
    """The memory of a device now."""
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
    """Collect garbage and give cached memory back to the device."""
    gc.collect()
    if device.type in ("cuda", "xpu"):
        getattr(torch, device.type).empty_cache()


def bytes_of(shape: Sequence[int], dtype: torch.dtype) -> int:
    """What a tensor of this shape takes.

    Raises:
        ValueError: a negative size.
    """
    count = 1
    for size in shape:
        if size < 0:
            raise ValueError(f"sizes must not be negative, got {tuple(shape)}")
        count *= size
    return count * dtype.itemsize


def storage_bytes(tensors: Sequence[Tensor]) -> int:
    """What these tensors hold in memory; a storage that several share counts once."""
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def model_bytes(model: nn.Module) -> int:
    """What the parameters and buffers of a model hold in memory."""
    return storage_bytes([*model.parameters(), *model.buffers()])


def guard(work: Callable[[], T], *, clean_up: Callable[[], object]) -> T:
    """The result of `work`; where memory ran out, it is tried once more after `clean_up`.

    Raises:
        torch.OutOfMemoryError: it ran out both times.
    """
    try:
        return work()
    except torch.OutOfMemoryError:
        pass  # outside of the handler the failed call's tensors are let go
    clean_up()
    return work()


class TensorPool:
    """Tensors to be used again, the least recently used given up beyond `limit_bytes`.

    Their contents are whatever they last were.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Raises ValueError for a limit below 0."""
        if limit_bytes < 0:
            raise ValueError(f"limit_bytes must not be negative, got {limit_bytes}")
        self.limit_bytes = limit_bytes
        self.bytes = self.hits = self.misses = self.evictions = 0
        self._kept: OrderedDict[int, Tensor] = OrderedDict()  # by age, the oldest first

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """A kept tensor exactly like that, the youngest, or a new one."""
        wanted = (torch.Size(shape), dtype, device)
        for key in reversed(self._kept):
            tensor = self._kept[key]
            if (tensor.shape, tensor.dtype, tensor.device) == wanted:
                self.hits += 1
                return self._release(key)
        self.misses += 1
        return torch.empty(shape, dtype=dtype, device=device)

    def give(self, tensor: Tensor) -> None:
        """Keep a tensor that nobody uses any more; one that is kept already stays once.

        One that shares its storage's rest with others, a view say, is not kept.
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
        """Give all up; how many bytes that were."""
        freed = self.bytes
        self._kept.clear()
        self.bytes = 0
        return freed

    def _release(self, key: int) -> Tensor:
        tensor = self._kept.pop(key)
        self.bytes -= tensor.nbytes
        return tensor
