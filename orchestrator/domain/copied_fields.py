"""Records that are made from other records by copying the fields of the same name."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TypeVar

T = TypeVar("T")


def extended(kind: type[T], record: object, /, **more: object) -> T:
    """Return a record of a subclass of `record`'s class; `more` has its additional fields.

    Raises TypeError if `record` is not a record.
    """
    if not is_dataclass(record) or isinstance(record, type):
        raise TypeError(f"{record!r} is no record")
    return kind(**{one.name: getattr(record, one.name) for one in fields(record)}, **more)


def filled(kind: type[T], source: object, /, *, unset: Collection[str] = (), **more: object) -> T:
    """Return a record of the class `kind`, with the fields `more`.

    All other fields are attributes of `source`, except for those in `unset`, which keep their
    defaults. Raises AttributeError if `source` lacks one of them: a renamed attribute must not
    become a default value.
    """
    names = _names(kind)  # type: ignore[arg-type]  # a class has a hash
    taken = (name for name in names if name not in more and name not in unset)
    return kind(**{name: getattr(source, name) for name in taken}, **more)


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(one.name for one in fields(kind))
