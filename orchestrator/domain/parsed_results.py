"""Statements parsed from a foreign artifact, before they are merged.

A dialect turns the bytes of one artifact into these statements, in the order of the file. It
decides nothing: which job a test belongs to, what counts twice and what contradicts itself is
decided once for all artifacts of a platform, by `orchestrator.domain.assembly`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.untyped_values import LARGEST_SAMPLE


class Provenance(StrEnum):
    """Reliability of a result's source."""

    AGENT = "agent"
    """Recorded by our agent."""
    STRUCTURED = "structured"
    """Parsed from a machine-readable document: JUnit XML, reportlog, CTRF ..."""
    PARSED_TEXT = "parsed-text"
    """Parsed from text for people."""
    TRANSCRIBED = "transcribed"
    """Typed by a person from a document."""


@dataclass(frozen=True, slots=True)
class ParsedTest:
    """The result of one test."""

    nodeid: str
    """Node id in pytest's form, ``path::Class::name[params]``."""
    outcome: TestOutcome
    """MISSING where the artifact has no end of an announced or started test."""
    duration_s: float | None = None
    reason: str = ""
    """Reason of a skip or xfail; ``setup``, ``teardown`` or ``collection`` for an error."""
    message: str = ""
    """One line."""
    text: str = ""
    """The traceback, truncated."""
    earlier: tuple[TestOutcome, ...] = ()
    """Outcomes of earlier tries, where a plug-in reran it."""


@dataclass(frozen=True, slots=True)
class ParsedDetail:
    """Details of a test of a `ParsedTest`, such as a FAILURES section."""

    name: str
    """The node id, or the part of it in the section's title."""
    message: str = ""
    text: str = ""
    phase: str = ""
    """``setup``, ``teardown`` or ``collection`` where the failure is there."""


@dataclass(frozen=True, slots=True)
class ParsedTally:
    """Test counts stated by the artifact."""

    where: str
    """``collected`` (announced) or ``footer`` (summed up at the end)."""
    total: int
    """Number of tests without deselected ones."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Stated numbers of tests by `TestOutcome.word`."""
    duration_s: float | None = None
    warnings: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedUnnamedTests:
    """Tests of a suite that are counted but not named (a transcription)."""

    counts: Mapping[str, int]
    """Numbers of tests by `TestOutcome.word`."""


@dataclass(frozen=True, slots=True)
class ParsedSubtests:
    """Subtests that passed or were skipped: no tests, but some writers count them so.

    Also the own passing report of each test whose subtests failed.
    """

    count: int


@dataclass(frozen=True, slots=True)
class ParsedJob:
    """Start of a job's section; the next one ends it.

    Dialects whose artifacts hold a single job, or suites told apart by their tests' paths, need
    not say it.
    """

    id: str = ""
    """Empty if the job is named after the artifact."""
    kind: str = ""
    """``suite``, ``demo``, ``benchmark`` or ``use-case``."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ParsedEnd:
    """End of the job; without it the artifact is incomplete, or its end is inferred."""

    exit_code: int | None = None
    duration_s: float | None = None
    cause: str = ""
    """``crashed``, ``timeout`` ... as in `JobFact.cause`; empty for a normal end."""
    detail: str = ""
    inferred: bool = False
    """Whether the normal end is inferred from its last lines."""


@dataclass(frozen=True, slots=True)
class ParsedCheck:
    """A check that a demo reports about itself."""

    name: str
    outcome: str
    """passed, failed or skipped."""
    value: str = ""
    unit: str = ""
    tolerance: str = ""
    reason: str = ""
    inferred: bool = False
    """Whether it is inferred from a heading and a normal end."""


METRIC_SAMPLES = 100_000
"""Maximum number of samples of a metric; the agent's limit, as are the next three."""
METRIC_CHARACTERS = 500
"""Maximum length of a metric's name, unit and names of parameters."""
METRIC_PARAMS = 100
"""Maximum number of a metric's parameters."""
METRIC_WHOLE = 2**63
"""Integers among a metric's parameters are smaller."""


@dataclass(frozen=True, slots=True)
class ParsedMetric:
    """One measured quantity with all its samples in their order."""

    name: str
    samples: tuple[float, ...]
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    params: Mapping[str, object] = field(default_factory=dict)

    @property
    def refusal(self) -> str:
        """Return which of the limits of metrics the metric exceeds; empty if none."""
        words = (self.name, self.unit, *self.params)
        if any(len(word) > METRIC_CHARACTERS for word in words):
            return f"a name, unit or parameter's name has more than {METRIC_CHARACTERS} characters"
        if len(self.samples) > METRIC_SAMPLES:
            return f"{len(self.samples)} samples are more than {METRIC_SAMPLES}"
        if any(abs(sample) >= LARGEST_SAMPLE for sample in self.samples):
            return f"a sample is not smaller than {LARGEST_SAMPLE:g}"
        if len(self.params) > METRIC_PARAMS:
            return f"{len(self.params)} parameters are more than {METRIC_PARAMS}"
        whole = (value for value in self.params.values() if isinstance(value, int))
        if any(abs(value) >= METRIC_WHOLE for value in whole):
            return "a parameter is an integer of more than 64 bits"
        return ""


@dataclass(frozen=True, slots=True)
class ParsedFallback:
    """A fallback: a neighbouring part did not run as intended."""

    reason: str


@dataclass(frozen=True, slots=True)
class ParsedEnvironment:
    """Facts about machine and software, with the keys of the agent's environment event.

    Keys: ``python``, ``torch``, ``cuda``, ``hip``, ``xla``, ``packages`` {name: version}, and
    ``machine`` with ``os``, ``kernel``, ``hostname``, ``devices`` [{``vendor``, ``name``,
    ``uuid``, ``memory_bytes``, ``compute_capability``, ``driver``}].
    """

    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ParsedVersion:
    """A name and version of the tested software, printed by the artifact."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ParsedProblem:
    """A problem of the artifact: incomplete, inconsistent, unreadable."""

    level: str
    """``warning``, or ``error`` where its statements are unreliable."""
    message: str


@dataclass(frozen=True, slots=True)
class ParsedNotice:
    """A notice about the artifact that is not a problem, such as that the artifact is a copy."""

    message: str


@dataclass(frozen=True, slots=True)
class ParsedTime:
    """The time of an event in the artifact."""

    at: datetime
    """The written time; naive if it has no zone."""


ParsedItem = (
    ParsedTest
    | ParsedDetail
    | ParsedTally
    | ParsedSubtests
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
