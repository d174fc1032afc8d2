"""Reads untrusted XML of any size in bounded memory, without document types and entities."""

from __future__ import annotations

import codecs
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.etree.ElementTree import ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from orchestrator.adapters.result_parsers.bounded_input import (
    DEEPEST,
    TEXT_LIMIT,
    as_text,
    chunks,
    encoding,
    head_text,
    shortened,
)
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError

ATTRIBUTE_LIMIT: Final = TEXT_LIMIT
MOST_ATTRIBUTES: Final = 200
MARKUP_LIMIT: Final = 4 * 1024 * 1024
"""Maximum characters of one tag or comment."""
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff\ud800-\udfff]")
_PLAIN_CODEC = re.compile(r"ascii|big5|cp\d|euc|gb|iso|koi8|mac|shift|utf-8")
_DECLARED = re.compile(r"""<\?xml[^>]{0,200}?\sencoding\s*=\s*["']([A-Za-z0-9._-]{1,40})["']""")


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of an element."""

    tag: str
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ElementEnd:
    """The end of an element."""

    tag: str
    text: str
    """Text before the first child and between children; of a long text only both ends."""


@dataclass(frozen=True, slots=True)
class Torn:
    """The document cannot be read any further."""

    reason: str


def xml_events(artifact: Artifact) -> Iterator[Begin | ElementEnd | Torn]:
    """Yield the beginnings and ends of elements in order.

    Raises UnreadableError if the document is refused or no XML.
    """
    target = _Target()
    parser = DefusedXMLParser(target=target, forbid_dtd=True)
    has_begun = False
    for piece in _pieces(artifact):
        error = _fed(parser, piece)
        has_begun = has_begun or bool(target.events)
        yield from target.drained()
        error = error or target.excess(len(piece or ""))
        if error and not has_begun:
            raise UnreadableError(f"it is not XML: {error}")
        if error:
            yield Torn(error)
            return


def _pieces(artifact: Artifact) -> Iterator[str | None]:
    for chunk in chunks(artifact, _codec(artifact)):
        if chunk:
            yield _ILLEGAL.sub("\ufffd", chunk)
    yield None


def _codec(artifact: Artifact) -> str:
    marked = encoding(artifact.head)
    declared = _DECLARED.match(head_text(artifact))
    if marked != "utf-8" or declared is None:
        return marked
    try:
        name = codecs.lookup(declared.group(1)).name
    except LookupError:
        return marked
    return name if _PLAIN_CODEC.match(name) else marked


def _fed(parser: DefusedXMLParser, piece: str | None) -> str:
    """Parse one more piece, or the end; return the error, if any."""
    try:
        if piece is None:
            parser.close()
        else:
            parser.feed(piece)
    except DefusedXmlException:
        message = "it declares a document type or entities, which result files do not need: refused"
        raise UnreadableError(message) from None
    except UnreadableError as error:
        return str(error)
    except (ParseError, ValueError, AssertionError) as error:
        return "the document ends in its middle" if piece is None else f"{error}"[:200]
    return ""


@dataclass(slots=True)
class _Text:
    """Keeps both ends of a text that is read in pieces."""

    length: int = 0
    _head: list[str] = field(default_factory=list)
    _tail: deque[str] = field(default_factory=deque)
    _tail_length: int = 0

    def add(self, data: str) -> None:
        room = max(TEXT_LIMIT // 2 - self.length, 0)
        self.length += len(data)
        if room:
            self._head.append(data[:room])
            data = data[room:]
        if not data:
            return
        self._tail.append(data)
        self._tail_length += len(data)
        while self._tail_length - len(self._tail[0]) >= TEXT_LIMIT // 2:
            self._tail_length -= len(self._tail.popleft())

    def __str__(self) -> str:
        head, tail = "".join(self._head), "".join(self._tail)
        if self.length <= TEXT_LIMIT:
            return as_text(head + tail)
        half = TEXT_LIMIT // 2
        left_out = self.length - 2 * half
        return as_text(f"{head}\n... [{left_out} characters left out] ...\n{tail[-half:]}", 2**20)


class _Target:
    """Receives the parser's events; the parser prescribes the method names."""

    def __init__(self) -> None:
        self.events: list[Begin | ElementEnd] = []
        self._texts: list[_Text] = []
        self._silent = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        if len(self._texts) >= DEEPEST:
            raise UnreadableError(f"it is nested deeper than {DEEPEST} levels")
        self._texts.append(_Text())
        kept = list(attributes.items())[:MOST_ATTRIBUTES]
        named = {_local(name): shortened(value, ATTRIBUTE_LIMIT) for name, value in kept}
        self.events.append(Begin(_local(tag), named))
        self._silent = 0

    def data(self, data: str) -> None:
        if self._texts:
            self._texts[-1].add(data)
        self._silent = 0

    def end(self, tag: str) -> None:
        self.events.append(ElementEnd(_local(tag), str(self._texts.pop())))
        self._silent = 0

    def close(self) -> None:
        """Note that the document is complete."""

    def drained(self) -> Iterator[Begin | ElementEnd]:
        """Return the events since the last call."""
        found, self.events = self.events, []
        return iter(found)

    def excess(self, length: int) -> str:
        """Return an error if the parser read too many characters without an event; else empty."""
        self._silent += length
        if self._silent > MARKUP_LIMIT:
            return f"a single tag or comment is longer than {MARKUP_LIMIT} characters"
        return ""


def _local(name: str) -> str:
    return name.rpartition("}")[2][:200]
