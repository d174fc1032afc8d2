"""Transcriptions: results that a person typed from a document, as YAML or JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.adapters.files.document_nodes import LARGEST_BYTES
from orchestrator.adapters.files.documents import DocumentForm
from orchestrator.adapters.result_parsers.bounded_input import encoding, head_text
from orchestrator.application.ports.result_parsers import Artifact, UnreadableError
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.manifest import JobKind
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.parsed_results import (
    ParsedCheck,
    ParsedEnd,
    ParsedEnvironment,
    ParsedFallback,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedNotice,
    ParsedProblem,
    ParsedTest,
    ParsedUnnamedTests,
    Provenance,
)

OutcomeWord = Literal[
    "passed", "failed", "error", "skipped", "xfailed", "xpassed", "missing", "not_run"
]
CheckWord = Literal["passed", "failed", "skipped"]
_MIB: Final = 1024 * 1024
_KIND = re.compile(r"""(?m)(?:^|[{,\s])["']?kind["']?\s*:\s*["']?Transcription\b""")
_LONGEST_OF: Final = 300
_NAME = re.compile(r"(?i)transcription[^/\\]*\.(?:ya?ml|json)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedDevice:
    """An accelerator as a person typed it from a document; unknown fields are empty or None."""

    name: str
    vendor: str = ""
    uuid: str = ""
    memory_mib: int | None = None
    compute_capability: str = ""
    driver: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedEnvironment:
    """The machine and its software, as documented."""

    python: str = ""
    torch: str = ""
    cuda: str = ""
    hip: str = ""
    xla: str = ""
    os: str = ""
    kernel: str = ""
    hostname: str = ""
    packages: dict[str, str] = field(default_factory=dict)
    devices: tuple[TypedDevice, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedTest:
    """A test with its outcome and details."""

    outcome: OutcomeWord
    reason: str = ""
    message: str = ""
    duration_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedCheck:
    """A check with its outcome and details."""

    outcome: CheckWord
    value: str = ""
    unit: str = ""
    tolerance: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedMetric:
    """A measured quantity."""

    metric: str
    samples: tuple[float, ...]
    unit: str
    direction: Literal["higher", "lower"]
    params: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedJob:
    """One job."""

    id: str
    kind: JobKind = "suite"
    title: str = ""
    counts: dict[OutcomeWord, int] = field(default_factory=dict)
    """Number of tests without names, by outcome."""
    tests: dict[str, OutcomeWord | TypedTest] = field(default_factory=dict)
    """Named tests, by node id."""
    duration_s: float | None = None
    degraded: str = ""
    checks: dict[str, CheckWord | TypedCheck] = field(default_factory=dict)
    metrics: tuple[TypedMetric, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedDocument:
    """A transcription."""

    of: str
    """The source document and its date."""
    jobs: tuple[TypedJob, ...]
    environment: TypedEnvironment = TypedEnvironment()


class Transcription:
    """Parses results that a person typed from a document (`Dialect`)."""

    name = "transcription"
    version = 2
    provenance = Provenance.TRANSCRIBED

    def __init__(self) -> None:
        self._form = DocumentForm(TypedDocument, "Transcription")

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
        is_named = _NAME.search(artifact.name) is not None
        if _KIND.search(head_text(artifact)[:4096]):
            return 1.0 if is_named else 0.9
        return 0.6 if is_named else 0.0

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory."""
        document = self._document(artifact)
        facts = _facts(document.environment)
        if facts:
            yield ParsedEnvironment(facts)
        if document.of.strip():
            yield ParsedNotice(f"typed from {' '.join(document.of.split())[:_LONGEST_OF]}")
        if not document.jobs:
            yield ParsedProblem("warning", "it has no jobs")
        for job in document.jobs:
            yield from _statements_of_job(job)

    def _document(self, artifact: Artifact) -> TypedDocument:
        if artifact.size_bytes > LARGEST_BYTES:
            raise UnreadableError(f"it is larger than {LARGEST_BYTES} bytes")
        try:
            text = artifact.path.read_bytes().decode(encoding(artifact.head))
            read = self._form.read(text, artifact.name)
            read.refuse(_faults(read.value))
        except UnicodeDecodeError as error:
            raise UnreadableError(f"byte {error.start} is no text in UTF-8") from None
        except (InvalidDocumentError, RecursionError) as error:
            raise UnreadableError(str(error)) from None
        return read.value


def _faults(document: TypedDocument) -> Iterator[Problem]:
    seen: set[str] = set()
    for number, job in enumerate(document.jobs):
        path = ("jobs", number)
        if job.id in seen:
            yield Problem((*path, "id"), f"there is a job {job.id!r} already")
        seen.add(job.id)
        if not job.id.strip():
            yield Problem((*path, "id"), "must not be empty")
        for word, count in job.counts.items():
            if count < 0:
                yield Problem((*path, "counts", word), "must not be negative")
        yield from _bad_numbers(job, path)


def _bad_numbers(job: TypedJob, path: tuple[str | int, ...]) -> Iterator[Problem]:
    if job.duration_s is not None and not 0 <= job.duration_s < float("inf"):
        yield Problem((*path, "duration_s"), "must be a duration")
    for nodeid, test in job.tests.items():
        seconds = test.duration_s if isinstance(test, TypedTest) else None
        if seconds is not None and not 0 <= seconds < float("inf"):
            yield Problem((*path, "tests", nodeid, "duration_s"), "must be a duration")
    for number, metric in enumerate(job.metrics):
        if not metric.samples:
            yield Problem((*path, "metrics", number, "samples"), "must not be empty")
        if any(abs(sample) == float("inf") for sample in metric.samples):
            yield Problem((*path, "metrics", number, "samples"), "must be finite")


def _statements_of_job(job: TypedJob) -> Iterator[ParsedItem]:
    yield ParsedJob(job.id, job.kind, job.title)
    for nodeid, test in job.tests.items():
        typed = test if isinstance(test, TypedTest) else TypedTest(outcome=test)
        outcome = TestOutcome[typed.outcome.upper()]
        yield ParsedTest(nodeid, outcome, typed.duration_s, typed.reason, typed.message)
    if job.counts:
        yield ParsedUnnamedTests({str(word): count for word, count in job.counts.items()})
    for name, check in job.checks.items():
        told = check if isinstance(check, TypedCheck) else TypedCheck(outcome=check)
        yield ParsedCheck(name, told.outcome, told.value, told.unit, told.tolerance, told.reason)
    for metric in job.metrics:
        yield ParsedMetric(
            metric.metric, metric.samples, metric.unit, metric.direction, dict(metric.params)
        )
    if job.degraded:
        yield ParsedFallback(job.degraded)
    yield ParsedEnd(duration_s=job.duration_s)


def _facts(environment: TypedEnvironment) -> dict[str, object]:
    software = ("python", "torch", "cuda", "hip", "xla")
    facts: dict[str, object] = {k: v for k in software if (v := getattr(environment, k))}
    if environment.packages:
        facts["packages"] = dict(environment.packages)
    machine: dict[str, object] = {
        key: word for key in ("os", "kernel", "hostname") if (word := getattr(environment, key))
    }
    if environment.devices:
        machine["devices"] = [_device(device) for device in environment.devices]
    return {**facts, "machine": machine} if machine else facts


def _device(device: TypedDevice) -> dict[str, object]:
    words = ("vendor", "name", "uuid", "compute_capability", "driver")
    told: dict[str, object] = {key: word for key in words if (word := getattr(device, key))}
    if device.memory_mib is not None:
        told["memory_bytes"] = device.memory_mib * _MIB
    return told
