"""Limits of the values in requests, as annotations of a record's fields.

They are checked when a request is parsed into the record, not when code creates the record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any

STRICT = {"extra": "forbid", "allow_inf_nan": False, "use_attribute_docstrings": True}
"""Configuration of records that requests are parsed into: unknown keys and NaN are refused."""
ONE_LINE = r"^[^\x00-\x1f\x7f]*$"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueLimits:
    """Limits of a text, a number or a list; None is no limit."""

    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    """Regular expression that a text must match."""
    gt: int | None = None
    """The number must be greater than this."""
    ge: int | None = None
    """Minimum of a number."""
    le: int | None = None
    """Maximum of a number."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: Callable[[object], dict[str, Any]]
    ) -> dict[str, Any]:
        """Return the schema of the annotated type with these limits."""
        values = {one.name: getattr(self, one.name) for one in fields(self)}
        return handler(source) | {name: x for name, x in values.items() if x is not None}


Word = Annotated[str, ValueLimits(max_length=300, pattern=ONE_LINE)]
"""One line without control characters; may be empty."""
Filled = Annotated[str, ValueLimits(min_length=1, max_length=300, pattern=ONE_LINE)]
"""One line without control characters; not empty."""
