"""Reading TOML into items: the standard parser for the values, a scan for where they stand."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right

from orchestrator.adapters.files.config_nodes import (
    DEEPEST,
    LARGEST_BYTES,
    ConfigNode,
    Entry,
    Position,
    UnreadableError,
)
from orchestrator.domain.problems import Path

_AT = re.compile(r"^(?P<what>.*?) \(at line (?P<line>\d+), column (?P<column>\d+)\)$", re.DOTALL)
_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE = re.compile(r"[^,\]}#\n]*")
_STRINGS = (
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
)


def read_toml(text: str) -> ConfigNode:
    """Read one document. Raises UnreadableError with the place."""
    if len(text.encode("utf-8", "replace")) > LARGEST_BYTES:
        raise UnreadableError(f"it is larger than {LARGEST_BYTES} bytes")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        data = tomllib.loads(text)
        scan = _Scan(text)
        scan.run()
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(text, str(error)) from None
    except RecursionError:
        raise UnreadableError(f"it is nested deeper than {DEEPEST} levels") from None
    return scan.item(data, ())


def _unreadable(text: str, message: str) -> UnreadableError:
    found = _AT.match(message)
    if found is None:
        lines = text.split("\n")
        what = message.removesuffix(" (at end of document)")
        end = Position(len(lines), len(lines[-1]) + 1)
        return UnreadableError(f"this is not TOML: {what}", end)
    at = Position(int(found["line"]), int(found["column"]))
    return UnreadableError(f"this is not TOML: {found['what']}", at)


class _Scan:
    """Finds where keys and values stand in a text that is known to be TOML."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self._line_starts = [0, *(m.end() for m in re.finditer("\n", text))]
        self._tables: dict[Path, int] = {}
        self._keys: dict[Path, int] = {}
        self._values: dict[Path, tuple[int, int]] = {}

    def run(self) -> None:
        table: Path = ()
        self._skip(_BLANK)
        while self._next < len(self._text):
            if self._text[self._next] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip(_BLANK)

    def item(self, value: object, path: Path) -> ConfigNode:
        """The parsed value with the places that were found."""
        if len(path) > DEEPEST:
            raise UnreadableError(f"it is nested deeper than {DEEPEST} levels", self._key_at(path))
        begin, end = self._values.get(path, (-1, -1))
        at = self._position(begin) if begin >= 0 else self._key_at(path)
        if isinstance(value, dict):
            deeper = {key: (*path, key) for key in value}
            entries = {k: Entry(self.item(value[k], p), self._key_at(p)) for k, p in deeper.items()}
            return ConfigNode(entries, at)
        if isinstance(value, list):
            return ConfigNode([self.item(each, (*path, n)) for n, each in enumerate(value)], at)
        return ConfigNode(value, at, self._text[begin:end].strip() if begin >= 0 else "")

    def _key_at(self, path: Path) -> Position:
        return self._position(self._keys.get(path, 0))

    def _position(self, offset: int) -> Position:
        line = bisect_right(self._line_starts, offset)
        return Position(line, offset - self._line_starts[line - 1] + 1)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self._text, self._next)
        if found is None:
            raise AssertionError("the parser accepted what is no TOML")
        self._next = found.end()
        return found.group()

    def _header(self) -> Path:
        start = self._next
        many = self._text.startswith("[[", start)
        self._next += 2 if many else 1
        path: Path = ()
        for key in self._dotted():
            path = self._current(path)
            path = (*path, key)
            self._keys.setdefault(path, start)
        self._next += 2 if many else 1
        if many:
            self._tables[path] = self._tables.get(path, -1) + 1
            path = self._current(path)
            self._keys[path] = start
        return path

    def _current(self, path: Path) -> Path:
        return (*path, self._tables[path]) if path in self._tables else path

    def _pair(self, table: Path) -> None:
        start = self._next
        path = table
        for key in self._dotted():
            path = (*path, key)
            self._keys.setdefault(path, start)
        self._next += 1
        self._skip(_SPACE)
        self._value(path)

    def _dotted(self) -> list[str]:
        keys: list[str] = []
        while True:
            self._skip(_SPACE)
            keys.append(self._key())
            self._skip(_SPACE)
            if self._text[self._next] != ".":
                return keys
            self._next += 1

    def _key(self) -> str:
        if self._text[self._next] not in "\"'":
            return self._skip(_BARE_KEY)
        written = self._string()
        return str(tomllib.loads(f"key = {written}")["key"])

    def _string(self) -> str:
        for pattern in _STRINGS:
            found = pattern.match(self._text, self._next)
            if found is not None:
                self._next = found.end()
                return found.group()
        raise AssertionError("the parser accepted what is no string")

    def _value(self, path: Path) -> None:
        start = self._next
        first = self._text[start]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._inside(path, "]")
        elif first == "{":
            self._inside(path, "}")
        else:
            self._skip(_BARE_VALUE)
        self._values[path] = (start, self._next)

    def _inside(self, path: Path, end: str) -> None:
        self._next += 1
        number = 0
        while True:
            self._skip(_BLANK)
            if self._text[self._next] == end:
                self._next += 1
                return
            if self._text[self._next] == ",":
                self._next += 1
            elif end == "]":
                self._value((*path, number))
                number += 1
            else:
                self._pair(path)
