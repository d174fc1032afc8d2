"""Records that are made of others: fields of the same name are copied."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import TypeVar

T = TypeVar("T")


def extended(kind: type[T], record: object, /, **more: object) -> T:
    """Return a `kind`, whose parent class `record` is of, with the fields that it adds."""
    if not is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"{record!r} is no record")
    return kind(**{one.name: getattr(record, one.name) for one in fields(record)}, **more)


def filled(kind: type[T], source: object, /, **more: object) -> T:
    """Return a `kind` with what `source` has of its fields, and with `more`, which goes first."""
    names = (one.name for one in fields(kind))  # type: ignore[arg-type]  # a dataclass
    known = {x: getattr(source, x) for x in names if x not in more and hasattr(source, x)}
    return kind(**known, **more)
