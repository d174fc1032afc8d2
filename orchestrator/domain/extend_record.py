"""Copies a record into a subclass that adds fields."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TypeVar

T = TypeVar("T")


def extended(kind: type[T], record: object, /, **more: object) -> T:
    """Return a `kind`, a subclass of `record`'s class, with the fields that it adds."""
    if not is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"{record!r} is no record")
    return kind(**{one.name: getattr(record, one.name) for one in fields(record)}, **more)
