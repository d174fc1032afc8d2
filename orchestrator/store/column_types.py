"""Column types of domain values, for SQLite and Postgres."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import JSON, DateTime, Dialect, Numeric, Text, TypeDecorator
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.types import TypeEngine

from orchestrator.store.errors import DamagedError

T = TypeVar("T")
W = TypeVar("W", bound=StrEnum)

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(?:u0000|.)")
_NAME_LIMIT = 300
"""Maximum characters of an indexed name: two names of 4-byte characters fit a page of Postgres."""

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
"""A document with untrusted keys."""


def storable(text: str) -> str:
    """Return the text with U+FFFD for NUL and lone surrogates, which Postgres rejects."""
    if text.isascii() and "\x00" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def short(name: str) -> str:
    """Return a name that fits an index; a longer one ends with a hash of the whole."""
    name = storable(name)
    if len(name) <= _NAME_LIMIT:
        return name
    return f"{name[: _NAME_LIMIT - 17]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


def storable_json(value: object) -> str:
    """Return JSON text for Postgres: no NUL, no lone surrogates, null for NaN and infinity."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(finite, ensure_ascii=False, allow_nan=False)
    if "\\u0000" in text:
        text = _ESCAPE.sub(lambda m: "\ufffd" if m[0] == "\\u0000" else m[0], text)
    return storable(text)


class Words(TypeDecorator[str]):
    """Text from payloads and tools; characters that Postgres rejects are replaced."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Replace characters that Postgres rejects."""
        return None if value is None else storable(value)


class Name(Words):
    """Text that is compared byte by byte in every database locale."""

    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Return text; in Postgres with the collation of SQLite."""
        return Text(collation="C") if dialect.name == "postgresql" else Text()


class OneOf(TypeDecorator[W]):
    """A member of a StrEnum, stored by value."""

    impl = Text
    cache_ok = True

    def __init__(self, words: type[W]) -> None:
        if not issubclass(words, StrEnum):
            raise TypeError(f"{words} is no StrEnum")
        super().__init__()
        self.words = words

    def process_bind_param(self, value: W | None, dialect: Dialect) -> str | None:
        """Return the member's value."""
        return None if value is None else self.words(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> W | None:
        """Return the member."""
        return None if value is None else self.words(value)


class Utc(TypeDecorator[datetime]):
    """An aware time, stored in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; SQLite stores no zone. Raises ValueError."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"{value} has no time zone")
        value = value.astimezone(UTC)
        return value.replace(tzinfo=None) if dialect.name == "sqlite" else value

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return an aware time."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class ExactDecimal(TypeDecorator[Decimal]):
    """An exact Decimal; text in SQLite, which has no decimals."""

    impl = Numeric
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Decimal] | TypeEngine[str]:
        """Return NUMERIC without a scale, or text."""
        return Text() if dialect.name == "sqlite" else Numeric()

    def process_bind_param(self, value: Decimal | None, dialect: Dialect) -> Decimal | str | None:
        """Return the stored form."""
        return str(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Decimal | str | None, dialect: Dialect) -> Decimal | None:
        """Return the Decimal."""
        return None if value is None else Decimal(value)


class DocumentColumn(TypeDecorator[T]):
    """A domain dataclass as JSON text, parsed strictly; keys keep their order."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[T]) -> None:
        super().__init__()
        self.kind = kind
        self._adapter: TypeAdapter[T] = TypeAdapter(kind)

    def process_bind_param(self, value: T | None, dialect: Dialect) -> str | None:
        """Return JSON text."""
        if value is None:
            return None
        # Not `dump_json`, which fails for a text with half a surrogate pair.
        fields = self._adapter.dump_python(value, mode="json", exclude_computed_fields=True)
        return storable_json(fields)

    def process_result_value(self, value: str | None, dialect: Dialect) -> T | None:
        """Return the dataclass. Raises DamagedError, which quotes no text: it may be secret."""
        if value is None:
            return None
        try:
            return self._adapter.validate_json(value, strict=True)
        except ValidationError as error:
            where = "; ".join(_place(one["loc"], one["type"]) for one in error.errors()[:3])
        kind = getattr(self.kind, "__name__", str(self.kind))
        raise DamagedError(f"a stored {kind} cannot be read back: {where}")


def _place(loc: tuple[int | str, ...], kind: str) -> str:
    return f"{'.'.join(map(str, loc)) or 'all of it'}: {kind}"
