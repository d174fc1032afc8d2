"""YAML and TOML documents as nodes: values with their lines and columns."""

from __future__ import annotations

import io
import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, StringMark, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from orchestrator.domain.document_problems import Path, Problem

LARGEST_BYTES = 1024 * 1024
DEEPEST = 32
MOST_ITEMS = 50_000
_KEPT_CHARACTERS = 64 * 1024


@dataclass(frozen=True, slots=True)
class DocumentPosition:
    """A line and a column, both counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class ConfigNode:
    """A value of the document."""

    value: object
    """A scalar, a mapping of Entry by key, or a sequence of Item."""
    at: DocumentPosition | None = None
    written: str = ""
    """A scalar as written in the file; empty without a file."""

    @property
    def entries(self) -> Mapping[str, MappingEntry] | None:
        """Return the keys of a mapping; None for other values."""
        return self.value if isinstance(self.value, dict) else None

    @property
    def elements(self) -> Sequence[ConfigNode] | None:
        """Return the elements of a list; None for other values."""
        return self.value if isinstance(self.value, list) else None


@dataclass(frozen=True, slots=True)
class MappingEntry:
    """A key of a mapping with its value."""

    item: ConfigNode
    at: DocumentPosition | None = None
    """Position of the key."""


class DocumentSyntaxError(ValueError):
    """A text is not a valid document of its language."""

    def __init__(self, message: str, at: DocumentPosition | None = None) -> None:
        self.problem = _placed(Problem((), message), at)
        super().__init__(message)


def from_json(value: object, *, depth: int = 0) -> ConfigNode:
    """Convert parsed JSON to nodes without positions. Raises UnreadableError."""
    if depth > DEEPEST:
        raise DocumentSyntaxError(f"it is nested deeper than {DEEPEST} levels")
    if isinstance(value, Mapping):
        pairs = value.items()
        return ConfigNode({str(k): MappingEntry(from_json(v, depth=depth + 1)) for k, v in pairs})
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return ConfigNode([from_json(v, depth=depth + 1) for v in value])
    return ConfigNode(value)


def located(root: ConfigNode, problem: Problem) -> Problem:
    """Return a problem with the position of the deepest part of its path that exists.

    That is the beginning of a scalar or of a list's element, and the key of a mapping or list.
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


def placed(path: Path, message: str, at: DocumentPosition | None) -> Problem:
    """Return a problem at a given position."""
    return _placed(Problem(path, message), at)


def _placed(problem: Problem, at: DocumentPosition | None) -> Problem:
    return replace(problem, line=at.line, column=at.column) if at else problem


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
    """Parse one document. Raises UnreadableError with the position."""
    if len(text.encode("utf-8", "replace")) > LARGEST_BYTES:
        raise DocumentSyntaxError(f"it is larger than {LARGEST_BYTES} bytes")
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        data = tomllib.loads(text)
        scan = _Scan(text)
        scan.run()
    except tomllib.TOMLDecodeError as error:
        raise _unreadable(text, str(error)) from None
    except RecursionError:
        raise DocumentSyntaxError(f"it is nested deeper than {DEEPEST} levels") from None
    return scan.item(data, ())


def _unreadable(text: str, message: str) -> DocumentSyntaxError:
    found = _AT.match(message)
    if found is None:
        lines = text.split("\n")
        what = message.removesuffix(" (at end of document)")
        end = DocumentPosition(len(lines), len(lines[-1]) + 1)
        return DocumentSyntaxError(f"this is not TOML: {what}", end)
    at = DocumentPosition(int(found["line"]), int(found["column"]))
    return DocumentSyntaxError(f"this is not TOML: {found['what']}", at)


