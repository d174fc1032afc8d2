"""Reading YAML 1.2 (and so JSON) into items: no tags, no surprises, bounded in every direction.

Built on the parser's events, because a loader would already have lost positions and duplicates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

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

from orchestrator.adapters.files.config_nodes import (
    DEEPEST,
    LARGEST_BYTES,
    MOST_ITEMS,
    ConfigNode,
    Entry,
    Position,
    UnreadableError,
)

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
    """A mapping or a list whose end has not come yet."""

    at: Position
    anchor: str | None
    counted_before: int
    entries: dict[str, Entry] | None = None
    elements: list[ConfigNode] = field(default_factory=list)
    key: str | None = None
    key_at: Position | None = None

    def add(self, item: ConfigNode) -> None:
        if self.entries is None:
            self.elements.append(item)
        elif self.key is None:
            self._take_key(item, self.entries)
        else:
            self.entries[self.key] = Entry(item, self.key_at)
            self.key = None

    def _take_key(self, item: ConfigNode, entries: dict[str, Entry]) -> None:
        if item.entries is not None or item.elements is not None:
            raise UnreadableError("a key must be a single word or text", item.at)
        if item.written == "<<":
            raise UnreadableError("`<<` is not read: write the keys out", item.at)
        earlier = entries.get(item.written)
        if earlier is not None and earlier.at is not None:
            line = earlier.at.line
            message = f"the key {item.written!r} stands here twice; the first is in line {line}"
            raise UnreadableError(message, item.at)
        self.key, self.key_at = item.written, item.at

    def closed(self) -> ConfigNode:
        return ConfigNode(self.elements if self.entries is None else self.entries, self.at)


class _Builder:
    """Makes items of events."""

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

    def _begin(self, event: DocumentStartEvent, at: Position) -> None:
        self._documents += 1
        if self._documents > 1:
            raise UnreadableError("a file holds one document; a second one begins here", at)
        if event.version or event.tags:
            raise UnreadableError("directives (lines that begin with %) are not read", at)

    def _enter(self, event: MappingStartEvent | SequenceStartEvent, at: Position) -> None:
        if len(self._open) >= DEEPEST:
            raise UnreadableError(f"it is nested deeper than {DEEPEST} levels", at)
        if not event.implicit:
            raise UnreadableError("tags (words that begin with !) are not read", at)
        entries: dict[str, Entry] | None = {} if isinstance(event, MappingStartEvent) else None
        self._open.append(_Open(at, event.anchor, self._count, entries))

    def _repeat(self, anchor: str, at: Position) -> None:
        if anchor not in self._anchors:
            raise UnreadableError(f"*{anchor} names nothing that is complete above it", at)
        item, size = self._anchors[anchor]
        self._count += size - 1
        self._add(item, None, size)

    def _add(self, item: ConfigNode, anchor: str | None, size: int) -> None:
        self._count += 1
        if self._count > MOST_ITEMS:
            raise UnreadableError(f"it holds more than {MOST_ITEMS} values", item.at)
        if anchor:
            self._anchors[anchor] = (item, size)
        if self._open:
            self._open[-1].add(item)
        else:
            self.root = item


def read_yaml(text: str) -> ConfigNode:
    """Read one document. Raises UnreadableError with the place."""
    if len(text.encode("utf-8", "replace")) > LARGEST_BYTES:
        raise UnreadableError(f"it is larger than {LARGEST_BYTES} bytes")
    builder = _Builder()
    try:
        for event in _events(_plain_json(text.removeprefix("\ufeff"))):
            builder.take(event)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UnreadableError(_words(error), _position(mark) if mark else None) from None
    except (YAMLError, ValueError, OverflowError) as error:
        if isinstance(error, UnreadableError):
            raise
        raise UnreadableError(f"this is not YAML: {' '.join(str(error).split())}") from None
    if builder.root is None:
        raise UnreadableError("it is empty", Position(1, 1))
    return builder.root


def _events(text: str) -> Iterator[Event]:
    yield from YAML(typ="safe", pure=True).parse(text)


def _plain_json(text: str) -> str:
    """JSON may be indented by tabs, which YAML forbids; inside its texts a tab is never bare."""
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


def _position(mark: StringMark) -> Position:
    return Position(mark.line + 1, mark.column + 1)


def _refuse_tag(event: ScalarEvent, at: Position) -> None:
    plain, quoted = event.implicit
    if not plain and not quoted:
        raise UnreadableError("tags (words that begin with !) are not read", at)


def _scalar(event: ScalarEvent, at: Position) -> ConfigNode:
    text = _whole(event.value, at)
    if event.style:
        return ConfigNode(text, at, text)
    return ConfigNode(_plain(text), at, text)


def _whole(text: str, at: Position) -> str:
    """Join the halves that JSON writes characters beyond U+FFFF in."""
    try:
        return text.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeError:
        raise UnreadableError("a text holds half a character (a lone surrogate)", at) from None


def _plain(text: str) -> object:
    """What an unquoted word is, by the core schema of YAML 1.2: `yes` and `on` are words."""
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
