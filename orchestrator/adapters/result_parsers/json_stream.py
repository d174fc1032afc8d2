"""Reads JSON of any size in bounded memory: the caller names the parts that it wants.

Python's additions to JSON (``NaN``, ``Infinity``) and numbers outside the range of a float are read
as null. A truncated document is read up to its end.
"""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Generator, Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, cast

import ijson

from orchestrator.adapters.result_parsers.bounded_input import (
    DEEPEST,
    as_number,
    as_text,
    chunks,
    head_text,
)
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError
from orchestrator.domain.parsed_results import ParsedEnd, ParsedProblem

Path = tuple[str, ...]
EACH: Final = "*"
"""Matches every element of a list in a path."""
MOST_VALUES: Final = 250_000
"""Maximum number of values inside one wanted part."""
MOST_CHARACTERS: Final = 16 * 1024 * 1024
"""Maximum characters of all texts inside one wanted part."""
_STRING_LIMIT: Final = 1024 * 1024
_WORD_LIMIT: Final = 300
_STRING = r'"(?:[^"\\]++|\\.)*+"'
_WHOLE = re.compile(rf'(?:[^"]*+{_STRING})*+', re.DOTALL)
_REST = re.compile(r'(?:[^"\\]++|\\.)*+', re.DOTALL)
_TORN_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{0,3}\Z")
# A number that Python refuses must not reach the parser, which would fail on it.
_NOT_JSON = re.compile(
    rf"-?Infinity|NaN|(?<![-+.0-9eE])(?:[-+.0-9eE]{{{_WORD_LIMIT},}}|[-+.0-9]++[eE][-+]?[0-9]{{5,}})"
)
_PIECE = re.compile(rf"({_STRING})|{_NOT_JSON.pattern}", re.DOTALL)
_WORD_CHARACTERS = "-+." + string.ascii_letters + string.digits


class JsonReader:
    """Incremental parser of one JSON document."""

    def __init__(self, artifact: Artifact, wanted: Collection[Path]) -> None:
        """`wanted` are the paths of the parts to build; none of them is inside another."""
        self._artifact = artifact
        self._wanted = frozenset(wanted)
        self._seen: set[Path] = set()
        self._open: list[str | None] = []
        self._values: int = 0
        self.problems: list[ParsedProblem] = []
        """Problems for a person; complete after the last part."""
        self.is_torn = False
        """The document is truncated; the last part may be incomplete."""
        self._doubled = ""
        """What says first that a key occurs twice."""

    def parts(self) -> Iterator[tuple[Path, object]]:
        """Yield every wanted part with its path. Raises UnreadableError if no part can be read."""
        is_list = any(path[:1] == (EACH,) for path in self._wanted)
        kind, begin = ("list", "[") if is_list else ("object", "{")
        if not head_text(self._artifact).startswith(begin):
            raise UnreadableError(f"it is not a JSON {kind}: it does not begin with {begin}")
        building: _Building | None = None
        try:
            for event, value in _events(self._artifact):
                building, part = self._take(building, event, value)
                if part is not None:
                    yield part
        except (ijson.JSONError, UnreadableError, ValueError, ArithmeticError) as error:
            yield from self._tear(building, error)

    def ended(self, end: ParsedEnd) -> ParsedEnd:
        """Return the end of the job, as failed if a key of the document occurs twice."""
        code, detail = end.exit_code or 1, end.detail or self._doubled
        return replace(end, exit_code=code, detail=detail) if self._doubled else end

    def _take(
        self, building: _Building | None, event: str, value: object
    ) -> tuple[_Building | None, tuple[Path, object] | None]:
        self._values += 1
        if building is None:
            if event == "map_key":
                self._open[-1] = cast("str", value)
                return None, None
            path = tuple(EACH if key is None else key for key in self._open)
            if event.startswith("end_") or path not in self._wanted:
                self._follow(event)
                return None, None
            building = _Building(path)
        building.take(event, value)
        if len(self._open) + building.depth > DEEPEST:
            raise UnreadableError(f"it is nested deeper than {DEEPEST} levels")
        return (None, self._finished(building)) if building.is_complete else (building, None)

    def _follow(self, event: str) -> None:
        if event == "start_map":
            self._open.append("")
        elif event == "start_array":
            self._open.append(None)
        elif event.startswith("end_"):
            self._open.pop()
        if len(self._open) > DEEPEST:
            raise UnreadableError(f"it is nested deeper than {DEEPEST} levels")

    def _finished(self, building: _Building) -> tuple[Path, object]:
        path = building.path
        if EACH not in path and path in self._seen:
            building.doubled.append(path[-1] if path else "")
        self._seen.add(path)
        where = ".".join(path) or "document"
        if building.doubled:
            keys = ", ".join(dict.fromkeys(key[:80] for key in building.doubled[:5]))
            told = f"{where}: a key occurs twice: {keys}"
            self._doubled = self._doubled or told
            self.problems.append(ParsedProblem("error", told))
        if building.is_cut:
            self.problems.append(
                ParsedProblem("warning", f"{where} is too large: the rest of it is left out")
            )
        return path, building.root

    def _tear(self, building: _Building | None, error: Exception) -> Iterator[tuple[Path, object]]:
        if self._values <= 1:
            raise UnreadableError(f"it is not JSON: {_words(error)}") from None
        self.is_torn = True
        if building is not None:
            yield self._finished(building)
        self.problems.append(
            ParsedProblem("error", f"torn: {_words(error)}; what came before it is kept")
        )


