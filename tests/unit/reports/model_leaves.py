"""Walking a report's model: every number in it, and a copy with one of them changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from decimal import Decimal

Path = tuple[str | int, ...]


def numbers(part: object, path: Path = ()) -> Iterator[tuple[Path, int | float | Decimal]]:
    """Every number with its path; truth values are none."""
    if isinstance(part, int | float | Decimal) and not isinstance(part, bool):
        yield path, part
    elif isinstance(part, tuple):
        for index, item in enumerate(part):
            yield from numbers(item, (*path, index))
    elif is_dataclass(part):
        for field in fields(part):
            yield from numbers(getattr(part, field.name), (*path, field.name))


def texts(part: object) -> Iterator[str]:
    """Every text."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, tuple):
        for item in part:
            yield from texts(item)
    elif is_dataclass(part):
        for field in fields(part):
            yield from texts(getattr(part, field.name))


def changed(part, path: Path, value):
    """A copy in which one leaf is another."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(part, tuple):
        items = list(part)
        items[step] = changed(items[step], rest, value)
        return tuple(items)
    return replace(part, **{step: changed(getattr(part, step), rest, value)})


def kind_of(path: Path) -> str:
    """A path without its indexes."""
    return ".".join(str(step) for step in path if not isinstance(step, int))


def numerals(text: str) -> list[str]:
    """Numbers as they stand in a text."""
    return re.findall(r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?", text)
