"""The part of Compute Engine's filter language that the lab understands; the rest is refused."""

from __future__ import annotations

import re
from typing import Any

from tests.lab.google.front import ApiError, Json

_TERM = re.compile(
    r"""\s*\(?\s*(?P<field>[A-Za-z][\w.-]*)\s*(?P<op>!=|=|:|\beq\b|\bne\b)\s*
        (?P<value>"[^"]*"|'[^']*'|[^\s()]+)\s*\)?\s*(?:AND\b)?""",
    re.VERBOSE,
)


def chosen(rows: list[Json], spelled: str) -> list[Json]:
    """The rows that a filter lets through.

    Raises:
        ApiError: Nothing that the lab understands (no OR, no regular expressions).
    """
    terms = _terms(spelled)
    return [row for row in rows if all(_fits(row, *term) for term in terms)]


def _terms(spelled: str) -> list[tuple[str, str, str]]:
    terms, at = [], 0
    while at < len(spelled.rstrip()):
        found = _TERM.match(spelled, at)
        if found is None:
            raise ApiError("invalid", f"Invalid value for field 'filter': '{spelled}'.")
        terms.append((found["field"], found["op"], found["value"].strip("\"'")))
        at = found.end()
    return terms


def _fits(row: Json, field: str, operator: str, value: str) -> bool:
    there: Any = row
    for part in field.split("."):
        there = there.get(part) if isinstance(there, dict) else None
    if operator == ":":
        return there is not None and (value == "*" or value in str(there))
    same = there is not None and str(there) == value
    return not same if operator in ("!=", "ne") else same
