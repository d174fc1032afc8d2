"""Records that are made of others: fields of the same name are copied."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def extended(kind: type[T], record: object, /, **more: object) -> T:
    """Return a `kind`, a subclass of `record`'s class, with the fields that it adds."""
    if not is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"{record!r} is no record")
    return kind(**{one.name: getattr(record, one.name) for one in fields(record)}, **more)


def filled(kind: type[T], source: object, /, **more: object) -> T:
    """Return a `kind`: `more`, and all other fields from the attributes of `source`.

    Raises AttributeError for a field that neither has, even if it has a default: a renamed
    attribute must not become a default value.
    """
    names = _names(kind)  # type: ignore[arg-type]  # a class has a hash
    return kind(**{name: getattr(source, name) for name in names if name not in more}, **more)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))
