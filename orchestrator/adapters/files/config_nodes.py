"""A document as it was written: values with the line and column where each of them stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.domain.problems import Path, Problem

LARGEST_BYTES = 1024 * 1024
DEEPEST = 32
MOST_ITEMS = 50_000


@dataclass(frozen=True, slots=True)
class Position:
    """Both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """A value of the document."""

    value: object
    """A scalar, a mapping of Entry by key, or a sequence of Item."""
    at: Position | None = None
    written: str = ""
    """A scalar as it stands in the file; empty where there is no file."""

    @property
    def entries(self) -> Mapping[str, Entry] | None:
        """Its keys, where it is a mapping."""
        return self.value if isinstance(self.value, dict) else None

    @property
    def elements(self) -> Sequence[ConfigNode] | None:
        """Its elements, where it is a list."""
        return self.value if isinstance(self.value, list) else None


@dataclass(frozen=True, slots=True)
class Entry:
    """A key of a mapping, and its value."""

    item: ConfigNode
    at: Position | None = None
    """Where the key stands."""


class UnreadableError(ValueError):
    """A text is not even a document of its language."""

    def __init__(self, message: str, at: Position | None = None) -> None:
        self.problem = _placed(Problem((), message), at)
        super().__init__(message)


def from_json(value: object, *, depth: int = 0) -> ConfigNode:
    """Turn parsed JSON into items without positions. Raises UnreadableError."""
    if depth > DEEPEST:
        raise UnreadableError(f"it is nested deeper than {DEEPEST} levels")
    if isinstance(value, Mapping):
        pairs = value.items()
        return ConfigNode({str(k): Entry(from_json(v, depth=depth + 1)) for k, v in pairs})
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ConfigNode([from_json(v, depth=depth + 1) for v in value])
    return ConfigNode(value)


def located(root: ConfigNode, problem: Problem) -> Problem:
    """Give a problem the place of the deepest part of its path that exists.

    That is where a scalar or a list's element begins, and the key of anything larger.
    """
    item, at = root, root.at
    for part in problem.path:
        entries, elements = item.entries, item.elements
        if entries is not None and isinstance(part, str) and part in entries:
            entry = entries[part]
            item = entry.item
            large = item.entries is not None or item.elements is not None
            at = entry.at if large or item.at is None else item.at
        elif elements is not None and isinstance(part, int) and part < len(elements):
            item = elements[part]
            at = item.at
        else:
            break
    return _placed(problem, at)


def placed(path: Path, message: str, at: Position | None) -> Problem:
    """A problem at a known place."""
    return _placed(Problem(path, message), at)


def _placed(problem: Problem, at: Position | None) -> Problem:
    return replace(problem, line=at.line, column=at.column) if at else problem