class _Scan:
    """Finds the positions of keys and values in a valid TOML text."""

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
        """Return the parsed value with the positions that were found.

        Raises DocumentSyntaxError.
        """
        if len(path) > DEEPEST:
            raise DocumentSyntaxError(
                f"it is nested deeper than {DEEPEST} levels", self._key_at(path)
            )
        begin, end = self._values.get(path, (-1, -1))
        at = self._position(begin) if begin >= 0 else self._key_at(path)
        if isinstance(value, dict):
            deeper = {key: (*path, key) for key in value}
            entries = {
                k: MappingEntry(self.item(value[k], p), self._key_at(p)) for k, p in deeper.items()
            }
            return ConfigNode(entries, at)
        if isinstance(value, list):
            return ConfigNode([self.item(each, (*path, n)) for n, each in enumerate(value)], at)
        return ConfigNode(value, at, self._text[begin:end].strip() if begin >= 0 else "")

    def _key_at(self, path: Path) -> DocumentPosition:
        return self._position(self._keys.get(path, 0))

    def _position(self, offset: int) -> DocumentPosition:
        line = bisect_right(self._line_starts, offset)
        return DocumentPosition(line, offset - self._line_starts[line - 1] + 1)

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


_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_OTHER_INTEGER = re.compile(r"0o[0-7]{1,40}|0x[0-9a-fA-F]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


@dataclass(slots=True)
class _Open:
    """A mapping or a list whose end was not read yet."""

    at: DocumentPosition
    anchor: str | None
    counted_before: int
    entries: dict[str, MappingEntry] | None = None
    elements: list[ConfigNode] = field(default_factory=list)
    key: str | None = None
    key_at: DocumentPosition | None = None

    def add(self, item: ConfigNode) -> None:
        if self.entries is None:
            self.elements.append(item)
        elif self.key is None:
            self._take_key(item, self.entries)
        else:
            self.entries[self.key] = MappingEntry(item, self.key_at)
            self.key = None

    def _take_key(self, item: ConfigNode, entries: dict[str, MappingEntry]) -> None:
        if item.entries is not None or item.elements is not None:
            raise DocumentSyntaxError("a key must be a single word or text", item.at)
        if item.written == "<<":
            raise DocumentSyntaxError("`<<` is not read: write the keys out", item.at)
        earlier = entries.get(item.written)
        if earlier is not None and earlier.at is not None:
            line = earlier.at.line
            message = f"the key {item.written!r} occurs twice; the first is in line {line}"
            raise DocumentSyntaxError(message, item.at)
        self.key, self.key_at = item.written, item.at

    def closed(self) -> ConfigNode:
        return ConfigNode(self.elements if self.entries is None else self.entries, self.at)


class _Builder:
    """Builds nodes from YAML events."""

    def __init__(self) -> None:
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[ConfigNode, int]] = {}
        self._count = 0
        self._documents = 0
        self.root: ConfigNode | None = None

    def take(self, event: Event) -> None:
        at = _position(event.start_mark)
        if isinstance(event, DocumentStartEvent):
            self._begin(event, at)
        elif isinstance(event, AliasEvent):
            self._repeat(str(event.anchor), at)
        elif isinstance(event, ScalarEvent):
            _refuse_tag(event, at)
            self._add(_scalar(event, at), event.anchor, 1)
        elif isinstance(event, MappingStartEvent | SequenceStartEvent):
            self._enter(event, at)
        elif isinstance(event, CollectionEndEvent):
            last = self._open.pop()
            self._add(last.closed(), last.anchor, 1 + self._count - last.counted_before)

    def _begin(self, event: DocumentStartEvent, at: DocumentPosition) -> None:
        self._documents += 1
        if self._documents > 1:
            raise DocumentSyntaxError("a file holds one document; a second one begins here", at)
        if event.version or event.tags:
            raise DocumentSyntaxError("directives (lines that begin with %) are not read", at)

    def _enter(self, event: MappingStartEvent | SequenceStartEvent, at: DocumentPosition) -> None:
        if len(self._open) >= DEEPEST:
            raise DocumentSyntaxError(f"it is nested deeper than {DEEPEST} levels", at)
        if not event.implicit:
            raise DocumentSyntaxError("tags (words that begin with !) are not read", at)
        entries: dict[str, MappingEntry] | None = (
            {} if isinstance(event, MappingStartEvent) else None
        )
        self._open.append(_Open(at, event.anchor, self._count, entries))

    def _repeat(self, anchor: str, at: DocumentPosition) -> None:
        if anchor not in self._anchors:
            raise DocumentSyntaxError(f"*{anchor} names nothing that is complete above it", at)
        item, size = self._anchors[anchor]
        self._count += size - 1
        self._add(item, None, size)

    def _add(self, item: ConfigNode, anchor: str | None, size: int) -> None:
        self._count += 1
        if self._count > MOST_ITEMS:
            raise DocumentSyntaxError(f"it holds more than {MOST_ITEMS} values", item.at)
        if anchor:
            self._anchors[anchor] = (item, size)
        if self._open:
            self._open[-1].add(item)
        else:
            self.root = item


