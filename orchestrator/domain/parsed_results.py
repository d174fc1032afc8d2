"""Statements parsed from a foreign artifact, before they are merged and judged.

A dialect turns the bytes of one artifact into these statements, in the order of the file. It
judges nothing: which job a test belongs to, what counts twice and what contradicts itself is
decided once for all artifacts of a platform, by `orchestrator.domain.assembly`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.outcome import TestOutcome


class Provenance(StrEnum):
    """How reliable the source of a parsed result is."""

    AGENT = "agent"
    """Our agent wrote it while it happened."""
    STRUCTURED = "structured"
    """Read from a machine-made document with a format: JUnit XML, reportlog, CTRF ..."""
    PARSED_TEXT = "parsed-text"
    """Read from lines that were made for people."""
    TRANSCRIBED = "transcribed"
    """Typed by a person from a document."""


@dataclass(frozen=True, slots=True)
class ParsedTest:
    """The result of one test."""

    nodeid: str
    """As pytest writes it, ``path::Class::name[params]``."""
    outcome: TestOutcome
    """MISSING where the test was announced or begun, and its end is not in the artifact."""
    duration_s: float | None = None
    reason: str = ""
    """Of a skip or an expected failure; ``setup``, ``teardown`` or ``collection`` of an error."""
    message: str = ""
    """One line."""
    text: str = ""
    """The traceback, bounded."""
    earlier: tuple[TestOutcome, ...] = ()
    """Outcomes of tries before the last one, where a plug-in ran it again."""


@dataclass(frozen=True, slots=True)
class ParsedDetail:
    """More about a test that was, or will be, named by a `ParsedTest`: a FAILURES section."""

    name: str
    """The node id, or only the part of it that the section's title has."""
    message: str = ""
    text: str = ""
    phase: str = ""
    """``setup``, ``teardown`` or ``collection`` where that is where it went wrong."""


@dataclass(frozen=True, slots=True)
class ParsedTally:
    """How many tests there are, in the artifact's own words."""

    where: str
    """``collected`` (announced) or ``footer`` (summed up at the end)."""
    total: int
    """Tests; deselected ones are not among them."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """By `TestOutcome.word`, where it says so."""
    duration_s: float | None = None
    warnings: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedUnnamedTests:
    """Tests of a suite that are counted without being named (a transcription)."""

    counts: Mapping[str, int]
    """By `TestOutcome.word`."""


@dataclass(frozen=True, slots=True)
class ParsedJob:
    """The artifact, or what follows in it, is about one job; nothing before the next one ends it.

    Dialects whose artifacts hold a single job, or suites told apart by their tests' paths, need
    not say it.
    """

    id: str = ""
    """Empty: named after the artifact."""
    kind: str = ""
    """``suite``, ``demo``, ``benchmark`` or ``use-case``."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ParsedEnd:
    """How the job ended; an artifact that never says so is torn, or inferred to be whole."""

    exit_code: int | None = None
    duration_s: float | None = None
    cause: str = ""
    """``crashed``, ``timeout`` ... in the words of `JobFact.cause`; empty when it just ended."""
    detail: str = ""
    inferred: bool = False
    """Nothing says that it ended well; its last words only sound like it."""


@dataclass(frozen=True, slots=True)
class ParsedCheck:
    """One statement that a demo made about itself."""

    name: str
    outcome: str
    """passed, failed or skipped."""
    value: str = ""
    unit: str = ""
    tolerance: str = ""
    reason: str = ""
    inferred: bool = False
    """Concluded from a heading and a happy end, not said."""


@dataclass(frozen=True, slots=True)
class ParsedMetric:
    """One measured quantity."""

    name: str
    samples: tuple[float, ...]
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    params: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ParsedFallback:
    """A fallback: what follows or went before did not run the way it should have."""

    reason: str


@dataclass(frozen=True, slots=True)
class ParsedEnvironment:
    """Facts about the machine and its software, in the words of the agent's environment event.

    Keys: ``python``, ``torch``, ``cuda``, ``hip``, ``xla``, ``packages`` {name: version}, and
    ``machine`` with ``os``, ``kernel``, ``hostname``, ``devices`` [{``vendor``, ``name``,
    ``uuid``, ``memory_bytes``, ``compute_capability``, ``driver``}].
    """

    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ParsedVersion:
    """A name and a version that the artifact prints of the software under test."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ParsedProblem:
    """Something about the artifact that a person must know: torn, inconsistent, unreadable."""

    level: str
    """``warning``, or ``error`` where what it says cannot be relied on."""
    message: str


@dataclass(frozen=True, slots=True)
class ParsedNotice:
    """Something about the artifact that is worth knowing, and no problem: what it is a copy of."""

    message: str


@dataclass(frozen=True, slots=True)
class ParsedTime:
    """When something that the artifact tells of happened."""

    at: datetime
    """As it is written: without a zone where the artifact says none."""


Said = (
    ParsedTest
    | ParsedDetail
    | ParsedTally
    | ParsedUnnamedTests
    | ParsedJob
    | ParsedEnd
    | ParsedCheck
    | ParsedMetric
    | ParsedFallback
    | ParsedEnvironment
    | ParsedVersion
    | ParsedProblem
    | ParsedNotice
    | ParsedTime
)
