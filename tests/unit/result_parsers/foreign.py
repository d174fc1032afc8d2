"""Artifacts for the tests of structured dialects: real files, files made on the spot, and noise."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path

from hypothesis import strategies as st

from orchestrator.application.ports.result_parsers import (
    HEAD_BYTES,
    TAIL_BYTES,
    Artifact,
    Dialect,
    UnreadableError,
)
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import ParsedItem, ParsedProblem, ParsedTest

FOREIGN = Path(__file__).parents[2] / "golden/foreign"
LONGEST_TEXT = 140_000


def artifact(path: Path, name: str = "") -> Artifact:
    """A file as an artifact."""
    data = path.read_bytes()
    return Artifact(name or path.name, path, len(data), data[:HEAD_BYTES], data[-TAIL_BYTES:])


def foreign(name: str) -> Artifact:
    """A file of the fixtures."""
    return artifact(FOREIGN / name)


def made(folder: Path, data: bytes | str, name: str) -> Artifact:
    """Bytes as an artifact."""
    path = folder / "artifact"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return artifact(path, name)


def outcomes(said: Iterable[ParsedItem]) -> dict[str, TestOutcome]:
    """The worst outcome of each test."""
    found: dict[str, TestOutcome] = {}
    for each in said:
        if isinstance(each, ParsedTest):
            found[each.nodeid] = max(each.outcome, found.get(each.nodeid, each.outcome))
    return found


def of_kind(said: Iterable[ParsedItem], kind: type) -> list:
    """What is of one kind."""
    return [each for each in said if isinstance(each, kind)]


def errors(said: Iterable[ParsedItem]) -> list[str]:
    """What cannot be relied on."""
    return [e.message for e in said if isinstance(e, ParsedProblem) and e.level == "error"]


def warnings(said: Iterable[ParsedItem]) -> list[str]:
    """What a person must know."""
    return [e.message for e in said if isinstance(e, ParsedProblem) and e.level == "warning"]


def survives(dialect: Dialect, data: bytes, name: str) -> list[ParsedItem]:
    """Read anything at all: statements that can be stored, or a refusal."""
    said: list[ParsedItem] = []
    with tempfile.TemporaryDirectory() as folder:
        document = made(Path(folder), data, name)
        assert 0 <= dialect.match(document) <= 1
        with contextlib.suppress(UnreadableError):
            said.extend(dialect.read(document))
    for each in said:
        check_storable(each)
    return said


def check_storable(value: object) -> None:
    """No text too long or that no database takes; no number that is none."""
    if isinstance(value, str):
        assert len(value) <= LONGEST_TEXT
        assert not any(c == "\x00" or "\ud800" <= c <= "\udfff" for c in value)
    elif isinstance(value, float):
        assert math.isfinite(value)
    for inner in _inside(value):
        check_storable(inner)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return [*value, *value.values()]
    if isinstance(value, list | tuple):
        return value
    return [getattr(value, field.name) for field in fields(value)] if is_dataclass(value) else ()


def mutated(original: bytes) -> st.SearchStrategy[bytes]:
    """The document with a piece cut out, doubled, or replaced by noise."""
    end = len(original)
    spot = st.integers(0, end)
    noise = st.binary(max_size=20) | st.sampled_from(
        [b"NaN", b"null", b"-1", b'"', b"\\", b"{", b"[[", b"}", b"1e999", b"\xff\xfe", b"<", b">"]
    )

    def change(spots: tuple[int, int], middle: bytes, times: int) -> bytes:
        begin, stop = sorted(spots)
        return original[:begin] + middle * times + original[stop if times else begin :]

    near = spot.flatmap(lambda n: st.tuples(st.just(n), st.integers(n, min(n + 40, end))))
    cut = spot.map(lambda n: original[:n])
    return cut | st.builds(change, near | st.tuples(spot, spot), noise, st.integers(1, 3))


def json_like(keys: Iterable[str]) -> st.SearchStrategy[object]:
    """Any JSON, with the keys and words of a format in wrong places."""
    words = st.sampled_from(sorted(keys))
    scalars = (
        st.none()
        | st.booleans()
        | st.integers(-(10**25), 10**25)
        | st.floats()
        | st.text(max_size=8)
        | words
    )
    return st.recursive(
        scalars,
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(words | st.text(max_size=4), inner, max_size=6)
        ),
        max_leaves=25,
    )
