"""Thread-safe bounded caches that evict the least recently used entry and count hits and misses."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the cache was created; `size` is the current number of entries."""

    hits: int
    misses: int
    evictions: int
    size: int
    capacity: int


class LRUCache(Generic[Value]):
    """Cache of at most `capacity` entries; usable from several threads.

    Raises:
        ValueError: a capacity below 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self.hits = self.misses = self.evictions = 0
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value] | None = None) -> Value | None:
        """Return the entry, now the most recent, or store and return what `make` returns."""
        with self._lock:
            if key in self._entries:
                self.hits += 1
                self._entries.move_to_end(key)
                return self._entries[key]
            self.misses += 1
        if make is None:
            return None
        value = make()
        self.put(key, value)
        return value

    def put(self, key: Hashable, value: Value) -> None:
        """Store `value` as the most recently used entry; evict the oldest if the cache is full."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self.capacity:
                self._entries.popitem(last=False)
                self.evictions += 1

    def clear(self) -> None:
        """Remove all entries; the counts stay."""
        with self._lock:
            self._entries.clear()

    @property
    def stats(self) -> CacheStats:
        """Counts since the cache was created."""
        return CacheStats(self.hits, self.misses, self.evictions, len(self), self.capacity)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        """Return whether the key is cached, without counting or changing the order."""
        return key in self._entries


@dataclass(frozen=True, slots=True)
class CompilerStats:
    """Compilations (count and total seconds) and cache counts since the cache was created."""

    cache: CacheStats
    compiled: int
    seconds: float


class CompileCache(LRUCache[Value]):
    """Cache of compiled artifacts that counts compilations and their seconds."""

    compiled, seconds = 0, 0.0

    def once(self, key: Hashable, make: Callable[[], tuple[Value, float]]) -> Value:
        """Return the entry, or compile it by `make`, which returns (artifact, seconds)."""

        def counted() -> Value:
            value, seconds = make()
            self.compiled += 1
            self.seconds += seconds
            return value

        return self.get(key, counted)

    @property
    def compiler_stats(self) -> CompilerStats:
        """Counts and seconds since the cache was created."""
        return CompilerStats(self.stats, self.compiled, self.seconds)
