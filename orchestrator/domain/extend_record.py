"""A record with something more: the fields of the one that it extends are copied."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TypeVar

T = TypeVar("T")


def extended(kind: type[T], record: object, /, **more: object) -> T:
    """Return a `kind`, whose parent class `record` is of, with the fields that it adds."""
    if not is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"{record!r} is no record")
    return kind(**{one.name: getattr(record, one.name) for one in fields(record)}, **more)
