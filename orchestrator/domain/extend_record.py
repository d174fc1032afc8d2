"""Records that are made of others: fields of the same name are copied."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def extended(kind: type[T], record: object, /, **more: object) -> T:
    """Return a `kind`, a subclass of `record`'s class, with the fields that it adds.

    Raises TypeError.
    """
    if not is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"{record!r} is no record")
    return kind(**{one.name: getattr(record, one.name) for one in fields(record)}, **more)


def filled(kind: type[T], source: object, /, *, unset: Collection[str] = (), **more: object) -> T:
    """Return a `kind`: `more`, and all other fields from the attributes of `source`.

    `unset` names the fields that keep their default values. Raises AttributeError for any other
    field that `source` does not have: a renamed attribute must not become a default value.
    """
    names = _names(kind)  # type: ignore[arg-type]  # a class has a hash
    taken = (name for name in names if name not in more and name not in unset)
    return kind(**{name: getattr(source, name) for name in taken}, **more)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))
