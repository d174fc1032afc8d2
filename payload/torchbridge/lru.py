"""Bounded caches that forget what was not used for the longest time, and count."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counted since the cache was made; `size` of `capacity` entries are held."""

    hits: int
    misses: int
    evictions: int
    size: int
    capacity: int


class LRUCache(Generic[Value]):
    """At most `capacity` entries; `get` counts a hit or a miss and renews its entry. Any thread.

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
        """The entry, now the newest; else what `make` makes, which is put (other threads go on)."""
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
        """Hold `value` as the newest entry; the oldest goes if there is no room."""
        with self._lock:
            self._entries[key] = value
            self._entries.move_to_end(key)
            if len(self._entries) > self.capacity:
                self._entries.popitem(last=False)
                self.evictions += 1

    def clear(self) -> None:
        """Forget all entries; the counts stay."""
        with self._lock:
            self._entries.clear()

    @property
    def stats(self) -> CacheStats:
        """Counts so far."""
        return CacheStats(self.hits, self.misses, self.evictions, len(self), self.capacity)

    def __len__(self) -> int:
        """Entries held."""
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        """Is it held? Neither counts nor renews."""
        return key in self._entries


@dataclass(frozen=True, slots=True)
class CompilerStats:
    """Since the compiler was made; what comes from the cache is not compiled again."""

    cache: CacheStats
    compiled: int
    seconds: float


class CompileCache(LRUCache[Value]):
    """Of what was compiled: how much, and in how many seconds, is counted over its whole life."""

    compiled, seconds = 0, 0.0

    def once(self, key: Hashable, make: Callable[[], tuple[Value, float]]) -> Value:
        """The entry, or the one that `make` compiles, which tells its seconds too."""

        def counted() -> Value:
            value, seconds = make()
            self.compiled += 1
            self.seconds += seconds
            return value

        return self.get(key, counted)

    @property
    def told(self) -> CompilerStats:
        """So far."""
        return CompilerStats(self.stats, self.compiled, self.seconds)
