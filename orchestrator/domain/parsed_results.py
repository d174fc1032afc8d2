"""Statements that a dialect parses from an artifact, before artifacts are merged.

A dialect parses the bytes of one artifact into these statements, in the order of the file. It makes
no decision: `orchestrator.domain.assembly` decides for all artifacts of a platform which job a test
belongs to, which results are repetitions, and which contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.untyped_values import LARGEST_SAMPLE


class Provenance(StrEnum):
    """The reliability of results, by their source."""

    AGENT = "agent"
    """Our agent recorded the results."""
    STRUCTURED = "structured"
    """Parsed from a machine-readable document, such as JUnit XML, reportlog or CTRF."""
    PARSED_TEXT = "parsed-text"
    """Parsed from a text for people."""
    TRANSCRIBED = "transcribed"
    """Copied by a person from a document."""


@dataclass(frozen=True, slots=True)
class ParsedTest:
    """The result of one test."""

    nodeid: str
    """Node id in the form of pytest: ``path::Class::name[params]``."""
    outcome: TestOutcome
    """The outcome; MISSING if the artifact announces or starts the test and does not end it."""
    duration_s: float | None = None
    reason: str = ""
    """Reason of a skip or xfail; ``setup``, ``teardown`` or ``collection`` for an error."""
    message: str = ""
    """The message in one line."""
    text: str = ""
    """The traceback, cut to a maximum length."""
    earlier: tuple[TestOutcome, ...] = ()
    """Outcomes of earlier tries, if a plug-in repeated the test."""


@dataclass(frozen=True, slots=True)
class ParsedDetail:
    """Details of a test, such as those in a FAILURES section."""

    name: str
    """The node id, or the part of it that the section's title has."""
    message: str = ""
    text: str = ""
    phase: str = ""
    """``setup``, ``teardown`` or ``collection`` if the test failed in that phase."""


@dataclass(frozen=True, slots=True)
class ParsedTally:
    """Numbers of tests that the artifact states."""

    where: str
    """``collected`` (announced at the beginning) or ``footer`` (summed up at the end)."""
    total: int
    """Number of tests, without deselected ones."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Numbers of tests by `TestOutcome.word`."""
    duration_s: float | None = None
    warnings: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedUnnamedTests:
    """Tests of a suite that a transcribed document counts without naming them."""

    counts: Mapping[str, int]
    """Numbers of tests by `TestOutcome.word`."""


@dataclass(frozen=True, slots=True)
class ParsedSubtests:
    """The number of passed or skipped subtests, which some artifacts count as tests.

    It includes the passing report of each test whose subtests failed.
    """

    count: int


@dataclass(frozen=True, slots=True)
class ParsedJob:
    """The beginning of a job's section, which ends at the next one.

    Dialects omit it if an artifact has only one job, or suites that differ by their tests'
    paths.
    """

    id: str = ""
    """Id of the job; empty if it is named after the artifact."""
    kind: str = ""
    """``suite``, ``demo``, ``benchmark`` or ``use-case``."""
    title: str = ""


@dataclass(frozen=True, slots=True)
class ParsedEnd:
    """The end of the job. Without it the artifact is incomplete, or the end is inferred."""

    exit_code: int | None = None
    duration_s: float | None = None
    cause: str = ""
    """Cause of an abnormal end, such as ``crashed`` or ``timeout`` (`JobFact.cause`)."""
    detail: str = ""
    inferred: bool = False
    """Whether the normal end is inferred from the last lines."""


@dataclass(frozen=True, slots=True)
class ParsedCheck:
    """A check that a job reports about itself."""

    name: str
    outcome: str
    """The outcome: passed, failed or skipped."""
    value: str = ""
    unit: str = ""
    tolerance: str = ""
    reason: str = ""
    inferred: bool = False
    """Whether the check is inferred from a heading and a normal end."""


METRIC_SAMPLES = 100_000
"""Maximum number of samples of a metric; the agent has the same limits."""
METRIC_CHARACTERS = 500
"""Maximum length of a metric's name, unit and names of parameters."""
METRIC_PARAMS = 100
"""Maximum number of a metric's parameters."""
METRIC_WHOLE = 2**63
"""Upper limit of the absolute value of an integer parameter."""


@dataclass(frozen=True, slots=True)
class ParsedMetric:
    """One measured quantity with all its samples, in order."""

    name: str
    samples: tuple[float, ...]
    unit: str
    direction: str
    """Which values are better: ``higher`` or ``lower``."""
    params: Mapping[str, object] = field(default_factory=dict)

    @property
    def refusal(self) -> str:
        """A message that names the exceeded limit of metrics; empty if no limit is exceeded."""
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
    """A fallback: a part near this statement did not run as intended."""

    reason: str


@dataclass(frozen=True, slots=True)
class ParsedEnvironment:
    """Facts about the machine and its software, with the keys of the agent's environment event.

    The keys are ``python``, ``torch``, ``cuda``, ``hip``, ``xla``, ``packages`` {name:
    version}, and ``machine`` with ``os``, ``kernel``, ``hostname`` and ``devices``
    [{``vendor``, ``name``, ``uuid``, ``memory_bytes``, ``compute_capability``, ``driver``}].
    """

    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ParsedVersion:
    """The name and version of the tested software that the artifact prints."""

    name: str
    version: str


@dataclass(frozen=True, slots=True)
class ParsedProblem:
    """A problem of the artifact: it is incomplete, inconsistent or unreadable."""

    level: str
    """``warning``; or ``error`` if the artifact's statements are unreliable."""
    message: str


@dataclass(frozen=True, slots=True)
class ParsedNotice:
    """A remark about the artifact that is no problem, such as that it is a copy."""

    message: str


@dataclass(frozen=True, slots=True)
class ParsedTime:
    """The time of an event in the artifact."""

    at: datetime
    """The time as written; without a zone if the artifact has none."""


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
