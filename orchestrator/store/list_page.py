"""A page of what a store lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

Item = TypeVar("Item")
Cursor = TypeVar("Cursor")


@dataclass(frozen=True, slots=True)
class ListPage(Generic[Item, Cursor]):
    """Some items in the order of the list."""

    items: Sequence[Item] = ()
    next: Cursor | None = None
    """Cursor of the next page; None on the last one."""