def read_yaml(text: str) -> ConfigNode:
    """Parse one document. Raises UnreadableError with the position.

    A launch reads the same text several times, for its plan, its payload and its cells: the newest
    short ones are parsed once.
    """
    return _parsed(text) if len(text) <= _KEPT_CHARACTERS else _parse(text)


@lru_cache(maxsize=4)
def _parsed(text: str) -> ConfigNode:
    return _parse(text)


def _parse(text: str) -> ConfigNode:
    if len(text.encode("utf-8", "replace")) > LARGEST_BYTES:
        raise DocumentSyntaxError(f"it is larger than {LARGEST_BYTES} bytes")
    builder = _Builder()
    try:
        for event in _events(_plain_json(text.removeprefix("\ufeff"))):
            builder.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise DocumentSyntaxError(_words(error), _position(mark) if mark else None) from None
    except (YAMLError, ValueError, OverflowError) as error:
        if isinstance(error, DocumentSyntaxError):
            raise
        raise DocumentSyntaxError(f"this is not YAML: {' '.join(str(error).split())}") from None
    if builder.root is None:
        raise DocumentSyntaxError("it is empty", DocumentPosition(1, 1))
    return builder.root


def yaml_text(document: Mapping[str, object]) -> str:
    """Return the YAML text of a document, in its order."""
    yaml = YAML(pure=True)
    yaml.indent(mapping=2, sequence=4, offset=2)
    written = io.StringIO()
    yaml.dump(document, written)
    return written.getvalue()


def _events(text: str) -> Iterator[Event]:
    yield from YAML(typ="safe", pure=True).parse(text)


def _plain_json(text: str) -> str:
    """Return JSON with its tabs replaced by spaces, and any other text unchanged.

    YAML forbids tabs as indentation; strings in JSON contain only escaped tabs.
    """
    if not text.lstrip().startswith("{"):
        return text
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text.replace("\t", " ")


def _words(error: MarkedYAMLError) -> str:
    problem = str(error.problem or error.context or "it cannot be parsed")
    if "'\\t'" in problem:
        return "a tab cannot indent YAML: use spaces"
    return f"this is not YAML: {problem}"


def _position(mark: StringMark) -> DocumentPosition:
    return DocumentPosition(mark.line + 1, mark.column + 1)


def _refuse_tag(event: ScalarEvent, at: DocumentPosition) -> None:
    plain, quoted = event.implicit
    if not plain and not quoted:
        raise DocumentSyntaxError("tags (words that begin with !) are not read", at)


def _scalar(event: ScalarEvent, at: DocumentPosition) -> ConfigNode:
    text = _whole(event.value, at)
    if event.style:
        return ConfigNode(text, at, text)
    return ConfigNode(_plain(text), at, text)


def _whole(text: str, at: DocumentPosition) -> str:
    """Join the surrogate pairs that JSON uses for characters beyond U+FFFF."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError:
        raise DocumentSyntaxError("an unpaired surrogate, which is not valid text", at) from None


def _plain(text: str) -> object:
    """Resolve an unquoted scalar by the core schema of YAML 1.2: `yes` and `on` are strings."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _OTHER_INTEGER.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    return text