@dataclass(slots=True)
class _Building:
    """A wanted part whose end was not read yet."""

    path: Path
    root: object = None
    doubled: list[str] = field(default_factory=list)
    is_cut: bool = False
    is_complete: bool = False
    _open: list[dict[str, object] | list[object]] = field(default_factory=list)
    _keys: list[str] = field(default_factory=list)
    _values: int = 0
    _characters: int = 0
    _begun: int = 0

    @property
    def depth(self) -> int:
        return self._begun

    def take(self, event: str, value: object) -> None:
        if event == "map_key":
            self._keys[-1] = as_text(value)
            return
        if event.startswith("end_"):
            self._end()
        elif event == "start_map":
            self._begin({})
        elif event == "start_array":
            self._begin([])
        else:
            self._add(self._scalar(value))
        self.is_complete = not self._begun

    def _begin(self, made: dict[str, object] | list[object]) -> None:
        self._begun += 1
        if self._begun <= DEEPEST:
            self._add(made)
            self._open.append(made)
            self._keys.append("")

    def _end(self) -> None:
        if self._begun <= DEEPEST:
            self._open.pop()
            self._keys.pop()
        self._begun -= 1

    def _add(self, value: object) -> None:
        if not self._open:
            self.root = value
            return
        self._values += 1
        if self._values > MOST_VALUES or self._characters > MOST_CHARACTERS:
            self.is_cut = True
            return
        within = self._open[-1]
        if isinstance(within, list):
            within.append(value)
            return
        key = self._keys[-1]
        if key in within:
            self.doubled.append(key)
        self._characters += len(key)
        within[key] = value

    def _scalar(self, value: object) -> object:
        if isinstance(value, Decimal):
            return as_number(value)
        if not isinstance(value, str):
            return value
        text = as_text(value)
        self._characters += len(text)
        return text


def _words(error: Exception) -> str:
    if isinstance(error, UnreadableError):
        return str(error)
    first = str(error).removeprefix("b'").splitlines()[0].split("\\n")[0]
    if "premature EOF" in first:
        return "the document ends in its middle"
    return f"it stops being JSON ({first.strip()[:120]})"


def _events(artifact: Artifact) -> Iterator[tuple[str, object]]:
    return cast("Iterator[tuple[str, object]]", ijson.basic_parse(_Washed(artifact)))


class _Washed:
    """A file object over a document in which values that the parser refuses are replaced."""

    def __init__(self, artifact: Artifact) -> None:
        self._chunks = chunks(artifact)
        self._carry = ""
        self._in_string = False
        self._kept = 0
        self._is_over = False

    def read(self, size: int = -1) -> bytes:
        """Return the next piece; empty at the end. Its length is that of the file's, not `size`."""
        while size and not self._is_over:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._is_over = True
                return self._carry.encode()
            if washed := "".join(self._wash(self._carry + chunk)):
                return washed.encode("utf-8", "replace")
        return b""

    def _wash(self, text: str) -> Iterator[str]:
        self._carry = ""
        begin = 0
        if self._in_string:
            begin = yield from self._inside(text, 0)
        if self._in_string:
            return
        found = _WHOLE.match(text, begin)
        end = found.end() if found else begin
        yield _mended(text[begin:end])
        opening = text.find('"', end)
        if opening >= 0:
            yield _mended(text[end:opening]) + '"'
            self._in_string, self._kept = True, 0
            yield from self._inside(text, opening + 1)
            return
        rest = text[end:]
        whole = len(rest.rstrip(_WORD_CHARACTERS))
        self._carry = rest[whole:]
        if len(self._carry) > _WORD_LIMIT:
            raise UnreadableError(f"it holds a number of more than {_WORD_LIMIT} characters")
        yield _mended(rest[:whole])

    def _inside(self, text: str, begin: int) -> Generator[str, None, int]:
        """Yield the rest of a string; the generator's value is the position after it."""
        found = _REST.match(text, begin)
        end = found.end() if found else begin
        yield self._limited(text[begin:end])
        if text[end : end + 1] == '"':
            self._in_string = False
            yield '"'
            return end + 1
        self._carry = text[end:]
        return len(text)

    def _limited(self, piece: str) -> str:
        if self._kept > _STRING_LIMIT:
            return ""
        self._kept += len(piece)
        if self._kept > _STRING_LIMIT:
            return _TORN_ESCAPE.sub("", piece) + " ...[cut]"
        return piece


def _mended(text: str) -> str:
    """Return a piece with only complete strings, without values that the parser refuses."""
    if not _NOT_JSON.search(text):
        return text
    return _PIECE.sub(lambda found: found.group(1) or "null", text)
