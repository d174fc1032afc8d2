"""A bounded cache that forgets what was not used for the longest time, and counts."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
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

    @property
    def hit_rate(self) -> float:
        """Hits over look-ups; 0 before the first."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


class LRUCache(Generic[Value]):
    """At most `capacity` entries; `get` counts a hit or a miss and renews its entry.

    Raises:
        ValueError: a capacity below 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1, got {capacity}")
        self.capacity = capacity
        self._entries: OrderedDict[Hashable, Value] = OrderedDict()
        self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable) -> Value | None:
        """The entry, now the newest; None if it is not held."""
        if key not in self._entries:
            self._misses += 1
            return None
        self._hits += 1
        self._entries.move_to_end(key)
        return self._entries[key]

    def put(self, key: Hashable, value: Value) -> None:
        """Hold `value` as the newest entry; the oldest goes if there is no room."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self.capacity:
            self._entries.popitem(last=False)
            self._evictions += 1

    def clear(self) -> None:
        """Forget all entries; the counts stay."""
        self._entries.clear()

    @property
    def stats(self) -> CacheStats:
        """Counts so far."""
        size = len(self._entries)
        return CacheStats(self._hits, self._misses, self._evictions, size, self.capacity)

    def __len__(self) -> int:
        """Entries held."""
        return len(self._entries)

    def __contains__(self, key: Hashable) -> bool:
        """Is it held? Neither counts nor renews."""
        return key in self._entries
